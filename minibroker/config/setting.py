"""Setting: one row of a table of settings, and the notation of these tables (`*.txt` in this folder).

A row is one line, and below it, indented, a sentence on what the setting does, a default of our own, and the defaults
that older releases had, the oldest first:

    name | type and flags | default | valid values | the broker's names for it, first wins
      What it does.
      here 1: why our default is another one
      before 4.0 2: KIP or reason

Flags: how the value can be changed (read-only, per-broker, cluster-wide); `at-start` for what Kafka changes while it
runs and we do not; `later`, `ignored` or `refused` for what we do not honour; `internal` for what Kafka does not show;
`plugin` for what a class reads that another setting names: Kafka has no row for it, and shows it as a secret;
`since-` and the first of the known releases that has it, unless that is the oldest; the last release that has it,
unless that is the newest. A line that begins with `#` is a comment; `null` is no value.
Valid values are in Kafka's own notation; values.py checks them.
"""

from __future__ import annotations

NEWEST = "4.4"
RELEASES = ("2.8", "3.9", NEWEST)  # the ones whose settings are known

READ_ONLY, PER_BROKER, CLUSTER_WIDE = "read-only", "per-broker", "cluster-wide"
HONOURED = "honoured"
LATER = "later"  # accepted; the part of the broker that it is for does not exist yet
IGNORED = "ignored"  # accepted; means nothing here
REFUSED = "refused"  # any value but the default: whoever sets it would rely on what is not there


class Setting:
    """One row. Values are text, as in a properties file; `None` is no value."""

    __slots__ = (
        "at_start",
        "default",
        "doc",
        "internal",
        "kafka_default",
        "kind",
        "name",
        "of_plugin",
        "old_defaults",
        "reason",
        "since",
        "synonyms",
        "treatment",
        "until",
        "update",
        "valid",
    )

    def __init__(self, name: str, kind: str, default: str | None):
        self.name = name
        self.kind = kind  # as in Kafka, lower case: boolean, string, int, short, long, double, list, class, password
        self.default = default  # ours, most often Kafka's
        self.kafka_default = default
        self.reason = ""  # of a default of our own
        self.valid = ""
        self.update = ""  # of a broker's setting
        self.at_start = False  # read at the start only, whatever `update` says of Kafka
        self.treatment = HONOURED
        self.internal = False
        self.of_plugin = False
        self.since = ""
        self.until = NEWEST
        self.old_defaults: tuple[tuple[str, str], ...] = ()  # release and what it was before, the oldest first
        self.synonyms: tuple[str, ...] = ()  # of a topic's or group's setting: the broker's names
        self.doc = ""

    @property
    def is_sensitive(self) -> bool:
        return self.kind == "password"

    @property
    def is_dynamic(self) -> bool:
        """Whether a running broker can take another value."""
        return self.update in (PER_BROKER, CLUSTER_WIDE) and not self.at_start

    def __repr__(self) -> str:
        return f"Setting({self.name!r}, {self.kind!r}, {self.default!r})"


def parse_rows(text: str, treatment: str = HONOURED) -> dict[str, Setting]:
    """Read a table; `treatment` is that of rows which name none."""
    found: dict[str, Setting] = {}
    setting = None
    for line in text.splitlines():
        if line.startswith("#"):
            continue
        if not line.startswith("  "):
            setting = _parse_row(line, treatment)
            found[setting.name] = setting
            continue
        assert setting, line
        if line.startswith("  here "):
            default, _, setting.reason = line.removeprefix("  here ").partition(": ")
            setting.default = default
        elif line.startswith("  before "):
            release, default = line.partition(":")[0].removeprefix("  before ").split(" ")
            setting.old_defaults += ((release, default),)
        else:
            setting.doc = line.strip()
    return found


def _parse_row(line: str, treatment: str) -> Setting:
    name, flags, default, *more = line.split(" | ") if not line.endswith(" |") else [*line[:-2].split(" | "), ""]
    kind, *words = flags.split()
    setting = Setting(name, kind, None if default == "null" else default.strip())
    setting.treatment = treatment
    setting.valid = more[0].strip() if more else ""
    if len(more) > 1:
        setting.synonyms = tuple(more[1].split(","))
    for word in words:
        if word in (READ_ONLY, PER_BROKER, CLUSTER_WIDE):
            setting.update = word
        elif word in (LATER, IGNORED, REFUSED):
            setting.treatment = word
        elif word == "at-start":
            setting.at_start = True
        elif word == "internal":
            setting.internal = True
        elif word == "plugin":
            setting.of_plugin = True
        elif word.startswith("since-"):
            setting.since = word.removeprefix("since-")
        else:
            assert word in RELEASES, line
            setting.until = word
    return setting

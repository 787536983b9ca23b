"""Writes the pages of docs/ that are made from the code: `python -m docs.generate`.

Each page is a function from nothing to text; a test compares it with the file that is committed. Beside them part of
docs/sample-log is made, by sample_log.py.
"""

from __future__ import annotations

import contextlib
import inspect
import io
import re
import shlex
from pathlib import Path

from docs.reading import reading_page
from docs.sample_log import sample_files
from minibroker import cli, errors
from minibroker.broker.apis import NOT_IN_USE, SERVED
from minibroker.broker.authorize.table import EACH, TABLE, Need
from minibroker.broker.releases import ranges_of
from minibroker.config.ignored import REASONS, reason_of
from minibroker.config.setting import HONOURED, IGNORED, LATER, REFUSED, Setting
from minibroker.config.tables import (
    broker_settings,
    group_settings,
    instance_settings,
    other_settings,
    topic_settings,
)
from minibroker.groups.classic_states import EVENTS, STATES, State
from minibroker.protocol import message
from minibroker.protocol.registry import APIS, STORED, snake_case
from minibroker.security.acls import OPERATIONS, RESOURCE_TYPES
from minibroker.transactions import states as transaction_states

HERE = Path(__file__).parent
PACKAGE = HERE.parent / "minibroker"


def errors_page() -> str:
    """Return docs/errors.md: the table of codes, then the exceptions."""
    former: dict[str, list[str]] = {}
    for old, name in errors.FORMER_NAMES.items():
        former.setdefault(name, []).append(f"formerly `{old}`")
    codes = [
        f"| {int(error)} | {', '.join([f'`{error.name}`', *former.get(error.name, [])])} "
        f"| {'yes' if error.retriable else ''} | {error.meaning} |"
        for error in errors.ERRORS
    ]
    exceptions = [
        f"| `{cls.__name__}` | {(cls.__doc__ or '').splitlines()[0]} |"
        for cls in vars(errors).values()
        if inspect.isclass(cls) and issubclass(cls, Exception)
    ]
    return "\n".join([_INTRODUCTION, *codes, _EXCEPTIONS, *exceptions, ""])


_INTRODUCTION = """\
# Errors

<!-- Made by `python -m docs.generate` from minibroker/errors.py: change it there. -->

Answers of a broker carry these codes. In Python, `Error(6)` is `Error.NOT_LEADER_OR_FOLLOWER`, an int with `name`,
`retriable` and `meaning`; `find_error("NOT_LEADER_FOR_PARTITION")` knows former names as well.
Retriable: clients repeat the request by themselves.

| code | name | retriable | what it means |
|---:|---|---|---|"""

_EXCEPTIONS = """
## Exceptions

`KafkaError` has `code` and `message`. `ProtocolError` and the classes derived from it, all but the last of this list,
have `reason`, `position` (of the first byte that is wrong) and `path` (of the field, as in
`FetchResponse.responses[0].partitions[2].records`). `EncodeError` has `reason` and `path`.

| class | raised when |
|---|---|"""


def messages_page() -> str:
    """Return docs/messages.md: every message, its versions, where it is declared and what it is for."""
    lines = [_MESSAGES]
    for number, api in APIS.items():
        request, response = message(f"{api}Request"), message(f"{api}Response")
        module = f"minibroker/protocol/messages/{snake_case(api)}.py"
        lines.append(f"| {number} | [{api}](../{module}) | {_versions(request)} | {_first_line(request)} |")
        assert _versions(request) == _versions(response)
    lines.append(_STORED)
    for module, names in STORED.items():
        for name in names:
            cls = message(name)
            lines.append(f"| [{name}](../minibroker/stored/{module}.py) | {_versions(cls)} | {_first_line(cls)} |")
    return "\n".join([*lines, ""])


def _versions(cls: type) -> str:
    schema = cls.schema  # type: ignore[attr-defined]
    first, last, flexible = schema.first_version, schema.last_version, schema.first_flexible
    versions = f"{first}-{last}" if last > first else f"{first}"
    return f"{versions} | {f'{flexible}+' if flexible <= last else ''}"


def _first_line(cls: type) -> str:
    return " ".join((cls.__doc__ or "").split("\n\n")[0].split())


def deviations_page() -> str:
    """Return docs/deviations.md: where we differ from Kafka on purpose, as the comments in the code say."""
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        text = path.read_text("utf-8")
        # A comment or a paragraph of a docstring that begins with the word, up to its end, to the next such word, or to
        # what a parameter means.
        for match in re.finditer(
            r"^ *# Kafka: (.*(?:\n *# (?!Kafka: ).*)*)"
            r"|^ *Kafka: (.*(?:\n *(?!Kafka: |Not here: |What must hold: |[a-z_]+: )[^\s#\"].*)*)",
            text,
            re.MULTILINE,
        ):
            said = " ".join(line.strip().removeprefix("# ") for line in (match[1] or match[2]).splitlines())
            said = said.removesuffix('"""').strip()
            found.append(f"| `{path.relative_to(PACKAGE.parent).as_posix()}` | {said} |")
    return "\n".join([_DEVIATIONS, *found, ""])


def instances_page() -> str:
    """Return docs/instances.md with its settings as their table has them."""
    text = (HERE / "instances.md").read_text("utf-8")
    begin, rest = text.split("from minibroker/config/instance.txt -->\n")
    _, end = rest.split("<!-- end -->")
    rows = ["| `instance.NAME.` | type | default | what it is |", "|---|---|---|---|"]
    for setting in instance_settings().values():
        rows.append(f"| `{setting.name}` | {setting.kind} | {_shown(setting.default)} | {setting.doc} |")
    return f"{begin}from minibroker/config/instance.txt -->\n" + "\n".join([*rows, ""]) + f"<!-- end -->{end}"


def settings_page() -> str:
    """Return docs/settings.md: our own defaults, then what is honoured, what is not yet, what is refused."""
    broker, topic = broker_settings().values(), topic_settings().values()
    ours = [
        f"| `{setting.name}` | {_shown(setting.kafka_default)} | {_shown(setting.default)} | {setting.reason} |"
        for setting in broker
        if setting.reason
    ]
    lines = [_SETTINGS, *ours, _OLD_DEFAULTS]
    for setting in broker:
        if setting.old_defaults:
            before = ", ".join(f"`{default}` below {below}" for below, default in setting.old_defaults)
            lines.append(f"| `{setting.name}` | {before} | {_shown(setting.default)} |")
    for title, settings, treatment in (
        ("Settings of a broker", broker, HONOURED),
        ("Settings of a topic", topic, HONOURED),
        ("Settings of a broker that are refused", [*broker, *other_settings().values()], REFUSED),
    ):
        rows = [_setting_row(setting) for setting in settings if setting.treatment == treatment]
        lines += [
            f"\n## {title}\n\n| setting | type | default | can be | changed | what it does |\n|---|---|---|---|---|---|"
        ]
        lines += rows
    honoured = [name for name, setting in group_settings().items() if setting.treatment == HONOURED]
    lines.append(f"\n## Settings of groups\n\n{', '.join(f'`{name}`' for name in honoured)}.")
    lines.append(_IGNORED)
    whose = (
        ("", [*broker, *other_settings().values()]),
        (" of topics", topic),
        (" of groups", group_settings().values()),
    )
    for _, reason in REASONS:
        names = [
            f"`{setting.name}`{suffix}"
            for suffix, settings in whose
            for setting in settings
            if setting.treatment in (LATER, IGNORED) and reason_of(setting.name) == reason
        ]
        lines.append(f"\n{reason[0].upper()}{reason[1:]}: " + ",\n".join(names) + ".")
    return "\n".join([*lines, ""])


_OLD_DEFAULTS = """
## Defaults of old releases

With `--as-version` settings have the defaults of that release, compared with its own classes from 0.8.2 on:

| setting | old default | today |
|---|---|---|"""


def _setting_row(setting: Setting) -> str:
    valid = setting.valid if len(setting.valid) < 80 else "a version of Kafka"
    changed = "at a start only" if setting.at_start else setting.update or "at any time"
    return f"| `{setting.name}` | {setting.kind} | {_shown(setting.default)} | {valid} | {changed} | {setting.doc} |"


def _shown(value: str | None) -> str:
    return f"`{value}`" if value else "empty" if value == "" else ""


_MESSAGES = """\
# Messages

<!-- Made by `python -m docs.generate` from the declarations: change them there. -->

All versions that a release of Kafka up to 4.4 has served. Flexible versions have varint lengths and tagged fields.
`minibroker.protocol.message("FetchRequest")` gives the class.

| number | API | versions | flexible | the request |
|---:|---|---|---|---|"""

_STORED = """
## What brokers store

Records of internal topics and of the metadata log, side files, and what consumers hand each other.

| record | versions | flexible | what it is |
|---|---|---|---|"""

_DEVIATIONS = """\
# Where we differ from Kafka on purpose

<!-- Made by `python -m docs.generate` from comments that begin with `Kafka:`: change them there. -->

Each line says what Kafka does.

| where | Kafka |
|---|---|"""

_SETTINGS = """\
# Settings

<!-- Made by `python -m docs.generate` from the tables in minibroker/config: change them there. -->

Names, types, defaults and valid values are those of Kafka 4.4. A start takes the first that it finds of:

1. arguments: `-o key=value`, or in Python Kafka's name with `_` for each dot,
2. the environment, as in Kafka's container image: `KAFKA_LOG_SEGMENT_BYTES` is `log.segment.bytes`; `_` stands for a
   dot, `__` for an underscore, `___` for a dash; Bitnami's image says `KAFKA_CFG_LOG_SEGMENT_BYTES`,
3. a server.properties file,
4. the default.

What is altered while the broker runs comes before all of them. A setting that is unknown or has no effect is named at
the start. What stops it, and is refused while the broker runs: a value that its setting does not take, values that do
not go together, and whatever asks for what is not there and whose absence a client would notice, logins first.
Counts of threads change by half or double at a time, as with Kafka: `num.recovery.threads.per.data.dir` and the pools.

```python
from minibroker.config import BrokerConfig, ConfigError

config = BrokerConfig.from_sources({"num.partitions": 3}, {"KAFKA_LOG_SEGMENT_BYTES": "2097152"}, "log.segmnt.ms=5")
print(config["num.partitions"], config["log.segment.bytes"], config["log.cleanup.policy"])  # => 3 2097152 ['delete']
print(*config.warnings)  # => properties line 1: unknown setting log.segmnt.ms; did you mean log.segment.bytes?
try:
    BrokerConfig.from_sources(min_insync_replicas=0)
except ConfigError as error:
    print(error)  # => argument min_insync_replicas: min.insync.replicas=0: Value must be at least 1 (int, [1,...])
```

## Where our default is not Kafka's

| setting | Kafka | here | why |
|---|---|---|---|"""

_IGNORED = """
## Settings that are accepted and ignored

A start names each of them that it is given. No client can tell the difference; what one could tell is refused."""


def apis_page() -> str:
    """Return docs/apis.md: what is served, beside what Kafka's releases serve."""
    columns = [ranges_of(release) for release in COMPARED]
    lines = [_APIS]
    for number in sorted({*SERVED, *columns[0], *columns[-1]}):
        ours = _range(SERVED[number][:2]) if number in SERVED else "-"
        theirs = [_range(column.get(number)) for column in columns]
        missing = ", ".join(missing_versions(number)) or ""
        module = SERVED[number][2].partition(".")[0] if number in SERVED else ""
        note = "not in use" if module in NOT_IN_USE else ""
        lines.append(f"| {number} | {APIS[number]} | {ours} | {' | '.join(theirs)} | {missing or note} |")
    return "\n".join([*lines, ""])


def missing_versions(number: int) -> list[str]:
    """Return what the compared releases serve of an API and we do not, as ranges with the release."""
    found = []
    served = range(SERVED[number][0], SERVED[number][1] + 1) if number in SERVED else range(0)
    for release in COMPARED:
        first, last = ranges_of(release).get(number, (0, -1))
        lacking = [version for version in range(first, last + 1) if version not in served]
        if lacking:
            found.append(f"{_range((lacking[0], lacking[-1]))} of {release}")
    return found


def _range(versions: tuple[int, int] | None) -> str:
    if versions is None:
        return "-"
    first, last = versions
    return str(first) if first == last else f"{first}-{last}"


COMPARED = ("3.9", "4.4")

_APIS = """\
# APIs

<!-- Made by `python -m docs.generate` from minibroker/broker/: apis.py and releases.py. -->

What the broker announces and serves, beside what Kafka's releases serve on their clients' listeners. Old versions that
Kafka has dropped are served too; what is not served is not announced. `--as-version` narrows it to what a release did,
so that clients which tell releases apart by their APIs find that one.

"Not in use": answered as Kafka answers where nobody has set the part up. There is no authorizer (SECURITY_DISABLED), no
login and no token (a plaintext listener refuses them), no quota, and share and streams groups are switched off
(UNSUPPORTED_VERSION, as with `share.version` 0). What would set a quota or a password is refused: nobody is to rely on
what does not happen. InitProducerId 6 of Kafka 4.4 is unstable there, and announced only if
`unstable.api.versions.enable` is set.

| key | API | minibroker | Kafka 3.9 | Kafka 4.4 | missing |
|---:|---|---|---|---|---|"""


def lessons_page() -> str:
    """Return docs/lessons.md with what its commands print now."""
    text = (HERE / "lessons.md").read_text("utf-8")

    def printed(match: re.Match[str]) -> str:
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            cli.main(shlex.split(match[1]))
        return f"$ minibroker {match[1]}\n{out.getvalue()}"

    return re.sub(r"^\$ minibroker (.*)\n(?:(?!\$ |```).*\n)*", printed, text, flags=re.MULTILINE)


def groups_page() -> str:
    """Return docs/groups.md with the states of a classic group as their table has them."""
    text = (HERE / "groups.md").read_text("utf-8")
    begin, rest = text.split("from minibroker/groups/classic_states.py -->\n")
    _, end = rest.split("<!-- end -->")
    rows = ["| state | what it is | comes after | Heartbeat | SyncGroup | OffsetCommit |", "|---|---|---|---|---|---|"]
    for state in STATES:
        answers = (state.heartbeat, state.sync, state.commit)
        told = " | ".join("goes on" if each == errors.Error.NONE else f"`{each.name}`" for each in answers)
        before = ", ".join(f"`{each.name}`" for each in STATES if state in _reached_from(each))
        rows.append(f"| `{state.name}` | {state.what} | {before} | {told} |")
    drawn = "\n".join(["```mermaid", "stateDiagram-v2", "    [*] --> Empty", *_arrows(), "```", "", *rows, ""])
    return f"{begin}from minibroker/groups/classic_states.py -->\n{drawn}<!-- end -->{end}"


def _arrows() -> list[str]:
    pairs = [(before, state) for before in STATES for state in STATES if state in _reached_from(before)]
    return [f"    {before.name} --> {state.name}" for before, state in pairs]


def _reached_from(state: State) -> list[State]:
    return [after[state] for after in EVENTS.values() if state in after]


def transactions_page() -> str:
    """Return docs/transactions.md with the states of a transaction as their tables have them."""
    text = (HERE / "transactions.md").read_text("utf-8")
    begin, rest = text.split("from minibroker/transactions/states.py -->\n")
    _, end = rest.split("<!-- end -->")
    stored = transaction_states.STORED
    arrows = [
        f"    {before.name} --> {after.name if after in stored else '[*]'} : {event}"
        for event, steps in transaction_states.EVENTS.items()
        for before, after in steps.items()
    ]
    whats = [f"| `{state.name}` | {state.number} | {state.what} |" for state in stored]
    columns = " | ".join(f"`{state.name}`" for state in stored)
    rows = [
        f"| {name} | {' | '.join(_outcome(outcome) for outcome in row.values())} |"
        for name, row in transaction_states.REQUESTS.items()
    ]
    drawn = [
        *("```mermaid", "stateDiagram-v2", "    [*] --> Empty", *arrows, "```", ""),
        *("| state | stored as | what it is |", "|---|---|---|", *whats, ""),
        *(f"| request of the right producer | {columns} |", "|---" * (len(stored) + 1) + "|", *rows, ""),
    ]
    return f"{begin}from minibroker/transactions/states.py -->\n{chr(10).join(drawn)}<!-- end -->{end}"


def _outcome(outcome: transaction_states.Outcome) -> str:
    if not isinstance(outcome, errors.Error):
        return outcome
    return "nothing to do" if outcome == errors.Error.NONE else f"`{outcome.name}`"


def acls_page() -> str:
    """Return docs/acls.md with what each API asks for, as the guards' table has it."""
    text = (HERE / "acls.md").read_text("utf-8")
    begin, rest = text.split("from minibroker/broker/authorize/table.py -->\n")
    _, end = rest.split("<!-- end -->")
    rows = ["| API | asks for | besides |", "|---|---|---|"]
    for number, row in sorted(TABLE.items()):
        needs = "<br>".join(_asked_for(need) for need in row.needs)
        rows.append(f"| {APIS[number]} | {needs} | {row.refused} |")
    return f"{begin}from minibroker/broker/authorize/table.py -->\n{chr(10).join(rows)}\n<!-- end -->{end}"


def _asked_for(need: Need) -> str:
    operation = OPERATIONS[need.operation]
    if need.alternative:
        operation += f" or {OPERATIONS[need.alternative]}"
    kind = RESOURCE_TYPES[need.resource_type]
    of = f"each {kind.lower()}" if need.scope == EACH and not need.of else need.of.replace("_", " ")
    return f"{operation} {kind}" + (f": {of}" if of else "")


PAGES = {
    "acls.md": acls_page,
    "groups.md": groups_page,
    "transactions.md": transactions_page,
    "lessons.md": lessons_page,
    "apis.md": apis_page,
    "errors.md": errors_page,
    "instances.md": instances_page,
    "settings.md": settings_page,
    "messages.md": messages_page,
    "reading.md": reading_page,
    "deviations.md": deviations_page,
}


def main() -> None:
    for name, page in PAGES.items():
        (HERE / name).write_text(page(), "utf-8")
    for path, data in sample_files().items():
        file = HERE / "sample-log" / path
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(data)


if __name__ == "__main__":
    main()

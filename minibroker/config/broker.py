"""Settings of one broker by Kafka's names, from every place that can set them.

`config["log.segment.bytes"]` is the value in force, typed. Strongest first: what was altered for this broker while it
ran, what was altered for all brokers, what the start was given, the default. Whoever needs a value reads it each time.
Altering log.retention.ms hides a static log.retention.hours, as in Kafka, and so for the other families.
Not here: where the start got its settings (sources.py), rules for altering (alter.py), telling others (describe.py).
"""

from __future__ import annotations

from minibroker.config.setting import NEWEST, READ_ONLY
from minibroker.config.tables import (
    LISTENER_PREFIX,
    find_broker_setting,
    get_broker_setting,
    old_defaults,
    without_listener,
)
from minibroker.config.values import BadValue, ConfigError, format_value, parse_text, parse_value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

    from minibroker.config.setting import Setting

# Names for one thing in several units, the strongest first.
FAMILIES = (
    ("log.roll.ms", "log.roll.hours"),
    ("log.roll.jitter.ms", "log.roll.jitter.hours"),
    ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
    ("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
)
FAMILY_OF = {name: family for family in FAMILIES for name in family}


class BrokerConfig:
    """What one broker is told; every text in `static` is valid, see `from_sources`."""

    def __init__(
        self,
        static: Mapping[str, str] | None = None,
        warnings: Iterable[str] = (),
        release: str = NEWEST,
        places: Mapping[str, str] | None = None,
    ):
        self.static = dict(static or {})
        self.places = places or {}  # where each of them was given
        self.warnings = list(warnings)  # one sentence each, for whoever starts the broker
        self.release = release  # of Kafka, whose topic settings are known
        self.dynamic_broker: dict[str, str] = {}
        self.dynamic_default: dict[str, str] = {}
        self._values: dict[str, Any] = {}
        self._old_defaults: Mapping[str, str] = {}

    def appear_as(self, release: str, defaults_of: str | None) -> None:
        """Know the settings of a release, and have the defaults of one, by its whole number; None: the newest."""
        self.release = release
        self._old_defaults = {} if defaults_of is None else old_defaults(defaults_of)
        self._values.clear()

    @property
    def texts(self) -> dict[str, str]:
        """What the start was given, and defaults that are not the newest release's."""
        return {**self._old_defaults, **self.static}

    def default_of(self, setting: Setting) -> str | None:
        return self._old_defaults.get(setting.name, setting.default)

    @classmethod
    def from_sources(
        cls,
        arguments: Mapping[str, object] | None = None,
        environ: Mapping[str, str] | None = None,
        properties_text: str | None = None,
        **more: object,
    ) -> BrokerConfig:
        """Merge what a start was given, strongest first; raise ConfigError for what no setting takes.

        Names are Kafka's, or with `_` for each dot, as in `log_segment_bytes=2 << 20`.
        """
        from minibroker.config.sources import merge_sources
        from minibroker.config.start import check_start, start_warnings

        static, places, warnings = merge_sources({**(arguments or {}), **more}, environ or {}, properties_text)
        config = cls(static, warnings, places=places)
        check_start(config)
        config.warnings += start_warnings(config)
        return config

    def __getitem__(self, name: str) -> Any:
        """Return the value in force; KeyError for a name that Kafka does not have."""
        try:
            return self._values[name]
        except KeyError:
            value = self._values[name] = self._read(name)
            return value

    def is_set(self, name: str) -> bool:
        """Whether anybody set it, to the default or to something else."""
        return any(name in layer for layer in (self.dynamic_broker, self.dynamic_default, self.static))

    def of_listener(self, name: str, listener: str) -> Any:
        """Return a setting's value for one listener: its own, or that of all."""
        return self[self.name_for(name, listener)]

    def name_for(self, name: str, listener: str) -> str:
        """Return by which name a listener's value of a setting is set: its own, or that of all."""
        own = f"{LISTENER_PREFIX}{listener.lower()}.{name}"
        return own if self.is_set(own) else name

    def of_listeners(self, name: str) -> dict[str, Any]:
        """Return a setting's value for each listener that has one of its own, by the listener's name."""
        found = {}
        for key in {*self.dynamic_broker, *self.dynamic_default, *self.static}:
            if without_listener(key) == name:
                found[key.removeprefix(LISTENER_PREFIX).removesuffix(f".{name}").upper()] = self[key]
        return found

    def place_of(self, name: str) -> str:
        """Return where a setting was given."""
        is_altered = name in self.dynamic_broker or name in self.dynamic_default
        return "altered" if is_altered else self.places.get(name, "setting")

    def error(self, name: str, words: str) -> ConfigError:
        """Return the error for a setting whose value in force does not go with the others."""
        setting = get_broker_setting(name)
        shown = "(hidden)" if setting.is_sensitive else format_value(setting, self[name])
        return ConfigError(self.place_of(name), name, shown or "", words)

    def set_dynamic(
        self, *, broker: Mapping[str, str] | None = None, default: Mapping[str, str] | None = None
    ) -> frozenset[str]:
        """Replace what is altered for this broker, or for all; return the names whose value in force changed.

        None leaves that part as it is. What cannot be taken, as another release may have stored it, is left out.
        """
        broker = self.dynamic_broker if broker is None else dict(broker)
        default = self.dynamic_default if default is None else dict(default)
        names = {*self.dynamic_broker, *self.dynamic_default, *broker, *default}
        names |= {relative for name in names for relative in FAMILY_OF.get(name, ())}
        known = {name for name in names if find_broker_setting(name)}
        before = {name: self[name] for name in known}
        self.dynamic_broker, self.dynamic_default = broker, default
        self._values.clear()
        return frozenset(name for name in known if self[name] != before[name])

    def _read(self, name: str) -> Any:
        setting = get_broker_setting(name)
        relatives = FAMILY_OF.get(name, (name,))
        layers = (self.dynamic_broker, self.dynamic_default) if setting.update != READ_ONLY else ()
        for layer in layers:
            if name in layer:
                try:
                    return parse_value(setting, layer[name])
                except BadValue:
                    continue
        others = [relative for relative in relatives if relative != name]
        hidden = any(other in layer for layer in (self.dynamic_broker, self.dynamic_default) for other in others)
        if name in self.static and not hidden:
            return parse_value(setting, self.static[name])
        if base := without_listener(name):
            return self[base]
        default = self.default_of(setting)
        return None if default is None else parse_text(setting, default)

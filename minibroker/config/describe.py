"""Description of settings for DescribeConfigs: value, origin and synonyms, of a topic, a broker or a group.

As Kafka 4.4: secrets and what nobody knows have no value; settings that Kafka calls internal show only where they are
set; a list of synonyms begins at the setting's own name, so a default in another unit is not among them.
Not here: which resource a request may name, the answer's versions.
"""

from __future__ import annotations

from minibroker.config.broker import FAMILY_OF
from minibroker.config.resources import GroupConfig, TopicConfig, is_known, value_of
from minibroker.config.setting import NEWEST
from minibroker.config.tables import (
    broker_settings,
    find_broker_setting,
    group_settings,
    other_settings,
    topic_settings,
    without_listener,
)
from minibroker.config.values import TYPE_CODES, UNKNOWN_TYPE, format_value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from minibroker.config.broker import BrokerConfig
    from minibroker.config.setting import Setting

    Synonym = tuple[str, str | None, int]  # name, value, source

TOPIC, DYNAMIC_BROKER, DYNAMIC_DEFAULT, STATIC, DEFAULT, GROUP = 1, 2, 3, 4, 5, 8  # sources of values


REQUIRED = ("node.id",)  # 4.x has no default for it, 3.x had -1


class ConfigEntry:
    """One setting as it is told; `synonyms` are all that set it, the strongest first."""

    __slots__ = ("doc", "is_read_only", "is_sensitive", "name", "source", "synonyms", "type_code", "value")

    def __init__(
        self, name: str, setting: Setting | None, value: str | None, synonyms: list[Synonym], is_read_only: bool
    ):
        self.name = name
        if setting is not None and setting.of_plugin:
            setting = None
        self.is_sensitive = setting is None or setting.is_sensitive
        self.value = None if self.is_sensitive else value
        self.synonyms = [(n, None if self.is_sensitive else text, source) for n, text, source in synonyms]
        self.source = synonyms[0][2] if synonyms else DEFAULT
        self.is_read_only = is_read_only
        self.type_code = TYPE_CODES[setting.kind] if setting else UNKNOWN_TYPE
        self.doc = (setting.doc or f"See {name} in Kafka's documentation.") if setting else ""


def topic_entries(topic: TopicConfig, names: Collection[str] | None = None) -> list[ConfigEntry]:
    """Return a topic's settings in order of their names; `names` limits them, None and empty are all."""
    return _entries_of(topic_settings(), topic.overrides, topic.broker, TOPIC, names)


def group_entries(group: GroupConfig, names: Collection[str] | None = None) -> list[ConfigEntry]:
    """Return a group's settings in order of their names."""
    return _entries_of(group_settings(), group.overrides, group.broker, GROUP, names)


def broker_entries(broker: BrokerConfig, names: Collection[str] | None = None) -> list[ConfigEntry]:
    """Return a broker's settings in order of their names."""
    shown = [n for table in (broker_settings(), other_settings()) for n, setting in table.items() if _is_shown(setting)]
    found = {*shown, *broker.static, *broker.dynamic_default, *broker.dynamic_broker}
    return [_broker_entry(name, broker) for name in _wanted(found, names)]


def default_entries(broker: BrokerConfig, names: Collection[str] | None = None) -> list[ConfigEntry]:
    """Return what is altered for all brokers: the answer about the broker without a name."""
    entries = []
    for name in _wanted(broker.dynamic_default, names):
        synonyms = [synonym for synonym in broker_synonyms(name, broker) if synonym[2] == DYNAMIC_DEFAULT]
        text, setting = broker.dynamic_default[name], find_broker_setting(name)
        entries.append(ConfigEntry(name, setting, text, synonyms, _is_read_only(name, setting)))
    return entries


def _wanted(found: Iterable[str], names: Collection[str] | None) -> list[str]:
    return sorted(name for name in found if not names or name in names)


def _is_shown(setting: Setting) -> bool:
    return not (setting.internal or setting.of_plugin) and setting.until == NEWEST


def _is_read_only(name: str, setting: Setting | None) -> bool:
    # Kafka calls those of one listener read-only too, though they can be altered.
    return setting is None or not setting.is_dynamic or without_listener(name) is not None


def _broker_entry(name: str, broker: BrokerConfig) -> ConfigEntry:
    setting = find_broker_setting(name)
    value = format_value(setting, broker[name]) if setting else None
    return ConfigEntry(name, setting, value, broker_synonyms(name, broker), _is_read_only(name, setting))


def _entries_of(
    settings: Mapping[str, Setting],
    overrides: Mapping[str, str],
    broker: BrokerConfig,
    own_source: int,
    names: Collection[str] | None,
) -> list[ConfigEntry]:
    shown = (n for n, setting in settings.items() if not setting.internal and is_known(setting, broker.release))
    entries = []
    for name in _wanted({*shown, *overrides}, names):
        setting = settings.get(name)
        value = format_value(setting, value_of(setting, overrides, broker)) if setting else None
        synonyms: list[Synonym] = [(name, value, own_source)] if name in overrides else []
        if setting and setting.synonyms:
            synonyms += broker_synonyms(setting.synonyms[0], broker)
        elif own_source == GROUP and setting:
            synonyms.append((name, setting.default, DEFAULT))
        entries.append(ConfigEntry(name, setting, value, synonyms, False))
    return entries


def broker_synonyms(name: str, broker: BrokerConfig) -> list[Synonym]:
    """Return what sets a broker's setting, the strongest first, from the setting's own name on."""
    base = without_listener(name)
    relatives = (name, base) if base else FAMILY_OF.get(name, (name,))
    layers = (
        (broker.dynamic_broker, DYNAMIC_BROKER),
        (broker.dynamic_default, DYNAMIC_DEFAULT),
        (broker.static, STATIC),
    )
    found: list[Synonym] = [
        (relative, layer[relative], source) for layer, source in layers for relative in relatives if relative in layer
    ]
    for relative in relatives:
        setting = None if relative == name and base else find_broker_setting(relative)
        if setting and (default := broker.default_of(setting)) is not None:
            if relative in REQUIRED:
                if broker.release == NEWEST:
                    continue
                default = "-1"
            found.append((relative, default, DEFAULT))
    while found and found[0][0] != name:
        del found[0]
    return found

"""Altering settings: what is stored now and what a client wants, into what is stored next.

Pure: nothing is stored here, and an error leaves everything as it was. `current` and what is returned are the texts
that the metadata log holds for one topic, one broker, all brokers ("" as broker) or one group. Texts are kept as they
came, spaces and all.
Not here: which resource a request may name, who must hear of a change.
"""

from __future__ import annotations

from minibroker.config.broker import BrokerConfig
from minibroker.config.listeners import client_listeners
from minibroker.config.resources import check_group_config, check_topic_config, is_known
from minibroker.config.setting import CLUSTER_WIDE, PER_BROKER, REFUSED
from minibroker.config.start import check_together
from minibroker.config.tables import (
    INSTANCE_PREFIX,
    LISTENER_LIMITS,
    find_broker_setting,
    group_settings,
    listener_of,
    topic_settings,
    without_listener,
)
from minibroker.config.values import BadValue, ConfigError, format_value, parse_value
from minibroker.errors import Error, KafkaError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from minibroker.config.setting import Setting

    Operation = tuple[str, int, str | None]  # name, one of the four below, value

SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3  # as in IncrementalAlterConfigs
_EDITS = {APPEND: "append", SUBTRACT: "subtract"}

# A broker has one of these per listener only.
_SECURITY = ("ssl.keystore.", "ssl.truststore.", "ssl.key.password")
# What listeners have may differ by broker, but for these.
_OF_LISTENERS_EVERYWHERE = (*LISTENER_LIMITS, "num.network.threads")
# While a broker runs, these change by half or double at most.
_THREADS = (
    "background.threads",
    "num.io.threads",
    "num.network.threads",
    "num.recovery.threads.per.data.dir",
    "num.replica.fetchers",
)


def alter_topic(current: Mapping[str, str], operations: Sequence[Operation], broker: BrokerConfig) -> dict[str, str]:
    """Return a topic's settings after some operations."""
    changed = _apply(current, operations, topic_settings().get, _wrong_for_a_topic)
    return _check_topic(changed, current, broker)


def replace_topic(configs: Sequence[tuple[str, str | None]], broker: BrokerConfig) -> dict[str, str]:
    """Return a topic's settings after AlterConfigs, which forgets all that it does not name."""
    return alter_topic({}, [(name, SET, text) for name, text in configs], broker)


def _check_topic(changed: dict[str, str], current: Mapping[str, str], broker: BrokerConfig) -> dict[str, str]:
    """Check all together but for what has been there before and is unknown: it came with another release's log."""
    strange = {n for n in changed if n in current and not is_known(topic_settings().get(n), broker.release)}
    check_topic_config({name: text for name, text in changed.items() if name not in strange}, broker)
    return changed


def alter_group(current: Mapping[str, str], operations: Sequence[Operation], broker: BrokerConfig) -> dict[str, str]:
    """Return a group's settings after some operations."""
    return check_group_config(_apply(current, operations, group_settings().get, _wrong_for_a_topic), broker)


def replace_group(configs: Sequence[tuple[str, str | None]], broker: BrokerConfig) -> dict[str, str]:
    """Return a group's settings after AlterConfigs."""
    return alter_group({}, [(name, SET, text) for name, text in configs], broker)


def alter_broker(
    current: Mapping[str, str], operations: Sequence[Operation], broker: BrokerConfig, *, every: bool
) -> dict[str, str]:
    """Return what is altered for one broker, or for all of them (`every`), after some operations.

    Kafka: a list of which nothing has been altered is edited from its default on, whatever the file says. That of an
    instance, which Kafka does not have, from what is in force: else a network taken out would let all others in.
    """
    begun = {**current, **_lists_of_instances(current, operations, broker, every)}
    changed = _apply(begun, operations, find_broker_setting, _wrong_for_a_broker)
    named = {name: changed[name] for name, _, _ in operations if name in changed}
    _check_broker(named, every)
    _check_places(named, broker)
    _check_together(changed, broker, every)
    return changed


def _lists_of_instances(
    current: Mapping[str, str], operations: Sequence[Operation], broker: BrokerConfig, every: bool
) -> dict[str, str]:
    """Return what lists of instances are edited from, as texts: what is stored there, else what stands behind it."""
    found = {}
    for name, operation, words in operations:
        setting = find_broker_setting(name) if name.startswith(INSTANCE_PREFIX) and operation in _EDITS else None
        if setting is not None and setting.kind == "list":
            layers = (current, {} if every else broker.dynamic_default, broker.texts)
            text = next((layer[name] for layer in layers if layer.get(name)), setting.default or "")
            missing = {*(words or "").split(",")} - {*text.split(",")}
            if operation == SUBTRACT and missing:
                raise _refused(f"{name}: {', '.join(sorted(missing))} is not among {text or 'nothing'}")
            found[name] = text
    return found


def replace_broker(configs: Sequence[tuple[str, str | None]], broker: BrokerConfig, *, every: bool) -> dict[str, str]:
    """Return what is altered for one broker, or for all of them, after AlterConfigs."""
    return alter_broker({}, [(name, SET, text) for name, text in configs], broker, every=every)


def _check_together(changed: Mapping[str, str], broker: BrokerConfig, every: bool) -> None:
    """Raise what Kafka answers for values that do not go with the others in force."""
    then = BrokerConfig(broker.static)
    then.set_dynamic(
        broker=broker.dynamic_broker if every else changed, default=changed if every else broker.dynamic_default
    )
    try:
        check_together(then)
    except ConfigError as error:
        raise _refused(error.allowed) from None
    for name in _THREADS:
        _check_thread_count(name, broker[name], then[name])


def _check_places(changed: Mapping[str, str], broker: BrokerConfig) -> None:
    """Refuse what is for a listener that is not there."""
    listeners = {each.name for each in client_listeners(broker)}
    for name in changed:
        if without_listener(name) is not None and listener_of(name) not in listeners:
            raise _refused(f"{name}: there is no such listener; there are {', '.join(sorted(listeners))}")


def _check_thread_count(name: str, now: int, then: int) -> None:
    words = f"Dynamic thread count update validation failed for {name}={then}, value should"
    if then < now // 2:
        raise _refused(f"{words} be at least half the current value {now}")
    if then > now * 2:
        raise _refused(f"{words} not be greater than double the current value {now}")


def _check_broker(changed: dict[str, str], every: bool) -> None:
    """Raise what Kafka answers for settings that a running broker cannot take. Unknown ones it stores."""
    known = {name: setting for name in changed if (setting := find_broker_setting(name))}
    _refuse_fixed(name for name, setting in known.items() if setting.update not in (PER_BROKER, CLUSTER_WIDE))
    if security := [name for name in known if name.startswith(_SECURITY)]:
        words = "These security configs can be dynamically updated only per-listener using the listener prefix:"
        raise _refused(f"{words} [{', '.join(security)}]")
    single = [name for name, setting in known.items() if setting.update == PER_BROKER or _is_of_one_broker(name)]
    if every and single:
        words = "Cannot update these configs at default cluster level, broker id must be specified:"
        raise _refused(f"{words} [{', '.join(single)}]")
    # Kafka: takes other listeners while it runs.
    _refuse_fixed(name for name, setting in known.items() if setting.at_start)
    for name, setting in known.items():
        try:
            value = parse_value(setting, changed[name])
        except BadValue as bad:
            raise _refused(str(bad)) from None
        if setting.treatment == REFUSED and (format_value(setting, value) or "") != (setting.default or ""):
            raise _refused(f"Invalid value {changed[name]} for configuration {name}: not supported")


def _is_of_one_broker(name: str) -> bool:
    base = without_listener(name)
    return base is not None and base not in _OF_LISTENERS_EVERYWHERE


def _refuse_fixed(names: Iterable[str]) -> None:
    if found := ", ".join(names):
        raise _refused(f"Cannot update these configs dynamically: [{found}]")


def _refused(words: str) -> KafkaError:
    return KafkaError(Error.INVALID_REQUEST, words)


def _apply(
    current: Mapping[str, str],
    operations: Sequence[Operation],
    find: Callable[[str], Setting | None],
    wrong: Callable[[str, int], KafkaError],
) -> dict[str, str]:
    """Return the settings after the operations, not yet checked."""
    names = [name for name, _, _ in operations]
    if len(set(names)) != len(names):
        raise _refused("Error due to duplicate config keys")
    if nulls := [name for name, operation, value in operations if value is None and operation != DELETE]:
        raise _refused(f"Null value not supported for : {','.join(nulls)}")
    changed = dict(current)
    for name, operation, value in operations:
        if operation == DELETE or value is None:
            changed.pop(name, None)
        elif operation == SET:
            changed[name] = value
        elif operation in _EDITS and (setting := find(name)) is not None and setting.kind == "list":
            changed[name] = _edited(changed.get(name, setting.default), operation, value)
        else:
            raise wrong(name, operation)
    return changed


def _edited(text: str | None, operation: int, value: str) -> str:
    """Return a list with words put in or taken out; a word is there once, and spaces are part of it."""
    words = [word for word in (text or "").split(",") if word]
    for word in value.split(","):
        if operation == SUBTRACT:
            words = [kept for kept in words if kept != word]
        elif word not in words:
            words.append(word)
    return ",".join(words)


def _wrong_for_a_topic(name: str, operation: int) -> KafkaError:
    if operation not in _EDITS:
        return KafkaError(Error.UNKNOWN_SERVER_ERROR, f"unknown operation {operation} for {name}")
    words = f"Can't {_EDITS[operation].upper()} to key {name} because its type is not LIST."
    return KafkaError(Error.INVALID_CONFIG, words)


def _wrong_for_a_broker(name: str, operation: int) -> KafkaError:
    if operation not in _EDITS:
        return _refused(f"Unknown operations type {operation}")
    return KafkaError(Error.INVALID_CONFIG, f"Config value {_EDITS[operation]} is not allowed for config key: {name}")

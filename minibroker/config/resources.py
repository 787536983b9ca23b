"""Settings of one topic or one group: its own, else the broker's, else the default; and what logs make of a topic's.

A topic or group that is told nothing follows the broker, at once when that is altered: nothing is kept here.
Not here: altering (alter.py), telling others (describe.py).
"""

from __future__ import annotations

from copy import copy

from minibroker.config.setting import NEWEST
from minibroker.config.tables import find_broker_setting, group_settings, topic_settings
from minibroker.config.values import BadValue, parse_text, parse_value
from minibroker.errors import Error, KafkaError
from minibroker.log.formats import APPEND_TIME, CREATE_TIME
from minibroker.log.settings import LogSettings, ValidationSettings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from minibroker.config.broker import BrokerConfig
    from minibroker.config.setting import Setting
    from minibroker.config.values import Value

OLD_VALID = {"segment.bytes": "[14,...]"}  # 4.x wants a MiB at least
NO_LIMIT_MS = (1 << 63) - 1
_UNIT_MS = {"minutes": 60_000, "hours": 3_600_000}


class ResourceConfig:
    """What one topic or group is told: `topic["retention.ms"]` is the value in force, typed."""

    settings: Callable[[], dict[str, Setting]]

    def __init__(self, overrides: Mapping[str, str], broker: BrokerConfig):
        self.overrides = overrides  # as stored; another release may have put in what we cannot read
        self.broker = broker

    def __getitem__(self, name: str) -> Any:
        """Return the value in force; KeyError for a name that Kafka does not have."""
        return value_of(self.settings()[name], self.overrides, self.broker)


class TopicConfig(ResourceConfig):
    settings = staticmethod(topic_settings)


class GroupConfig(ResourceConfig):
    settings = staticmethod(group_settings)


def value_of(setting: Setting, overrides: Mapping[str, str], broker: BrokerConfig) -> Value:
    """Return the value of a topic's or group's setting: its own, or the broker's under the first name that is set."""
    if setting.name in overrides:
        try:
            return parse_value(as_of(setting, broker.release), overrides[setting.name])
        except BadValue:
            pass
    for name in setting.synonyms:
        value = broker[name]
        if value is not None:
            return _as_kind_of(setting, name, value)
    return None if setting.default is None else parse_text(setting, setting.default)


def as_of(setting: Setting, release: str) -> Setting:
    """Return a setting as a release has it, where what it takes has changed."""
    if release == NEWEST or setting.name not in OLD_VALID:
        return setting
    old = copy(setting)
    old.valid = OLD_VALID[setting.name]
    return old


def _as_kind_of(setting: Setting, name: str, value: Value) -> Value:
    """Turn the broker's value into the unit and type of the setting that follows it."""
    if isinstance(value, list) and setting.kind == "string":
        return value[0] if value else None  # the first assignor is the one that is used
    unit_ms = _UNIT_MS.get(name.rpartition(".")[2])
    if unit_ms and isinstance(value, int):
        value *= unit_ms
    return max(value, -1) if setting.name == "retention.ms" and isinstance(value, int) else value


def is_known(setting: Setting | None, release: str) -> bool:
    """Whether a release of Kafka has a setting; their numbers compare as text."""
    return setting is not None and setting.since <= release <= setting.until


def check_topic_config(overrides: Mapping[str, str | None], broker: BrokerConfig) -> dict[str, str]:
    """Return a new topic's settings; raise what Kafka answers if it does not take them."""
    settings = topic_settings()
    for name in overrides:
        if not is_known(settings.get(name), broker.release):
            raise KafkaError(Error.INVALID_CONFIG, f"Unknown topic config name: {name}")
    if nulls := [name for name, text in overrides.items() if text is None]:
        raise KafkaError(Error.INVALID_CONFIG, f"Null value not supported for topic configs: {','.join(nulls)}")
    checked = {name: text for name, text in overrides.items() if text is not None}
    for name, text in checked.items():
        try:
            parse_value(as_of(settings[name], broker.release), text)
        except BadValue as bad:
            raise KafkaError(Error.INVALID_CONFIG, str(bad)) from None
    _check_together(TopicConfig(checked, broker))
    return checked


def _check_together(topic: TopicConfig) -> None:
    low, high = topic["min.compaction.lag.ms"], topic["max.compaction.lag.ms"]
    if low > high:
        words = f"conflict topic config setting min.compaction.lag.ms ({low}) > max.compaction.lag.ms ({high})"
        raise KafkaError(Error.INVALID_CONFIG, words)
    if topic["remote.storage.enable"]:
        words = "Tiered Storage functionality is disabled in the broker."
        raise KafkaError(Error.INVALID_CONFIG, f"{words} Topic cannot be configured with remote log storage.")


def log_settings(topic: TopicConfig, message_format: int = 2) -> LogSettings:
    """Return what the topic's logs are to do."""
    return LogSettings(
        segment_bytes=topic["internal.segment.bytes"] or topic["segment.bytes"],
        segment_ms=topic["segment.ms"],
        segment_jitter_ms=topic["segment.jitter.ms"],
        segment_index_bytes=topic["segment.index.bytes"],
        index_interval_bytes=topic["index.interval.bytes"],
        flush_messages=topic["flush.messages"],
        flush_ms=topic["flush.ms"],
        retention_ms=topic["retention.ms"],
        retention_bytes=topic["retention.bytes"],
        file_delete_delay_ms=topic["file.delete.delay.ms"],
        compact="compact" in topic["cleanup.policy"],
        delete="delete" in topic["cleanup.policy"],
        min_compaction_lag_ms=topic["min.compaction.lag.ms"],
        max_compaction_lag_ms=topic["max.compaction.lag.ms"],
        min_cleanable_dirty_ratio=topic["min.cleanable.dirty.ratio"],
        delete_retention_ms=topic["delete.retention.ms"],
        producer_id_expiration_ms=topic.broker["producer.id.expiration.ms"],
        transaction_partition_verification_enable=(
            topic.broker.release >= "3.6" and topic.broker["transaction.partition.verification.enable"]
        ),
        validation=validation_settings(topic, message_format),
    )


def validation_settings(topic: TopicConfig, message_format: int = 2) -> ValidationSettings:
    """Return what produced batches must be and become."""
    codec = topic["compression.type"]
    before_ms, after_ms = topic["message.timestamp.before.max.ms"], topic["message.timestamp.after.max.ms"]
    if topic.broker.release < "4":  # one limit for both, until 3.6 had two more; 4.0 has only these
        difference_ms = topic["message.timestamp.difference.max.ms"]
        before_ms = difference_ms if before_ms == NO_LIMIT_MS else before_ms
        after_ms = difference_ms if after_ms == NO_LIMIT_MS else after_ms
    return ValidationSettings(
        message_format=message_format,
        refuse_append_time=topic.broker.release < "3",
        compression_type=codec,
        level=_level(topic, codec),
        timestamp_type=CREATE_TIME if topic["message.timestamp.type"] == "CreateTime" else APPEND_TIME,
        timestamp_before_max_ms=before_ms,
        timestamp_after_max_ms=after_ms,
        compacted="compact" in topic["cleanup.policy"],
        max_message_bytes=topic["max.message.bytes"],
        max_decompressed_message_bytes=topic["max.decompressed.message.bytes"],
    )


def _level(topic: TopicConfig, codec: str) -> int | None:
    """Return the level for a codec, None for its default and for a codec without levels."""
    if codec not in ("gzip", "lz4", "zstd"):
        return None
    level: int = topic[f"compression.{codec}.level"]
    return None if codec == "gzip" and level == -1 else level


# Groups


def check_group_config(overrides: Mapping[str, str], broker: BrokerConfig) -> dict[str, str]:
    """Return a group's settings; raise what Kafka answers if it does not take them."""
    settings = group_settings()
    for name in overrides:
        if not is_known(settings.get(name), broker.release):
            raise KafkaError(Error.INVALID_CONFIG, f"Unknown group config name: {name}")
    for name, text in overrides.items():
        try:
            value = parse_value(settings[name], text)
        except BadValue as bad:
            raise KafkaError(Error.INVALID_CONFIG, str(bad)) from None
        _check_bounds(name, value, broker)
    return dict(overrides)


def _check_bounds(name: str, value: Value, broker: BrokerConfig) -> None:
    """Compare with the broker's limits: group.consumer.min.session.timeout.ms and .max. for all groups."""
    low, high = bound(name, "min", broker), bound(name, "max", broker)
    if name == "streams.assignor.name":
        known = broker["group.streams.assignors"]
        if value not in known:
            words = f"{name} '{value}' is not a registered task assignor. Registered assignors are: "
            raise KafkaError(Error.INVALID_CONFIG, f"{words}[{', '.join(known)}].")
    if not isinstance(value, int) or ((low is None or value >= low) and (high is None or value <= high)):
        return
    if low is not None and high is not None:
        raise KafkaError(Error.INVALID_CONFIG, f"{name} must be in the range {low} to {high} inclusive.")
    words = f"must be greater than or equal to {low}" if low is not None else f"must be less than or equal to {high}"
    raise KafkaError(Error.INVALID_CONFIG, f"{name} {words}")


def bound(name: str, which: str, broker: BrokerConfig) -> int | None:
    """Return the smallest ("min") or largest ("max") value that the broker lets a group have, None if any."""
    protocol, _, rest = name.partition(".")
    setting = f"group.{protocol}.{which}.{rest.removeprefix('num.')}"
    if find_broker_setting(setting) is None:
        return None
    found: int = broker[setting]
    return found

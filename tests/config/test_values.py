"""Which value is in force for a broker and a topic, and what a topic's logs make of it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minibroker.config import BrokerConfig, TopicConfig, check_topic_config, log_settings
from minibroker.config.alter import SET, alter_broker, alter_topic, replace_broker, replace_topic
from minibroker.config.describe import topic_entries
from minibroker.config.setting import Setting
from minibroker.config.tables import broker_settings, group_settings, other_settings, topic_settings
from minibroker.config.values import BadValue, format_value, java_double, parse_value
from minibroker.errors import Error, KafkaError
from minibroker.log.compression import LZ4
from minibroker.log.formats import APPEND_TIME
from minibroker.log.settings import LogSettings


def test_altered_for_this_broker_comes_before_all_brokers_before_the_start() -> None:
    config = BrokerConfig({"message.max.bytes": "100"})
    assert config["message.max.bytes"] == 100
    assert config.set_dynamic(default={"message.max.bytes": "200"}) == {"message.max.bytes"}
    assert config.set_dynamic(broker={"message.max.bytes": "300"}) == {"message.max.bytes"}
    assert config["message.max.bytes"] == 300
    assert config.set_dynamic(default={}) == set()
    assert config.set_dynamic(broker={}) == {"message.max.bytes"}
    assert config["message.max.bytes"] == 100


def test_what_cannot_be_altered_or_read_is_passed_over() -> None:
    config = BrokerConfig()
    changed = config.set_dynamic(broker={"node.id": "9", "log.segment.bytes": "x", "who.knows": "1"})
    assert changed == set()
    assert (config["node.id"], config["log.segment.bytes"]) == (1, 1 << 30)


def test_what_cannot_be_read_leaves_the_value_of_the_start() -> None:
    config = BrokerConfig({"log.segment.bytes": "2000000"})
    config.set_dynamic(broker={"log.segment.bytes": "x"})
    assert config["log.segment.bytes"] == 2_000_000


def test_a_setting_of_one_listener_follows_that_of_all() -> None:
    config = BrokerConfig({"listener.name.inside.max.connections": "5"})
    assert config["listener.name.inside.max.connections"] == 5
    assert config["listener.name.outside.max.connections"] == 2147483647
    config.set_dynamic(default={"max.connections": "9"})
    assert config["listener.name.outside.max.connections"] == 9


def test_a_running_broker_refuses_what_a_start_would() -> None:
    with pytest.raises(KafkaError, match="no such listener uses TLS"):
        alter_broker({}, [("ssl.client.auth", SET, "required")], BrokerConfig(), every=False)
    assert alter_broker({}, [("ssl.client.auth", SET, "none")], BrokerConfig(), every=False)


@pytest.mark.parametrize("every", [True, False])
@pytest.mark.parametrize(
    "name",
    [
        "background.threads",
        "num.io.threads",
        "num.network.threads",
        "num.recovery.threads.per.data.dir",
        "num.replica.fetchers",
    ],
)
def test_a_running_broker_halves_or_doubles_its_threads_at_most(name: str, every: bool) -> None:
    broker = BrokerConfig({name: "9"})
    for count in ("4", "9", "18"):
        assert alter_broker({}, [(name, SET, count)], broker, every=every) == {name: count}
    words = f"Dynamic thread count update validation failed for {name}="
    for count, rest in (
        ("3", "3, value should be at least half the current value 9"),
        ("19", "19, value should not be greater than double the current value 9"),
    ):
        with pytest.raises(KafkaError) as refused:
            alter_broker({}, [(name, SET, count)], broker, every=every)
        assert (refused.value.code, refused.value.message) == (Error.INVALID_REQUEST, words + rest)
    broker.set_dynamic(broker={name: "18"})
    with pytest.raises(KafkaError, match="half the current value 18"):
        alter_broker({name: "18"}, [(name, SET, "8")], broker, every=False)


def test_an_unknown_name_is_a_key_error() -> None:
    with pytest.raises(KeyError):
        BrokerConfig()["log.segmnt.bytes"]


@pytest.mark.parametrize(
    ("static", "expected_ms"),
    [
        ({}, 168 * 3_600_000),
        ({"log.retention.hours": "1"}, 3_600_000),
        ({"log.retention.hours": "1", "log.retention.minutes": "2"}, 120_000),
        ({"log.retention.minutes": "2", "log.retention.ms": "3"}, 3),
        ({"log.retention.hours": "-1"}, -1),
    ],
)
def test_retention_is_the_finest_unit_that_is_set(static: dict[str, str], expected_ms: int) -> None:
    assert TopicConfig({}, BrokerConfig(static))["retention.ms"] == expected_ms


def test_altering_milliseconds_hides_static_hours() -> None:
    config = BrokerConfig({"log.retention.minutes": "2"})
    topic = TopicConfig({}, config)
    assert config.set_dynamic(broker={"log.retention.ms": "5"}) == {"log.retention.ms", "log.retention.minutes"}
    assert topic["retention.ms"] == 5
    assert config["log.retention.minutes"] is None


def test_a_topic_follows_the_broker_until_it_is_told_otherwise() -> None:
    config = BrokerConfig()
    topic = TopicConfig({"max.message.bytes": "77"}, config)
    config.set_dynamic(default={"message.max.bytes": "200", "min.insync.replicas": "2"})
    assert (topic["max.message.bytes"], topic["min.insync.replicas"]) == (77, 2)


def test_a_stored_value_that_cannot_be_read_counts_as_none() -> None:
    topic = TopicConfig({"retention.ms": "soon", "message.format.version": "2.8", "segment.ms": "7"}, BrokerConfig())
    assert (topic["retention.ms"], topic["segment.ms"]) == (604_800_000, 7)
    (strange,) = topic_entries(TopicConfig({"who.knows": "1"}, BrokerConfig()), ["who.knows"])
    assert (strange.value, strange.is_sensitive, strange.source, strange.type_code) == (None, True, 1, 0)


def test_logs_get_what_the_topic_says() -> None:
    overrides = {
        "segment.bytes": "2097152",
        "segment.ms": "11",
        "segment.jitter.ms": "3",
        "segment.index.bytes": "80",
        "index.interval.bytes": "5",
        "flush.messages": "6",
        "flush.ms": "7",
        "cleanup.policy": "compact,delete",
        "retention.ms": "13",
        "retention.bytes": "14",
        "file.delete.delay.ms": "15",
        "min.compaction.lag.ms": "4",
        "max.compaction.lag.ms": "8",
        "min.cleanable.dirty.ratio": "0.25",
        "delete.retention.ms": "16",
        "compression.type": "lz4",
        "compression.lz4.level": "12",
        "message.timestamp.type": "LogAppendTime",
        "message.timestamp.before.max.ms": "9",
        "message.timestamp.after.max.ms": "10",
        "max.message.bytes": "1000",
    }
    settings = log_settings(TopicConfig(overrides, BrokerConfig({"producer.id.expiration.ms": "12"})))
    kept = {name: value for name, value in vars(settings).items() if name != "validation"}
    assert kept == {
        "segment_bytes": 2097152,
        "segment_ms": 11,
        "segment_age_max_ms": 8,  # the topic is compacted, and 8 ms is how long that may take at most
        "segment_jitter_ms": 3,
        "segment_index_bytes": 80,
        "index_interval_bytes": 5,
        "flush_messages": 6,
        "flush_ms": 7,
        "compact": True,
        "delete": True,
        "retention_ms": 13,
        "retention_bytes": 14,
        "file_delete_delay_ms": 15,
        "min_compaction_lag_ms": 4,
        "max_compaction_lag_ms": 8,
        "min_cleanable_dirty_ratio": 0.25,
        "delete_retention_ms": 16,
        "producer_id_expiration_ms": 12,
        "transaction_partition_verification_enable": True,
    }
    checks = settings.validation
    assert (checks.codec, checks.level, checks.timestamp_type, checks.compacted) == (LZ4, 12, APPEND_TIME, True)
    assert (checks.timestamp_before_max_ms, checks.timestamp_after_max_ms, checks.max_message_bytes) == (9, 10, 1000)


def test_a_topic_that_is_told_nothing_has_kafkas_defaults() -> None:
    ours, plain = log_settings(TopicConfig({}, BrokerConfig())), LogSettings()
    for name, value in vars(plain).items():
        if name not in ("validation", "transaction_partition_verification_enable"):
            assert getattr(ours, name) == value, name
    assert ours.transaction_partition_verification_enable
    old = log_settings(TopicConfig({}, BrokerConfig(release="2.8")))
    assert not old.transaction_partition_verification_enable  # since 3.6
    assert not plain.transaction_partition_verification_enable  # there is nobody to ask without a broker
    for name in type(plain.validation).__slots__:
        assert getattr(ours.validation, name) == getattr(plain.validation, name), name


@pytest.mark.parametrize(("codec", "level"), [("gzip", None), ("zstd", 3), ("lz4", 9), ("snappy", None)])
def test_the_level_is_that_of_the_codec(codec: str, level: int | None) -> None:
    topic = TopicConfig({"compression.type": codec}, BrokerConfig())
    assert log_settings(topic).validation.level == level


def test_tests_may_have_small_segments() -> None:
    overrides = check_topic_config({"internal.segment.bytes": "100"}, BrokerConfig())
    assert log_settings(TopicConfig(overrides, BrokerConfig())).segment_bytes == 100


def test_an_older_release_knows_older_settings() -> None:
    with pytest.raises(KafkaError):
        check_topic_config({"message.format.version": "2.8"}, BrokerConfig())
    assert check_topic_config({"message.format.version": "2.8-IV1"}, BrokerConfig(release="2.8"))


def test_a_topic_from_an_older_log_can_still_be_altered() -> None:
    current = {"message.format.version": "2.8"}
    assert alter_topic(current, [("retention.ms", SET, "5")], BrokerConfig()) == {**current, "retention.ms": "5"}


def test_alter_configs_forgets_what_it_does_not_name() -> None:
    assert replace_topic([("retention.ms", "5")], BrokerConfig()) == {"retention.ms": "5"}
    assert replace_broker([("message.max.bytes", "5")], BrokerConfig(), every=True) == {"message.max.bytes": "5"}
    with pytest.raises(KafkaError) as caught:
        replace_topic([("retention.ms", None)], BrokerConfig())
    assert caught.value.code is Error.INVALID_REQUEST


def test_an_unknown_operation_is_refused() -> None:
    with pytest.raises(KafkaError) as caught:
        alter_topic({}, [("retention.ms", 9, "5")], BrokerConfig())
    assert caught.value.code is Error.UNKNOWN_SERVER_ERROR
    with pytest.raises(KafkaError, match="Unknown operations type 9") as caught:
        alter_broker({}, [("log.retention.ms", 9, "5")], BrokerConfig(), every=False)
    assert caught.value.code is Error.INVALID_REQUEST


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0.0, "0.0"),
        (0.5, "0.5"),
        (0.001, "0.001"),
        (0.00012, "1.2E-4"),
        (1e-6, "1.0E-6"),
        (1e6, "1000000.0"),
        (1e7, "1.0E7"),
        (12345678.5, "1.23456785E7"),
        (-2.5e20, "-2.5E20"),
        (1.7976931348623157e308, "1.7976931348623157E308"),
    ],
)
def test_doubles_look_as_in_java(number: float, text: str) -> None:
    assert java_double(number) == text


@pytest.mark.parametrize("text", ["1_0", "", "x", "1.0", "9" * 5000, "2147483648"])
def test_a_whole_number_is_written_with_digits(text: str) -> None:
    with pytest.raises(BadValue, match="Not a number of type INT"):
        parse_value(Setting("n", "int", None), text)


EVERY = [s for table in (broker_settings, other_settings, topic_settings, group_settings) for s in table().values()]


@pytest.mark.slow
@given(st.sampled_from(EVERY), st.one_of(st.text(), st.integers().map(str), st.floats().map(str)))
def test_a_text_is_refused_or_stays_the_same_value_when_written_back(setting: Setting, text: str) -> None:
    try:
        value = parse_value(setting, text)
    except BadValue:
        return
    written = format_value(setting, value)
    assert written is not None
    assert parse_value(setting, written) == value


@pytest.mark.parametrize("text", ["nan", "inf", "1_0.0", "x"])
def test_a_fraction_is_finite(text: str) -> None:
    with pytest.raises(BadValue, match="Not a number of type DOUBLE"):
        parse_value(Setting("n", "double", None), text)


@pytest.mark.parametrize(
    ("text", "good"),
    [
        ("by_duration:PT1H", True),
        ("by_duration:P1DT2H3M4.5S", True),
        ("by_duration:P", False),
        ("by_duration:PT", False),
        ("by_duration:PT1", False),
        ("by_duration:PT1S1H", False),
        ("by_duration:1H", False),
        ("earliest", True),
        ("newest", False),
    ],
)
def test_share_groups_start_at_an_end_or_some_time_ago(text: str, good: bool) -> None:
    setting = Setting("share.auto.offset.reset", "string", "latest")
    setting.valid = "[latest, earliest, by_duration:PnDTnHnMn.nS]"
    if good:
        assert parse_value(setting, text) == text
    else:
        with pytest.raises(BadValue):
            parse_value(setting, text)

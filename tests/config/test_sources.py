"""What a start is given: who wins, what is said about it, what stops the start."""

from __future__ import annotations

import pytest

from minibroker.config import BrokerConfig, ConfigError
from minibroker.config.sources import NO_SETTINGS, name_of_variable


def test_arguments_come_before_the_environment_before_the_file_before_the_default() -> None:
    names = ["num.partitions", "log.segment.bytes", "message.max.bytes", "log.index.interval.bytes"]
    config = BrokerConfig.from_sources(
        {"num.partitions": 2},
        {"KAFKA_NUM_PARTITIONS": "3", "KAFKA_LOG_SEGMENT_BYTES": "2097152"},
        "num.partitions=4\nlog.segment.bytes=3145728\nmessage.max.bytes = 5000\n",
    )
    assert [config[name] for name in names] == [2, 2097152, 5000, 4096]
    assert not config.warnings


def test_python_names_and_values_are_kafkas_with_underscores() -> None:
    config = BrokerConfig.from_sources(
        log_segment_bytes=2 << 20,
        auto_create_topics_enable=False,
        log_cleanup_policy=["compact", "delete"],
        broker_rack=None,
    )
    assert config["log.segment.bytes"] == 2 << 20
    assert config["auto.create.topics.enable"] is False
    assert config["log.cleanup.policy"] == ["compact", "delete"]
    assert not config.is_set("broker.rack")


@pytest.mark.parametrize(
    ("variable", "name"),
    [
        ("KAFKA_LOG_SEGMENT_BYTES", "log.segment.bytes"),
        ("KAFKA_CFG_LOG_SEGMENT_BYTES", "log.segment.bytes"),
        ("KAFKA_SOME__NAME", "some_name"),
        ("KAFKA_SOME___NAME", "some-name"),
        ("KAFKA_LISTENER_NAME_X_SSL_KEYSTORE_TYPE", "listener.name.x.ssl.keystore.type"),
        ("KAFKA_HEAP_OPTS", None),
        ("KAFKA_CREATE_TOPICS", None),
        ("PATH", None),
    ],
)
def test_a_variable_names_a_setting_as_in_kafkas_image(variable: str, name: str | None) -> None:
    assert name_of_variable(variable) == name


def test_what_the_image_uses_for_its_jvm_is_passed_over_in_silence() -> None:
    assert not BrokerConfig.from_sources(environ=dict.fromkeys(NO_SETTINGS, "x")).warnings


def test_properties_are_read_as_java_reads_them() -> None:
    text = "# a comment\nlog.cleanup.policy = compact,\\\n    delete\nbroker.rack: caf\\u00e9\n"
    config = BrokerConfig.from_sources(properties_text=text)
    assert config["log.cleanup.policy"] == ["compact", "delete"]
    assert config["broker.rack"] == "café"


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("log.segmnt.bytes", "5", "unknown setting log.segmnt.bytes; did you mean log.segment.bytes?"),
        ("quite.different", "5", "unknown setting quite.different"),
        (
            "num.io.threads",
            "5",
            "num.io.threads is accepted and ignored: one loop does all",
        ),
        (
            "zookeeper.connect",
            "x",
            "zookeeper.connect is accepted and ignored: Kafka 4 does not",
        ),
        (
            "listener.name.plaintext.max.connections.per.ip",
            "3",
            "listener.name.plaintext.max.connections.per.ip is accepted and ignored: no listener has a",
        ),
        (
            "transaction.two.phase.commit.enable",
            "true",
            "transaction.two.phase.commit.enable is accepted and ignored: only InitProducerId 6 asks for it",
        ),
    ],
)
def test_what_has_no_effect_is_named(name: str, value: str, words: str) -> None:
    (warning,) = BrokerConfig.from_sources({name: value}).warnings
    assert warning.startswith(f"argument {name}: {words}")


@pytest.mark.parametrize(
    ("sources", "words"),
    [
        (
            ({"log.segment.bytes": 1}, {}, None),
            "argument log.segment.bytes: log.segment.bytes=1: Value must be at least 1048576 (int, [1048576,...])",
        ),
        (
            ({}, {"KAFKA_COMPRESSION_TYPE": "rar"}, None),
            "environment variable KAFKA_COMPRESSION_TYPE: compression.type=rar: String must be one of: uncompressed, "
            "zstd, lz4, snappy, gzip, producer (string, [uncompressed, zstd, lz4, snappy, gzip, producer])",
        ),
        (
            ({}, {}, "\nnum.partitions=many"),
            "properties line 2: num.partitions=many: Not a number of type INT (int, [1,...])",
        ),
        (
            ({"authorizer.class.name": "Any"}, {}, None),
            "argument authorizer.class.name: authorizer.class.name=Any: no other class decides here; make it "
            "org.apache.kafka.metadata.authorizer.StandardAuthorizer, or leave it unset",
        ),
        (
            ({"node.id": 1, "broker.id": 2}, {}, None),
            "argument broker.id: broker.id=2: differs from node.id=1",
        ),
        (({}, {}, "a=\\uxyz"), "properties line 1: 'uxyz' behind a backslash"),
    ],
)
def test_what_no_setting_takes_stops_the_start(sources: tuple[dict, dict, str | None], words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        BrokerConfig.from_sources(*sources)
    assert str(caught.value).startswith(words)


def test_a_refused_setting_may_say_what_it_is_anyway() -> None:
    assert BrokerConfig.from_sources({"authorizer.class.name": "", "ssl.client.auth": "none"})


def test_node_id_and_broker_id_are_one() -> None:
    assert BrokerConfig.from_sources({"broker.id": 7})["node.id"] == 7
    assert BrokerConfig.from_sources({"node.id": 7})["broker.id"] == 7
    assert BrokerConfig()["node.id"] == 1


def test_a_wrong_secret_is_not_shown() -> None:
    config = BrokerConfig.from_sources({"sasl.jaas.config": "secret"})
    assert not any("secret" in warning for warning in config.warnings)

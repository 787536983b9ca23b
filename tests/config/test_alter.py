"""Altering and describing settings, question by question as a real broker answered."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from minibroker.config import BrokerConfig, TopicConfig, check_topic_config
from minibroker.config.alter import APPEND, DELETE, SET, SUBTRACT, alter_broker, alter_group, alter_topic
from minibroker.config.describe import ConfigEntry, broker_entries, default_entries, group_entries, topic_entries
from minibroker.config.resources import GroupConfig
from minibroker.config.setting import REFUSED
from minibroker.config.tables import broker_settings, other_settings
from minibroker.config.values import TYPE_CODES
from minibroker.errors import Error, KafkaError
from tests import goldens
from tests.config.test_tables import OUR_DEFAULTS

OPERATIONS = {"SET": SET, "DELETE": DELETE, "APPEND": APPEND, "SUBTRACT": SUBTRACT}
EXCEPTIONS = {"INVALID_CONFIG": "InvalidConfigurationException", "INVALID_REQUEST": "InvalidRequestException"}
SOURCES = {
    "DYNAMIC_TOPIC_CONFIG": 1,
    "DYNAMIC_BROKER_CONFIG": 2,
    "DYNAMIC_DEFAULT_BROKER_CONFIG": 3,
    "STATIC_BROKER_CONFIG": 4,
    "DEFAULT_CONFIG": 5,
    "DYNAMIC_GROUP_CONFIG": 8,
}
STATIC = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.quorum.voters": "1@127.0.0.1:39193",
    "listeners": "PLAINTEXT://127.0.0.1:39192,CONTROLLER://127.0.0.1:39193",
    "controller.listener.names": "CONTROLLER",
    "log.dirs": "/var/lib/kafka/data",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    "log.roll.hours": "24",
    "log.retention.minutes": "600",
    "log.index.size.max.bytes": "8192",
    "log.flush.scheduler.interval.ms": "12345",
    "some.unknown": "5",
    "group.consumer.session.timeout.ms": "46000",
    "sasl.jaas.config": "secret",
    "log.cleaner.min.cleanable.ratio": "0.000001",
}

# Kafka changes them while it runs, we do not, and say so.
REFUSED_HERE = {name for name, setting in other_settings().items() if setting.treatment == REFUSED}
AT_START = {name for name, setting in broker_settings().items() if setting.at_start}

# What the parts of a Java broker say that we do not have: thread pools, plug-ins, listeners, ELR; and whom a request
# may name, which is for the handler.
NOT_OURS = (
    "Dynamic thread count",
    "Log cleaner threads",
    "Error creating broker listeners",
    "max.connections.per.ip.overrides",
    "cordoned.log.dirs must",
    "metric.reporters",
    "could not be found",
    "while ELR is enabled",
    "Timed out",
    "Default group resources",
)


class Model:
    """The stored settings of the recorded broker, as our functions make them."""

    def __init__(self) -> None:
        self.broker = BrokerConfig.from_sources(STATIC)
        self.broker.set_dynamic(default={"min.insync.replicas": "1"})  # Kafka sets it itself while ELR is enabled
        self.topics = {"t": {}, "u": {"segment.bytes": "2097152", "cleanup.policy": "compact,delete"}}
        self.group: dict[str, str] = {}

    def alter(self, kind: str, name: str, operations: list[tuple[str, int, str | None]]) -> None:
        if kind == "TOPIC":
            self.topics[name] = alter_topic(self.topics[name], operations, self.broker)
        elif kind == "GROUP":
            self.group = alter_group(self.group, operations, self.broker)
        elif name:
            self.broker.set_dynamic(
                broker=alter_broker(self.broker.dynamic_broker, operations, self.broker, every=False)
            )
        else:
            self.broker.set_dynamic(
                default=alter_broker(self.broker.dynamic_default, operations, self.broker, every=True)
            )

    def describe(self, kind: str, name: str) -> list[ConfigEntry]:
        if kind == "TOPIC":
            return topic_entries(TopicConfig(self.topics[name], self.broker))
        if kind == "GROUP":
            return group_entries(GroupConfig(self.group, self.broker))
        return broker_entries(self.broker) if name else default_entries(self.broker)


def operation_of(text: str) -> tuple[str, int, str | None]:
    verb, name, *value = text.split("~")
    return name, OPERATIONS[verb], value[0] if value and value[0] != "NULL" else None


def error_of(action: Callable[..., object], *arguments: Any) -> str | None:
    """Return what a client is told, as Java shows it."""
    try:
        action(*arguments)
    except KafkaError as error:
        return f"org.apache.kafka.common.errors.{EXCEPTIONS[error.code.name]}: {error.message}"
    return None


def entry_of(row: list[Any]) -> tuple[Any, ...]:
    """Return a recorded entry as plain values."""
    name, value, source, sensitive, read_only, kind, synonyms = row
    code = TYPE_CODES.get(kind.lower(), 0)
    return name, value, SOURCES[source], sensitive, read_only, code, [(n, v, SOURCES[s]) for n, v, s in synonyms]


def plain(entry: ConfigEntry) -> tuple[Any, ...]:
    described = entry.name, entry.value, entry.source, entry.is_sensitive, entry.is_read_only, entry.type_code
    return (*described, entry.synonyms)


def follows_our_default(row: list[Any]) -> bool:
    return any(name in OUR_DEFAULTS for name in [row[0], *(synonym[0] for synonym in row[6])])


def test_settings_are_altered_and_described_as_by_kafka() -> None:
    model = Model()
    for step in goldens.config_answers():
        if "alter" in step:
            if (step["error"] and any(words in step["error"] for words in NOT_OURS)) or step["alter"][1] in ("77", "x"):
                continue
            operations = [operation_of(text) for text in step["ops"]]
            is_refused = any(
                name in REFUSED_HERE or (name in AT_START and not step["error"]) for name, _, _ in operations
            )
            if step["alter"][0] == "BROKER" and is_refused:
                continue
            assert error_of(model.alter, *step["alter"], operations) == step["error"], step
        elif "create" in step:
            inside = step["create"].strip("{}")
            wanted = dict(pair.split("=", 1) for pair in inside.split(", "))
            assert error_of(check_topic_config, wanted, model.broker) == step["error"], step
        else:
            ours = {entry.name: plain(entry) for entry in model.describe(step["type"], step["name"])}
            kafkas = {row[0]: entry_of(row) for row in step["entries"]}
            assert set(ours) == set(kafkas) - REFUSED_HERE | set(ours) & REFUSED_HERE, (step["describe"], step["type"])
            for row in step["entries"]:
                if not follows_our_default(row) and row[0] not in AT_START | REFUSED_HERE:
                    assert ours[row[0]] == kafkas[row[0]], (step["describe"], step["type"], row[0])


def test_a_list_of_kafkas_is_edited_from_its_default_on_as_in_kafka() -> None:
    config = BrokerConfig({"log.cleanup.policy": "compact"})
    changed = alter_broker({}, [("log.cleanup.policy", APPEND, "compact")], config, every=True)
    assert changed == {"log.cleanup.policy": "delete,compact"}


ALLOWED = "instance.shop.allow.list"
SHOP = {"listeners": "PLAINTEXT://:0", "instance.shop.listener": "PLAINTEXT", ALLOWED: "127.0.0.1/32"}


def test_networks_are_edited_from_what_stands_behind_the_layer_that_is_altered() -> None:
    config = BrokerConfig(SHOP)
    config.set_dynamic(broker={ALLOWED: "0.0.0.0/0"}, default={})
    append = [(ALLOWED, APPEND, "10.0.0.0/8")]
    assert alter_broker({}, append, config, every=True) == {ALLOWED: "127.0.0.1/32,10.0.0.0/8"}
    config.set_dynamic(broker={}, default={ALLOWED: "192.168.0.0/16"})
    assert alter_broker({}, append, config, every=False) == {ALLOWED: "192.168.0.0/16,10.0.0.0/8"}
    assert alter_broker({ALLOWED: ""}, append, config, every=True) == {ALLOWED: "127.0.0.1/32,10.0.0.0/8"}
    assert alter_broker({ALLOWED: "::1/128"}, append, config, every=True) == {ALLOWED: "::1/128,10.0.0.0/8"}


@pytest.mark.parametrize(
    ("name", "words", "told"),
    [
        (ALLOWED, "127.0.0.1", "127.0.0.1 is not among 127.0.0.1/32"),
        ("instance.shop.nosuch", "x", "Config value subtract is not allowed for config key"),
        ("instance.shop.capacity.bytes", "1000", "Config value subtract is not allowed for config key"),
    ],
)
def test_other_edits_of_instances_are_refused(name: str, words: str, told: str) -> None:
    config = BrokerConfig({**SHOP, "instance.shop.capacity.bytes": "1000"})
    with pytest.raises(KafkaError, match=re.escape(told)):
        alter_broker({}, [(name, SUBTRACT, words)], config, every=True)


def test_what_is_read_at_the_start_only_is_told_as_read_only_and_cannot_be_altered() -> None:
    entries = {entry.name: entry for entry in broker_entries(BrokerConfig())}
    logins = {"sasl.enabled.mechanisms", "sasl.jaas.config"}
    assert {"listeners", "listener.security.protocol.map", *logins} == AT_START
    for name in AT_START:
        assert entries[name].is_read_only
        with pytest.raises(KafkaError, match="Cannot update these configs dynamically"):
            alter_broker({}, [(name, SET, entries[name].value or "x")], BrokerConfig(), every=False)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("max.connections.per.ip", "0", "can be set to zero only if max.connections.per.ip.overrides"),
        ("max.connections.per.ip.overrides", "127.0.0.1", "is no HOST:NUMBER"),
        ("log.retention.ms", "0", "log.retention.ms must be unlimited (-1) or, greater than or equal to 1"),
        ("log.roll.ms", "0", "log.roll.ms must be greater than or equal to 1"),
        ("group.consumer.assignment.interval.ms", "99999", "must be less than or equal to group.consumer.max.assign"),
    ],
)
@pytest.mark.parametrize("every", [False, True])
def test_what_does_not_go_with_the_rest_is_refused_while_running_too(
    name: str, value: str, words: str, every: bool
) -> None:
    with pytest.raises(KafkaError) as caught:
        alter_broker({}, [(name, SET, value)], BrokerConfig(), every=every)
    assert caught.value.code == Error.INVALID_REQUEST
    assert words in caught.value.message


@pytest.mark.parametrize("name", sorted(OUR_DEFAULTS))
def test_a_default_of_ours_is_told_as_a_default(name: str) -> None:
    (entry,) = broker_entries(BrokerConfig(), [name])
    expected = name, OUR_DEFAULTS[name], 5, False, True
    assert plain(entry)[:5] == expected
    # Of node.id Kafka has no default, so none is told.
    assert entry.synonyms == ([] if name == "node.id" else [(name, OUR_DEFAULTS[name], 5)])

"""The tables of settings against those of Kafka's classes, and what is said about each row."""

from __future__ import annotations

from typing import Any

import pytest

from minibroker.config import BrokerConfig, ConfigError
from minibroker.config.alter import SET, alter_broker
from minibroker.config.ignored import REASONS, _fits, reason_of
from minibroker.config.setting import HONOURED, IGNORED, LATER, REFUSED, Setting
from minibroker.config.tables import broker_settings, group_settings, other_settings, topic_settings
from minibroker.config.values import parse_text, parse_value
from minibroker.errors import KafkaError
from tests import goldens

BROKER = {**broker_settings(), **other_settings()}
TABLES = {"broker": BROKER, "topic": topic_settings(), "group": group_settings()}

# Where a broker for development needs another value than Kafka's; docs/settings.md gives the reasons.
OUR_DEFAULTS = {
    "controller.listener.names": "CONTROLLER",
    "group.initial.rebalance.delay.ms": "0",
    "group.streams.initial.rebalance.delay.ms": "0",
    "listeners": "PLAINTEXT://127.0.0.1:9092",
    "node.id": "1",
    "process.roles": "broker,controller",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "socket.listen.backlog.size": "1024",
    "socket.receive.buffer.bytes": "-1",
    "socket.send.buffer.bytes": "-1",
}

OF_PLUGINS = {"allow.everyone.if.no.acl.found", "super.users"}  # StandardAuthorizer reads them


def of_kafka(kind: str) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = goldens.table("configs")[kind]
    return found | (goldens.table("configs")["quotaBroker"] if kind == "broker" else {})


def described(kind: str, setting: Setting) -> dict[str, Any]:
    """Return a row in the terms of configs.json."""
    default = setting.kafka_default
    return {
        "type": setting.kind,
        "default": None if default is None else parse_text(setting, default),
        "valid": setting.valid,
        "update": setting.update,
        "internal": setting.internal,
        "sensitive": setting.is_sensitive,
        "until": setting.until,
    }


@pytest.mark.parametrize("kind", TABLES)
def test_every_setting_is_kafkas_in_name_type_default_valid_values_and_update_mode(kind: str) -> None:
    of_plugins = {name for name, setting in TABLES[kind].items() if setting.of_plugin}
    assert of_plugins == (OF_PLUGINS if kind == "broker" else set())
    assert set(TABLES[kind]) == set(of_kafka(kind)) | of_plugins
    quotas = goldens.table("configs")["quotaBroker"] if kind == "broker" else {}
    for name, row in of_kafka(kind).items():
        expected = {
            "type": row["type"],
            "default": row.get("default"),
            "valid": row.get("valid") or "",
            "update": row.get("update", ""),
            "internal": row.get("internal", False),
            "sensitive": row.get("sensitive", False),
            "until": row["releases"][-1],
        }
        if name in quotas:  # Kafka keeps them elsewhere: shown only where they are set
            expected |= {"default": None, "internal": True, "update": "cluster-wide"}
        assert described(kind, TABLES[kind][name]) == expected, name


def test_a_topics_setting_follows_the_same_settings_of_the_broker_as_in_kafka() -> None:
    for name, row in of_kafka("topic").items():
        synonyms = tuple(synonym["name"] for synonym in row.get("serverSynonyms", []))
        assert topic_settings()[name].synonyms == synonyms, name
        assert all(synonym in BROKER for synonym in synonyms)


def test_a_groups_setting_follows_one_of_the_broker() -> None:
    for name, setting in group_settings().items():
        expected = "group.streams.assignors" if name == "streams.assignor.name" else f"group.{name}"
        assert setting.synonyms == ((expected,) if expected in BROKER else ())


def test_our_defaults_differ_where_the_list_says_so_and_each_has_a_reason() -> None:
    differing = {name: setting for name, setting in BROKER.items() if setting.default != setting.kafka_default}
    assert {name: setting.default for name, setting in differing.items()} == OUR_DEFAULTS
    assert all(setting.reason for setting in differing.values())
    others = [*topic_settings().values(), *group_settings().values()]
    assert all(setting.default == setting.kafka_default for setting in others)


def test_a_default_is_a_value_that_can_be_set() -> None:
    for table in TABLES.values():
        for setting in table.values():
            parse_value(setting, setting.default)


def test_what_we_honour_or_will_or_refuse_has_a_sentence() -> None:
    spoken = [s for s in (*BROKER.values(), *topic_settings().values()) if s.treatment in (HONOURED, LATER, REFUSED)]
    assert not [setting.name for setting in spoken if not setting.doc.endswith(".")]


def test_what_is_ignored_has_one_reason_and_every_reason_is_needed() -> None:
    ignored = {s.name for table in TABLES.values() for s in table.values() if s.treatment in (IGNORED, LATER)}
    reasons = {name: reason_of(name) for name in ignored}
    assert {reason for _, reason in REASONS} == set(reasons.values())
    spoken_of = {pattern for patterns, _ in REASONS for pattern in patterns}
    idle = {pattern for pattern in spoken_of if not any(_fits(name, pattern) for name in ignored)}
    assert not idle


def test_what_is_honoured_has_no_reason_why_it_would_be_ignored() -> None:
    honoured = {s.name for table in TABLES.values() for s in table.values() if s.treatment == HONOURED}
    patterns = {pattern for row, _ in REASONS for pattern in row}
    assert not {name for name in honoured for pattern in patterns if _fits(name, pattern)}


# Settings that a client can tell by what happens: each value but the default stops a start, and is refused later.
@pytest.mark.parametrize("name", sorted(name for name, setting in BROKER.items() if setting.treatment == REFUSED))
def test_what_is_refused_is_refused_at_a_start_and_later_with_a_sentence(name: str) -> None:
    setting = BROKER[name]
    other = {"boolean": "true", "string": "required" if "auth" in name else "x", "list": "x", "class": "x"}.get(
        setting.kind, "5"
    )
    with pytest.raises(ConfigError, match=r"not supported; leave it|its name is .* now"):
        BrokerConfig.from_sources({name: other})
    if setting.default is not None:
        BrokerConfig.from_sources({name: setting.default})
    if setting.is_dynamic:
        for every in (False, True):
            with pytest.raises(KafkaError, match=r"not supported|broker id must be specified"):
                alter_broker({}, [(name, SET, other)], BrokerConfig(), every=every)
        if setting.default is not None:
            assert alter_broker({}, [(name, SET, setting.default)], BrokerConfig(), every=False)


def test_the_rows_are_in_order() -> None:
    for table in (broker_settings(), other_settings(), topic_settings(), group_settings()):
        assert list(table) == sorted(table)

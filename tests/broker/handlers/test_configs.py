"""Settings: described with where they come from, replaced as a whole or altered one by one, each kind by itself."""

from __future__ import annotations

from typing import Any

import pytest

from minibroker.broker.handlers.configs import MALFORMED
from minibroker.errors import Error
from minibroker.metadata.image import BROKER, GROUP, TOPIC
from minibroker.protocol.messages.alter_configs import AlterConfigsRequest
from minibroker.protocol.messages.describe_configs import DescribeConfigsRequest
from minibroker.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from minibroker.protocol.messages.list_config_resources import ListConfigResourcesRequest
from tests.broker.virtual_broker import VirtualBroker

BROKER_LOGGER, CLIENT_METRICS = 8, 16
SET, DELETE = 0, 1
OWN = {  # kind of resource -> name, one of its settings, and two values
    TOPIC: ("t", "retention.ms", "1000", "2000"),
    GROUP: ("g", "consumer.session.timeout.ms", "46000", "47000"),
    BROKER: ("", "log.retention.ms", "1000", "2000"),
}


@pytest.fixture
def broker(broker: VirtualBroker) -> VirtualBroker:
    broker.node.create_topic("t", 1)
    return broker


def describe(broker: VirtualBroker, *resources: tuple[Any, ...], version: int = 4, **more: bool) -> list[Any]:
    Resource = DescribeConfigsRequest.DescribeConfigsResource
    rows = [Resource(resource_type=kind, resource_name=name, configuration_keys=keys) for kind, name, keys in resources]
    answer = broker.ask(DescribeConfigsRequest(resources=rows, **more), version)
    assert [(each.resource_type, each.resource_name) for each in answer.results] == [each[:2] for each in resources]
    return list(answer.results)


def replace(broker: VirtualBroker, *resources: tuple[Any, ...], trial: bool = False) -> list[tuple[int, str | None]]:
    Resource = AlterConfigsRequest.AlterConfigsResource
    rows = [
        Resource(
            resource_type=kind,
            resource_name=name,
            configs=[Resource.AlterableConfig(name=key, value=value) for key, value in configs.items()],
        )
        for kind, name, configs in resources
    ]
    answer = broker.ask(AlterConfigsRequest(resources=rows, validate_only=trial), 2)
    assert [(each.resource_type, each.resource_name) for each in answer.responses] == [each[:2] for each in resources]
    return [(each.error_code, each.error_message) for each in answer.responses]


def alter(broker: VirtualBroker, *resources: tuple[Any, ...], trial: bool = False) -> list[tuple[int, str | None]]:
    Resource = IncrementalAlterConfigsRequest.AlterConfigsResource
    rows = [
        Resource(
            resource_type=kind,
            resource_name=name,
            configs=[
                Resource.AlterableConfig(name=key, config_operation=DELETE if value is None else SET, value=value)
                for key, value in configs.items()
            ],
        )
        for kind, name, configs in resources
    ]
    answer = broker.ask(IncrementalAlterConfigsRequest(resources=rows, validate_only=trial), 1)
    assert [(each.resource_type, each.resource_name) for each in answer.responses] == [each[:2] for each in resources]
    return [(each.error_code, each.error_message) for each in answer.responses]


OK = [(Error.NONE, None)]


@pytest.mark.parametrize("kind", OWN)
def test_settings_of_each_kind_are_altered_replaced_and_taken_back(broker: VirtualBroker, kind: int) -> None:
    name, key, value, other = OWN[kind]
    configs = broker.node.image.configs

    def stored() -> dict[str, str]:
        return dict(configs.get((kind, name), {}))

    assert alter(broker, (kind, name, {key: value}), trial=True) == OK
    assert replace(broker, (kind, name, {key: value}), trial=True) == OK
    assert stored() == {}
    assert alter(broker, (kind, name, {key: value})) == OK
    assert stored() == {key: value}
    offset = broker.node.image.offset
    assert alter(broker, (kind, name, {key: value})) == OK
    assert broker.node.image.offset == offset, "what is so already is not written down"
    assert replace(broker, (kind, name, {key: other})) == OK
    assert stored() == {key: other}
    assert alter(broker, (kind, name, {key: None})) == OK
    assert stored() == {}
    assert alter(broker, (kind, name, {key: value})) == OK
    assert replace(broker, (kind, name, {})) == OK
    assert stored() == {}


@pytest.mark.parametrize("kind", [TOPIC, GROUP])  # a broker takes any name: it may be a plugin's
def test_each_kind_has_settings_of_its_own(broker: VirtualBroker, kind: int) -> None:
    for foreign in OWN.keys() - {kind}:
        _, key, value, _ = OWN[foreign]
        for way in (alter, replace):
            ((code, _),) = way(broker, (kind, OWN[kind][0], {key: value}))
            assert code == Error.INVALID_CONFIG, (foreign, way)


UNEXPECTED = Error.INVALID_REQUEST, "Unexpected broker id, expected 1 or empty string, but received 7"
REFUSED = {
    (BROKER_LOGGER, "1"): (Error.INVALID_REQUEST, "there are no loggers whose levels could be set"),
    (CLIENT_METRICS, "m"): (Error.INVALID_REQUEST, "Unknown resource type 16"),
    (BROKER, "two"): (Error.INVALID_REQUEST, "Node id must be an integer, but it is: two"),
    (BROKER, "7"): (Error.INVALID_REQUEST, "Unexpected broker id, expected 1, but received 7"),
    (TOPIC, ""): (Error.INVALID_REQUEST, "Default topic resources are not allowed."),
    (GROUP, ""): (Error.INVALID_REQUEST, "Default group resources are not allowed."),
}


@pytest.mark.parametrize("way", [alter, replace])
def test_what_has_no_settings_cannot_be_altered(broker: VirtualBroker, way: Any) -> None:
    for place, expected in REFUSED.items():
        unknown = (Error.INVALID_REQUEST, "Unknown resource type 8")  # there is no replacing the levels of loggers
        assert way(broker, (*place, {})) == [unknown if way is replace and place[0] == BROKER_LOGGER else expected]
        assert [code for code, _ in way(broker, (*place, {}), (*place, {}))] == [Error.INVALID_REQUEST] * 2
    for name, code in (("absent", Error.UNKNOWN_TOPIC_OR_PARTITION), ("a/b", Error.INVALID_TOPIC_EXCEPTION)):
        assert way(broker, (TOPIC, name, {}))[0][0] == code
    assert way(broker, (BROKER, "1", {})) == OK


def test_a_resource_is_altered_once_in_a_request(broker: VirtualBroker) -> None:
    twice = (Error.INVALID_REQUEST, "Each resource must appear at most once.")
    name, key, value, other = OWN[TOPIC]
    assert alter(broker, (TOPIC, name, {key: value}), (GROUP, "g", {}), (TOPIC, name, {key: other})) == [
        twice,
        (Error.NONE, None),
        twice,
    ]
    assert (TOPIC, name) not in broker.node.image.configs


def test_all_settings_are_described_or_those_that_are_named(broker: VirtualBroker) -> None:
    places = [(TOPIC, "t"), (BROKER, ""), (BROKER, "1"), (GROUP, "g"), (BROKER_LOGGER, "1")]
    everything = describe(broker, *[(*place, None) for place in places])
    assert [each.error_code for each in everything] == [0] * 5
    counts = [len(each.configs) for each in everything]
    assert counts[1] == counts[4] == 0, "nothing is set for all brokers, and there are no loggers"
    assert all(count > 5 for index, count in enumerate(counts) if index not in (1, 4))
    some = describe(broker, (TOPIC, "t", ["retention.ms", "no.such"]), (TOPIC, "t", None), (TOPIC, "t", []))
    assert [config.name for config in some[0].configs] == ["retention.ms"]
    assert some[1].configs == everything[0].configs
    assert len(some[2].configs) in (0, counts[0])


def test_a_setting_is_described_with_its_source(broker: VirtualBroker) -> None:
    alter(broker, (TOPIC, "t", {"retention.ms": "1000"}))
    (plain,) = describe(broker, (TOPIC, "t", ["retention.ms"]))
    (config,) = plain.configs
    assert (config.value, config.config_source, config.read_only, config.is_sensitive) == ("1000", 1, False, False)
    assert (config.config_type, config.documentation, config.synonyms) == (5, None, [])
    (told,) = describe(broker, (TOPIC, "t", ["retention.ms"]), include_synonyms=True, include_documentation=True)
    (config,) = told.configs
    assert config.documentation
    assert [(each.name, each.value, each.source) for each in config.synonyms] == [("retention.ms", "1000", 1)]


def test_what_is_not_there_cannot_be_described(broker: VirtualBroker) -> None:
    expected = {
        (TOPIC, "absent"): (Error.UNKNOWN_TOPIC_OR_PARTITION, ""),
        (CLIENT_METRICS, "m"): (Error.INVALID_REQUEST, MALFORMED),
        (BROKER, "7"): UNEXPECTED,
        (BROKER, "two"): (Error.INVALID_REQUEST, "Broker id must be an integer, but it is: two"),
        (BROKER_LOGGER, "7"): UNEXPECTED,
        (BROKER_LOGGER, ""): (Error.INVALID_REQUEST, "Broker id must not be empty"),
        (GROUP, ""): (Error.INVALID_REQUEST, "Group name must not be empty"),
    }
    for place, answer in zip(expected, describe(broker, *[(*place, None) for place in expected])):
        assert (answer.error_code, answer.error_message, answer.configs) == (*expected[place], []), place
    (answer,) = describe(broker, (TOPIC, "a/b", None))
    assert answer.error_code == Error.INVALID_TOPIC_EXCEPTION
    assert answer.error_message


def test_what_has_settings_is_listed_by_kind(broker: VirtualBroker) -> None:
    alter(broker, (GROUP, "g", {"consumer.session.timeout.ms": "46000"}))
    everything = {(GROUP, "g"), (BROKER_LOGGER, "1"), (BROKER, "1"), (TOPIC, "t")}

    def listed(kinds: list[int], version: int = 1) -> set[tuple[int, str]] | int:
        answer = broker.ask(ListConfigResourcesRequest(resource_types=kinds), version)
        if answer.error_code:
            assert not answer.config_resources
            return int(answer.error_code)
        return {(each.resource_type, each.resource_name) for each in answer.config_resources}

    assert listed([]) == everything
    for kind in (GROUP, BROKER_LOGGER, BROKER, TOPIC, CLIENT_METRICS):
        assert listed([kind]) == {place for place in everything if place[0] == kind}
    assert listed([TOPIC, GROUP]) == {(TOPIC, "t"), (GROUP, "g")}
    assert listed([TOPIC, 77]) == Error.UNSUPPORTED_VERSION
    assert listed([], version=0) == set()

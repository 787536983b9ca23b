"""Answers with injected errors: every served API in every version, asked as a client would, read as a client does."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from minibroker.broker.apis import SERVED
from minibroker.broker.broker import Node
from minibroker.errors import Error
from minibroker.faults.answers import ERROR_CODES, levels_of
from minibroker.protocol.headers import Request
from minibroker.protocol.messages.find_coordinator import FindCoordinatorRequest
from minibroker.protocol.registry import APIS, request_class
from minibroker.schema.types import find_struct, zero
from tests.server.running import Client, batch, connected, running

pytestmark = pytest.mark.outside

KINDS = [(api, version) for api, (first, last, _) in SERVED.items() for version in range(first, last + 1)]
CODE = Error.CLUSTER_AUTHORIZATION_FAILED  # which nobody answers by himself


def request_of(api: int, version: int, topic_id: bytes = bytes(16)) -> Request:
    """Return a request that names partitions 0 and 1 of orders, as far as the API has such."""
    made: Request = filled(request_class(api), topic_id, version)
    return made


def filled(cls: Any, topic_id: bytes, version: int) -> Any:
    values = {}
    for field, annotation in cls.__fields__.items():
        plain = annotation.removesuffix(" | None")
        if plain.startswith("Array["):
            inner = plain[6:-1]
            if inner == "Int32":
                values[field] = [0, 1]
            elif inner in ("Int8", "Int16", "Int64"):
                values[field] = []
            elif inner == "String":
                values[field] = ["orders"] if field != "configuration_keys" else []
            elif field in ("assignments", "configs", "forgotten_topics_data"):
                values[field] = []
            else:
                struct = find_struct(cls, inner)
                partitions = "partition" in field.lower() and "topic_partitions" not in field
                values[field] = [numbered(struct, topic_id, version, index) for index in range(1 + partitions)]
        elif field in ("name", "topic", "resource_name", "client_software_name"):
            values[field] = "orders"
        elif field == "group_id":
            values[field] = "buyers"
        elif field == "client_software_version":
            values[field] = "1.0"
        elif field == "topic_id":
            values[field] = topic_id
        elif field == "resource_type":
            values[field] = 2
        elif field == "records":
            values[field] = batch(b"never to be written")
        elif field in ("acks", "count"):
            values[field] = -1 if field == "acks" else 5
        elif field == "cursor":
            values[field] = None
        elif not (cls.__specs__.get(field) and cls.__specs__[field].has_default):
            values[field] = zero(cls, annotation)
    if cls.__name__ == "DeleteTopicState" or (cls.__name__ == "MetadataRequestTopic" and version >= 12):
        values["name"] = None  # it has the id
    elif cls.__name__ == "MetadataRequestTopic":
        values["topic_id"] = bytes(16)
    return cls(**values)


def numbered(struct: Any, topic_id: bytes, version: int, index: int) -> Any:
    made = filled(struct, topic_id, version)
    for field in ("index", "partition", "partition_index"):
        if field in struct.__fields__:
            setattr(made, field, index)
    return made


def codes_in(value: Any) -> Iterator[tuple[str, int]]:
    """Yield the names of structs and the codes in them."""
    for field in value.__fields_all__():
        inner = getattr(value, field)
        if field in ERROR_CODES:
            yield type(value).__name__, inner
        for each in inner if isinstance(inner, list) else ():
            if hasattr(each, "__fields_all__"):
                yield from codes_in(each)


@pytest.mark.slow
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
async def test_every_api_answers_an_error_in_every_version(after: bool) -> None:
    async with running() as node, connected(node) as client:
        node.create_topic("orders", 2)
        topic_id = node.image.topics["orders"].id
        for api, version in KINDS:
            rule = node.faults.add(api=api, version=version, error=CODE.name, after=after)
            response = await client.ask(request_of(api, version, topic_id), version)  # our own codec reads it
            node.faults.remove(rule.id)
            assert rule.strike_count == 1
            codes = [code for _, code in codes_in(response)]
            assert CODE in codes, f"{APIS[api]} v{version}: {response}"
            leaves = leaves_of(response, api, version)
            if api != 9:  # whose errors are the group's, but in the oldest versions
                assert all(CODE in [code for _, code in codes_in(leaf)] for leaf in leaves), (
                    f"{APIS[api]} v{version}: {response}"
                )
            if after:
                break_topics_back(node)


def leaves_of(response: Any, api: int, version: int) -> list[Any]:
    entries = [response]
    for _, field in levels_of(api, version):
        entries = [below for entry in entries for below in getattr(entry, field)]
    return entries if levels_of(api, version) else []


def break_topics_back(node: Any) -> None:
    """Make what the last request may have deleted."""
    if "orders" not in node.image.topics:
        node.create_topic("orders", 2)


async def test_what_gets_an_error_is_not_done() -> None:
    async with running() as node, connected(node) as client:
        node.create_topic("orders", 2)
        topics, configs = sizes(node), repr(node.image.configs)
        topic_id = node.image.topics["orders"].id
        node.faults.add(error=CODE.name)
        for api, version in KINDS:
            await client.ask(request_of(api, version, topic_id), version)
        assert (sizes(node), repr(node.image.configs)) == (topics, configs)
        assert [node.replicas["orders", number].log.log_end_offset for number in (0, 1)] == [0, 0]


def sizes(node: Node) -> dict[str, int]:
    return {name: len(topic.partitions) for name, topic in node.image.topics.items()}


PARTIAL = [(api, version) for api, version in KINDS if api in (0, 1, 2, 9, 21, 23, 43, 45, 61)]


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
async def test_only_the_partition_that_is_meant_gets_the_error(after: bool) -> None:
    async with running() as node, connected(node) as client:
        node.create_topic("orders", 2)
        topic_id = node.image.topics["orders"].id
        await client.ask(FindCoordinatorRequest(key="buyers", key_type=0), 3)
        await client.ask(request_of(8, 8, topic_id), 8)  # a commit makes the group
        for api, version in PARTIAL:
            rule = node.faults.add(api=api, error=CODE.name, after=after, topic="ord*", partition=1)
            response = await client.ask(request_of(api, version, topic_id), version)
            node.faults.remove(rule.id)
            codes = {number_of(leaf): leaf.error_code for leaf in leaves_of(response, api, version)}
            assert codes.keys() == {0, 1}, f"{APIS[api]} v{version}: {response}"
            assert (codes[0] == CODE, codes[1] == CODE) == (False, True), f"{APIS[api]} v{version}: {response}"
            assert getattr(response, "error_code", 0) == 0


def number_of(leaf: Any) -> int:
    found: int = next(
        getattr(leaf, field)
        for field in ("index", "partition", "partition_index", "partition_id")
        if hasattr(leaf, field)
    )
    return found


TOPIC_WISE = [(api, version) for api, version in KINDS if api in (3, 19, 20, 32, 33, 37, 44, 75)]


@pytest.mark.parametrize(("api", "version"), TOPIC_WISE)
async def test_a_rule_for_another_topic_does_not_strike(api: int, version: int) -> None:
    async with running() as node, connected(node) as client:
        node.create_topic("orders", 2)
        rule = node.faults.add(api=api, error=CODE.name, topic="users")
        await client.ask(request_of(api, version, node.image.topics["orders"].id), version)
        assert (rule.match_count, rule.strike_count) == (0, 0)


async def metadata_codes(client: Client, request: Request, version: int) -> dict[str, int]:
    response = await client.ask(request, version)
    assert response.brokers, "a client without brokers has nobody left to ask"
    return {topic.name: topic.error_code for topic in response.topics}


@pytest.mark.parametrize("version", range(14))
async def test_metadata_keeps_its_brokers_and_the_other_topics(version: int) -> None:
    MetadataRequest = request_class(3)
    Topic: Any = MetadataRequest.MetadataRequestTopic  # type: ignore[attr-defined]
    async with running() as node, connected(node) as client:
        node.create_topic("orders")
        node.create_topic("users")
        node.faults.add(api="Metadata", topic="orders", error="LEADER_NOT_AVAILABLE")
        both = MetadataRequest(topics=[Topic(name="orders"), Topic(name="users")])
        assert await metadata_codes(client, both, version) == {"orders": 5, "users": 0}
        only = MetadataRequest(topics=[Topic(name="orders")])
        assert await metadata_codes(client, only, version) == {"orders": 5}
        every = MetadataRequest(topics=[] if version == 0 else None)
        assert await metadata_codes(client, every, version) == {"orders": 5, "users": 0}


async def test_metadata_with_an_error_makes_no_topic() -> None:
    async with running() as node, connected(node) as client:
        node.faults.add(api="Metadata", topic="new", error="LEADER_NOT_AVAILABLE", times=1)
        MetadataRequest = request_class(3)
        Topic: Any = MetadataRequest.MetadataRequestTopic  # type: ignore[attr-defined]
        request = MetadataRequest(topics=[Topic(name="new")])
        assert await metadata_codes(client, request, 1) == {"new": 5}
        assert not node.image.topics
        assert await metadata_codes(client, request, 1) == {"new": 0}


async def test_an_unknown_version_of_api_versions_is_answered_as_kafka_does() -> None:
    async with running() as node, connected(node) as client:
        node.faults.add(api="ApiVersions", error="UNSUPPORTED_VERSION")
        from tests.server.running import frame

        client.send(frame(request_of(18, 3), 3))
        assert (await client.answer(18, 0))[1].error_code == Error.UNSUPPORTED_VERSION

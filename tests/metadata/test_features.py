"""Feature levels: a directory has the lowest that its records need, clients are told of what is served and no more."""

from __future__ import annotations

import asyncio

import pytest

from minibroker.broker.broker import Node
from minibroker.errors import Error
from minibroker.log.memory_storage import MemoryStorage
from minibroker.metadata.features import FINALIZED, LOWEST, SERVED
from minibroker.metadata.image import MetadataImage
from minibroker.protocol.messages.api_versions import ApiVersionsRequest
from minibroker.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from minibroker.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from minibroker.protocol.messages.describe_configs import DescribeConfigsRequest
from minibroker.protocol.messages.find_coordinator import FindCoordinatorRequest
from minibroker.protocol.messages.init_producer_id import InitProducerIdRequest
from minibroker.protocol.messages.update_features import UpdateFeaturesRequest
from tests.broker.running import running_node
from tests.cluster.served import served
from tests.server.running import connected

pytestmark = pytest.mark.outside

ASK = ApiVersionsRequest(client_software_name="test", client_software_version="1")
TOPIC, DYNAMIC_DEFAULT_BROKER, DEFAULT = 2, 3, 5  # a kind of resource, and where values come from
NOT_SERVED = {"share.version", "streams.version"}
V2 = {"transaction.version": 2}  # announced before it is written: clients ask once, and go by it
JOIN = ConsumerGroupHeartbeatRequest(
    group_id="k",
    member_id="AAAAAAAAAAAAAAAAAAAAAQ",
    member_epoch=0,
    rebalance_timeout_ms=1000,
    subscribed_topic_names=["t"],
    topic_partitions=[],
)


@pytest.mark.parametrize("as_version", [None, "3.9", "4.0", "4.2", "4.4"])
async def test_no_feature_is_announced_whose_apis_are_not_served(as_version: str | None) -> None:
    async with running_node(as_version=as_version) as node, connected(node) as client:
        answer = await client.ask(ASK, 4)
        finalized = {row.name: row.max_version_level for row in answer.finalized_features}
        supported = {row.name for row in answer.supported_features}
        known = {name: level for name, level in node.image.features.items() if name in SERVED}
        assert finalized == (V2 | known if as_version is None else known)
        assert "metadata.version" in finalized
        assert set(finalized) <= supported
        assert not NOT_SERVED & (supported | set(finalized))
        if as_version is not None:
            assert finalized["metadata.version"] == FINALIZED[as_version]["metadata.version"]


async def test_levels_that_another_kafka_finalized_are_kept_and_not_announced_where_nothing_serves_them() -> None:
    storage = MemoryStorage(lambda: 1_700_000_000_000)
    async with running_node(storage) as node:
        node.metadata.need_feature("share.version", 2)
    async with running_node(storage) as node, connected(node) as client:
        assert node.image.features["share.version"] == 2
        assert "share.version" not in {row.name for row in (await client.ask(ASK, 4)).finalized_features}


async def init(node: Node, *, timeout_ms: int = 1000) -> int:
    """Ask for the producer id of a transactional id; return the error."""
    async with connected(node) as client:
        await client.ask(FindCoordinatorRequest(key_type=1, coordinator_keys=["t"]), 4)
        request = InitProducerIdRequest(transactional_id="t", transaction_timeout_ms=timeout_ms)
        return int((await client.ask(request, 5)).error_code)


async def announced(node: Node) -> int | None:
    """Return the level of transaction.version that clients are told of."""
    async with connected(node) as client:
        levels = {row.name: row.max_version_level for row in (await client.ask(ASK, 4)).finalized_features}
        return levels.get("transaction.version")


async def test_a_directory_has_the_lowest_levels_until_a_transactional_id_needs_more() -> None:
    storage = MemoryStorage(lambda: 1_700_000_000_000)
    async with running_node(storage) as node:
        assert node.image.features == LOWEST
        assert await announced(node) == 2
        assert await init(node, timeout_ms=0) == Error.INVALID_TRANSACTION_TIMEOUT
        assert node.image.features == LOWEST
        assert await init(node) == 0
        assert node.image.features == {**LOWEST, **V2}
    async with running_node(storage) as node:
        assert node.image.features == {**LOWEST, **V2}
        assert await announced(node) == 2


@pytest.mark.parametrize(("as_version", "level"), [("3.9", None), ("4.0", 2), ("4.4", 2)])
async def test_transactions_v2_are_announced_as_each_release_has_them(as_version: str, level: int | None) -> None:
    async with running_node(as_version=as_version) as node:
        for _ in range(2):
            assert await announced(node) == level
            assert node.image.features.get("transaction.version") == level
            assert await init(node) == 0


@pytest.mark.parametrize("level", [0, 1])
async def test_a_level_of_transaction_version_that_somebody_set_stays(level: int) -> None:
    storage = MemoryStorage(lambda: 1_700_000_000_000)
    async with running_node(storage) as node:
        assert await init(node) == 0
        await set_level(node, "transaction.version", level)
        assert await announced(node) == (level or None)
    async with running_node(storage) as node:
        assert await init(node) == 0
        assert await announced(node) == (level or None)


async def test_a_directory_has_the_lowest_levels_until_a_group_of_the_consumer_protocol_needs_more() -> None:
    storage = MemoryStorage(lambda: 1_700_000_000_000)
    async with running_node(storage) as node, connected(node) as client:
        node.create_topic("t")
        assert node.image.features == LOWEST
        epoch = (await client.ask(ASK, 4)).finalized_features_epoch
        await client.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=["k"]), 4)
        answer = await client.ask(JOIN, 1)
        assert answer.error_code == 0, answer.error_message
        assert node.image.features == {**LOWEST, "group.version": 1}
        assert (await client.ask(ASK, 4)).finalized_features_epoch > epoch
    async with running_node(storage) as node:
        assert node.image.features == {**LOWEST, "group.version": 1}


@pytest.mark.parametrize(("as_version", "source"), [(None, DEFAULT), ("3.9", DEFAULT), ("4.4", DYNAMIC_DEFAULT_BROKER)])
@pytest.mark.parametrize("given", ["1", "2"])
async def test_where_replicas_may_be_eligible_leaders_the_cluster_has_a_setting_of_its_own(
    as_version: str | None, source: int, given: str
) -> None:
    """Kafka writes min.insync.replicas down for the whole cluster when it begins with that feature (KIP-966)."""
    storage, static = MemoryStorage(lambda: 1_700_000_000_000), 4
    if given != "1" and source == DEFAULT:
        source = static
    settings = {} if given == "1" else {"min.insync.replicas": given}
    ask = DescribeConfigsRequest(
        resources=[
            DescribeConfigsRequest.DescribeConfigsResource(
                resource_type=TOPIC, resource_name="t", configuration_keys=["min.insync.replicas"]
            )
        ],
        include_synonyms=False,
        include_documentation=False,
    )
    for start in (1, 2):
        async with running_node(storage, as_version=as_version, **settings) as node, connected(node) as client:
            if start == 1:
                node.create_topic("t")
            (row,) = (await client.ask(ask, 4)).results[0].configs
            assert (row.value, row.config_source) == (given, source), f"start {start}"


DESCRIBE = ConsumerGroupDescribeRequest(group_ids=["k"], include_authorized_operations=False)
CONSUMER = {"group.coordinator.rebalance.protocols": "classic,consumer"}


async def join(node: Node, version: int) -> tuple[int, int]:
    """Join, ask how the group is; return the errors of both."""
    async with connected(node) as client:
        await client.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=["k"]), 4)
        joined = await client.ask(JOIN, version)
        described = (await client.ask(DESCRIBE, version)).groups[0]
        return joined.error_code, described.error_code


async def set_level(node: Node, name: str, level: int) -> None:
    kind = 1 if level > node.image.features.get(name, 0) else 2  # an upgrade, or a safe downgrade
    update = UpdateFeaturesRequest.FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=kind)
    async with connected(node) as client:
        answer = await client.ask(UpdateFeaturesRequest(timeout_ms=1000, feature_updates=[update]), 1)
        assert answer.error_code == 0, answer.error_message


@pytest.mark.parametrize(
    ("as_version", "settings", "version", "error"),
    [
        ("3.6", CONSUMER, 0, Error.UNSUPPORTED_VERSION),
        ("3.7", {}, 0, Error.UNSUPPORTED_VERSION),
        ("3.7", CONSUMER, 0, 0),
        ("3.9", {}, 0, Error.UNSUPPORTED_VERSION),
        ("3.9", CONSUMER, 0, 0),
        ("4.0", {}, 1, 0),
        ("4.0", {"group.coordinator.rebalance.protocols": "classic"}, 1, Error.UNSUPPORTED_VERSION),
    ],
)
async def test_groups_of_the_consumer_protocol_are_served_since_3_7_where_settings_say_so(
    as_version: str, settings: dict[str, object], version: int, error: int
) -> None:
    async with running_node(as_version=as_version, **settings) as node:
        node.create_topic("t")
        if as_version == "3.6":  # nobody can ask for a description
            assert not node.groups.serves_consumer_protocol
        else:
            assert await join(node, version) == (error, error)
        assert ("group.version" in node.image.features) == (as_version >= "4")


@pytest.mark.parametrize("as_version", [None, "4.1"])
@pytest.mark.parametrize("comes_first", ["a group", "the level"])
async def test_a_level_that_somebody_set_to_0_stays_there_until_somebody_raises_it(
    as_version: str | None, comes_first: str
) -> None:
    storage = MemoryStorage(lambda: 1_700_000_000_000)
    async with running_node(storage, as_version=as_version) as node:
        node.create_topic("t")
        if comes_first == "a group":
            assert await join(node, 1) == (0, 0)
        await set_level(node, "group.version", 0)
        assert await join(node, 1) == (Error.UNSUPPORTED_VERSION, Error.UNSUPPORTED_VERSION)
        copy = MetadataImage()
        for record in node.image.records():
            copy.apply(record)
        assert copy.features_set_to_0 == {"group.version"}, "a snapshot has it too"
    async with running_node(storage, as_version=as_version) as node:
        assert (await join(node, 1))[0] == Error.UNSUPPORTED_VERSION
        assert "group.version" not in node.image.features
        await set_level(node, "group.version", 1)
        assert await join(node, 1) == (0, 0)


async def until_group_version(node: Node, level: int) -> None:
    """Wait until a broker has heard from its controller."""
    heard = asyncio.Event()
    node.watchers[heard.set] = None
    async with asyncio.timeout(30):
        while node.image.features.get("group.version", 0) != level:
            heard.clear()
            await heard.wait()


async def test_a_cluster_does_not_raise_a_level_by_itself() -> None:
    async with served() as cluster:
        cluster.create_topic("t", 1)
        node = cluster.nodes[1]
        for level in (0, 1):
            await set_level(node, "group.version", level)
            await until_group_version(node, level)
            joined, described = await join(node, 1)
            assert (joined == Error.UNSUPPORTED_VERSION) == (described == Error.UNSUPPORTED_VERSION) == (level == 0)
            assert node.image.features.get("group.version", 0) == level

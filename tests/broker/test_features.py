"""Feature levels: a directory has the lowest that its records need, clients are told of what is served and no more."""

from __future__ import annotations

import pytest

from minibroker.log.memory_storage import MemoryStorage
from minibroker.metadata.features import FINALIZED, LOWEST, SERVED
from minibroker.protocol.messages.api_versions import ApiVersionsRequest
from minibroker.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from minibroker.protocol.messages.describe_configs import DescribeConfigsRequest
from minibroker.protocol.messages.find_coordinator import FindCoordinatorRequest
from tests.broker.running import running_node
from tests.server.running import connected

ASK = ApiVersionsRequest(client_software_name="test", client_software_version="1")
TOPIC, DYNAMIC_DEFAULT_BROKER, DEFAULT = 2, 3, 5  # a kind of resource, and where values come from
NOT_SERVED = {"share.version", "streams.version", "transaction.version"}
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
        assert finalized == {name: level for name, level in node.image.features.items() if name in SERVED}
        assert "metadata.version" in finalized and set(finalized) <= supported
        assert not NOT_SERVED & (supported | set(finalized))
        if as_version is not None:
            assert finalized["metadata.version"] == FINALIZED[as_version]["metadata.version"]


async def test_levels_that_another_kafka_finalized_are_kept_and_not_announced_where_nothing_serves_them() -> None:
    storage = MemoryStorage(lambda: 1_700_000_000_000)
    async with running_node(storage) as node:
        node.need_feature("transaction.version", 2)
    async with running_node(storage) as node, connected(node) as client:
        assert node.image.features["transaction.version"] == 2
        assert "transaction.version" not in {row.name for row in (await client.ask(ASK, 4)).finalized_features}


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

"""What administrators ask of the controller through any broker: the quorum, feature levels, brokers that have gone."""

from __future__ import annotations

from typing import Any

import pytest

from minibroker import Cluster
from minibroker.errors import Error
from minibroker.protocol.messages.api_versions import ApiVersionsRequest
from minibroker.protocol.messages.describe_quorum import DescribeQuorumRequest
from minibroker.protocol.messages.unregister_broker import UnregisterBrokerRequest
from minibroker.protocol.messages.update_features import UpdateFeaturesRequest
from tests.differential.play import _decoded, _frame
from tests.differential.wire import Side

Topic = DescribeQuorumRequest.TopicData
QUORUM = DescribeQuorumRequest(
    topics=[Topic(topic_name="__cluster_metadata", partitions=[Topic.PartitionData(partition_index=0)])]
)


def ask(address: str, request: Any, version: int) -> Any:
    side = Side(address)
    side.send(_frame(request, version))
    answer = _decoded(side.receive(), request.api, version)
    side.close()
    return answer


@pytest.mark.parametrize("brokers", [1, 3])
def test_the_quorum_is_the_controller_and_brokers_follow_its_log(brokers: int) -> None:
    with Cluster(brokers, topics=["t"]) as cluster:
        for address in cluster.bootstrap_servers.split(","):
            (partition,) = ask(address, QUORUM, 2).topics[0].partitions
            assert not partition.error_code
            (voter,) = partition.current_voters
            assert voter.replica_id == partition.leader_id
            assert voter.log_end_offset == partition.high_watermark > 0
            assert [each.replica_id for each in partition.observers] == list(range(1, brokers + 1))
            assert all(-1 <= each.log_end_offset <= partition.high_watermark for each in partition.observers)


def test_a_broker_that_has_stopped_can_be_forgotten_and_one_that_runs_cannot() -> None:
    with Cluster(2, topics=["t:1"]) as cluster:
        address = cluster.bootstrap_servers.split(",")[0]
        assert ask(address, UnregisterBrokerRequest(broker_id=2), 0).error_code == Error.INVALID_REQUEST
        assert ask(address, UnregisterBrokerRequest(broker_id=9), 0).error_code == Error.BROKER_ID_NOT_REGISTERED
        cluster.stop_broker(2)
        assert ask(address, UnregisterBrokerRequest(broker_id=2), 0).error_code == Error.NONE
        assert ask(address, UnregisterBrokerRequest(broker_id=2), 0).error_code == Error.BROKER_ID_NOT_REGISTERED
        assert [each.replica_id for each in ask(address, QUORUM, 2).topics[0].partitions[0].observers] == [1]
        cluster.start_broker(2)  # and it may come back
        assert [each.replica_id for each in ask(address, QUORUM, 2).topics[0].partitions[0].observers] == [1, 2]


def test_levels_that_are_raised_are_announced_by_every_broker() -> None:
    Update = UpdateFeaturesRequest.FeatureUpdateKey
    raised = UpdateFeaturesRequest(feature_updates=[Update(feature="metadata.version", max_version_level=30)])
    with Cluster(2) as cluster:
        addresses = cluster.bootstrap_servers.split(",")
        assert not ask(addresses[0], raised, 2).error_code
        for address in addresses:
            for _ in range(10_000):  # a broker hears of it as it fetches the metadata
                if levels(address)["metadata.version"] == 30:
                    break
            assert levels(address)["metadata.version"] == 30


def levels(address: str) -> dict[str, int]:
    answer = ask(address, ApiVersionsRequest(client_software_name="test", client_software_version="1"), 3)
    return {row.name: row.max_version_level for row in answer.finalized_features}


def test_levels_that_are_so_already_are_not_written_again() -> None:
    Update = UpdateFeaturesRequest.FeatureUpdateKey
    same = [Update(feature="group.version", max_version_level=1)] * 100
    with Cluster(1) as cluster:
        address = cluster.bootstrap_servers
        assert not ask(address, UpdateFeaturesRequest(feature_updates=same), 2).error_code
        before = ask(address, QUORUM, 2).topics[0].partitions[0].high_watermark
        assert not ask(address, UpdateFeaturesRequest(feature_updates=same), 2).error_code
        assert ask(address, QUORUM, 2).topics[0].partitions[0].high_watermark == before

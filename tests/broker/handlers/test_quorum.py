"""The quorum of one, and the features that its metadata have."""

from __future__ import annotations

from typing import Any

import pytest

from minibroker.errors import Error
from minibroker.protocol.messages.add_raft_voter import AddRaftVoterRequest
from minibroker.protocol.messages.describe_quorum import DescribeQuorumRequest
from minibroker.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest
from minibroker.protocol.messages.unregister_broker import UnregisterBrokerRequest
from minibroker.protocol.messages.unregister_controller import UnregisterControllerRequest
from minibroker.protocol.messages.update_features import UpdateFeaturesRequest
from tests.broker.virtual_broker import VirtualBroker, virtual_broker

METADATA = "__cluster_metadata"
UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3
VERSION = "metadata.version"


def quorum(broker: VirtualBroker, *wanted: tuple[str, list[int]], version: int = 2) -> Any:
    Topic = DescribeQuorumRequest.TopicData
    topics = [
        Topic(topic_name=name, partitions=[Topic.PartitionData(partition_index=index) for index in rows])
        for name, rows in wanted
    ]
    answer = broker.ask(DescribeQuorumRequest(topics=topics), version)
    assert answer.error_code == Error.NONE
    return answer


def test_the_one_partition_of_the_quorum_is_described(broker: VirtualBroker) -> None:
    answer = quorum(broker, (METADATA, [0]))
    (row,) = answer.topics[0].partitions
    log = broker.node.metadata_log
    assert (row.error_code, row.leader_id, row.leader_epoch, row.high_watermark) == (
        0,
        1,
        log.epoch,
        log.log_end_offset,
    )
    (voter,) = row.current_voters
    now_ms = broker.node.clock.now_ms()
    assert (voter.replica_id, voter.log_end_offset) == (1, log.log_end_offset)
    assert now_ms - 1 <= voter.last_fetch_timestamp == voter.last_caught_up_timestamp <= now_ms
    assert row.observers == []
    assert [each.node_id for each in answer.nodes] == [1]


def test_what_else_is_asked_of_a_quorum_is_not_there(broker: VirtualBroker) -> None:
    for wanted in ([("t", [0])], [(METADATA, [1])], [(METADATA, [0, 1])], [(METADATA, [0]), ("t", [0])]):
        answer = quorum(broker, *wanted)
        rows = [row for topic in answer.topics for row in topic.partitions]
        assert [
            (topic.topic_name, [row.partition_index for row in topic.partitions]) for topic in answer.topics
        ] == wanted
        assert {row.error_code for row in rows} == {Error.UNKNOWN_TOPIC_OR_PARTITION}
        assert {(row.leader_id, row.leader_epoch, row.high_watermark) for row in rows} == {(0, 0, 0)}
        assert not any(row.current_voters or row.observers for row in rows)
        assert answer.nodes == []
    for nothing in ([], [(METADATA, [])]):
        assert quorum(broker, *nothing).topics == []


# Features


def update(
    broker: VirtualBroker,
    *wanted: tuple[str, int, int],
    trial: bool = False,
    version: int = 2,
) -> tuple[int, str | None, dict[str, tuple[int, str | None]]]:
    Row = UpdateFeaturesRequest.FeatureUpdateKey
    rows = [
        Row(feature=name, max_version_level=level, upgrade_type=kind)
        if version
        else Row(feature=name, max_version_level=level, allow_downgrade=kind != UPGRADE)
        for name, level, kind in wanted
    ]
    request = UpdateFeaturesRequest(timeout_ms=1000, feature_updates=rows, validate_only=trial)
    answer = broker.ask(request, version)
    return (
        answer.error_code,
        answer.error_message,
        {each.feature: (each.error_code, each.error_message) for each in answer.results},
    )


GROUP = "group.version"
OK = (Error.NONE, None)
REFUSED = "The update failed for all features since the following feature had an error:"


def prepare(broker: VirtualBroker) -> None:
    """Have the metadata in a version that knows features of groups, and these on."""
    for name, level in ((VERSION, 25), (GROUP, 1)):
        assert update(broker, (name, level, UPGRADE)) == (*OK, {})
    assert levels(broker)[GROUP] == 1


def levels(broker: VirtualBroker) -> dict[str, int]:
    return dict(broker.node.image.features)


@pytest.mark.parametrize("version", range(3))
def test_features_are_downgraded_and_upgraded_all_or_none(broker: VirtualBroker, version: int) -> None:
    prepare(broker)
    before = levels(broker)
    none = {} if version == 2 else {GROUP: (Error.NONE, "NONE")}
    if version:
        assert update(broker, (GROUP, 0, SAFE_DOWNGRADE), trial=True, version=version) == (*OK, none)
        assert levels(broker) == before
    assert update(broker, (GROUP, 0, SAFE_DOWNGRADE), version=version) == (*OK, none)
    assert levels(broker).get(GROUP, 0) == 0
    offset = broker.node.image.offset
    assert update(broker, (GROUP, 0, SAFE_DOWNGRADE), version=version)[0] == Error.NONE
    assert broker.node.image.offset == offset, "what is so already is not written down"
    code, message, results = update(broker, (GROUP, 1, UPGRADE), ("no.such", 1, UPGRADE), version=version)
    assert code == Error.INVALID_UPDATE_VERSION
    assert message == (
        f"{REFUSED} Invalid update version 1 for feature no.such. Local controller 1 does not support this feature."
    )
    assert results == {}
    assert levels(broker).get(GROUP, 0) == 0
    assert update(broker, (GROUP, 1, UPGRADE), version=version)[0] == Error.NONE
    assert levels(broker) == before


@pytest.mark.parametrize("version", range(3))
def test_a_downgrade_has_to_be_meant(broker: VirtualBroker, version: int) -> None:
    prepare(broker)
    code, message, _ = update(broker, (GROUP, 0, UPGRADE), version=version)
    assert code == Error.INVALID_UPDATE_VERSION
    assert message is not None
    assert message.startswith(REFUSED)
    assert levels(broker)[GROUP] == 1


def test_kafka_3_judges_each_feature_by_itself() -> None:
    with virtual_broker(as_version="3.9") as broker:
        code, message, results = update(broker, ("no.such", 1, UPGRADE), version=1)
        assert (code, message) == (Error.NONE, "")
        words = "Invalid update version 1 for feature no.such. Local controller 1 does not support this feature."
        assert results == {"no.such": (Error.INVALID_UPDATE_VERSION, words)}
        before = levels(broker)
        assert before[VERSION] > 20
        wanted = ((VERSION, before[VERSION] - 1, SAFE_DOWNGRADE), ("no.such", 1, UPGRADE))
        _, _, tried = update(broker, *wanted, trial=True, version=1)
        assert levels(broker) == before
        _, _, done = update(broker, *wanted, version=1)
        assert tried == done
        assert done["no.such"] == results["no.such"]
        is_lower = levels(broker)[VERSION] == before[VERSION] - 1
        assert is_lower == (done[VERSION][0] == Error.NONE)


# Members


def test_nobody_joins_or_leaves_the_quorum(broker: VirtualBroker) -> None:
    own, other = broker.node.cluster_id, "another"
    for cluster_id in (None, own, other):
        add = AddRaftVoterRequest(
            cluster_id=cluster_id, timeout_ms=1, voter_id=2, voter_directory_id=bytes(16), listeners=[]
        )
        remove = RemoveRaftVoterRequest(cluster_id=cluster_id, voter_id=2, voter_directory_id=bytes(16))
        for request, doing in ((add, "adding"), (remove, "removing")):
            answer = broker.ask(request, 0)
            if cluster_id == other:
                expected = (
                    Error.INCONSISTENT_CLUSTER_ID,
                    f'The given id "another" doesn\'t match the cluster id "{own}"',
                )
            else:
                words = f"Cluster doesn't support {doing} voter because the kraft.version feature is 0"
                expected = (Error.UNSUPPORTED_VERSION, words)
            assert (answer.error_code, answer.error_message) == expected
    gone = broker.ask(UnregisterControllerRequest(controller_id=7), 0)
    assert (gone.error_code, gone.error_message) == (
        Error.CONTROLLER_ID_NOT_REGISTERED,
        "Controller ID 7 is not currently registered.",
    )


@pytest.mark.parametrize("release", ["3.9", "4.4"])
def test_a_broker_that_runs_or_never_was_is_not_forgotten(release: str) -> None:
    with virtual_broker(as_version=release) as broker:
        for broker_id, code, words in (
            (1, Error.INVALID_REQUEST, "broker 1 runs, and would be there again"),
            (7, Error.BROKER_ID_NOT_REGISTERED, "Broker ID 7 is not currently registered"),
        ):
            answer = broker.ask(UnregisterBrokerRequest(broker_id=broker_id), 0)
            assert (answer.error_code, answer.error_message) == (code, words if release == "4.4" else "")
            assert broker_id == 7 or broker_id in broker.node.image.brokers

"""What there is: brokers, the directory and what lies in it, producers."""

from __future__ import annotations

from typing import Any

import pytest

from minibroker.errors import Error
from minibroker.log.build import build_batch
from minibroker.log.records import Record
from minibroker.protocol.messages.alter_replica_log_dirs import AlterReplicaLogDirsRequest
from minibroker.protocol.messages.describe_cluster import DescribeClusterRequest
from minibroker.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from minibroker.protocol.messages.describe_producers import DescribeProducersRequest
from tests.broker.virtual_broker import VirtualBroker
from tests.server.running import append

NOT_ASKED = -(1 << 31)
ENDPOINTS = {
    1: (Error.NONE, None),
    2: (
        Error.MISMATCHED_ENDPOINT_TYPE,
        "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type CONTROLLER",
    ),
    3: (Error.UNSUPPORTED_ENDPOINT_TYPE, "Unsupported endpoint type 3"),
}


@pytest.mark.parametrize("kind", ENDPOINTS)
def test_brokers_are_described_to_who_asks_for_brokers(broker: VirtualBroker, kind: int) -> None:
    answer = broker.ask(DescribeClusterRequest(include_cluster_authorized_operations=False, endpoint_type=kind), 2)
    assert (answer.error_code, answer.error_message) == ENDPOINTS[kind]
    told = [(each.broker_id, each.host, each.port) for each in answer.brokers]
    if kind == 1:
        assert told == [(broker.node.node_id, *broker.connection.local_address)]
        assert (answer.cluster_id, answer.controller_id) == (broker.node.cluster_id, broker.node.node_id)
    else:
        assert (told, answer.cluster_id) == ([], "")


def test_what_may_be_done_with_a_cluster_is_told_who_asks(broker: VirtualBroker) -> None:
    for asks, expected in ((True, sum(1 << each for each in (5, 7, 8, 9, 10, 11, 12))), (False, NOT_ASKED)):
        answer = broker.ask(DescribeClusterRequest(include_cluster_authorized_operations=asks), 1)
        assert answer.cluster_authorized_operations == expected


def directory(broker: VirtualBroker, wanted: dict[str, list[int]] | None) -> tuple[Any, dict[tuple[str, int], Any]]:
    Topic = DescribeLogDirsRequest.DescribableLogDirTopic
    topics = None if wanted is None else [Topic(topic=name, partitions=numbers) for name, numbers in wanted.items()]
    (only,) = broker.ask(DescribeLogDirsRequest(topics=topics), 4).results
    return only, {(topic.name, each.partition_index): each for topic in only.topics for each in topic.partitions}


def test_logs_are_described_with_their_sizes(broker: VirtualBroker) -> None:
    broker.node.create_topic("t", 2)
    broker.node.create_topic("u", 1)
    broker.run(append, broker.node, "t", b"a value")
    only, everything = directory(broker, None)
    assert (only.error_code, only.total_bytes, only.usable_bytes) == (0, *broker.node.storage.disk_space())
    assert {key: each.partition_size for key, each in everything.items()} == {
        key: replica.log.size_bytes for key, replica in broker.node.replicas.items()
    }
    assert everything["t", 0].partition_size > 0
    for wanted, expected in (
        ({"t": [1], "u": [0, 1]}, {("t", 1), ("u", 0)}),
        ({"absent": [0]}, set()),
        ({}, set()),
    ):
        assert directory(broker, wanted)[1].keys() == expected
    broker.node.replicas["t", 0].high_watermark = 0
    broker.node.replicas["t", 1].high_watermark = 3  # as that of a follower that has not all yet
    lags = {key: each.offset_lag for key, each in directory(broker, {"t": [0, 1]})[1].items()}
    assert lags == {("t", 0): 0, ("t", 1): 3}


def test_replicas_stay_in_the_only_directory(broker: VirtualBroker) -> None:
    broker.node.create_topic("t", 1)
    Dir = AlterReplicaLogDirsRequest.AlterReplicaLogDir
    Topic = Dir.AlterReplicaLogDirTopic
    dirs = [
        Dir(path=broker.node.log_dir, topics=[Topic(name="t", partitions=[0, 1]), Topic(name="u", partitions=[0])]),
        Dir(path="/elsewhere", topics=[Topic(name="v", partitions=[0])]),
    ]
    answer = broker.ask(AlterReplicaLogDirsRequest(dirs=dirs), 2)
    assert {
        (topic.topic_name, each.partition_index): each.error_code
        for topic in answer.results
        for each in topic.partitions
    } == {
        ("t", 0): Error.NONE,
        ("t", 1): Error.REPLICA_NOT_AVAILABLE,
        ("u", 0): Error.REPLICA_NOT_AVAILABLE,
        ("v", 0): Error.LOG_DIR_NOT_FOUND,
    }


def test_producers_are_described_as_the_log_knows_them(broker: VirtualBroker) -> None:
    broker.node.create_topic("t", 1)
    batches = [
        build_batch(
            2, [Record(b"k", b"v", (), 1_000 + each)] * 3, producer_id=each, producer_epoch=4, base_sequence=0, **more
        )
        for each, more in ((7, {}), (8, {"transactional": True}))
    ]
    for data in batches:
        replica = broker.node.replicas["t", 0]
        verified = replica.log.producers.start_verification(8, 4, 0, 0)
        replica.append(bytearray(data), now_ms=1_000, steady_ms=0, verification=verified)
    Topic = DescribeProducersRequest.TopicRequest
    topics = [Topic(name="t", partition_indexes=[0, 5, 0]), Topic(name="absent", partition_indexes=[0])]
    answer = broker.ask(DescribeProducersRequest(topics=topics), 0)
    (first, second, again), (absent,) = (topic.partitions for topic in answer.topics)
    assert first == again
    told = [
        (each.producer_id, each.producer_epoch, each.last_sequence, each.last_timestamp, each.current_txn_start_offset)
        for each in first.active_producers
    ]
    assert told == [(7, 4, 2, 1_007, -1), (8, 4, 2, 1_008, 3)]
    unknown = Error.UNKNOWN_TOPIC_OR_PARTITION
    assert (first.error_code, first.error_message) == (Error.NONE, None)
    assert (second.error_code, second.error_message) == (unknown, None)
    assert (absent.error_code, absent.error_message) == (unknown, "there is no partition 0 of 'absent'")

"""Starts, stops and kills of a broker: the records are those of a real broker that lived the same."""

from __future__ import annotations

from typing import Any

import pytest

from minibroker.log.checkpoints import write_clean_shutdown
from minibroker.log.memory_storage import MemoryStorage
from minibroker.metadata.image import Partition
from minibroker.metadata.metadata_log import MetadataLog
from minibroker.metadata.records import read_record
from minibroker.stored.brokers import BrokerRegistrationChangeRecord, RegisterBrokerRecord
from minibroker.stored.topics import PartitionChangeRecord
from tests.controller.test_controller import join
from tests.metadata.nodes import NOW_MS, LoneNode, memory


def life(storage: MemoryStorage, start_offset: int) -> list[dict[str, Any]]:
    """Return what happened to the broker and to partition 0 from an offset on, only what differs from defaults."""
    log = MetadataLog(storage, node_id=1)
    log.load(now_ms=NOW_MS)
    kinds = (RegisterBrokerRecord, BrokerRegistrationChangeRecord, PartitionChangeRecord)
    shown = ("fenced", "in_controlled_shutdown", "isr", "leader", "eligible_leader_replicas", "last_known_elr")
    found = []
    for segment in log.log.segments:
        for batch in segment.batches():
            for each in [] if batch.is_control or batch.base_offset < start_offset else batch.records():
                record: Any = read_record(bytes(each.value or b""))
                if isinstance(record, kinds):
                    values = {name: getattr(record, name, None) for name in (*shown, "leader_recovery_state")}
                    defaults = {"fenced": (0,), "leader": (-2,), "leader_recovery_state": (-1,)}
                    found.append(
                        {
                            name: value
                            for name, value in values.items()
                            if value is not None and value not in defaults.get(name, (0,)) and value is not False
                        }
                    )
    return found


# What Kafka 4.4.0 wrote for one broker with one partition.
START = [{"fenced": True}, {"fenced": -1}]
STOP = [
    {"in_controlled_shutdown": 1},
    {"isr": [], "leader": -1, "eligible_leader_replicas": [1], "last_known_elr": [1]},
    {"fenced": 1},
]
CLEAN_START = [*START, {"isr": [1], "leader": 1, "eligible_leader_replicas": [], "last_known_elr": []}]
UNCLEAN_START = [
    {"isr": [], "leader": -1, "eligible_leader_replicas": [1], "last_known_elr": [1]},
    {"fenced": 1},
    {"eligible_leader_replicas": []},
    *START,
    {"isr": [1], "leader": 1, "last_known_elr": [], "leader_recovery_state": 1},
]


def partition(node: LoneNode) -> Partition:
    return node.image.topics["a"].partitions[0]


def test_a_stop_and_a_start_are_written_as_kafka_writes_them() -> None:
    storage = memory()
    node = LoneNode(storage)
    assert life(storage, 0) == START
    node.create("a")
    stopped_at = node.log.log_end_offset
    epoch = node.image.brokers[1].broker_epoch
    node.stop()
    write_clean_shutdown(storage, epoch)
    assert life(storage, stopped_at) == STOP
    started_at = node.image.offset + 1
    again = LoneNode(storage)
    assert life(storage, started_at) == CLEAN_START
    assert again.image.brokers[1].broker_epoch == started_at + 1  # the record of the new leader comes first
    assert (partition(again).leader_epoch, partition(again).leader_recovery_state) == (2, 0)


def test_a_start_after_a_kill_is_written_as_kafka_writes_it() -> None:
    storage = memory()
    node = LoneNode(storage)
    node.create("a")
    killed_at = node.log.log_end_offset
    again = LoneNode(storage)
    assert life(storage, killed_at) == UNCLEAN_START
    assert (partition(again).leader, partition(again).isr, partition(again).leader_epoch) == (1, [1], 2)


@pytest.mark.parametrize("release", ["3.9", "4.0"])
def test_where_nobody_is_eligible_outside_the_isr_the_last_one_stays_in_it(release: str) -> None:
    storage = memory()
    node = LoneNode(storage, release=release)
    node.create("a")
    at = node.log.log_end_offset
    node.stop()
    assert life(storage, at) == [{"in_controlled_shutdown": 1}, {"leader": -1}, {"fenced": 1}]
    at = node.image.offset + 1
    LoneNode(storage, release=release)
    assert life(storage, at) == [*START, {"leader": 1}]


def test_another_replica_in_sync_takes_over() -> None:
    node = LoneNode(memory())
    join(node, 2)
    node.append(node.controller.create_topic("a", partitions=2, replication_factor=2))
    from minibroker.controller import brokers

    for records in brokers.stopping(node.controller, 1):
        node.append(records)
    assert [(each.leader, each.isr, each.leader_epoch) for each in node.image.topics["a"].partitions] == [
        (2, [2], 1),
        (2, [2], 0),
    ]

"""Partitions with an open transaction: their leaders and replicas move, and their logs are cut at both ends.

What a transaction coordinator would have appended is appended by hand, on whichever replica leads.
"""

from __future__ import annotations

import pytest

from minibroker.client import Cluster as Client
from minibroker.cluster.cluster import Cluster
from minibroker.errors import Error, KafkaError
from minibroker.log.aborted import aborted_between
from minibroker.log.build import build_batch, build_transaction_marker
from minibroker.log.partition_log import Appended
from minibroker.log.records import Record
from minibroker.log.validate import COORDINATOR
from minibroker.protocol.messages.delete_records import DeleteRecordsRequest
from minibroker.replication.network import CONTROLLER
from minibroker.replication.replica import READ_COMMITTED, Replica

from .virtual import TOPIC, Lab, in_cluster

TIME_MS = 1_700_000_000_000
TRANSACTIONAL, PLAIN, OTHER = 7, 8, 9  # producer ids


async def prepared(lab: Lab, brokers: list[int]) -> Replica:
    """Make the topic on some of the brokers; return its leader, which is the first of them."""
    lab.cluster.create_topic(TOPIC, 1, len(brokers))
    lab.cluster.reassign(TOPIC, 0, brokers)
    await lab.cluster.waits.leader(TOPIC, 0, brokers[0])
    return await leader_of(lab)


async def leader_of(lab: Lab) -> Replica:
    """Return the leader, when all replicas are in sync and know what is committed."""
    await lab.cluster.waits.in_sync()
    await lab.world.clock.sleep(2_000)
    leader = lab.cluster.leader(TOPIC, 0)
    assert leader is not None
    return leader


def send(leader: Replica, sequence: int, producer_id: int = TRANSACTIONAL, *, verified: bool = False) -> Appended:
    """Append a record; verified: the coordinator has confirmed that the transaction begins here."""
    data = build_batch(
        2,
        [Record(None, b"value", (), TIME_MS)],
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=sequence,
        transactional=producer_id != PLAIN,
    )
    verification = leader.log.producers.start_verification(producer_id, 0, sequence, TIME_MS) if verified else None
    return leader.append(bytearray(data), now_ms=TIME_MS, steady_ms=0, verification=verification)


def end(leader: Replica, *, commit: bool) -> None:
    marker = build_transaction_marker(
        offset=0, commit=commit, timestamp=TIME_MS, producer_id=TRANSACTIONAL, producer_epoch=0, coordinator_epoch=0
    )
    leader.append(bytearray(marker), now_ms=TIME_MS, steady_ms=0, acks=-1, origin=COORDINATOR)


def replicas(cluster: Cluster) -> list[Replica]:
    found = [cluster.replica(TOPIC, 0, broker) for broker in cluster.partition(TOPIC, 0).replicas]
    return [replica for replica in found if replica is not None]


def stable_offsets(cluster: Cluster) -> set[int]:
    """Return up to where the replicas let consumers read what is committed."""
    return {replica.readable_end(READ_COMMITTED) for replica in replicas(cluster)}


def aborted(replica: Replica) -> list[tuple[int, int]]:
    """Return producer and first offset of the aborted transactions that consumers are told of."""
    log = replica.log
    entries = aborted_between(log, log.log_start_offset, log.log_end_offset)
    return [(entry.producer_id, entry.first_offset) for entry in entries]


async def delete_records(lab: Lab, leader: Replica, offset: int) -> None:
    Topic = DeleteRecordsRequest.DeleteRecordsTopic
    row = Topic.DeleteRecordsPartition(partition_index=0, offset=offset)
    request = DeleteRecordsRequest(timeout_ms=5000, topics=[Topic(name=TOPIC, partitions=[row])])
    async with Client(lab.cluster.bootstrap_servers, clock=lab.world.clock) as client:
        await client.metadata()
        answer = await (await client.connection(leader.node_id)).call(request, 2)
    assert (answer.topics[0].partitions[0].error_code, answer.topics[0].partitions[0].low_watermark) == (0, offset)


def test_a_producer_and_its_transaction_go_on_at_the_next_leader() -> None:
    async def main(lab: Lab) -> None:
        cluster = lab.cluster
        leader = await prepared(lab, [1, 2, 3])
        for sequence in range(6):
            send(leader, sequence, verified=not sequence)
        await leader_of(lab)
        cluster.move_leader(TOPIC, 0, 2)
        await cluster.waits.leader(TOPIC, 0, 2)
        leader = await leader_of(lab)
        for sequence in range(1, 6):
            again = send(leader, sequence)
            assert (again.first_offset, again.is_duplicate) == (sequence, True)
        for sequence in (0, 7):  # the sixth from the end is forgotten, the next but one is early
            with pytest.raises(KafkaError) as caught:
                send(leader, sequence)
            assert caught.value.code == Error.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert send(leader, 6).first_offset == 6  # without being verified: the transaction is open
        await leader_of(lab)
        assert stable_offsets(cluster) == {0}
        end(leader, commit=False)
        assert leader.readable_end(READ_COMMITTED) == 0  # nobody else has the marker yet
        await leader_of(lab)
        assert stable_offsets(cluster) == {8}
        assert [aborted(replica) for replica in replicas(cluster)] == [[(TRANSACTIONAL, 0)]] * 3

    in_cluster(main)


@pytest.mark.parametrize("dies", [True, False])
def test_what_only_the_last_leader_had_of_transactions_is_lost_with_all_that_it_did(dies: bool) -> None:
    async def main(lab: Lab) -> None:
        cluster = lab.cluster
        leader = await prepared(lab, [1, 2, 3])
        send(leader, 0, verified=True)
        await leader_of(lab)
        for other in (2, 3, CONTROLLER):
            cluster.links.cut(1, other)
        end(leader, commit=False)
        assert (leader.readable_end(READ_COMMITTED), aborted(leader)) == (0, [(TRANSACTIONAL, 0)])
        send(leader, 0, OTHER, verified=True)
        assert leader.log.producers.open_transactions == {2: OTHER}
        if dies:
            await cluster.kill(1)
        await cluster.waits.leader(TOPIC, other_than=1, timeout=20)
        cluster.links.heal()
        if dies:
            await cluster.start(1)
        await cluster.waits.isr(TOPIC, timeout=60)
        leader = await leader_of(lab)
        assert "truncate b1 orders-0 from=3 to=1" in lab.lines("truncate")
        for replica in replicas(cluster):
            assert replica.log.producers.open_transactions == {0: TRANSACTIONAL}
            assert (replica.readable_end(READ_COMMITTED), aborted(replica)) == (0, [])
        end(leader, commit=True)
        await leader_of(lab)
        assert stable_offsets(cluster) == {2}
        assert [aborted(replica) for replica in replicas(cluster)] == [[]] * 3

    in_cluster(main)


@pytest.mark.parametrize("restarts", [False, True])
def test_records_are_deleted_below_and_within_an_open_transaction(restarts: bool) -> None:
    async def main(lab: Lab) -> None:
        cluster = lab.cluster
        leader = await prepared(lab, [1, 2, 3])
        send(leader, 0, PLAIN)
        for sequence in range(3):
            send(leader, sequence, verified=not sequence)
        send(leader, 1, PLAIN)
        await leader_of(lab)
        assert stable_offsets(cluster) == {1}
        await delete_records(lab, leader, 1)
        leader = await leader_of(lab)
        assert stable_offsets(cluster) == {1}
        await delete_records(lab, leader, 3)
        leader = await leader_of(lab)
        assert stable_offsets(cluster) == {3}  # it is open still, and does not begin before the log
        for broker in (1, 2, 3) if restarts else ():
            await cluster.restart(broker)
            await cluster.waits.isr(TOPIC)
        leader = await leader_of(lab)
        assert stable_offsets(cluster) == {3}
        assert send(leader, 3).first_offset == 5
        end(leader, commit=False)
        leader = await leader_of(lab)
        assert stable_offsets(cluster) == {7}
        assert [aborted(replica) for replica in replicas(cluster)] == [[(TRANSACTIONAL, 1)]] * 3

    in_cluster(main)


def test_all_records_of_an_open_transaction_are_deleted() -> None:
    async def main(lab: Lab) -> None:
        cluster = lab.cluster
        leader = await prepared(lab, [1, 2, 3])
        send(leader, 0, verified=True)
        await leader_of(lab)
        await delete_records(lab, leader, 1)
        send(leader, 0, PLAIN)
        leader = await leader_of(lab)
        assert stable_offsets(cluster) == {1}
        end(leader, commit=True)
        leader = await leader_of(lab)
        assert stable_offsets(cluster) == {3}

    in_cluster(main)


@pytest.mark.parametrize("log_start", [0, 2])
def test_an_open_transaction_moves_to_other_brokers(log_start: int) -> None:
    async def main(lab: Lab) -> None:
        cluster = lab.cluster
        leader = await prepared(lab, [1, 2])
        for sequence in range(3):
            send(leader, sequence, verified=not sequence)
        leader = await leader_of(lab)
        if log_start:
            await delete_records(lab, leader, log_start)
        cluster.reassign(TOPIC, 0, [3, 4])
        await cluster.waits.leader(TOPIC, 0, 3)
        leader = await leader_of(lab)
        assert [replica.node_id for replica in replicas(cluster)] == [3, 4]
        assert stable_offsets(cluster) == {log_start}
        assert send(leader, 2).is_duplicate
        assert send(leader, 3).first_offset == 3
        end(leader, commit=False)
        leader = await leader_of(lab)
        assert stable_offsets(cluster) == {5}
        # Who has copied it knows of the transaction what there was to copy: all that consumers can read of it.
        assert [aborted(replica) for replica in replicas(cluster)] == [[(TRANSACTIONAL, log_start)]] * 2

    in_cluster(main, brokers=4)

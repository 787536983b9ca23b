"""Faults tied to the protocol of transactions, in virtual time: markers held, coordinators killed, late ends."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from minibroker.client import Cluster as Client
from minibroker.client import Producer
from minibroker.client.transaction_manager import ProducerFatal
from minibroker.faults import FaultError
from minibroker.transactions import TRANSACTION_STATE_TOPIC
from tests.cluster.virtual import TOPIC, Lab, in_cluster

SETTINGS = {"transaction.state.log.num.partitions": "1", "transaction.state.log.replication.factor": "3"}
ID = "pay-1"


def in_transactions(work: Callable[[Lab, Producer], Awaitable[Any]], *, as_version: str | None = None) -> None:
    """Run a program with a transactional producer, whose coordinator is broker 1; its topic is led by 2 and 3."""

    async def main(lab: Lab) -> None:
        lab.cluster.create_topic(TOPIC, assignments=[[2, 3], [3, 2]])
        async with (
            Client(lab.cluster.bootstrap_servers, clock=lab.world.clock, timeout_ms=5000, retry_count=30) as client,
            Producer(client, transactional_id=ID, transaction_timeout_ms=600_000) as producer,
        ):
            await producer.init_transactions()
            lab.cluster.move_leader(TRANSACTION_STATE_TOPIC, 0, 1)
            await lab.cluster.waits.leader(TRANSACTION_STATE_TOPIC, 0, broker=1)
            await lab.cluster.waits.in_sync()
            lab.heard.clear()
            await work(lab, producer)

    in_cluster(main, settings=SETTINGS, as_version=as_version)


async def write(producer: Producer, value: bytes) -> None:
    producer.begin_transaction()
    for partition in (0, 1):
        await producer.send(TOPIC, value, partition=partition)


async def stable(lab: Lab) -> list[int]:
    await lab.cluster.waits.in_sync()
    replicas = [lab.cluster.leader(TOPIC, partition) for partition in (0, 1)]
    return [each.log.last_stable_offset(each.high_watermark) for each in replicas if each is not None]


def test_a_marker_is_held_for_one_partition_and_written_when_it_is_released() -> None:
    async def main(lab: Lab, producer: Producer) -> None:
        faults, transactions = lab.cluster.nodes[1].faults, lab.cluster.transactions
        rule = faults.add(api="WriteTxnMarkers", transactional_id="pay-*", topic=TOPIC, partition=1, hold="before")
        await write(producer, b"a")
        await producer.commit_transaction()  # decided: the producer need not wait for markers
        await lab.world.clock.sleep(60_000)
        assert (await transactions.wait_transaction(ID, "PrepareCommit")).partitions == [(TOPIC, 1)]
        assert (await stable(lab), rule.strike_count) == ([2, 0], 1)
        producer.begin_transaction()
        faults.remove(rule.id)
        assert (await transactions.wait_transaction(ID, "CompleteCommit")).partitions == []
        assert await stable(lab) == [2, 2]
        assert [line.split(" producer")[0] for line in lab.lines("marker")] == [
            f"marker b2 {TOPIC}-0 commit",
            f"marker b3 {TOPIC}-1 commit",
        ]
        moved = lab.lines("last_stable_offset")
        assert [line for line in moved if f"b2 {TOPIC}-0" in line] == [f"lso b2 {TOPIC}-0 0->2"]
        assert [line for line in moved if f"b3 {TOPIC}-1" in line] == [f"lso b3 {TOPIC}-1 0->2"]

    in_transactions(main)


def test_a_coordinator_that_is_killed_between_decision_and_markers_has_decided() -> None:
    async def main(lab: Lab, producer: Producer) -> None:
        lab.cluster.nodes[1].faults.add(api="WriteTxnMarkers", kill="before")
        await write(producer, b"a")
        await producer.commit_transaction()
        await lab.cluster.waits.leader(TRANSACTION_STATE_TOPIC, 0, other_than=1)
        found = await lab.cluster.transactions.wait_transaction(ID, "CompleteCommit")
        assert (lab.cluster.states[1], found.coordinator != 1) == ("killed", True)
        assert await_lines(lab, "transaction") == [
            "b1 Empty->Ongoing",
            "b1 Ongoing->Ongoing",
            "b1 Ongoing->PrepareCommit",
            f"b{found.coordinator} PrepareCommit->PrepareCommit",  # it has read what there is
            f"b{found.coordinator} PrepareCommit->CompleteCommit",
        ]
        assert len(lab.lines("marker")) == 2
        await lab.cluster.start(1)
        assert await stable(lab) == [2, 2]

    in_transactions(main)


def await_lines(lab: Lab, kind: str) -> list[str]:
    return [" ".join(line.split()[index] for index in (1, 3)) for line in lab.lines(kind)]


@pytest.mark.parametrize("moment", ["before", "after"])
def test_an_end_whose_coordinator_is_killed_is_asked_for_again(moment: str) -> None:
    async def main(lab: Lab, producer: Producer) -> None:
        lab.cluster.nodes[1].faults.add(api="EndTxn", transactional_id=ID, kill=moment)
        await write(producer, b"a")
        await producer.commit_transaction()
        assert lab.cluster.states[1] == "killed"
        await lab.cluster.transactions.wait_transaction(ID, "CompleteCommit")
        await write(producer, b"b")
        await producer.commit_transaction()
        await lab.cluster.transactions.wait_transaction(ID, "CompleteCommit")
        await lab.cluster.start(1)
        # Decided, it had sent markers, too; those of the next coordinator take another offset, as in Kafka.
        assert await stable(lab) == ([4, 4] if moment == "before" else [5, 5])

    in_transactions(main)


def test_the_answer_to_an_end_is_lost_for_one_id_only() -> None:
    async def main(lab: Lab, producer: Producer) -> None:
        faults = lab.cluster.nodes[1].faults
        other = faults.add(api="EndTxn", transactional_id="pay-2", drop_response=True)
        lost = faults.add(api="EndTxn", transactional_id="pay-?", drop_response=True, times=1)
        await write(producer, b"a")
        before_ms = lab.world.clock.now_ms()
        await producer.commit_transaction()
        assert lab.world.clock.now_ms() - before_ms >= 5000  # the client has lost patience once, and asked again
        assert (other.match_count, lost.strike_count) == (0, 1)
        await lab.cluster.transactions.wait_transaction(ID, "CompleteCommit")
        assert await stable(lab) == [2, 2]

    in_transactions(main)


@pytest.mark.parametrize("protocol", ["classic", "v2"])
def test_an_end_that_comes_late_ends_the_next_transaction_in_the_classic_protocol_only(protocol: str) -> None:
    async def main(lab: Lab, producer: Producer) -> None:
        faults = lab.cluster.nodes[1].faults
        held = faults.add(api="EndTxn", transactional_id=ID, hold="before", times=1)
        await write(producer, b"a")
        await producer.commit_transaction()  # by a second request: nobody answered the first
        assert held.strike_count == 1
        await lab.cluster.transactions.wait_transaction(ID, "CompleteCommit")
        await write(producer, b"b")
        faults.remove(held.id)
        await lab.world.clock.sleep(1000)
        state = lab.cluster.transactions.transaction(ID).state
        assert (state, await stable(lab)) == (("Ongoing", [2, 2]) if protocol == "v2" else ("CompleteCommit", [4, 4]))
        await producer.commit_transaction()
        await lab.cluster.transactions.wait_transaction(ID, "CompleteCommit")
        assert await stable(lab) == [4, 4]

    in_transactions(main, as_version="3.9" if protocol == "classic" else None)


def test_an_operator_aborts_and_fences() -> None:
    async def main(lab: Lab, producer: Producer) -> None:
        transactions = lab.cluster.transactions
        await write(producer, b"a")
        before = transactions.transaction(ID)
        after = await transactions.abort_transaction(ID)
        assert (before.state, after.state) == ("Ongoing", "PrepareAbort")
        assert after.producer_epoch == before.producer_epoch + 1
        await transactions.wait_transaction(ID, "CompleteAbort")
        assert await stable(lab) == [2, 2]
        with pytest.raises(ValueError, match="no transaction to abort: it is CompleteAbort"):
            await transactions.abort_transaction(ID)
        with pytest.raises(ProducerFatal):
            await producer.commit_transaction()
        (told,) = {event.why for event in lab.heard if event.kind == "transaction" and event.after == "PrepareAbort"}
        assert told == "somebody asked for it"

    in_transactions(main)


def test_the_same_faults_lead_to_the_same_events() -> None:
    def trace() -> list[str]:
        lines: list[str] = []

        async def main(lab: Lab, producer: Producer) -> None:
            faults = lab.cluster.nodes[1].faults
            rule = faults.add(api="WriteTxnMarkers", partition=0, hold="before")
            await write(producer, b"a")
            await producer.abort_transaction()
            await lab.world.clock.sleep(1000)
            faults.remove(rule.id)
            await lab.cluster.transactions.wait_transaction(ID, "CompleteAbort")
            lines.extend(f"{event.at_ms} {event.line}" for event in lab.heard if event.kind != "message")

        in_transactions(main)
        return lines

    first, second = trace(), trace()
    assert first == second
    assert any("fault 1 (hold=before) strikes" in line for line in first)


def test_what_could_not_happen_to_a_marker_is_refused() -> None:
    async def main(lab: Lab, producer: Producer) -> None:
        faults = lab.cluster.nodes[1].faults
        for wanted, said in (
            ({"hold": "after"}, "'before' it is sent"),
            ({"kill": "before", "client_id": "a"}, "coordinators send markers"),
            ({"hold": "before", "delay_ms": 5}, "hold goes with no delay"),
            ({"delay_ms": 5, "topic": TOPIC}, "WriteTxnMarkers has no topics to match"),
        ):
            with pytest.raises(FaultError, match=said):
                faults.add(api="WriteTxnMarkers", **wanted)

    in_transactions(main)

"""Transactions between brokers: markers that travel, coordinators that move, and what is kept when they do."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from minibroker.client.connection import Connection, ConnectionLost
from minibroker.errors import Error, KafkaError
from minibroker.log.build import build_batch
from minibroker.log.records import Record
from minibroker.protocol.headers import Request
from minibroker.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from minibroker.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest
from minibroker.protocol.messages.describe_producers import DescribeProducersRequest
from minibroker.protocol.messages.describe_transactions import DescribeTransactionsRequest
from minibroker.protocol.messages.end_txn import EndTxnRequest
from minibroker.protocol.messages.fetch import FetchRequest
from minibroker.protocol.messages.find_coordinator import FindCoordinatorRequest
from minibroker.protocol.messages.init_producer_id import InitProducerIdRequest
from minibroker.protocol.messages.write_txn_markers import WriteTxnMarkersRequest
from minibroker.replication.network import CONTROLLER
from minibroker.transactions import TRANSACTION_STATE_TOPIC
from minibroker.transactions.metadata import EPOCH_MAX_GIVEN
from tests.cluster.test_settings_between_brokers import Wire
from tests.cluster.virtual import TOPIC, Lab, in_cluster

TRANSACTION = 1
SETTINGS = {
    "transaction.state.log.num.partitions": "1",
    "transaction.partition.verification.enable": "false",
}
ADDED = [AddPartitionsToTxnTopic(name=TOPIC, partitions=[0])]


class Client:
    """A producer with a transactional id, in a cluster."""

    def __init__(self, lab: Lab, name: str = "t"):
        self.lab = lab
        self.name = name
        self.producer = (-1, -1)

    async def ask(self, request: Request, version: int, *, broker: int | None = None) -> Any:
        """Ask a broker; by default the coordinator."""
        cluster = self.lab.cluster
        if broker is None:
            broker = cluster.partition(TRANSACTION_STATE_TOPIC, 0).leader
        host, _, port = cluster.nodes[broker].bootstrap_servers.rpartition(":")
        async with await Connection.open(host, int(port), clock=self.lab.world.clock) as connection:
            return await connection.call(request, version)

    async def begin(self) -> None:
        """Get an id and epoch, and have the partition added."""
        request = FindCoordinatorRequest(coordinator_keys=[self.name], key_type=TRANSACTION)
        await self.ask(request, 4, broker=1)
        await self.lab.cluster.waits.in_sync()
        assert await self.init() == Error.NONE
        await self.add()

    async def init(self) -> Error:
        answer = await self.ask(InitProducerIdRequest(transactional_id=self.name, transaction_timeout_ms=600_000), 5)
        if answer.error_code == Error.NONE:
            self.producer = answer.producer_id, answer.producer_epoch
        return Error(answer.error_code)

    async def add(self) -> None:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.name,
            v3_and_below_producer_id=self.producer[0],
            v3_and_below_producer_epoch=self.producer[1],
            v3_and_below_topics=ADDED,
        )
        (topic,) = (await self.ask(request, 3)).results_by_topic_v3_and_below
        assert topic.results_by_partition[0].partition_error_code == Error.NONE

    def write(self) -> None:
        """Put a record of the transaction into the log of the leader."""
        cluster = self.lab.cluster
        replica = cluster.replica(TOPIC, 0, cluster.partition(TOPIC, 0).leader)
        assert replica is not None
        now_ms = self.lab.world.clock.now_ms()
        batch = build_batch(
            2,
            [Record(b"k", b"v", (), now_ms)],
            producer_id=self.producer[0],
            producer_epoch=self.producer[1],
            base_sequence=0,
            transactional=True,
        )
        replica.append(bytearray(batch), now_ms=now_ms, steady_ms=self.lab.world.clock.steady_ms())

    async def end(self, *, commit: bool = True) -> Error:
        request = EndTxnRequest(
            transactional_id=self.name, producer_id=self.producer[0], producer_epoch=self.producer[1], committed=commit
        )
        return Error((await self.ask(request, 4)).error_code)

    async def state(self) -> str:
        answer = await self.ask(DescribeTransactionsRequest(transactional_ids=[self.name]), 0)
        return str(answer.transaction_states[0].transaction_state)

    def stable(self) -> dict[int, int]:
        """Return the last stable offset of each replica."""
        cluster = self.lab.cluster
        return {
            broker: replica.log.last_stable_offset(replica.high_watermark)
            for broker in cluster.broker_ids
            if (replica := cluster.replica(TOPIC, 0, broker)) is not None
        }


async def begun(lab: Lab, replicas: list[int]) -> Client:
    """Make the topic, and return who has begun a transaction there that broker 1 coordinates."""
    lab.cluster.create_topic(TOPIC, assignments=[replicas])
    client = Client(lab)
    await client.begin()
    await led_by(lab, TRANSACTION_STATE_TOPIC, 1)
    await lab.world.clock.sleep(1000)
    return client


async def led_by(lab: Lab, topic: str, broker: int) -> None:
    lab.cluster.move_leader(topic, 0, broker)
    await lab.cluster.waits.leader(topic, 0, broker=broker)


@pytest.mark.parametrize("leader", [1, 2])
def test_a_marker_goes_to_the_leader_of_the_partition_and_from_there_to_its_followers(leader: int) -> None:
    async def main(lab: Lab) -> None:
        client = await begun(lab, [leader, 3])
        client.write()
        assert await client.end() == Error.NONE
        await lab.world.clock.sleep(2000)
        assert await client.state() == "CompleteCommit"
        assert client.stable() == {leader: 2, 3: 2}
        assert lab.lines("marker") == [
            f"marker b{leader} {TOPIC}-0 commit producer={client.producer[0]} epoch=0 offset=1"
        ]

    in_cluster(main, settings=SETTINGS)


def test_a_reader_of_what_is_committed_waits_for_the_marker_to_be_on_every_replica_in_sync() -> None:
    async def main(lab: Lab) -> None:
        cluster, sleep = lab.cluster, lab.world.clock.sleep
        cluster.create_topic(TOPIC, assignments=[[2, 3]])
        client = Client(lab)
        await client.begin()
        client.write()
        await cluster.waits.in_sync()
        Topic = FetchRequest.FetchTopic
        wanted = [Topic.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)]
        fetch = FetchRequest(
            max_wait_ms=60_000,
            min_bytes=1,
            max_bytes=1 << 20,
            isolation_level=1,
            session_epoch=-1,
            topics=[Topic(topic=TOPIC, partitions=wanted)],
        )
        waiting = lab.world.loop.create_task(client.ask(fetch, 12, broker=2))
        await sleep(1000)
        assert not waiting.done()
        cluster.steps.hold("fetch", broker=3)
        assert await client.end() == Error.NONE
        await sleep(1000)
        assert client.stable() == {2: 0, 3: 0}
        assert not waiting.done()
        cluster.steps.release()
        await sleep(1000)
        assert client.stable()[2] == 2
        assert waiting.done()
        (row,) = (await waiting).responses[0].partitions
        assert row.last_stable_offset == 2
        assert len(row.records) > 0

    in_cluster(main, settings=SETTINGS | {"transaction.state.log.replication.factor": "1"})


@pytest.mark.parametrize("commit", [True, False])
def test_a_decision_stands_when_its_coordinator_is_killed_before_the_marker_arrives(commit: bool) -> None:
    async def main(lab: Lab) -> None:
        cluster = lab.cluster
        client = await begun(lab, [2, 3])
        client.write()
        gate = cluster.network.hold("markers", lambda letter: isinstance(letter.message, WriteTxnMarkersRequest))
        assert await client.end(commit=commit) == Error.NONE
        await lab.world.clock.sleep(2000)
        assert await client.state() == ("PrepareCommit" if commit else "PrepareAbort")
        assert set(client.stable().values()) == {0}
        await cluster.kill(1)
        cluster.network.release(gate)
        await cluster.waits.leader(TRANSACTION_STATE_TOPIC, 0)
        await lab.world.clock.sleep(20_000)
        assert await client.state() == ("CompleteCommit" if commit else "CompleteAbort")
        assert client.stable() == {2: 2, 3: 2}
        assert len(lab.lines("marker")) == 1
        await cluster.start(1)
        await cluster.waits.in_sync()

    in_cluster(main, settings=SETTINGS)


def test_every_replica_tells_of_the_producers_that_it_knows() -> None:
    """So kafka-transactions find-hanging --broker-id finds what a follower has, too."""

    async def main(lab: Lab) -> None:
        lab.cluster.create_topic(TOPIC, assignments=[[2, 3]])
        client = Client(lab)
        await client.begin()
        client.write()
        await lab.world.clock.sleep(1000)
        topics = [DescribeProducersRequest.TopicRequest(name=TOPIC, partition_indexes=[0])]
        answers = [
            (await client.ask(DescribeProducersRequest(topics=topics), 0, broker=broker)).topics[0].partitions[0]
            for broker in (1, 2, 3)
        ]
        absent, leader, follower = answers
        assert absent.error_code == Error.NOT_LEADER_OR_FOLLOWER
        assert leader.error_code == Error.NONE
        assert [each.current_txn_start_offset for each in leader.active_producers] == [0]
        assert follower == leader

    in_cluster(main, settings=SETTINGS)


def test_a_marker_waits_for_a_partition_that_nobody_leads() -> None:
    async def main(lab: Lab) -> None:
        cluster = lab.cluster
        client = await begun(lab, [3])
        client.write()
        await cluster.kill(3)
        await lab.world.clock.sleep(20_000)  # until the controller has noticed
        assert await client.end() == Error.NONE
        await lab.world.clock.sleep(60_000)
        assert await client.state() == "PrepareCommit"
        await cluster.start(3)
        await cluster.waits.in_sync()
        await lab.world.clock.sleep(2000)
        assert await client.state() == "CompleteCommit"

    in_cluster(main, settings=SETTINGS)


def test_a_marker_that_is_not_on_every_replica_in_sync_is_not_answered_as_written() -> None:
    async def main(lab: Lab) -> None:
        cluster = lab.cluster
        client = await begun(lab, [2, 3])
        client.write()
        await lab.world.clock.sleep(1000)
        cluster.links.cut(2, 3)
        assert await client.end() == Error.NONE
        await lab.world.clock.sleep(2000)
        assert await client.state() == "PrepareCommit"
        assert len(lab.lines("marker")) == 1
        cluster.links.heal()
        await lab.world.clock.sleep(60_000)
        assert await client.state() == "CompleteCommit"

    in_cluster(main, settings=SETTINGS)


@pytest.mark.setting("transaction.state.log.replication.factor")
@pytest.mark.parametrize("factor", [1, 3])
def test_the_topic_of_transactions_has_as_many_replicas_as_the_setting_says(factor: int) -> None:
    async def main(lab: Lab) -> None:
        await Client(lab).ask(FindCoordinatorRequest(coordinator_keys=["t"], key_type=TRANSACTION), 4, broker=1)
        await lab.cluster.waits.in_sync()
        assert len(lab.cluster.partition(TRANSACTION_STATE_TOPIC, 0).replicas) == factor

    in_cluster(main, settings={**SETTINGS, "transaction.state.log.replication.factor": str(factor)})


@pytest.mark.setting("request.timeout.ms")
@pytest.mark.parametrize("timeout_ms", [3000, 8000])
def test_a_marker_that_followers_do_not_get_is_given_up_after_request_timeout_ms(timeout_ms: int) -> None:
    async def main(lab: Lab) -> None:
        cluster, clock = lab.cluster, lab.world.clock
        cluster.create_topic(TOPIC, assignments=[[2, 3]])
        await cluster.waits.in_sync()
        cluster.links.cut(2, 3)
        Marker = WriteTxnMarkersRequest.WritableTxnMarker
        topics = [Marker.WritableTxnMarkerTopic(name=TOPIC, partition_indexes=[0])]
        marker = Marker(producer_id=7, producer_epoch=0, transaction_result=True, topics=topics, coordinator_epoch=0)
        begun_ms = clock.steady_ms()
        answer = await Client(lab).ask(WriteTxnMarkersRequest(markers=[marker]), 1, broker=2)
        assert timeout_ms <= clock.steady_ms() - begun_ms <= timeout_ms + 10
        assert answer.markers[0].topics[0].partitions[0].error_code == Error.REQUEST_TIMED_OUT
        cluster.links.heal()

    in_cluster(main, settings={**SETTINGS, "request.timeout.ms": str(timeout_ms)})


@pytest.mark.parametrize("ends", [False, True])
def test_what_cannot_be_written_has_not_happened_and_may_be_asked_for_again(ends: bool) -> None:
    async def main(lab: Lab) -> None:
        cluster = lab.cluster
        client = await begun(lab, [1])
        if not ends:
            assert await client.end() == Error.NONE
            await lab.world.clock.sleep(1000)
        for broker in (2, 3):
            await cluster.kill(broker)
        await cluster.waits.isr(TRANSACTION_STATE_TOPIC, 0, [1], timeout=60)
        before = await client.state()
        assert before == ("Ongoing" if ends else "CompleteCommit")
        for _ in range(2):
            if ends:
                assert await client.end() == Error.COORDINATOR_NOT_AVAILABLE
            else:
                assert await client.init() == Error.COORDINATOR_NOT_AVAILABLE
            assert await client.state() == before
        for broker in (2, 3):
            await cluster.start(broker)
        await cluster.waits.in_sync()
        assert (await client.end() if ends else await client.init()) == Error.NONE
        await lab.world.clock.sleep(1000)
        assert await client.state() == ("CompleteCommit" if ends else "Empty")

    in_cluster(main, settings={**SETTINGS, "transaction.state.log.min.isr": "2"})


def test_an_operator_whose_abort_cannot_be_written_hears_why_at_once_and_may_ask_again() -> None:
    async def main(lab: Lab) -> None:
        cluster = lab.cluster
        await begun(lab, [1])
        for broker in (2, 3):
            await cluster.kill(broker)
        await cluster.waits.isr(TRANSACTION_STATE_TOPIC, 0, [1], timeout=60)
        begun_ms = lab.world.clock.elapsed_ms()
        with pytest.raises(KafkaError, match=r"'t' is not aborted.*COORDINATOR_NOT_AVAILABLE.*ask again") as refused:
            await cluster.transactions.abort_transaction("t")
        assert refused.value.code == Error.COORDINATOR_NOT_AVAILABLE
        assert lab.world.clock.elapsed_ms() - begun_ms < 100
        for broker in (2, 3):
            await cluster.start(broker)
        await cluster.waits.in_sync()
        assert (await cluster.transactions.abort_transaction("t")).state in ("PrepareAbort", "CompleteAbort")

    in_cluster(main, settings={**SETTINGS, "transaction.state.log.min.isr": "2"})


def test_a_completion_that_cannot_be_written_is_tried_until_it_can() -> None:
    async def main(lab: Lab) -> None:
        cluster = lab.cluster
        client = await begun(lab, [1])
        client.write()
        gate = cluster.network.hold("markers", lambda letter: isinstance(letter.message, WriteTxnMarkersRequest))
        assert await client.end() == Error.NONE
        for broker in (2, 3):
            await cluster.kill(broker)
        await cluster.waits.isr(TRANSACTION_STATE_TOPIC, 0, [1], timeout=60)
        cluster.network.release(gate)
        await lab.world.clock.sleep(40_000)
        assert client.stable() == {1: 2}
        assert await client.state() == "PrepareCommit"
        assert await client.init() == Error.CONCURRENT_TRANSACTIONS
        for broker in (2, 3):
            await cluster.start(broker)
        await cluster.waits.in_sync()
        await lab.world.clock.sleep(2000)
        assert await client.state() == "CompleteCommit"
        assert len(lab.lines("marker")) <= 2  # a call may have been over before it was let go on

    in_cluster(main, settings={**SETTINGS, "transaction.state.log.min.isr": "2"})


def test_a_decision_that_was_not_answered_counts_when_the_next_coordinator_has_it() -> None:
    async def main(lab: Lab) -> None:
        cluster = lab.cluster
        client = await begun(lab, [2, 3])
        client.write()
        await lab.world.clock.sleep(1000)
        cluster.links.cut(1, 3)  # a replica in sync that does not get the record: it is not committed
        ending = asyncio.get_running_loop().create_task(client.end())
        await lab.world.clock.sleep(1000)
        assert await client.state() == "Ongoing"
        assert not ending.done()
        await cluster.kill(1)
        with pytest.raises(ConnectionLost):
            await ending
        await cluster.waits.leader(TRANSACTION_STATE_TOPIC, 0, broker=2)
        cluster.links.heal()
        await lab.world.clock.sleep(20_000)
        assert await client.state() == "CompleteCommit"
        assert client.stable() == {2: 2, 3: 2}
        assert await client.end() == Error.NONE  # it is asked again
        await cluster.start(1)
        await cluster.waits.in_sync()

    in_cluster(main, settings=SETTINGS)


def test_a_broker_gets_one_request_of_markers_at_a_time_and_in_the_next_all_that_came_meanwhile() -> None:
    async def main(lab: Lab) -> None:
        cluster = lab.cluster
        cluster.create_topic(TOPIC, assignments=[[2]])
        clients = [Client(lab, f"t{number}") for number in range(4)]
        for client in clients:
            await client.begin()
        await led_by(lab, TRANSACTION_STATE_TOPIC, 1)
        await lab.world.clock.sleep(1000)
        wire = Wire(lab)
        gate = cluster.network.hold("markers", lambda letter: isinstance(letter.message, WriteTxnMarkersRequest))
        for client in clients:
            assert await client.end() == Error.NONE
        await lab.world.clock.sleep(1000)
        cluster.network.release(gate)
        await lab.world.clock.sleep(1000)
        assert [await client.state() for client in clients] == ["CompleteCommit"] * 4
        assert [len(each.request.markers) for each in wire.of(WriteTxnMarkersRequest, 1, 2)] == [1, 3]
        written = [each for each in lab.lines("append") if f"append b2 {TOPIC}-0" in each]
        assert len(written) == 4

    in_cluster(main, settings=SETTINGS)


def test_a_coordinator_that_meets_a_newer_one_gives_up() -> None:
    async def main(lab: Lab) -> None:
        client = await begun(lab, [2])
        client.write()
        Marker = WriteTxnMarkersRequest.WritableTxnMarker
        newer = Marker(
            producer_id=client.producer[0],
            producer_epoch=client.producer[1],
            transaction_result=False,
            topics=[Marker.WritableTxnMarkerTopic(name=TOPIC, partition_indexes=[0])],
            coordinator_epoch=99,
        )
        answer = await client.ask(WriteTxnMarkersRequest(markers=[newer]), 1, broker=2)
        assert answer.markers[0].topics[0].partitions[0].error_code == Error.NONE
        wire = Wire(lab)
        assert await client.end() == Error.NONE
        await lab.world.clock.sleep(60_000)
        assert await client.state() == "PrepareCommit"
        assert len(lab.lines("marker")) == 1
        assert len(wire.of(WriteTxnMarkersRequest, 1, 2)) == 1

    in_cluster(main, settings=SETTINGS)


def test_an_end_that_needs_a_producer_id_waits_until_the_controller_has_given_some() -> None:
    async def main(lab: Lab) -> None:
        cluster = lab.cluster
        client = await begun(lab, [2])
        node = cluster.nodes[1]
        found = node.transactions.coordinator.find("t").shard.ids["t"]
        found.metadata = found.metadata._replace(producer_epoch=EPOCH_MAX_GIVEN)
        while node.producer_ids.next() is not None:
            pass  # the coordinator has no more of them
        wire, before = Wire(lab), client.producer[0]
        client.producer = before, EPOCH_MAX_GIVEN
        request = EndTxnRequest(
            transactional_id="t", producer_id=before, producer_epoch=EPOCH_MAX_GIVEN, committed=True
        )
        answer = await client.ask(request, 5)
        assert len(wire.of(AllocateProducerIdsRequest, 1, CONTROLLER)) == 1
        assert (answer.error_code, answer.producer_epoch) == (Error.NONE, 0)
        assert answer.producer_id != before
        await lab.world.clock.sleep(1000)
        assert await client.state() == "CompleteCommit"
        assert (await client.ask(request, 5)).producer_id == answer.producer_id  # its answer was lost

    in_cluster(main, settings=SETTINGS)

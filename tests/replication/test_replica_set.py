"""The replicas of a broker: which are opened when it starts, and what is told of that. In virtual time."""

from __future__ import annotations

import asyncio
import errno
from collections import Counter
from collections.abc import Awaitable, Callable

import pytest

from minibroker.cluster.nodes import WrongState
from minibroker.errors import StorageError
from minibroker.log.checkpoints import CLEANER_OFFSETS, HIGH_WATERMARKS, RECOVERY_POINTS
from minibroker.log.directory import LogDirectory
from minibroker.log.segment import Segment
from minibroker.replication.replica_set import AT_ONCE_MAX
from minibroker.simulation.disk import SimulatedStorage
from tests.broker.virtual_broker import virtual_broker
from tests.cluster.virtual import TOPIC, Lab, in_cluster
from tests.server.running import batch

pytestmark = pytest.mark.outside


def test_a_broker_that_was_killed_tells_what_it_recovers_of_logs_that_hold_something() -> None:
    async def main(lab: Lab) -> None:
        cluster = lab.cluster
        cluster.create_topic(TOPIC, 1)
        cluster.create_topic("empty", 1)
        assert await lab.send(b"a", b"b") == [0, 1]
        await cluster.waits.in_sync()
        assert not lab.lines("recover")
        await cluster.kill(3)
        await cluster.start(3)
        await cluster.waits.in_sync()
        told = [line for line in lab.lines("recover") if not line.startswith("recover b3 __")]
        assert len(told) == 1
        assert told[0].startswith(f"recover b3 {TOPIC}-0 ")

    in_cluster(main)


def test_a_broker_that_was_stopped_in_order_has_nothing_to_recover() -> None:
    async def main(lab: Lab) -> None:
        cluster = lab.cluster
        cluster.create_topic(TOPIC, 1)
        assert await lab.send(b"a") == [0]
        await cluster.waits.in_sync()
        await cluster.stop(3)
        await cluster.start(3)
        await cluster.waits.in_sync()
        assert not lab.lines("recover")

    in_cluster(main)


@pytest.mark.parametrize("count", [AT_ONCE_MAX, AT_ONCE_MAX + 1])
def test_a_few_partitions_are_opened_at_once_and_more_in_shares(count: int) -> None:
    with virtual_broker() as broker:
        partitions = broker.node.partitions

        def create() -> tuple[bool, bool]:
            broker.node.create_topic("t", count, at_once=False)
            return partitions.is_settled, partitions._is_at_work

        is_few = count <= AT_ONCE_MAX
        assert broker.run(create) == (is_few, not is_few)
        broker.pass_ms(10)
        assert partitions.is_settled
        assert len(broker.node.replicas) == count


def test_a_disk_that_does_not_keep_the_names_of_new_partitions_is_told_and_asked_again() -> None:
    storage = SimulatedStorage()
    with virtual_broker(storage=storage) as broker:
        storage.fail(errno.EIO, doing="sync directory", path="", times=1)
        broker.run(lambda: broker.node.create_topic("t", AT_ONCE_MAX + 1, at_once=False))
        broker.pass_ms(10)
        assert sum("Input/output error" in line for line in broker.said) == 1
        assert broker.node.partitions.is_settled
        steps = storage.steps
        broker.node.partitions.sync_names()
        assert storage.steps == steps, "the next share has kept them"


def test_a_partition_that_cannot_be_opened_is_removed_with_its_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise StorageError("no room")

    storage = SimulatedStorage()
    with virtual_broker(storage=storage) as broker:
        with monkeypatch.context() as refused:
            refused.setattr(Segment, "create", refuse)
            broker.run(broker.node.create_topic, "t", 1)
        assert ("t", 0) in broker.node.partitions.unopened
        assert "t-0" in storage.list("")
        broker.run(broker.node.change, broker.node.controller.delete_topic(name="t"))
        assert not broker.node.partitions.unopened
        broker.pass_ms(120_000)
        assert not [name for name in storage.list("") if name.startswith("t-0")]


def test_a_broker_that_stops_tells_the_controller_no_more_of_its_logs() -> None:
    async def main(lab: Lab) -> None:
        cluster = lab.cluster
        cluster.create_topic(TOPIC, 1)
        await cluster.waits.in_sync()
        node = cluster.nodes[2]
        assert node.replication is not None
        directories, topic = node.replication.directories, node.image.topics[TOPIC]
        unopened = node.partitions.unopened
        directories.stop()
        unopened[TOPIC, 0] = StorageError("no room")
        directories.tried(topic, topic.partitions[0])
        assert directories._task is None
        del unopened[TOPIC, 0]

    in_cluster(main)


def recovering(main: Callable[[Lab, Counter[int]], Awaitable[None]], count: int) -> None:
    """Kill a broker whose partitions have a record each, and note how many it recovers in each turn of the loop."""

    async def inner(lab: Lab) -> None:
        cluster, recovered = lab.cluster, Counter[int]()
        cluster.create_topic(TOPIC, assignments=[[1]] * count)
        await cluster.waits.in_sync()
        for replica in cluster.nodes[1].replicas.values():
            replica.append(bytearray(batch(b"value")), now_ms=lab.world.clock.now_ms(), steady_ms=0)
        await cluster.kill(1)
        with cluster.events.subscribe(lambda event: recovered.update([lab.world.loop.turns]), ("recover",)):
            await main(lab, recovered)

    in_cluster(inner, brokers=2)


def test_a_start_opens_partitions_in_shares_and_follows_what_is_decided_meanwhile() -> None:
    async def main(lab: Lab, recovered: Counter[int]) -> None:
        cluster = lab.cluster
        starting = asyncio.ensure_future(cluster.start(1))
        while not recovered:
            await asyncio.sleep(0)
        cluster.create_topic("made", assignments=[[2, 1]])
        cluster.delete_topic(TOPIC)
        await starting
        await cluster.waits.in_sync()
        assert list(cluster.nodes[1].replicas) == [("made", 0)]
        assert recovered.total() < 40
        assert max(recovered.values()) <= 4

    recovering(main, 40)


def test_a_broker_that_is_killed_while_it_opens_its_partitions_opens_no_more() -> None:
    async def main(lab: Lab, recovered: Counter[int]) -> None:
        cluster = lab.cluster
        starting = asyncio.ensure_future(cluster.start(1))
        while not recovered:
            await asyncio.sleep(0)
        await cluster.kill(1)
        with pytest.raises(WrongState, match="was killed before it had started"):
            await starting
        count = recovered.total()
        await asyncio.sleep(1)
        assert recovered.total() == count < 40
        await cluster.start(1)
        assert recovered.total() == count + 40

    recovering(main, 40)


def test_a_start_fails_if_a_partition_cannot_be_opened_for_a_reason_of_our_own(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main(lab: Lab, _: Counter[int]) -> None:
        opening = LogDirectory._opening_log

        def broken(self: LogDirectory, key: tuple[str, int], *rest: object, **more: object) -> object:
            if key == (TOPIC, 7):
                raise ValueError("a mistake")
            return opening(self, key, *rest, **more)  # type: ignore[arg-type]

        lab.world.loop.set_exception_handler(lambda loop, context: None)
        monkeypatch.setattr(LogDirectory, "_opening_log", broken)
        with pytest.raises(ValueError, match="a mistake"):
            await lab.cluster.start(1)

    recovering(main, 40)


@pytest.mark.parametrize("count", [4, 40])
def test_after_an_unclean_election_checkpoints_are_written_as_often_for_many_logs_as_for_few(count: int) -> None:
    written: list[str] = []

    async def main(lab: Lab) -> None:
        cluster = lab.cluster
        cluster.create_topic(TOPIC, assignments=[[1, 2]] * count, cleanup_policy="compact")
        await cluster.waits.in_sync()

        async def append(values: int) -> None:
            for number in range(count):
                await cluster.waits.leader(TOPIC, number)
                leader = cluster.leader(TOPIC, number)
                assert leader is not None
                for _ in range(values):
                    leader.append(bytearray(batch(b"value", key=b"key")), now_ms=lab.world.clock.now_ms(), steady_ms=0)
                await cluster.waits.high_watermark(TOPIC, number, leader.log.log_end_offset)

        await append(2)
        await cluster.kill(2)
        await append(2)
        directory = cluster.nodes[1].directory
        for key, log in directory.logs.items():
            log.flush()
            directory.cleaner_offsets[key] = 4
        directory.write_checkpoints(dict.fromkeys(directory.logs, 4))
        directory.write_cleaner_offsets()
        await cluster.kill(1)
        await cluster.start(2)
        for number in range(count):
            cluster.elect(TOPIC, number, unclean=True)
        await append(1)
        storage = cluster.storages[1]
        assert isinstance(storage, SimulatedStorage)
        storage.before_step = lambda step: written.append(str(step).rpartition(".tmp to ")[2])
        await cluster.start(1)
        await cluster.waits.in_sync()
        assert {log.log_end_offset for log in cluster.nodes[1].directory.logs.values()} == {3}
        assert set(cluster.nodes[1].directory.cleaner_offsets.values()) == {2}
        storage.before_step = None

    in_cluster(main, brokers=2)
    assert [written.count(name) for name in (RECOVERY_POINTS, HIGH_WATERMARKS, CLEANER_OFFSETS)] == [1, 1, 1]

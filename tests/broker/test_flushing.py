"""Segments that have ended get to the disk by themselves, and the checkpoint says so."""

from __future__ import annotations

import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from minibroker.broker.broker import Node
from minibroker.broker.flushing import Flushing
from minibroker.errors import StorageError
from minibroker.log.checkpoints import CLEAN_SHUTDOWN, RECOVERY_POINTS, read_offsets
from minibroker.log.memory_storage import MemoryStorage
from minibroker.log.partition_log import FlushPlan, PartitionLog
from minibroker.log.storage import OsStorage
from minibroker.simulation.disk import SimulatedStorage, Step
from tests.log.crash import extremes
from tests.server.running import append, running, said, turns, values_of

SETTINGS = {"log.index.size.max.bytes": "80"}


def fill(node: Node, segments: int = 3) -> None:
    node.create_topic("t")
    for _ in range(segments):
        append(node, "t", b"a", b"b")
        node.replicas["t", 0].log.roll()
    append(node, "t", b"c")


async def test_the_recovery_point_follows_the_segments_and_its_checkpoint_follows_it() -> None:
    storage = MemoryStorage(lambda: 1_700_000_000_000)
    async with running(storage=storage) as node:
        fill(node)
        assert node.replicas["t", 0].log.recovery_point == 6
        assert read_offsets(storage, RECOVERY_POINTS) == {}
        node.scheduler.checkpoint_recovery_points()
        assert read_offsets(storage, RECOVERY_POINTS) == {("t", 0): 6}


async def test_after_a_crash_only_the_active_segment_is_read() -> None:
    storage = MemoryStorage(lambda: 1_700_000_000_000)
    async with running(storage=storage) as node:
        fill(node)
        node.scheduler.checkpoint_recovery_points()
        active_bytes = node.replicas["t", 0].log.active.size_bytes
        await node.kill()
    async with running(storage=storage) as node:
        assert node.replicas["t", 0].log.recovery.scanned_bytes == active_bytes
        assert values_of(node, "t") == [*[b"a", b"b"] * 3, b"c"]


async def test_a_loss_of_power_takes_nothing_of_a_segment_that_has_ended() -> None:
    storage = SimulatedStorage(lambda: 1_700_000_000_000)
    async with running(SETTINGS, storage=storage) as node:
        fill(node)
        node.directory.sync_names()
        loss = storage.power_loss()
        nothing_kept = loss.disk(extremes(loss)[0])
        await node.kill()
    async with running(SETTINGS, storage=SimulatedStorage(lambda: 1_700_000_000_000, disk=nothing_kept)) as node:
        assert values_of(node, "t") == [b"a", b"b"] * 3


async def test_on_a_disk_it_is_done_in_a_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[int] = []
    carry_out = FlushPlan.carry_out

    def watched(plan: FlushPlan, storage: Any) -> None:
        threads.append(threading.get_ident())
        carry_out(plan, storage)

    monkeypatch.setattr(FlushPlan, "carry_out", watched)
    async with running(storage=OsStorage(str(tmp_path))) as node:
        fill(node)
        log = node.replicas["t", 0].log
        while log.recovery_point < 6:  # each turn lets a thread of the disk come in
            await turns(1)
        assert log.offline is None
        assert threads
        assert threading.get_ident() not in threads


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.setting("num.recovery.threads.per.data.dir")
async def test_a_stop_flushes_logs_in_as_many_threads_as_the_setting_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    threads: list[int] = []
    together = threading.Barrier(count)
    carry_out = FlushPlan.carry_out

    def watched(plan: FlushPlan, storage: Any) -> None:
        if plan.directory.startswith("t-"):
            assert not (tmp_path / CLEAN_SHUTDOWN).exists()
            together.wait(60)  # broken if there are never so many at the same time
            threads.append(threading.get_ident())
        carry_out(plan, storage)

    async with running({"num.recovery.threads.per.data.dir": str(count)}, storage=OsStorage(str(tmp_path))) as node:
        node.create_topic("t", 6)
        for number in range(6):
            append(node, "t", b"v", partition=number)
        monkeypatch.setattr(FlushPlan, "carry_out", watched)
    assert len(threads) == 6
    assert len({*threads}) == count
    assert (tmp_path / CLEAN_SHUTDOWN).exists()
    async with running(storage=OsStorage(str(tmp_path))) as node:
        assert node.directory.was_clean
        assert [values_of(node, "t", partition=number) for number in range(6)] == [[b"v"]] * 6


@pytest.mark.parametrize("failure", [StorageError("no disk"), ValueError("an error of our own")])
async def test_a_stop_that_cannot_flush_one_log_flushes_the_others_and_leaves_no_mark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: Exception
) -> None:
    flushed: list[str] = []
    carry_out = FlushPlan.carry_out

    def failing(plan: FlushPlan, storage: Any) -> None:
        if plan.directory == "t-1":
            raise failure
        carry_out(plan, storage)
        flushed.append(plan.directory)

    async with running(storage=OsStorage(str(tmp_path))) as node:
        node.create_topic("t", 4)
        for number in range(4):
            append(node, "t", b"v", partition=number)
        monkeypatch.setattr(FlushPlan, "carry_out", failing)
        if isinstance(failure, StorageError):
            await node.stop()
            assert any("as after a crash" in line for line in said(node))
        else:
            with pytest.raises(ValueError, match="an error of our own"):
                await node.stop()
    assert {"t-0", "t-2", "t-3"} <= {*flushed}
    assert not (tmp_path / CLEAN_SHUTDOWN).exists()


@pytest.mark.parametrize("threads_left", [0, 1])
async def test_a_stop_needs_no_thread_that_it_cannot_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, threads_left: int
) -> None:
    start, left = threading.Thread.start, threads_left

    def start_some(thread: threading.Thread) -> None:
        nonlocal left
        if not left:
            raise RuntimeError("can't start new thread")
        left -= 1
        start(thread)

    async with running({"num.recovery.threads.per.data.dir": "8"}, storage=OsStorage(str(tmp_path))) as node:
        node.create_topic("t", 6)
        for number in range(6):
            append(node, "t", b"v", partition=number)
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", start_some)
            await node.stop()
    async with running(storage=OsStorage(str(tmp_path))) as node:
        assert node.directory.was_clean
        assert [values_of(node, "t", partition=number) for number in range(6)] == [[b"v"]] * 6


async def test_a_segment_is_flushed_where_no_thread_is_to_be_had(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    async with running(storage=OsStorage(str(tmp_path))) as node:
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", refuse)
            fill(node)
        assert node.replicas["t", 0].log.recovery_point == 6


@pytest.mark.parametrize("is_back", [True, False])
async def test_what_a_thread_is_told_while_the_broker_stops_keeps_the_mark_away(
    monkeypatch: pytest.MonkeyPatch, is_back: bool
) -> None:
    """is_back: the thread has come to its end when the logs are closed, else the stop must wait for it."""
    storage = SimulatedStorage(lambda: 1_700_000_000_000)
    monkeypatch.setattr(storage, "is_slow", True, raising=False)
    begun, may_end = threading.Event(), threading.Event()
    others: list[threading.Thread] = []
    path = "t-0/00000000000000000000.log"

    def hold(step: Step) -> None:
        if step.doing == "sync" and step.path == path and not others:
            others.append(threading.current_thread())
            begun.set()
            assert may_end.wait(60)

    async with running(SETTINGS, storage=storage) as node:
        node.create_topic("t")
        append(node, "t", b"a")
        storage.before_step = hold
        storage.fail(doing="sync", path=path)
        node.replicas["t", 0].log.roll()
        assert begun.wait(60)
        assert others != [threading.main_thread()]
        leave, finish = node.metadata.leave, node.scheduler.finish

        async def leave_late() -> None:
            await leave()
            if is_back:
                may_end.set()
                others[0].join(60)

        def finish_late() -> None:
            threading.Timer(0, may_end.set).start()
            finish()

        monkeypatch.setattr(node.metadata, "leave", leave_late)
        monkeypatch.setattr(node.scheduler, "finish", finish_late)
        await node.stop()
        assert any("as after a crash" in line for line in said(node))
        assert node.disk_trouble.count == 1
    assert not storage.exists(CLEAN_SHUTDOWN)
    assert read_offsets(storage, RECOVERY_POINTS).get(("t", 0), 0) == 0


async def test_once_a_stop_has_begun_no_segment_is_flushed_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plans: list[PartitionLog] = []
    flush_plan = PartitionLog.flush_plan

    def watched(log: PartitionLog) -> FlushPlan:
        plans.append(log)
        return flush_plan(log)

    monkeypatch.setattr(PartitionLog, "flush_plan", watched)
    async with running(storage=OsStorage(str(tmp_path))) as node:
        node.scheduler.stop()
        fill(node)
        await turns(5)
        assert plans == []
        assert node.replicas["t", 0].log.recovery_point == 0


@pytest.mark.parametrize("failure", [StorageError("no disk"), ValueError("an error of our own")])
async def test_a_directory_is_free_after_a_stop_whatever_happens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: Exception
) -> None:
    def refuse(plan: FlushPlan, storage: Any) -> None:
        raise failure

    async with running(storage=OsStorage(str(tmp_path))) as node:
        node.create_topic("t")
        append(node, "t", b"v")
        with monkeypatch.context() as patch:
            patch.setattr(FlushPlan, "carry_out", refuse)
            with suppress(ValueError):
                await node.stop()
        assert node.replicas == {}
        async with running(storage=OsStorage(str(tmp_path))) as again:
            assert not again.directory.was_clean


async def test_what_was_cut_off_while_it_was_flushed_is_not_taken_for_flushed() -> None:
    async with running() as node:
        fill(node)
        log = node.replicas["t", 0].log
        log.recovery_point = 0
        plan = log.flush_plan()
        node.directory.truncate_to("t", 0, 3)
        plan.carry_out(node.storage)  # of files some of which are gone
        log.flushed(plan)
        assert log.recovery_point == 0


async def test_an_older_plan_takes_nothing_back_and_one_of_a_log_that_has_failed_counts_for_nothing() -> None:
    async with running() as node:
        fill(node)
        log = node.replicas["t", 0].log
        plan = log.flush_plan()
        assert plan.end_offset > 0
        log.recovery_point = plan.end_offset + 1
        log.flushed(plan)
        assert log.recovery_point == plan.end_offset + 1
        log.recovery_point = 0
        log.fail(StorageError("no disk"))
        log.flushed(plan)
        assert log.recovery_point == 0


@pytest.mark.parametrize("is_cut", [True, False])
async def test_a_file_that_fails_takes_the_log_offline_unless_it_was_cut_off_meanwhile(
    tmp_path: Path, is_cut: bool
) -> None:
    async with running(storage=OsStorage(str(tmp_path))) as node:
        fill(node)
        log = node.replicas["t", 0].log
        work = Flushing(node)._flush(log)
        assert callable(next(work))
        if is_cut:
            node.directory.truncate_to("t", 0, 1)
        with pytest.raises(StopIteration):
            work.throw(StorageError("no disk"))
        assert (log.offline is None, node.disk_trouble.count == 0) == (is_cut, is_cut)


async def test_a_disk_that_fails_then_takes_the_log_offline() -> None:
    storage = SimulatedStorage(lambda: 1_700_000_000_000)
    async with running(SETTINGS, storage=storage) as node:
        node.create_topic("t")
        append(node, "t", b"a")
        storage.fail(doing="sync", path="t-0/00000000000000000000.log")
        node.replicas["t", 0].log.roll()
        assert node.replicas["t", 0].log.offline is not None
        assert node.disk_trouble.count == 1


async def test_a_topic_that_is_deleted_while_it_is_flushed_is_no_trouble_of_the_disk(tmp_path: Path) -> None:
    async with running(storage=OsStorage(str(tmp_path))) as node:
        node.create_topic("t")
        append(node, "t", b"a")
        work = Flushing(node)._flush(node.replicas["t", 0].log)
        carry_out = next(work)
        node.change(node.controller.delete_topic(name="t"))
        await node.partitions.settled()
        carry_out()
        with pytest.raises(StopIteration):
            next(work)
        assert node.disk_trouble.count == 0

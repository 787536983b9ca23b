"""A log survives the loss of power between any two steps of the disk."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import NamedTuple

import pytest

from minibroker.log.build import build_batch, build_transaction_marker
from minibroker.log.directory import LogDirectory
from minibroker.log.partition_log import PartitionLog
from minibroker.log.records import Record
from minibroker.log.settings import LogSettings
from minibroker.log.validate import COORDINATOR
from minibroker.simulation.disk import SimulatedStorage

from .audit import audit
from .crash import STATES, Explored, explore

pytestmark = pytest.mark.slow

SETTINGS = LogSettings(segment_bytes=700, index_interval_bytes=150, segment_index_bytes=80)
AFTER_THE_CRASH = b"after the crash"
Contents = tuple[bytes, ...]  # the value of every record, in order


class Known(NamedTuple):
    """What may be found after a crash: the beginning of one of these, as long as `flushed` at least."""

    contents: tuple[Contents, ...]
    flushed: int


class Worker:
    """Does things to a log and says beforehand what they may lead to."""

    def __init__(self, storage: SimulatedStorage, mark: Callable[[Known], None], chance: Random):
        self.storage = storage
        self.mark = mark
        self.chance = chance
        self.now: Contents = ()
        self.since_flush: list[Contents] = [()]
        self.flushed = self.count = 0
        self.sequences = {1: 0, 2: 0}
        self.epoch = 0
        mark(Known(((),), 0))
        self.open()

    def open(self) -> None:
        self.directory = LogDirectory(self.storage)
        self.directory.start()
        self.log = self.directory.open("t", 0, SETTINGS, now_ms=0, topic_id=bytes(16))

    def tell(self) -> None:
        self.mark(Known(tuple(self.since_flush), self.flushed))

    def append(self) -> None:
        self.count += 1
        producer = self.chance.choice([-1, -1, 1, 2])
        values = [b"%d/%d" % (self.count, index) for index in range(self.chance.randint(1, 4))]
        self.now += tuple(values)
        self.since_flush.append(self.now)
        self.tell()
        data = build_batch(
            2,
            [Record(b"k", value, (), 1000 + self.chance.randint(0, 50) + self.count) for value in values],
            codec=self.chance.choice([0, 0, 1]),
            producer_id=producer,
            producer_epoch=0 if producer >= 0 else -1,
            base_sequence=self.sequences.get(producer, -1),
            transactional=producer >= 0,
        )
        if producer >= 0:
            self.sequences[producer] += len(values)
        self.log.append_as_leader(bytearray(data), leader_epoch=self.epoch, now_ms=0)

    def end_transaction(self) -> None:
        producer = self.chance.choice([1, 2])
        self.now += (b"marker",)
        self.since_flush.append(self.now)
        self.tell()
        marker = build_transaction_marker(
            offset=0,
            commit=self.chance.random() < 0.5,
            producer_id=producer,
            producer_epoch=0,
            timestamp=0,
            coordinator_epoch=0,
        )
        self.log.append_as_leader(bytearray(marker), leader_epoch=self.epoch, now_ms=0, origin=COORDINATOR)

    def flush(self) -> None:
        self.log.flush()
        self.is_flushed()

    def is_flushed(self) -> None:
        self.since_flush = [self.now]
        self.flushed = len(self.now)
        self.tell()

    def roll(self) -> None:
        self.log.roll()

    def truncate(self) -> None:
        offset = self.chance.randint(len(self.now) // 2, len(self.now))
        # A batch goes as a whole; which offsets begin one is for the log to say.
        kept = next(
            (batch for segment in self.log.segments for batch in segment.batches() if batch.last_offset >= offset), None
        )
        length = len(self.now) if kept is None else kept.base_offset
        self.flushed = min(self.flushed, length)
        self.now = self.now[:length]
        self.since_flush.append(self.now)
        self.tell()
        self.directory.truncate_to("t", 0, offset)
        for producer in self.sequences:
            entry = self.log.producers.producers.get(producer)
            self.sequences[producer] = entry.last_sequence + 1 if entry else 0
        self.epoch += 1

    def checkpoint(self) -> None:
        self.directory.write_checkpoints()

    def close_and_open(self) -> None:
        self.directory.close()
        self.is_flushed()
        self.open()


ACTIONS = [
    *[Worker.append] * 8,
    *[Worker.end_transaction, Worker.flush, Worker.checkpoint] * 2,
    *[Worker.roll, Worker.truncate, Worker.close_and_open],
]


def work(seed: int, actions: int) -> Callable[[SimulatedStorage, Callable[[Known], None]], None]:
    def workload(storage: SimulatedStorage, mark: Callable[[Known], None]) -> None:
        chance = Random(seed)
        worker = Worker(storage, mark, chance)
        for _ in range(actions):
            chance.choice(ACTIONS)(worker)
        worker.directory.close()
        worker.is_flushed()

    return workload


def recovered(storage: SimulatedStorage) -> PartitionLog:
    directory = LogDirectory(storage)
    directory.start()
    return directory.open("t", 0, SETTINGS, now_ms=0, topic_id=bytes(16))


def check(storage: SimulatedStorage, known: Known) -> None:
    log = recovered(storage)
    every = storage.root is not None and (len(known.contents) + known.flushed) % 16 == 0
    values = [
        b"marker" if row.value is None or row.key != b"k" else row.value for row in audit(log, every_lookup=every)
    ]
    while values and values[-1] == AFTER_THE_CRASH:
        values.pop()  # of the check that the power ended
    assert len(values) >= known.flushed, f"{len(values)} records are left of {known.flushed} that were flushed"
    assert any(content[: len(values)] == tuple(values) for content in known.contents), values
    log.append_as_leader(bytearray(build_batch(2, [Record(b"k", AFTER_THE_CRASH, (), 1)])), leader_epoch=1000, now_ms=0)
    assert audit(log, every_lookup=False)[-1].value == AFTER_THE_CRASH
    log.release()


@pytest.mark.parametrize("seed", range(8))
def test_what_was_flushed_survives_any_crash_and_what_is_left_is_a_beginning(seed: int) -> None:
    explored = explore(work(seed, 40), check, seed=seed, states_max=STATES)
    assert explored.distinct == STATES


@pytest.mark.parametrize("seed", range(8, 16))
def test_recovery_survives_a_crash_in_its_own_steps(seed: int) -> None:
    explored: Explored = explore(work(seed, 30), check, seed=seed, states_max=STATES // 3, crashes=3)
    assert explored.distinct == STATES // 3


def test_a_clean_mark_says_that_every_log_is_on_the_disk() -> None:
    topics = ("a", "b", "c")

    def opened(storage: SimulatedStorage) -> LogDirectory:
        directory = LogDirectory(storage)
        directory.start()
        for topic in topics:
            directory.open(topic, 0, SETTINGS, now_ms=0, topic_id=bytes(16))
        return directory

    def workload(storage: SimulatedStorage, mark: Callable[[int], None]) -> None:
        mark(0)
        count = 0
        for _ in range(3):
            directory = opened(storage)
            for log in directory.logs.values():
                for number in range(count, count + 8):
                    data = build_batch(2, [Record(b"k", b"%d" % number * 40, (), 1000 + number)])
                    log.append_as_leader(bytearray(data), leader_epoch=count, now_ms=0)
            count += 8
            mark(count)
            assert directory.close()

    def check_mark(storage: SimulatedStorage, count: int) -> None:
        directory = opened(storage)
        for log in directory.logs.values():
            values = [row.value for row in audit(log, every_lookup=False)]
            # The mark may be that of the stop before.
            whole = not directory.was_clean or len(values) in (count, count - 8)
            assert whole, f"{log.directory}: {len(values)} of {count} records and a clean mark"
            assert values == [b"%d" % number * 40 for number in range(len(values))]
            assert log.epochs.latest_epoch == (len(values) - 1) // 8 * 8 or not values
            log.release()

    explored = explore(workload, check_mark, states_max=STATES // 2)
    assert explored.distinct == STATES // 2

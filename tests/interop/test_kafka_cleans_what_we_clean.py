"""Kafka's cleaner beside ours: the same dirty logs, pass for pass, and the same files afterwards.

By hand, for longer:  python -m tests.interop.test_kafka_cleans_what_we_clean RELEASE COUNT [FIRST SEED]
"""

from __future__ import annotations

import shutil
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from minibroker.cleaner import cleaner
from minibroker.cleaner.candidates import cleanable
from minibroker.cleaner.cleaner import clean
from minibroker.cleaner.offset_map import OffsetMap
from minibroker.in_pieces import finish
from minibroker.log.aborted import aborted_between
from minibroker.log.batches import Batch, batches
from minibroker.log.partition_log import PartitionLog

from .kafka_cleaner import RELEASES, KafkaCleaner, Pass
from .random_logs import RandomLog

pytestmark = [pytest.mark.interop, pytest.mark.slow]

SEEDS = 80  # of each release
PASSES = 4
WITHOUT_DISK = "/dev/shm" if Path("/dev/shm").is_dir() else None  # everything is flushed all the time


@pytest.fixture(scope="module", params=RELEASES, ids=lambda release: release.version)
def kafka(request: pytest.FixtureRequest) -> Iterator[KafkaCleaner]:
    running = KafkaCleaner(request.param)
    yield running
    running.close()


def test_random_logs_are_cleaned_as_kafka_cleans_them(kafka: KafkaCleaner) -> None:
    done: Counter[str] = Counter()
    with TemporaryDirectory(dir=WITHOUT_DISK) as work:
        for seed in range(SEEDS):
            compare_passes(kafka, seed, Path(work), done)
    del done["Kafka fails"]
    assert set(done) == EXPECTED | ({"a format raised"} if not kafka.is_scala else set()), done


EXPECTED = {
    "a pass",
    "nothing to do",
    "a full map",
    "segments merged",
    "a batch emptied",
    "a marker gone",
    "a horizon set",
    "a tombstone gone",
    "an old tombstone gone",
    "an aborted transaction kept in the index",
}
KAFKA_FAILS = (
    "Empty batches are only supported for magic v2 and above",  # the last one of the range is left empty, of v0 or v1
    "Attempt to append to a full",  # an index: where its entries are so many more than those of its sources
)


class KafkasMap(OffsetMap):
    """A map with room for as many keys as Kafka's, which is full as soon as another record comes."""

    def __init__(self, keys_max: int):
        super().__init__(1 << 20)
        self.keys_max = keys_max

    def take(self, batch: Batch, start_offset: int = 0) -> Iterator[None]:  # type: ignore[override]
        for record in batch.records():
            if record.key is not None and record.offset >= start_offset:
                if self.count >= self.keys_max:
                    self.is_full = True
                    return
                self.put(record.key, record.offset)
            yield
        self.cover(batch.next_offset)


def compare_passes(kafka: KafkaCleaner, seed: int, work: Path, done: Counter[str]) -> None:
    """Let a log grow and be cleaned, several times."""
    ours = work / f"{seed}-ours"
    dirty = RandomLog(ours, seed)
    chance = Random(-seed)
    first_dirty: int | None = None
    for number in range(PASSES):
        if number == 0 or chance.random() < 0.8:
            dirty.grow()
        else:
            dirty.log.close()
        theirs = work / f"{seed}-{number}-theirs"  # where it was last time Kafka may still be busy
        shutil.copytree(ours, theirs, ignore=shutil.ignore_patterns("*.deleted"))
        before = files_of_batches(ours / dirty.name)
        dirty.now_ms += chance.choice([0, 1000, 5000, 30_000])
        log = dirty.open()
        keys_max = chance.choice([2, 5, 1000, 1000, 1000])
        high_watermark = log.log_end_offset if chance.random() < 0.7 else chance.randint(0, log.log_end_offset)
        if first_dirty is not None and chance.random() < 0.03:
            first_dirty = chance.choice([log.log_end_offset + 10, chance.randint(0, first_dirty)])
        first_dirty = without_ended(log, first_dirty)
        told = (
            f"seed {seed}, pass {number}, first dirty {first_dirty}, keys {keys_max}, high watermark {high_watermark}"
        )
        their_pass = kafka.clean(
            theirs,
            dirty.name,
            dirty.settings,
            first_dirty_offset=first_dirty,
            now_ms=dirty.now_ms,
            keys_max=keys_max,
            high_watermark=high_watermark,
        )
        our_pass = cleaned_by_us(log, first_dirty, dirty.now_ms, keys_max, high_watermark, kafka.is_scala)
        log.close()
        dirty.log = dirty.open()
        if our_pass is not None:
            first_dirty = our_pass.end_offset
            note_changes(before, files_of_batches(ours / dirty.name), our_pass, dirty.now_ms, done)
            done["an aborted transaction kept in the index"] += sum(
                int(path.name[:20]) < our_pass.end_offset for path in (ours / dirty.name).glob("*.txnindex")
            )
        if isinstance(their_pass, str):
            assert any(words in their_pass for words in KAFKA_FAILS), f"{told}: {their_pass}"
            done["Kafka fails"] += 1
            continue
        assert our_pass == their_pass, told
        cleaned_to = our_pass.end_offset if our_pass else 0
        assert_same_files(
            ours / dirty.name, theirs / dirty.name, told, cleaned_to, has_kafkas_indexes=not kafka.is_scala
        )
        done["a pass" if our_pass else "nothing to do"] += 1
        shutil.rmtree(theirs, ignore_errors=True)
    shutil.rmtree(ours)


def without_ended(log: PartitionLog, first_dirty: int | None) -> int | None:
    """Return a first dirty offset with which Kafka makes no mistake.

    Where the map begins within a segment, behind the end of an aborted transaction there, Kafka takes what its producer
    committed later for aborted as well, and so leaves older values of those keys where they are.
    """
    if first_dirty is None or first_dirty >= log.log_end_offset:
        return first_dirty
    base_offset = log.segments[log.segment_of(first_dirty)].base_offset
    ended = [entry for entry in aborted_between(log, base_offset, first_dirty) if entry.last_offset < first_dirty]
    return base_offset if ended else first_dirty


def cleaned_by_us(
    log: PartitionLog, first_dirty: int | None, now_ms: int, keys_max: int, high_watermark: int, is_old: bool
) -> Pass | None:
    candidate = cleanable(
        log,
        first_dirty_offset=first_dirty,
        last_stable_offset=log.last_stable_offset(high_watermark),
        now_ms=now_ms,
        high_watermark=None if is_old else high_watermark,
    )
    if candidate.why_not:
        return None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cleaner, "OffsetMap", lambda size, load: KafkasMap(keys_max))
        work = clean(log, candidate, now_ms=now_ms, map_bytes_max=1 << 20, upgrades=not is_old)
        cleaned = finish(work)
    return Pass(
        candidate.first_dirty,
        candidate.end,
        candidate.clean_bytes,
        candidate.dirty_bytes,
        candidate.needs_now,
        cleaned.end_offset,
    )


def assert_same_files(ours: Path, theirs: Path, told: str, cleaned_to: int, *, has_kafkas_indexes: bool) -> None:
    """Compare all files of batches, and the indexes of the segments that have been written anew."""
    our_names, their_names = ([path.name for path in sorted(each.glob("*.log"))] for each in (ours, theirs))
    assert our_names == their_names, told
    for name in our_names:
        our_data, their_data = ((each / name).read_bytes() for each in (ours, theirs))
        assert shown(our_data) == shown(their_data), f"{told}: {name}"
        our_ms, their_ms = ((each / name).stat().st_mtime_ns // 1_000_000 for each in (ours, theirs))
        assert our_ms == their_ms, f"{told}: {name}"
        if int(name[:20]) >= cleaned_to:
            continue
        # Sparse indexes: as those of 4.x, where what was compressed has not become longer or shorter than Kafka's.
        kinds = [".txnindex", *([".index", ".timeindex"] if has_kafkas_indexes and our_data == their_data else [])]
        for kind in kinds:
            our_path, their_path = (each / f"{name[:20]}{kind}" for each in (ours, theirs))
            assert content(our_path) == content(their_path), f"{told}: {our_path.name}"


def content(path: Path) -> bytes:
    """Return what is in a file; an index of transactions that is empty need not be there."""
    return path.read_bytes() if path.exists() else b""


def files_of_batches(directory: Path) -> list[list[Batch]]:
    return [list(batches(path.read_bytes())) for path in sorted(directory.glob("*.log"))]


def note_changes(
    before: list[list[Batch]], after: list[list[Batch]], found: Pass, now_ms: int, done: Counter[str]
) -> None:
    """Count what a pass has met; of the rest nobody could say that it was compared."""
    done["a full map"] += found.end_offset < found.end
    done["segments merged"] += len(after) < len(before)
    left = {batch.last_offset: batch for file in after for batch in file}
    values = {record.offset for batch in left.values() for record in batch.records()}
    data = [batch for file in before for batch in file if not batch.is_control]
    latest = {record.key: record.offset for batch in data for record in batch.records()}
    for old in (batch for file in before for batch in file):
        new = left.get(old.last_offset)
        if new is None:
            done["a marker gone"] += old.is_control
        else:
            done["a batch emptied"] += new.count == 0 < old.count
            done["a format raised"] += new.magic > old.magic
            done["a horizon set"] += new.delete_horizon is not None is old.delete_horizon
        for record in old.records() if not old.is_control else ():
            if record.value is None and record.offset not in values and latest[record.key] == record.offset:
                done["an old tombstone gone"] += old.magic < 2
                done["a tombstone gone"] += old.delete_horizon is not None and old.delete_horizon <= now_ms
    for name in [name for name, count in done.items() if not count]:
        del done[name]


def shown(data: bytes) -> list[Any]:
    """Return everything in a file of batches; of compressed ones not the bytes, which differ between libraries."""
    found = []
    for batch in batches(data, strict=True):
        batch.check_crc()
        header = [getattr(batch, name) for name in FIELDS]
        found.append((header, None if batch.codec else bytes(batch.view), list(batch.records(check_crc=True))))
    return found


FIELDS = (
    *("magic", "attributes", "base_offset", "last_offset", "partition_leader_epoch", "base_timestamp", "max_timestamp"),
    *("producer_id", "producer_epoch", "base_sequence", "count"),
)


def main(version: str, count: str, first_seed: str = "0") -> None:
    release = next(each for each in RELEASES if each.version.startswith(version))
    done: Counter[str] = Counter()
    end = int(first_seed) + int(count)
    for first in range(int(first_seed), end, 500):  # what has been cleaned, Kafka remembers for a while
        kafka = KafkaCleaner(release)
        with TemporaryDirectory(dir=WITHOUT_DISK) as work:
            for seed in range(first, min(first + 500, end)):
                compare_passes(kafka, seed, Path(work), done)
        kafka.close()
    print(done)


if __name__ == "__main__":
    main(*sys.argv[1:])

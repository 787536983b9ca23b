"""What real brokers left when they cleaned, from the same input.

The directories "before clean" and "after clean" are of the same brokers. Between them more was appended, and the
cleaner passed two or three times, each time up to the segment that was active then. Of each pass input and result are
known, for what it took away still lies there as .deleted, in the second directory: the result of one pass is the input
of the next.

Compared are records, offsets, batch headers, transaction indexes and file times; where nothing is compressed, bytes.
The time of a pass is that in the delete horizons that it has set.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from minibroker.cleaner.candidates import cleanable, due
from minibroker.cleaner.cleaner import clean
from minibroker.in_pieces import finish
from minibroker.log.batches import Batch, batches
from minibroker.log.memory_storage import MemoryStorage
from minibroker.log.partition_log import PartitionLog
from minibroker.log.recovery import open_log
from minibroker.log.settings import DAY_MS, LogSettings
from tests import goldens

KRAFT = ("kraft39-1-before-clean", "kraft39-2-after-clean")
ZK = ("zk28-1-before-clean", "zk28-2-after-clean")


class Topic(NamedTuple):
    """The settings of a topic that matter."""

    segment_bytes: int
    delete_retention_ms: int = DAY_MS


TOPICS = {
    "compact-0": Topic(700),
    "compact-fast-0": Topic(700, 1),
    "txn-compact-0": Topic(900),
    "v0-compact-0": Topic(700),
    "v1-compact-0": Topic(700),
    "v2-compact-0": Topic(700),
}


class Pass(NamedTuple):
    """One pass: files are named as in "2 0 deleted": of the second directory, from offset 0, taken away since.

    A name with a plus is a file and what came behind it later.
    """

    pair: tuple[str, str]
    log: str
    first_dirty: int  # where the pass before ended
    before: str
    after: str

    def __repr__(self) -> str:
        return f"{self.pair[0][:4]}-{self.log}-from-{self.first_dirty}"


FIRST = "1 0, 1 12", "2 0 deleted"
SECOND = "2 0 deleted, 2 12 deleted, 2 22 deleted, 2 34", "2 0, 2 12, 2 22"
PASSES = [
    Pass(KRAFT, "compact-0", 0, *FIRST),
    Pass(KRAFT, "compact-0", 12, *SECOND),
    Pass(KRAFT, "compact-fast-0", 0, *FIRST),
    Pass(KRAFT, "compact-fast-0", 12, *SECOND),
    Pass(
        KRAFT,
        "txn-compact-0",
        0,
        "1 0, 1 4, 1 16, 1 26, 1 32, 1 37",
        "2 0 deleted, 2 4 deleted, 2 16 deleted, 2 26 deleted, 2 32 deleted",
    ),
    Pass(
        KRAFT,
        "txn-compact-0",
        37,
        "2 0 deleted, 2 4 deleted, 2 16 deleted, 2 26 deleted, 2 32 deleted, 2 37 deleted, 2 44",
        "2 0, 2 32, 2 37",
    ),
    Pass(ZK, "v0-compact-0", 0, "1 0, 1 14, 1 28, 1 43", "2 0 deleted, 2 14 deleted, 2 28 deleted"),
    Pass(ZK, "v0-compact-0", 43, "2 0 deleted, 2 14 deleted, 2 28 deleted, 2 43 deleted, 2 58", "2 0, 2 43"),
    # What this pass left of segment 0 is not known: the next one put another file in its place.
    Pass(ZK, "v1-compact-0", 0, "1 0, 1 12, 1 24, 1 36", "?, 2 12 deleted, 2 24 deleted"),
    # Segment 36 went on after the first directory was taken.
    Pass(
        ZK,
        "v1-compact-0",
        36,
        "empty, 2 12 deleted, 2 24 deleted, 1 36 + 2 36 deleted, 2 46 deleted",
        "2 0 deleted, 2 36 deleted",
    ),
    Pass(ZK, "v1-compact-0", 46, "2 0 deleted, 2 36 deleted, 2 46 deleted, 2 58", "2 0, 2 46"),
    Pass(ZK, "v2-compact-0", 0, "1 0, 1 12, 1 22, 1 34", "2 0 deleted, 2 12 deleted, 2 22 deleted"),
    Pass(
        ZK,
        "v2-compact-0",
        34,
        "2 0 deleted, 2 12 deleted, 2 22 deleted, 2 34 deleted, 2 44 deleted, 2 56",
        "2 0, 2 34, 2 44",
    ),
]


@pytest.mark.parametrize("golden", PASSES, ids=repr)
def test_a_pass_leaves_what_kafka_left(golden: Pass) -> None:
    expected = [segment_of(golden, name) for name in golden.after.split(", ")]
    log = opened(golden)
    topic = TOPICS[golden.log]
    horizons = {
        batch.delete_horizon
        for segment in expected
        for batch in batches(segment.data if segment else b"")
        if batch.delete_horizon
    }
    assert len(horizons) <= 1
    now_ms = horizons.pop() - topic.delete_retention_ms if horizons else log.active.modified_ms
    sealed_end = log.active.base_offset
    candidate = cleanable(
        log, first_dirty_offset=golden.first_dirty, last_stable_offset=log.log_end_offset, now_ms=now_ms
    )
    assert due([candidate]) == [candidate]
    cleaned = finish(clean(log, candidate, now_ms=now_ms, map_bytes_max=1 << 20, upgrades=False))

    assert cleaned.end_offset == candidate.end == sealed_end
    left = log.segments[:-1]
    assert len(left) == len(expected) == cleaned.segments_after
    for segment, golden_segment in zip(left, expected, strict=True):
        if golden_segment is None:
            continue
        assert segment.base_offset == golden_segment.base_offset
        found = [shown(batch, golden) for batch in segment.batches()]
        assert found == [shown(batch, golden) for batch in batches(golden_segment.data)]
        assert segment.modified_ms == golden_segment.modified_ms
        index = b"".join(b"\0\0" + entry.encode(0) for entry in segment.transaction_index.entries())
        assert index == golden_segment.transaction_index


def test_the_passes_show_what_is_special_about_each() -> None:
    """So that nobody puts input in their place that proves nothing."""
    found: set[str] = set()
    for golden in PASSES:
        before = [segment_of(golden, name) for name in golden.before.split(", ")]
        after = [segment_of(golden, name) for name in golden.after.split(", ")]
        if None in after:
            continue
        found.update({"fewer segments"} if len(after) < len(before) - 1 else ())
        old, new = (
            {batch.last_offset: batch for segment in each if segment for batch in batches(segment.data)}
            for each in (before, after)
        )
        for offset, batch in new.items():
            if offset not in old or batch.size_bytes < old[offset].size_bytes:
                found.add(f"v{batch.magic} with codec {batch.codec}")
            if batch.delete_horizon:
                found.add("horizon of a marker" if batch.is_control else "horizon")
            if not batch.count:
                found.add("empty")
    wanted = {"fewer segments", "horizon", "horizon of a marker", "empty", "v0 with codec 1", "v1 with codec 1"}
    assert wanted | {"v2 with codec 0"} <= found


# The files of a pass


class Stored(NamedTuple):
    base_offset: int
    data: bytes
    transaction_index: bytes
    modified_ms: int


def segment_of(golden: Pass, name: str) -> Stored | None:
    """Return a segment by its name in the table."""
    if name == "?":
        return None
    if name == "empty":
        return Stored(0, b"", b"", 0)
    name, _, continued = name.partition(" + ")
    number, base_offset, *deleted = name.split()
    directory = golden.pair[int(number) - 1]
    path = f"{golden.log}/{int(base_offset):020}"
    suffix = ".deleted" if deleted else ""
    files, times = goldens.log_files(directory), goldens.log_times(directory)
    data = files[f"{path}.log{suffix}"]
    modified_ms = times[f"{path}.log{suffix}"]
    if continued:
        later = segment_of(golden, continued)
        assert later is not None
        end = max(batch.last_offset for batch in batches(data))
        data += b"".join(batch.view for batch in batches(later.data) if batch.base_offset > end)
        modified_ms = later.modified_ms
    return Stored(int(base_offset), data, files.get(f"{path}.txnindex{suffix}", b""), modified_ms)


def opened(golden: Pass) -> PartitionLog:
    """Open a log with the files that the pass met; the last segment is the active one."""
    storage = MemoryStorage(int)
    storage.make_directory(golden.log)
    times = {}
    for name in golden.before.split(", "):
        stored = segment_of(golden, name)
        assert stored is not None
        path = f"{golden.log}/{stored.base_offset:020}"
        storage.open(f"{path}.log", create=True).append([stored.data])
        for kind, data in ((".index", b""), (".timeindex", b""), (".txnindex", stored.transaction_index)):
            if data or kind != ".txnindex":
                storage.open(path + kind, create=True).append([data])
        times[f"{path}.log"] = stored.modified_ms
    topic = TOPICS[golden.log]
    settings = LogSettings(
        compact=True,
        delete=False,
        segment_bytes=topic.segment_bytes,
        delete_retention_ms=topic.delete_retention_ms,
        min_cleanable_dirty_ratio=0.01,
    )
    log = open_log(storage, golden.log, settings, was_clean=True)
    for path, modified_ms in times.items():
        storage.set_modified_ms(path, modified_ms)
    return log


def shown(batch: Batch, golden: Pass) -> list[Any]:
    """Return all of a batch; in 2.8 there were no delete horizons yet."""
    header: list[Any] = [batch.magic, batch.base_offset, batch.last_offset, batch.partition_leader_epoch]
    header += [batch.max_timestamp, batch.producer_id, batch.producer_epoch, batch.base_sequence, batch.count]
    if golden.pair is KRAFT:
        header += [batch.attributes, batch.base_timestamp, None if batch.codec else bytes(batch.view)]
    batch.check_crc()
    return [*header, *batch.records()]

"""Files that another program cuts, empties or removes while a log is open: an error, never the end of the process."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from minibroker.errors import KafkaError, ProtocolError
from minibroker.log.build import build_batch
from minibroker.log.directory import LogDirectory
from minibroker.log.partition_log import PartitionLog
from minibroker.log.reading import find_offset, read
from minibroker.log.records import Record
from minibroker.log.segment import READ_BYTES
from minibroker.log.settings import LogSettings
from minibroker.log.storage import OsStorage

SETTINGS = LogSettings(segment_bytes=6000, index_interval_bytes=200, segment_index_bytes=800)
COUNT = 100


def filled(root: Path, settings: LogSettings = SETTINGS, size_bytes: int = 100) -> PartitionLog:
    directory = LogDirectory(OsStorage(str(root)))
    directory.start()
    log = directory.open("t", 0, settings, now_ms=0)
    for number in range(COUNT):
        append(log, number, size_bytes)
    return log


def append(log: PartitionLog, number: int, size_bytes: int = 100) -> None:
    data = build_batch(2, [Record(b"%d" % number, os.urandom(size_bytes), (), 1000 + number)])
    log.append_as_leader(bytearray(data), leader_epoch=0, now_ms=0)


def offsets_found(log: PartitionLog) -> list[int]:
    """Read everything, one offset after the other, by offset and by time; return what was right."""
    right = []
    for offset in range(log.log_start_offset, log.log_end_offset):
        try:
            found = read(log, offset, 1 << 20, limit_offset=log.log_end_offset)
            assert found is not None
            batch = next(iter(found.segment.batches(found.position)))
            assert batch.base_offset == offset
            assert batch.crc_is_valid()
            place = find_offset(log, 1000 + offset, limit_offset=log.log_end_offset)
            assert place is not None
            assert place.offset == offset
        except (KafkaError, ProtocolError):
            continue
        right.append(offset)
    return right


DAMAGE: list[Callable[[Path], object]] = [
    lambda path: os.truncate(path, 0),
    lambda path: os.truncate(path, path.stat().st_size // 2),
    lambda path: os.truncate(path, 60),
    lambda path: path.unlink(),
]
NAMES = ["emptied", "halved", "60 bytes", "removed"]


@pytest.mark.parametrize("warm", [True, False])
@pytest.mark.parametrize("kind", [".index", ".timeindex"])
@pytest.mark.parametrize("damage", DAMAGE, ids=NAMES)
def test_without_its_indexes_a_log_answers_as_before(
    tmp_path: Path, damage: Callable[[Path], object], kind: str, warm: bool
) -> None:
    log = filled(tmp_path)
    if warm:
        assert offsets_found(log) == list(range(COUNT))
    for path in sorted((tmp_path / "t-0").glob("*" + kind)):
        damage(path)
    append(log, COUNT)
    assert offsets_found(log) == list(range(COUNT + 1))
    log.release()


@pytest.mark.parametrize("damage", DAMAGE[:3], ids=NAMES[:3])
def test_what_was_cut_off_the_records_is_an_error_and_the_rest_is_read(
    tmp_path: Path, damage: Callable[[Path], object]
) -> None:
    log = filled(tmp_path)
    assert offsets_found(log) == list(range(COUNT))
    assert len(log.segments) >= 3
    damage(tmp_path / log.segments[1].path)
    gone = range(log.segments[1].base_offset, log.segments[2].base_offset)
    found = offsets_found(log)
    assert set(range(COUNT)) - set(found) <= set(gone)
    assert gone[-1] not in found
    append(log, COUNT)
    log.truncate_to(gone[-1] + 1)
    log.release()


def test_large_reads_of_a_segment_that_was_cut_are_errors(tmp_path: Path) -> None:
    log = filled(tmp_path, LogSettings(segment_bytes=64 << 20), size_bytes=100_000)
    found = read(log, 0, 8 << 20, limit_offset=log.log_end_offset)
    assert found is not None
    before = found.view()
    assert len(before) > 4 * READ_BYTES
    os.truncate(tmp_path / log.active.path, READ_BYTES)
    assert len(bytes(before)) == len(before)  # what has been read stays
    with pytest.raises(KafkaError, match="it ends at byte"):
        found.view()
    with pytest.raises(KafkaError, match="it ends at byte"):
        list(log.active.batches())
    log.release()

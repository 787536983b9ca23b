"""A copy of a cleaned log has gaps between its segments: written by one and killed, the other opens all of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from minibroker.log.build import build_batch
from minibroker.log.directory import LogDirectory
from minibroker.log.records import Record
from minibroker.log.segment import ROLLED
from minibroker.log.settings import LogSettings
from minibroker.log.storage import OsStorage

from . import kafka

pytestmark = [pytest.mark.interop, pytest.mark.slow]

COMPACTED = LogSettings(segment_bytes=3000, segment_index_bytes=480, compact=True, delete=False)
DELETED = LogSettings(segment_bytes=3000, segment_index_bytes=480)
ALL = [1990, 50]  # end of the log, segments


def kafka_opens(what: str, log: Path) -> list[int]:
    said = kafka.run(kafka.STORAGE, str(kafka.HERE / "CopyLog.java"), what, str(log), cwd=log.parent)
    assert said.returncode == 0, said.stderr
    return [int(number) for number in said.stdout.split()]


def opened(root: Path, settings: LogSettings) -> LogDirectory:
    directory = LogDirectory(OsStorage(str(root)))
    directory.start()
    directory.open("t", 0, settings, now_ms=0)
    return directory


def rolled(root: Path) -> list[str]:
    return [path.name for path in (root / "t-0").iterdir() if path.name.endswith(ROLLED)]


@pytest.mark.parametrize("settings", [COMPACTED, DELETED])
def test_what_kafka_copied_is_all_there_after_a_kill(tmp_path: Path, settings: LogSettings) -> None:
    assert kafka_opens("copy", tmp_path / "t-0") == ALL
    log = opened(tmp_path, settings).logs["t", 0]
    assert ([log.log_end_offset, len(log.segments)], log.recovery.reason) == (ALL, "")
    log.release()


def test_what_we_copied_is_all_there_for_kafka_and_what_it_writes_is_believed(tmp_path: Path) -> None:
    directory = opened(tmp_path, COMPACTED)
    log = directory.logs["t", 0]
    for first in range(0, 2000, 20):
        records = [Record(b"k%d" % index, bytes(100), (), 1000 + index, first + index) for index in range(10)]
        log.append_as_follower(build_batch(2, records, partition_leader_epoch=1), now_ms=0)
    assert [log.log_end_offset, len(log.segments)] == ALL
    assert len(rolled(tmp_path)) == 49  # nothing has been flushed
    log.release()
    directory.storage.unlock()
    assert kafka_opens("open", tmp_path / "t-0") == ALL
    assert rolled(tmp_path) == []  # from here on Kafka writes, and nobody notes where the log ended

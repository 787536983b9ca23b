"""The steps of a lookup end where a fetch begins, whatever the log is like."""

from __future__ import annotations

import random

import pytest

from minibroker.log.build import build_batch
from minibroker.log.memory_storage import MemoryStorage
from minibroker.log.partition_log import PartitionLog
from minibroker.log.reading import find_offset
from minibroker.log.records import Record
from minibroker.log.recovery import open_log
from minibroker.log.settings import LogSettings
from minibroker.tools.lookup import BATCH, NOTHING, lookup_offset, lookup_time


@pytest.fixture(params=range(3))
def log(request: pytest.FixtureRequest) -> PartitionLog:
    chance = random.Random(request.param)
    log_settings = LogSettings(index_interval_bytes=chance.choice((100, 500, 4096)))
    made = open_log(MemoryStorage(lambda: 0), "t-0", log_settings, was_clean=True)
    time_ms = 1_600_000_000_000
    for _ in range(80):
        records = []
        for at in range(chance.randint(1, 4)):
            time_ms += chance.randint(-300, 900)
            records.append(Record(None, b"x" * chance.randint(0, 90), (), time_ms, at))
        made.append_as_leader(build_batch(2, records), leader_epoch=0, now_ms=time_ms)
        if chance.random() < 0.05:
            made.roll()
    return made


def test_a_lookup_ends_at_the_batch_that_a_fetch_begins_with(log: PartitionLog) -> None:
    for offset in range(log.log_end_offset):
        last = lookup_offset(log, offset)[-1]
        place = log.segments[log.segment_of(offset)].find(offset)
        assert place is not None
        assert (last.kind, last.numbers["position"]) == (BATCH, place.position)
    assert lookup_offset(log, log.log_end_offset)[-1].kind == NOTHING
    assert lookup_offset(log, 3)[0].to_dict()["kind"] == "segment"


def test_a_lookup_of_a_time_ends_at_the_record_that_is_found(log: PartitionLog) -> None:
    times = [batch.max_timestamp for segment in log.segments for batch in segment.batches()]
    for timestamp in (times[0] - 10_000, *times[::7], max(times) + 1):
        last = lookup_time(log, timestamp)[-1]
        found = find_offset(log, timestamp, limit_offset=log.log_end_offset)
        assert (last.numbers["offset"] if found else last.kind) == (found.offset if found else NOTHING)

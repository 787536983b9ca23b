"""Kafka's own LogValidator takes, stores and refuses what ours does, of thousands of random batches."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest

from minibroker.errors import DecompressionFailed, KafkaError
from minibroker.log.batches import batches
from minibroker.log.compression import decompress
from minibroker.log.formats import APPEND_TIME, DELETE_HORIZON_BIT
from tests.log.random_produce import LEADER_EPOCH, NEXT_OFFSET, NOW_MS, Sent, sent
from tests.log.record_oracle import read
from tests.log.validating import validate

from . import kafka

pytestmark = [pytest.mark.interop, pytest.mark.slow]

CASES = 10_000
RELEASES = {
    "2.8": kafka.Release("kafka_2.13", "2.8.2"),
    "3.9": kafka.Release("kafka_2.13", "3.9.2"),
    "4.4": kafka.STORAGE,
}
REACH_MS = 2**62  # times farther from now leave 64 bits when Kafka subtracts them
HEADER = ("base_offset", "last_offset", "max_timestamp", "count", "partition_leader_epoch")
SINCE_44 = 2_147_483_639  # max.decompressed.message.bytes before there was one


class Answer(NamedTuple):
    """What became of a batch: its bytes in the log, or the error code."""

    stored: bytes | None
    code: int
    words: str


@pytest.mark.parametrize("release", RELEASES)
def test_random_batches_are_taken_and_refused_as_kafka_does(release: str, tmp_path: Path) -> None:
    cases = [as_of(release, sent(Random(seed))) for seed in range(CASES)]
    (tmp_path / "cases").write_text("".join(line_of(case) for case in cases))
    told = kafka.run(RELEASES[release], str(program(release, tmp_path)), str(tmp_path / "cases"), cwd=tmp_path)
    assert told.returncode == 0, told.stderr
    seen: Counter[str] = Counter()
    for seed, (case, line) in enumerate(zip(cases, told.stdout.splitlines(), strict=True)):
        theirs, ours = parsed(line), answered(release, case)
        if theirs.stored is None and ours.stored is None:
            seen["same code" if theirs.code == ours.code else "other code"] += 1
            assert theirs.code == ours.code or may_differ(release, case, theirs), (seed, theirs, ours)
        elif theirs.stored is None or ours.stored is None:
            seen["on purpose"] += 1
            assert theirs.stored is not None, (seed, theirs)  # what Kafka refuses is never taken here
            assert is_stricter_here(release, case), (seed, ours)
        else:
            assert shown(release, ours.stored) == shown(release, theirs.stored), seed
            if case.codec == "producer" or not case.data[22] & 7:
                seen["same bytes"] += ours.stored == theirs.stored
            seen["stored"] += 1
    assert seen["same bytes"] > CASES / 5, seen
    assert seen["same code"] > CASES / 2, seen
    assert seen["other code"] + seen["on purpose"] < CASES / 20, seen


def as_of(release: str, case: Sent) -> Sent:
    """Return a case as the release can have it: one limit for both sides before 3.6, none for a record before 4.4."""
    if release == "2.8":
        case = case._replace(before_max_ms=case.after_max_ms)
    return case if release == "4.4" else case._replace(size_bytes_max=SINCE_44)


def answered(release: str, case: Sent) -> Answer:
    settings = case.settings
    settings.refuse_append_time = release == "2.8"
    try:
        done = validate(
            bytearray(case.data),
            settings,
            next_offset=NEXT_OFFSET,
            leader_epoch=LEADER_EPOCH,
            now_ms=NOW_MS,
            partition="t-0",
        )
    except KafkaError as refused:
        return Answer(None, int(refused.code), refused.message)
    return Answer(b"".join(done.chunks), 0, "")


def parsed(line: str) -> Answer:
    kind, rest = line.split(" ", 1)
    if kind == "stored":
        return Answer(bytes.fromhex(rest), 0, "")
    code, words = rest.split(" ", 1)
    return Answer(None, int(code), words)


def may_differ(release: str, case: Sent, theirs: Answer) -> bool:
    """Whether another code is expected: Kafka meets what is wrong with a batch in another order, or fails itself."""
    is_compressed = case.data[22] & 7 != 0
    if release == "2.8" and ("NullPointerException" in theirs.words or case.compacted):
        return True  # it fails where records end too early, and answers the first of several faults
    return is_compressed or leaves_64_bits(case) or case.codec != "producer"


def is_stricter_here(release: str, case: Sent) -> bool:
    """Whether it is one of the batches that Kafka takes and we do not: validate.py names them."""
    return leaves_64_bits(case) or has_wrong_sizes(release, case)


def leaves_64_bits(case: Sent) -> bool:
    (batch,) = batches(case.data)
    times = (batch.base_timestamp, batch.max_timestamp)
    return any(abs(time - NOW_MS) > REACH_MS for time in times)


def has_wrong_sizes(release: str, case: Sent) -> bool:
    (batch,) = batches(case.data)
    try:
        data = bytes(decompress(batch.codec, case.data[61:], 1 << 26))
    except DecompressionFailed:
        return release == "2.8"  # its zstd takes frames that are cut short
    return bool(batch.codec) and read(data, batch.count) is None


def shown(release: str, data: bytes) -> list[object]:
    """Return what batches say, but for what depends on the library that compressed them."""
    found: list[object] = []
    for batch in batches(data, strict=True):
        # 2.8 knows nothing of delete horizons, and drops their bit.
        found.append(batch.attributes & ~DELETE_HORIZON_BIT if release == "2.8" else batch.attributes)
        found += [getattr(batch, name) for name in HEADER]
        found += batch.records(check_crc=True)
    return found


def line_of(case: Sent) -> str:
    timestamp_type = "LogAppendTime" if case.timestamp_type == APPEND_TIME else "CreateTime"
    fields = (case.data.hex(), case.codec, timestamp_type, case.before_max_ms, case.after_max_ms)
    more = (str(case.compacted).lower(), case.size_bytes_max, NEXT_OFFSET, LEADER_EPOCH, NOW_MS)
    return " ".join(map(str, (*fields, *more))) + "\n"


def program(release: str, directory: Path) -> Path:
    """Write the program as it compiles with a release."""
    source = (kafka.HERE / "ValidateBatches.java").read_text()
    lines = [line for line in source.splitlines() if not re.search(r"// <.*>$", line) or line.endswith(f"<{release}>")]
    written = directory / "ValidateBatches.java"
    written.write_text("\n".join(lines))
    return written

"""Kafka's own MemoryRecords.filterTo and our batch filter keep the same of thousands of random batches."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random

import pytest

from minibroker.log.batches import Batch, batches
from minibroker.log.records import Record
from tests.cleaner.random_batches import NOW_MS, RETENTION_MS, Case

from . import kafka

pytestmark = [pytest.mark.interop, pytest.mark.slow]

CASES = 1500  # about 15 batches each
# Release, whether it rewrites formats v0 and v1, whether its packages have the names of 4.4.
RELEASES = (
    (kafka.Release("kafka_2.13", "3.9.2"), False),
    (kafka.STORAGE, True),
)
HEADER = (
    *(
        "magic",
        "attributes",
        "base_offset",
        "last_offset",
        "base_timestamp",
        "max_timestamp",
        "timestamp_type",
        "count",
    ),
    *("partition_leader_epoch", "producer_id", "producer_epoch", "base_sequence", "last_sequence", "delete_horizon"),
)
NO_PLACE_TO_STAY = "error: java.lang.IllegalStateException: Empty batches are only supported for magic v2"


@pytest.mark.parametrize(("release", "upgrades"), RELEASES, ids=lambda value: getattr(value, "version", ""))
def test_random_batches_are_filtered_as_kafka_filters_them(
    release: kafka.Release, upgrades: bool, tmp_path: Path
) -> None:
    cases = [Case(Random(seed)) for seed in range(CASES)]
    ours = [case.filtered(upgrades=upgrades) for case in cases]
    lines = [line_of(case, verdicts) for case, (_, verdicts) in zip(cases, ours, strict=True)]
    (tmp_path / "cases").write_text("".join(f"{line}\n" for line in lines))
    told = kafka.run(release, str(program(release, tmp_path)), str(tmp_path / "cases"), cwd=tmp_path)
    assert told.returncode == 0, told.stderr
    answers = told.stdout.splitlines()
    seen: Counter[str] = Counter()
    for seed, (answer, (found, _)) in enumerate(zip(answers, ours, strict=True)):
        made = b"".join(bytes(each.data) for each in found if each.data is not None)
        if answer.startswith(NO_PLACE_TO_STAY):
            seen["kafka fails"] += 1
            continue
        assert not answer.startswith("error"), (seed, answer)
        theirs = bytes.fromhex(answer)
        if not any(batch.codec for batch in batches(theirs)):
            assert made.hex() == theirs.hex(), seed
            seen["same bytes"] += 1
        assert shown(made) == shown(theirs), seed
        seen["same meaning"] += 1
    assert seen["same bytes"] > CASES / 4
    assert seen["same meaning"] + seen["kafka fails"] == CASES
    assert seen["kafka fails"] < CASES / 10


def program(release: kafka.Release, directory: Path) -> Path:
    source = (kafka.HERE / "FilterBatches.java").read_text()
    if release is not kafka.STORAGE:
        source = source.replace("record.internal.", "record.").replace("utils.internals.", "utils.")
    written = directory / "FilterBatches.java"
    written.write_text(source)
    return written


def line_of(case: Case, verdicts: list[bool]) -> str:
    producers = ",".join(f"{producer}:{last}:{epoch}" for producer, (last, epoch) in case.producers.items())
    latest = ",".join(f"{key.hex()}={offset}" for key, offset in case.latest.items())
    fields = (
        *(case.data.hex(), NOW_MS, RETENTION_MS, case.end_offset, int(case.keeps_old_tombstones)),
        *(case.uncleanable_offset, "".join(str(int(verdict)) for verdict in verdicts), producers, latest),
    )
    return "\t".join(map(str, fields))


def shown(data: bytes) -> list[tuple[dict[str, object], list[Record]]]:
    """Return all that is said in batches, but how long they are when compressed."""
    return [(header(batch), list(batch.records(check_crc=True))) for batch in batches(data, strict=True)]


def header(batch: Batch) -> dict[str, object]:
    return {name: getattr(batch, name) for name in HEADER}

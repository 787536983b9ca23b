"""`minibroker dump --compare`: what cleaning took, why, and what no cleaning takes."""

from __future__ import annotations

import re
import shutil
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from minibroker.cleaner.candidates import cleanable
from minibroker.cleaner.cleaner import Cleaned, clean
from minibroker.cli import main
from minibroker.in_pieces import finish
from minibroker.log.batches import batches
from minibroker.log.build import build_batch, build_transaction_marker
from minibroker.log.partition_log import PartitionLog
from minibroker.log.records import Record
from tests import goldens
from tests.interop.random_logs import RandomLog

PAIRS = [(f"{name}-1-before-clean", f"{name}-2-after-clean") for name in ("kraft39", "zk28")]
LOG = f"{0:020}.log"
HORIZON = 1_700_000_000_000


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, list[str], list[str]]:
    status = main(["dump", "--compare", *map(str, arguments)])
    printed = capsys.readouterr()
    return status, printed.out.splitlines(), printed.err.splitlines()


# What Kafka's cleaner has done


def unpacked(name: str, directory: Path) -> Path:
    for path, data in goldens.log_files(name).items():
        (directory / name / path).parent.mkdir(parents=True, exist_ok=True)
        (directory / name / path).write_bytes(data)
    return directory / name


def records_of(name: str, partition: str) -> dict[int, tuple[dict[str, Any], dict[str, Any]]]:
    """Return record and batch by offset, as Kafka reads them."""
    segments = goldens.log_meaning(name)["partitions"].get(partition, {"segments": []})["segments"]
    batches = [batch for segment in segments for batch in segment["batches"]]
    return {record["offset"]: (record, batch) for batch in batches for record in batch["records"]}


def aborted_of(*states: dict[int, tuple[dict[str, Any], dict[str, Any]]]) -> set[int]:
    """Return the offsets of data whose producer's next marker says ABORT."""
    found: set[int] = set()
    open_offsets: dict[int, set[int]] = {}
    everything = {offset: row for state in states for offset, row in state.items()}
    for offset, (record, batch) in sorted(everything.items()):
        if "controlType" in record:
            ended = open_offsets.pop(batch.get("producerId", -1), set())
            found |= ended if record["controlType"] == "ABORT" else set()
        elif batch.get("transactional"):
            open_offsets.setdefault(batch["producerId"], set()).add(offset)
    return found


@pytest.mark.parametrize(("before", "after"), PAIRS, ids=lambda name: name)
def test_what_kafkas_cleaner_took_is_listed_with_the_reason(
    before: str, after: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, lines, errors = run(
        capsys, unpacked(before, tmp_path), unpacked(after, tmp_path), "--deep-iteration", "--print-data-log"
    )
    assert (status, errors) == (0, [])
    listed: dict[str, dict[int, str]] = {}
    partition = ""
    for line in lines:
        if ": segments " in line:
            partition = line.split(": segments ")[0]
        elif match := re.match(r"  \| offset: (\d+) (.*)", line):
            listed.setdefault(partition, {})[int(match[1])] = match[2]
    seen = 0
    for partition in goldens.log_meaning(before)["partitions"]:
        old, new = records_of(before, partition), records_of(after, partition)
        gone = {offset for offset in old if offset not in new}
        assert listed.get(partition, {}).keys() == gone
        aborted = aborted_of(old, new)
        for offset in gone:
            why = listed[partition][offset]
            if offset in aborted:
                assert why.startswith("aborted")
                continue
            match = re.match(r"superseded by (\d+) key: (\S+)", why)
            assert match, why
            later, _ = new[int(match[1])]
            assert int(match[1]) > offset
            assert later["key"] == old[offset][0]["key"] == match[2]
            seen += 1
    assert seen > 50


@pytest.mark.parametrize(("before", "after"), PAIRS, ids=lambda name: name)
def test_the_sums_are_those_of_kafkas_reader(
    before: str, after: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, lines, _ = run(capsys, unpacked(before, tmp_path), unpacked(after, tmp_path))
    sums = [re.match(r"(\S+): (\d+) records? -> (\d+); (\d+) -> (\d+) bytes", line) for line in lines]
    found = {match[1]: tuple(map(int, match.groups()[1:])) for match in sums if match}
    for partition, meaning in goldens.log_meaning(before)["partitions"].items():
        old, new = records_of(before, partition), records_of(after, partition)
        end = meaning["logEndOffset"]
        kept = [batch for segment in _segments(after, partition) for batch in segment["batches"]]
        assert found[partition] == (
            len(old),
            len(old.keys() & new.keys()),
            sum(segment["bytes"] for segment in meaning["segments"]),
            sum(batch["size"] for batch in kept if batch["lastOffset"] < end),
        )


def _segments(name: str, partition: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = goldens.log_meaning(name)["partitions"][partition]["segments"]
    return found


def test_horizons_markers_and_merged_segments_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before, after = (unpacked(name, tmp_path) / "txn-compact-0" for name in PAIRS[0])
    status, lines, _ = run(capsys, before, after)
    assert status == 0
    assert lines[0] == "txn-compact-0: segments 6 -> 4, cleaned up to 44"
    horizons = [
        (batch["baseOffset"], batch["deleteHorizonMs"])
        for segment in _segments(PAIRS[0][1], "txn-compact-0")
        for batch in segment["batches"]
        if "deleteHorizonMs" in batch
    ]
    assert [int(line.split("..")[0]) for line in lines if "delete horizon" in line] == [
        offset for offset, _ in horizons
    ]
    assert {horizon for _, horizon in horizons} == {1795343726143}
    assert "  5..5: 78 -> 81 bytes; ABORT of producer 5; delete horizon 2026-11-22T10:35:26.143Z" in lines
    assert "  24..24: 85 -> 61 bytes; gone: 1 aborted; kept empty for the sequence of producer 4" in lines
    at = lines.index("00000000000000000026.log")
    assert lines[at + 7] == (
        "  6 records -> 0; 816 -> 0 bytes; gone: 6 superseded; merged into 00000000000000000000.log"
    )


def test_of_a_partition_that_was_left_alone_there_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before, after = (unpacked(name, tmp_path) for name in PAIRS[0])
    status, lines, _ = run(capsys, before / "plain-0", after / "plain-0", "--deep-iteration")
    assert (status, lines) == (0, ["plain-0: 40 records -> 40; 2230 -> 2230 bytes; new: 6 records, 390 bytes"])
    assert run(capsys, after, after)[1][-1].endswith("583 records -> 583; 43434 -> 43434 bytes")


def test_of_a_single_file_not_more_is_said_than_can_be_known(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = f"compact-0/{12:020}.log"
    before, after = (unpacked(each, tmp_path) / name for each in PAIRS[0])
    status, lines, _ = run(capsys, before, after)
    assert status == 0
    assert lines[-1].endswith(
        "10 records -> 2; 604 -> 157 bytes; gone: 3 superseded, 5 for reasons outside of the file"
    )


# What may happen to a log, made by hand


def record(offset: int, key: str | None, value: str | None = "v") -> Record:
    return Record(
        key.encode() if key else None, value.encode() if value else None, (), 1_600_000_000_000 + offset, offset
    )


def batch(*records: Record, **fields: Any) -> bytes:
    return build_batch(2, records, **fields)


def marker(offset: int, *, commit: bool, producer: int = 7) -> bytes:
    return build_transaction_marker(
        commit=commit, offset=offset, timestamp=1, producer_id=producer, producer_epoch=0, coordinator_epoch=0
    )


Segments = dict[int, list[bytes]]


def written(path: Path, segments: Segments) -> Path:
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir(parents=True)
    for base, parts in segments.items():
        (path / f"{base:020}.log").write_bytes(b"".join(parts))
    return path


A0, B1, A2 = record(0, "a"), record(1, "b"), record(2, "a", "w")
DEAD = record(3, "b", None)
TAIL = batch(record(9, "z"))  # the active segment, so that the log does not end earlier
DATA = batch(record(0, "a"), producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)

EXPLAINED: list[tuple[str, Segments, Segments, list[str]]] = [
    (
        "a batch is rewritten, and the rest of it stays",
        {0: [batch(A0, B1), batch(A2)], 9: [TAIL]},
        {0: [batch(B1, base_offset=0), batch(A2)], 9: [TAIL]},
        ["  0..1: 79 -> 70 bytes; gone: 1 superseded", "  | offset: 0 superseded by 2"],
    ),
    (
        "a tombstone gets its horizon",
        {0: [batch(B1), batch(DEAD)], 9: [TAIL]},
        {0: [batch(DEAD, delete_horizon=HORIZON)], 9: [TAIL]},
        ["  | offset: 1 superseded by 3", "  3..3: 69 -> 74 bytes; delete horizon 2023-11-14T22:13:20.000Z"],
    ),
    (
        "a tombstone expires, and what it superseded goes with it",
        {0: [batch(B1), batch(DEAD, delete_horizon=HORIZON)], 9: [TAIL]},
        {0: [], 9: [TAIL]},
        ["  | offset: 1 superseded by 3, which has gone as well", "  | offset: 3 expired"],
    ),
    (
        "records without key",
        {0: [batch(record(0, None), B1)], 9: [TAIL]},
        {0: [batch(B1, base_offset=0)], 9: [TAIL]},
        ["  | offset: 0 without key"],
    ),
    (
        "an aborted transaction, then its marker",
        {0: [DATA, marker(1, commit=False)], 9: [TAIL]},
        {0: [], 9: [TAIL]},
        ["  | offset: 0 aborted", "  1..1: 78 -> 0 bytes; ABORT of producer 7; gone: 1 marker"],
    ),
    (
        "the transaction was still open, and is aborted behind what there was",
        {0: [DATA]},
        {0: [], 1: [marker(1, commit=False)]},
        ["  | offset: 0 aborted"],
    ),
    (
        "the last batch of a producer stays empty, and so does the end of what was cleaned",
        {0: [batch(A0), batch(B1, producer_id=7, producer_epoch=0, base_sequence=0), batch(A2)], 3: [batch(DEAD)]},
        {
            0: [
                batch(base_offset=0, last_offset=0),
                batch(base_offset=1, last_offset=1, producer_id=7, producer_epoch=0, base_sequence=0),
                batch(A2),
            ],
            3: [batch(DEAD)],
        },
        [
            "  0..0: 70 -> 61 bytes; gone: 1 superseded; kept empty for its offsets",
            "  1..1: 70 -> 61 bytes; gone: 1 superseded; kept empty for the sequence of producer 7",
        ],
    ),
    (
        "format and codec",
        {0: [build_batch(1, [A0, B1], codec=1)], 9: [TAIL]},
        {0: [batch(A0, B1)], 9: [TAIL]},
        ["format v1 -> v2; codec gzip -> none"],
    ),
    (
        "retention takes whole segments from the old end",
        {0: [batch(A0), batch(B1)], 2: [batch(A2)], 9: [TAIL]},
        {2: [batch(A2)], 9: [TAIL]},
        [
            "  0..1: 2 batches gone with their segment, 140 bytes, newest record 2020-09-13T12:26:40.001Z",
            "  2 records -> 0; 140 -> 0 bytes; gone: 2 with their segment; deleted",
        ],
    ),
    (
        "all of it: an empty segment says where the log goes on",
        {0: [batch(A0)], 1: [batch(B1)]},
        {2: []},
        ["part-0: segments 2 -> 1", "part-0: 2 records -> 0; 140 -> 0 bytes; gone: 2 with their segment"],
    ),
    (
        "the other one begins earlier",
        {9: [TAIL, batch(record(10, "k")), batch(record(11, "k"))]},
        {0: [batch(A0)], 9: [TAIL, batch(record(11, "k"))]},
        ["  0..0: 1 batch of which there was nothing to compare, 70 bytes"],
    ),
]


@pytest.mark.parametrize(
    ("before", "after", "said"), [case[1:] for case in EXPLAINED], ids=[case[0] for case in EXPLAINED]
)
def test_what_cleaning_does_is_explained(
    before: Segments, after: Segments, said: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old, new = written(tmp_path / "old/part-0", before), written(tmp_path / "new/part-0", after)
    status, lines, errors = run(capsys, old, new, "--deep-iteration")
    assert (status, errors) == (0, []), lines
    for each in said:
        assert any(each in line for line in lines), lines


LOST: list[tuple[str, Segments, Segments, str]] = [
    (
        "the last record of a key",
        {0: [batch(A0), batch(B1)], 9: [TAIL]},
        {0: [batch(A0)], 9: [TAIL]},
        "offset 1 has gone, and it was the last of its key",
    ),
    (
        "a tombstone whose key lives on",
        {0: [batch(B1), batch(DEAD)], 9: [TAIL]},
        {0: [batch(B1)], 9: [TAIL]},
        "offset 3 has gone, and an older record of its key, at 1, is still there",
    ),
    (
        "a later record that was aborted does not supersede",
        {
            0: [batch(A0), batch(A2, producer_id=7, base_sequence=0, transactional=True), marker(3, commit=False)],
            9: [TAIL],
        },
        {0: [batch(A2, producer_id=7, base_sequence=0, transactional=True), marker(3, commit=False)], 9: [TAIL]},
        "offset 0 has gone, and it was the last of its key",
    ),
    (
        "a marker before its data",
        {0: [DATA, marker(1, commit=True)], 9: [TAIL]},
        {0: [DATA], 9: [TAIL]},
        "offset 1 has gone, and offset 0 of the transaction it ends is left",
    ),
    (
        "another value",
        {0: [batch(A0)], 9: [TAIL]},
        {0: [batch(record(0, "a", "?"))], 9: [TAIL]},
        "offset 0 is another record now: value",
    ),
    (
        "what was not there",
        {0: [batch(A0), batch(DEAD)], 9: [TAIL]},
        {0: [batch(A0), batch(B1), batch(DEAD)], 9: [TAIL]},
        "offset 1 was not there before",
    ),
    (
        "the end of the log",
        {0: [batch(A0), batch(A2)]},
        {0: [batch(A0)]},
        "offset 2 has gone, and the log ends at 1 now",
    ),
    (
        "a checksum",
        {0: [batch(A0)], 9: [TAIL]},
        {0: [batch(A0)[:-2] + b"?" + batch(A0)[-1:]], 9: [TAIL]},
        "the checksum of the batch at byte 0",
    ),
    (
        "half a batch",
        {0: [batch(A0)], 9: [TAIL]},
        {0: [batch(A0)], 9: [TAIL, TAIL[:30]]},
        "no whole batch at byte 70",
    ),
]


@pytest.mark.parametrize(("before", "after", "said"), [case[1:] for case in LOST], ids=[case[0] for case in LOST])
def test_what_no_cleaning_does_is_a_fault(
    before: Segments, after: Segments, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old, new = written(tmp_path / "old/part-0", before), written(tmp_path / "new/part-0", after)
    status, _, errors = run(capsys, old, new)
    assert status == 1
    assert any(said in line for line in errors), errors
    assert run(capsys, old, old)[0] == 0 or said.startswith("no whole")


def test_records_behind_what_was_cleaned_supersede_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before: Segments = {0: [batch(B1), batch(DEAD, delete_horizon=HORIZON)], 5: [batch(record(5, "b", "again"))]}
    after: Segments = {0: [], 5: [batch(record(5, "b", "again"))]}
    old, new = written(tmp_path / "old/part-0", before), written(tmp_path / "new/part-0", after)
    assert "  | offset: 3 superseded by 5" in run(capsys, old, new, "--deep-iteration")[1]
    (tmp_path / "new/cleaner-offset-checkpoint").write_text("0\n1\npart 0 5\n")
    status, lines, _ = run(capsys, old, new, "--deep-iteration")
    assert status == 0
    assert lines[0] == "part-0: segments 2 -> 2, cleaned up to 5"
    assert "  | offset: 1 superseded by 3, which has gone as well" in lines
    assert "  | offset: 3 expired" in lines


# What our own cleaner does


@pytest.mark.slow
def test_what_our_cleaner_does_is_explained_and_what_it_would_never_do_is_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Random logs with everything in them; a record is taken from the tail besides, if one is there that must stay."""
    seen: set[str] = set()
    faults = 0
    for seed in range(8):
        dirty = RandomLog(tmp_path / f"{seed}", seed)
        first_dirty, before = None, tmp_path
        for number in range(3):
            dirty.grow()
            before = tmp_path / f"{seed}-{number}"
            shutil.copytree(dirty.root, before)
            dirty.now_ms += 10_000
            first_dirty = cleaned(dirty.open(), first_dirty, dirty.now_ms)
            (dirty.root / "cleaner-offset-checkpoint").write_text(f"0\n1\nrandom 0 {first_dirty}\n")
            status, lines, errors = run(capsys, before, dirty.root, "--deep-iteration")
            assert (status, errors) == (0, []), f"seed {seed}, pass {number}"
            seen |= {line.split()[3] for line in lines if line.startswith("  | ")}
            dirty.open()
        dirty.log.close()
        if first_dirty and without_one_record(dirty.path, first_dirty):
            assert run(capsys, before, dirty.root)[0] == 1, f"seed {seed}, one record less"
            faults += 1
    assert seen >= {"superseded", "aborted", "marker", "expired", "without"}
    assert faults > 4


def cleaned(log: PartitionLog, first_dirty: int | None, now_ms: int) -> int:
    """Compact a log as far as it may be; return where that is."""
    stable_offset = log.last_stable_offset(log.log_end_offset)
    candidate = cleanable(log, first_dirty_offset=first_dirty, last_stable_offset=stable_offset, now_ms=now_ms)
    found: Cleaned = finish(clean(log, candidate, now_ms=now_ms, map_bytes_max=1 << 20))
    log.close()
    return found.end_offset


def without_one_record(directory: Path, end_offset: int) -> bool:
    """Take a batch out of what is compacted, one with a value that nobody aborted."""
    for path in sorted(directory.glob("*.log")):
        data = path.read_bytes()
        for found in batches(data):
            if found.is_transactional or found.next_offset > end_offset:
                continue
            if any(each.key is not None and each.value is not None for each in found.records()):
                path.write_bytes(data[: found.position] + data[found.end_position :])
                return True
    return False


def test_partitions_that_are_not_in_both_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("old/kept-0", "old/lost-0", "new/kept-0", "new/made-1"):
        written(tmp_path / name, {0: [batch(A0)]})
    (tmp_path / "new/lost-0.5d1-delete").mkdir()
    status, lines, errors = run(capsys, tmp_path / "old", tmp_path / "new")
    assert (status, errors) == (1, ["lost-0: the partition is not there any more"])
    assert "made-1: new: 1 record, 70 bytes" in lines
    assert (
        lines[-1]
        == "3 partitions: 2 records -> 1; 140 -> 70 bytes; gone: 1 with their segment; new: 1 record, 70 bytes"
    )


def test_many_faults_are_counted_and_not_all_named_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [record(offset, f"k{offset}") for offset in range(100)]
    old, new = written(tmp_path / "old/p-0", {0: [batch(*rows)]}), written(tmp_path / "new/p-0", {0: [batch(rows[-1])]})
    _, lines, errors = run(capsys, old, new)
    assert sum(line.startswith("  ! ") for line in lines) == 99
    assert (len(errors), errors[-1]) == (21, "p-0: and 79 more")


def test_what_cannot_be_compared_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directory = written(tmp_path / "part-0", {0: [batch(A0)]})
    (tmp_path / "empty").mkdir()
    assert run(capsys, directory)[0] == 2
    assert run(capsys, directory, tmp_path / "empty")[2] == [f"minibroker dump: {tmp_path}/empty: holds no logs"]
    assert run(capsys, directory, tmp_path / "missing")[0] == 2
    (directory / LOG).write_bytes(bytes(100))
    status, _, errors = run(capsys, directory, directory)
    assert status == 1
    assert "Found record size 0" in errors[0]


def test_values_are_not_held(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    value = "x" * 100_000
    batches = [batch(record(offset, f"key-{offset % 3}", value)) for offset in range(100)]
    old, new = written(tmp_path / "old/p-0", {0: batches}), written(tmp_path / "new/p-0", {0: batches[-3:]})
    run(capsys, new, old)  # imports everything
    tracemalloc.start()
    try:
        status, lines, _ = run(capsys, old, new)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (status, lines[-1].split("gone: ")[1]) == (0, "97 superseded")
    assert peak < 2_000_000  # of 10 MB

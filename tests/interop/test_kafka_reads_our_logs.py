"""Kafka's own classes read the directories that our log wrote: its dump tool, and the log of its broker."""

from __future__ import annotations

import shutil
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from tempfile import mkdtemp

import pytest

from minibroker.cli import main
from minibroker.log.batches import Batch
from minibroker.log.directory import LogDirectory
from minibroker.log.partition_log import PartitionLog
from minibroker.log.producers import read_snapshot
from minibroker.log.records import Record
from minibroker.log.storage import OsStorage
from minibroker.tools.verify.log_directory import VerifiedCounts, verify_directory
from tests.log.audit import all_batches, audit
from tests.log.written import START_MS, settings, write_logs

from . import kafka

pytestmark = [pytest.mark.interop, pytest.mark.slow]

SUFFIXES = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")
FLAGS = (("--print-data-log", "--deep-iteration"), ("--index-sanity-check",), ("--verify-index-only",))


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("written")
    write_logs(OsStorage(str(root)))
    return root


@pytest.fixture
def directory(written: Path, tmp_path: Path) -> Path:
    """A copy for those who change it."""
    return shutil.copytree(written, tmp_path / "logs")


@contextmanager
def opened(directory: Path) -> Iterator[dict[str, PartitionLog]]:
    found = LogDirectory(OsStorage(str(directory)))
    found.start()
    try:
        yield {
            f"{topic}-{number}": found.open(topic, number, settings(), now_ms=START_MS)
            for topic, number in found.found()
        }
    finally:
        for log in found.logs.values():
            log.close()


# kafka-dump-log


@pytest.mark.parametrize("flags", FLAGS, ids=lambda flags: flags[0])
@pytest.mark.parametrize("release", kafka.DUMPS, ids=lambda release: release.version)
def test_kafkas_dump_tool_finds_our_files_sane_and_prints_what_ours_prints(
    release: kafka.Release,
    flags: tuple[str, ...],
    written: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    files = [path.relative_to(written).as_posix() for path in sorted(written.rglob("*")) if path.suffix in SUFFIXES]
    assert {path.rpartition(".")[2] for path in files} == {suffix[1:] for suffix in SUFFIXES}
    arguments = ["--files", ",".join(files), *flags]
    theirs = kafka.run(release, release.dump_class, *arguments, cwd=written)
    assert (theirs.returncode, complaints(theirs.stderr)) == (0, [])
    monkeypatch.chdir(written)
    assert main(["dump", "--release", release.words, *arguments]) == 0
    ours = capsys.readouterr()
    assert ours.out.splitlines() == theirs.stdout.splitlines()
    assert ours.err == ""
    if flags == ("--index-sanity-check",):
        sane = [
            line.split()[0] for line in theirs.stdout.splitlines() if line.endswith(("passed sanity check.", "empty."))
        ]
        assert sane == [path for path in files if path.endswith((".index", ".timeindex"))]
    elif "--deep-iteration" in flags:
        with opened(written_copy(written)) as logs:
            records = sum(batch.count for log in logs.values() for batch in all_batches(log))
        assert sum(line.startswith("|") for line in theirs.stdout.splitlines()) == records


def complaints(text: str) -> list[str]:
    """Return what the tool says on standard error. That of 4.x counts records from -1 on, in every file."""
    lines = [line for line in text.splitlines() if line and "SLF4J" not in line and "-1 is followed by" not in line]
    return [
        line
        for line, after in pairwise([*lines, ""])
        if not (line.startswith("Non-consecutive offsets in") and not after.startswith(" "))
    ]


def written_copy(written: Path) -> Path:
    """Opening takes the clean mark away, so it is done to a copy."""
    return shutil.copytree(written, Path(mkdtemp(dir=written.parent)) / written.name)


# The log of a broker


def facts_of_kafka(how: str, directory: Path) -> dict[str, dict[str, list[tuple[str, ...]]]]:
    """Open every log with Kafka's UnifiedLog; return what it says, by log and kind."""
    with opened(written_copy(directory)) as logs:
        starts = {name: log.log_start_offset for name, log in logs.items()}
    told = kafka.run(
        kafka.STORAGE,
        str(kafka.HERE / "OpenLogs.java"),
        how,
        *(f"{name}={start}" for name, start in starts.items()),
        cwd=directory,
    )
    assert told.returncode == 0, told.stderr
    facts: dict[str, dict[str, list[tuple[str, ...]]]] = {name: defaultdict(list) for name in starts}
    for line in told.stdout.splitlines():
        name, kind, *fields = line.split("\t")
        facts[name][kind].append(tuple(fields))
    return facts


def facts_of(log: PartitionLog) -> dict[str, list[tuple[str, ...]]]:
    """Return the same of our log."""
    log.producers.on_high_watermark_updated(log.log_end_offset)
    stable = log.last_stable_offset(log.log_end_offset)
    facts = {
        "bounds": [(log.log_start_offset, log.log_end_offset, stable, len(log.segments))],
        "record": [
            shown(batch, record)
            for batch in all_batches(log)
            for record in batch.records(check_crc=True)
            if record.offset >= log.log_start_offset
        ],
        "aborted": [
            (entry.producer_id, entry.first_offset, entry.last_offset, entry.last_stable_offset)
            for segment in log.segments
            for entry in segment.transaction_index.entries()
        ],
        "producer": [
            (
                *(entry.producer_id, entry.epoch, entry.last_sequence, entry.last_offset),
                *(entry.coordinator_epoch, entry.current_txn_first_offset),
            )
            for entry in read_snapshot(log.producers.snapshot_bytes())
        ],
        "epoch": [(entry.epoch, entry.start_offset) for entry in log.epochs.entries],
    }
    return {kind: [tuple(map(str, row)) for row in rows] for kind, rows in facts.items() if rows}


def shown(batch: Batch, record: Record) -> tuple[object, ...]:
    headers = " ".join(f"{key.encode().hex()}={hexed(value)}" for key, value in record.headers)
    return (
        *(record.offset, record.timestamp, hexed(record.key), hexed(record.value), headers),
        *(batch.magic, batch.codec, batch.timestamp_type, batch.producer_id, batch.base_sequence),
        *(str(batch.is_control).lower(), batch.partition_leader_epoch),
    )


def hexed(data: bytes | None) -> str:
    return "null" if data is None else data.hex()


def derived(directory: Path) -> dict[str, bytes]:
    """Return every file of every log, but for what Kafka 4.4 leaves without meaning: see `without_padding`."""
    found = {
        path.relative_to(directory).as_posix(): without_padding(path)
        for path in directory.rglob("*")
        if path.suffix in SUFFIXES or path.name == "leader-epoch-checkpoint"
    }
    return {name: data for name, data in found.items() if data or not name.endswith("checkpoint")}


def without_padding(path: Path) -> bytes:
    """Return the bytes without the zeros that it leaves behind the active indexes, and none of an empty checkpoint."""
    data = path.read_bytes()
    if path.name.endswith("checkpoint"):
        return b"" if data == b"0\n0\n" else data
    return data.rstrip(b"\0") if path.name.endswith("index") else data


def test_kafkas_broker_sees_what_we_see_after_a_clean_stop_and_changes_no_file(directory: Path, written: Path) -> None:
    with opened(written_copy(written)) as logs:
        assert facts_of_kafka("clean", directory) == {name: facts_of(log) for name, log in logs.items()}
    assert derived(directory) == derived(written)


def test_kafkas_recovery_of_our_logs_makes_the_files_that_ours_makes(directory: Path, tmp_path: Path) -> None:
    ours = shutil.copytree(directory, tmp_path / "ours")
    for name in (".kafka_cleanshutdown", "recovery-point-offset-checkpoint"):
        (ours / name).unlink()
    with opened(ours) as logs:
        assert facts_of_kafka("recover", directory) == {name: facts_of(log) for name, log in logs.items()}
        assert {log.recovery.cut_bytes for log in logs.values()} == {0}
    theirs, made = derived(directory), derived(ours)
    # Kafka keeps fewer snapshots.
    assert {name for name in theirs.keys() ^ made.keys() if not name.endswith(".snapshot")} == set()
    for name in sorted(theirs.keys() & made.keys()):
        assert made[name] == theirs[name], name


def check_appended(log: PartitionLog, old: list[tuple[str, ...]]) -> None:
    """Check what Kafka has put behind the records that were there."""
    rows = audit(log)
    assert [str(row.offset) for row in rows[: len(old)]] == [fields[0] for fields in old]
    new = rows[len(old) :]
    assert [row.value for row in new[:-2]] == [
        b"wrote %d/%d" % (batch, record) + b" " * 40 for batch in range(10) for record in range(3)
    ]
    assert [row.value for row in new[-2:]] == [b"aborted", bytes(6)]
    assert [batch.codec for batch in all_batches(log)[-12:]] == [0, 1, 2, 3, 4] * 2 + [0, 0]
    assert log.segments[-1].transaction_index.entries()[-1].producer_id == 77
    assert log.epochs.latest_epoch == 20
    assert log.producers.producers[77].last_sequence == 0
    audit(log)


def test_what_kafkas_broker_appends_to_our_logs_we_see_behind_our_own(directory: Path) -> None:
    before = facts_of_kafka("append", directory)
    (directory / "recovery-point-offset-checkpoint").unlink()  # Kafka's LogManager would have written it anew
    verified = VerifiedCounts()
    assert [str(problem) for problem in verify_directory(OsStorage(str(directory)), verified)] == []
    assert verified.logs == len(before)
    with opened(directory) as logs:
        for name, log in logs.items():
            check_appended(log, before[name]["record"])

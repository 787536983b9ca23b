"""Directories of real brokers are opened as they lie, and everything in them is what Kafka reads there."""

from __future__ import annotations

from typing import Any

import pytest

from minibroker.log import reading
from minibroker.log.aborted import aborted_transactions
from minibroker.log.batches import batches
from minibroker.log.directory import METADATA_LOG, LogDirectory, split_name
from minibroker.log.memory_storage import MemoryStorage
from minibroker.log.partition_log import PartitionLog
from minibroker.log.recovery import open_log
from minibroker.log.settings import LogSettings
from minibroker.tools.verify.log_directory import VerifiedCounts, verify_directory
from tests import goldens

from .answers import Answers, answers
from .audit import all_batches, audit
from .golden_batches import header_in, header_of, records_of

pytestmark = pytest.mark.outside  # whole directories of Kafka's: ten seconds in all

DERIVED = (".index", ".timeindex", ".txnindex", ".snapshot")
LOGS = [(name, log) for name in goldens.LOG_DIRECTORIES for log in goldens.log_meaning(name)["partitions"]]
IDS = [f"{name}-{log}" for name, log in LOGS]


def settings_of(log: str) -> LogSettings:
    return LogSettings(index_interval_bytes=200, compact="compact" in log or log.startswith("__"))


def stored(files: dict[str, bytes]) -> MemoryStorage:
    storage = MemoryStorage(int)
    for path, data in files.items():
        if "/" in path:
            storage.make_directory(path.split("/")[0])
        storage.open(path, create=True).append([data])
    return storage


def stored_log(name: str, log: str, without: str = "") -> MemoryStorage:
    return stored(
        {path: data for path, data in goldens.log_files(name).items() if path.startswith(f"{log}/") and path != without}
    )


def start_offset(name: str, log: str) -> int:
    rows = goldens.log_meaning(name)["checkpoints"].get("log-start-offset-checkpoint", [])
    starts = {"-".join(row.split()[:2]): int(row.split()[2]) for row in rows if row.count(" ") == 2}
    return starts.get(log, 0)


def opened(storage: MemoryStorage, name: str, log: str, *, was_clean: bool, recovery_point: int = 0) -> PartitionLog:
    settings = settings_of(log)
    return open_log(
        storage,
        log,
        settings,
        was_clean=was_clean,
        recovery_point=recovery_point,
        log_start_offset=start_offset(name, log),
        contiguous=not settings.compact,
    )


def due(name: str, log: str) -> dict[str, Any]:
    meaning: dict[str, Any] = goldens.log_meaning(name)["partitions"][log]
    return meaning


def has_gaps(name: str, log: str) -> bool:
    """Whether the cleaner has taken something away, so that what is derived from it cannot be derived again."""
    expected = 0
    for segment in due(name, log)["segments"]:
        for batch in segment["batches"]:
            offsets = [record["offset"] for record in batch["records"]]
            if offsets != list(range(expected, batch["lastOffset"] + 1)):
                return True
            expected = batch["lastOffset"] + 1
    return False


def committed(log: PartitionLog) -> list[int]:
    """Read to the end as a consumer that wants only what is committed."""
    limit = log.last_stable_offset(log.log_end_offset)
    offset, seen = log.log_start_offset, []
    while (piece := reading.read(log, offset, 100, limit_offset=limit)) is not None:
        aborted = aborted_transactions(log, piece, offset)
        for batch in batches(piece.view()):
            for record in () if batch.is_control else batch.records(check_crc=True):
                is_aborted = batch.is_transactional and any(
                    entry.producer_id == batch.producer_id and entry.first_offset <= record.offset < entry.last_offset
                    for entry in aborted
                )
                if record.offset >= offset and not is_aborted:
                    seen.append(record.offset)
            next_offset = batch.next_offset
        offset = next_offset
    return seen


def assert_is_what_kafka_reads(log: PartitionLog, meaning: dict[str, Any], start: int) -> None:
    log.producers.on_high_watermark_updated(log.log_end_offset)
    found = all_batches(log)
    shown = [batch for segment in meaning["segments"] for batch in segment["batches"]]
    assert [header_in(batch, header_of(one)) for batch, one in zip(found, shown, strict=True)] == list(
        map(header_of, shown)
    )
    assert [list(batch.records(check_crc=True)) for batch in found] == list(map(records_of, shown))
    assert [segment.base_offset for segment in log.segments] == [segment["base"] for segment in meaning["segments"]]
    assert [segment.size_bytes for segment in log.segments] == [segment["bytes"] for segment in meaning["segments"]]
    assert log.log_start_offset == max(start, meaning["segments"][0]["base"])
    assert log.log_end_offset == meaning["logEndOffset"]
    assert log.last_stable_offset(log.log_end_offset) == meaning["lastStableOffset"]
    transactions = {
        producer_id: producer.transaction_first_offset for producer_id, producer in log.producers.producers.items()
    }
    assert [list(one) for one in transactions.items() if one[1] is not None] == meaning["openTransactions"]
    assert committed(log) == [offset for offset in meaning["committedOffsets"] if offset >= start]
    epochs = [tuple(map(int, row.split())) for row in meaning.get("leader-epoch-checkpoint", ())[2:]]
    # An epoch in which nothing was written goes at the start, as Kafka does it: its leader may never have had it.
    known = [(entry.epoch, entry.start_offset) for entry in log.epochs.entries]
    assert known == [entry for entry in epochs if entry[1] < meaning["logEndOffset"]]


def assert_aborted_are(log: PartitionLog, meaning: dict[str, Any]) -> None:
    for segment, one in zip(log.segments, meaning["segments"], strict=True):
        entries = [
            {
                "producerId": entry.producer_id,
                "firstOffset": entry.first_offset,
                "lastOffset": entry.last_offset,
                "lastStableOffset": entry.last_stable_offset,
            }
            for entry in segment.transaction_index.entries()
        ]
        assert entries == one.get("txnindex", [])


@pytest.mark.parametrize("name", goldens.LOG_DIRECTORIES)
def test_a_brokers_directory_opens_and_holds_what_kafka_reads_in_it(name: str) -> None:
    directory = LogDirectory(stored(goldens.log_files(name)))
    directory.start()
    meaning = goldens.log_meaning(name)
    assert directory.was_clean == ("killed" not in name)
    metadata = {f"{topic}-{partition}" for topic, partition in [METADATA_LOG]}
    assert {f"{topic}-{partition}" for topic, partition in directory.found()} == set(meaning["partitions"]) - metadata
    for topic, partition in directory.found():
        path = f"{topic}-{partition}"
        log = directory.open(topic, partition, settings_of(path), now_ms=0)
        assert_is_what_kafka_reads(log, meaning["partitions"][path], start_offset(name, path))
        assert_aborted_are(log, meaning["partitions"][path])
        assert log.recovery.cut_bytes == 0
    for row in meaning["checkpoints"]["replication-offset-checkpoint"][2:]:
        topic, number, offset = row.split()
        assert directory.high_watermarks[topic, int(number)] == int(offset)


@pytest.mark.parametrize("was_clean", [True, False], ids=["clean", "scanned"])
@pytest.mark.parametrize(("name", "log"), LOGS, ids=IDS)
def test_a_scan_changes_nothing_in_what_is_served(name: str, log: str, was_clean: bool) -> None:
    storage = stored_log(name, log)
    found = opened(storage, name, log, was_clean=was_clean)
    assert_is_what_kafka_reads(found, due(name, log), start_offset(name, log))
    if was_clean or not has_gaps(name, log):
        assert_aborted_are(found, due(name, log))
    assert (found.recovery.cut_bytes, found.recovery.reason) == (0, "")
    assert answers(found) == untouched(name, log)
    audit(found)
    before = {
        path: storage.open(f"{log}/{path}").map().tobytes() for path in storage.list(log) if path.endswith(".log")
    }
    found.close()
    again = opened(storage, name, log, was_clean=True)
    assert answers(again) == untouched(name, log)
    assert before == {path: storage.open(f"{log}/{path}").map().tobytes() for path in before}


KEPT: dict[tuple[str, str], Answers] = {}


def untouched(name: str, log: str) -> Answers:
    """Return what a log answers that is opened as the broker left it."""
    if (name, log) not in KEPT:
        KEPT[name, log] = answers(opened(stored_log(name, log), name, log, was_clean=True))
    return KEPT[name, log]


@pytest.mark.parametrize("was_clean", [True, False], ids=["clean", "scanned"])
@pytest.mark.parametrize(("name", "log"), LOGS, ids=IDS)
def test_a_derived_file_that_is_gone_is_not_missed(name: str, log: str, was_clean: bool) -> None:
    for path in goldens.log_files(name):
        if path.startswith(f"{log}/") and path.endswith(DERIVED):
            found = opened(stored_log(name, log, without=path), name, log, was_clean=was_clean)
            assert answers(found) == untouched(name, log), path


@pytest.mark.parametrize("name", goldens.LOG_DIRECTORIES)
def test_verify_finds_nothing_in_what_kafka_wrote(name: str) -> None:
    verified = VerifiedCounts()
    problems = [str(problem) for problem in verify_directory(stored(goldens.log_files(name)), verified)]
    assert [text for text in problems if ".deleted: " not in text] == []
    meaning = goldens.log_meaning(name)["partitions"].values()
    shown = [batch for log in meaning for segment in log["segments"] for batch in segment["batches"]]
    assert (verified.logs, verified.batches) == (len(meaning), len(shown))
    assert verified.records == sum(len(batch["records"]) for batch in shown)
    assert all(split_name(log) for log in goldens.log_meaning(name)["partitions"])

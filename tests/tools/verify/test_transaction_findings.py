"""Transactions within a segment and across its borders, against .txnindex; and how much of a segment is handed on."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from minibroker.log.build import build_batch, build_transaction_marker
from minibroker.log.index import FIRST, LAST_STABLE, TXN_ENTRY
from minibroker.log.partition_log import PartitionLog
from minibroker.log.records import Record
from minibroker.log.recovery import open_log
from minibroker.log.settings import LogSettings
from minibroker.log.storage import OsStorage
from minibroker.tools.verify.log_directory import LogVerifier, VerifiedCounts, verify_directory

OPEN, OTHER, THIRD = 11, 12, 13


def write(log: PartitionLog, producer_id: int, sequence: int) -> None:
    offset = log.log_end_offset
    batch = build_batch(
        2,
        [Record(b"k", b"x" * 20, (), offset)],
        base_offset=offset,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=sequence,
        transactional=True,
    )
    log.append_as_follower(batch, now_ms=0)


def end(log: PartitionLog, producer_id: int, *, commit: bool = False) -> None:
    offset = log.log_end_offset
    marker = build_transaction_marker(
        commit=commit, offset=offset, timestamp=offset, producer_id=producer_id, producer_epoch=0, coordinator_epoch=0
    )
    log.append_as_follower(marker, now_ms=0)


def opened(root: Path, segment_bytes: int) -> PartitionLog:
    return open_log(OsStorage(str(root)), "t-0", LogSettings(segment_bytes=segment_bytes))


@pytest.fixture
def crossed(tmp_path: Path) -> Path:
    """A log whose second segment has ends of transactions of before, and whole ones before, between and behind them."""
    log = opened(tmp_path, 250)
    write(log, OPEN, 0)
    write(log, OTHER, 0)
    while len(log.segments) < 2:
        write(log, OPEN, 1)
    log.settings = LogSettings(segment_bytes=100_000)
    for sequence in (0, 1):
        write(log, THIRD, sequence)
        end(log, THIRD)  # while both of before are open
    end(log, OPEN)
    write(log, THIRD, 2)
    end(log, THIRD)  # while the second is
    end(log, OTHER)
    for sequence in (3, 4):
        write(log, THIRD, sequence)
        end(log, THIRD, commit=sequence == 3)
    write(log, OPEN, 2)
    log.close()
    return tmp_path


def problems_of(root: Path) -> list[str]:
    return [str(problem) for problem in verify_directory(OsStorage(str(root)), VerifiedCounts())]


ENTRIES = 6


@pytest.mark.parametrize("field", [1, FIRST, LAST_STABLE])
@pytest.mark.parametrize("number", range(ENTRIES))
def test_an_entry_that_says_something_else_is_found(crossed: Path, number: int, field: int) -> None:
    (path,) = crossed.glob("t-0/*.txnindex")
    data = path.read_bytes()
    entries = [list(row) for row in TXN_ENTRY.iter_unpack(data)]
    assert len(entries) == ENTRIES
    before = [problem for problem in problems_of(crossed) if "txnindex" in problem]
    assert before == []
    entries[number][field] -= 1
    path.write_bytes(b"".join(TXN_ENTRY.pack(*entry) for entry in entries))
    wrong, missing = (problem for problem in problems_of(crossed) if "txnindex" in problem)
    assert f"{path.name}: entry {number}: " in wrong
    assert wrong.endswith("is not what the log gives")
    assert missing.endswith("is missing")


@pytest.mark.parametrize("number", range(ENTRIES))
def test_an_entry_that_is_not_there_is_found(crossed: Path, number: int) -> None:
    (path,) = crossed.glob("t-0/*.txnindex")
    data = path.read_bytes()
    at = number * TXN_ENTRY.size
    path.write_bytes(data[:at] + data[at + TXN_ENTRY.size :])
    (problem,) = (problem for problem in problems_of(crossed) if "txnindex" in problem)
    assert problem.endswith("is missing")


def handed_on(root: Path, transactions: int) -> tuple[int, int]:
    """Return how many batches are told of a segment with so many transactions, and how many bytes all that takes."""
    log = opened(root, 100_000_000)
    for sequence in range(transactions):
        write(log, OPEN, sequence)
        end(log, OPEN, commit=sequence % 2 == 0)
    log.close()
    verifier = LogVerifier(OsStorage(str(root)), "t-0", VerifiedCounts())
    assert list(verifier.begin()) == []
    found = verifier.read(0)
    assert found.records == 2 * transactions
    return len(found.told), len(pickle.dumps(found))


def test_of_many_transactions_no_more_is_handed_on_than_of_some(tmp_path: Path) -> None:
    told, size_bytes = handed_on(tmp_path / "some", 20)
    told_of_many, size_bytes_of_many = handed_on(tmp_path / "many", 400)
    assert told_of_many == told
    assert size_bytes_of_many < 1.2 * size_bytes

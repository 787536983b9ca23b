"""What was written to a log that is cleaned, and what may be left of it.

A history is every record that was ever appended and not truncated, whatever cleaning has taken since. From it follows
what each record is (committed, aborted, undecided), and so what must be there, what may, and what a table made of the
log must hold. Nothing here looks at segments, indexes or the cleaner.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable
from typing import NamedTuple

from minibroker.log import reading
from minibroker.log.aborted import aborted_transactions
from minibroker.log.batches import batches
from minibroker.log.partition_log import PartitionLog
from tests.log.audit import Row

Table = dict[bytes, bytes]  # the value of each key that has one


class Entry(NamedTuple):
    """One record, or a marker."""

    offset: int
    key: bytes | None
    value: bytes | None
    producer_id: int = -1
    ends: str = ""  # "commit" or "abort" for a marker


History = tuple[Entry, ...]


class Outcome:
    """A history, told up to an offset."""

    def __init__(self, history: History, end_offset: int):
        self.end_offset = end_offset
        self.entries = {entry.offset: entry for entry in history if entry.offset < end_offset}
        self.committed: list[Entry] = []
        self.aborted: set[int] = set()
        open_by_producer: dict[int, list[Entry]] = {}
        for entry in self.entries.values():
            if entry.ends:
                ended = open_by_producer.pop(entry.producer_id, [])
                if entry.ends == "commit":
                    self.committed += ended
                else:
                    self.aborted.update(each.offset for each in ended)
            elif entry.producer_id >= 0:
                open_by_producer.setdefault(entry.producer_id, []).append(entry)
            else:
                self.committed.append(entry)
        self.committed.sort()
        self.open = sorted(entry.offset for entries in open_by_producer.values() for entry in entries)

    def table(self, start_offset: int) -> Table:
        """Return what a reader of everything from the start on has in the end."""
        found: Table = {}
        for entry in self.committed:
            if entry.offset >= start_offset and entry.key is not None:
                if entry.value is None:
                    found.pop(entry.key, None)
                else:
                    found[entry.key] = entry.value
        return found

    def stays(self, cleaned_end: int, tombstones_gone: Collection[int]) -> list[int]:
        """Return the offsets that no cleaning up to `cleaned_end` may have taken away, rising."""
        latest = {entry.key: entry.offset for entry in self.committed if entry.offset < cleaned_end}
        kept = [
            entry.offset
            for entry in self.committed
            if entry.offset < cleaned_end
            and latest[entry.key] == entry.offset
            and not (entry.value is None and entry.offset in tombstones_gone)
        ]
        return [*kept, *(offset for offset in self.entries if offset >= cleaned_end)]


def check_against(
    histories: Iterable[History],
    log: PartitionLog,
    rows: list[Row],
    end_offset: int,
    cleaned_end: int,
    tombstones_gone: Collection[int],
) -> Outcome:
    """Return the outcome that the log has, of some histories that it may have had; raise if it is of none.

    rows: its records from its start to `end_offset`.
    """
    failure = AssertionError(f"up to {end_offset} nothing agrees with {rows}")
    for history in histories:
        known = {entry.offset: entry for entry in history}
        if (history[-1].offset if history else -1) >= end_offset - 1 and all(
            _agrees(row, known.get(row.offset)) for row in rows
        ):
            outcome = Outcome(history, end_offset)
            try:
                check_log(log, rows, outcome, cleaned_end, tombstones_gone)
            except AssertionError as wrong:
                failure = wrong
            else:
                return outcome
    raise failure


def _agrees(row: Row, entry: Entry | None) -> bool:
    return entry is not None and (row.key, row.value) == (entry.key, entry.value)


def check_log(
    log: PartitionLog, rows: list[Row], outcome: Outcome, cleaned_end: int, tombstones_gone: Collection[int]
) -> None:
    """Compare the records of a log from its start on with what must be there."""
    start, found = log.log_start_offset, {row.offset for row in rows}
    assert outcome.end_offset >= start
    stays = outcome.stays(cleaned_end, tombstones_gone)
    missing = [offset for offset in stays[bisect_left(stays, start) :] if offset not in found]
    assert not missing, f"{missing} are missing; cleaned up to {cleaned_end}, the log begins at {start}"
    undecided = [offset for offset in outcome.open if offset >= start]
    lowest = max(start, outcome.open[0]) if outcome.open else outcome.end_offset
    highest = undecided[0] if undecided else outcome.end_offset
    log.producers.on_high_watermark_updated(outcome.end_offset)
    stable = log.last_stable_offset(outcome.end_offset)
    assert lowest <= stable <= highest, f"last stable offset {stable}, not within {lowest} to {highest}"
    read = read_committed(log, stable)
    back = [row.offset for row in read if row.offset in outcome.aborted]
    assert not back, f"{back} were aborted and are read all the same"
    table: Table = {}
    for row in read:
        assert row.key is not None
        if row.value is None:
            table.pop(row.key, None)
        else:
            table[row.key] = row.value
    expected = Outcome(tuple(outcome.entries.values()), outcome.end_offset)
    expected.committed = [entry for entry in expected.committed if entry.offset < stable]
    assert table == expected.table(start), f"{table}, and not {expected.table(start)}"


def read_committed(log: PartitionLog, end_offset: int) -> list[Row]:
    """Return what a consumer makes of the log that wants no aborted records, asking for a few bytes at a time."""
    rows: list[Row] = []
    offset = log.log_start_offset
    while (piece := reading.read(log, offset, 400, limit_offset=end_offset, whole_batch=True)) is not None:
        ends = sorted(aborted_transactions(log, piece, offset), key=lambda entry: entry.first_offset)
        aborting: set[int] = set()
        for batch in batches(piece.view()):
            while ends and ends[0].first_offset <= batch.last_offset:
                aborting.add(ends.pop(0).producer_id)
            if batch.is_control:
                aborting.discard(batch.producer_id)
            elif not batch.is_transactional or batch.producer_id not in aborting:
                rows += (
                    Row(record.offset, record.key, record.value, record.timestamp)
                    for record in batch.records()
                    if record.offset >= offset
                )
            offset = batch.next_offset
    return rows

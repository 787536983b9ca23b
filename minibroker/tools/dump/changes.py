"""Comparison of two states of a partition, before and after cleaning, batch by batch.

    for change in changes(Side(before_paths, view), Side(after_paths, view), cleaned_end):
        change.batch            as it was, None if it is new
        change.left             what is left of it: a batch, or none
        change.gone             its records that are no more, each with the reason

Cleaning keeps offsets, so both states are walked once beside each other, and a batch meets what is left of it.
What must hold: one batch of each state is held at a time; equal bytes are not looked into. Whatever cleaning never does
is in `change.problems`: records changed, invented, or missed by who reads the log from its beginning.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from itertools import chain
from typing import NamedTuple

from minibroker.log.batches import Batch
from minibroker.log.records import Record
from minibroker.tools.dump.batches import base_offset_of, file_batches, is_valid
from minibroker.tools.dump.reasons import LOST, MARKER, RETENTION, Reason, Reasons, Transactions, marker_of

UNKNOWN_END = 1 << 63  # above all offsets


class BatchInFile(NamedTuple):
    """A batch and the file that it is in."""

    path: str
    batch: Batch


class Side:
    """The segments of one state of a partition; is_whole: all of them, so that it is known where the log ends."""

    def __init__(self, paths: Iterable[str], view: Callable[[str], memoryview], *, is_whole: bool = True):
        self.paths = sorted(paths, key=base_offset_of)
        self.is_whole = is_whole
        self._view = view

    @property
    def start(self) -> int:
        """The offset that the first segment is named after."""
        return base_offset_of(self.paths[0]) if self.paths else UNKNOWN_END

    @cached_property
    def end(self) -> int:
        """The offset behind the last one, as far as it is known."""
        if not self.paths or not self.is_whole:
            return UNKNOWN_END
        last = Side(self.paths[-1:], self._view)
        return max((batch.next_offset for batch in last.batches()), default=last.start)

    def placed(self) -> Iterator[BatchInFile]:
        for path in self.paths:
            name = path[path.rfind("/") + 1 :]
            for batch in file_batches(self._view(path), name):
                yield BatchInFile(path, batch)

    def batches(self) -> Iterator[Batch]:
        return (placed.batch for placed in self.placed())

    def unreadable(self) -> Iterator[str]:
        """Yield what is wrong with the ends of files."""
        for path in self.paths:
            view, end = self._view(path), 0
            for batch in file_batches(view, path):
                end = batch.end_position
            if end < len(view):
                yield f"{path}: no whole batch at byte {end}"


class Change:
    """What became of one batch, or where one comes from."""

    def __init__(self, path: str, batch: Batch | None):
        self.path = path  # its file before; of one that is new, its file now
        self.batch = batch
        self.left: list[BatchInFile] = []
        self.is_untouched = False
        self.is_older = False  # from before the first segment that there was to compare with
        self.records_before = 0
        self.records_left = 0
        self.gone: list[tuple[Record, Reason]] = []
        self.reason: Reason | None = None  # why all of it has gone, where no record was looked at
        self.problems: list[str] = []

    @property
    def bytes_before(self) -> int:
        return self.batch.size_bytes if self.batch else 0

    @property
    def bytes_left(self) -> int:
        return sum(placed.batch.size_bytes for placed in self.left)


def changes(before: Side, after: Side, cleaned_end: int | None = None) -> Iterator[Change]:
    """Yield what became of each batch in the order of the log, then what is new.

    `cleaned_end` is where the cleaner has ended, if that is known.
    """
    return _Walk(before, after, cleaned_end).changes()


class _Walk:
    """Both states beside each other."""

    def __init__(self, before: Side, after: Side, cleaned_end: int | None):
        self._before = before
        self._after = after
        self._cleaned_end = UNKNOWN_END if cleaned_end is None else cleaned_end
        self._known: Reasons | None = None
        # By producer: offset of a record of its open transaction that is left.
        self._left_open: dict[int, int] = {}

    def changes(self) -> Iterator[Change]:
        rest = self._after.placed()
        ahead = next(rest, None)
        while ahead and ahead.batch.last_offset < self._before.start:
            yield _new(ahead, is_older=True)
            ahead = next(rest, None)
        for path, batch in self._before.placed():
            change = Change(path, batch)
            while ahead and ahead.batch.last_offset <= batch.last_offset:
                change.left.append(ahead)
                ahead = next(rest, None)
            self._compare(batch, change)
            yield change
        while ahead:
            yield _new(ahead)
            ahead = next(rest, None)

    @property
    def _reasons(self) -> Reasons:
        """Read what has to be known of both states, when the first record has gone."""
        if self._known is None:
            self._known = Reasons(
                self._before.batches(),
                self._after.batches(),
                Transactions(chain(self._before.batches(), self._after.batches())),
                cleaned_end=self._cleaned_end,
                is_whole=self._before.is_whole,
            )
        return self._known

    def _compare(self, batch: Batch, change: Change) -> None:
        change.records_before = batch.count
        if not change.left and batch.last_offset < self._after.start:
            change.reason = Reason(RETENTION)
        elif len(change.left) == 1 and change.left[0].batch.view == batch.view:
            change.is_untouched = True
            change.records_left = change.records_before
        else:
            for path, left in change.left:
                if not is_valid(left):
                    change.problems.append(f"the checksum of the batch at byte {left.position} of {path} is wrong")
            self._compare_records(batch, change)
        if batch.producer_id >= 0:
            self._follow_transaction(batch, change)

    def _compare_records(self, batch: Batch, change: Change) -> None:
        """Go through the records of a batch and of what is left of it, both in the order of their offsets."""
        left = chain.from_iterable(placed.batch.records() for placed in change.left)
        ahead = next(left, None)
        for record in batch.records():
            while ahead is not None and ahead.offset < record.offset:
                change.problems.append(f"offset {ahead.offset} was not there before")
                ahead = next(left, None)
            if ahead is None or ahead.offset > record.offset:
                self._note_gone(batch, record, change)
                continue
            change.records_left += 1
            if ahead != record:
                change.problems.append(f"offset {record.offset} is another record now: {_differing(record, ahead)}")
            ahead = next(left, None)
        while ahead is not None:
            change.problems.append(f"offset {ahead.offset} was not there before")
            ahead = next(left, None)

    def _note_gone(self, batch: Batch, record: Record, change: Change) -> None:
        if record.offset >= self._after.end:
            reason = Reason(LOST, words=f"the log ends at {self._after.end} now")
        elif not batch.is_control:
            reason = self._reasons.of(batch, record)
        elif marker_of(batch) is not None:
            reason = Reason(MARKER)
            open_offset = self._left_open.get(batch.producer_id)
            if open_offset is not None:
                reason = Reason(LOST, open_offset, f"offset {open_offset} of the transaction it ends is left")
        else:
            reason = Reason(LOST, words="no cleaning takes such a control record")
        change.gone.append((record, reason))
        if reason.kind == LOST:
            change.problems.append(f"offset {record.offset} has gone, and {reason.words}")

    def _follow_transaction(self, batch: Batch, change: Change) -> None:
        """Remember of which open transactions records are left: their markers have to stay."""
        if batch.is_control:
            self._left_open.pop(batch.producer_id, None)
        elif batch.is_transactional and change.records_left:
            self._left_open[batch.producer_id] = change.left[-1].batch.last_offset


def _new(placed: BatchInFile, *, is_older: bool = False) -> Change:
    change = Change(placed.path, None)
    change.left.append(placed)
    change.is_older = is_older
    change.records_left = placed.batch.count
    return change


def _differing(old: Record, new: Record) -> str:
    return ", ".join(name for name in old._fields if getattr(old, name) != getattr(new, name))

"""Segments that have ended are flushed soon, so that a crash costs the records of the active ones at most.

On a disk this is done in a thread: a gigabyte takes seconds. What must hold: a recovery point moves only when all
before it is on the disk, and not if something of that has been cut off meanwhile.
At the end of a broker all logs are flushed, on a disk in several threads: it has waited for each sync otherwise, and
whoever stops it waits for all of them. What a thread has been told by then of an earlier sync is not lost: Linux tells
each open file once of what it could not write, and a file that is opened later hears nothing.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from functools import partial

from minibroker.cleaner.pieces import Pieces, start_if_possible
from minibroker.errors import StorageError
from minibroker.log.partition_log import FlushPlan, PartitionLog, carry_out_in_turn
from minibroker.parts import Parts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from minibroker.cleaner.pieces import Work
    from minibroker.log.storage import Storage


class Flushing:
    """One for the life of a broker."""

    def __init__(self, parts: Parts):
        self._parts = parts
        self._rolled: dict[tuple[str, int], None] = {}  # whose segments wait for it
        self._pieces: Pieces | None = None

    def has_rolled(self, key: tuple[str, int]) -> None:
        """A segment of a log has ended."""
        self._rolled[key] = None
        if self._pieces is None or self._pieces.is_over:
            self._pieces = Pieces(self._parts.clock, self._work(), is_hurried=True)

    def stop(self) -> None:
        """Leave what has not begun to the end of the broker, which flushes everything."""
        self._rolled.clear()

    def finish(self) -> None:
        """Return when what has begun is done, and its log knows what came of it."""
        if self._pieces is not None:
            self._pieces.finish()

    def _work(self) -> Work:
        while self._rolled:
            key = next(iter(self._rolled))
            del self._rolled[key]
            log = self._parts.directory.logs.get(key)
            if log is not None and log.offline is None:
                yield from self._flush(log)

    def _flush(self, log: PartitionLog) -> Work:
        plan = log.flush_plan()
        carry_out = partial(plan.carry_out, log.storage)
        try:
            if log.storage.is_slow:
                yield carry_out
            else:
                carry_out()
            log.flushed(plan)
        except StorageError as failure:
            if plan.cuts == log.cuts:
                # What the disk has dropped it does not write later: nobody knows what it holds now.
                log.fail(failure)
                self._parts.disk_failed(failure)


def carry_out_in_threads(thread_count: int, storage: Storage, plans: Sequence[FlushPlan]) -> list[StorageError | None]:
    """Return of each plan what the disk refused, when all have been tried; None: it has been carried out."""
    if not storage.is_slow:
        return carry_out_in_turn(storage, plans)
    outcomes: list[Exception | None] = [None] * len(plans)
    waiting = deque(enumerate(plans))

    def work() -> None:
        while True:
            try:
                index, plan = waiting.popleft()
            except IndexError:
                return
            try:
                plan.carry_out(storage)
            except Exception as failure:
                outcomes[index] = failure

    # The caller is one of them, so some are carried out even if there is no thread to be had.
    threads: list[threading.Thread] = []
    while len(threads) + 1 < min(thread_count, len(plans)):
        thread = threading.Thread(target=work, daemon=True)
        if not start_if_possible(thread):
            break
        threads.append(thread)
    work()
    for thread in threads:
        thread.join()
    failures: list[StorageError | None] = []
    for outcome in outcomes:
        if outcome is not None and not isinstance(outcome, StorageError):
            raise outcome
        failures.append(outcome)
    return failures

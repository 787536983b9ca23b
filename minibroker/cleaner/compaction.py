"""Compaction on one broker: one log at a time, the dirtiest first, in pieces.

    a turn      every log.cleaner.backoff.ms: passes, as long as a log is dirty enough; then retention of compacted logs
    a pass      one log once; it gives up when the log is deleted or cut, or its policy changes
    on demand   a log is cleaned before all others, be it dirty enough or not, and nothing waits for the clock

What must hold: a pass never works on a log that is not this broker's any more.
Kafka: cleans as many logs at once as log.cleaner.threads says, each with its part of the buffer.
Not here: which log is next (dirty_logs.py), what a pass does (minibroker/cleaner/cleaner.py).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Generator, Mapping
from contextlib import suppress
from functools import partial

from minibroker.cleaner.dirty_logs import LOGS_A_PIECE, DirtyLogs, key_of
from minibroker.cleaner.file_delete import Purging
from minibroker.cleaner.pieces import Pieces, Step, Work
from minibroker.cleaner.results import CompactionRow, CompactionSums
from minibroker.cleaner.retention_task import Retention, is_open
from minibroker.clock import CHORE, IDLE
from minibroker.errors import KafkaError, ProtocolError, StorageError
from minibroker.event_kinds import Compaction as CompactionEvent
from minibroker.event_kinds import CompactionBegin, CompactionGivenUp
from minibroker.log.checkpoints import sync_file
from minibroker.parts import Parts
from minibroker.replication.replica import Replica

TYPE_CHECKING = False
if TYPE_CHECKING:
    from minibroker.cleaner.candidates import Candidate
    from minibroker.cleaner.cleaner import Cleaned
    from minibroker.clock import Timer
    from minibroker.log.storage import Storage

Key = tuple[str, int]
Asked = tuple[Replica, asyncio.Future[CompactionRow]]
PIECES_MAX, REST_MS = 4, 1  # so many pieces one after the other while clients ask for something, then a rest
PAUSE_MS_MIN = 10  # what is owed to log.cleaner.io.max.bytes.per.second is waited for from here on
GONE = "the partition has gone from here, or its broker has stopped"


class Compaction:
    """The cleaner of one broker."""

    def __init__(
        self,
        parts: Parts,
        replicas: Mapping[Key, Replica],
        retention: Retention,
        purging: Purging,
        asked_count: Callable[[], int],
    ):
        self.parts = parts
        self.replicas = replicas
        self.count_asked = asked_count
        self.retention = retention
        self.purging = purging
        self.logs = DirtyLogs(parts, replicas)
        self.passes = self.bytes_before = self.bytes_after = 0  # since the start
        self._asked: deque[Asked] = deque()
        self._pieces: Pieces | None = None
        self._running: Replica | None = None  # whose log is being cleaned
        self._waiting: list[asyncio.Future[None]] = []  # for the end of that
        self._timer: Timer | None = None
        self._is_on = False
        self._asked_count = self._piece_count = 0  # requests of clients at the last rest, and pieces since
        self._free_ms = 0.0  # by the steady clock: until then others may read and write

    def start(self) -> object:
        """Take the first turn, and one every log.cleaner.backoff.ms from now on."""
        self._is_on = True
        return self._tick() if self.parts.config["log.cleaner.enable"] else None

    def stop(self) -> None:
        """Give up what is under way; what it has written is removed when the log is opened again."""
        self._is_on = False
        if self._timer is not None:
            self._timer.cancel()
        if self._pieces is not None:
            self._pieces.stop()
        while self._asked:
            replica, done = self._asked.popleft()
            _answer(done, _row(replica, CompactionSums(), GONE))

    def left(self, key: Key) -> None:
        """A partition is about to go from here: close what is open of it."""
        self.logs.left(key)
        running = self._running
        if running is not None and key_of(running) == key and self._pieces is not None:
            self._pieces.stop()
            if self._asked:
                self.hurry()
            else:
                self._arm(0)

    # On demand

    async def compact(self, replica: Replica) -> CompactionRow:
        """Compact a log now, as far as it may be; return when that is done."""
        done: asyncio.Future[CompactionRow] = asyncio.get_running_loop().create_future()
        self._asked.append((replica, done))
        self.hurry()
        return await done

    def hurry(self) -> None:
        """Let what is under way rest no more, and ask no clock: somebody waits."""
        if self._pieces is not None and not self._pieces.is_over:
            self._pieces.hurry()
        elif self._asked:
            self._pieces = Pieces(self.parts.clock, self._work(is_turn=False), is_hurried=True)

    async def finished(self, replica: Replica) -> None:
        """Return when a log is not being cleaned."""
        while self._running is replica:
            self._waiting.append(asyncio.get_running_loop().create_future())
            self.hurry()
            await self._waiting[-1]

    # Turns

    def _tick(self) -> object:
        if self._pieces is not None and not self._pieces.is_over:
            return None  # what somebody asked for: its end arms the timer again
        if not self.parts.config["log.cleaner.threads"] or self.logs.is_idle():
            self._arm()
            return IDLE
        self._pieces = Pieces(self.parts.clock, self._work(is_turn=True))
        return IDLE if self._pieces.is_over else None  # in one piece: nothing was to be done

    def _arm(self, delay_ms: int | None = None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._is_on and self.parts.config["log.cleaner.enable"]:
            backoff_ms: int = self.parts.config["log.cleaner.backoff.ms"]
            self._timer = self.parts.clock.after(backoff_ms if delay_ms is None else delay_ms, self._tick, CHORE)

    def _work(self, *, is_turn: bool) -> Work:
        """What somebody asked for, then what is dirty enough, then what is too old."""
        is_stopped = False
        try:
            while True:
                while self._asked:
                    yield from self._oblige(*self._asked.popleft())
                candidate = (yield from self.logs.dirtiest()) if is_turn else None
                cleaned = None if candidate is None else (yield from self._clean(*candidate))
                if is_turn and self.logs.is_fresh:
                    yield from self._retain()
                # Kafka: tries at once what was given up; here that has time until the next turn, or it might go on so.
                if (cleaned is None or isinstance(cleaned, str)) and not self._asked:
                    return
        except GeneratorExit:  # who stopped it says what comes next, and a broker that is gone has no next turn
            is_stopped = True
            raise
        finally:
            self._pieces = None
            if not is_stopped:
                self._arm()

    def _retain(self) -> Work:
        """Retention of compacted logs: by size and time, if they are to be deleted from too, else by their start."""
        for count, (key, replica) in enumerate(self.logs.compacted(), 1):
            if key in self.logs.changed or replica.log.settings.delete:
                yield from self.retention.retain(replica)
            if count % LOGS_A_PIECE == 0:
                yield 0

    # One log

    def _oblige(self, replica: Replica, done: asyncio.Future[CompactionRow]) -> Work:
        """Do what somebody waits for."""
        sums, reason = CompactionSums(), GONE
        try:
            reason = yield from self._clean_all(replica, sums)
        except Exception as failure:
            if not done.done():
                done.set_exception(failure)
            raise
        finally:
            _answer(done, _row(replica, sums, reason))

    def _clean_all(self, replica: Replica, sums: CompactionSums) -> Generator[Step, None, str]:
        """Clean a log as far as it may be; return why not all of it, or nothing."""
        key, log = key_of(replica), replica.log
        sums.end_offset = self.parts.directory.cleaner_offsets.get(key, log.log_start_offset)
        while True:
            if key in self.logs.uncleanable:
                return f"it is left alone: {self.logs.uncleanable[key]}"
            reason = self._why_stop(replica)
            candidate = self.logs.look(replica) if not reason else None
            if candidate is None:
                return reason or self.logs.uncleanable.get(key, "the disk fails")
            if candidate.end <= log.segments[0].base_offset:
                return _why_nothing(replica)
            cleaned = yield from self._clean(replica, candidate, "somebody asked for it")
            if isinstance(cleaned, str):
                return cleaned
            sums.add(cleaned)
            if cleaned.end_offset >= candidate.end:
                return "" if candidate.end >= log.active.base_offset else _why_nothing(replica)

    def _clean(self, replica: Replica, candidate: Candidate, why: str) -> Generator[Step, None, Cleaned | str]:
        """Clean a log once; return what came of it, or why it was given up."""
        from minibroker.cleaner.cleaner import CleaningAborted, clean

        parts, log = self.parts, candidate.log
        if parts.events.observed:
            event = CompactionBegin(
                **replica.place,
                first_dirty=candidate.first_dirty,
                end_offset=candidate.end,
                dirty_ratio=round(candidate.dirty_ratio, 4),
                why=why,
            )
            parts.events.emit(event)
        work = clean(
            log,
            candidate,
            now_ms=parts.clock.now_ms(),
            map_bytes_max=parts.config["log.cleaner.dedupe.buffer.size"],
            load_factor=parts.config["log.cleaner.io.buffer.load.factor"],
            upgrades=not parts.emulated.is_before_4,
        )
        self._running = replica
        self._asked_count = self.count_asked()
        given_up = ""
        try:
            if log.storage.is_slow:  # so that the flush on the loop has little to do
                for segment in log.segments[log.segment_of(log.recovery_point) :]:
                    yield partial(_flush_ahead, log.storage, segment.path)
            parts.directory.before_cleaning(replica.topic, replica.partition, candidate.end)
            while not (given_up := self._why_stop(replica)):
                try:
                    step = next(work)
                except StopIteration as stop:
                    return self._has_cleaned(replica, stop.value)
                yield step if callable(step) else self._pause_ms(step)
        except CleaningAborted:
            given_up = "the log was cut meanwhile"
        except StorageError as failure:
            given_up = str(failure)
            self._disk_failed(failure)
        except (KafkaError, ProtocolError, ValueError) as failure:
            self.logs.leave_alone(replica, failure)
            return f"it is left alone: {self.logs.uncleanable[key_of(replica)]}"
        finally:
            self._running = None
            work.close()
            for waiting in self._waiting:
                if not waiting.done():
                    waiting.set_result(None)
            self._waiting.clear()
        if parts.events.observed:
            parts.events.emit(CompactionGivenUp(**replica.place, why=given_up))
        return given_up

    def _why_stop(self, replica: Replica) -> str:
        """Say why a log is not to be compacted, or no more; empty: it is."""
        if not is_open(self.replicas, replica):
            return GONE
        return "" if replica.log.settings.compact else "cleanup.policy is not compact"

    def _pause_ms(self, size_bytes: int) -> float:
        """Return how long to rest after so many bytes: for log.cleaner.io.max.bytes.per.second, and for clients.

        Kafka: has a thread for it, and other cores for its clients.
        """
        now_ms = self.parts.clock.elapsed_ms()
        owed_ms = size_bytes * 1000 / self.parts.config["log.cleaner.io.max.bytes.per.second"]
        self._free_ms = max(self._free_ms, now_ms) + owed_ms
        pause_ms = self._free_ms - now_ms
        if pause_ms >= PAUSE_MS_MIN:
            return pause_ms
        self._piece_count += 1
        if self._piece_count < PIECES_MAX:
            return 0
        before, self._asked_count, self._piece_count = self._asked_count, self.count_asked(), 0
        return 0 if before == self._asked_count else REST_MS

    def _has_cleaned(self, replica: Replica, cleaned: Cleaned) -> Cleaned:
        self.logs.note_end(replica, cleaned.end_offset)
        self.purging.add(cleaned.paths, replica.log.settings.file_delete_delay_ms)
        self.passes += 1
        self.bytes_before += cleaned.bytes_before
        self.bytes_after += cleaned.bytes_after
        if self.parts.events.observed:
            sums = CompactionSums()
            sums.add(cleaned)
            figures = {name: figure for name, figure in vars(sums).items() if name != "passes"}
            self.parts.events.emit(CompactionEvent(**replica.place, **figures))
        return cleaned

    def _disk_failed(self, failure: StorageError) -> None:
        self.parts.disk_failed(failure)


def _flush_ahead(storage: Storage, path: str) -> None:
    with suppress(StorageError):  # it may have been cut off meanwhile; and what is wrong with a disk shows again
        sync_file(storage, path)


def _row(replica: Replica, sums: CompactionSums, reason: str) -> CompactionRow:
    return CompactionRow(**replica.place, **vars(sums), reason=reason)


def _answer(done: asyncio.Future[CompactionRow], row: CompactionRow) -> None:
    if not done.done():  # who asked may have gone
        done.set_result(row)


def _why_nothing(replica: Replica) -> str:
    """Say why what is left of a log may not be cleaned."""
    log = replica.log
    if log.log_start_offset == log.log_end_offset:
        return "there are no records"
    if len(log.segments) == 1:
        return "everything is in the active segment: roll first"
    stable_offset = log.last_stable_offset(replica.high_watermark)
    if stable_offset < log.active.base_offset:
        return f"from offset {stable_offset} on a transaction is open, or not every replica in sync has the records"
    return f"the rest is younger than min.compaction.lag.ms={log.settings.min_compaction_lag_ms}"

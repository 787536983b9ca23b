"""Timers of one broker: checkpoints, flushes that are due, producers that are forgotten.

A chore that finds nothing to do says so to the clock (IDLE), and flushes are looked for only where a topic has
flush.ms: time that is moved by a week passes by quickly.
Retention and compaction (cleaning.py) are only begun here.
"""

from __future__ import annotations

from minibroker.clock import CHORE, IDLE
from minibroker.errors import StorageError
from minibroker.log.settings import FOREVER, LogSettings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from minibroker.broker.flushing import Flushing
    from minibroker.cleaner.scheduler import Cleaning
    from minibroker.clock import Timer
    from minibroker.parts import Parts
    from minibroker.replication.replica import Replica

    Offsets = dict[tuple[str, int], int]

EXPIRY_MS = 600_000
FLUSH_MS = 1_000


class Scheduler:
    """The timers of one broker."""

    def __init__(self, parts: Parts, replicas: Mapping[tuple[str, int], Replica], asked_count: Callable[[], int]):
        """asked_count: how many requests there have been, for cleaning rests while clients ask."""
        self._parts = parts
        self._replicas = replicas
        self._asked_count = asked_count
        self._timers: dict[str, Timer] = {}
        self._noted: Offsets = {}  # high watermarks, as of the last time they were written
        self._begun_ms = -1  # by elapsed_ms; -1: not yet, or no more
        self.keeps_all = False  # settings may be others than they should be: nothing is deleted in this life
        self._cleaning: Cleaning | None = None
        self._flushing: Flushing | None = None
        self._has_stopped = False
        parts.directory.has_rolled = self.has_rolled

    def start(self) -> None:
        self._begun_ms = self._parts.clock.elapsed_ms()
        config = self._parts.config
        self.every(config["log.flush.offset.checkpoint.interval.ms"], self.checkpoint_recovery_points)
        self.every(config["log.flush.start.offset.checkpoint.interval.ms"], self.checkpoint_log_starts)
        self.every(config["replica.high.watermark.checkpoint.interval.ms"], self.checkpoint_high_watermarks)
        self.every(EXPIRY_MS, self.expire_producers)
        for replica in self._replicas.values():
            self.settle(replica.log.settings)
        if not self.keeps_all:
            self._start_cleaning()

    def _start_cleaning(self) -> None:
        config = self._parts.config
        self.every(config["log.retention.check.interval.ms"], self.retain, config["log.initial.task.delay.ms"])
        is_compacted = any(replica.log.settings.compact for replica in self._replicas.values())
        # Kafka: the cleaner looks for work at once, were there nothing that it could ever clean.
        self._timers["compact"] = self._parts.clock.after(
            0 if is_compacted else config["log.cleaner.backoff.ms"], self.compact, CHORE
        )

    def stop(self) -> None:
        """Begin nothing more; `finish` waits for a sync that is in a thread, unless the process is dead."""
        self._has_stopped = True
        self._begun_ms = -1
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        if self._cleaning is not None:
            self._cleaning.stop()
        if self._flushing is not None:
            self._flushing.stop()

    def finish(self) -> None:
        """Return when nothing is under way any more, after a stop."""
        if self._flushing is not None:
            self._flushing.finish()

    def settle(self, settings: LogSettings) -> None:
        """See to what the settings of a log ask for, from now on."""
        if settings.flush_ms < FOREVER and self._begun_ms >= 0 and self.flush_due.__name__ not in self._timers:
            # In step with the start of the broker, whenever it is that somebody wants it.
            late_ms = (self._parts.clock.elapsed_ms() - self._begun_ms) % FLUSH_MS
            self.every(FLUSH_MS, self.flush_due, FLUSH_MS - late_ms)

    def every(self, period_ms: int, act: Callable[[], object], first_ms: int | None = None) -> None:
        """Do something again and again, never if the period is 0; a disk that refuses once is asked the next time."""
        if not period_ms:
            return

        def again() -> object:
            self.every(period_ms, act)
            try:
                return act()
            except StorageError as failure:
                self._parts.disk_failed(failure)
                return None

        delay_ms = period_ms if first_ms is None else first_ms
        self._timers[act.__name__] = self._parts.clock.after(delay_ms, again, CHORE)

    @property
    def cleaning(self) -> Cleaning:
        """Retention and compaction, made when they are first wanted: what they load would make each start longer."""
        if self._cleaning is None:
            from minibroker.cleaner.scheduler import Cleaning

            self._cleaning = Cleaning(self._parts, self._replicas, self._asked_count)
        return self._cleaning

    def has_rolled(self, key: tuple[str, int]) -> None:
        """A segment of a log has ended: see to it that it gets to the disk, if the end of the broker does not."""
        if self._has_stopped:
            return
        if self._flushing is None:
            from minibroker.broker.flushing import Flushing

            self._flushing = Flushing(self._parts)
        self._flushing.has_rolled(key)

    def left(self, key: tuple[str, int]) -> None:
        """A partition is about to go from here."""
        if self._cleaning is not None:
            self._cleaning.left(key)

    def retain(self) -> object:
        return self.cleaning.retention.tick()

    def compact(self) -> object:
        """Begin the first turn of the cleaner; it sees to the next ones."""
        return self.cleaning.compaction.start()

    def forget_high_watermarks(self) -> None:
        """Somebody else has written them: what was written here last is not what the checkpoint says."""
        self._noted = {}

    def checkpoint_recovery_points(self) -> object:
        """Note how far logs are flushed."""
        return None if self._parts.directory.write_recovery_points() else IDLE

    def checkpoint_log_starts(self) -> object:
        """Note where logs begin."""
        return None if self._parts.directory.write_log_starts() else IDLE

    def checkpoint_high_watermarks(self) -> object:
        found = {key: replica.high_watermark for key, replica in self._replicas.items()}
        if found == self._noted:
            return IDLE
        self._parts.directory.write_high_watermarks(found)
        self._noted = found
        return None

    def expire_producers(self) -> object:
        now_ms = self._parts.clock.now_ms()
        for replica in self._replicas.values():
            log = replica.log
            if log.producers.producers or log.producers.verifications:
                log.producers.expire(now_ms, log.settings.producer_id_expiration_ms)
        return IDLE

    def flush_due(self) -> object:
        now_ms, flushed = self._parts.clock.now_ms(), IDLE
        for replica in self._replicas.values():
            if replica.log.offline is None and replica.log.flush_due(now_ms):
                replica.log.flush(now_ms=now_ms)
                flushed = None
        return flushed

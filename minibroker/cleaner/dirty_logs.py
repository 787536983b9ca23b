"""The logs that one broker compacts: which is the dirtiest, and whether anything has changed since nothing was to do.

A log is looked at again only if it is not as it was, or if time alone could make a difference: so a turn of the cleaner
in which nothing has happened costs next to nothing, were there thousands of logs.
What must hold: a log that cannot be read is left alone until the broker starts again: somebody may still want to see
what is in it.
Not here: what may be cleaned of a log (minibroker/cleaner/candidates.py), when, and by whom (compaction.py).
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping

from minibroker.cleaner.retention_task import is_open
from minibroker.errors import KafkaError, ProtocolError, StorageError
from minibroker.event_kinds import Uncleanable
from minibroker.log.settings import FOREVER, LogSettings
from minibroker.parts import Parts
from minibroker.replication.replica import Replica

TYPE_CHECKING = False
if TYPE_CHECKING:
    from minibroker.cleaner.candidates import Candidate

Key = tuple[str, int]
State = tuple[object, ...]
LOGS_A_PIECE = 20  # that are looked at, some 0.2 ms


class DirtyLogs:
    """What the cleaner of a broker knows of its logs."""

    def __init__(self, parts: Parts, replicas: Mapping[tuple[str, int], Replica]):
        self.parts = parts
        self.replicas = replicas
        self.uncleanable: dict[Key, str] = {}  # and why
        self.changed: dict[Key, None] = {}  # those that were looked at last time
        self.is_fresh = False  # nothing has been cleaned since all were looked at
        self._due: list[Replica] = []  # the rest of what was dirty enough then, the dirtiest last
        self._due_until_ms = 0  # by the steady clock: then all are looked at again
        self._looked: dict[Key, State | None] = {}  # how a log was when there was nothing to do
        self._ratios: dict[Key, float] = {}  # how dirty it was

    def left(self, key: Key) -> None:
        """Forget a log."""
        self.uncleanable.pop(key, None)
        self.changed.pop(key, None)
        self._looked.pop(key, None)
        self._ratios.pop(key, None)

    def compacted(self) -> Iterator[tuple[Key, Replica]]:
        """The logs that are the cleaner's."""
        for key, replica in list(self.replicas.items()):
            if replica.log.settings.compact and key not in self.uncleanable and is_open(self.replicas, replica):
                yield key, replica

    def is_idle(self) -> bool:
        """Whether all logs are as they were when there was nothing to do, and none has grown too old meanwhile."""
        looked = self._looked
        for key, replica in self.replicas.items():
            settings = replica.log.settings
            if (
                settings.compact
                and (looked.get(key) != _state_of(replica) or (settings.delete and self._has_expired(replica)))
                and key not in self.uncleanable
            ):
                return False
        return True

    def _has_expired(self, replica: Replica) -> bool:
        """Whether retention takes something from a log that is both compacted and deleted from."""
        from minibroker.cleaner.retention import expired

        log = replica.log
        return log.offline is None and bool(
            expired(log, now_ms=self.parts.clock.now_ms(), high_watermark=replica.high_watermark)
        )

    def dirtiest(self) -> Generator[float, None, tuple[Replica, Candidate, str] | None]:
        """Return the log that is to be cleaned first, and why.

        All logs are looked at; the next ones are then those that were due, each looked at again when its turn comes,
        until that is an interval of the cleaner ago.
        Kafka: looks at all compacted logs before each pass of its cleaner.
        """
        for self.is_fresh in (False, True):
            if self.is_fresh:
                yield from self._look_at_all()
            while self._due and (self.is_fresh or self.parts.clock.steady_ms() < self._due_until_ms):
                replica = self._due.pop()
                if is_open(self.replicas, replica) and key_of(replica) not in self.uncleanable:
                    candidate = self.look(replica)
                    if candidate is not None and not candidate.why_not:
                        return replica, candidate, _why(candidate)
        return None

    def _look_at_all(self) -> Generator[float, None, None]:
        from minibroker.cleaner.candidates import due

        candidates: dict[Candidate, Replica] = {}
        self.changed.clear()
        for key, replica in self.compacted():
            if self._looked.get(key) == _state_of(replica):
                continue
            self.changed[key] = None
            candidate = self.look(replica)
            if candidate is not None:
                candidates[candidate] = replica
                self._ratios[key] = candidate.dirty_ratio
                # If something is dirty, time alone may change what is to be done.
                is_clean = candidate.first_dirty >= replica.log.active.base_offset
                is_timeless = is_clean or _is_timeless(replica.log.settings)
                self._looked[key] = _state_of(replica) if candidate.why_not and is_timeless else None
            if len(self.changed) % LOGS_A_PIECE == 0:
                yield 0
        self._due = [candidates[each] for each in due(candidates)]
        self._due_until_ms = self.parts.clock.steady_ms() + self.parts.config["log.cleaner.backoff.ms"]

    @property
    def dirty_ratio_max(self) -> float:
        """How dirty the dirtiest log was when it was last looked at."""
        return max((self._ratios.get(key, 0.0) for key, _ in self.compacted()), default=0.0)

    def look(self, replica: Replica) -> Candidate | None:
        """Return what may be cleaned of a log; None if it cannot be read."""
        from minibroker.cleaner.candidates import cleanable

        log, key, directory = replica.log, key_of(replica), self.parts.directory
        try:
            candidate = cleanable(
                log,
                first_dirty_offset=directory.cleaner_offsets.get(key),
                last_stable_offset=log.last_stable_offset(replica.high_watermark),
                now_ms=self.parts.clock.now_ms(),
                high_watermark=None if self.parts.emulated.is_before_4 else replica.high_watermark,
            )
            if candidate.checkpoint_is_lost:
                self.note_end(replica, candidate.first_dirty)
        except StorageError as failure:
            self.parts.disk_failed(failure)
        except (KafkaError, ProtocolError) as failure:
            self.leave_alone(replica, failure)
        else:
            return candidate
        return None

    def note_end(self, replica: Replica, offset: int) -> None:
        self.parts.directory.note_cleaned(*key_of(replica), offset)

    def leave_alone(self, replica: Replica, failure: Exception) -> None:
        """Clean a log no more that cannot be read: somebody has to look at it."""
        why = self.uncleanable[key_of(replica)] = str(failure)
        self.parts.reporter.say(f"{replica.log.directory} cannot be compacted, and is left as it is: {why}")
        if self.parts.events.observed:
            self.parts.events.emit(Uncleanable(**replica.place, why=why))


def _why(candidate: Candidate) -> str:
    """Say why a log is cleaned."""
    if candidate.needs_now:
        return "something dirty is older than max.compaction.lag.ms"
    ratio = candidate.log.settings.min_cleanable_dirty_ratio
    return f"its dirty ratio {candidate.dirty_ratio:.2f} is above min.cleanable.dirty.ratio {ratio:.2f}"


def key_of(replica: Replica) -> Key:
    return replica.topic, replica.partition


def _state_of(replica: Replica) -> State:
    """Return what decides, beside time, whether a log is to be cleaned."""
    log = replica.log
    return (
        log.log_end_offset,
        replica.high_watermark,
        log.log_start_offset,
        log.cuts,
        log.active.base_offset,
        log.settings,
    )


def _is_timeless(settings: LogSettings) -> bool:
    return settings.min_compaction_lag_ms <= 0 and settings.max_compaction_lag_ms >= FOREVER

"""Fetch sessions (KIP-227): the broker remembers what a client fetches, and both sides tell only what changed.

    full request, epoch 0    opens a session, if there is room, and the answer names it
    epoch 1, 2, 3, ...       partitions that are new, changed or forgotten; answers leave out what has no news
    epoch -1                 closes the session named, and wants none

A session hears of its partitions all the time, so a request reads only those that have changed, however many there are.
A fetch without a session that has to wait hears of its partitions in the same way, for as long as it waits.

Partitions are read and answered in the order of the session: that in which they came into it, but who was sent records
goes to its end, so that nobody is starved by a limit on the whole answer.

What must hold: a request that does not fit the session's epoch gets an error and changes nothing. A partition that may
have something to say is in `changed`; of every other one the session is told when that is no longer so.
"""

from __future__ import annotations

from minibroker.errors import Error, KafkaError
from minibroker.replication.replica import READ_COMMITTED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from asyncio import Future
    from collections.abc import Callable, Iterable
    from typing import Any, Final

    from minibroker.replication.replica import Replica

    Key = tuple[str, bytes, int]  # topic, its id, partition

NO_SESSION: Final = 0
INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
EPOCH_MAX: Final = 0x7FFFFFFF
EVICTION_MS: Final = 120_000  # a session that was not used for so long has to go when there is no room
PARTITIONS_MAX: Final = 100_000  # some 40 MB
TOPIC_IDS_SINCE: Final = 13


class CachedPartition:
    """What the client wants of a partition, and what it has been told; called when the partition has changed."""

    __slots__ = (
        *("high_watermark", "key", "log_start_offset", "position", "read_high_watermark", "read_stable_end"),
        *("replica", "session", "wanted"),
    )

    def __init__(self, session: Session, key: Key, wanted: Any, position: int):
        self.session = session
        self.key = key
        self.position = position  # in the order of the session; no two are equal
        self.wanted = wanted  # FetchRequest.FetchTopic.FetchPartition
        self.high_watermark = -1
        self.log_start_offset = -1
        self.replica: Replica | None = None  # that is watched
        self.read_high_watermark = -1  # when it was read last
        self.read_stable_end = -1  # then, too, if only what is committed was read; else -1

    @property
    def fetch_offset(self) -> int:
        offset: int = self.wanted.fetch_offset
        return offset

    def __call__(self, added_bytes: int) -> None:
        """Hear that the partition has changed: it is to be read again."""
        replica = self.replica
        if added_bytes and replica is not None:
            if replica.high_watermark == self.read_high_watermark:
                return  # nobody who fetches may read yet what was added
            if 0 <= self.read_stable_end == replica.readable_end(READ_COMMITTED):
                self.session.changed[self.key] = None  # the next answer tells its high watermark; none waits for that
                return
        self.unwatch()
        self.session.changed[self.key] = None
        self.session.wake()

    def watch(self, replica: Replica, isolation_level: int) -> None:
        """Hear of the next change; what there was before has been read."""
        if self.replica is not replica:
            self.unwatch()
            self.replica = replica
            replica.waiters[self] = None
        self.read_high_watermark = replica.high_watermark
        self.read_stable_end = replica.readable_end(READ_COMMITTED) if isolation_level == READ_COMMITTED else -1

    def unwatch(self) -> None:
        if self.replica is not None:
            self.replica.waiters.pop(self, None)
            self.replica = None


class Session:
    """What one client fetches."""

    def __init__(self, session_id: int = NO_SESSION, uses_topic_ids: bool = False, used_ms: int = 0):
        self.session_id = session_id
        self.epoch = 1  # that is due next
        self.uses_topic_ids = uses_topic_ids
        self.used_ms = used_ms  # by the steady clock
        self.partitions: dict[Key, CachedPartition] = {}
        self.changed: dict[Key, None] = {}  # to be read with the next request
        self._position_next = 0
        self.is_closed = False
        self._waiting: Future[None] | None = None  # of the request that waits

    def update(self, wanted: dict[Key, Any], forgotten: list[Key]) -> None:
        for key, partition in wanted.items():
            cached = self.partitions.get(key)
            if cached is None:
                self.partitions[key] = CachedPartition(self, key, partition, self._next_position())
            else:
                cached.wanted = partition
            self.changed[key] = None
        for key in forgotten:
            cached = self.partitions.pop(key, None)
            if cached is not None:
                cached.unwatch()
                self.changed.pop(key, None)

    def in_order(self, keys: Iterable[Key]) -> list[Key]:
        """Return partitions in the order of the session."""
        found, partitions = list(keys), self.partitions
        if len(found) > 1:
            found.sort(key=lambda key: partitions[key].position)
        return found

    def move_to_end(self, key: Key) -> None:
        self.partitions[key].position = self._next_position()

    def _next_position(self) -> int:
        self._position_next += 1
        return self._position_next

    def look_everywhere(self) -> None:
        """Read every partition with the next request."""
        self.changed.update(dict.fromkeys(self.partitions))

    def has_news(self, key: Key, answer: Any) -> bool:
        """Return whether an answer belongs into the response, and remember it."""
        cached = self.partitions[key]
        news = (
            bool(answer.records)
            or answer.error_code != Error.NONE
            or answer.high_watermark != cached.high_watermark
            or answer.log_start_offset != cached.log_start_offset
            or answer.diverging_epoch.epoch >= 0
            or answer.preferred_read_replica >= 0
        )
        cached.high_watermark, cached.log_start_offset = answer.high_watermark, answer.log_start_offset
        if answer.error_code != Error.NONE:
            self.refused(key)
        return news

    def refused(self, key: Key) -> None:
        """Read a partition again with the next request: when the error is gone, that is news."""
        cached = self.partitions.get(key)
        if cached is not None:
            cached.high_watermark = -1
            self.changed.setdefault(key)

    def wake(self) -> None:
        """Let the request that waits look again."""
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    def expect(self, waiting: Future[None]) -> None:
        """Complete a future with the next change, or when another request comes."""
        self._waiting = waiting

    def close(self) -> None:
        """Hear of nothing any more; a request that waits reads everything once more and answers."""
        self.is_closed = True
        self.look_everywhere()
        for cached in self.partitions.values():
            cached.unwatch()
        self.wake()


class FetchSessions:
    """The sessions of one broker: so many, and so many partitions in all of them.

    Kafka: bounds the number of sessions only, whatever is in them.
    """

    def __init__(self, slots: int, random_id: Callable[[], int]):
        self.slots = slots
        self._random_id = random_id
        self._sessions: dict[int, Session] = {}  # the one used least recently is first
        self.partition_count = 0  # in all sessions

    def __len__(self) -> int:
        return len(self._sessions)

    def open(self, wanted: dict[Key, Any], uses_topic_ids: bool, steady_ms: int) -> Session | None:
        """Begin a session; None if there is no room."""
        while len(self._sessions) >= self.slots or self.partition_count + len(wanted) > PARTITIONS_MAX:
            oldest = next(iter(self._sessions.values()), None)
            if oldest is None or steady_ms - oldest.used_ms <= EVICTION_MS:
                return None
            self.close(oldest.session_id)
        session_id = self._random_id()
        while session_id == NO_SESSION or session_id in self._sessions:
            session_id = self._random_id()
        session = self._sessions[session_id] = Session(session_id, uses_topic_ids, steady_ms)
        session.update(wanted, [])
        self.partition_count += len(session.partitions)
        return session

    def look_everywhere(self) -> None:
        """Have every partition read with the next request: who may read it may have changed."""
        for session in self._sessions.values():
            session.look_everywhere()

    def find(self, session_id: int) -> Session | None:
        return self._sessions.get(session_id)

    def close(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self.partition_count -= len(session.partitions)
            session.close()

    def resume(
        self,
        session_id: int,
        epoch: int,
        version: int,
        wanted: dict[Key, Any],
        forgotten: list[Key],
        steady_ms: int,
    ) -> Session | None:
        """Return the session of an incremental request, brought up to date; None if nothing is left in it."""
        session = self._sessions.get(session_id)
        if session is None:
            raise KafkaError(Error.FETCH_SESSION_ID_NOT_FOUND, f"no session {session_id}")
        if session.epoch != epoch:
            raise KafkaError(Error.INVALID_FETCH_SESSION_EPOCH, f"epoch {epoch}, {session.epoch} is due")
        if session.uses_topic_ids != (version >= TOPIC_IDS_SINCE):
            raise KafkaError(Error.FETCH_SESSION_TOPIC_ID_ERROR, "the session began without topic ids, or with them")
        before = len(session.partitions)
        session.update(wanted, forgotten)
        self.partition_count += len(session.partitions) - before
        if len(session.partitions) > before and self.partition_count > PARTITIONS_MAX:
            self.close(session_id)
            raise KafkaError(Error.FETCH_SESSION_ID_NOT_FOUND, f"more than {PARTITIONS_MAX} partitions in all sessions")
        if not session.partitions:
            self.close(session_id)
            return None
        session.epoch = 1 if epoch == EPOCH_MAX else epoch + 1
        session.used_ms = steady_ms
        session.wake()  # a request that waits still is not the client's last one
        self._sessions[session_id] = self._sessions.pop(session_id)
        return session

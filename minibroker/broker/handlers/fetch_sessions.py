"""Fetch sessions (KIP-227): the broker remembers what a client fetches, and both sides tell only what changed.

    full request, epoch 0    opens a session, if there is room, and the answer names it
    epoch 1, 2, 3, ...       partitions that are new, changed or forgotten; answers leave out what has no news
    epoch -1                 closes the session named, and wants none

What must hold: a request that does not fit the session's epoch gets an error and changes nothing.
"""

from __future__ import annotations

from minibroker.errors import Error, KafkaError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    Key = tuple[str, bytes, int]  # topic, its id, partition

NO_SESSION = 0
INITIAL_EPOCH, FINAL_EPOCH = 0, -1
EPOCH_MAX = 0x7FFFFFFF
EVICTION_MS = 120_000  # a session that was not used for so long has to go when there is no room
TOPIC_IDS_SINCE = 13


class CachedPartition:
    """What the client wants of a partition, and what it has been told."""

    __slots__ = ("high_watermark", "log_start_offset", "wanted")

    def __init__(self, wanted: Any):
        self.wanted = wanted  # FetchRequest.FetchTopic.FetchPartition
        self.high_watermark = -1
        self.log_start_offset = -1


class Session:
    """What one client fetches, in the order in which it is looked at."""

    def __init__(self, session_id: int, uses_topic_ids: bool, now_ms: int):
        self.session_id = session_id
        self.epoch = 1
        self.uses_topic_ids = uses_topic_ids
        self.used_ms = now_ms
        self.partitions: dict[Key, CachedPartition] = {}

    def update(self, wanted: dict[Key, Any], forgotten: list[Key]) -> None:
        for key, partition in wanted.items():
            cached = self.partitions.get(key)
            if cached is None:
                self.partitions[key] = CachedPartition(partition)
            else:
                cached.wanted = partition
        for key in forgotten:
            self.partitions.pop(key, None)

    def has_news(self, key: Key, answer: Any) -> bool:
        """Return whether an answer belongs into the response, and remember it."""
        cached = self.partitions[key]
        has_records = bool(answer.records)
        news = (
            has_records
            or answer.error_code != Error.NONE
            or answer.high_watermark != cached.high_watermark
            or answer.log_start_offset != cached.log_start_offset
            or answer.diverging_epoch.epoch >= 0
            or answer.preferred_read_replica >= 0
        )
        cached.high_watermark, cached.log_start_offset = answer.high_watermark, answer.log_start_offset
        if answer.error_code != Error.NONE:
            cached.high_watermark = -1  # when the error is gone, that is news
        if has_records:
            # Who got something goes to the end, so that nobody is starved by a limit on the whole answer.
            self.partitions[key] = self.partitions.pop(key)
        return news


class FetchSessions:
    """The sessions of one broker."""

    def __init__(self, slots: int, random_id: Callable[[], int]):
        self.slots = slots
        self._random_id = random_id
        self._sessions: dict[int, Session] = {}  # the one used least recently is first

    def __len__(self) -> int:
        return len(self._sessions)

    def open(self, wanted: dict[Key, Any], uses_topic_ids: bool, now_ms: int) -> Session | None:
        """Begin a session; None if there is no room."""
        if len(self._sessions) >= self.slots:
            oldest = next(iter(self._sessions.values()), None)
            if oldest is None or now_ms - oldest.used_ms <= EVICTION_MS:
                return None
            del self._sessions[oldest.session_id]
        session_id = self._random_id()
        while session_id == NO_SESSION or session_id in self._sessions:
            session_id = self._random_id()
        session = self._sessions[session_id] = Session(session_id, uses_topic_ids, now_ms)
        session.update(wanted, [])
        return session

    def find(self, session_id: int) -> Session | None:
        return self._sessions.get(session_id)

    def close(self, session_id: int) -> None:
        self._sessions.pop(session_id, None)

    def resume(
        self,
        session_id: int,
        epoch: int,
        version: int,
        wanted: dict[Key, Any],
        forgotten: list[Key],
        now_ms: int,
    ) -> Session | None:
        """Return the session of an incremental request, brought up to date; None if nothing is left in it."""
        session = self._sessions.get(session_id)
        if session is None:
            raise KafkaError(Error.FETCH_SESSION_ID_NOT_FOUND, f"no session {session_id}")
        if session.epoch != epoch:
            raise KafkaError(Error.INVALID_FETCH_SESSION_EPOCH, f"epoch {epoch}, {session.epoch} is due")
        if session.uses_topic_ids != (version >= TOPIC_IDS_SINCE):
            raise KafkaError(Error.FETCH_SESSION_TOPIC_ID_ERROR, "the session began without topic ids, or with them")
        session.update(wanted, forgotten)
        if not session.partitions:
            self.close(session_id)
            return None
        session.epoch = 1 if epoch == EPOCH_MAX else epoch + 1
        session.used_ms = now_ms
        self._sessions[session_id] = self._sessions.pop(session_id)
        return session

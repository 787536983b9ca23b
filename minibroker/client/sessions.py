"""Fetch sessions (KIP-227): tell the broker only what has changed since the last request to it.

One session with each broker. What must hold: what the broker is believed to know is what it was told in requests that
it answered; after any doubt the next request is a full one.
Without sessions every request is a full one outside of any session.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    Key = tuple[str, int]

NO_SESSION, FIRST = 0, 0
NO_EPOCH = -1
EPOCH_MAX = 0x7FFFFFFF


class FetchSession:
    """The session with one broker."""

    def __init__(self, enabled: bool):
        self.enabled = enabled
        self.id = NO_SESSION
        self.epoch = FIRST if enabled else NO_EPOCH
        self.topic_ids: dict[str, bytes] = {}  # of topics that were listed; forgetting one needs it
        self._known: dict[Key, object] = {}  # partition -> what was asked of it
        self._asked: dict[Key, object] = {}  # with the request under way

    def next(self, wanted: Mapping[Key, object]) -> tuple[list[Key], list[Key]]:
        """Return which of the wanted partitions the request must list, and which ones to forget."""
        self._asked = dict(wanted)
        if self.id == NO_SESSION:
            return list(wanted), []
        changed = [key for key, what in wanted.items() if self._known.get(key) != what]
        return changed, [key for key in self._known if key not in wanted]

    def answered(self, session_id: int) -> None:
        """Take note of an answer without an error for the whole request."""
        if not self.enabled:
            return
        if session_id == NO_SESSION:  # the broker has no room for sessions, or has ended this one
            self.reset()
            return
        self.id = session_id
        self.epoch = 1 if self.epoch == EPOCH_MAX else self.epoch + 1
        self._known = self._asked

    def reset(self) -> None:
        """Begin anew with the next request."""
        self.id = NO_SESSION
        self.epoch = FIRST if self.enabled else NO_EPOCH
        self._known = {}

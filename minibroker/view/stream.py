"""A viewer as an answer of HTTP: `curl -N localhost:9092/api/events`."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from minibroker.view.feed import Feed
    from minibroker.view.selection import Selection
    from minibroker.view.viewer import Sink, Viewer


class EventStreamAnswer:
    """Begins with the connection that it is sent over, and ends with it."""

    content_type = "text/event-stream"

    def __init__(self, feed: Feed, selection: Selection, may_look: Callable[[], bool]):
        self._feed = feed
        self._selection = selection
        self._may_look = may_look
        self._viewer: Viewer | None = None

    def begin(self, connection: Sink) -> None:
        if self._feed.is_full:  # others were quicker: the browser comes again
            connection.close()
        else:
            self._viewer = self._feed.open(self._selection, connection, self._may_look)

    def go_on(self) -> None:
        """The next frame finds that there is room."""

    def end(self) -> None:
        if self._viewer is not None:
            self._feed.leave(self._viewer)

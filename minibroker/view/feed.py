"""The state of one broker or cluster, kept up to date as long as somebody looks, and those who do.

    feed = Feed(source)
    await feed.show(selection)                    all of it, as JSON
    feed.open(selection, sink)                    a viewer: frames of what has changed, ten a second at most

What must hold: a frame is made in shares of a turn of the loop, and what changes meanwhile belongs to the next. Nothing
is heard, made or kept without somebody who looks; for LEASE_MS all is kept up to date for who may come, or come again.
"""

from __future__ import annotations

from asyncio import Lock
from functools import cached_property

from minibroker.clock import LoopClock
from minibroker.turns import Shares
from minibroker.view.said import CLUSTER, QUIET_MS, ROUTINE, ROUTINE_MAX
from minibroker.view.state import ViewState
from minibroker.view.table import CHOSEN, RowTable
from minibroker.view.updates import Updates
from minibroker.view.viewer import Viewer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from asyncio import Future
    from collections.abc import Callable, Generator, Iterable
    from typing import TypeVar

    from minibroker.clock import Timer
    from minibroker.events import Event, Subscription
    from minibroker.view.selection import Selection
    from minibroker.view.source import ViewSource
    from minibroker.view.viewer import Sink

    Wanted = TypeVar("Wanted")
    Work = Generator[int, None, None]

FRAME_MS = 100
BUSY_FRAME_MS = 200  # while so much happens that nobody can follow it
STEP_MS = 10  # while somebody steps: each move is a frame
SLOW_MS = 1000  # sums and clients
SUMS_US_MAX = 1000  # in one frame
FORGET_US = 50
COLD = 2  # so many times as long work takes that follows a pause, when others have had the machine's caches
LEASE_MS = 30_000
VIEWERS_MAX = 8


class Feed:
    """One for a broker that is alone, or for a cluster."""

    def __init__(self, source: ViewSource):
        self.source = source
        self.viewers: dict[Viewer, None] = {}
        self.readers: dict[object, None] = {}  # who searches or looks at what is written; that is no state
        self.reading = Lock()  # one log at a time is looked into: what a batch unpacks to may be much
        self.shares = Shares(lambda go_on: go_on())
        self._clock = LoopClock()
        self._watching: Watching | None = None
        self._lease: Timer | None = None

    @cached_property
    def token(self) -> str:
        """A word of this process that nobody guesses: a page that steers has to bring it."""
        return self.source.new_token()

    @property
    def is_on(self) -> bool:
        return self._watching is not None

    @property
    def is_full(self) -> bool:
        return len(self.viewers) >= VIEWERS_MAX

    async def show(self, selection: Selection) -> bytes:
        """Return all that there is to see, as JSON."""
        watching = self._stay()
        await watching.frame_made()
        pieces: list[str] = []
        await self.shares.run(watching.write_all(selection, pieces))
        return "".join(pieces).encode()

    def open(self, selection: Selection, sink: Sink, may_look: Callable[[], bool] = lambda: True) -> Viewer:
        """Let somebody look from now on, as long as he may; not more than VIEWERS_MAX do."""
        assert not self.is_full
        watching = self._stay()
        viewer = Viewer(watching.state, selection, sink, may_look)
        self.viewers[viewer] = None
        watching.make()
        return viewer

    def leave(self, viewer: Viewer) -> None:
        if self.viewers.pop(viewer, self) is None and self.is_on:
            self._stay()

    def close(self) -> None:
        """Tell nobody anything more, and forget everything."""
        viewers, self.viewers = list(self.viewers), {}
        for viewer in viewers:
            viewer.close()
        if self._lease is not None:
            self._lease.cancel()
            self._lease = None
        if self._watching is not None:
            self._watching.end()
            self._watching = None

    def _stay(self) -> Watching:
        """Keep all up to date for a while."""
        if self._watching is None:
            self._watching = Watching(self)
        if self._lease is not None:
            self._lease.cancel()
        self._lease = self._clock.after(LEASE_MS, self._lease_over)
        return self._watching

    def _lease_over(self) -> None:
        self._lease = None
        if not self.viewers:
            self.close()


class Watching:
    """From when somebody begins to look to when nobody does any more: what is heard, and frames."""

    def __init__(self, feed: Feed):
        self.source = feed.source
        self.state = ViewState(feed.source, feed.source.new_boot())
        self.updates = Updates(self.state)
        self._feed = feed
        self._clock = LoopClock()
        self._timer: Timer | None = None
        self._is_making = self._again = self._is_stepping = self._has_ended = False
        self._made: list[Future[None]] = []  # who waits for the frame after this one
        self._slow_due_ms = self._quiet_until_ms = 0
        self._summing: Work | None = None
        self.sums_us_max: float = SUMS_US_MAX
        self._subscription = feed.source.events.subscribe(self._hear, CLUSTER)
        self._routine: Subscription | None = None
        self._listen()

    def end(self) -> None:
        self._has_ended = True
        for each in (self._timer, self._subscription, self._routine):
            if each is not None:
                each.cancel()
        self._tell(self._made)

    # What happens

    def _hear(self, event: Event) -> None:
        self.updates.mark(event)
        self.state.said.hear(event)
        self._step()

    def _listen(self) -> None:
        """Hear of what happens all the time, as long as it is little."""
        self.state.is_quiet = False
        self._routine = self.source.events.subscribe(self._hear_routine, ROUTINE)

    def _hear_routine(self, event: Event) -> None:
        said = self.state.said
        said.hear(event, is_shown=event.kind != "fetch" or bool(event.size_bytes) or self.source.is_stepped)  # type: ignore[attr-defined]
        if said.routine_count > ROUTINE_MAX and self._routine is not None:
            self._routine.cancel()
            self._routine = None
            self.state.is_quiet = True
            self._quiet_until_ms = self._clock.steady_ms() + QUIET_MS
        self._step()

    def _step(self) -> None:
        if not self._is_stepping and self._feed.viewers and self.source.is_stepped:
            self._is_stepping = True
            self._clock.after(STEP_MS, self._take_step)

    def _take_step(self) -> None:
        self._is_stepping = False
        self.make()

    # Frames

    async def frame_made(self) -> None:
        """Return when a frame is complete that was begun after this was called."""
        import asyncio

        done: Future[None] = asyncio.get_running_loop().create_future()
        self._made.append(done)
        self.make()
        await done

    def make(self) -> None:
        """Make a frame now, or another one after that which is being made."""
        if self._is_making:
            self._again = True
        elif not self._has_ended:
            self._is_making = True
            self._feed.shares.begin(self._making())

    def _making(self) -> Work:
        try:
            while not self._has_ended:
                self._again = False
                waiting, self._made = self._made, []
                try:
                    for step_us in self.frame():
                        yield COLD * step_us
                finally:
                    self._tell(waiting)
                if not self._again:
                    break
        except BaseException:
            if not self._has_ended:
                self._feed.close()  # who looked comes again, and begins anew
            raise
        finally:
            self._is_making = False
        if self._feed.viewers and self._timer is None and not self._has_ended:
            self._timer = self._clock.after(BUSY_FRAME_MS if self.state.is_quiet else FRAME_MS, self._tick)

    def _tell(self, waiting: list[Future[None]]) -> None:
        for done in waiting:
            if not done.done():
                done.set_result(None)

    def _tick(self) -> None:
        self._timer = None
        if self._feed.viewers:
            self.make()

    def frame(self) -> Work:
        """Bring all tables up to date, and send what has changed."""
        state, seq = self.state, self.state.seq + 1
        yield from self.updates.run(seq)
        now_ms = self._clock.steady_ms()
        due = [viewer for viewer in list(self._feed.viewers) if viewer.is_due(now_ms)]
        if due:
            yield from self._update_chosen(due, seq, now_ms)
        if self._has_ended:
            return
        state.said.end_frame(seq)
        state.seq = seq
        if self._routine is None and now_ms >= self._quiet_until_ms:
            self._listen()
        for viewer in due:
            yield from viewer.send_frame(now_ms)

    def _update_chosen(self, due: list[Viewer], seq: int, now_ms: int) -> Work:
        """Have rows of what those have chosen whose turn it is; those of others are as they were."""
        tables, updates = self.state.tables, self.updates
        for viewer in due:
            viewer.look()
        viewers = list(self._feed.viewers)
        places = _joined(viewer.places for viewer in due)
        to_read = _joined(viewer.places for viewer in due if viewer.selection.contents)
        yield from updates.rows(places, seq, tables["rows"], tables["logs"])
        yield from updates.contents(to_read, seq, tables["contents"])
        shown = _joined(viewer.places for viewer in viewers)
        updates.forget_others(places, shown, _joined(each.places for each in viewers if each.selection.contents))
        yield FORGET_US + 3 * len(shown)
        groups = {group: None for viewer in viewers for group in viewer.groups}
        yield from updates.members(_joined(viewer.groups for viewer in due), groups, seq, tables["members"])
        if now_ms >= self._slow_due_ms or any(viewer.is_new for viewer in due):
            self._slow_due_ms = now_ms + SLOW_MS
            if any(viewer.selection.sums for viewer in viewers):
                self._summing = self._summing or updates.sums(lambda: self.state.seq + 1, tables["sums"])
            if any(viewer.selection.clients for viewer in viewers):
                yield from updates.clients(seq, tables["clients"])
        yield from self._go_on_summing()

    def _go_on_summing(self) -> Work:
        """Add up for a while: of many partitions the sums take several frames."""
        spent_us = 0
        while self._summing is not None and spent_us < self.sums_us_max:
            step_us = next(self._summing, None)
            if step_us is None:
                self._summing = None
            else:
                spent_us += step_us
                yield step_us

    def write_all(self, selection: Selection, pieces: list[str]) -> Work:
        """Write a state with rows made for it."""
        updates, seq = self.updates, self.state.seq
        places, parts_left_out = selection.places(self.source.image)
        groups, groups_left_out = selection.group_ids(self.state.tables["groups"].rows)
        chosen = {name: RowTable() for name in CHOSEN}
        yield from updates.rows(places, seq, chosen["rows"], chosen["logs"])
        if selection.contents:
            yield from updates.contents(places, seq, chosen["contents"])
        yield from updates.members(groups, groups, seq, chosen["members"])
        if selection.sums:
            yield from updates.sums(lambda: seq, chosen["sums"])
        if selection.clients:
            yield from updates.clients(seq, chosen["clients"])
        left_out = {name: count for name, count in (("rows", parts_left_out), ("members", groups_left_out)) if count}
        yield from self.state.write(pieces, {name: table.texts for name, table in chosen.items()}, seq, left_out)


def _joined(lists: Iterable[list[Wanted]]) -> dict[Wanted, None]:
    return {each: None for some in lists for each in some}

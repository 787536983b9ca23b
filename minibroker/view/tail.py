"""What is written to a topic from now on: a few records a second, and how many more there were.

    event: begin         by partition the offset from which on it is told
    event: records       up to four times a second, oldest first; left_out: offsets that are not shown because they are
                         too many (sampled), or could not even be looked at (unread)

Of each tick the newest are shown. With a filter all are looked at, as long as that takes a fifth of the time at most.
"""

from __future__ import annotations

from minibroker.view.record_rows import PartitionRead, RowMaker, Wanted, encode
from minibroker.view.search import SearchedPartition, search
from minibroker.view.sliced_stream import SlicedStream

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence
    from typing import Any, Final

    from minibroker.replication.replica import Replica
    from minibroker.view.feed import Feed
    from minibroker.view.filters import Filter

    Work = Generator[int, None, None]

TICK_MS: Final = 250
COMMENT_MS: Final = 15_000  # at least so often something is sent, so that a client that has gone is found
SCAN_US_MAX: Final = TICK_MS * 1000 // 5  # of looking for what fits, in one tick
BYTES_MAX: Final = 1 << 20


class TailStream(SlicedStream):
    """One that looks on."""

    def __init__(
        self,
        feed: Feed,
        may_look: Callable[[], bool],
        asked: Callable[[], int],
        find: Callable[[], Sequence[Replica]],
        wanted: Filter,
        *,
        rate: int,
        shown: Wanted,
    ):
        """find: returns the replicas that lead now. rate: records a second, at most."""
        super().__init__(feed, may_look, asked)
        self._find = find
        self._wanted = wanted
        self._rate = rate
        self._shown = shown
        self._positions: dict[int, int] = {}
        self._credit = 0.0  # records that may be shown now
        self._rows: list[tuple[int, str]] = []
        self._left_out: dict[str, int] = {}

    async def run(self) -> None:
        for replica in self._find():
            self._positions[replica.partition] = self._end_of(replica)
        self.send("begin", {"partitions": {str(number): offset for number, offset in self._positions.items()}})
        told_ms = self.clock.steady_ms()
        while await self.room():
            self._credit = min(self._credit + self._rate * TICK_MS / 1000, max(self._rate / 2, 1))
            await self.slices(self._look(), lambda: True)
            now_ms = self.clock.steady_ms()
            if self._rows or self._left_out:
                self._send()
                told_ms = now_ms
            elif now_ms - told_ms >= COMMENT_MS:
                self.send_comment()
                told_ms = now_ms
            await self.clock.sleep(TICK_MS)
        self.send("end", {"why": "gone"})

    def _send(self) -> None:
        self._rows.sort(key=lambda row: row[0])
        face: dict[str, Any] = {"left_out": self._left_out, "positions": self._positions}
        if self._wanted.unread:
            face["unread"] = self._wanted.unread
        head = encode(face)[:-1]
        self.send("records", f'{head},"records":[{",".join(row for _, row in self._rows)}]}}')
        self._rows, self._left_out = [], {}

    def _end_of(self, replica: Replica) -> int:
        return replica.readable_end(int(self._shown.committed_only))

    def _look(self) -> Work:
        """Take what has come since."""
        news = []
        for replica in self._find():
            end = self._end_of(replica)
            start = min(self._positions.get(replica.partition, 0), end)  # another leader may have less
            self._positions[replica.partition] = end
            if start < end:
                news.append((replica, start, end))
        yield 20 * len(self._positions)
        for number, (replica, start, end) in enumerate(news):
            share = int(self._credit) // (len(news) - number)
            if self._wanted.is_empty:
                yield from self._newest(replica, start, end, share)
            else:
                yield from self._fitting(replica, start, end, share, SCAN_US_MAX // len(news))

    def _newest(self, replica: Replica, start: int, end: int, share: int) -> Work:
        if not share:
            self._leave_out("sampled", end - start)
            return
        part = PartitionRead(replica, self._shown)
        yield from part.newest(share, start, end)
        self._rows += [(stamp, row) for stamp, _, row in part.rows]
        self._credit -= len(part.rows)
        if part.ended == "damaged":
            self._leave_out("unread", end - start - len(part.rows))
        elif part.rows:
            self._leave_out("sampled", part.rows[-1][1] - start)

    def _fitting(self, replica: Replica, start: int, end: int, share: int, us_max: int) -> Work:
        place = SearchedPartition(replica, start, committed_only=self._shown.committed_only)
        place.end = place.walk.end = end
        hits: list[str] = []
        count = 0

        def hit(row: str) -> None:
            nonlocal count
            count += 1
            if len(hits) < share:
                hits.append(row)

        spent_us = 0
        for step_us in search(place, self._wanted, RowMaker(replica.topic, replica.partition, self._shown), hit):
            spent_us += step_us
            yield step_us
            if spent_us > us_max:
                self._leave_out("unread", end - place.walk.position)
                break
        now_ms = self.clock.now_ms()
        self._rows += [(now_ms, row) for row in hits]
        self._credit -= len(hits)
        self._leave_out("sampled", count - len(hits))

    def _leave_out(self, why: str, count: int) -> None:
        if count > 0:
            self._left_out[why] = self._left_out.get(why, 0) + count

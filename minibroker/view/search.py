"""Searching the records of a topic: hits as they are found, and how far it has come.

event: hit           a record
event: progress      twice a second at most: by partition from where, up to where, of what end; records, bytes, hits
event: end           the same, and why: all, limit, time, damaged, or gone
"""

from __future__ import annotations

from minibroker.view.record_rows import RowMaker, Walk, Wanted
from minibroker.view.sliced_stream import SlicedStream

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence
    from typing import Any, Final

    from minibroker.replication.replica import Replica
    from minibroker.view.feed import Feed
    from minibroker.view.filters import Filter

    Work = Generator[int, None, None]

PROGRESS_MS: Final = 500
FIND_BYTES_PER_US: Final = 1000
RECORDS_US: Final = 2  # of some records, beside each of them
RECORD_NS: Final = 500


class SearchedPartition:
    """One partition that is searched."""

    def __init__(self, replica: Replica, start: int, *, committed_only: bool):
        log = replica.log
        self.replica = replica
        self.walk = Walk(replica, max(start, log.log_start_offset), committed_only=committed_only, checks=False)
        self.end = self.walk.readable_end  # what comes later is not searched
        self.walk.end = self.end
        self.is_done = False

    def face(self) -> dict[str, Any]:
        face: dict[str, Any] = {
            "partition": self.replica.partition,
            "from": self.walk.start,
            "position": min(self.walk.position, self.end),
            "end": self.end,
        }
        if self.walk.lost_count:
            face["deleted"] = self.walk.lost_count  # offsets, before they could be read
        if self.walk.damaged:
            face["damaged"] = self.walk.damaged
        if self.walk.failure:
            face["error"] = self.walk.failure
        return face


def search(place: SearchedPartition, wanted: Filter, maker: RowMaker, hit: Callable[[str], object]) -> Work:
    """Go through a partition; hit: called with each record that fits, as JSON."""
    walk = place.walk
    walk.needed = wanted.may_be_in
    while (found := (yield from walk.next())) is not None:
        if found.batch.is_control:
            walk.pass_over()
            continue
        if found.batch.magic == 2 and found.batch.codec:
            data = yield from walk.unpacked()
            yield len(data) // FIND_BYTES_PER_US
            if data and not wanted.may_be_in(data):
                walk.pass_over()
                continue
        while records := (yield from walk.read()):
            spent_ns = RECORDS_US * 1000
            for record in records:
                spent_ns += RECORD_NS + 1000 * wanted.cost_us(record)
                if wanted.fits(record):
                    row = yield from maker.row(found, record)
                    hit(row)
                if spent_ns > 100_000:
                    yield spent_ns // 1000
                    spent_ns = 0
            yield spent_ns // 1000
    place.is_done = not walk.failure


class SearchStream(SlicedStream):
    """One search."""

    def __init__(
        self,
        feed: Feed,
        may_look: Callable[[], bool],
        asked: Callable[[], int],
        places: Sequence[SearchedPartition],
        wanted: Filter,
        *,
        limit: int,
        seconds: int,
        shown: Wanted,
    ):
        super().__init__(feed, may_look, asked)
        self._places = places
        self._wanted = wanted
        self._limit = limit
        self._seconds = seconds
        self._shown = shown
        self._hit_count = 0
        self._begun_ms = self._told_ms = 0

    async def run(self) -> None:
        self._begun_ms = self._told_ms = self.clock.steady_ms()
        why = "all"
        for place in self._places:
            maker = RowMaker(place.replica.topic, place.replica.partition, self._shown)
            if not await self.slices(search(place, self._wanted, maker, self._hit), self._tell):
                why = "gone" if self.is_over else "limit" if self._hit_count >= self._limit else "time"
                break
        if why == "all" and any(place.walk.failure for place in self._places):
            why = "damaged"
        self.send("end", {"why": why} | self._face())

    def _hit(self, row: str) -> None:
        if self._hit_count < self._limit:
            self._hit_count += 1
            self.send("hit", row)

    def _tell(self) -> bool:
        now_ms = self.clock.steady_ms()
        if self._hit_count >= self._limit or now_ms - self._begun_ms >= self._seconds * 1000:
            return False
        if now_ms - self._told_ms >= PROGRESS_MS:
            self._told_ms = now_ms
            self.send("progress", self._face())
        return True

    def _face(self) -> dict[str, Any]:
        walks = [place.walk for place in self._places]
        return {
            "partitions": [place.face() for place in self._places],
            "records": sum(walk.record_count for walk in walks),
            "bytes": sum(walk.bytes for walk in walks),
            "hits": self._hit_count,
            "left": sum(max(place.end - place.walk.position, 0) for place in self._places),
            "unread": self._wanted.unread,
            "seconds": (self.clock.steady_ms() - self._begun_ms) / 1000,
        }

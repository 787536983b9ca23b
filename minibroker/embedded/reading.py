"""Records of replicas, read where they are; and waiting for them.

Nothing here asks again and again: events say when to look. Patience is measured by the machine's clock, since the
brokers' may be frozen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from minibroker.clock import LoopClock
from minibroker.embedded.engine import too_few
from minibroker.embedded.record import Record
from minibroker.events import EventStream
from minibroker.log.batches import batches
from minibroker.log.reading import read
from minibroker.replication.replica import Replica

READ_BYTES = 1024 * 1024
RECORD_KINDS = ("high_watermark", "leader", "epoch", "topic", "broker", "metadata", "delete")


def records_of(replica: Replica, offset: int = 0) -> Iterator[Record]:
    """Yield what a consumer would get of a partition, from its beginning or an offset behind that."""
    offset = max(offset, replica.log.log_start_offset)
    while found := read(replica.log, offset, READ_BYTES, limit_offset=replica.high_watermark):
        begun = offset
        for batch in batches(found.view()):
            if not batch.is_control:
                for record in batch.records():
                    if record.offset >= begun:
                        yield Record(
                            replica.partition, record.offset, record.key, record.value, record.headers, record.timestamp
                        )
            offset = batch.last_offset + 1
        if offset == begun:  # the rest is a piece of a batch
            return


def ends_of(replicas: Iterable[Replica]) -> dict[int, tuple[int, int]]:
    """Return the offsets at which each partition begins and ends for consumers."""
    return {each.partition: (each.log.log_start_offset, each.high_watermark) for each in replicas}


def last_of(replicas: Iterable[Replica], count: int) -> list[Record]:
    """Return the last records of each partition, so many or fewer: some offsets are of markers, or of nothing."""
    return [record for each in replicas for record in records_of(each, each.high_watermark - count)]


async def wait_for_records(
    events: EventStream,
    leaders: Callable[[], Iterable[Replica]],
    topic: str,
    count: int,
    timeout: float,
    topics: Callable[[], Iterable[str]],
) -> list[Record]:
    """Return all records as soon as there are so many. leaders: the replicas of the topic that lead now."""
    clock = LoopClock()
    deadline_ms = clock.now_ms() + timeout * 1000
    while True:
        found = [record for replica in leaders() for record in records_of(replica)]
        if len(found) >= count:
            return found
        before = _ends(leaders())
        # Markers of transactions have offsets too, so it is counted again when there are enough of those.
        end = sum(before.values()) + count - len(found)

        def is_more(before: dict[int, int] = before, end: int = end) -> bool:
            """Whether it is worth counting again: another leader may have been without records that are there now."""
            now = _ends(leaders())
            return sum(now.values()) >= end or before.keys() != now.keys()

        try:
            await events.wait_until(is_more, RECORD_KINDS, timeout_ms=max(deadline_ms - clock.now_ms(), 0))
        except TimeoutError:
            raise too_few(topic, len(found), count, timeout * 1000, topics()) from None


def _ends(replicas: Iterable[Replica]) -> dict[int, int]:
    return {replica.partition: replica.high_watermark for replica in replicas}

"""Records of a batch that are written already: the rows of a repeated batch are taken out of this multiset.

Records are known by a digest of topic, key, value and headers, and by their time where that is the row's own: the time
of the write is another one at each attempt, and a topic with LogAppendTime keeps none of the rows'. A row with a key,
or with a partition that it asked for, is found only there; any other row in whatever partition it went to. Of equal
rows each is found as often as it is there.
What must hold: rows are taken out in their order, so what is left is what comes behind what was written.
Memory: about 200 bytes for each record that was written; only a batch that is repeated has any.
Not here: reading what was written (exactly_once.py).
"""

from __future__ import annotations

from hashlib import blake2b
from struct import Struct as Layout

import numpy as np
import pyarrow as pa

from minibroker.client.cluster import TopicPartition
from minibroker.spark.sink.rows import Rows

_SIZES = Layout(">qq")
NULL = -1


def digests_of(topic: str, keys: pa.Array | None, values: pa.Array, headers: pa.Array | None) -> list[bytes]:
    """Return a digest of each record."""
    start = blake2b(topic.encode(), digest_size=16)
    found = []
    count = len(values)
    all_keys = [None] * count if keys is None else keys.to_pylist()
    all_headers = [None] * count if headers is None else headers.to_pylist()
    for key, value, pairs in zip(all_keys, values.to_pylist(), all_headers):
        digest = start.copy()
        digest.update(_SIZES.pack(NULL if key is None else len(key), NULL if value is None else len(value)))
        digest.update(key or b"")
        digest.update(value or b"")
        for pair in pairs or ():
            digest.update(repr((pair["key"], pair["value"])).encode())
        found.append(digest.digest())
    return found


class WrittenRecords:
    """Records that are in the log and have not been met among the rows."""

    def __init__(self) -> None:
        self.count = 0
        # Digest -> time in ms, None where the broker has set it -> partitions, one for each record.
        self._places: dict[bytes, dict[int | None, list[int]]] = {}
        self._example: TopicPartition | None = None

    def add(self, key: TopicPartition, digests: list[bytes], times: list[int | None]) -> None:
        """Take note of records of one partition."""
        for digest, time in zip(digests, times, strict=True):
            self._places.setdefault(digest, {}).setdefault(time, []).append(key[1])
        self.count += len(digests)
        self._example = self._example or key

    def leave_out(self, rows: Rows) -> Rows:
        """Return the rows that are not there yet; those that are count no more as found."""
        if not self.count:
            return rows
        assert rows.are_free is not None
        keep = np.ones(len(rows), np.bool_)
        digests = digests_of(rows.topic, rows.keys, rows.values, rows.headers)
        timed = [False] * len(rows) if rows.are_timed is None else rows.are_timed.tolist()
        for place, (digest, partition, is_free, time, is_timed) in enumerate(
            zip(digests, rows.partitions.tolist(), rows.are_free.tolist(), rows.timestamps.tolist(), timed)
        ):
            by_time = self._places.get(digest)
            if by_time is None:
                continue
            for found in (time, None) if is_timed else list(by_time):
                if self._take(by_time, found, partition, is_free):
                    keep[place] = False
                    self.count -= 1
                    break
            if not by_time:
                del self._places[digest]
        return rows if keep.all() else rows.take(np.flatnonzero(keep))

    @staticmethod
    def _take(by_time: dict[int | None, list[int]], time: int | None, partition: int, is_free: bool) -> bool:
        """Take a record away; return whether there was one."""
        partitions = by_time.get(time)
        if not partitions or not (is_free or partition in partitions):
            return False
        if partition in partitions:
            partitions.remove(partition)
        else:
            partitions.pop()
        if not partitions:
            del by_time[time]
        return True

    def example(self) -> TopicPartition | None:
        """Return where records were found, for messages."""
        return self._example

"""Consumer: records of partitions and offsets that its user names, without a group.

One fetch at a time is under way to each broker; `fetch` returns as soon as one of them has answered. Connections are
the consumer's own, since a broker that waits for data answers nothing else meanwhile.
What must hold: no record is handed over twice or left out unless a position was moved; failures come out only after
the records that were read before them.
Not here: groups (assignment and committed offsets will come from a coordinator and end in `assign`), reading ahead.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable
from typing import Self

from minibroker.client.cluster import Cluster, TopicPartition
from minibroker.client.connection import AsyncCloseable, error_of
from minibroker.client.fetching import (
    ConsumedRecord,
    FetchLimits,
    Position,
    fetch_request,
    read_partition,
    version_for,
)
from minibroker.client.offsets import READ_COMMITTED, READ_UNCOMMITTED, AtTime, FoundOffset, find_offsets
from minibroker.client.sessions import FetchSession
from minibroker.errors import Error, KafkaError, ProtocolError
from minibroker.log.records import DECOMPRESSED_BYTES_MAX
from minibroker.protocol.messages.fetch import FetchRequest, FetchResponse

ISOLATION_LEVELS = {"read_uncommitted": READ_UNCOMMITTED, "read_committed": READ_COMMITTED}
OUT_OF_RANGE_POLICIES = ("error", "earliest", "latest")
# The session as a whole is in doubt; the partitions are not.
SESSION_ERRORS = {
    Error.FETCH_SESSION_ID_NOT_FOUND,
    Error.INVALID_FETCH_SESSION_EPOCH,
    Error.FETCH_SESSION_TOPIC_ID_ERROR,
}


class Consumer(AsyncCloseable):
    """An async context manager, and an async iterator of records that never ends by itself."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        isolation_level: str = "read_uncommitted",
        out_of_range: str = "error",
        max_wait_ms: int = 500,
        bytes_min: int = 1,
        bytes_max: int = 50 * 1024 * 1024,
        partition_bytes_max: int = 1024 * 1024,
        decompressed_bytes_max: int = DECOMPRESSED_BYTES_MAX,
        check_crc: bool = True,
        sessions: bool = False,
    ):
        """out_of_range: what to do when there is nothing at a position: "error", or begin at "earliest" or "latest"."""
        if out_of_range not in OUT_OF_RANGE_POLICIES:
            raise ValueError(f"{out_of_range!r} is none of {OUT_OF_RANGE_POLICIES}")
        if isolation_level not in ISOLATION_LEVELS:
            raise ValueError(f"{isolation_level!r} is none of {tuple(ISOLATION_LEVELS)}")
        self._cluster = cluster
        self._out_of_range = out_of_range
        self._sessions = sessions
        self._limits = FetchLimits(
            max_wait_ms,
            bytes_min,
            bytes_max,
            partition_bytes_max,
            decompressed_bytes_max,
            ISOLATION_LEVELS[isolation_level],
            check_crc,
        )
        self._positions: dict[TopicPartition, Position] = {}
        self._ready: deque[ConsumedRecord] = deque()  # read, not yet handed over
        self._failures: deque[Exception] = deque()  # to be raised once nothing is ready
        self._session_of: dict[int, FetchSession] = {}  # by broker
        self._fetches: dict[int, asyncio.Task[None]] = {}  # broker -> the fetch that is under way to it
        self._closed = False

    # What to read

    async def assign(self, partitions: Iterable[tuple[str, int, int | str | AtTime]]) -> None:
        """Read these partitions and no others, each from an offset, "earliest", "latest" or AtTime(ms).

        A moment after the last record means the end. Offsets are found now, so what is written after this call and
        "latest" will be read.
        """
        wanted = {(topic, partition): start for topic, partition, start in partitions}
        positions = await self._find(wanted)
        self._positions = {key: Position(offset) for key, offset in positions.items()}
        self._ready.clear()
        self._failures.clear()

    async def seek(self, topic: str, partition: int, start: int | str | AtTime) -> None:
        """Go on elsewhere in one of the assigned partitions."""
        key = (topic, partition)
        if key not in self._positions:
            raise ValueError(f"{topic}-{partition} is not assigned")
        offset = (await self._find({key: start}))[key]
        self._positions[key] = Position(offset)
        self._ready = deque(record for record in self._ready if (record.topic, record.partition) != key)

    def assignment(self) -> list[TopicPartition]:
        return list(self._positions)

    def position(self, topic: str, partition: int) -> int:
        """Return the offset of the next record that will be handed over, or of what comes in its place."""
        for record in self._ready:
            if record.topic == topic and record.partition == partition:
                return record.offset
        return self._positions[topic, partition].offset

    def high_watermark(self, topic: str, partition: int) -> int:
        """Return what the last answer said; -1 before the first."""
        return self._positions[topic, partition].high_watermark

    @property
    def is_at_end(self) -> bool:
        """Whether everything has been handed over that there was when the brokers last answered."""
        return not self._ready and all(self._is_at_end(position) for position in self._positions.values())

    def _is_at_end(self, position: Position) -> bool:
        end = position.last_stable_offset if self._limits.isolation == READ_COMMITTED else position.high_watermark
        return position.high_watermark >= 0 and position.offset >= end

    # Reading

    async def fetch(self, max_wait_ms: int | None = None) -> list[ConsumedRecord]:
        """Return the next records, waiting for some for so long; none came if the list is empty."""
        if not self._ready and not self._failures:
            await self._fetch(self._limits.max_wait_ms if max_wait_ms is None else max_wait_ms)
        if self._ready:
            records = list(self._ready)
            self._ready.clear()
            return records
        if self._failures:
            raise self._failures.popleft()
        return []

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ConsumedRecord:
        while not self._ready:
            if self._closed:
                raise StopAsyncIteration
            if not self._positions:
                raise ValueError("nothing is assigned")
            self._ready.extend(await self.fetch())
        return self._ready.popleft()

    async def close(self) -> None:
        """Stop; the cluster stays open."""
        self._closed = True
        tasks = list(self._fetches.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._cluster.close_lane(self)

    async def _fetch(self, max_wait_ms: int) -> None:
        """Have a fetch under way to every leader, and wait for the first answer."""
        limits = self._limits._replace(max_wait_ms=max_wait_ms)
        for leader, positions in (await self._by_leader()).items():
            if leader not in self._fetches:
                work = self._fetch_from(leader, positions, limits)
                self._fetches[leader] = asyncio.get_running_loop().create_task(work)
        if self._fetches:
            await asyncio.wait(self._fetches.values(), return_when=asyncio.FIRST_COMPLETED)

    async def _by_leader(self) -> dict[int, dict[TopicPartition, Position]]:
        found: dict[int, dict[TopicPartition, Position]] = {}
        for key, position in list(self._positions.items()):
            leader = await self._cluster.leader_of(*key)
            position.leader_epoch = leader.leader_epoch
            position.topic_id = (await self._cluster.topic(key[0])).id
            found.setdefault(leader.leader_id, {})[key] = position
        return found

    async def _fetch_from(self, leader: int, positions: dict[TopicPartition, Position], limits: FetchLimits) -> None:
        try:
            pause_ms = await self._fetch_once(leader, positions, limits)
            if pause_ms:
                await self._cluster.clock.sleep(pause_ms)
        except Exception as error:  # a bug as well: it belongs to whoever calls fetch
            self._failures.append(error)
        finally:
            del self._fetches[leader]

    async def _fetch_once(self, leader: int, positions: dict[TopicPartition, Position], limits: FetchLimits) -> int:
        """Ask one broker and take its answer; return how long to pause before the next time."""
        session = self._session_of.setdefault(leader, FetchSession(self._sessions))
        asked = {key: position.offset for key, position in positions.items()}
        try:
            connection = await self._cluster.connection(leader, self)
            version = version_for(connection.version_of(FetchRequest), positions.values())
            request = fetch_request(positions, limits, session)
            timeout_ms = limits.max_wait_ms + self._cluster.timeout_ms
            answer: FetchResponse = await self._cluster.call(
                request, leader, version=version, lane=self, timeout_ms=timeout_ms
            )
            if answer.error_code:
                raise error_of(answer.error_code, f"fetch from {connection.address}")
        except KafkaError as error:
            session.reset()
            if error.code in SESSION_ERRORS:
                return 0
            return max(self._suffer(key, position, error) for key, position in positions.items())
        session.answered(answer.session_id)
        return await self._take(answer, positions, asked, limits, version)

    async def _take(
        self,
        answer: FetchResponse,
        positions: dict[TopicPartition, Position],
        asked: dict[TopicPartition, int],
        limits: FetchLimits,
        version: int,
    ) -> int:
        names = {position.topic_id: topic for (topic, _), position in positions.items()}
        pause_ms = 0
        for topic in answer.responses:
            for data in topic.partitions:
                key = (topic.topic or names.get(topic.topic_id, ""), data.partition_index)
                position = positions.get(key)
                # Another object, or an offset that has moved: somebody sought in the meantime.
                if position is None or self._positions.get(key) is not position or position.offset != asked[key]:
                    continue
                try:
                    self._ready.extend(read_partition(key, position, data, limits, version))
                except KafkaError as error:
                    if error.code == Error.OFFSET_OUT_OF_RANGE and self._out_of_range != "error":
                        position.offset = (await self._find({key: self._out_of_range}))[key]
                    else:
                        pause_ms = max(pause_ms, self._suffer(key, position, error))
                except ProtocolError as error:
                    self._failures.append(error)
        return pause_ms

    def _suffer(self, key: TopicPartition, position: Position, error: KafkaError) -> int:
        """Return how long to pause, or leave the error for the caller of fetch if it will not pass."""
        position.failures += 1
        self._cluster.forget(key[0])
        if error.code.retriable and position.failures <= self._cluster.retry_count:
            return min(self._cluster.retry_pause_ms << position.failures - 1, 1000)
        position.failures = 0
        if error not in self._failures:  # one lost connection concerns many partitions
            self._failures.append(error)
        return 0

    async def _find(self, wanted: dict[TopicPartition, int | str | AtTime]) -> dict[TopicPartition, int]:
        """Turn what callers say about where to begin into offsets."""
        found = {key: start for key, start in wanted.items() if isinstance(start, int)}
        by_time: dict[TopicPartition, int | str | AtTime]
        by_time = {key: start for key, start in wanted.items() if not isinstance(start, int)}
        while by_time:
            answers = await find_offsets(self._cluster, by_time, self._limits.isolation)
            again: dict[TopicPartition, int | str | AtTime] = {}
            for key, result in answers.items():
                if isinstance(result, KafkaError):
                    raise result
                if result.offset < 0 and isinstance(by_time[key], AtTime):
                    again[key] = "latest"
                else:
                    found[key] = _offset(key, result)
            by_time = again
        return {key: found[key] for key in wanted}


def _offset(key: TopicPartition, found: FoundOffset) -> int:
    if found.offset < 0:
        raise KafkaError(Error.OFFSET_NOT_AVAILABLE, f"{key[0]}-{key[1]}")
    return found.offset

"""Fetches of a task: bytes of one partition from its leader, repeated while what fails may pass.

`Fetcher.send` writes a request and returns at once; `fetch` waits for its answer, or asks again. So one fetch is under
way while what the last one brought is decoded, with no thread: the kernel takes what arrives.
What must hold: an answer holds whole what lies at the offset asked for, or says that nothing does. Whatever has gone
since the query was planned (retention, truncation, a topic made anew) is data loss, never an empty answer.
An answer without records below the end of the task is a stall like any other, and never the end by itself: Kafka
answers so whenever a remote read of tiered storage takes longer than remote.fetch.max.wait.ms. Only where the topic is
compacted, and nothing has come for CLEANED_MS, has the cleaner removed what was there. A high watermark below the end
of the task is waited for too, as that of a new leader lags. Where it stays there, ListOffsets is asked: a leader that
does not know yet where its log ends says so there (Kafka from 2.2 on), and what it says else is the end.
Not here: decoding (rows.py).
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

from minibroker.client.cluster import Cluster
from minibroker.client.connection import error_of
from minibroker.client.fetching import (
    LAST_VERSION_WITH_HARD_LIMITS,
    FetchLimits,
    Position,
    fetch_request,
    version_for,
)
from minibroker.client.offsets import READ_COMMITTED, READ_UNCOMMITTED, find_offsets
from minibroker.client.sessions import FetchSession
from minibroker.errors import Error, KafkaError
from minibroker.protocol.framing import FRAME_BYTES_MAX
from minibroker.protocol.messages.fetch import FetchRequest, FetchResponse
from minibroker.schema.types import NO_ID
from minibroker.spark.brokers.planning import open_cluster
from minibroker.spark.files.rows import size_of_first
from minibroker.spark.options import Options
from minibroker.spark.ranges import DataLoss, Task

PartitionData = FetchResponse.FetchableTopicResponse.PartitionData


WAIT_MS = 100  # what is planned is there; only behind what cleaning has removed a broker waits in vain
PAUSE_MS, PAUSE_MS_MAX = 20, 1_000
CLEANUP_POLICY = "cleanup.policy"
ANSWER_OVERHEAD_BYTES = 1024 * 1024  # of an answer with one partition, aborted transactions included
CLEANED_MS = 5_000  # how long the answers stay empty until the tail of a compacted topic counts as cleaned away


class NothingCame(Exception):
    """No broker gave what it should have, for as long as the query waits."""


class FetchAnswer:
    """What a fetch brought."""

    __slots__ = ("aborted", "address", "first_offset", "records")

    def __init__(self, address: str, first_offset: int, data: PartitionData | None = None):
        self.address = address  # of the broker
        self.first_offset = first_offset  # where reading goes on: higher than asked for if what was there is lost
        self.records = memoryview((data and data.records) or b"")
        rows = (data and data.aborted_transactions) or ()
        self.aborted = [(row.producer_id, row.first_offset) for row in rows]


class _PendingFetch:
    """A request under way."""

    __slots__ = ("address", "future", "offset", "version")

    def __init__(self, address: str, version: int, offset: int, future: asyncio.Future[FetchResponse]):
        self.address = address
        self.version = version
        self.offset = offset
        self.future = future


class Fetcher:
    """Fetches for one task."""

    def __init__(self, task: Task, options: Options):
        self.task = task
        self.lost: list[str] = []  # what was lost and may be, in words
        self._options = options
        self._cluster = open_cluster(options, is_planning=False)
        self._isolation = READ_COMMITTED if options.read_committed else READ_UNCOMMITTED
        self._bytes = max(1, options.fetch_bytes)
        self._wait_ms = min(options.fetch_wait_ms, WAIT_MS)
        self._cleaned_ms = min(CLEANED_MS, options.poll_timeout_ms)
        self._policy: list[bool | None] = []  # of the topic, once it was asked for: is_compacted

    def __str__(self) -> str:
        return str(self.task)

    async def close(self) -> None:
        await self._cluster.close()

    async def send(self, offset: int) -> _PendingFetch | None:
        """Ask for what comes at an offset; None if it cannot be asked now, which `fetch` will look into."""
        try:
            return await self._send(offset)
        except KafkaError:
            return None

    async def fetch(self, offset: int, sent: _PendingFetch | None = None) -> FetchAnswer | None:
        """Return what comes at an offset below the end of the task; None if nothing does."""
        clock = self._cluster.clock
        give_up_ms = clock.steady_ms() + self._options.poll_timeout_ms
        pause_ms, empty_since_ms = PAUSE_MS, -1
        while True:
            try:
                if sent is None or sent.offset != offset:
                    sent = await self._send(offset)
                response, asked, sent = await sent.future, sent, None
                data = _only(response, f"{self} at offset {offset}, of {asked.address}")
                if data is None:
                    # Whoever has read too much lately gets an answer about nothing.
                    pause_ms, problem = max(pause_ms, response.throttle_time_ms), f"{asked.address} throttles"
                elif data.records:
                    if self._is_whole(asked.version, data):
                        return FetchAnswer(asked.address, offset, data)
                    continue
                elif self._visible(data) >= self.task.end_offset:
                    now_ms = clock.steady_ms()
                    empty_since_ms = now_ms if empty_since_ms < 0 else empty_since_ms
                    if now_ms - empty_since_ms >= self._cleaned_ms and await self._is_compacted():
                        return None
                    problem = (
                        f"{asked.address} gives no records, although its log ends at {self._visible(data)}; with "
                        "tiered storage remote.fetch.max.wait.ms may be too short"
                    )
                else:
                    problem = f"the log at {asked.address} ends at {self._visible(data)}"
            except KafkaError as error:
                sent, empty_since_ms = None, -1
                if error.code == Error.OFFSET_OUT_OF_RANGE:
                    return self._out_of_range(offset, *await self._bounds())
                if await self._is_gone(error):
                    self._lose(f"{self}: the topic was deleted, or made anew, since the query was planned")
                    return None
                if not error.code.retriable or error.code == Error.CORRUPT_MESSAGE:
                    raise
                self._cluster.forget(self.task.topic)
                problem = str(error)
            if clock.steady_ms() >= give_up_ms:
                with suppress(KafkaError):
                    start, latest = await self._bounds()
                    if latest < self.task.end_offset:
                        return self._out_of_range(offset, start, latest)
                raise NothingCame(
                    f"{self}: nothing came at offset {offset} within {self._options.poll_timeout_ms} ms "
                    f"(kafkaConsumer.pollTimeoutMs): {problem}"
                )
            await clock.sleep(pause_ms)
            pause_ms = min(pause_ms * 2, PAUSE_MS_MAX)

    async def _send(self, offset: int) -> _PendingFetch:
        task = self.task
        leader = await self._cluster.leader_of(task.topic, task.partition)
        topic_id = (await self._cluster.topic(task.topic)).id
        if topic_id != task.topic_id and NO_ID not in (topic_id, task.topic_id):
            raise KafkaError(Error.INCONSISTENT_TOPIC_ID, f"{task.topic} is another topic now")
        connection = await self._cluster.connection(leader.leader_id)
        position = Position(offset)
        position.topic_id, position.leader_epoch = topic_id, leader.leader_epoch
        version = version_for(connection.version_of(FetchRequest), [position])
        limits = FetchLimits(self._wait_ms, 1, self._bytes, self._bytes, 0, self._isolation, check_crc=False)
        request = fetch_request({(task.topic, task.partition): position}, limits, FetchSession(enabled=False))
        future = connection.send(request, version, timeout_ms=self._cluster.timeout_ms + self._wait_ms)
        return _PendingFetch(connection.address, version, offset, future)

    def _is_whole(self, version: int, data: PartitionData) -> bool:
        """Return whether there is a whole batch; ask for more the next time if the broker has cut it off."""
        needed = size_of_first(data.records or b"")
        if len(data.records or b"") >= needed or version > LAST_VERSION_WITH_HARD_LIMITS:
            return True
        if needed > FRAME_BYTES_MAX - ANSWER_OVERHEAD_BYTES:
            raise KafkaError(Error.MESSAGE_TOO_LARGE, f"{self}: a batch of {needed} bytes is too large")
        self._bytes = max(needed, self._bytes + 1)
        return False

    def _visible(self, data: PartitionData) -> int:
        """Return up to where the broker shows records."""
        stable = data.last_stable_offset
        return stable if self._isolation == READ_COMMITTED and stable >= 0 else data.high_watermark

    async def _is_compacted(self) -> bool:
        if not self._policy:
            self._policy.append(await is_compacted(self._cluster, self.task.topic))
        return self._policy == [True]

    async def is_never_compacted(self) -> bool:
        """Return whether each offset should have a record; False if nobody says.

        Where one has none it is told and ends nothing: a topic that was compacted once has such offsets for good, and
        so have brokers that keep records of their own in a partition.
        """
        with suppress(KafkaError):
            await self._is_compacted()
        return self._policy == [False]

    # What is not there any more

    async def _is_gone(self, error: KafkaError) -> bool:
        """Whether the topic is not there any more; a broker that has just started may not know it yet."""
        if error.code != Error.UNKNOWN_TOPIC_OR_PARTITION:
            return error.code in (Error.UNKNOWN_TOPIC_ID, Error.INCONSISTENT_TOPIC_ID)
        self._cluster.forget(self.task.topic)
        found = (await self._cluster.metadata([self.task.topic]))[self.task.topic]
        return bool(found.error) or self.task.partition not in found.partitions

    async def _bounds(self) -> list[int]:
        """Return where the log begins and ends now; transactions that are open are no loss."""
        key = self.task.topic, self.task.partition
        bounds = []
        for end in ("earliest", "latest"):
            found = (await find_offsets(self._cluster, {key: end}, READ_UNCOMMITTED))[key]
            if isinstance(found, KafkaError):
                raise found
            bounds.append(found.offset)
        return bounds

    def _out_of_range(self, offset: int, start: int, latest: int) -> FetchAnswer | None:
        self._lose(
            f"{self}: offset {offset} was there when the query was planned; now the log begins at {start} and ends at "
            f"{latest}"
        )
        return FetchAnswer("", start) if offset < start < self.task.end_offset else None

    def _lose(self, text: str) -> None:
        if self._options.fail_on_data_loss:
            raise DataLoss(text)
        self.lost.append(text)


async def is_compacted(cluster: Cluster, topic: str) -> bool | None:
    """Return whether the cleaner may remove records of a topic; None where the brokers do not say.

    They do not say before 0.11, and to users who may not describe settings.
    """
    from minibroker.client.admin import Admin

    try:
        found = await Admin(cluster).describe_configs([("topic", topic)], [CLEANUP_POLICY])
    except KafkaError as error:
        if error.code.retriable:
            raise
        return None
    entry = found["topic", topic].get(CLEANUP_POLICY)
    return None if entry is None else "compact" in (entry.value or "")


def _only(response: FetchResponse, where: str) -> PartitionData | None:
    """Return what an answer says of our partition; raise what it says instead."""
    if response.error_code:
        raise error_of(response.error_code, where)
    for topic in response.responses:
        for data in topic.partitions:
            if data.error_code:
                raise error_of(data.error_code, where)
            return data
    return None

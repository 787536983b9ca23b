"""Planning of a query that reads from brokers: its offsets, asked of them, as tasks.

    metadata -> partitions -> earliest, latest and offsets by time -> a range for each -> tasks

Ranges are cut as Spark's Kafka source cuts them: one task for each partition, more if `maxRecordsPerPartition` or
`minPartitions` want it, pieces of the same number of offsets.
What must hold: the tasks of a partition follow each other without a gap. Asking is repeated `fetchOffset.numRetries`
times; what fails then, fails the query while it is planned.
Spark: brokers below 0.11 are refused; here those from 0.10 on are asked in their versions.
`run` waits for the client, which is asyncio, in a plain function; also where a loop runs already, as in a notebook.
Not here: ranges (minibroker/spark/ranges.py), reading (rows.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any, TypeVar

from minibroker.client.cluster import Cluster, Topic
from minibroker.client.connection import CallTimeout, ConnectionLost, error_of
from minibroker.client.offsets import READ_COMMITTED, READ_UNCOMMITTED, AtTime, find_offsets
from minibroker.client.security import Security, SecurityError
from minibroker.errors import Error, KafkaError
from minibroker.protocol.messages.metadata import MetadataRequest
from minibroker.schema.types import NO_ID
from minibroker.spark.filters import Filters
from minibroker.spark.option_values import OptionError, TopicPartition
from minibroker.spark.options import Options
from minibroker.spark.ranges import check_all_there, range_of

NO_CREATION = 4  # from this version of Metadata on, asking for a topic need not make it
CALL_TIMEOUT_MS = 30_000
TASK_RETRIES, TASK_PAUSE_MS = 10, 20  # of a single question; a task as a whole waits for kafkaConsumer.pollTimeoutMs


class NoBroker(Exception):
    """None of the brokers can be reached."""


class WireTask:
    """What one task of Spark reads: a range of offsets of one partition."""

    __slots__ = ("end_offset", "first_offset", "partition", "topic", "topic_id")

    def __init__(self, topic: str, partition: int, first_offset: int, end_offset: int, topic_id: bytes = NO_ID):
        self.topic = topic
        self.partition = partition
        self.first_offset = first_offset
        self.end_offset = end_offset
        self.topic_id = topic_id  # 16 zeros: the broker is too old to tell

    def __repr__(self) -> str:
        return f"WireTask({self.topic}-{self.partition} {self.first_offset}..{self.end_offset})"


class BrokerLog:
    """The log of a partition, as its leader describes it."""

    __slots__ = ("end_offset", "partition", "start_offset", "times", "topic", "topic_id")

    def __init__(self, topic: str, partition: int, topic_id: bytes):
        self.topic = topic
        self.partition = partition
        self.topic_id = topic_id
        self.start_offset = 0
        self.end_offset = 0  # for readers: the high watermark, or the last stable offset
        self.times: dict[int, int | None] = {}  # timestamp -> offset, for those that were asked for

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"

    def find_time(self, timestamp: int, limit_offset: int) -> int | None:
        offset = self.times[timestamp]
        return offset if offset is not None and offset < limit_offset else None


def open_cluster(options: Options, *, is_planning: bool = True) -> Cluster:
    """Return a client for the brokers of a query. Planning is as patient as the options say, tasks in shorter steps."""
    patience = (options.retries, options.retry_pause_ms) if is_planning else (TASK_RETRIES, TASK_PAUSE_MS)
    timeout = options.kafka.get("request.timeout.ms", "")
    try:
        return Cluster(
            options.servers,
            client_id=options.kafka.get("client.id", "minibroker-spark"),
            timeout_ms=int(timeout) if timeout.isdigit() else CALL_TIMEOUT_MS,
            retry_count=patience[0],
            retry_pause_ms=patience[1],
            security=Security.of(options.kafka),
        )
    except SecurityError as error:
        raise OptionError(f"kafka.{error}") from None
    except ValueError as error:
        raise OptionError(f"kafka.bootstrap.servers is {options.servers!r}: {error}") from None


def plan(options: Options, filters: Filters | None = None) -> list[WireTask]:
    """Return the tasks of a query, by topic, partition and offset."""

    return divided(_resolve(options, filters or Filters()), options.partitions_min, options.records_max)


def all_ranges(options: Options) -> list[WireTask]:
    """Return what there is of each partition of a query, also where that is nothing."""
    return _resolve(options, Filters())


def _resolve(options: Options, filters: Filters) -> list[WireTask]:
    async def ask() -> list[WireTask]:
        async with open_cluster(options) as cluster:
            return await find_ranges(cluster, options, filters)

    return run(ask)


async def find_ranges(cluster: Cluster, options: Options, filters: Filters) -> list[WireTask]:
    """Return a task for each partition, which may be empty."""
    found = await find_partitions(cluster, options)
    for limit in (options.starting, options.ending):
        limit.check_names_all(found)
    logs = {key: log for key, log in found.items() if filters.lets_through(*key)}
    await look_up(cluster, options, logs, filters)
    ranges = []
    for key, log in logs.items():
        first, end = range_of(options, filters, key, log, log.end_offset)
        if filters.first_timestamp is not None and filters.first_timestamp in log.times:
            younger = log.times[filters.first_timestamp]
            first = end if younger is None else max(first, younger)
        ranges.append(WireTask(*key, first, end, log.topic_id))
    return ranges


# Asking


async def find_partitions(cluster: Cluster, options: Options) -> dict[TopicPartition, BrokerLog]:
    """Return the partitions that a query wants, sorted; raise OptionError for those that are not there."""
    found = await find_logs(cluster, options)
    everything: list[str] = []
    try:
        check_all_there(options, found, lambda: everything, "")
    except OptionError:
        everything += sorted(await _reached(cluster, options, None))
        check_all_there(options, found, lambda: everything, f"at {options.servers}")
        raise
    return found


async def find_logs(cluster: Cluster, options: Options) -> dict[TopicPartition, BrokerLog]:
    """Return those of the partitions that a query wants, sorted, that are there."""
    return {
        (name, partition): BrokerLog(name, partition, topic.id)
        for name, topic in sorted((await find_topics(cluster, options)).items())
        for partition in topic.partitions
        if options.wants(name, partition)
    }


async def find_topics(cluster: Cluster, options: Options) -> dict[str, Topic]:
    """Return the topics that a query may want, and are there."""
    names = options.topics
    if options.assigned is not None:
        names = list(dict.fromkeys(topic for topic, _ in options.assigned))
    topics = await _reached(cluster, options, names)
    found = {}
    for name, topic in topics.items():
        if topic.error in (Error.UNKNOWN_TOPIC_OR_PARTITION, Error.INVALID_TOPIC_EXCEPTION):
            continue
        if topic.error and (names is not None or options.wants(name, 0)):
            raise error_of(topic.error, f"topic {name}")
        found[name] = topic
    return found


async def _reached(cluster: Cluster, options: Options, names: list[str] | None) -> dict[str, Topic]:
    """Ask for topics, all if none are named, without making any."""
    try:
        if names is not None:
            connection = await cluster.retrying(cluster.connection)
            if connection.version_of(MetadataRequest) < NO_CREATION:
                topics = await cluster.metadata()
                return {name: topic for name, topic in topics.items() if name in names}
        return await cluster.metadata(names)
    except (ConnectionLost, CallTimeout) as failure:
        raise NoBroker(
            f"kafka.bootstrap.servers: no broker answers at {options.servers} ({failure.message}); is the address "
            "right, and does kafka.security.protocol say what they speak?"
        ) from failure


async def look_up(
    cluster: Cluster, options: Options, logs: Mapping[TopicPartition, BrokerLog], filters: Filters | None = None
) -> None:
    """Fill in where logs begin and end, and the offsets of the times that the query names."""
    if not logs:
        return
    isolation = READ_COMMITTED if options.read_committed else READ_UNCOMMITTED
    earliest, _ = await _offsets(cluster, dict.fromkeys(logs, "earliest"), READ_UNCOMMITTED)
    latest, _ = await _offsets(cluster, dict.fromkeys(logs, "latest"), isolation)
    for key, log in logs.items():
        log.start_offset, log.end_offset = earliest[key], max(latest[key], earliest[key])
    for limit in (options.starting, options.ending):
        times = limit.timestamps or {}
        wanted = {key: limit.timestamp if limit.timestamps is None else times[key] for key in logs}
        asked = {key: AtTime(time) for key, time in wanted.items() if time is not None}
        if asked:
            offsets, is_known = await _offsets(cluster, asked, isolation)
            if not is_known:
                raise OptionError(f"{limit.name}: these brokers are too old to find offsets by time; say offsets")
            _note(logs, asked, offsets)
    if filters is not None and filters.first_timestamp is not None:
        asked = dict.fromkeys(logs, AtTime(filters.first_timestamp))
        offsets, is_known = await _offsets(cluster, asked, isolation)
        if is_known:
            _note(logs, asked, offsets)


def _note(
    logs: Mapping[TopicPartition, BrokerLog], asked: Mapping[TopicPartition, AtTime], offsets: dict[TopicPartition, int]
) -> None:
    for key, time in asked.items():
        logs[key].times[time.timestamp_ms] = offsets[key] if offsets[key] >= 0 else None


async def _offsets(
    cluster: Cluster, wanted: Mapping[TopicPartition, str | AtTime], isolation: int
) -> tuple[dict[TopicPartition, int], bool]:
    """Return offsets, -1 where no record is that young, and whether the brokers know times of records at all."""
    try:
        answers = await find_offsets(cluster, dict(wanted), isolation)
    except KafkaError as error:
        if error.code != Error.UNSUPPORTED_VERSION or not isolation:
            raise
        answers = await find_offsets(cluster, dict(wanted))  # a broker without transactions
    found, is_known = {}, True
    for key, answer in answers.items():
        if isinstance(answer, KafkaError):
            raise answer
        found[key] = answer.offset
        is_known = is_known and (answer.offset < 0 or answer.timestamp >= 0)
    return found, is_known


# Tasks


def divided(ranges: Iterable[WireTask], least: int | None, records_max: int | None) -> list[WireTask]:
    """Cut ranges into at least so many, about, of at most so many offsets each; empty ones are left out."""
    tasks = [task for task in ranges if task.first_offset < task.end_offset]
    if records_max is not None:
        tasks = [piece for task in tasks for piece in _cut(task, -(-_size(task) // records_max))]
    if least is None or len(tasks) > least:
        return tasks
    # Those that stay whole do not count in how the others are cut.
    total = sum(map(_size, tasks))
    cut = [task for task in tasks if _share(task, total, least) > 1]
    rest, wanted = sum(map(_size, cut)), max(least - (len(tasks) - len(cut)), 1)
    return [
        piece
        for task in tasks
        for piece in _cut(task, _share(task, rest, wanted) if _share(task, total, least) > 1 else 1)
    ]


def _size(task: WireTask) -> int:
    return task.end_offset - task.first_offset


def _share(task: WireTask, total: int, least: int) -> int:
    return max(int(_size(task) / total * least + 0.5), 1)


def _cut(task: WireTask, count: int) -> list[WireTask]:
    first, pieces = task.first_offset, []
    for number in range(count):
        end = first + (task.end_offset - first) // (count - number)
        if end > first:
            pieces.append(WireTask(task.topic, task.partition, first, end, task.topic_id))
        first = end
    return pieces


T = TypeVar("T")


def run(make: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Wait for what a coroutine returns."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(make())
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1) as executor:
        return executor.submit(lambda: asyncio.run(make())).result()

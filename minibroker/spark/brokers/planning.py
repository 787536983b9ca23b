"""Planning of a query that reads from brokers: its offsets, asked of them, as tasks.

    metadata -> partitions -> earliest, latest and offsets by time -> a range for each -> tasks

Ranges are cut as Spark's Kafka source cuts them: one task for each partition, more if `maxRecordsPerPartition` or
`minPartitions` want it, pieces of the same number of offsets.
What must hold: the tasks of a partition follow each other without a gap. What fails for a passing reason is asked again
for as long as the connector's admin client does so (`_patiently`): a stream outlives the restart of a broker, and a
leader that was killed, whom metadata name until its session ends. What fails then, fails the query.
Spark: brokers below 0.11 are refused; here those from 0.10 on are asked in their versions.
The client is asyncio; who calls waits for it, also where a loop runs already, as in a notebook.
Not here: ranges (minibroker/spark/ranges.py), reading (rows.py).
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar
from zlib import crc32

from minibroker.client.cluster import Cluster, Topic
from minibroker.client.connection import CallTimeout, ConnectionLost, error_of
from minibroker.client.offsets import READ_COMMITTED, READ_UNCOMMITTED, AtTime, FoundOffset, find_offsets
from minibroker.client.security import Security, SecurityError
from minibroker.errors import Error, KafkaError
from minibroker.protocol.messages.metadata import MetadataRequest
from minibroker.schema.types import NO_ID
from minibroker.spark.filters import Filters
from minibroker.spark.option_values import Numbers, OptionError, TopicPartition
from minibroker.spark.options import Options
from minibroker.spark.ranges import Range, Report, Task, check_all_there

NO_CREATION = 4  # from this version of Metadata on, asking for a topic need not make it
TASK_RETRIES, TASK_PAUSE_MS = 10, 20  # of a single question; a task as a whole waits for kafkaConsumer.pollTimeoutMs
PAUSE_MS, PAUSE_MS_MAX = 20, 1_000
COMMIT_MS = 3_000  # the next micro-batch commits for this one too
TOLD_MS = 3_000  # whoever waits longer is told for what
COMMITTED_BY = "minibroker-spark"  # in the metadata of each commit: what has something else is not ours


T = TypeVar("T")


class NoBroker(Exception):
    """None of the brokers can be reached."""


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


class BrokerLogs:
    """The logs of a query; connections are kept from one question to the next."""

    def __init__(self, options: Options):
        self._options = options
        self._loop: _Loop | None = None
        self._connection: Cluster | None = None
        self._cannot_commit = False

    def find(self, filters: Filters, *, must_be_there: bool) -> dict[TopicPartition, BrokerLog]:
        async def ask() -> dict[TopicPartition, BrokerLog]:
            cluster, options = self._cluster(), self._options
            found = await (find_partitions if must_be_there else find_logs)(cluster, options)
            wanted = {key: log for key, log in found.items() if filters.lets_through(*key)}
            await look_up(cluster, options, wanted)
            if must_be_there:
                await look_up_times(cluster, options, wanted, filters)
            return found

        return self._run(self._patiently(ask, self._patience_ms))

    def end_of(self, log: BrokerLog) -> int:
        return log.end_offset

    def again(
        self, ranges: Mapping[TopicPartition, tuple[int, int]], ids: Mapping[str, bytes], report: Report
    ) -> list[Range]:
        """Return ranges without asking: whoever reads them will be told what has gone."""
        return [Range(BrokerLog(*key, ids.get(key[0], NO_ID)), first, end) for key, (first, end) in ranges.items()]

    def tasks(self, ranges: list[Range], filters: Filters) -> list[Task]:
        whole = []
        for each in ranges:
            log, first = each.log, each.first_offset
            if filters.first_timestamp is not None and filters.first_timestamp in log.times:
                younger = log.times[filters.first_timestamp]
                first = each.end_offset if younger is None else max(first, younger)
            whole.append(Task(log.topic, log.partition, first, each.end_offset, log.topic_id))
        return divided(whole, self._options.partitions_min, self._options.records_max)

    def commit(self, offsets: Numbers) -> None:
        if not self._options.commits or self._cannot_commit or not offsets:
            return
        group = group_of(self._options)
        try:
            problem = self._run(self._patiently(partial(self._commit, group, offsets), lambda: COMMIT_MS))
        except KafkaError as error:
            if error.code.retriable:
                return  # or a topic has been deleted
            problem = str(error)
        if problem:
            self._cannot_commit = True
            print(f"minibroker: group {group} does not show where this stream is: {problem}", file=sys.stderr)

    async def _commit(self, group: str, offsets: Numbers) -> str:
        """Commit; return why that must not be."""
        from minibroker.client.groups import CommittedOffset, Groups

        groups = Groups(self._cluster())
        there = (await groups.fetch_offsets([group]))[group]
        # Asked each time: an application may have begun to use the group since.
        for (topic, partition), committed in there.items():
            if committed.metadata != COMMITTED_BY:
                return f"it has offsets that somebody else has committed, as that of {topic}-{partition}"
        await groups.alter_offsets(group, {key: CommittedOffset(at, COMMITTED_BY) for key, at in offsets.items()})
        return ""

    def close(self) -> None:
        if self._loop is not None:
            if self._connection is not None:
                self._run(self._connection.close())
            self._loop.close()
        self._loop = self._connection = None

    def _cluster(self) -> Cluster:
        """Return the client; in the loop."""
        if self._connection is None:
            self._connection = open_cluster(self._options)
        return self._connection

    def _patience_ms(self) -> int:
        """Return how long to ask. As with the connector a batch waits once only for whom nobody has reached yet, as
        its address may be wrong; nobody may be there to start a stream again."""
        options = self._options
        again = options.retries if options.is_stream or self._cluster().nodes else 0
        return options.api_timeout_ms + again * (options.retry_pause_ms + options.api_timeout_ms)

    async def _patiently(self, ask: Callable[[], Awaitable[T]], patience_ms: Callable[[], int]) -> T:
        """Return what is answered; ask again for so long while what fails may pass."""
        clock, pause_ms, is_told = self._cluster().clock, PAUSE_MS, False
        begun_ms = clock.steady_ms()
        while True:
            try:
                return await ask()
            except (KafkaError, NoBroker) as error:
                waited_ms = clock.steady_ms() - begun_ms
                if (isinstance(error, KafkaError) and not error.code.retriable) or waited_ms >= patience_ms():
                    raise
                if waited_ms >= TOLD_MS and not is_told:
                    print(f"minibroker: asking again for up to {patience_ms() / 1000:g} s: {error}", file=sys.stderr)
                    is_told = True
            await clock.sleep(pause_ms)
            pause_ms = min(pause_ms * 2, PAUSE_MS_MAX)

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        if self._loop is None:
            self._loop = _Loop()
        return self._loop.run(work)


def group_of(options: Options) -> str:
    """Return the group that a stream commits to: the same one whenever it is started again."""
    given = options.kafka.get("group.id")
    if given:
        return given
    wanted = options.topics or options.assigned or (options.pattern.pattern if options.pattern else "")
    return f"{options.group_prefix}-{crc32(repr(wanted).encode()):08x}"


def open_cluster(options: Options, *, is_planning: bool = True) -> Cluster:
    """Return a client for the brokers of a query. While planning it asks once, and `_patiently` has the patience."""
    try:
        return Cluster(
            options.servers,
            client_id=options.kafka.get("client.id", "minibroker-spark"),
            timeout_ms=options.call_timeout_ms,
            retry_count=0 if is_planning else TASK_RETRIES,
            retry_pause_ms=TASK_PAUSE_MS,
            security=Security.of(options.kafka),
        )
    except SecurityError as error:
        raise OptionError(f"kafka.{error}") from None
    except ValueError as error:
        raise OptionError(f"kafka.bootstrap.servers is {options.servers!r}: {error}") from None


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


async def look_up(cluster: Cluster, options: Options, logs: Mapping[TopicPartition, BrokerLog]) -> None:
    """Fill in where logs begin and end."""
    if not logs:
        return
    isolation = READ_COMMITTED if options.read_committed else READ_UNCOMMITTED
    earliest = await _offsets(cluster, dict.fromkeys(logs, "earliest"), READ_UNCOMMITTED)
    latest = await _offsets(cluster, dict.fromkeys(logs, "latest"), isolation)
    for key, log in logs.items():
        log.start_offset = earliest[key].offset
        log.end_offset = max(latest[key].offset, log.start_offset)


async def look_up_times(
    cluster: Cluster, options: Options, logs: Mapping[TopicPartition, BrokerLog], filters: Filters
) -> None:
    """Fill in the offsets of the times that the query names."""
    isolation = READ_COMMITTED if options.read_committed else READ_UNCOMMITTED
    for limit in (options.starting, options.ending):
        wanted = {key: limit.timestamp if limit.timestamps is None else limit.timestamps.get(key) for key in logs}
        asked = {key: time for key, time in wanted.items() if time is not None}
        if asked and not await _note_times(cluster, logs, asked, isolation):
            raise OptionError(f"{limit.name}: these brokers are too old to find offsets by time; say offsets")
    if logs and filters.first_timestamp is not None:
        await _note_times(cluster, logs, dict.fromkeys(logs, filters.first_timestamp), isolation)


async def _note_times(
    cluster: Cluster, logs: Mapping[TopicPartition, BrokerLog], asked: Mapping[TopicPartition, int], isolation: int
) -> bool:
    """Fill in the offset of a time of each; return False where brokers do not know times of records."""
    found = await _offsets(cluster, {key: AtTime(time) for key, time in asked.items()}, isolation)
    if any(at.offset >= 0 and at.timestamp < 0 <= asked[key] for key, at in found.items()):
        return False
    for key, time in asked.items():
        logs[key].times[time] = found[key].offset if found[key].offset >= 0 else None
    return True


async def _offsets(
    cluster: Cluster, wanted: Mapping[TopicPartition, str | AtTime], isolation: int
) -> dict[TopicPartition, FoundOffset]:
    """Return what brokers answer; offsets are -1 where no record is that young."""
    try:
        answers = await find_offsets(cluster, dict(wanted), isolation)
    except KafkaError as error:
        if error.code != Error.UNSUPPORTED_VERSION or not isolation:
            raise
        answers = await find_offsets(cluster, dict(wanted))  # a broker without transactions
    found = {}
    for key, answer in answers.items():
        if isinstance(answer, KafkaError):
            raise answer
        found[key] = answer
    return found


# Tasks


def divided(ranges: Iterable[Task], least: int | None, records_max: int | None) -> list[Task]:
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


def _size(task: Task) -> int:
    return task.end_offset - task.first_offset


def _share(task: Task, total: int, least: int) -> int:
    return max(int(_size(task) / total * least + 0.5), 1)


def _cut(task: Task, count: int) -> list[Task]:
    first, pieces = task.first_offset, []
    for number in range(count):
        end = first + (task.end_offset - first) // (count - number)
        if end > first:
            pieces.append(Task(task.topic, task.partition, first, end, task.topic_id))
        first = end
    return pieces


# Waiting


class _Loop:
    """A loop that works while somebody waits, in another thread where one runs already."""

    def __init__(self) -> None:
        self._runner = asyncio.Runner()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._called(partial(self._runner.run, work))

    def close(self) -> None:
        self._called(self._runner.close)

    def _called(self, function: Callable[[], T]) -> T:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return function()
        with ThreadPoolExecutor(1) as executor:
            return executor.submit(function).result()


def run(make: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Wait for what a coroutine returns."""
    loop = _Loop()
    try:
        return loop.run(make())
    finally:
        loop.close()

"""Logs of a stream, of files or of brokers: where they begin and end, and tasks on them.

What must hold: a partition that has gone is missing in `bounds`, which is no error; of topics that a query names and
that were never there, the first question says so.
Not here: what a stream does with that (offsets.py).
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping
from typing import Any, Protocol

from minibroker.clock import LoopClock
from minibroker.errors import KafkaError
from minibroker.spark.files.directories import PartitionFiles
from minibroker.spark.filters import Filters
from minibroker.spark.option_values import Numbers, TopicPartition
from minibroker.spark.options import Options
from minibroker.spark.ranges import Log, resolved
from minibroker.spark.streams.offsets import Report, told

COMMITTED_BY = "minibroker-spark"  # in the metadata of each commit: what has something else is not ours

TYPE_CHECKING = False
if TYPE_CHECKING:
    from minibroker.client.cluster import Cluster
    from minibroker.spark.brokers.planning import BrokerLog

Ranges = Mapping[TopicPartition, tuple[int, int]]
Bounds = dict[TopicPartition, tuple[int, int]]  # where a log begins, and where it ends for readers


class Logs(Protocol):
    """Files or brokers."""

    def initial(self, report: Report) -> Numbers: ...
    def bounds(self) -> Bounds: ...
    def tasks(self, ranges: Ranges, report: Report) -> list[Any]: ...
    def commit(self, offsets: Numbers) -> None: ...
    def close(self) -> None: ...


def initial_offsets(options: Options, logs: Mapping[TopicPartition, tuple[Log, int]], report: Report) -> Numbers:
    """Return where a new query begins; `logs` come with their ends."""
    options.starting.check_names_all(logs)
    found = {}
    for key, (log, latest) in logs.items():
        first = resolved(options.starting, key, log, latest, options.no_match)
        if not log.start_offset <= first <= latest:
            report(f"{options.starting.name}: {log} holds {log.start_offset} to {latest}, there is no {first}")
        found[key] = min(max(first, log.start_offset), latest)
    return found


class PathLogs:
    """Log directories."""

    def __init__(self, options: Options):
        self._options = options

    def initial(self, report: Report) -> Numbers:
        from minibroker.spark.files.directories import topics_in
        from minibroker.spark.ranges import check_all_there

        found = self._found()
        paths = self._options.paths
        check_all_there(self._options, found, lambda: topics_in(paths), f"in {', '.join(paths)}")
        logs = {key: (files, self._end(files)) for key, files in found.items()}
        return initial_offsets(self._options, logs, report)

    def bounds(self) -> Bounds:
        return {key: (files.start_offset, self._end(files)) for key, files in self._found().items()}

    def tasks(self, ranges: Ranges, report: Report) -> list[Any]:
        from minibroker.spark.files.planning import Range, tasks_of

        found = self._found()
        wanted = []
        for key, (first, end) in ranges.items():
            if key not in found:
                report(f"{told([key])} has gone")
                continue
            files = found[key]
            limit = max(self._end(files), files.start_offset)
            if first < files.start_offset or end > limit:
                report(f"{files} holds {files.start_offset} to {limit}, and {first} to {end} were to be read")
            first, end = max(first, files.start_offset), min(end, limit)
            aborted = files.transactions(first, end)[1] if self._options.read_committed and first < end else []
            wanted.append(Range(files, first, end, aborted))
        return tasks_of(self._options, Filters(), [each for each in wanted if each.first_offset < each.end_offset])

    def commit(self, offsets: Numbers) -> None:
        """Nobody keeps offsets here."""

    def close(self) -> None: ...

    def _found(self) -> dict[TopicPartition, PartitionFiles]:
        from minibroker.spark.files.directories import find_partitions

        return find_partitions(self._options.paths, self._options)

    def _end(self, files: PartitionFiles) -> int:
        from minibroker.spark.files.planning import limit_of

        limit = limit_of(self._options, files)
        return files.transactions(limit, limit)[0] if self._options.read_committed else limit


class WireLogs:
    """Brokers; connections are kept from one question to the next."""

    def __init__(self, options: Options):
        self._options = options
        self._runner: asyncio.Runner | None = None
        self._cluster: Cluster | None = None
        self._cannot_commit = False

    def initial(self, report: Report) -> Numbers:
        return initial_offsets(
            self._options, {key: (log, log.end_offset) for key, log in self._logs(True).items()}, report
        )

    def bounds(self) -> Bounds:
        return {key: (log.start_offset, log.end_offset) for key, log in self._logs(False).items()}

    def tasks(self, ranges: Ranges, report: Report) -> list[Any]:
        from minibroker.spark.brokers.planning import WireTask, divided

        topics = self._run(self._connected().metadata(sorted({topic for topic, _ in ranges}))) if ranges else {}
        whole = [WireTask(*key, first, end, topics[key[0]].id) for key, (first, end) in ranges.items()]
        return divided(whole, self._options.partitions_min, self._options.records_max)

    def commit(self, offsets: Numbers) -> None:
        """Note in the query's group how far it is, if that was asked for; without that it goes on as well."""
        from minibroker.client.groups import CommittedOffset, Groups
        from minibroker.spark.lag import group_of

        if not self._options.commits or self._cannot_commit or not offsets:
            return
        group, cluster = group_of(self._options), self._connected()

        async def commit() -> str:
            groups = Groups(cluster)
            there = (await groups.fetch_offsets([group]))[group]
            # Asked each time: an application may have begun to use the group since.
            others = [key for key, committed in there.items() if committed.metadata != COMMITTED_BY]
            if others:
                return f"it has offsets that somebody else has committed, as that of {told(others[:1])}"
            await groups.alter_offsets(
                group, {key: CommittedOffset(offset, COMMITTED_BY) for key, offset in offsets.items()}
            )
            return ""

        try:
            problem = self._run(commit())
        except KafkaError as error:
            if error.code.retriable:
                return  # the next micro-batch commits for this one too; or a topic has been deleted
            problem = str(error)
        if problem:
            self._cannot_commit = True
            print(f"minibroker: group {group} does not show where this stream is: {problem}", file=sys.stderr)

    def close(self) -> None:
        if self._runner is not None:
            if self._cluster is not None:
                self._runner.run(self._cluster.close())
            self._runner.close()
        self._runner = self._cluster = None

    def _logs(self, must_all_be_there: bool) -> dict[TopicPartition, BrokerLog]:
        from minibroker.spark.brokers.planning import find_logs, find_partitions, look_up

        async def ask() -> dict[TopicPartition, BrokerLog]:
            find = find_partitions if must_all_be_there else find_logs
            logs = await find(cluster, self._options)
            await look_up(cluster, self._options, logs)
            return logs

        cluster = self._connected()
        found: dict[TopicPartition, BrokerLog] = self._run(ask())
        return found

    def _connected(self) -> Cluster:
        from minibroker.spark.brokers.planning import open_cluster

        if self._cluster is None:
            self._runner = asyncio.Runner()
            self._cluster = open_cluster(self._options)
        return self._cluster

    def _run(self, work: Any) -> Any:
        assert self._runner is not None
        return self._runner.run(work)


def logs_of(options: Options) -> Logs:
    return PathLogs(options) if options.is_path else WireLogs(options)


def now_ms() -> int:
    return LoopClock().now_ms()

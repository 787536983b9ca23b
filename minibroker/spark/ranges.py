"""Offsets of each partition that a query reads: what its options name, as far as it is there.

    Logs: files or brokers -> Log: one partition -> Range: what is read of it -> Task: a piece, for a worker

Files (files/planning.py) and brokers (brokers/planning.py) answer the same few questions, and what they cannot answer
well is refused here in the same words: a topic that is not there, offsets before a log's start or behind its end.
What must hold: a range that is returned lies within the log, or `failOnDataLoss` is false and it was cut to it.
Not here: how ranges become tasks, what a stream does with them (streams/).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, Protocol

from minibroker.schema.types import NO_ID
from minibroker.spark.filters import Filters
from minibroker.spark.option_values import EARLIEST, LATEST, Limit, Numbers, OptionError, TopicPartition
from minibroker.spark.options import TO_LATEST, Options

Report = Callable[[str], None]  # of data loss, in words: raises, or tells


class Log(Protocol):
    """The log of a partition, as far as ranges go; its name is its str."""

    @property
    def start_offset(self) -> int: ...

    @property
    def topic_id(self) -> bytes:
        """16 zeros: nobody tells."""
        ...

    def find_time(self, timestamp: int, limit_offset: int) -> int | None:
        """Return the offset of the first record that is not older; None if there is none before the limit."""
        ...


class Range:
    """Which offsets of a log are read, maybe none."""

    __slots__ = ("end_offset", "first_offset", "log")

    def __init__(self, log: Any, first_offset: int, end_offset: int):
        self.log = log
        self.first_offset = first_offset
        self.end_offset = end_offset


class Task:
    """What one task of Spark reads. It goes to another process, so it holds names and numbers only."""

    __slots__ = ("end_offset", "first_offset", "partition", "topic", "topic_id")

    def __init__(self, topic: str, partition: int, first_offset: int, end_offset: int, topic_id: bytes = NO_ID):
        self.topic = topic
        self.partition = partition
        self.first_offset = first_offset
        self.end_offset = end_offset
        self.topic_id = topic_id

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"

    def __repr__(self) -> str:
        return f"Task({self} {self.first_offset}..{self.end_offset})"


class Logs(Protocol):
    """Files or brokers."""

    def find(self, filters: Filters, *, must_be_there: bool) -> Mapping[TopicPartition, Log]:
        """Return the partitions that a query wants, sorted, with what the filters ask of those that they let through.

        must_be_there: raise OptionError for those that are named and are not there.
        """
        ...

    def end_of(self, log: Any) -> int:
        """Return where a log ends for readers."""
        ...

    def again(
        self, ranges: Mapping[TopicPartition, tuple[int, int]], ids: Mapping[str, bytes], report: Report
    ) -> list[Range]:
        """Return ranges of a stream, of topics with these ids; what has gone is reported now, or when it is read."""
        ...

    def tasks(self, ranges: list[Range], filters: Filters) -> list[Any]: ...

    def commit(self, offsets: Numbers) -> None:
        """Note in the group of a stream how far it is, if that was asked for; without that it goes on as well."""

    def close(self) -> None: ...


class DataLoss(Exception):
    """Records that should be there are not, and `failOnDataLoss` is true."""

    def __init__(self, text: str):
        super().__init__(f"{text}; set failOnDataLoss to false to read what is there")


def reporting(fail_on_data_loss: bool, tell: Callable[[str], None]) -> Report:
    """Return what is done with data loss: it ends the query, or is told, each once."""
    known: set[str] = set()

    def report(text: str) -> None:
        if fail_on_data_loss:
            raise DataLoss(text)
        if text not in known:
            known.add(text)
            tell(f"data loss, {text}")

    return report


def ranges_of(options: Options, filters: Filters, logs: Logs, report: Report) -> list[Range]:
    """Return the range of each partition that the filters let through; report what of it is not there."""
    found = logs.find(filters, must_be_there=True)
    for limit in (options.starting, options.ending):
        limit.check_names_all(found)
    return [
        _range(options, filters, key, log, logs, report) for key, log in found.items() if filters.lets_through(*key)
    ]


def _range(options: Options, filters: Filters, key: TopicPartition, log: Log, logs: Logs, report: Report) -> Range:
    latest = logs.end_of(log)
    first = _there(options.starting, key, log, latest, options.no_match, report)
    end = _there(options.ending, key, log, latest, TO_LATEST, report)
    if first > end:
        raise OptionError(
            f"{log} would begin at {first} and end before it, at {end}: look at {options.starting.name} and "
            f"{options.ending.name}"
        )
    if filters.first_offset is not None:
        first = max(first, filters.first_offset)
    if filters.end_offset is not None:
        end = min(end, filters.end_offset)
    return Range(log, first, end)


def _there(limit: Limit, key: TopicPartition, log: Log, latest: int, no_match: str, report: Report) -> int:
    """Return the offset that a limit stands for, or what is nearest to it in the log."""
    offset = resolved(limit, key, log, latest, no_match)
    if log.start_offset <= offset <= latest:
        return offset
    lost = (
        f"begins at {log.start_offset}, what was before it has been deleted: there is no {offset}"
        if offset < log.start_offset
        else f"ends at {latest}, there is nothing up to {offset}"
    )
    report(f"{limit.name}: {log} {lost}")
    return min(max(offset, log.start_offset), latest)


def resolved(limit: Limit, key: TopicPartition, log: Log, latest: int, no_match: str) -> int:
    """Return the offset that a limit stands for."""
    offset = limit.offset if limit.offsets is None else limit.offsets[key]
    timestamp = limit.timestamp if limit.timestamps is None else limit.timestamps[key]
    if timestamp is not None:
        offset = log.find_time(timestamp, latest)
        if offset is None:
            if no_match != TO_LATEST:
                raise OptionError(
                    f"{limit.name}: {log} has no record that is not older than {timestamp}; set "
                    "startingOffsetsByTimestampStrategy to latest to begin at its end"
                )
            offset = LATEST
    if offset == LATEST:
        return latest
    if offset == EARLIEST or offset is None:
        return log.start_offset
    return offset


# What is not there


def check_all_there(
    options: Options, found: Collection[TopicPartition], topics: Callable[[], list[str]], where: str
) -> None:
    """Raise for what a query names and is not there; `topics` are asked for then only, to name what was meant."""
    there = {topic for topic, _ in found}
    for topic in options.topics or ():
        if topic not in there:
            raise OptionError(f"subscribe: {_absent(topic, topics(), where)}")
    for topic, partition in options.assigned or ():
        if (topic, partition) not in found:
            known = [each for name, each in found if name == topic]
            told = f"{topic} has no partition {partition} here, only {known}" if known else ""
            raise OptionError(f"assign: {told or _absent(topic, topics(), where)}")
    if options.pattern is not None and not found and options.must_match:
        raise OptionError(f"subscribePattern: no topic matches {options.pattern.pattern}; {known_topics(topics())}")


def _absent(topic: str, topics: list[str], where: str) -> str:
    return f"there is no topic {topic} {where}; {known_topics(topics, topic)}"


def known_topics(topics: list[str], meant: str = "") -> str:
    """Say which topics there are, or the one that was meant."""
    from difflib import get_close_matches

    if near := get_close_matches(meant, topics, 1):
        return f"did you mean {near[0]}?"
    more = f" and {len(topics) - 10} more" if len(topics) > 10 else ""
    return f"there are {', '.join(topics[:10])}{more}" if topics else "there is none at all"

"""Offsets of a stream, by the rules of Spark's Kafka source: the end of a micro-batch, and its ranges.

    start, latest -> end        maxOffsetsPerTrigger, minOffsetsPerTrigger and maxTriggerDelay
    start, end    -> ranges     new partitions from their beginning, lost ones reported

In a checkpoint offsets are {"orders":{"0":23},"orders#Zk3vQIW5TmGY0O1Mqqb9Yg":{}}: as Spark's own source writes them,
and the ids of topics, which it passes over as topics without partitions ('#' is in no topic's name). A topic that has
another id than it had is another topic. Where an id is missing nothing is compared: Spark's source writes none, and
brokers before 2.8 have none.
What must hold: an end is never before its start but where the log itself has gone back, and that is data loss.
Not here: asking for offsets (planning.py of files/ and brokers/), Spark (reader.py). Plain numbers: this can be tested
without either.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import NamedTuple

from minibroker.log.checkpoints import format_id, parse_id
from minibroker.schema.types import NO_ID
from minibroker.spark.option_values import Numbers, TopicPartition
from minibroker.spark.options import Options
from minibroker.spark.ranges import Log, Report, resolved
from minibroker.spark.ranges import reporting as reporting

ID_SIGN = "#"  # between the name of a topic and its id

Json = dict[str, dict[str, int]]


class Bound(NamedTuple):
    """Where a log begins, where it ends for readers, and whose it is."""

    begin: int
    end: int
    topic_id: bytes


Bounds = dict[TopicPartition, Bound]


def to_json(offsets: Mapping[TopicPartition, int], ids: Mapping[str, bytes]) -> Json:
    """Return offsets as a checkpoint has them; the same ones always in the same order, as Spark compares texts."""
    found: Json = {}
    for (topic, partition), offset in sorted(offsets.items()):
        found.setdefault(topic, {})[str(partition)] = offset
    return found | {
        topic + ID_SIGN + format_id(ids[topic]): {} for topic in list(found) if ids.get(topic, NO_ID) != NO_ID
    }


def from_json(offsets: Mapping[str, Mapping[str, int]]) -> Numbers:
    return {
        (topic, int(partition)): offset
        for topic, partitions in offsets.items()
        for partition, offset in partitions.items()
    }


def initial_offsets(options: Options, logs: Mapping[TopicPartition, Log], bounds: Bounds, report: Report) -> Numbers:
    """Return where a new query begins."""
    options.starting.check_names_all(logs)
    found = {}
    for key, log in logs.items():
        first = resolved(options.starting, key, log, bounds[key].end, options.no_match)
        if not bounds[key].begin <= first <= bounds[key].end:
            held = f"{log} holds {bounds[key].begin} to {bounds[key].end}"
            report(f"{options.starting.name}: {held}, there is no {first}")
        found[key] = min(max(first, bounds[key].begin), bounds[key].end)
    return found


def ends_of(bounds: Bounds) -> Numbers:
    return {key: bound.end for key, bound in bounds.items()}


def ids_in(offsets: Json) -> dict[str, bytes]:
    """Return the ids of topics."""
    named = (name.split(ID_SIGN) for name in offsets if ID_SIGN in name)
    return {topic: parse_id(text, "a checkpoint", 1) for topic, text in named}


def ids_of(bounds: Bounds) -> dict[str, bytes]:
    """Return the ids of topics, but of those whose partitions do not agree."""
    found: dict[str, set[bytes]] = {}
    for (topic, _), bound in bounds.items():
        found.setdefault(topic, set()).add(bound.topic_id)
    return {topic: ids.pop() for topic, ids in found.items() if len(ids) == 1}


def remade(before: Mapping[str, bytes], now: Mapping[str, bytes]) -> set[str]:
    """Return the topics that are others now."""
    both = before.keys() & now.keys()
    return {topic for topic in both if before[topic] != now[topic] and NO_ID not in (before[topic], now[topic])}


def without(topics: Collection[str], offsets: Numbers) -> Numbers:
    return {key: offset for key, offset in offsets.items() if key[0] not in topics}


class Admission:
    """Says where a micro-batch ends."""

    def __init__(self, options: Options):
        self._most, self._least = options.trigger_offsets_max, options.trigger_offsets_min
        self._delay_ms = options.trigger_delay_ms
        self._triggered_ms: int | None = None  # the first batch waits for nothing

    def end(self, start: Numbers, latest: Numbers, begins: Mapping[TopicPartition, int], now_ms: int) -> Numbers:
        """Return the end; `begins` says where partitions begin that the start does not know."""
        if self._least is not None:
            new = sum(offset - start.get(key, 0) for key, offset in latest.items())
            is_due = self._triggered_ms is None or now_ms - self._triggered_ms >= self._delay_ms
            if new < self._least and not is_due:
                return start
            self._triggered_ms = now_ms
        if self._most is None:
            return latest
        return limited(self._most, {**begins, **start}, latest)


def limited(most: int, start: Mapping[TopicPartition, int], latest: Numbers) -> Numbers:
    """Return an end at most so many offsets away, each partition in proportion to what it has, at least one."""
    sizes = {key: end - start[key] for key, end in latest.items() if end > start.get(key, end)}
    total = sum(sizes.values())
    found = dict(latest)
    for key, size in sizes.items():
        share = most * (size / total)
        found[key] = min(latest[key], start[key] + (math.ceil(share) if share < 1 else math.floor(share)))
    return found


def ranges_between(
    start: Numbers, end: Numbers, begins: Mapping[TopicPartition, int], report: Report
) -> dict[TopicPartition, tuple[int, int]]:
    """Return what lies between two offsets, and report what does not any more."""
    new = end.keys() - start.keys()
    if unknown := new - begins.keys():
        report(f"{told(unknown)} cannot be found: the topic was deleted")
    for key in sorted(new & begins.keys()):
        if begins[key]:
            report(f"{told([key])} is new and begins at {begins[key]}: what was before it has been deleted")
    if gone := start.keys() - end.keys():
        report(f"{told(gone)} has gone: the topic was deleted, or is not asked for any more")
    found = {}
    for key in sorted(end.keys() - unknown):
        first = start.get(key, begins.get(key, 0))
        if end[key] < first:
            report(f"{told([key])} went back from {first} to {end[key]}: it was cut, or deleted and made anew")
        elif end[key] > first:
            found[key] = first, end[key]
    return found


def told(partitions: Collection[TopicPartition]) -> str:
    return ", ".join(f"{topic}-{partition}" for topic, partition in sorted(partitions))

"""Offsets that an export takes: from where the manifest ends to where the topics do.

What must hold: a range begins where the last one ended, or at a later offset if what was between them is gone: then it
is in `lost`, in words and in the manifest, and ends the job unless it may go on. A topic that ends before the manifest
does, or has another id than the manifest notes, is another one of the same name, and is refused whatever was said.
Not here: where a log begins and ends (planning.py in files/ and brokers/).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from minibroker.log.checkpoints import format_id
from minibroker.schema.types import NO_ID
from minibroker.spark.option_values import OptionError, TopicPartition
from minibroker.spark.options import QUARANTINE, parse
from minibroker.spark.reading import all_ranges

Ranges = dict[TopicPartition, tuple[int, int]]


class Plan:
    """What one run exports."""

    def __init__(self) -> None:
        self.ranges: Ranges = {}  # without those that are empty
        self.lost: list[tuple[str, int, int, int]] = []  # topic, partition, first and end offset
        self.behind = 0  # offsets that are there and are left for later runs
        self.partitions = 0  # of all topics that were asked for

    @property
    def offsets(self) -> int:
        return sum(end - first for first, end in self.ranges.values())


class There:
    """What there is of the topics that were asked for."""

    def __init__(self, ranges: Ranges, topic_ids: dict[str, str]):
        self.ranges = ranges  # also of partitions that hold nothing
        self.topic_ids = topic_ids  # as Kafka's tools show them; without topics whose id nobody tells


def available(source: Mapping[str, str], exported: Ranges) -> There:
    """Return what there is of what was asked for.

    Where to start is asked for the first time only: from then on a partition begins where its log does, and what has
    gone since the manifest's end is a loss.
    """
    anywhere = {name: value for name, value in source.items() if not name.lower().startswith("starting")}
    there = look(anywhere)
    if len(anywhere) == len(source) or not there.ranges.keys() - exported.keys():
        return there
    begun = look(source)
    ranges = {key: there.ranges[key] if key in exported else limits for key, limits in begun.ranges.items()}
    return There(ranges, begun.topic_ids)


def look(source: Mapping[str, str]) -> There:
    """Return what the options of a query come to now."""
    found = all_ranges(parse(source))
    ranges = {(each.log.topic, each.log.partition): (each.first_offset, each.end_offset) for each in found}
    ids = {each.log.topic: each.log.topic_id for each in found}
    return There(ranges, {topic: format_id(value) for topic, value in ids.items() if value != NO_ID})


def check_topics(now: Mapping[str, str], noted: Mapping[str, str]) -> None:
    """Raise unless topics are those whose ids were noted; one that has none now or then cannot be told apart."""
    for topic, topic_id in now.items():
        if noted.get(topic, topic_id) != topic_id:
            raise OptionError(
                f"{topic} is another topic than the one that was exported: its id is {topic_id} and was "
                f"{noted[topic]}, so it was deleted and made again, or is one of another cluster; export it to "
                "another folder"
            )


def plan(there: Ranges, exported: Ranges, *, offsets_max: int | None = None, has_end: bool = False) -> Plan:
    """Return what is to be exported of what is there.

    has_end: somebody has said where to end, so an end before that of the manifest is nothing to wonder about.
    """
    found = Plan()
    found.partitions = len(there)
    for key, (first, end) in there.items():
        topic, partition = key
        before = exported.get(key)
        if before is not None:
            if end < before[1]:
                if has_end:
                    continue
                raise OptionError(
                    f"{topic}-{partition} ends at {end}, and {before[1]} were exported already: the topic was deleted "
                    "and made again, or cut, or is one of another cluster; export it to another folder"
                )
            if first > before[1]:
                found.lost.append((topic, partition, before[1], first))
            first = max(first, before[1])
        if first < end:
            found.ranges[key] = first, end
    if offsets_max is not None:
        total = found.offsets
        found.ranges = _limited(found.ranges, offsets_max)
        found.behind = total - found.offsets
    return found


def _limited(ranges: Ranges, offsets_max: int) -> Ranges:
    """Return the beginnings of the ranges: the same number of offsets of each, as far as it has so many."""
    left, limited = offsets_max, {}
    waiting = sorted(ranges.items(), key=lambda item: item[1][1] - item[1][0])
    for index, (key, (first, end)) in enumerate(waiting):
        share = -(-left // (len(waiting) - index))
        taken = min(end - first, share)
        left -= taken
        if taken:
            limited[key] = first, first + taken
    return dict(sorted(limited.items()))


def told_lost(lost: list[tuple[str, int, int, int]]) -> list[str]:
    return [
        f"{topic}-{partition}: offsets {first} to {end - 1} were deleted before they were exported"
        for topic, partition, first, end in lost
    ]


def broken_in(
    spark: Any, source: Mapping[str, str], ranges: Ranges
) -> tuple[list[tuple[str, int, int, int]], list[str]]:
    """Return the offsets of broken batches that `mode` skip has left out, and a sentence for each of the batches.

    Tasks tell nobody what they leave out but their log: it is read once more, as the table of what is broken.
    """
    from minibroker.spark.source import NAME

    asked = {name: value for name, value in reading(source, ranges).items() if name.lower() != "mode"}
    rows = spark.read.format(NAME).options(**asked, mode=QUARANTINE).load().drop("bytes").collect()
    lost, told = [], []
    for row in sorted(rows, key=lambda row: (row.topic, row.partition, row.firstOffset is None, row.firstOffset)):
        where = "unknown offsets"
        if row.firstOffset is not None:
            lost.append((row.topic, row.partition, row.firstOffset, row.lastOffset + 1))
            where = f"offsets {row.firstOffset} to {row.lastOffset}"
        told.append(f"{row.topic}-{row.partition}: {where} are in a broken batch, which was left out: {row.error}")
    return lost, told


def reading(source: Mapping[str, str], ranges: Ranges) -> dict[str, str]:
    """Return the options that read exactly these ranges."""
    left_out = {"subscribe", "subscribepattern", "assign", "includeheaders"}
    told = {
        name: value
        for name, value in source.items()
        if name.lower() not in left_out and not name.lower().startswith(("starting", "ending"))
    }
    assigned: dict[str, list[int]] = {}
    starting: dict[str, dict[str, int]] = {}
    ending: dict[str, dict[str, int]] = {}
    for (topic, partition), (first, end) in ranges.items():
        assigned.setdefault(topic, []).append(partition)
        starting.setdefault(topic, {})[str(partition)] = first
        ending.setdefault(topic, {})[str(partition)] = end
    told |= {"assign": json.dumps(assigned), "startingOffsets": json.dumps(starting)}
    return told | {"endingOffsets": json.dumps(ending), "includeHeaders": "true"}

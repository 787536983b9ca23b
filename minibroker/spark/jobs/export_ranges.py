"""Which offsets an export takes: from where the manifest ends to where the topics do.

What must hold: a range begins where the last one ended, or at a later offset if what was between them is gone: then it
is in `lost`, in words and in the manifest, and ends the job unless it may go on. A topic that ends before the manifest
does is another one of the same name, and is refused whatever was said.
Not here: where a log begins and ends (planning.py in path/ and wire/).
"""

from __future__ import annotations

import json

from minibroker.spark.filters import Filters
from minibroker.spark.option_values import OptionError
from minibroker.spark.options import parse

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from minibroker.spark.option_values import TopicPartition

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


def available(source: Mapping[str, str], exported: Ranges) -> Ranges:
    """Return the offsets that there are of what was asked for, also of partitions without any.

    Where to start is asked for the first time only: from then on a partition begins where its log does, and what has
    gone since the manifest's end is a loss.
    """
    anywhere = {name: value for name, value in source.items() if not name.lower().startswith("starting")}
    there = _ranges(anywhere)
    if len(anywhere) == len(source) or not there.keys() - exported.keys():
        return there
    return {key: there[key] if key in exported else limits for key, limits in _ranges(source).items()}


def _ranges(source: Mapping[str, str]) -> Ranges:
    options = parse(source)
    if options.is_path:
        from minibroker.spark.path.planning import resolved_ranges

        found = resolved_ranges(options, Filters())
        return {(each.files.topic, each.files.partition): (each.first_offset, each.end_offset) for each in found}
    from minibroker.spark.wire.planning import all_ranges

    return all_ranges(options)


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

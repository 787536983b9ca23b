"""What a reset of offsets comes to, as a function of what is known of each partition; and its CSV, which Kafka's tool
reads and writes as well.

What makes no sense is a ValueError. Not here: asking brokers, and changing anything (reset_offsets.py).
"""

from __future__ import annotations

from typing import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from minibroker.client.cluster import TopicPartition

    Offsets = dict[TopicPartition, int]

EARLIEST, LATEST, CURRENT = "to-earliest", "to-latest", "to-current"
OFFSET, SHIFT, FILE = "to-offset", "shift-by", "from-file"
DATETIME, DURATION = "to-datetime", "by-duration"
BY_TIME = (DATETIME, DURATION)

SECOND_MS = 1000
# Of Java's Duration, which Kafka's tool takes: a sign in front holds for all parts, each may have one of its own.
SIGNED = r"([-+]?\d+)"
DURATION_FORM = (
    rf"([-+]?)P(?:{SIGNED}D)?(?:T(?=[-+\d])(?:{SIGNED}H)?(?:{SIGNED}M)?(?:([-+]?)(\d+)(?:[.,](\d{{0,9}}))?S)?)?"
)


class Known(NamedTuple):
    """What is known of a partition."""

    start: int
    end: int
    committed: int | None = None
    at_time: int | None = None  # the first record at or after the moment; None: there is none so late


class Reset(NamedTuple):
    """Where a group shall go on."""

    offset: int
    remark: str = ""  # why it is not what was asked for


def plan(
    how: str, wanted: Mapping[TopicPartition, int], known: Mapping[TopicPartition, Known]
) -> dict[TopicPartition, Reset]:
    """Return where to go on in each partition that is wanted, sorted.

    The numbers of `wanted` are offsets or, for --shift-by, differences; other ways have no use for them.
    """
    return {key: _reset(how, key, number, known[key]) for key, number in sorted(wanted.items())}


def _reset(how: str, key: TopicPartition, number: int, known: Known) -> Reset:
    name = f"{key[0]}-{key[1]}"
    if how == EARLIEST:
        return Reset(known.start)
    if how == LATEST or (how == CURRENT and known.committed is None):
        return Reset(known.end)
    if how == CURRENT:
        assert known.committed is not None
        return Reset(known.committed)
    if how in BY_TIME:
        if known.at_time is None:
            remark = f"Partition {key[1]} from topic {key[0]} has no record so late."
            return Reset(known.end, f"{remark} Falling back to latest known offset.")
        return Reset(known.at_time)
    if how == SHIFT:
        if known.committed is None:
            raise ValueError(f"cannot shift {name}: nothing is committed there; name the partitions, or --all-topics")
        number += known.committed
    if number > known.end:
        remark = f"New offset ({number}) is higher than latest offset for topic partition {name}."
        return Reset(known.end, f"{remark} Value will be set to {known.end}.")
    if number < known.start:
        remark = f"New offset ({number}) is lower than earliest offset for topic partition {name}."
        return Reset(known.start, f"{remark} Value will be set to {known.start}.")
    return Reset(number)


def partitions_in(text: str) -> tuple[str, list[int] | None]:
    """Return topic and partitions of topic:0,1,2; None: all that it has."""
    topic, separator, numbers = text.partition(":")
    if not separator:
        return topic, None
    try:
        return topic, [int(number) for number in numbers.split(",")]
    except ValueError:
        raise ValueError(f"--topic {text}: say topic or topic:0,1,2") from None


def milliseconds_of(duration: str) -> int:
    """Return how long PnDTnHnMnS is, such as P1DT2H30M; a day has 24 hours."""
    import re

    match = re.fullmatch(DURATION_FORM, duration, re.IGNORECASE | re.ASCII)
    if match is None or not any(match.group(2, 3, 4, 6)):
        raise ValueError(f"{duration!r} is no duration")
    sign, days, hours, minutes, second_sign, seconds, fraction = match.groups()
    total = ((int(days or 0) * 24 + int(hours or 0)) * 60 + int(minutes or 0)) * 60 * SECOND_MS
    part = int(seconds or 0) * SECOND_MS + int((fraction or "").ljust(3, "0")[:3])
    total += -part if second_sign == "-" else part
    return -total if sign == "-" else total


def read_csv(text: str, groups: Sequence[str]) -> dict[str, Offsets]:
    """Return the offsets of lines group,topic,partition,offset; for one group also topic,partition,offset."""
    import csv

    found: dict[str, Offsets] = {}
    reader = csv.reader(text.splitlines())
    for fields in reader:
        if not fields:
            continue
        if len(fields) == 3 and len(groups) == 1:
            fields = [groups[0], *fields]
        try:
            group, topic, partition, offset = fields
            found.setdefault(group, {})[topic, int(partition)] = int(offset)
        except ValueError:
            form = "topic,partition,offset" if len(groups) == 1 else "group,topic,partition,offset"
            raise ValueError(f"line {reader.line_num} is {','.join(fields)!r}: say {form}") from None
    return found


def written_csv(offsets: Mapping[str, Offsets], with_group: bool) -> str:
    import csv
    import io

    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    for group, of_group in offsets.items():
        for (topic, partition), offset in of_group.items():
            writer.writerow([*([group] if with_group else []), topic, partition, offset])
    return text.getvalue()

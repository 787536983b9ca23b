"""`minibroker offsets`, also `minibroker -Q`: where partitions begin and end, and which offset a moment has.

Options and text are those of kafka-get-offsets.sh; `-t topic:partition:timestamp` is kcat -Q, with its text.
"""

from __future__ import annotations

from minibroker.cli.connect import Refused, print_json, run_with_cluster
from minibroker.cli.connect import add_arguments as add_connection
from minibroker.cli.status import DONE, FAILED
from minibroker.cli.words import matching, milliseconds

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable

    from minibroker.client.cluster import Cluster, TopicPartition
    from minibroker.client.offsets import AtTime, FoundOffset

DESCRIPTION = "Show where partitions begin and end, or the first offset at or after a moment: topic:partition:offset."
EPILOG = "A partition without such a record is left out, as Kafka's tool does; with --json its offset is null."
# ListOffsets has numbers below zero for what is not a moment.
NAMED = {
    "latest": -1, "end": -1,
    "earliest": -2, "beginning": -2,
    "max-timestamp": -3,
    "earliest-local": -4,
    "latest-tiered": -5,
    "earliest-pending-upload": -6,
}  # fmt: skip
WORDS = NAMED | {str(number): number for number in NAMED.values()}  # Kafka's tool takes both spellings


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_connection(parser)
    parser.add_argument("names", nargs="*", metavar="TOPIC", help="which; the same as --topic. All if none is named")
    parser.add_argument(
        "-t", "--topic", dest="more_names", action="append", default=[], metavar="TOPIC",
        help="a name or a regular expression; TOPIC:PARTITION:TIMESTAMP as of kcat -Q",
    )  # fmt: skip
    parser.add_argument("-p", "--partition", "--partitions", dest="partitions", default="", metavar="N,N")
    parser.add_argument("--topic-partitions", default="", metavar="T:0,T:2-4", help="ranges include the first number")
    parser.add_argument(
        "-o", "--time", default="latest", metavar="WHEN",
        help="earliest, latest (if nothing is said), max-timestamp, ms since 1970, a date, or Kafka's -1 to -6",
    )  # fmt: skip
    parser.add_argument("--exclude-internal-topics", action="store_true")
    parser.add_argument("-J", "--json", action="store_true", help="one JSON document")


def run(options: argparse.Namespace) -> int:
    names = [*options.names, *options.more_names]
    queries = [name for name in names if name.count(":") >= 2]

    async def work(cluster: Cluster) -> int:
        if queries and len(queries) < len(names):
            raise Refused("either topics, or topic:partition:timestamp, not both at once")
        if queries:
            return await _query(cluster, queries, options)
        return await _show(cluster, names, options)

    return run_with_cluster("offsets", options, work)


async def _query(cluster: Cluster, queries: list[str], options: argparse.Namespace) -> int:
    wanted: dict[TopicPartition, int | str | AtTime] = {}
    for query in queries:
        topic, number, when = query.split(":", 2)
        if not number.isdecimal():
            raise Refused(f"-t {query}: say topic:partition:timestamp")
        wanted[topic, int(number)] = _moment(when)
    found = await _ask(cluster, wanted)
    if options.json:
        _print_document(found)
    else:
        for (topic, partition), at in found.items():
            print(f"{topic} [{partition}] offset {at.offset}")
    return DONE


async def _show(cluster: Cluster, names: list[str], options: argparse.Namespace) -> int:
    moment = _moment(options.time)
    partitions = await _partitions(cluster, names, options)
    found = await _ask(cluster, dict.fromkeys(partitions, moment))
    if options.json:
        _print_document(found)
    else:
        for (topic, partition), at in found.items():
            if at.offset >= 0:
                print(f"{topic}:{partition}:{at.offset}")
    return DONE


async def _ask(cluster: Cluster, wanted: dict[TopicPartition, int | str | AtTime]) -> dict[TopicPartition, FoundOffset]:
    from minibroker.client.admin import Admin

    found = await Admin(cluster).list_offsets(wanted)
    return {key: found[key] for key in wanted}


async def _partitions(cluster: Cluster, names: list[str], options: argparse.Namespace) -> list[TopicPartition]:
    topics = {
        name: topic
        for name, topic in sorted((await cluster.metadata()).items())
        if not topic.error and not (options.exclude_internal_topics and topic.is_internal)
    }
    all_of = {name: list(topic.partitions) for name, topic in topics.items()}
    if options.topic_partitions:
        return [
            (name, number)
            for rule in options.topic_partitions.split(",")
            for name in _matching(all_of, rule.rpartition(":")[0] or rule)
            for number in _chosen(all_of[name], rule.rpartition(":")[2] if ":" in rule else "", rule)
        ]
    found = [name for wanted in names for name in _matching(all_of, wanted)] if names else list(all_of)
    pairs: list[TopicPartition] = []
    for name in dict.fromkeys(found):
        numbers = all_of[name]
        if options.partitions:
            numbers = [number for part in options.partitions.split(",") for number in _chosen(numbers, part, part)]
        pairs += [(name, number) for number in numbers]
    if not pairs and (names or options.partitions):
        raise Refused("there is no such partition; minibroker topics --describe shows what there is", FAILED)
    return pairs


def _matching(names: Iterable[str], wanted: str) -> list[str]:
    try:
        found = matching(names, wanted)
    except ValueError as error:
        raise Refused(str(error)) from None
    if not found:
        raise Refused(f"there is no topic {wanted!r}; minibroker topics --list shows what there is", FAILED)
    return found


def _chosen(numbers: list[int], text: str, rule: str) -> list[int]:
    """Return the partitions of `3`, `1-3` (without 3), `1-`, `-3` or nothing, which means all."""
    low, dash, high = text.partition("-")
    try:
        first = int(low) if low else 0
        behind = (int(high) if high else len(numbers) + first) if dash else first + 1 if low else len(numbers)
    except ValueError:
        raise Refused(f"{rule!r}: say 3, 1-3, 1- or -3") from None
    return [number for number in numbers if first <= number < behind]


def _moment(text: str) -> int | AtTime:
    from minibroker.client.offsets import AtTime

    try:
        return WORDS[text] if text in WORDS else AtTime(milliseconds(text))
    except ValueError:
        raise Refused(f"{text!r} is none of {', '.join(NAMED)}, no number of milliseconds and no date") from None


def _print_document(found: dict[TopicPartition, FoundOffset]) -> None:
    print_json(
        [
            {
                "topic": topic,
                "partition": partition,
                "offset": at.offset if at.offset >= 0 else None,
                "timestamp": at.timestamp if at.timestamp >= 0 else None,
                "leader_epoch": at.leader_epoch if at.leader_epoch >= 0 else None,
            }
            for (topic, partition), at in found.items()
        ]
    )

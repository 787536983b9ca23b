"""`minibroker topics`: list, describe, create, change and delete topics, with the options of kafka-topics.sh."""

from __future__ import annotations

from minibroker.cli.connect import Refused, print_json, run_with_cluster
from minibroker.cli.connect import add_arguments as add_connection
from minibroker.cli.status import DONE, FAILED
from minibroker.cli.words import is_plain, matching

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator
    from typing import Any

    from minibroker.client.cluster import Cluster, Topic, TopicPartition

    Eligible = dict[TopicPartition, tuple[list[int] | None, list[int] | None]]

DESCRIPTION = "List, describe, create, change and delete topics. Without a verb, list; with names, describe."
EPILOG = "Where topics exist already, a name may be a regular expression: 'orders-.*'."
VERBS = {
    "list": "names, one a line",
    "describe": "partitions, leaders, replicas and settings",
    "create": "make topics",
    "alter": "give topics more partitions",
    "delete": "delete topics with all that is in them",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_connection(parser)
    parser.add_argument("names", nargs="*", metavar="TOPIC", help="which; the same as --topic")
    parser.add_argument("-t", "--topic", dest="more_names", action="append", default=[], metavar="TOPIC")
    verbs = parser.add_mutually_exclusive_group()
    for verb, text in VERBS.items():
        verbs.add_argument(f"--{verb}", dest="verb", action="store_const", const=verb, help=text)
    parser.add_argument("-p", "--partitions", type=int, default=-1, metavar="N", help="of --create and --alter")
    parser.add_argument("-r", "--replication-factor", type=int, default=-1, metavar="N", help="of --create")
    parser.add_argument("--replica-assignment", default="", metavar="1:2,2:3", help="brokers of each partition")
    parser.add_argument("--config", action="append", default=[], metavar="KEY=VALUE", help="a setting of a new topic")
    parser.add_argument("--if-not-exists", action="store_true", help="--create: a topic that is there is fine")
    parser.add_argument("--if-exists", action="store_true", help="a topic that is not there is fine")
    parser.add_argument("--exclude-internal", action="store_true", help="leave __consumer_offsets and its like out")
    parser.add_argument("--topics-with-overrides", action="store_true", help="only topics with settings of their own")
    parser.add_argument("--under-replicated-partitions", action="store_true", help="only partitions that lack replicas")
    parser.add_argument("--unavailable-partitions", action="store_true", help="only partitions without leader")
    parser.add_argument("-J", "--json", action="store_true", help="one JSON document")


def run(options: argparse.Namespace) -> int:
    names = [*options.names, *options.more_names]
    # `kafka-topics.sh` separates them with commas, too.
    names = [part for name in names for part in (name.split(",") if is_plain(name.replace(",", "")) else [name])]
    verb = options.verb or ("describe" if names else "list")
    works = {"list": _list, "describe": _describe, "create": _create, "alter": _alter, "delete": _delete}

    async def work(cluster: Cluster) -> int:
        if verb in ("create", "alter", "delete") and not names:
            raise Refused(f"--{verb}: which topic? --topic NAME")
        return await works[verb](cluster, names, options)

    return run_with_cluster("topics", options, work)


async def _found(
    cluster: Cluster, names: list[str], options: argparse.Namespace, at_least_one: bool = True
) -> dict[str, Topic]:
    """Return the topics that are meant, by name."""
    topics = {name: topic for name, topic in sorted((await cluster.metadata()).items()) if not topic.error}
    if options.exclude_internal:
        topics = {name: topic for name, topic in topics.items() if not topic.is_internal}
    if not names:
        return topics
    found: dict[str, Topic] = {}
    for name in names:
        try:
            meant = matching(topics, name)
        except ValueError as error:
            raise Refused(str(error)) from None
        if not meant and at_least_one and not options.if_exists:
            raise Refused(f"there is no topic {name!r}; minibroker topics --list shows what there is", FAILED)
        found |= {one: topics[one] for one in meant}
    return found


async def _list(cluster: Cluster, names: list[str], options: argparse.Namespace) -> int:
    found = await _found(cluster, names, options, at_least_one=False)
    if options.json:
        print_json(list(found))
    else:
        for name in found:
            print(name)
    return DONE


async def _describe(cluster: Cluster, names: list[str], options: argparse.Namespace) -> int:
    from minibroker.client.admin import Admin

    found = await _found(cluster, names, options)
    configs: dict[str, dict[str, str]] = {}
    if found:
        settings = await Admin(cluster).describe_configs([("topic", name) for name in found])
        configs = {
            name: {entry.name: entry.value or "" for entry in entries.values() if not entry.is_default}
            for (_, name), entries in settings.items()
        }
    if options.topics_with_overrides:
        found = {name: topic for name, topic in found.items() if configs.get(name)}
    if options.json:
        print_json([_document(topic, configs.get(name, {})) for name, topic in found.items()])
        return DONE
    eligible = await _eligible(cluster, list(found))
    for name, topic in found.items():
        for line in _lines(topic, configs.get(name, {}), eligible, options):
            print(line)
    return DONE


async def _eligible(cluster: Cluster, names: list[str]) -> Eligible:
    """Return which replicas may be elected besides those in sync (KIP-966), as far as the broker tells: 3.7 on."""
    from minibroker.protocol.messages.describe_topic_partitions import (
        DescribeTopicPartitionsRequest,
        DescribeTopicPartitionsResponse,
    )

    found: Eligible = {}
    if not names or not (await cluster.connection()).has(DescribeTopicPartitionsRequest):
        return found
    request = DescribeTopicPartitionsRequest(
        topics=[DescribeTopicPartitionsRequest.TopicRequest(name=name) for name in names]
    )
    while True:
        answer: DescribeTopicPartitionsResponse = await cluster.call(request)
        for topic in answer.topics:
            for row in topic.partitions:
                found[topic.name or "", row.partition_index] = (row.eligible_leader_replicas, row.last_known_elr)
        cursor = answer.next_cursor
        if cursor is None or not answer.topics:
            return found
        request.cursor = DescribeTopicPartitionsRequest.Cursor(
            topic_name=cursor.topic_name, partition_index=cursor.partition_index
        )


def _lines(topic: Topic, configs: dict[str, str], eligible: Eligible, options: argparse.Namespace) -> Iterator[str]:
    """Yield what kafka-topics.sh prints."""
    only_some = options.under_replicated_partitions or options.unavailable_partitions
    if not only_some:
        settings = ",".join(f"{name}={value}" for name, value in configs.items())
        topic_id = f"\tTopicId: {_uuid(topic.id)}" if any(topic.id) else ""
        yield (
            f"Topic: {topic.name}{topic_id}\tPartitionCount: {len(topic.partitions)}"
            f"\tReplicationFactor: {_replication_factor(topic)}\tConfigs: {settings}"
        )
        if options.topics_with_overrides:
            return
    for partition in topic.partitions.values():
        lacks = len(partition.in_sync_ids) < len(partition.replica_ids)
        if only_some and not (
            (options.under_replicated_partitions and lacks)
            or (options.unavailable_partitions and partition.leader_id < 0)
        ):
            continue
        leader = "none" if partition.leader_id < 0 else partition.leader_id
        replicas, in_sync = (",".join(map(str, ids)) for ids in (partition.replica_ids, partition.in_sync_ids))
        elr, last_known = (
            "N/A" if ids is None else ",".join(map(str, ids))
            for ids in eligible.get((topic.name, partition.id), (None, None))
        )
        yield (
            f"\tTopic: {topic.name}\tPartition: {partition.id}\tLeader: {leader}\tReplicas: {replicas}"
            f"\tIsr: {in_sync}\tElr: {elr}\tLastKnownElr: {last_known}"
        )


def _document(topic: Topic, configs: dict[str, str]) -> dict[str, Any]:
    return {
        "topic": topic.name,
        "id": _uuid(topic.id) if any(topic.id) else None,
        "internal": topic.is_internal,
        "replication_factor": _replication_factor(topic),
        "configs": configs,
        "partitions": [
            {
                "partition": partition.id,
                "leader": None if partition.leader_id < 0 else partition.leader_id,
                "replicas": partition.replica_ids,
                "isr": partition.in_sync_ids,
            }
            for partition in topic.partitions.values()
        ],
    }


def _replication_factor(topic: Topic) -> int:
    return max((len(partition.replica_ids) for partition in topic.partitions.values()), default=0)


def _uuid(raw: bytes) -> str:
    """Return an id as Kafka writes it."""
    from base64 import urlsafe_b64encode

    return urlsafe_b64encode(raw).decode().rstrip("=")


async def _create(cluster: Cluster, names: list[str], options: argparse.Namespace) -> int:
    from minibroker.client.admin import Admin
    from minibroker.client.descriptions import NewTopic, SomeFailed
    from minibroker.errors import Error

    configs: dict[str, str | None] = {}
    for text in options.config:
        key, separator, value = text.partition("=")
        if not separator:
            raise Refused(f"--config {text}: say key=value")
        configs[key] = value
    assignments = _assignments(options.replica_assignment)
    if assignments and (options.partitions > 0 or options.replication_factor > 0):
        raise Refused("--replica-assignment says how many partitions and replicas there are: leave the numbers out")
    wanted = [NewTopic(name, options.partitions, options.replication_factor, configs, assignments) for name in names]
    there: dict[Any, Any] = {}
    try:
        created = list(await Admin(cluster).create_topics(wanted))
    except SomeFailed as failed:
        created = list(failed.results)
        if options.if_not_exists:
            there = {name: error for name, error in failed.errors.items() if error.code == Error.TOPIC_ALREADY_EXISTS}
        left = {name: error for name, error in failed.errors.items() if name not in there}
        if left:
            _say("Created", created, options, is_complete=False)
            raise SomeFailed(left, failed.results) from None
    _say("Created", created, options)
    return DONE


def _assignments(text: str) -> dict[int, list[int]]:
    try:
        return {
            index: [int(broker) for broker in brokers.split(":")]
            for index, brokers in enumerate(text.split(",") if text else ())
        }
    except ValueError:
        raise Refused(f"--replica-assignment {text}: say 1:2,2:3 for two partitions on brokers 1, 2 and 2, 3") from None


async def _alter(cluster: Cluster, names: list[str], options: argparse.Namespace) -> int:
    from minibroker.client.admin import Admin

    if options.config:
        raise Refused("settings are changed by minibroker configs -t TOPIC KEY=VALUE")
    if options.partitions < 1:
        raise Refused("--alter: how many partitions in all? --partitions N")
    found = await _found(cluster, names, options)
    if found:
        count: int = options.partitions
        await Admin(cluster).create_partitions(dict.fromkeys(found, count))
    _say("Altered", list(found), options)
    return DONE


async def _delete(cluster: Cluster, names: list[str], options: argparse.Namespace) -> int:
    from minibroker.client.admin import Admin

    found = await _found(cluster, names, options)
    if found:
        await Admin(cluster).delete_topics(found)
    _say("Deleted", list(found), options)
    return DONE


def _say(done: str, names: list[str], options: argparse.Namespace, is_complete: bool = True) -> None:
    if options.json and is_complete:
        print_json({done.lower(): names})
    elif not options.json:
        for name in names:
            print(f"{done} topic {name}.")

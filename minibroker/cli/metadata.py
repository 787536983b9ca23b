"""`minibroker metadata`, also `minibroker -L`: brokers, topics and partitions in the shape of kcat -L."""

from __future__ import annotations

from minibroker.cli.connect import add_arguments as add_connection
from minibroker.cli.connect import print_json, run_with_cluster
from minibroker.cli.status import DONE, FAILED

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator
    from typing import Any

    from minibroker.client.cluster import Cluster, Topic

DESCRIPTION = "Show brokers, topics and partitions as kcat -L does."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_connection(parser)
    parser.add_argument("-t", "--topic", help="only this one")
    parser.add_argument("-J", "--json", action="store_true", help="one JSON document, as kcat's")


def run(options: argparse.Namespace) -> int:
    async def show(cluster: Cluster) -> int:
        topics = await cluster.metadata([options.topic] if options.topic else None)
        if options.json:
            print_json(_document(cluster, topics, options.topic))
        else:
            print("\n".join(_lines(cluster, topics, options.topic)))
        return FAILED if options.topic and topics[options.topic].error else DONE

    return run_with_cluster("metadata", options, show)


def _lines(cluster: Cluster, topics: dict[str, Topic], wanted: str | None) -> Iterator[str]:
    first = next(iter(cluster.nodes.values()))
    yield f"Metadata for {wanted or 'all topics'} (from broker {first.id}: {first.host}:{first.port}/{first.id}):"
    yield f" {len(cluster.nodes)} brokers:"
    for node in cluster.nodes.values():
        is_controller = " (controller)" if node.id == cluster.controller_id else ""
        yield f"  broker {node.id} at {node.host}:{node.port}{is_controller}"
    yield f" {len(topics)} topics:"
    for topic in topics.values():
        yield f'  topic "{topic.name}" with {len(topic.partitions)} partitions:{_error(topic.error, " ")}'
        for partition in topic.partitions.values():
            replicas = ",".join(map(str, partition.replica_ids))
            in_sync = ",".join(map(str, partition.in_sync_ids))
            line = f"    partition {partition.id}, leader {partition.leader_id}, replicas: {replicas}, isrs: {in_sync}"
            yield line + _error(partition.error, ", ")


def _error(code: int, before: str) -> str:
    if not code:
        return ""
    from minibroker.errors import error_name

    return f"{before}{error_name(code)}"


def _document(cluster: Cluster, topics: dict[str, Topic], wanted: str | None) -> dict[str, Any]:
    nodes = list(cluster.nodes.values())

    def ids(numbers: tuple[int, ...]) -> list[dict[str, int]]:
        return [{"id": number} for number in numbers]

    def failure(code: int) -> dict[str, str]:
        return {"error": _error(code, "")} if code else {}

    return {
        "originating_broker": {"id": nodes[0].id, "name": f"{nodes[0].host}:{nodes[0].port}/{nodes[0].id}"},
        "query": {"topic": wanted or "*"},
        "controllerid": cluster.controller_id,
        "brokers": [{"id": node.id, "name": f"{node.host}:{node.port}"} for node in nodes],
        "topics": [
            {
                "topic": topic.name,
                **failure(topic.error),
                "partitions": [
                    {
                        "partition": partition.id,
                        **failure(partition.error),
                        "leader": partition.leader_id,
                        "replicas": ids(partition.replica_ids),
                        "isrs": ids(partition.in_sync_ids),
                    }
                    for partition in topic.partitions.values()
                ],
            }
            for topic in topics.values()
        ],
    }

"""What the broker shows to whoever asks by `GET`: health, readiness, metrics. Verbs are in http_verbs.py."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Iterator
from typing import Any, TypeAlias

from minibroker.broker.broker_parts import BrokerParts
from minibroker.metadata.image import Partition
from minibroker.replication.replica import Replica
from minibroker.turns import Work

TYPE_CHECKING = False
if TYPE_CHECKING:
    from minibroker.groups.offsets_partition import OffsetsPartition
    from minibroker.log.partition_log import PartitionLog
    from minibroker.server.http import HttpAnswer

    Row: TypeAlias = tuple[str, int]  # labels and figure
    Rows: TypeAlias = Iterator[Row | None]

TEXT = "text/plain; charset=utf-8"
PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"


METRICS = "/metrics"
HEALTH_PAGES = ("/health", "/healthz", "/live", "/ready", "/readyz")
PAGES = ("/", *HEALTH_PAGES, METRICS)
NAMED_PAGES = ("/health", "/ready", METRICS)
LINE_US = 2
LATE_TRANSACTION_MS = 5 * 60_000  # longer than any may last: its markers do not come, or it has no coordinator
REST_LINES = 100  # after so many others have their turn


def page(node: BrokerParts, path: str, paths: str = "") -> HttpAnswer | Coroutine[Any, Any, HttpAnswer]:
    """Return status, content type and body of a path; paths: all there are, for who asks for another."""
    if path in ("/health", "/healthz", "/live"):
        return "200 OK", TEXT, b"ok\n"
    if path in ("/ready", "/readyz"):
        return _readiness(node)
    if path == METRICS:
        return node.shares.start(_metrics_page(node))
    if path == "/":
        return "200 OK", TEXT, f"minibroker, a Kafka-compatible broker: {paths}\n".encode()
    return "404 Not Found", TEXT, f"there are {paths}\n".encode()


def _readiness(node: BrokerParts) -> tuple[str, str, bytes]:
    """Ready, unless the disk has just refused something or nothing is served; partitions that are not are named."""
    if not node.is_ready:
        return "503 Service Unavailable", TEXT, b"not ready\n"
    offline = node.offline()
    lines = [f"{topic}-{partition} is offline: {why}" for (topic, partition), why in offline.items()]
    reason = node.disk_trouble.recent()
    if offline and len(offline) == len(node.directory.logs) + len(node.partitions.unopened):
        reason = reason or "no partition is served"
    if reason:
        return "503 Service Unavailable", TEXT, "\n".join([f"not ready: {reason}", *lines, ""]).encode()
    return "200 OK", TEXT, "\n".join(["ready", *lines, ""]).encode()


def _metrics_page(node: BrokerParts) -> Work[HttpAnswer]:
    pieces, lines = [], []
    for count, line in enumerate(_metrics(node), 1):
        if line:
            lines.append(line)
        if count % REST_LINES == 0:
            pieces.append("".join([f"{line}\n" for line in lines]).encode())
            lines.clear()
            yield REST_LINES * LINE_US
    pieces.append("".join([f"{line}\n" for line in lines]).encode())
    return "200 OK", PROMETHEUS, b"".join(pieces)


def metrics(node: BrokerParts) -> Iterator[str]:
    """Yield Prometheus text, with the names of kafka_exporter where it has one."""
    return filter(None, _metrics(node))


def _metrics(node: BrokerParts) -> Iterator[str]:
    """Yield the lines, and an empty one where something was looked at and there is nothing to say.

    Between any two others may have their turn, so each is made from what there is then, and nothing is made ahead for
    all topics or groups.
    """
    yield from _metric("kafka_brokers", "gauge", "Brokers in the cluster.", [("", len(node.alive))])
    info = [(f'address="{node.bootstrap_servers}",id="{node.node_id}"', 1)]
    yield from _metric("kafka_broker_info", "gauge", "Address of a broker.", info)
    topics = ((f'topic="{topic.name}"', len(topic.partitions)) for topic in list(node.image.topics.values()))
    yield from _metric("kafka_topic_partitions", "gauge", "Partitions of a topic.", topics)
    for name, what, figure in OF_PARTITIONS:
        yield from _metric(f"kafka_topic_partition_{name}", "gauge", what, _of_partitions(node, figure))
    for name, what, measure in OF_REPLICAS:
        yield from _metric(f"kafka_topic_partition_{name}", "gauge", what, _of_replicas(node, measure))
    for name, what, count in OF_LOGS:
        yield from _metric(f"minibroker_{name}_total", "counter", what, _of_logs(node, count))
    offline = [(f'partition="{partition}",topic="{topic}"', 1) for topic, partition in node.offline()]
    yield from _metric("minibroker_offline_partition", "gauge", "1 for a partition whose disk or log fails.", offline)
    what = "1 for a partition led here with a transaction that its coordinator should have ended minutes ago."
    yield from _metric("minibroker_late_transaction", "gauge", what, _late_transactions(node))
    failures = [("", node.disk_trouble.count)]
    yield from _metric("minibroker_storage_failures_total", "counter", "What a disk has refused.", failures)
    yield from _groups(node)
    yield from _cleaning(node)
    connections = [(f'listener="{server.listener_name}"', len(server.connections)) for server in node.servers]
    yield from _metric("minibroker_connections", "gauge", "Open connections.", connections)
    refused = [(f'listener="{server.listener_name}"', server.refused_count) for server in node.servers]
    what = "Connections from addresses that no allow-list has."
    yield from _metric("minibroker_connections_refused_total", "counter", what, refused)
    accepted = [(f'listener="{server.listener_name}"', server.accepted_count) for server in node.servers]
    yield from _metric("minibroker_connections_accepted_total", "counter", "Connections since the start.", accepted)
    sent = [(f'listener="{server.listener_name}"', server.sent_bytes) for server in node.servers]
    yield from _metric("minibroker_sent_bytes_total", "counter", "Bytes of answers.", sent)
    logins = [
        (f'listener="{listener}",result="{result}"', count)
        for listener, counts in node.login_counts.items()
        for result, count in counts.items()
    ]
    yield from _metric("minibroker_logins_total", "counter", "Logins, and sessions that were over.", logins)
    yield from _stretches(node)
    yield from _metric("minibroker_requests_total", "counter", "Requests by API and version.", _requests(node))


# What is said of each partition of the cluster, and of each that has a replica here.
OF_PARTITIONS: tuple[tuple[str, str, Callable[[Partition], int]], ...] = (
    ("replicas", "Replicas of the partition.", lambda each: len(each.replicas)),
    ("leader", "Broker that leads.", lambda each: each.leader),
    ("leader_is_preferred", "1 if the first replica leads.", lambda each: int(each.leader == each.replicas[0])),
    ("in_sync_replica", "Replicas in sync.", lambda each: len(each.isr)),
    (
        "under_replicated_partition",
        "1 if not all replicas are in sync.",
        lambda each: int(len(each.isr) < len(each.replicas)),
    ),
)
OF_REPLICAS: tuple[tuple[str, str, Callable[[Replica], int]], ...] = (
    ("current_offset", "Offset up to which consumers may read.", lambda each: each.high_watermark),
    (
        "last_stable_offset",
        "Offset up to which consumers of committed records may read.",
        lambda each: each.log.last_stable_offset(each.high_watermark),
    ),
    ("oldest_offset", "First offset that is still there.", lambda each: each.log.log_start_offset),
    ("size_bytes", "Bytes of the log.", lambda each: each.log.size_bytes),
)


# Counted by each log since it was opened; only those are named that have any.
OF_LOGS: tuple[tuple[str, str, Callable[[PartitionLog], int]], ...] = (
    ("batches_in_place", "Batches appended as producers made them.", lambda log: log.batches_in_place),
    # In Kafka a rate of each topic: ProduceMessageConversionsPerSec.
    (
        "produce_message_conversions",
        "Records written anew for the format or codec of the topic.",
        lambda log: log.records_converted,
    ),
    (
        "produce_message_recompressions",
        "Those of them that had the format already.",
        lambda log: log.records_recompressed,
    ),
    # Kafka: counts records, not batches, in FetchMessageConversionsPerSec, which 4.0 has no more.
    (
        "fetch_batch_conversions",
        "Batches written in an older format for a client that fetched.",
        lambda log: log.batches_converted_for_fetch,
    ),
)


def _of_logs(node: BrokerParts, figure: Callable[[PartitionLog], int]) -> Rows:
    for replica in list(node.replicas.values()):
        count = figure(replica.log)
        yield (f'partition="{replica.partition}",topic="{replica.topic}"', count) if count else None


def _of_partitions(node: BrokerParts, figure: Callable[[Partition], int]) -> Rows:
    for topic in list(node.image.topics.values()):
        for partition in list(topic.partitions):
            yield f'partition="{partition.id}",topic="{topic.name}"', figure(partition)


def _of_replicas(node: BrokerParts, figure: Callable[[Replica], int]) -> Rows:
    for replica in list(node.replicas.values()):
        yield f'partition="{replica.partition}",topic="{replica.topic}"', figure(replica)


def _late_transactions(node: BrokerParts) -> Rows:
    """Kafka counts them in PartitionsWithLateTransactionsCount."""
    late_ms = node.clock.now_ms() - node.config["transaction.max.timeout.ms"] - LATE_TRANSACTION_MS
    for replica in list(node.replicas.values()):
        is_late = replica.is_leader and replica.log.producers.has_transaction_before(late_ms)
        yield (f'partition="{replica.partition}",topic="{replica.topic}"', 1) if is_late else None


def _groups(node: BrokerParts) -> Iterator[str]:
    """The groups that this broker coordinates: how far they are, and how far behind in partitions that it has."""
    for metric, what, rows in (
        ("members", "Members of a group.", _members),
        ("current_offset", "What a group has committed.", _committed),
        ("lag", "Offsets from there to the high watermark.", _lags),
    ):
        yield from _metric(f"kafka_consumergroup_{metric}", "gauge", what, _of_groups(node, rows))


def _of_groups(node: BrokerParts, rows: Callable[[BrokerParts, OffsetsPartition, str], Rows]) -> Rows:
    for _, led in sorted(node.groups.coordinator.led.items()):
        if led.is_loading:
            continue
        for group_id in sorted(led.shard.groups):
            if group_id in led.shard.groups:  # it may have gone meanwhile
                yield from rows(node, led, group_id)
            yield None


def _members(node: BrokerParts, led: OffsetsPartition, group_id: str) -> Rows:
    yield f'consumergroup="{_escaped(group_id)}"', len(led.shard.groups[group_id].member_ids)


def _committed(node: BrokerParts, led: OffsetsPartition, group_id: str) -> Rows:
    name = _escaped(group_id)
    for topic, partition in sorted(led.shard.offsets.places(group_id)):
        found = led.shard.offsets.find(group_id, topic, partition)
        if found is not None:
            yield f'consumergroup="{name}",partition="{partition}",topic="{topic}"', found.offset


def _lags(node: BrokerParts, led: OffsetsPartition, group_id: str) -> Rows:
    name = _escaped(group_id)
    for topic, partition in sorted(led.shard.offsets.places(group_id)):
        found, replica = led.shard.offsets.find(group_id, topic, partition), node.replicas.get((topic, partition))
        if found is None or replica is None:
            yield None
        else:
            lag = max(replica.high_watermark - found.offset, 0)
            yield f'consumergroup="{name}",partition="{partition}",topic="{topic}"', lag


def _escaped(name: str) -> str:
    """Groups may be named anyhow."""
    return name.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _cleaning(node: BrokerParts) -> Iterator[str]:
    """What retention and compaction have done, and what they cannot do."""
    retention, compaction = node.cleaning.retention, node.cleaning.compaction
    for name, what, figure in (
        ("retention_segments", "Segments that retention has removed.", retention.segments_removed),
        ("retention_bytes", "Bytes of those.", retention.bytes_removed),
        ("compaction_passes", "Passes of the cleaner over a log.", compaction.passes),
        ("compaction_bytes_before", "Bytes of segments that were compacted.", compaction.bytes_before),
        ("compaction_bytes_after", "Bytes that were left of those.", compaction.bytes_after),
    ):
        yield from _metric(f"minibroker_{name}_total", "counter", what, [("", figure)])
    percent = [("", int(100 * compaction.logs.dirty_ratio_max))]
    yield from _metric("minibroker_dirty_percent_max", "gauge", "Of the dirtiest log, what is not compacted.", percent)
    left_alone = [(f'partition="{partition}",topic="{topic}"', 1) for topic, partition in compaction.logs.uncleanable]
    yield from _metric(
        "minibroker_uncleanable_partition", "gauge", "1 for a log that cannot be compacted: see the log.", left_alone
    )


def _stretches(node: BrokerParts) -> Iterator[str]:
    """How often something held the loop for 20 ms or more, and for how long at most."""
    from minibroker.protocol.registry import APIS

    found = node.stretches
    labels = {what: f'what="{APIS[what] if isinstance(what, int) else what}"' for what in found.counts}
    counts = [(labels[what], count) for what, count in found.counts.items()]
    yield from _metric(
        "minibroker_loop_stretches_total", "counter", "Times that others waited 20 ms or more for this.", counts
    )
    longest = [(labels[what], most) for what, most in found.longest_ms.items()]
    yield from _metric("minibroker_loop_stretch_ms_max", "gauge", "The longest of those.", longest)


def _requests(node: BrokerParts) -> list[tuple[str, int]]:
    from minibroker.protocol.registry import APIS

    counts = node.request_counts
    return [(f'api="{APIS[api]}",version="{version}"', count) for (api, version), count in sorted(counts.items())]


def _metric(name: str, kind: str, what: str, rows: Iterable[Row | None]) -> Iterator[str]:
    """Yield a metric's lines; where there is no row, an empty one."""
    yield f"# HELP {name} {what}"
    yield f"# TYPE {name} {kind}"
    for row in rows:
        if row is None:
            yield ""
        else:
            labels, value = row
            yield f"{name}{{{labels}}} {value}" if labels else f"{name} {value}"

"""A topic, a partition and its replicas as rows: lists, for there are many of them; COLUMNS names what stands where.

What must hold: nothing is read from a disk, and nothing depends on when it is looked: a row changes with what it is
about. So a follower that has caught up has no time at which it did.
"""

from __future__ import annotations

from itertools import islice

from minibroker.event_kinds import is_internal
from minibroker.log.checkpoints import format_id
from minibroker.metadata.image import TOPIC
from minibroker.replication.leader import NEVER_MS, LeaderState

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from minibroker.log.partition_log import PartitionLog
    from minibroker.metadata.image import Partition, Topic
    from minibroker.replication.leader import FollowerProgress
    from minibroker.replication.replica import Replica
    from minibroker.view.source import ViewSource

COLUMNS = {
    "brokers": ("address", "state", "is_fenced", "rack", "is_cut_from_clients", "metadata_offset"),
    "links": ("is_cut", "delay_ms", "jitter_ms", "bytes_per_s", "lost_share"),
    "disks": ("trouble", "write_ms"),
    "gates": ("gate", "place_in_line", "source", "target", "name", "partitions"),
    "totals": ("connections", "requests", "sent_bytes"),
    "topics": ("id", "partitions", "replication_factor", "is_internal", "settings"),
    "rows": (
        *("topic", "partition", "leader", "leader_epoch", "isr", "elr", "replicas", "adding", "removing"),
        "replica_states",  # each as in REPLICA_COLUMNS; of a broker that does not run its id alone
    ),
    "logs": ("segments", "epochs", "clean_offset", "recovery_point", "open_transactions"),
    "contents": ("texts", "markers", "gaps"),
    "groups": ("type", "protocol_type", "state", "epoch", "members", "coordinator"),
    "transactions": (
        *("state", "producer_id", "producer_epoch", "timeout_ms", "start_ms", "partitions", "coordinator"),
    ),
    "clients": ("broker", "listener", "client_id", "software", "reads"),
    "sums": ("start_offsets", "end_offsets", "size_bytes"),
}
REPLICA_COLUMNS = (
    *("broker", "start_offset", "high_watermark", "end_offset", "last_stable_offset", "leader_epoch", "is_leader"),
    "fetch_offset",  # where it has asked last, as the leader knows it; -1: not yet
    "caught_up_ms",  # when it was caught up last, by the steady clock; null: it is, -1: never
)
CELLS = {
    "k": "all replicas are in sync, and the preferred one leads",
    "p": "all replicas are in sync, and another than the preferred one leads",
    "v": "replicas are being added or removed",
    "u": "not all replicas are in sync",
    "m": "fewer replicas are in sync than min.insync.replicas",
    "n": "nobody leads",
}
SEGMENTS_MAX = 64  # that are named: the newest
OPEN_MAX = 64  # transactions that are named: the oldest
NO_FOLLOWERS: dict[int, FollowerProgress] = {}


def key_of(topic: str, partition: int) -> str:
    return f"{topic}-{partition}"


def log_key(topic: str, partition: int, broker: int) -> str:
    return f"{topic}-{partition}@{broker}"


def topic_row(source: ViewSource, topic: Topic) -> list[object]:
    factor = len(topic.partitions[0].replicas) if topic.partitions else 0
    settings = dict(source.image.configs.get((TOPIC, topic.name), {}))
    return [format_id(topic.id), len(topic.partitions), factor, is_internal(topic.name), settings]


def cell_of(partition: Partition, min_in_sync: int) -> str:
    """Return the health of a partition as a letter."""
    count, in_sync = len(partition.replicas), len(partition.isr)
    if partition.leader < 0:
        return "n"
    if in_sync < min(min_in_sync, count):
        return "m"
    if partition.adding or partition.removing:
        return "v"
    if in_sync < count:
        return "u"
    return "k" if partition.leader == partition.replicas[0] else "p"


def partition_row(topic: str, partition: Partition, replicas: Sequence[Replica | None]) -> list[object]:
    """replicas: in the order of the partition's."""
    leader, followers, end_offset = partition.leader, NO_FOLLOWERS, 0
    if leader in partition.replicas:
        leading = replicas[partition.replicas.index(leader)]
        if leading is not None:
            end_offset = leading.log.log_end_offset
            if isinstance(leading.role, LeaderState) and leading.is_leader:
                followers = leading.role.followers
    states = [
        [broker] if replica is None else _replica_row(replica, followers.get(broker), end_offset)
        for broker, replica in zip(partition.replicas, replicas, strict=True)
    ]
    return [
        *(topic, partition.id, leader, partition.leader_epoch, list(partition.isr), list(partition.elr)),
        *(list(partition.replicas), list(partition.adding), list(partition.removing), states),
    ]


def _replica_row(replica: Replica, seen: FollowerProgress | None, leaders_end: int) -> list[object]:
    """seen: by its leader."""
    log, high_watermark = replica.log, replica.high_watermark
    fetch_offset, caught_up_ms = -1, None
    if seen is not None:
        fetch_offset = seen.end_offset
        if fetch_offset != leaders_end:
            caught_up_ms = -1 if seen.caught_up_ms == NEVER_MS else seen.caught_up_ms
    return [
        *(replica.node_id, log.log_start_offset, high_watermark, log.log_end_offset),
        *(log.last_stable_offset(high_watermark), replica.leader_epoch),
        *(replica.is_leader and isinstance(replica.role, LeaderState), fetch_offset, caught_up_ms),
    ]


def log_face(log: PartitionLog, clean_offset: int) -> tuple[object, ...]:
    """Return what a log's row depends on; it is cheap."""
    segments, epochs = log.segments, log.epochs.entries
    bounds = (segments[0].base_offset, segments[-1].base_offset, len(segments))
    open_ones = tuple(islice(log.producers.open_transactions.items(), OPEN_MAX))
    return (log, *bounds, len(epochs), epochs[-1] if epochs else None, log.recovery_point, clean_offset, open_ones)


def log_row(log: PartitionLog, clean_offset: int) -> list[object]:
    return [
        [segment.base_offset for segment in log.segments[-SEGMENTS_MAX:]],
        [[entry.epoch, entry.start_offset] for entry in log.epochs.entries[-SEGMENTS_MAX:]],
        clean_offset,
        log.recovery_point,
        [list(each) for each in islice(log.producers.open_transactions.items(), OPEN_MAX)],
    ]

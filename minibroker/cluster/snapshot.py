"""What there is to see of a cluster, as plain values: the page of the moment, which `json.dumps` takes as it is.

The picture of it is drawn elsewhere (watch/frame.py), perhaps in another process.
What must hold: taking a snapshot changes nothing and waits for nothing. What cannot be known is not made up: the log of
a broker that was killed is None.
"""

from __future__ import annotations

from typing import TypedDict

from minibroker.clock.steered import SteeredClock
from minibroker.cluster.disks import disk_troubles
from minibroker.cluster.groups import OFFSETS_TOPIC, seen_groups
from minibroker.replication.leader import LeaderState
from minibroker.replication.network import CONTROLLER
from minibroker.view.contents import MARKERS, Contents, record_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from minibroker.cluster.nodes import Nodes
    from minibroker.events import Event
    from minibroker.replication.replica import Replica

__all__ = ["MARKERS", "record_text"]  # beside those of this module
SEGMENTS_MAX = 64  # that are named
NOT_COMPACTED = -1


class ReplicaState(TypedDict):
    """A replica on a broker that runs, or hangs."""

    start_offset: int
    high_watermark: int
    last_stable_offset: int  # up to there read_committed reads: no transaction is open before it
    end_offset: int
    leader_epoch: int
    is_leader: bool  # as far as it knows
    epochs: list[tuple[int, int]]  # epoch and first offset, rising
    segments: list[int]  # offsets that the newest of them begin with, rising
    clean_offset: int  # up to there the log has been compacted; -1: never
    texts: dict[str, str]  # offset -> record_text, of short logs; strings, for JSON has no others
    markers: dict[str, str]  # offset -> commit or abort, of short logs: where transactions end
    gaps: list[tuple[int, int]]  # of short logs: from an offset to another there are no records, compaction took them


class PartitionState(TypedDict):
    """A partition as the controller has it, and its replicas."""

    topic: str
    partition: int
    leader: int  # -1: nobody
    leader_epoch: int
    isr: list[int]
    elr: list[int]
    replicas: dict[str, ReplicaState | None]  # by broker


class BrokerState(TypedDict):
    """A broker."""

    id: int
    address: str  # where clients reach it; empty if it never ran
    state: str
    is_fenced: bool
    rack: str
    is_cut_from_clients: bool


class MemberState(TypedDict):
    """A member of a group: partitions, such as orders-0."""

    assigned: list[str]  # by the coordinator; in a classic group nothing while it rebalances
    owned: list[str]  # what it believes to own, and so reads


class GroupState(TypedDict):
    """A group of consumers, as the broker has it that coordinates it."""

    id: str
    state: str
    coordinator: int
    protocol: str  # Classic, whose epoch is called generation, or Consumer
    epoch: int
    assignor: str
    members: dict[str, MemberState]  # by client id, numbered if they share it
    committed: dict[str, int]  # by partition


class LinkState(TypedDict):
    """One direction of a link that is not as at first, but for a cut."""

    source: str
    target: str
    delay_ms: float
    jitter_ms: float
    bytes_per_s: float  # 0: any number
    lost_share: float


class ClusterState(TypedDict):
    """All of it."""

    bootstrap: str
    now_ms: int
    is_frozen: bool
    controller: str
    brokers: list[BrokerState]
    cuts: list[tuple[str, str]]  # links that let nothing through, one direction each
    links: list[LinkState]  # that delay, hold back or lose
    disks: list[tuple[str, str, float]]  # whose, full or slow, and how long each write takes
    held: list[tuple[str, str]]  # the gate, and what waits there
    partitions: list[PartitionState]
    groups: list[GroupState]
    said: list[tuple[int, str]]  # the last events: when, and the sentence


def snapshot(cluster: Nodes, events: Sequence[Event] = ()) -> ClusterState:
    """Return what there is to see now. events: to be told of, the last one last."""
    clock, image = cluster.clock, cluster.controller.image
    brokers: list[BrokerState] = []
    for broker in cluster.broker_ids:
        known = image.brokers.get(broker)
        brokers.append(
            {
                "id": broker,
                "address": cluster.nodes[broker].bootstrap_servers if broker in cluster.nodes else "",
                "state": cluster.states[broker],
                "is_fenced": known is None or known.fenced,
                "rack": (known.rack if known is not None else "") or "",
                "is_cut_from_clients": broker in cluster.cut_from_clients,
            }
        )
    ends = list(cluster.states)
    links = [(a, b) for a in ends for b in ends if a != b]
    return {
        "bootstrap": cluster.bootstrap_servers,
        "now_ms": clock.now_ms(),
        "is_frozen": isinstance(clock, SteeredClock) and clock.is_frozen,
        "controller": cluster.states[CONTROLLER],
        "brokers": brokers,
        "cuts": [(str(a), str(b)) for a, b in links if cluster.network.link(a, b).is_cut],
        "links": [
            {
                "source": str(link.source),
                "target": str(link.target),
                "delay_ms": link.delay_ms,
                "jitter_ms": link.jitter_ms,
                "bytes_per_s": link.bytes_per_s,
                "lost_share": link.lost_share,
            }
            for link in cluster.network.links.values()
            if link.delay_ms or link.jitter_ms or link.bytes_per_s or link.lost_share
        ],
        "disks": [(str(who), each.kind, each.write_ms) for who, each in disk_troubles(cluster).items()],
        "held": cluster.waiting(),
        "partitions": [
            partition_state(cluster, topic.name, partition.id)
            for topic in sorted(image.topics.values(), key=lambda each: each.name)
            for partition in topic.partitions
        ],
        "groups": group_states(cluster),
        "said": [(event.at_ms, event.sentence) for event in events],
    }


def group_states(cluster: Nodes) -> list[GroupState]:
    if OFFSETS_TOPIC not in cluster.controller.image.topics:
        return []
    seen = seen_groups(cluster)
    found: list[GroupState] = []
    for row in seen.groups():
        group = seen.group(row.group)
        members: dict[str, MemberState] = {}
        for member in group.members:
            name, number = member.client_id, 1
            while name in members:
                number += 1
                name = f"{member.client_id}.{number}"
            assigned = member.assignment if member.target is None else member.target
            members[name] = {"assigned": _names(assigned), "owned": _names(member.owned)}
        found.append(
            {
                "id": group.group,
                "state": group.state,
                "coordinator": group.coordinator,
                "protocol": group.type,
                "epoch": group.epoch,
                "assignor": group.assignor,
                "members": members,
                "committed": {
                    f"{each.topic}-{each.partition}": each.committed
                    for each in group.partitions
                    if each.committed is not None
                },
            }
        )
    return found


def _names(places: Sequence[tuple[str, int]]) -> list[str]:
    return [f"{topic}-{partition}" for topic, partition in places]


def partition_state(cluster: Nodes, topic: str, partition: int) -> PartitionState:
    found = cluster.partition(topic, partition)
    replicas: dict[str, ReplicaState | None] = {}
    for broker in found.replicas:
        replica = cluster.replica(topic, partition, broker)
        if replica is None:
            replicas[str(broker)] = None
        else:
            cleaned = cluster.nodes[broker].directory.cleaner_offsets
            replicas[str(broker)] = replica_state(replica, cleaned.get((topic, partition), NOT_COMPACTED))
    return {
        "topic": topic,
        "partition": partition,
        "leader": found.leader,
        "leader_epoch": found.leader_epoch,
        "isr": list(found.isr),
        "elr": list(found.elr),
        "replicas": replicas,
    }


def replica_state(replica: Replica, clean_offset: int) -> ReplicaState:
    log = replica.log
    contents = Contents()
    contents.look(log)
    return {
        "start_offset": log.log_start_offset,
        "high_watermark": replica.high_watermark,
        "last_stable_offset": log.last_stable_offset(replica.high_watermark),
        "end_offset": log.log_end_offset,
        "leader_epoch": replica.leader_epoch,
        "is_leader": replica.is_leader and isinstance(replica.role, LeaderState),
        "epochs": [(entry.epoch, entry.start_offset) for entry in log.epochs.entries],
        "segments": [segment.base_offset for segment in log.segments[-SEGMENTS_MAX:]],
        "clean_offset": clean_offset,
        "texts": contents.texts,
        "markers": contents.markers,
        "gaps": contents.gaps,
    }


def brief_state(cluster: Nodes) -> dict[str, Any]:
    """Return how far each broker and each replica is, without what a picture needs besides."""
    partitions = []
    for topic in cluster.controller.image.topics.values():
        for partition in topic.partitions:
            replicas = []
            for broker in partition.replicas:
                replica = cluster.replica(topic.name, partition.id, broker)
                row: dict[str, Any] = {"broker": broker, "in_sync": broker in partition.isr}
                if replica is not None:
                    row |= {
                        "leads": replica.is_leader,
                        "leader_epoch": replica.leader_epoch,
                        "log_start": replica.log.log_start_offset,
                        "high_watermark": replica.high_watermark,
                        "log_end": replica.log.log_end_offset,
                    }
                replicas.append(row)
            partitions.append(
                {
                    "topic": topic.name,
                    "partition": partition.id,
                    "leader": partition.leader,
                    "leader_epoch": partition.leader_epoch,
                    "isr": list(partition.isr),
                    "replicas": replicas,
                }
            )
    return {
        "bootstrap_servers": cluster.bootstrap_servers,
        "now_ms": cluster.clock.now_ms(),
        "brokers": {str(who): how for who, how in cluster.states.items()},
        "waiting": [[kind, what] for kind, what in cluster.waiting()],
        "partitions": partitions,
    }

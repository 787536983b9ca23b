"""A state of the feed (minibroker/view) as the picture of a cluster wants it (cluster/snapshot.py)."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from typing import Any

    from minibroker.cluster.snapshot import (
        BrokerState,
        ClusterState,
        GroupState,
        MemberState,
        PartitionState,
        ReplicaState,
    )

NO_CONTENTS: tuple[dict[str, str], dict[str, str], list[list[int]]] = ({}, {}, [])
CLIENTS = "clients"


def cluster_state(view: Mapping[str, Any]) -> ClusterState:
    """Return what is drawn of a state that was shown or reduced."""
    cluster = view["cluster"]
    links = [(*key.split("->"), row[0]) for key, row in view["links"].items()]
    return {
        "bootstrap": cluster["bootstrap"],
        "now_ms": view["t"],
        "is_frozen": cluster["clock"][0],
        "controller": cluster["controller"] or "running",  # a broker that is alone has none
        "brokers": [_broker(key, row) for key, row in view["brokers"].items()],
        "cuts": [(source, target) for source, target, is_cut in links if is_cut and source != CLIENTS],
        "links": [
            {
                "source": source,
                "target": target,
                "delay_ms": row[1],
                "jitter_ms": row[2],
                "bytes_per_s": row[3],
                "lost_share": row[4],
            }
            for key, row in view["links"].items()
            for source, target in [key.split("->")]
            if any(row[1:])
        ],
        "disks": [(who, kind, write_ms) for who, (kind, write_ms) in view["disks"].items()],
        "held": list(_held(view["gates"])),
        "partitions": [_partition(view, row) for _, row in sorted(view["rows"].items(), key=_place)],
        "groups": [_group(each) for _, each in sorted(view["members"].items())],
        "said": [],
    }


def _place(item: tuple[str, list[Any]]) -> tuple[str, int]:
    return item[1][0], item[1][1]


def _broker(key: str, row: list[Any]) -> BrokerState:
    address, state, is_fenced, rack, is_cut, _ = row
    return {
        "id": int(key),
        "address": address,
        "state": state,
        "is_fenced": is_fenced,
        "rack": rack,
        "is_cut_from_clients": is_cut,
    }


def _held(gates: Mapping[str, list[Any]]) -> Iterator[tuple[str, str]]:
    """Yield what waits, in the words of cluster/nodes.py, each gate's in the order of its line."""
    kinds = list(dict.fromkeys(row[0] for row in gates.values()))
    for kind, _, source, target, name, _ in sorted(gates.values(), key=lambda row: (kinds.index(row[0]), row[1])):
        yield kind, f"{name} {source}->{target}" if source != "" else name


def _partition(view: Mapping[str, Any], row: list[Any]) -> PartitionState:
    topic, partition, leader, leader_epoch, isr, elr, _, _, _, replicas = row
    return {
        "topic": topic,
        "partition": partition,
        "leader": leader,
        "leader_epoch": leader_epoch,
        "isr": isr,
        "elr": elr,
        "replicas": {str(each[0]): _replica(view, f"{topic}-{partition}@{each[0]}", each) for each in replicas},
    }


def _replica(view: Mapping[str, Any], key: str, row: list[Any]) -> ReplicaState | None:
    log = view["logs"].get(key)
    if len(row) == 1 or log is None:
        return None  # its broker does not run
    _, start_offset, high_watermark, end_offset, last_stable_offset, leader_epoch, is_leader, *_ = row
    segments, epochs, clean_offset, *_ = log
    texts, markers, gaps = view["contents"].get(key, NO_CONTENTS)
    return {
        "start_offset": start_offset,
        "high_watermark": high_watermark,
        "last_stable_offset": last_stable_offset,
        "end_offset": end_offset,
        "leader_epoch": leader_epoch,
        "is_leader": is_leader,
        "epochs": [(epoch, offset) for epoch, offset in epochs],
        "segments": segments,
        "clean_offset": clean_offset,
        "texts": texts,
        "markers": markers,
        "gaps": [(start, end) for start, end in gaps],
    }


def _group(view: Mapping[str, Any]) -> GroupState:
    members: dict[str, MemberState] = {}
    for member in view["members"]:
        name, number = member["client_id"], 1
        while name in members:
            number += 1
            name = f"{member['client_id']}.{number}"
        given = member["assignment"] if member["target"] is None else member["target"]
        members[name] = {"assigned": _names(given), "owned": _names(member["owned"])}
    committed = {f"{each['topic']}-{each['partition']}": each["committed"] for each in view["partitions"]}
    return {
        "id": view["group"],
        "state": view["state"],
        "coordinator": view["coordinator"],
        "protocol": view["type"],
        "epoch": view["epoch"],
        "assignor": view["assignor"],
        "members": members,
        "committed": {place: offset for place, offset in committed.items() if offset is not None},
    }


def _names(places: Iterable[tuple[str, int]]) -> list[str]:
    return [f"{topic}-{partition}" for topic, partition in places]

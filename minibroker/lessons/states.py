"""What `state:` says of a cluster, and how it differs from what is.

state: orders-0 leader=1 isr=1,2,3 epoch=0       a partition, as the controller has it; `elr` too
state: orders-0 b2 leo=3 hw=2 start=0 epoch=0    a replica; also role=leader or follower, records=a,b,c,
                                                 segments=0,3; clean=3, up to where it is compacted;
                                                 lso=1, the last stable offset, and markers=2,5
state: b2 running                                a broker: running, paused, stopped, killed
state: waiting fetch 2                           how many wait at a gate
state: group readers state=Stable members=anna   a group; also epoch, assignor, committed=orders-0@3; anna=orders-0,
                                                 what she believes to own
"""

from __future__ import annotations

from minibroker.cluster.snapshot import ClusterState, GroupState, PartitionState, ReplicaState


def differences(state: ClusterState, text: str) -> str:
    """Return how a state differs from what a line says of it; empty: it does not."""
    first, *rest = text.split()
    if first == "waiting":
        kind, count = rest
        waiting = [what for gate, what in state["held"] if gate == kind]
        return "" if len(waiting) == int(count) else f"{len(waiting)} wait at {kind}: {', '.join(waiting) or 'nobody'}"
    if first == "group":
        group = next((each for each in state["groups"] if each["id"] == rest[0]), None)
        return _differences(rest[1:], _of_group(group), f"group {rest[0]}")
    if first[0] == "b" and first[1:].isdigit():
        broker = next((each for each in state["brokers"] if each["id"] == int(first[1:])), None)
        is_now = "not there" if broker is None else broker["state"]
        return "" if [is_now] == rest else f"{first} is {is_now}"
    partition = next((each for each in state["partitions"] if f"{each['topic']}-{each['partition']}" == first), None)
    if partition is None:
        return f"there is no partition {first}"
    if rest and "=" not in rest[0]:
        if rest[0][1:] not in partition["replicas"]:
            return f"{first} has no replica on {rest[0]}"
        replica = partition["replicas"][rest[0][1:]]
        if replica is None:
            return f"{rest[0]} does not run"
        return _differences(rest[1:], _of_replica(replica), f"{first} {rest[0]}")
    return _differences(rest, _of_partition(partition), first)


def _of_replica(replica: ReplicaState) -> dict[str, str]:
    return {
        "leo": str(replica["end_offset"]),
        "hw": str(replica["high_watermark"]),
        "lso": str(replica["last_stable_offset"]),
        "start": str(replica["start_offset"]),
        "epoch": str(replica["leader_epoch"]),
        "role": "leader" if replica["is_leader"] else "follower",
        "records": ",".join(replica["texts"].values()) or "none",
        "markers": ",".join(replica["markers"]) or "none",
        "segments": ",".join(map(str, replica["segments"])),
        "clean": "never" if replica["clean_offset"] < 0 else str(replica["clean_offset"]),
    }


def _of_group(group: GroupState | None) -> dict[str, str]:
    if group is None:
        return {"state": "nothing"}
    return {
        "state": group["state"],
        "coordinator": f"b{group['coordinator']}",
        "epoch": str(group["epoch"]),
        "assignor": group["assignor"],
        "members": ",".join(sorted(group["members"])) or "nobody",
        "committed": ",".join(f"{place}@{offset}" for place, offset in group["committed"].items()) or "nothing",
        **{name: ",".join(each["owned"]) or "nothing" for name, each in group["members"].items()},
    }


def _of_partition(partition: PartitionState) -> dict[str, str]:
    return {
        "leader": str(partition["leader"]) if partition["leader"] >= 0 else "nobody",
        "epoch": str(partition["leader_epoch"]),
        "isr": ",".join(map(str, sorted(partition["isr"]))) or "nobody",
        "elr": ",".join(map(str, sorted(partition["elr"]))) or "nobody",
        "replicas": ",".join(partition["replicas"]),
    }


def _differences(wanted: list[str], found: dict[str, str], what: str) -> str:
    differing = []
    for each in wanted:
        name, _, value = each.partition("=")
        if name not in found:
            return f"{what} has no {name!r}; it has {', '.join(found)}"
        if found[name] != value:
            differing.append(f"{name} is {found[name]} and not {value}")
    return f"{what}: {', '.join(differing)}" if differing else ""

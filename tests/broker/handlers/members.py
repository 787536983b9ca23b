"""Members of groups of either protocol, as tests of handlers let them speak."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from minibroker.errors import Error
from minibroker.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from minibroker.protocol.messages.find_coordinator import FindCoordinatorRequest
from minibroker.protocol.messages.join_group import JoinGroupRequest
from minibroker.protocol.messages.offset_commit import OffsetCommitRequest
from minibroker.protocol.messages.sync_group import SyncGroupRequest
from tests.broker.virtual_broker import VirtualBroker, virtual_broker

UNKNOWN_ID = bytes(15) + b"1"
MEMBER_ID = "AAAAAAAAAAAAAAAAAAAAAQ"  # a UUID, as members of consumer groups make it


def join_request(group: str = "g", member_id: str = "", **more: Any) -> JoinGroupRequest:
    Protocol = JoinGroupRequest.JoinGroupRequestProtocol
    fields: dict[str, Any] = {
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 20_000,
        "protocol_type": "consumer",
        "protocols": [Protocol(name="range", metadata=b"meta")],
    }
    return JoinGroupRequest(group_id=group, member_id=member_id, **{**fields, **more})


def sync_request(joined: Any, group: str = "g", **more: Any) -> SyncGroupRequest:
    Assignment = SyncGroupRequest.SyncGroupRequestAssignment
    rows = [Assignment(member_id=each.member_id, assignment=b"share") for each in joined.members]
    fields: dict[str, Any] = {"protocol_type": "consumer", "protocol_name": "range", "assignments": rows}
    return SyncGroupRequest(
        group_id=group, generation_id=joined.generation_id, member_id=joined.member_id, **{**fields, **more}
    )


def stable(broker: VirtualBroker, group: str = "g", **more: Any) -> Any:
    """Have one member make a classic group; return what it was answered when it joined."""
    joined = broker.ask(join_request(group, **more), 3)
    assert joined.error_code == Error.NONE
    kind = more.get("protocol_type", "consumer")
    assert broker.ask(sync_request(joined, group, protocol_type=kind), 5).error_code == Error.NONE
    return joined


def beat(
    broker: VirtualBroker, epoch: int, group: str = "g", member_id: str = MEMBER_ID, *, version: int = 1, **more: Any
) -> Any:
    """Have a member of a consumer group send a heartbeat."""
    if epoch == 0:
        more = {"rebalance_timeout_ms": 5000, "subscribed_topic_names": ["orders"], "topic_partitions": [], **more}
    request = ConsumerGroupHeartbeatRequest(group_id=group, member_id=member_id, member_epoch=epoch, **more)
    return broker.ask(request, version)


def commit_request(
    wanted: dict[str | bytes, dict[int, int]],
    group: str = "g",
    *,
    metadata: str | None = "",
    epoch: int = -1,
    **more: Any,
) -> OffsetCommitRequest:
    """Ask for offsets to be committed: topic, or its id -> partition -> offset."""
    Topic = OffsetCommitRequest.OffsetCommitRequestTopic
    topics = []
    for topic, rows in wanted.items():
        partitions = [
            Topic.OffsetCommitRequestPartition(
                partition_index=index, committed_offset=offset, committed_metadata=metadata
            )
            for index, offset in rows.items()
        ]
        named = {"topic_id": topic} if isinstance(topic, bytes) else {"name": topic}
        topics.append(Topic(partitions=partitions, **named))
    return OffsetCommitRequest(group_id=group, generation_id_or_member_epoch=epoch, topics=topics, **more)


def committed(answer: Any) -> list[tuple[str, int, int]]:
    """Return topic, partition and error of each answer."""
    return [(topic.name, each.partition_index, each.error_code) for topic in answer.topics for each in topic.partitions]


def commit(broker: VirtualBroker, wanted: dict[str | bytes, dict[int, int]], group: str = "g") -> None:
    """Commit offsets as somebody who is no member."""
    answer = broker.ask(commit_request(wanted, group), 8)
    assert {code for *_, code in committed(answer)} <= {Error.NONE}


@contextmanager
def coordinator(settings: dict[str, object] | None = None, *, as_version: str | None = None) -> Iterator[VirtualBroker]:
    """Start a broker that has been asked for a coordinator: then there is a topic that groups are kept in."""
    with virtual_broker({"offsets.topic.num.partitions": 2, **(settings or {})}, as_version=as_version) as broker:
        assert broker.ask(FindCoordinatorRequest(key="g"), 0).error_code == Error.NONE
        yield broker

"""Administration of groups by a client that is no member: list, describe, delete, and offsets to be read and changed.

Methods that take many items return a dict of results, and raise SomeFailed if any of the items failed for good. Old
brokers are asked for one group at a time where they know no better.
Not here: being a member (membership.py); offsets of transactions; who is asked (coordinators.py).
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import NamedTuple

from minibroker.client.connection import error_of
from minibroker.client.coordinators import Coordinators, all_or_raise
from minibroker.errors import Error, KafkaError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping
    from typing import Any, TypeVar

    from minibroker.client.cluster import Cluster, TopicPartition

    R = TypeVar("R")

CLASSIC, CONSUMER = "Classic", "Consumer"  # types of groups, as ListGroups names them
CONSUMER_PROTOCOL = "consumer"  # the protocol type of consumers, of either type of group; Kafka Connect has another
NO_EPOCH = -1
# The last version with names of topics; what comes after it has ids instead, and we ask for names.
LAST_WITH_NAMES = 9
STATES, TYPES = 4, 5  # ListGroups
ALL_TOPICS, STABLE, MANY_GROUPS = 2, 7, 8  # OffsetFetch
ASSIGNMENT_VERSION_MAX = 3


class ListedGroup(NamedTuple):
    """A group as the list of its coordinator has it; brokers below 2.6 tell no state, below 3.8 no type."""

    id: str
    protocol_type: str  # "": it only stores offsets
    state: str
    type: str


class GroupMember(NamedTuple):
    """A member as its coordinator sees it. A group of the classic protocol has neither epochs nor targets."""

    id: str
    instance_id: str | None  # None: not a static member
    client_id: str
    host: str
    assignment: list[TopicPartition]
    target: list[TopicPartition] | None = None  # what it shall have, once others have let go of it
    epoch: int = NO_EPOCH  # of the assignment that it has reached
    speaks_consumer: bool | None = None  # False: a classic member of a consumer group; None: the broker does not tell


class GroupDescription(NamedTuple):
    """A group as its coordinator sees it."""

    id: str
    type: str
    protocol_type: str
    state: str
    assignor: str  # "" while there is none
    coordinator_id: int
    members: list[GroupMember]
    epoch: int = NO_EPOCH  # of a consumer group; rises with what members want
    target_epoch: int = NO_EPOCH  # for which the targets were computed


class CommittedOffset(NamedTuple):
    """Where a group goes on reading."""

    offset: int
    metadata: str = ""
    leader_epoch: int = NO_EPOCH  # of the last record that was read; -1: not known


class Groups:
    """Uses the connections of the cluster; nothing to close."""

    def __init__(self, cluster: Cluster):
        self._cluster = cluster
        self._coordinators = Coordinators(cluster)

    # What there is

    async def list_groups(self, *, states: Iterable[str] = (), types: Iterable[str] = ()) -> list[ListedGroup]:
        """Return the groups of all brokers, sorted; only those in some states or of some types, if any are named."""
        from minibroker.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse

        request = ListGroupsRequest(states_filter=list(states), types_filter=list(types))
        needed = TYPES if request.types_filter else STATES if request.states_filter else 0

        async def ask(node_id: int) -> list[ListedGroup]:
            connection = await self._cluster.connection(node_id)
            version = connection.version_of(request)
            if version < needed:
                reason = f"groups by state or type need ListGroups v{needed}, {connection.address} has v{version}"
                raise KafkaError(Error.UNSUPPORTED_VERSION, reason)
            answer: ListGroupsResponse = await self._cluster.call(request, node_id)
            if answer.error_code:
                raise error_of(answer.error_code, f"groups of broker {node_id}")
            return [  # Kafka's brokers write types in lower case, its tools do not
                ListedGroup(row.group_id, row.protocol_type, row.group_state, row.group_type.capitalize())
                for row in answer.groups
            ]

        await self._cluster.metadata([])
        lists = await asyncio.gather(
            *(self._cluster.retrying(partial(ask, node_id)) for node_id in self._cluster.nodes)
        )
        return sorted({group.id: group for listed in lists for group in listed}.values())

    async def describe_groups(self, groups: Iterable[str]) -> dict[str, GroupDescription]:
        """Return state and members, of groups of either protocol."""

        async def ask(node_id: int, ids: list[str]) -> dict[str, GroupDescription | KafkaError]:
            found = await self._describe_consumer(node_id, ids)
            others = [group for group in ids if group not in found]
            return found | (await self._describe_classic(node_id, others) if others else {})

        return all_or_raise(*await self._coordinators.ask(groups, ask))

    async def _describe_consumer(self, node_id: int, ids: list[str]) -> dict[str, GroupDescription | KafkaError]:
        """Describe those that are groups of the consumer protocol (KIP-848), where the broker knows it."""
        from minibroker.protocol.messages.consumer_group_describe import (
            ConsumerGroupDescribeRequest,
            ConsumerGroupDescribeResponse,
        )

        if not (await self._cluster.connection(node_id)).has(ConsumerGroupDescribeRequest):
            return {}
        request = ConsumerGroupDescribeRequest(group_ids=ids, include_authorized_operations=False)
        answer: ConsumerGroupDescribeResponse = await self._cluster.call(request, node_id)
        found: dict[str, GroupDescription | KafkaError] = {}
        for row in answer.groups:
            if row.error_code in (Error.GROUP_ID_NOT_FOUND, Error.UNSUPPORTED_VERSION):
                continue
            if row.error_code:
                found[row.group_id] = error_of(row.error_code, row.error_message or "")
                continue
            members = [
                GroupMember(
                    member.member_id,
                    member.instance_id,
                    member.client_id,
                    member.client_host,
                    _pairs(member.assignment.topic_partitions, "topic_name"),
                    _pairs(member.target_assignment.topic_partitions, "topic_name"),
                    member.member_epoch,
                    None if member.member_type < 0 else bool(member.member_type),
                )
                for member in row.members
            ]
            found[row.group_id] = GroupDescription(
                row.group_id,
                CONSUMER,
                CONSUMER_PROTOCOL,
                row.group_state,
                row.assignor_name,
                node_id,
                members,
                row.group_epoch,
                row.assignment_epoch,
            )
        return found

    async def _describe_classic(self, node_id: int, ids: list[str]) -> dict[str, GroupDescription | KafkaError]:
        from minibroker.protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse

        answer: DescribeGroupsResponse = await self._cluster.call(DescribeGroupsRequest(groups=ids), node_id)
        found: dict[str, GroupDescription | KafkaError] = {}
        for row in answer.groups:
            if row.error_code:
                found[row.group_id] = error_of(row.error_code, row.error_message or "")
            elif row.group_state == "Dead":  # how brokers below 4.0 say that there is none
                found[row.group_id] = KafkaError(Error.GROUP_ID_NOT_FOUND, f"Group {row.group_id} not found.")
            else:
                are_consumers = row.protocol_type == CONSUMER_PROTOCOL
                members = [
                    GroupMember(
                        member.member_id,
                        member.group_instance_id,
                        member.client_id,
                        member.client_host,
                        assigned_partitions(member.member_assignment) if are_consumers else [],
                    )
                    for member in row.members
                ]
                found[row.group_id] = GroupDescription(
                    row.group_id, CLASSIC, row.protocol_type, row.group_state, row.protocol_data, node_id, members
                )
        return found

    async def find_coordinators(self, groups: Iterable[str]) -> dict[str, int]:
        """Return which broker looks after each group."""

        async def ask(node_id: int, ids: list[str]) -> dict[str, int | KafkaError]:
            return dict.fromkeys(ids, node_id)

        return all_or_raise(*await self._coordinators.ask(groups, ask))

    # Offsets

    async def fetch_offsets(
        self, groups: Iterable[str], partitions: Iterable[TopicPartition] | None = None, *, stable: bool = False
    ) -> dict[str, dict[TopicPartition, CommittedOffset]]:
        """Return what the groups have committed, for all partitions if none are named, sorted; what is not is left out.

        stable: wait for transactions that are about to replace offsets (Kafka 2.5 and later).
        """
        wanted = None if partitions is None else list(partitions)

        async def ask(node_id: int, ids: list[str]) -> dict[str, dict[TopicPartition, CommittedOffset] | KafkaError]:
            return await self._fetch_offsets(node_id, ids, wanted, stable)

        return all_or_raise(*await self._coordinators.ask(groups, ask))

    async def _fetch_offsets(
        self, node_id: int, ids: list[str], wanted: list[TopicPartition] | None, stable: bool
    ) -> dict[str, dict[TopicPartition, CommittedOffset] | KafkaError]:
        from minibroker.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse

        connection = await self._cluster.connection(node_id)
        version = min(connection.version_of(OffsetFetchRequest), LAST_WITH_NAMES)
        if stable and version < STABLE:
            reason = f"stable offsets need OffsetFetch v{STABLE}, {connection.address} has v{version}"
            raise KafkaError(Error.UNSUPPORTED_VERSION, reason)
        if wanted is None and version < ALL_TOPICS:
            topics = await self._cluster.ask_metadata()
            wanted = [(name, partition) for name, topic in topics.items() for partition in topic.partitions]
        Group = OffsetFetchRequest.OffsetFetchRequestGroup
        if version >= MANY_GROUPS:
            rows = None if wanted is None else _rows(wanted, Group.OffsetFetchRequestTopics, "partition_indexes")
            request = OffsetFetchRequest(
                groups=[Group(group_id=group, topics=rows) for group in ids], require_stable=stable
            )
            answer: OffsetFetchResponse = await self._cluster.call(request, node_id, version=version)
            return {row.group_id: _committed(row.error_code, row.topics) for row in answer.groups}
        found = {}
        for group in ids:
            rows = (
                None
                if wanted is None
                else _rows(wanted, OffsetFetchRequest.OffsetFetchRequestTopic, "partition_indexes")
            )
            request = OffsetFetchRequest(group_id=group, topics=rows, require_stable=stable)
            answer = await self._cluster.call(request, node_id, version=version)
            found[group] = _committed(answer.error_code, answer.topics)
        return found

    async def alter_offsets(
        self,
        group: str,
        offsets: Mapping[TopicPartition, int | CommittedOffset],
        member: str = "",
        generation: int = NO_EPOCH,
    ) -> None:
        """Commit for a group that has no members, and comes into being if it is not there; or as one of its members."""
        from minibroker.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse

        Topic = OffsetCommitRequest.OffsetCommitRequestTopic
        topics: dict[str, OffsetCommitRequest.OffsetCommitRequestTopic] = {}
        for (topic, partition), value in offsets.items():
            committed = CommittedOffset(value) if isinstance(value, int) else value
            topics.setdefault(topic, Topic(name=topic, partitions=[])).partitions.append(
                Topic.OffsetCommitRequestPartition(
                    partition_index=partition,
                    committed_offset=committed.offset,
                    committed_leader_epoch=committed.leader_epoch,
                    committed_metadata=committed.metadata,
                )
            )
        request = OffsetCommitRequest(
            group_id=group,
            member_id=member,
            generation_id_or_member_epoch=generation,
            topics=list(topics.values()),
        )

        async def ask(node_id: int, ids: list[str]) -> dict[str, dict[TopicPartition, int] | KafkaError]:
            connection = await self._cluster.connection(node_id)
            version = min(connection.version_of(OffsetCommitRequest), LAST_WITH_NAMES)
            answer: OffsetCommitResponse = await self._cluster.call(request, node_id, version=version)
            return {group: _codes(answer.topics)}

        await self._each_partition(group, ask)

    async def delete_offsets(self, group: str, partitions: Iterable[TopicPartition]) -> None:
        """Forget offsets of topics that no member reads (Kafka 2.4 and later)."""
        from minibroker.protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse

        Topic = OffsetDeleteRequest.OffsetDeleteRequestTopic
        topics: dict[str, OffsetDeleteRequest.OffsetDeleteRequestTopic] = {}
        for topic, partition in partitions:
            row = topics.setdefault(topic, Topic(name=topic, partitions=[]))
            row.partitions.append(Topic.OffsetDeleteRequestPartition(partition_index=partition))
        request = OffsetDeleteRequest(group_id=group, topics=list(topics.values()))

        async def ask(node_id: int, ids: list[str]) -> dict[str, dict[TopicPartition, int] | KafkaError]:
            answer: OffsetDeleteResponse = await self._cluster.call(request, node_id)
            return {group: error_of(answer.error_code, group) if answer.error_code else _codes(answer.topics)}

        await self._each_partition(group, ask)

    async def _each_partition(
        self, group: str, ask: Callable[[int, list[str]], Awaitable[dict[str, dict[TopicPartition, int] | KafkaError]]]
    ) -> None:
        results, errors = await self._coordinators.ask([group], ask)
        if errors:
            raise errors[group]
        codes = results[group]
        good = {key: None for key, code in codes.items() if not code}
        all_or_raise(good, {key: error_of(code, "") for key, code in codes.items() if code})

    # Groups as a whole

    async def delete_groups(self, groups: Iterable[str]) -> None:
        """Delete groups that have no members, with all that they have committed."""
        from minibroker.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse

        async def ask(node_id: int, ids: list[str]) -> dict[str, bool | KafkaError]:
            answer: DeleteGroupsResponse = await self._cluster.call(DeleteGroupsRequest(groups_names=ids), node_id)
            return {
                row.group_id: error_of(row.error_code, row.error_message or "") if row.error_code else True
                for row in answer.results
            }

        all_or_raise(*await self._coordinators.ask(groups, ask))


def _rows(partitions: Iterable[TopicPartition], Row: Any, field: str) -> list[Any]:
    """Return partitions as most requests name them: a row for each topic."""
    return [Row(name=topic, **{field: numbers}) for topic, numbers in by_topic(partitions).items()]


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for topic, partition in partitions:
        found.setdefault(topic, []).append(partition)
    return found


def _pairs(rows: Iterable[Any], name: str) -> list[TopicPartition]:
    return sorted((getattr(row, name), partition) for row in rows for partition in row.partitions)


def assigned_partitions(data: bytes) -> list[TopicPartition]:
    """Return the partitions that a leader has given to a member; newer versions have more behind what we know."""
    from minibroker.protocol import message

    if not data:  # the group is not stable
        return []
    version = min(int.from_bytes(data[:2], "big"), ASSIGNMENT_VERSION_MAX)
    assignment: Any = message("ConsumerProtocolAssignment").decode_from(data, 2, version)[0]
    return _pairs(assignment.assigned_partitions, "topic")


def _committed(code: int, topics: Iterable[Any]) -> dict[TopicPartition, CommittedOffset] | KafkaError:
    if code:
        return error_of(code, "")
    found: dict[TopicPartition, CommittedOffset] = {}
    for topic in topics:
        for row in topic.partitions:
            if row.error_code and row.error_code != Error.UNKNOWN_TOPIC_OR_PARTITION:  # v0 says so: nothing committed
                return error_of(row.error_code, f"{topic.name}-{row.partition_index}")
            if row.committed_offset >= 0:
                found[topic.name, row.partition_index] = CommittedOffset(
                    row.committed_offset, row.metadata or "", row.committed_leader_epoch
                )
    return dict(sorted(found.items()))


def _codes(topics: Iterable[Any]) -> dict[TopicPartition, int] | KafkaError:
    """Return the codes of partitions; or what the coordinator says of the group as a whole, by way of one of them."""
    codes = {(topic.name, row.partition_index): row.error_code for topic in topics for row in topic.partitions}
    whole = (Error.COORDINATOR_LOAD_IN_PROGRESS, Error.COORDINATOR_NOT_AVAILABLE, Error.NOT_COORDINATOR)
    for code in codes.values():
        if code in whole:
            return error_of(code, "")
    return codes

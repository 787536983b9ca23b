"""Who leads and where replicas are: ElectLeaders, AlterPartitionReassignments, ListPartitionReassignments.

What names many partitions is decided a share at a time: each of them succeeds or fails for itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from typing import Any

from minibroker.broker.dispatch import Context
from minibroker.controller import elections, reassignment
from minibroker.errors import Error
from minibroker.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)
from minibroker.protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
from minibroker.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from minibroker.turns import Work

SHARE_PARTITIONS = 100
PARTITION_US = 20
Elected = ElectLeadersRequest.TopicPartitions
Listed = ListPartitionReassignmentsRequest.ListPartitionReassignmentsTopics


def elect_leaders(request: ElectLeadersRequest, context: Context) -> Work[ElectLeadersResponse]:
    """Elect preferred leaders, or any where there is none."""
    controller = context.node.controller
    if request.election_type not in elections.TYPES:
        return elections.elect_leaders(controller, request)[1]
    names_all = request.topic_partitions is None
    topics = request.topic_partitions
    if topics is None:
        image = controller.image
        topics = [
            Elected(topic=name, partitions=list(range(len(each.partitions)))) for name, each in image.topics.items()
        ]
    made: ElectLeadersResponse | None = None
    for share in _shares(topics, "partitions"):
        records, response = elections.elect_leaders(controller, _with(request, "topic_partitions", share))
        if records:
            context.node.change(records)
        if names_all:  # then only those are named that had to be looked at
            for result in response.replica_election_results:
                result.partition_result = [
                    each for each in result.partition_result if each.error_code != Error.ELECTION_NOT_NEEDED
                ]
        if made is None:
            made = response
        else:
            _merge(made.replica_election_results, response.replica_election_results, "topic", "partition_result")
        yield PARTITION_US * sum(len(topic.partitions) for topic in share)
    return made or elections.elect_leaders(controller, request)[1]


def alter_partition_reassignments(
    request: AlterPartitionReassignmentsRequest, context: Context
) -> Work[AlterPartitionReassignmentsResponse]:
    """Begin to move replicas, or stop a move."""
    controller = context.node.controller
    made: AlterPartitionReassignmentsResponse | None = None
    for share in _shares(request.topics, "partitions"):
        records, response = reassignment.alter_reassignments(controller, _with(request, "topics", share))
        if records:
            context.node.change(records)
        if made is None:
            made = response
        else:
            _merge(made.responses, response.responses, "name", "partitions")
        yield PARTITION_US * sum(len(topic.partitions) for topic in share)
    return made or reassignment.alter_reassignments(controller, request)[1]


def list_partition_reassignments(
    request: ListPartitionReassignmentsRequest, context: Context
) -> Work[ListPartitionReassignmentsResponse]:
    """List the moves that go on."""
    controller = context.node.controller
    topics = request.topics
    if topics is None:
        image = controller.image
        topics = [
            Listed(name=name, partition_indexes=list(range(len(each.partitions))))
            for name, each in image.topics.items()
        ]
    made: ListPartitionReassignmentsResponse | None = None
    for share in _shares(topics, "partition_indexes"):
        response = reassignment.list_reassignments(controller, _with(request, "topics", share))
        if made is None:
            made = response
        else:
            _merge(made.topics, response.topics, "name", "partitions")
        yield sum(len(topic.partition_indexes) for topic in share)
    return made or reassignment.list_reassignments(controller, request)


def _with(request: Any, field: str, value: Any) -> Any:
    changed = copy(request)
    setattr(changed, field, value)
    return changed


def _shares(topics: list[Any], field: str) -> Iterator[list[Any]]:
    """Cut a list of topics so that each piece names about so many partitions, and at least one topic."""
    share: list[Any] = []
    count = 0
    for topic in topics:
        partitions = getattr(topic, field)
        for start in range(0, max(len(partitions), 1), SHARE_PARTITIONS):
            piece = topic
            if len(partitions) > SHARE_PARTITIONS:
                piece = _with(topic, field, partitions[start : start + SHARE_PARTITIONS])
            share.append(piece)
            count += len(getattr(piece, field)) + 1
            if count >= SHARE_PARTITIONS:
                yield share
                share, count = [], 0
    if share:
        yield share


def _merge(made: list[Any], more: list[Any], name: str, field: str) -> None:
    """Add the answers for more topics; a topic that has been cut gets one."""
    if made and more and getattr(made[-1], name) == getattr(more[0], name):
        setattr(made[-1], field, getattr(made[-1], field) + getattr(more[0], field))
        more = more[1:]
    made += more

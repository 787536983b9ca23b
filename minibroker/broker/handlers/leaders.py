"""Who leads and where replicas are: ElectLeaders, AlterPartitionReassignments, ListPartitionReassignments."""

from __future__ import annotations

from minibroker.replication import elections, reassignment

TYPE_CHECKING = False
if TYPE_CHECKING:
    from minibroker.broker.handlers.context import Context
    from minibroker.protocol.messages.alter_partition_reassignments import (
        AlterPartitionReassignmentsRequest,
        AlterPartitionReassignmentsResponse,
    )
    from minibroker.protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
    from minibroker.protocol.messages.list_partition_reassignments import (
        ListPartitionReassignmentsRequest,
        ListPartitionReassignmentsResponse,
    )


def elect_leaders(request: ElectLeadersRequest, context: Context) -> ElectLeadersResponse:
    """Elect preferred leaders, or any where there is none."""
    records, response = elections.elect_leaders(context.node.controller, request)
    if records:
        context.node.change(records)
    return response


def alter_partition_reassignments(
    request: AlterPartitionReassignmentsRequest, context: Context
) -> AlterPartitionReassignmentsResponse:
    """Begin to move replicas, or stop a move."""
    records, response = reassignment.alter_reassignments(context.node.controller, request)
    if records:
        context.node.change(records)
    return response


def list_partition_reassignments(
    request: ListPartitionReassignmentsRequest, context: Context
) -> ListPartitionReassignmentsResponse:
    """List the moves that go on."""
    return reassignment.list_reassignments(context.node.controller, request)

"""Share groups and streams groups as Kafka answers while the features share.version and streams.version are 0.

They are announced, as every Kafka 4 announces them: clients tell releases apart by the list of APIs. What a group is
asked for is refused with UNSUPPORTED_VERSION, and nobody coordinates the state of share groups.
"""

from __future__ import annotations

from minibroker.errors import Error
from minibroker.protocol.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsResponse,
)
from minibroker.protocol.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
)
from minibroker.protocol.messages.delete_share_group_state import (
    DeleteShareGroupStateRequest,
    DeleteShareGroupStateResponse,
)
from minibroker.protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsResponse,
)
from minibroker.protocol.messages.initialize_share_group_state import (
    InitializeShareGroupStateRequest,
    InitializeShareGroupStateResponse,
)
from minibroker.protocol.messages.read_share_group_state import (
    ReadShareGroupStateRequest,
    ReadShareGroupStateResponse,
)
from minibroker.protocol.messages.read_share_group_state_summary import (
    ReadShareGroupStateSummaryRequest,
    ReadShareGroupStateSummaryResponse,
)
from minibroker.protocol.messages.share_acknowledge import ShareAcknowledgeRequest, ShareAcknowledgeResponse
from minibroker.protocol.messages.share_fetch import ShareFetchRequest, ShareFetchResponse
from minibroker.protocol.messages.share_group_describe import ShareGroupDescribeRequest, ShareGroupDescribeResponse
from minibroker.protocol.messages.share_group_heartbeat import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)
from minibroker.protocol.messages.streams_group_describe import (
    StreamsGroupDescribeRequest,
    StreamsGroupDescribeResponse,
)
from minibroker.protocol.messages.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
)
from minibroker.protocol.messages.streams_group_topology_description_update import (
    StreamsGroupTopologyDescriptionUpdateRequest,
    StreamsGroupTopologyDescriptionUpdateResponse,
)
from minibroker.protocol.messages.write_share_group_state import (
    WriteShareGroupStateRequest,
    WriteShareGroupStateResponse,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from minibroker.broker.dispatch import Context

OFF = Error.UNSUPPORTED_VERSION
WORDS = "The version of API is not supported."


# Members


def share_group_heartbeat(request: ShareGroupHeartbeatRequest, context: Context) -> ShareGroupHeartbeatResponse:
    return ShareGroupHeartbeatResponse(throttle_time_ms=0, error_code=OFF, member_epoch=0, heartbeat_interval_ms=0)


def share_fetch(request: ShareFetchRequest, context: Context) -> ShareFetchResponse:
    return ShareFetchResponse(throttle_time_ms=0, error_code=OFF, responses=[], node_endpoints=[])


def share_acknowledge(request: ShareAcknowledgeRequest, context: Context) -> ShareAcknowledgeResponse:
    return ShareAcknowledgeResponse(throttle_time_ms=0, error_code=OFF, responses=[], node_endpoints=[])


def streams_group_heartbeat(request: StreamsGroupHeartbeatRequest, context: Context) -> StreamsGroupHeartbeatResponse:
    return StreamsGroupHeartbeatResponse(
        throttle_time_ms=0,
        error_code=OFF,
        member_id="",
        member_epoch=0,
        heartbeat_interval_ms=0,
        task_offset_interval_ms=0,
        status=[],
        endpoint_information_epoch=0,
    )


def update_topology_description(
    request: StreamsGroupTopologyDescriptionUpdateRequest, context: Context
) -> StreamsGroupTopologyDescriptionUpdateResponse:
    return StreamsGroupTopologyDescriptionUpdateResponse(throttle_time_ms=0, error_code=OFF)


# Administrators


def share_group_describe(request: ShareGroupDescribeRequest, context: Context) -> ShareGroupDescribeResponse:
    Group = ShareGroupDescribeResponse.DescribedGroup
    groups = [
        Group(
            error_code=OFF,
            group_id=group_id,
            group_state="",
            group_epoch=0,
            assignment_epoch=0,
            assignor_name="",
            members=[],
        )
        for group_id in request.group_ids
    ]
    return ShareGroupDescribeResponse(throttle_time_ms=0, groups=groups)


def streams_group_describe(request: StreamsGroupDescribeRequest, context: Context) -> StreamsGroupDescribeResponse:
    Group = StreamsGroupDescribeResponse.DescribedGroup
    groups = [
        Group(error_code=OFF, group_id=group_id, group_state="", group_epoch=0, assignment_epoch=0, members=[])
        for group_id in request.group_ids
    ]
    return StreamsGroupDescribeResponse(throttle_time_ms=0, groups=groups)


def describe_share_group_offsets(
    request: DescribeShareGroupOffsetsRequest, context: Context
) -> DescribeShareGroupOffsetsResponse:
    Group = DescribeShareGroupOffsetsResponse.DescribeShareGroupOffsetsResponseGroup
    groups = [Group(group_id=group.group_id, topics=[], error_code=OFF) for group in request.groups]
    return DescribeShareGroupOffsetsResponse(throttle_time_ms=0, groups=groups)


def alter_share_group_offsets(
    request: AlterShareGroupOffsetsRequest, context: Context
) -> AlterShareGroupOffsetsResponse:
    return AlterShareGroupOffsetsResponse(throttle_time_ms=0, error_code=OFF, error_message=WORDS, responses=[])


def delete_share_group_offsets(
    request: DeleteShareGroupOffsetsRequest, context: Context
) -> DeleteShareGroupOffsetsResponse:
    return DeleteShareGroupOffsetsResponse(throttle_time_ms=0, error_code=OFF, error_message=WORDS, responses=[])


# The coordinator of share groups' state: brokers ask it


def initialize_state(request: InitializeShareGroupStateRequest, context: Context) -> InitializeShareGroupStateResponse:
    Result = InitializeShareGroupStateResponse.InitializeStateResult
    return InitializeShareGroupStateResponse(results=_nobody(request.topics, Result, "initialize share group state"))


def read_state(request: ReadShareGroupStateRequest, context: Context) -> ReadShareGroupStateResponse:
    Result = ReadShareGroupStateResponse.ReadStateResult
    more = {"state_epoch": 0, "start_offset": 0, "state_batches": []}
    return ReadShareGroupStateResponse(results=_nobody(request.topics, Result, "read share group state", **more))


def write_state(request: WriteShareGroupStateRequest, context: Context) -> WriteShareGroupStateResponse:
    Result = WriteShareGroupStateResponse.WriteStateResult
    return WriteShareGroupStateResponse(results=_nobody(request.topics, Result, "write share group state"))


def delete_state(request: DeleteShareGroupStateRequest, context: Context) -> DeleteShareGroupStateResponse:
    Result = DeleteShareGroupStateResponse.DeleteStateResult
    return DeleteShareGroupStateResponse(results=_nobody(request.topics, Result, "delete share group state"))


def read_state_summary(
    request: ReadShareGroupStateSummaryRequest, context: Context
) -> ReadShareGroupStateSummaryResponse:
    Result = ReadShareGroupStateSummaryResponse.ReadStateSummaryResult
    more = {"state_epoch": 0, "leader_epoch": 0, "start_offset": 0}
    return ReadShareGroupStateSummaryResponse(
        results=_nobody(request.topics, Result, "read share group state summary", **more)
    )


def _nobody(topics: Any, Result: Any, doing: str, **more: Any) -> list[Any]:
    """Answer for each partition that nobody coordinates its state."""
    words = f"Unable to {doing}: This is not the correct coordinator."
    return [
        Result(
            topic_id=topic.topic_id,
            partitions=[
                Result.PartitionResult(
                    partition=each.partition, error_code=Error.NOT_COORDINATOR, error_message=words, **more
                )
                for each in topic.partitions
            ],
        )
        for topic in topics
    ]

"""Announces a new leader of the metadata quorum (KIP-595).

A controller that has won an election sends it to the other voters, again and again until each has answered or started
to fetch, so that they stop looking for a leader. v1: flexible, voters have a directory id (KIP-853).
"""

from __future__ import annotations

from minibroker.protocol.headers import Request, Response
from minibroker.schema.message import Struct
from minibroker.schema.types import EMPTY, NO_ID, Array, Int16, Int32, String, UInt16, Uuid, since


class BeginQuorumEpochRequest(Request, api=53, versions="0-1", flexible="1+"):
    """Tell a voter who leads the quorum from this epoch on."""

    # null: do not check; another cluster's id is answered with INCONSISTENT_CLUSTER_ID (104)
    cluster_id: String | None = None
    # id of the voter this is meant for; any other node refuses it; -1: not given
    voter_id: Int32 = since("1+", default=-1)
    topics: Array[TopicData]
    # where the new leader can be reached, one entry per listener
    leader_endpoints: Array[LeaderEndpoint] = since("1+", default=EMPTY)

    class TopicData(Struct):
        topic_name: String  # __cluster_metadata is the only one so far
        partitions: Array[PartitionData]

        class PartitionData(Struct):
            partition_index: Int32  # always 0
            # log directory of the voter this is meant for; tells it from a namesake with a new disk
            voter_directory_id: Uuid = since("1+", default=NO_ID)
            leader_id: Int32  # node id of the sender
            leader_epoch: Int32  # term in which it won; a voter that has seen a larger one answers 74

    class LeaderEndpoint(Struct):
        name: String  # listener name, such as CONTROLLER
        host: String
        port: UInt16


class BeginQuorumEpochResponse(Response, api=53, versions="0-1", flexible="1+"):
    """What the voter thinks of it: agreement, or the newer leader it knows."""

    error_code: Int16  # failure of the whole request, such as 104: other cluster; 0: look at the partition
    topics: Array[TopicData]
    # address of the leader named below, on the listener this request came in by
    node_endpoints: Array[NodeEndpoint] = since("1+", default=EMPTY, tag=0)

    class TopicData(Struct):
        topic_name: String
        partitions: Array[PartitionData]

        class PartitionData(Struct):
            partition_index: Int32
            error_code: Int16
            leader_id: Int32  # leader the voter knows; -1: none
            # largest epoch the voter knows; larger than the request's means that the sender has lost its office
            leader_epoch: Int32

    class NodeEndpoint(Struct):
        node_id: Int32
        host: String
        port: UInt16

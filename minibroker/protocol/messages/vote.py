"""Vote: a KRaft candidate asks the voters to elect it leader of the metadata log (KIP-595).

Sent by a controller whose fetches from the leader time out. A voter grants one vote per epoch, and only to a candidate
whose log is at least as complete as its own.
v1: directory ids and endpoints for voter sets that change (KIP-853), v2: pre-vote (KIP-996).
"""

from __future__ import annotations

from minibroker.protocol.headers import Request, Response
from minibroker.schema.message import Struct
from minibroker.schema.types import EMPTY, NO_ID, Array, Bool, Int16, Int32, Int64, String, UInt16, Uuid, since


class VoteRequest(Request, api=52, versions="0-2", flexible="0+"):
    """Ask one voter for its vote."""

    cluster_id: String | None = None  # null: not checked; another cluster's: INCONSISTENT_CLUSTER_ID (104)
    voter_id: Int32 = since("1+", default=-1)  # whom the candidate believes to ask; -1: not checked
    topics: Array[TopicData]

    class TopicData(Struct):
        topic_name: String  # always __cluster_metadata
        partitions: Array[PartitionData]

        class PartitionData(Struct):
            partition_index: Int32  # always 0
            replica_epoch: Int32  # epoch the candidate wants to lead; with pre_vote the epoch it is in now
            replica_id: Int32  # the candidate
            # tells the candidate from a former one with the same id on another disk; all zero: not given
            replica_directory_id: Uuid = since("1+", default=NO_ID)
            # log directory the candidate believes the voter to have; all zero: not checked
            voter_directory_id: Uuid = since("1+", default=NO_ID)
            last_offset_epoch: Int32  # epoch of the candidate's last record, compared before last_offset
            last_offset: Int64  # the candidate's log end offset, one past its last record
            # true: would you vote for me? Nobody's epoch changes, so a cut-off node does no harm when it returns
            pre_vote: Bool = since("2+", default=False)


class VoteResponse(Response, api=52, versions="0-2", flexible="0+"):
    """Grant or refuse, and name the leader that the voter knows."""

    error_code: Int16  # for the request as a whole
    topics: Array[TopicData]
    node_endpoints: Array[NodeEndpoint] = since("1+", default=EMPTY, tag=0)  # addresses of the leaders named above

    class TopicData(Struct):
        topic_name: String  # always __cluster_metadata
        partitions: Array[PartitionData]

        class PartitionData(Struct):
            partition_index: Int32  # always 0
            error_code: Int16  # FENCED_LEADER_EPOCH (74): the voter is in a newer epoch already
            leader_id: Int32  # leader the voter knows; -1: none
            leader_epoch: Int32  # latest epoch the voter knows; a candidate that is behind gives up
            vote_granted: Bool  # true: counted towards the majority the candidate needs

    class NodeEndpoint(Struct):
        node_id: Int32
        host: String
        port: UInt16

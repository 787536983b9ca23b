"""Renew what the quorum knows of a voter: its addresses and the Raft versions it supports (KIP-853).

A controller sends it to the quorum's leader when it starts with something changed.
"""

from __future__ import annotations

from minibroker.protocol.headers import Request, Response
from minibroker.schema.message import Struct
from minibroker.schema.types import DEFAULTS, Array, Int16, Int32, String, UInt16, Uuid, since


class UpdateRaftVoterRequest(Request, api=82, versions="0", flexible="0+"):
    """Describe one voter anew."""

    cluster_id: String | None  # must be the cluster's own id (else error 104); null: not checked
    current_leader_epoch: Int32  # term of the leader as the sender knows it; -1: not known
    voter_id: Int32  # node id of the sender
    voter_directory_id: Uuid  # id of the directory with its metadata log
    listeners: Array[Listener]  # where the other voters reach it
    k_raft_version_feature: KRaftVersionFeature  # versions of the feature kraft.version that the voter can do

    class Listener(Struct):
        name: String  # listener name, such as CONTROLLER
        host: String
        port: UInt16

    class KRaftVersionFeature(Struct):
        min_supported_version: Int16
        max_supported_version: Int16  # inclusive


class UpdateRaftVoterResponse(Response, api=82, versions="0", flexible="0+"):
    """Say whether the change was taken, or who leads instead."""

    throttle_time_ms: Int32  # how long the quota of the client makes it wait, 0: not at all
    error_code: Int16  # 6: not the leader, see current_leader; 127: no such voter
    current_leader: CurrentLeader = since("0+", default=DEFAULTS, tag=0)

    class CurrentLeader(Struct):
        leader_id: Int32 = -1  # -1: not known
        leader_epoch: Int32 = -1  # -1: not known
        host: String
        port: Int32

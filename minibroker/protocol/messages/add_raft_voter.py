"""Add a controller to the voters of the metadata quorum (KIP-853).

An operator's tool or a controller that joins by itself sends it to the quorum's leader; brokers pass it on.
v1: ack_when_committed.
"""

from __future__ import annotations

from minibroker.protocol.headers import Request, Response
from minibroker.schema.message import Struct
from minibroker.schema.types import Array, Bool, Int16, Int32, String, UInt16, Uuid, since


class AddRaftVoterRequest(Request, api=80, versions="0-1", flexible="0+"):
    """Ask the leader of the metadata quorum to count one more replica as a voter."""

    cluster_id: String | None  # must be the cluster's own id (else error 104); null: not checked
    timeout_ms: Int32  # how long the leader may try before it answers 7 (REQUEST_TIMED_OUT)
    voter_id: Int32  # node id of the new voter
    # id of the directory with its metadata log: a disk that was replaced counts as another voter
    voter_directory_id: Uuid
    listeners: Array[Listener]  # where the other voters reach it; must include the listener that the leader uses
    # false: answer once the leader has written the change, before the quorum has committed it
    ack_when_committed: Bool = since("1+", default=True)

    class Listener(Struct):
        name: String  # listener name, such as CONTROLLER
        host: String
        port: UInt16


class AddRaftVoterResponse(Response, api=80, versions="0-1", flexible="0+"):
    """Say whether the new voter was accepted."""

    throttle_time_ms: Int32  # how long the quota of the client makes it wait, 0: not at all
    error_code: Int16  # 0: it votes now; 6: ask the leader instead; 126: it is a voter already
    error_message: String | None  # for people to read; null: no error

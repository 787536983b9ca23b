"""What a voter of the metadata log must not forget in a crash: the file quorum-state in __cluster_metadata-0.

It is one line of JSON, not bytes: these fields in camelCase and data_version, the version of the schema. A node
replaces it before it answers a vote or follows a leader, so that it never votes twice in an epoch.
"""

from __future__ import annotations

from minibroker.schema.message import Message, Struct
from minibroker.schema.types import EMPTY, NO_ID, Array, Int32, Int64, String, Uuid, since


class QuorumStateData(Message, versions="0-1", flexible="0+"):
    """The epoch of this node, and whom it voted for or follows in it.

    v1: directory id of the candidate; what the log itself can tell has gone (KIP-853).
    """

    cluster_id: String = since("0", default="")  # empty: not used
    leader_id: Int32 = -1  # -1: not known
    leader_epoch: Int32 = -1  # never falls; -1: not known
    voted_id: Int32 = -1  # candidate that got the vote in this epoch; -1: none
    voted_directory_id: Uuid = since("1+", default=NO_ID)  # zero: none or not known
    applied_offset: Int64 = since("0", default=0)  # never used, 0
    # voters as configured; since v1 they stand in the log or the configuration
    current_voters: Array[Voter] | None = since("0", default=EMPTY)

    class Voter(Struct):
        voter_id: Int32

"""Control records: what the broker itself writes into logs, between the records of applications.

A control batch has bit 5 of its attributes set and holds one record, or a few in the metadata log. The
record's key tells the type. Consumers skip such records, but each takes an offset, which is why offsets of committed
data have gaps. Key and end-of-transaction value begin with an int16 version; the other values have it as a field.
"""

from __future__ import annotations

from minibroker.schema.message import Message, Struct
from minibroker.schema.types import NO_ID, Array, Int16, Int32, Int64, String, UInt16, Uuid, since


class ControlRecordTypeSchema(Message, versions="0"):
    """Key of a control record: what kind of event it marks."""

    # 0: transaction aborted, 1: committed, 2: leader change, 3: snapshot header, 4: snapshot footer, 5: kraft.version,
    # 6: voters. Readers skip a type they do not know.
    type: Int16


class EndTxnMarker(Message, versions="0"):
    """Value of the abort and commit markers that the transaction coordinator has written to each partition."""

    # leader epoch of the coordinator's log partition; a smaller one than seen before is refused
    coordinator_epoch: Int32


class LeaderChangeMessage(Message, versions="0-1", flexible="0+"):
    """First record of a new leader of the metadata log: its epoch starts here.

    v1: directory ids of the voters (KIP-853).
    """

    version: Int16  # of this record, repeated inside the value
    leader_id: Int32
    voters: Array[Voter]  # who may vote in this epoch, the leader included
    granting_voters: Array[Voter]  # who voted for the leader

    class Voter(Struct):
        voter_id: Int32
        voter_directory_id: Uuid = since("1+", default=NO_ID)  # zero: not known


class SnapshotHeaderRecord(Message, versions="0", flexible="0+"):
    """First record of a snapshot of the metadata log."""

    version: Int16  # of this record, repeated inside the value
    last_contained_log_timestamp: Int64  # append time of the newest record that the snapshot covers, ms since 1970


class SnapshotFooterRecord(Message, versions="0", flexible="0+"):
    """Last record of a snapshot: without it the file is incomplete."""

    version: Int16  # of this record, repeated inside the value


class KRaftVersionRecord(Message, versions="0", flexible="0+"):
    """The level of the feature kraft.version has been set."""

    version: Int16  # of this record, repeated inside the value
    k_raft_version: Int16  # 0: voters are configured on every node, 1: voters stand in the log and can change (KIP-853)


class VotersRecord(Message, versions="0", flexible="0+"):
    """The voters of the metadata log, all of them; in force as soon as it is appended (KIP-853)."""

    version: Int16  # of this record, repeated inside the value
    voters: Array[Voter]

    class Voter(Struct):
        voter_id: Int32
        voter_directory_id: Uuid  # id of its log directory: a voter with a new disk is another voter
        endpoints: Array[Endpoint]  # where to reach it, one per controller listener
        k_raft_version_feature: KRaftVersionFeature  # levels of kraft.version it supports

        class Endpoint(Struct):
            name: String  # listener name, not a host name
            host: String
            port: UInt16

        class KRaftVersionFeature(Struct):
            min_supported_version: Int16
            max_supported_version: Int16

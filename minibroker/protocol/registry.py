"""Every message by name and by number.

`message("ProduceRequest")` is the way in for tools; code that knows what it wants imports the class itself, so that
editors can complete its fields: `from minibroker.protocol.messages.produce import ProduceRequest`.

The tables are names only. A module is imported when the first of its messages is asked for.
"""

from __future__ import annotations

from importlib import import_module

from minibroker.errors import UnknownMessage

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from minibroker.protocol.headers import Request, Response
    from minibroker.schema.message import Message

# The number on the wire -> the API.
APIS = {
    0: "Produce",
    1: "Fetch",
    2: "ListOffsets",
    3: "Metadata",
    4: "LeaderAndIsr",
    5: "StopReplica",
    6: "UpdateMetadata",
    7: "ControlledShutdown",
    8: "OffsetCommit",
    9: "OffsetFetch",
    10: "FindCoordinator",
    11: "JoinGroup",
    12: "Heartbeat",
    13: "LeaveGroup",
    14: "SyncGroup",
    15: "DescribeGroups",
    16: "ListGroups",
    17: "SaslHandshake",
    18: "ApiVersions",
    19: "CreateTopics",
    20: "DeleteTopics",
    21: "DeleteRecords",
    22: "InitProducerId",
    23: "OffsetForLeaderEpoch",
    24: "AddPartitionsToTxn",
    25: "AddOffsetsToTxn",
    26: "EndTxn",
    27: "WriteTxnMarkers",
    28: "TxnOffsetCommit",
    29: "DescribeAcls",
    30: "CreateAcls",
    31: "DeleteAcls",
    32: "DescribeConfigs",
    33: "AlterConfigs",
    34: "AlterReplicaLogDirs",
    35: "DescribeLogDirs",
    36: "SaslAuthenticate",
    37: "CreatePartitions",
    38: "CreateDelegationToken",
    39: "RenewDelegationToken",
    40: "ExpireDelegationToken",
    41: "DescribeDelegationToken",
    42: "DeleteGroups",
    43: "ElectLeaders",
    44: "IncrementalAlterConfigs",
    45: "AlterPartitionReassignments",
    46: "ListPartitionReassignments",
    47: "OffsetDelete",
    48: "DescribeClientQuotas",
    49: "AlterClientQuotas",
    50: "DescribeUserScramCredentials",
    51: "AlterUserScramCredentials",
    52: "Vote",
    53: "BeginQuorumEpoch",
    54: "EndQuorumEpoch",
    55: "DescribeQuorum",
    56: "AlterPartition",
    57: "UpdateFeatures",
    58: "Envelope",
    59: "FetchSnapshot",
    60: "DescribeCluster",
    61: "DescribeProducers",
    62: "BrokerRegistration",
    63: "BrokerHeartbeat",
    64: "UnregisterBroker",
    65: "DescribeTransactions",
    66: "ListTransactions",
    67: "AllocateProducerIds",
    68: "ConsumerGroupHeartbeat",
    69: "ConsumerGroupDescribe",
    70: "ControllerRegistration",
    71: "GetTelemetrySubscriptions",
    72: "PushTelemetry",
    73: "AssignReplicasToDirs",
    74: "ListConfigResources",
    75: "DescribeTopicPartitions",
    76: "ShareGroupHeartbeat",
    77: "ShareGroupDescribe",
    78: "ShareFetch",
    79: "ShareAcknowledge",
    80: "AddRaftVoter",
    81: "RemoveRaftVoter",
    82: "UpdateRaftVoter",
    83: "InitializeShareGroupState",
    84: "ReadShareGroupState",
    85: "WriteShareGroupState",
    86: "DeleteShareGroupState",
    87: "ReadShareGroupStateSummary",
    88: "StreamsGroupHeartbeat",
    89: "StreamsGroupDescribe",
    90: "DescribeShareGroupOffsets",
    91: "AlterShareGroupOffsets",
    92: "DeleteShareGroupOffsets",
    93: "StreamsGroupTopologyDescriptionUpdate",
    94: "UnregisterController",
}

# Where the declarations of stored records are: module of minibroker/stored -> messages.
STORED = {
    "brokers": (
        "RegisterBrokerRecord",
        "UnregisterBrokerRecord",
        "BrokerRegistrationChangeRecord",
        "FenceBrokerRecord",
        "UnfenceBrokerRecord",
        "RegisterControllerRecord",
        "UnregisterControllerRecord",
    ),
    "cluster": (
        "FeatureLevelRecord",
        "ProducerIdsRecord",
        "NoOpRecord",
        "ZkMigrationStateRecord",
        "BeginTransactionRecord",
        "EndTransactionRecord",
        "AbortTransactionRecord",
    ),
    "consumer_groups": (
        "ConsumerGroupCurrentMemberAssignmentKey",
        "ConsumerGroupCurrentMemberAssignmentValue",
        "ConsumerGroupMemberMetadataKey",
        "ConsumerGroupMemberMetadataValue",
        "ConsumerGroupMetadataKey",
        "ConsumerGroupMetadataValue",
        "ConsumerGroupPartitionMetadataKey",
        "ConsumerGroupPartitionMetadataValue",
        "ConsumerGroupRegularExpressionKey",
        "ConsumerGroupRegularExpressionValue",
        "ConsumerGroupTargetAssignmentMemberKey",
        "ConsumerGroupTargetAssignmentMemberValue",
        "ConsumerGroupTargetAssignmentMetadataKey",
        "ConsumerGroupTargetAssignmentMetadataValue",
    ),
    "consumer_protocol": ("ConsumerProtocolSubscription", "ConsumerProtocolAssignment"),
    "control": (
        "ControlRecordTypeSchema",
        "EndTxnMarker",
        "LeaderChangeMessage",
        "SnapshotHeaderRecord",
        "SnapshotFooterRecord",
        "KRaftVersionRecord",
        "VotersRecord",
    ),
    "group_offsets": (
        "LegacyOffsetCommitKey",
        "LegacyOffsetCommitValue",
        "OffsetCommitKey",
        "OffsetCommitValue",
        "GroupMetadataKey",
        "GroupMetadataValue",
    ),
    "principal": ("DefaultPrincipalData",),
    "producers": ("ProducerSnapshot", "AbortedTxn"),
    "quorum": ("QuorumStateData",),
    "remote_log": (
        "RemoteLogSegmentMetadataRecord",
        "RemoteLogSegmentMetadataSnapshotRecord",
        "RemoteLogSegmentMetadataUpdateRecord",
        "RemotePartitionDeleteMetadataRecord",
    ),
    "security": (
        "AccessControlEntryRecord",
        "RemoveAccessControlEntryRecord",
        "AccessControlRecord",
        "UserScramCredentialRecord",
        "RemoveUserScramCredentialRecord",
        "DelegationTokenRecord",
        "RemoveDelegationTokenRecord",
        "ClientQuotaRecord",
        "QuotaRecord",
    ),
    "share_groups": (
        "ShareGroupCurrentMemberAssignmentKey",
        "ShareGroupCurrentMemberAssignmentValue",
        "ShareGroupMemberMetadataKey",
        "ShareGroupMemberMetadataValue",
        "ShareGroupMetadataKey",
        "ShareGroupMetadataValue",
        "ShareGroupPartitionMetadataKey",
        "ShareGroupPartitionMetadataValue",
        "ShareGroupStatePartitionMetadataKey",
        "ShareGroupStatePartitionMetadataValue",
        "ShareGroupTargetAssignmentMemberKey",
        "ShareGroupTargetAssignmentMemberValue",
        "ShareGroupTargetAssignmentMetadataKey",
        "ShareGroupTargetAssignmentMetadataValue",
    ),
    "share_state": ("ShareSnapshotKey", "ShareSnapshotValue", "ShareUpdateKey", "ShareUpdateValue"),
    "streams_groups": (
        "StreamsGroupCurrentMemberAssignmentKey",
        "StreamsGroupCurrentMemberAssignmentValue",
        "StreamsGroupMemberMetadataKey",
        "StreamsGroupMemberMetadataValue",
        "StreamsGroupMetadataKey",
        "StreamsGroupMetadataValue",
        "StreamsGroupTargetAssignmentMemberKey",
        "StreamsGroupTargetAssignmentMemberValue",
        "StreamsGroupTargetAssignmentMetadataKey",
        "StreamsGroupTargetAssignmentMetadataValue",
        "StreamsGroupTopologyKey",
        "StreamsGroupTopologyValue",
    ),
    "topics": (
        "TopicRecord",
        "PartitionRecord",
        "PartitionChangeRecord",
        "ClearElrRecord",
        "RemoveTopicRecord",
        "ConfigRecord",
    ),
    "transactions": ("TransactionLogKey", "TransactionLogValue"),
}


def message(name: str) -> type[Message]:
    """Return the class of a message by Kafka's name for it, as in "FetchResponse" or "OffsetCommitValue"."""
    if name in ("RequestHeader", "ResponseHeader"):
        module = "minibroker.protocol.headers"
    elif (api := name.removesuffix("Request").removesuffix("Response")) != name and api in APIS.values():
        module = f"minibroker.protocol.messages.{snake_case(api)}"
    else:
        homes = [module for module, names in STORED.items() if name in names]
        if not homes:
            raise UnknownMessage(_not_found(name), 0, name)
        module = f"minibroker.stored.{homes[0]}"
    found: type[Message] = getattr(import_module(module), name)
    return found


def names() -> list[str]:
    """Return the names of all messages: headers, requests and responses by number, then stored records."""
    wire = [f"{api}{side}" for api in APIS.values() for side in ("Request", "Response")]
    return ["RequestHeader", "ResponseHeader", *wire, *(name for names in STORED.values() for name in names)]


def request_class(api: int) -> type[Request]:
    """Return the request with this number on the wire."""
    return _by_number(api, "Request")  # type: ignore[no-any-return]


def response_class(api: int) -> type[Response]:
    """Return the response to the request with this number."""
    return _by_number(api, "Response")  # type: ignore[no-any-return]


def _by_number(api: int, side: str) -> Any:
    if api not in APIS:
        raise UnknownMessage(f"no API has the number {api}", 0, side)
    return message(APIS[api] + side)


def snake_case(name: str) -> str:
    """Return "list_offsets" for "ListOffsets"."""
    return "".join("_" + letter.lower() if letter.isupper() else letter for letter in name).lstrip("_")


def _not_found(name: str) -> str:
    from difflib import get_close_matches

    near = get_close_matches(name, names(), 1, 0.6)
    return f"no message is called {name!r}" + (f": did you mean {near[0]!r}?" if near else "")

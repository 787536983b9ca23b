"""Which versions of each API Kafka's releases served on their clients' listeners.

With `as_version` the broker announces and serves what that release did, as far as it can itself: for those who check
clients against old brokers. A row lists the release that changed a range and the range from then on; "-" ends the API.
Kafka: 4.x announces Produce from version 0 for the sake of librdkafka, and serves it from 3 on.
"""

from __future__ import annotations

from minibroker.errors import Error, KafkaError

# Each release had what the last one before it in this list had, if a row does not say otherwise.
RELEASES = [
    "0.8.0",
    "0.8.1",
    "0.8.2",
    "0.9.0",
    "0.10.0",
    "0.10.1",
    "0.10.2",
    "0.11.0",
    "1.0",
    "1.1",
    "2.0",
    "2.1",
    "2.2",
    "2.3",
    "2.4",
    "2.5",
    "2.6",
    "2.7",
    "2.8",
    "3.0",
    "3.1",
    "3.2",
    "3.3",
    "3.4",
    "3.5",
    "3.6",
    "3.7",
    "3.8",
    "3.9",
    "4.0",
    "4.1",
    "4.2",
    "4.3",
    "4.4",
]

RANGES = {
    0: (  # Produce
        "0.8.0 0-0, 0.9.0 0-1, 0.10.0 0-2, 0.11.0 0-3, 1.0 0-5, 2.0 0-6, 2.1 0-7, 2.4 0-8, 2.8 0-9, 3.7 0-10, "
        "3.8 0-11, 4.0 3-12, 4.1 3-13"
    ),
    1: (  # Fetch
        "0.8.0 0-0, 0.9.0 0-1, 0.10.0 0-2, 0.10.1 0-3, 0.11.0 0-5, 1.0 0-6, 1.1 0-7, 2.0 0-8, 2.1 0-10, "
        "2.3 0-11, 2.7 0-12, 3.1 0-13, 3.5 0-15, 3.7 0-16, 3.9 0-17, 4.0 4-17, 4.1 4-18"
    ),
    2: (  # ListOffsets
        "0.8.0 0-0, 0.10.1 0-1, 0.11.0 0-2, 2.0 0-3, 2.1 0-4, 2.2 0-5, 2.8 0-6, 3.0 0-7, 3.5 0-8, 3.9 0-9, "
        "4.0 1-10, 4.2 1-11"
    ),
    3: (  # Metadata
        "0.8.0 0-0, 0.10.0 0-1, 0.10.1 0-2, 0.11.0 0-4, 1.0 0-5, 2.0 0-6, 2.1 0-7, 2.3 0-8, 2.4 0-9, 2.8 0-11, "
        "3.1 0-12, 4.0 0-13"
    ),
    8: (  # OffsetCommit
        "0.8.1 0-0, 0.8.2 0-1, 0.9.0 0-2, 0.11.0 0-3, 2.0 0-4, 2.1 0-6, 2.3 0-7, 2.4 0-8, 3.6 0-9, 4.0 2-9, 4.2 2-10"
    ),
    9: (  # OffsetFetch
        "0.8.1 0-0, 0.8.2 0-1, 0.10.2 0-2, 0.11.0 0-3, 2.0 0-4, 2.1 0-5, 2.4 0-6, 2.5 0-7, 3.0 0-8, 3.7 0-9, "
        "4.0 1-9, 4.2 1-10"
    ),
    10: "0.8.2 0-0, 0.11.0 0-1, 2.0 0-2, 2.4 0-3, 3.0 0-4, 3.8 0-5, 3.9 0-6",  # FindCoordinator
    11: "0.9.0 0-0, 0.10.1 0-1, 0.11.0 0-2, 2.0 0-3, 2.2 0-4, 2.3 0-5, 2.4 0-6, 2.5 0-7, 3.2 0-9",  # JoinGroup
    12: "0.9.0 0-0, 0.11.0 0-1, 2.0 0-2, 2.3 0-3, 2.4 0-4",  # Heartbeat
    13: "0.9.0 0-0, 0.11.0 0-1, 2.0 0-2, 2.4 0-4, 3.2 0-5",  # LeaveGroup
    14: "0.9.0 0-0, 0.11.0 0-1, 2.0 0-2, 2.3 0-3, 2.4 0-4, 2.5 0-5",  # SyncGroup
    15: "0.9.0 0-0, 0.11.0 0-1, 2.0 0-2, 2.3 0-3, 2.4 0-5, 4.0 0-6",  # DescribeGroups
    16: "0.9.0 0-0, 0.11.0 0-1, 2.0 0-2, 2.4 0-3, 2.6 0-4, 3.8 0-5",  # ListGroups
    17: "0.10.0 0-0, 1.0 0-1",  # SaslHandshake
    18: "0.10.0 0-0, 0.11.0 0-1, 2.0 0-2, 2.4 0-3, 3.9 0-4, 4.4 0-5",  # ApiVersions
    19: "0.10.1 0-0, 0.10.2 0-1, 0.11.0 0-2, 2.0 0-3, 2.4 0-5, 2.7 0-6, 2.8 0-7, 4.0 2-7",  # CreateTopics
    20: "0.10.1 0-0, 0.11.0 0-1, 2.0 0-2, 2.1 0-3, 2.4 0-4, 2.7 0-5, 2.8 0-6, 4.0 1-6",  # DeleteTopics
    21: "0.11.0 0-0, 2.0 0-1, 2.6 0-2",  # DeleteRecords
    # InitProducerId. Version 6, of 4.1, is announced with unstable.api.versions.enable only, which nobody is to set.
    22: "0.11.0 0-0, 2.0 0-1, 2.4 0-2, 2.5 0-3, 2.7 0-4, 3.8 0-5",
    23: "0.11.0 0-0, 2.0 0-1, 2.1 0-2, 2.3 0-3, 2.8 0-4, 4.0 2-4",  # OffsetForLeaderEpoch
    24: "0.11.0 0-0, 2.0 0-1, 2.7 0-2, 2.8 0-3, 3.5 0-4, 3.8 0-5",  # AddPartitionsToTxn
    25: "0.11.0 0-0, 2.0 0-1, 2.7 0-2, 2.8 0-3, 3.8 0-4",  # AddOffsetsToTxn
    26: "0.11.0 0-0, 2.0 0-1, 2.7 0-2, 2.8 0-3, 3.8 0-4, 4.0 0-5",  # EndTxn
    27: "0.11.0 0-0, 2.8 0-1, 4.0 1-1, 4.2 1-2",  # WriteTxnMarkers
    28: "0.11.0 0-0, 2.0 0-1, 2.1 0-2, 2.5 0-3, 3.8 0-4, 4.0 0-5, 4.4 0-6",  # TxnOffsetCommit
    29: "0.11.0 0-0, 2.0 0-1, 2.5 0-2, 3.3 0-3, 4.0 1-3",  # DescribeAcls
    30: "0.11.0 0-0, 2.0 0-1, 2.5 0-2, 3.3 0-3, 4.0 1-3",  # CreateAcls
    31: "0.11.0 0-0, 2.0 0-1, 2.5 0-2, 3.3 0-3, 4.0 1-3",  # DeleteAcls
    32: "0.11.0 0-0, 1.1 0-1, 2.0 0-2, 2.6 0-3, 2.8 0-4, 4.0 1-4",  # DescribeConfigs
    33: "0.11.0 0-0, 2.0 0-1, 2.8 0-2",  # AlterConfigs
    34: "1.0 0-0, 2.0 0-1, 2.8 0-2, 4.0 1-2",  # AlterReplicaLogDirs
    35: "1.0 0-0, 2.0 0-1, 2.6 0-2, 3.2 0-3, 3.3 0-4, 4.0 1-4, 4.3 1-5",  # DescribeLogDirs
    36: "1.0 0-0, 2.2 0-1, 2.5 0-2",  # SaslAuthenticate
    37: "1.0 0-0, 2.0 0-1, 2.5 0-2, 2.7 0-3",  # CreatePartitions
    38: "1.1 0-0, 2.0 0-1, 2.4 0-2, 3.3 0-3, 4.0 1-3",  # CreateDelegationToken
    39: "1.1 0-0, 2.0 0-1, 2.5 0-2, 4.0 1-2",  # RenewDelegationToken
    40: "1.1 0-0, 2.0 0-1, 2.5 0-2, 4.0 1-2",  # ExpireDelegationToken
    41: "1.1 0-0, 2.0 0-1, 2.5 0-2, 3.3 0-3, 4.0 1-3",  # DescribeDelegationToken
    42: "1.1 0-0, 2.0 0-1, 2.4 0-2, 4.4 0-3",  # DeleteGroups
    43: "2.2 0-0, 2.4 0-2",  # ElectLeaders
    44: "2.3 0-0, 2.4 0-1",  # IncrementalAlterConfigs
    45: "2.4 0-0, 4.1 0-1",  # AlterPartitionReassignments
    46: "2.4 0-0",  # ListPartitionReassignments
    47: "2.4 0-0",  # OffsetDelete
    48: "2.6 0-0, 2.8 0-1",  # DescribeClientQuotas
    49: "2.6 0-0, 2.8 0-1",  # AlterClientQuotas
    50: "2.7 0-0",  # DescribeUserScramCredentials
    51: "2.7 0-0",  # AlterUserScramCredentials
    55: "3.3 0-1, 3.9 0-2",  # DescribeQuorum; before, a cluster had ZooKeeper and no quorum
    57: "2.7 0-0, 3.3 0-1, 4.0 0-2",  # UpdateFeatures
    60: "2.8 0-0, 3.7 0-1, 4.0 0-2",  # DescribeCluster
    61: "2.8 0-0",  # DescribeProducers
    64: "3.3 0-0",  # UnregisterBroker, which leaves a quorum
    65: "3.0 0-0",  # DescribeTransactions
    66: "3.0 0-0, 3.8 0-1, 4.1 0-2",  # ListTransactions
    68: "3.5 0-0, 4.0 0-1",  # ConsumerGroupHeartbeat
    69: "3.7 0-0, 4.0 0-1",  # ConsumerGroupDescribe
    71: "3.7 0-0",  # GetTelemetrySubscriptions
    72: "3.7 0-0",  # PushTelemetry
    74: "3.7 0-0, 4.1 0-1",  # ListConfigResources
    75: "3.8 0-0",  # DescribeTopicPartitions
    76: "4.1 1-1",  # ShareGroupHeartbeat
    77: "4.1 1-1",  # ShareGroupDescribe
    78: "4.1 1-1, 4.2 1-2",  # ShareFetch
    79: "4.1 1-1, 4.2 1-2",  # ShareAcknowledge
    80: "3.9 0-0, 4.2 0-1",  # AddRaftVoter
    81: "3.9 0-0",  # RemoveRaftVoter
    83: "4.1 0-0",  # InitializeShareGroupState
    84: "4.1 0-0",  # ReadShareGroupState
    85: "4.1 0-0, 4.2 0-1",  # WriteShareGroupState
    86: "4.1 0-0",  # DeleteShareGroupState
    87: "4.1 0-0, 4.2 0-1",  # ReadShareGroupStateSummary
    88: "4.2 0-0, 4.4 0-1",  # StreamsGroupHeartbeat
    89: "4.2 0-0, 4.4 0-1",  # StreamsGroupDescribe
    90: "4.1 0-0, 4.2 0-1",  # DescribeShareGroupOffsets
    91: "4.1 0-0",  # AlterShareGroupOffsets
    92: "4.1 0-0",  # DeleteShareGroupOffsets
    93: "4.4 0-0",  # StreamsGroupTopologyDescriptionUpdate
    94: "4.4 0-0",  # UnregisterController
}


def release_named(name: str) -> str:
    """Return the release line of a version such as 2.8.1, 4.x or 3.9."""
    wanted = name.removesuffix(".x")
    for release in reversed(RELEASES):
        if wanted == release or wanted.startswith(release + ".") or release.startswith(wanted + "."):
            return release
    raise KafkaError(Error.INVALID_REQUEST, f"{name!r} is no release of Kafka; known are {', '.join(RELEASES)}")


def ranges_of(release: str) -> dict[int, tuple[int, int]]:
    """Return first and last version of each API that a release served."""
    number = RELEASES.index(release)
    found: dict[int, tuple[int, int]] = {}
    for api, row in RANGES.items():
        for change in row.split(", "):
            since, versions = change.split(" ")
            if RELEASES.index(since) > number:
                break
            if versions == "-":
                found.pop(api, None)
            else:
                first, _, last = versions.partition("-")
                found[api] = int(first), int(last)
    return found

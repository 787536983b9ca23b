"""What may differ between two brokers that are asked the same, and why. Everything else must be equal.

A rule covers fields by pattern: "MessageName.path.of.field" without indexes; `*` matches anything. Kinds:

    IGNORED     not compared
    RENAMED     an id that each broker makes for itself: equal up to a consistent renaming
    TIME        both -1, or both a time that a clock has given
    TEXT        both null, both empty, or both a text; --texts compares the texts too
    UNORDERED   a list whose order says nothing: compared by the first field of `key` that a row has
    COMMON      as UNORDERED, and only what both have is compared; what only the second has is a difference
    RECORDS     batches compared by meaning: header fields and records
"""

from __future__ import annotations

import functools
from fnmatch import fnmatchcase
from typing import NamedTuple

IGNORED, RENAMED, TIME, TEXT = "IGNORED", "RENAMED", "TIME", "TEXT"
UNORDERED, COMMON, RECORDS = "UNORDERED", "COMMON", "RECORDS"


class Rule(NamedTuple):
    field: str
    kind: str
    reason: str
    key: str = ""


RULES = [
    # Addresses and ids
    Rule("*.host", IGNORED, "where a broker listens is its own affair"),
    Rule("*.port", IGNORED, "where a broker listens is its own affair"),
    Rule("*.cluster_id", RENAMED, "each cluster has its own"),
    Rule("*.topic_id", RENAMED, "random"),
    Rule("*.producer_id", RENAMED, "handed out in blocks; how many were used before is no part of the answer"),
    Rule("FetchResponse.session_id", RENAMED, "random"),
    Rule("*.member_id", RENAMED, "those that a broker makes have a random part"),
    Rule("JoinGroupResponse.leader", RENAMED, "a member id"),
    # Disks and time
    Rule("DescribeLogDirsResponse.results.log_dir", IGNORED, "a path of the machine"),
    Rule("DescribeLogDirsResponse.results.*_bytes", IGNORED, "the size of the disk and what is free on it"),
    Rule("ProduceResponse.*.log_append_time_ms", TIME, "the clock of the broker"),
    # Words
    Rule("*.error_message", TEXT, "words for people, which every release changes; clients go by the code"),
    Rule("*.batch_index_error_message", TEXT, "words for people, which every release changes"),
    Rule("*.documentation", TEXT, "words for people"),
    Rule("DescribeQuorumResponse.*.high_watermark", IGNORED, "an offset in the broker's own metadata log"),
    Rule("DescribeQuorumResponse.*.log_end_offset", IGNORED, "an offset in the broker's own metadata log"),
    Rule("DescribeQuorumResponse.*_timestamp", TIME, "the clock of the broker"),
    Rule("DescribeProducersResponse.*.last_timestamp", TIME, "of a marker: the clock of the broker"),
    Rule("DescribeTransactionsResponse.*.transaction_start_time_ms", TIME, "the clock of the broker"),
    Rule("DescribeQuorumResponse.nodes.listeners", COMMON, "our controller has no listener", "name"),
    # Order
    Rule("ProduceResponse.responses", UNORDERED, "the order of Kafka's hash maps", "name topic_id"),
    Rule("ProduceResponse.responses.partition_responses", UNORDERED, "the order of Kafka's hash maps", "index"),
    Rule("MetadataResponse.topics", UNORDERED, "the order of Kafka's hash maps", "name topic_id"),
    Rule("MetadataResponse.topics.partitions", UNORDERED, "the order of Kafka's hash maps", "partition_index"),
    Rule("CreateTopicsResponse.topics", UNORDERED, "the order of Kafka's hash maps", "name"),
    Rule("CreateTopicsResponse.topics.configs", UNORDERED, "the order of Kafka's hash maps", "name"),
    Rule("CreatePartitionsResponse.results", UNORDERED, "the order of Kafka's hash maps", "name"),
    Rule(
        "DeleteTopicsResponse.responses", UNORDERED, "shuffled on purpose in Kafka, as ids might tell", "name topic_id"
    ),
    Rule("DeleteRecordsResponse.topics", UNORDERED, "the order of Kafka's hash maps", "name"),
    Rule("DescribeConfigsResponse.results.configs", UNORDERED, "the order of Kafka's hash maps", "name"),
    Rule("DescribeLogDirsResponse.results.topics", UNORDERED, "the order of Kafka's hash maps", "name"),
    Rule("DescribeLogDirsResponse.results.topics.partitions", UNORDERED, "the order of hash maps", "partition_index"),
    Rule("AlterReplicaLogDirsResponse.results", UNORDERED, "the order of Kafka's hash maps", "topic_name"),
    Rule("AlterReplicaLogDirsResponse.results.partitions", UNORDERED, "the order of hash maps", "partition_index"),
    Rule("AddPartitionsToTxnResponse.*.results_by_partition", UNORDERED, "the order of hash maps", "partition_index"),
    Rule("AddPartitionsToTxnResponse.results_by_topic_v3_and_below", UNORDERED, "the order of hash maps", "name"),
    Rule("AddPartitionsToTxnResponse.*.topic_results", UNORDERED, "the order of hash maps", "name"),
    Rule("DescribeTransactionsResponse.*.topics", UNORDERED, "the order of hash maps", "topic"),
    Rule("DescribeTransactionsResponse.*.partitions", UNORDERED, "the order of hash maps"),
    Rule("ListTransactionsResponse.transaction_states", UNORDERED, "the order of hash maps", "transactional_id"),
    Rule(
        "AddPartitionsToTxnResponse.*_and_below.results_by_partition",
        UNORDERED,
        "the order of hash maps",
        "partition_index",
    ),
    Rule("ListConfigResourcesResponse.config_resources", UNORDERED, "the order of Kafka's hash maps", "resource_name"),
    Rule("AlterConfigsResponse.responses", UNORDERED, "the order of Kafka's hash maps", "resource_name"),
    Rule("IncrementalAlterConfigsResponse.responses", UNORDERED, "the order of hash maps", "resource_name"),
    Rule("ElectLeadersResponse.replica_election_results", UNORDERED, "the order of hash maps", "topic"),
    Rule("ElectLeadersResponse.*.partition_result", UNORDERED, "the order of hash maps", "partition_id"),
    Rule("OffsetForLeaderEpochResponse.topics", UNORDERED, "the order of hash maps", "topic"),
    Rule("ListOffsetsResponse.topics", UNORDERED, "the order of Kafka's hash maps", "name"),
    Rule("ListOffsetsResponse.topics.partitions", UNORDERED, "the order of hash maps", "partition_index"),
    Rule("WriteTxnMarkersResponse.*.topics", UNORDERED, "the order of hash maps", "name"),
    Rule("WriteTxnMarkersResponse.*.partitions", UNORDERED, "the order of hash maps", "partition_index"),
    Rule("WriteTxnMarkersResponse.markers", UNORDERED, "the order of hash maps", "producer_id"),
    Rule("DescribeProducersResponse.*.active_producers", UNORDERED, "the order of hash maps", "producer_id"),
    Rule("JoinGroupResponse.members", UNORDERED, "the order of Kafka's hash maps", "member_id"),
    Rule("DescribeGroupsResponse.groups.members", UNORDERED, "the order of Kafka's hash maps", "client_id"),
    Rule("ConsumerGroupDescribeResponse.groups", UNORDERED, "refused ones come first in Kafka", "group_id"),
    Rule("ConsumerGroupDescribeResponse.*.subscribed_topic_names", UNORDERED, "the order of Kafka's hash maps"),
    Rule("ConsumerGroupDescribeResponse.groups.members", UNORDERED, "the order of Kafka's hash maps", "client_id"),
    Rule("ConsumerGroupDescribeResponse.*.topic_partitions", UNORDERED, "the order of hash maps", "topic_name"),
    Rule("ConsumerGroupHeartbeatResponse.*.topic_partitions", UNORDERED, "the order of hash maps", "topic_id"),
    Rule("ListGroupsResponse.groups", UNORDERED, "the order of Kafka's hash maps", "group_id"),
    Rule("DeleteGroupsResponse.results", UNORDERED, "the order of Kafka's hash maps", "group_id"),
    Rule("OffsetCommitResponse.topics", UNORDERED, "refused ones come first in Kafka", "name topic_id"),
    Rule("OffsetCommitResponse.topics.partitions", UNORDERED, "refused ones come first in Kafka", "partition_index"),
    Rule("TxnOffsetCommitResponse.topics", UNORDERED, "refused ones come first in Kafka", "name topic_id"),
    Rule("TxnOffsetCommitResponse.topics.partitions", UNORDERED, "refused ones come first in Kafka", "partition_index"),
    Rule("OffsetDeleteResponse.topics", UNORDERED, "the order of Kafka's hash maps", "name"),
    Rule("OffsetDeleteResponse.topics.partitions", UNORDERED, "the order of hash maps", "partition_index"),
    Rule("OffsetFetchResponse.topics", UNORDERED, "the order of Kafka's hash maps", "name"),
    Rule("OffsetFetchResponse.topics.partitions", UNORDERED, "the order of Kafka's hash maps", "partition_index"),
    Rule("OffsetFetchResponse.groups.topics", UNORDERED, "the order of Kafka's hash maps", "name topic_id"),
    Rule("OffsetFetchResponse.groups.topics.partitions", UNORDERED, "the order of hash maps", "partition_index"),
    # What one has and the other has not
    Rule("ApiVersionsResponse.api_keys", COMMON, "an API that is not served is not announced", "api_key"),
    Rule("ApiVersionsResponse.supported_features", COMMON, "features of APIs that are not served", "name"),
    Rule("ApiVersionsResponse.finalized_features", COMMON, "features of APIs that are not served", "name"),
    Rule("ApiVersionsResponse.finalized_features_epoch", IGNORED, "an offset in the broker's own metadata log"),
    # Records
    Rule("FetchResponse.responses.partitions.records", RECORDS, "codecs may pack the same records in other bytes"),
]

# Inside records, by the field of differ.batch_meaning.
RECORD_NOTES = [
    ("a batch cut off at the end", "no client looks at it: it asks again from there"),
    ("what follows where Kafka's down-conversion gave up", "at zstd, it drops good batches beside it; we need not"),
    ("size and crc of compressed batches", "codecs may pack the same records in other bytes"),
    ("times given by the broker", "its clock: both must be of one, not of what a request named"),
]


@functools.cache
def rule_for(field: str) -> Rule | None:
    """Return the first rule that covers a field, None if it must be equal."""
    return next((rule for rule in RULES if fnmatchcase(field, rule.field)), None)


def table() -> str:
    """Return the rules as text, for those who want to know what was not compared."""
    width = max(len(rule.field) for rule in RULES)
    lines = [f"{rule.field:{width}}  {rule.kind:9}  {rule.reason}" for rule in RULES]
    return "\n".join(lines + [f"{what:{width}}  in records  {why}" for what, why in RECORD_NOTES])


class Deviation(NamedTuple):
    """Where we differ from Kafka on purpose."""

    api: str
    versions: tuple[int, int]
    step: str  # a pattern of step names
    field: str  # a pattern of paths
    reason: str
    is_old: bool = False  # only where both are older than Kafka 4


DEVIATIONS = [
    Deviation("Produce", (3, 99), "bad: null records", "outcome", "Kafka never answers; 87 is better"),
    Deviation(
        "Metadata", (0, 99), "metadata that creates", "*", "the topic is there at once, so nobody has to ask again"
    ),
    Deviation(
        "Fetch", (0, 3), "what became of bad batches", "*", "Kafka fails for all partitions if one cannot be converted"
    ),
    Deviation("FindCoordinator", (6, 99), "coordinator of a share partition*", "*", "share groups are not served"),
    Deviation("JoinGroup", (0, 99), "unanswered: *", "outcome", "Kafka fails inside and never answers"),
    *(
        Deviation(api, (0, 99), f"bad joins: {step}, into nothing", "*", "who is refused makes no group here")
        for api, step in (("DescribeGroups", "described"), ("ListGroups", "listed"))
    ),
    Deviation("OffsetFetch", (8, 99), "unanswered: *", "outcome", "Kafka never answers; nothing is an answer"),
    Deviation(
        "AddPartitionsToTxn", (4, 99), "partitions of none", "outcome", "Kafka never answers; nothing is an answer"
    ),
    Deviation(
        "DescribeTransactions",
        (0, 0),
        "*",
        "*.transaction_start_time_ms",
        "it stays in memory, not in the log, when its producer comes again",
        is_old=True,
    ),
    Deviation(
        "Produce",
        (5, 11),
        "append: of an older epoch",
        "*.log_start_offset",
        "it is the log that refuses it, and knows where it begins",
        is_old=True,
    ),
    *(
        Deviation(api, (0, 99), step, "*", "there is no group before an offset of it counts", is_old=True)
        for api, step in (
            ("DescribeGroups", "transactional offsets: described, *"),
            ("OffsetDelete", "transactional offsets: offsets deleted meanwhile"),
            ("TxnOffsetCommit", "offsets: with a generation"),
        )
    ),
    Deviation("ListOffsets", (7, 99), "offsets, *, -3", "*.timestamp", "of a marker: the clock of the broker"),
    Deviation("WriteTxnMarkers", (0, 99), "mark: one twice", "outcome", "Kafka never answers; once is an answer"),
    Deviation("AlterConfigs", (0, 9), "replace: a topic twice", "outcome", "Kafka never answers; an error is better"),
]


def deviation_for(api: str, version: int, step: str, path: str, *, is_old: bool) -> Deviation | None:
    """Return the first deviation that covers a difference."""
    for row in DEVIATIONS:
        first, last = row.versions
        if row.api != api or not first <= version <= last or (row.is_old and not is_old):
            continue
        if fnmatchcase(step, row.step) and fnmatchcase(path, row.field):
            return row
    return None


class SessionRule(NamedTuple):
    """What may differ from a recorded session only: the recording broker had another past, or ran elsewhere."""

    releases: tuple[str, ...]
    api: str
    step: str
    field: str
    reason: str


ALL = ("2.8", "3.9", "4.4")
SESSION_RULES = [
    SessionRule(ALL, "*", "*", "*leader_epoch", "grows with each start of the broker"),
    SessionRule(ALL, "DescribeConfigs", "*", "*configs(listeners)*", "where a broker listens is its own affair"),
    SessionRule(ALL, "DescribeConfigs", "*", "*configs(log.dirs)*", "a path of the machine"),
    SessionRule(ALL, "AlterClientQuotas", "*", "entries*error_*", "a quota is refused: nobody is throttled here"),
    SessionRule(ALL, "DescribeClientQuotas", "describe client quotas again", "entries*", "the quota was refused"),
    SessionRule(ALL, "InitProducerId", "init producer id, no transaction", "*", "no block of ids yet: too early there"),
    SessionRule(("2.8",), "Fetch", "session: forget all", "outcome", "the one before had closed that connection"),
    SessionRule(("2.8",), "Fetch", "session: after it was emptied", "outcome", "asked on a closed connection"),
    SessionRule(("4.4",), "LeaveGroup", "leave v[01]", "outcome", "the one before had closed that connection"),
    SessionRule(("4.4",), "ListGroups", "*", "*groups(pg[01]).group_state", "who was to leave stayed, see above"),
    SessionRule(("4.4",), "ListGroups", "*", "*groups(share1)", "share groups are not served"),
    SessionRule(("4.4",), "OffsetFetch", "offset fetch v1", "outcome", "the one before had closed that connection"),
    SessionRule(("4.4",), "EndTxn", "*commit at once again", "error_code", "its markers were still under way"),
    SessionRule(("2.8",), "Produce", "produce v3 with null records", "*error_code", "-1 there; 87 says why"),
    SessionRule(("2.8",), "Fetch", "fetch v9 leader epoch 0", "*", "its leader had that epoch"),
    SessionRule(ALL, "Metadata", "metadata v0 auto creates", "*", "the topic is there at once"),
    SessionRule(
        ALL, "Produce", "produce v* with null records", "outcome", "Kafka never answers; 87 lets the client go on"
    ),
]


def session_rule_for(release: str, api: object, step: str, path: str) -> SessionRule | None:
    """Return the first rule that allows a difference from a recorded session."""
    for row in SESSION_RULES:
        if (
            release in row.releases
            and fnmatchcase(str(api), row.api)
            and fnmatchcase(step, row.step)
            and fnmatchcase(path.replace("[", "(").replace("]", ")"), row.field)
        ):
            return row
    return None

"""State of Kafka Streams groups (KIP-1071): records of __consumer_offsets.

The group coordinator writes them when members join, leave or move to a new assignment, and reads them back when it
becomes leader of the partition. A Streams application is a topology made of subtopologies; a task is one subtopology on
one partition number, and tasks are what is assigned. Epochs follow each other as in consumer groups.
"""

from __future__ import annotations

from minibroker.schema.message import Struct
from minibroker.schema.types import EMPTY, Array, Int8, Int16, Int32, Int64, String, UInt16, since
from minibroker.stored.kinds import CoordinatorKey, CoordinatorValue


class StreamsGroupCurrentMemberAssignmentKey(CoordinatorKey, type=22, versions="0"):
    """Names a member: which tasks it holds at present."""

    group_id: String
    member_id: String


class StreamsGroupCurrentMemberAssignmentValue(CoordinatorValue, type=22, versions="0", flexible="0+"):
    """Which tasks a member holds and how far it is on the way to its target."""

    member_epoch: Int32  # epoch the member has reached; its heartbeats must carry it
    previous_member_epoch: Int32  # accepted too, in case the answer that raised the epoch was lost
    state: Int8  # 0: stable, 1: must still revoke tasks, 2: waits for others to release, 127: unknown
    active_tasks: Array[TaskIds]  # process records
    standby_tasks: Array[TaskIds]  # keep a copy of the state, ready to take over
    warmup_tasks: Array[TaskIds]  # build up state in order to become active here later
    active_tasks_pending_revocation: Array[TaskIds]  # must be closed and confirmed before the member's epoch goes on
    standby_tasks_pending_revocation: Array[TaskIds]
    warmup_tasks_pending_revocation: Array[TaskIds]

    class TaskIds(Struct):
        subtopology_id: String
        partitions: Array[Int32]
        # Beside each partition the epoch at which the task was given: a commit with an older member epoch than the
        # present one is still taken if not older than this. Only for active tasks.
        assignment_epochs: Array[Int32] | None = since("0+", default=EMPTY, tag=0)


class StreamsGroupMemberMetadataKey(CoordinatorKey, type=19, versions="0"):
    """Names a member: what it told about itself."""

    group_id: String
    member_id: String


class StreamsGroupMemberMetadataValue(CoordinatorValue, type=19, versions="0", flexible="0+"):
    """What a member told about itself in its heartbeats."""

    instance_id: String | None  # group.instance.id of a static member; null: dynamic
    rack_id: String | None  # client.rack; null: not configured
    client_id: String
    client_host: String  # address the requests come from
    rebalance_timeout_ms: Int32 = -1  # time to give up revoked tasks before the member is removed; -1: not known
    topology_epoch: Int32  # version of the topology that the member runs
    process_id: String  # of the application process; its members share local state, so tasks move cheaply between them
    user_endpoint: Endpoint | None = None  # application.server, where other instances can query its state; null: none
    client_tags: Array[KeyValue]  # keep standby tasks apart, for example by zone

    class Endpoint(Struct):
        host: String
        port: UInt16

    class KeyValue(Struct):
        key: String
        value: String


class StreamsGroupMetadataKey(CoordinatorKey, type=17, versions="0"):
    """Names a group: its epoch. Without a value the group is deleted."""

    group_id: String


class StreamsGroupMetadataValue(CoordinatorValue, type=17, versions="0", flexible="0+"):
    """The group epoch; this record is what makes a group a Streams group."""

    epoch: Int32  # rises when members, topology or the topics change; then a new target is computed
    metadata_hash: Int64  # over the topics of the topology; another value raises the epoch (KIP-1101)
    # topology that was found to fit the existing topics; -1: none, the group is not ready
    validated_topology_epoch: Int32 = since("0+", default=-1, tag=0)
    # settings the assignor last worked with; another value raises the epoch; null: not known
    last_assignment_configs: Array[LastAssignmentConfig] | None = since("0+", default=EMPTY, tag=1)
    # topology whose description a plugin has stored (KIP-1331); -1: none
    stored_description_topology_epoch: Int32 = since("0+", default=-1, tag=2)
    # topology whose description the plugin refused for good (KIP-1331); -1: none
    failed_description_topology_epoch: Int32 = since("0+", default=-1, tag=3)

    class LastAssignmentConfig(Struct):
        key: String  # for example num.standby.replicas
        value: String


class StreamsGroupTargetAssignmentMemberKey(CoordinatorKey, type=21, versions="0"):
    """Names a member: which tasks it shall hold."""

    group_id: String
    member_id: String


class StreamsGroupTargetAssignmentMemberValue(CoordinatorValue, type=21, versions="0", flexible="0+"):
    """Which tasks a member shall hold once everybody has released what must move."""

    active_tasks: Array[TaskIds]  # process records
    standby_tasks: Array[TaskIds]  # keep a copy of the state, ready to take over
    warmup_tasks: Array[TaskIds]  # build up state in order to become active here later

    class TaskIds(Struct):
        subtopology_id: String
        partitions: Array[Int32]


class StreamsGroupTargetAssignmentMetadataKey(CoordinatorKey, type=20, versions="0"):
    """Names a group: the epoch of its target assignment."""

    group_id: String


class StreamsGroupTargetAssignmentMetadataValue(CoordinatorValue, type=20, versions="0", flexible="0+"):
    """Which group epoch the target assignment was computed for."""

    assignment_epoch: Int32  # below the group epoch: a newer assignment is due
    # when the computation ended, ms since 1970; 0: not known (KIP-1263)
    assignment_timestamp: Int64 = since("0+", default=0, tag=0)


class StreamsGroupTopologyKey(CoordinatorKey, type=23, versions="0"):
    """Names a group: its topology."""

    group_id: String


class StreamsGroupTopologyValue(CoordinatorValue, type=23, versions="0", flexible="0+"):
    """The topology as a member sent it: what is read, and which internal topics must exist."""

    epoch: Int32  # set by the application; larger when the topology changes
    subtopologies: Array[Subtopology]

    class Subtopology(Struct):
        subtopology_id: String
        source_topics: Array[String]  # read from, made by users
        source_topic_regex: Array[String]  # patterns of further source topics
        # internal topics that back up state stores; the broker can create them
        state_changelog_topics: Array[TopicInfo]
        repartition_sink_topics: Array[String]  # internal topics written to, which another subtopology reads
        repartition_source_topics: Array[TopicInfo]  # internal topics read from; the broker can create them
        # topics that must have the same number of partitions, since they are joined
        copartition_groups: Array[CopartitionGroup]

        class CopartitionGroup(Struct):
            """Each number is a position in the list of that name in the subtopology."""

            source_topics: Array[Int16]
            source_topic_regex: Array[Int16]
            repartition_source_topics: Array[Int16]


class TopicInfo(Struct):
    name: String
    partitions: Int32  # 0: not fixed, the coordinator derives it
    replication_factor: Int16  # 0: the broker's default
    topic_configs: Array[TopicConfig]


class TopicConfig(Struct):
    key: String
    value: String

"""Join, stay in and leave a Kafka Streams group of the new protocol (KIP-1071).

Every client sends it to the coordinator, which knows the topology and distributes the tasks itself. A task is one
partition of one subtopology. v1: lag as int64, and the broker may ask for a description of the topology (KIP-1331).
"""

from __future__ import annotations

from minibroker.protocol.headers import Request, Response
from minibroker.schema.message import Struct
from minibroker.schema.types import Array, Bool, Int8, Int16, Int32, Int64, String, UInt16, since


class StreamsGroupHeartbeatRequest(Request, api=88, versions="0-1", flexible="0+"):
    """Say that a member lives, and what has changed since its last heartbeat."""

    group_id: String
    member_id: String  # made by the client, kept as long as it lives
    member_epoch: Int32  # as last answered; 0: join, -1: leave, -2: a static member goes and will be back
    endpoint_information_epoch: Int32  # as last answered: tells the broker which endpoints the client knows
    instance_id: String | None = None  # of a static member; null: not static, or unchanged
    rack_id: String | None = None  # null: not given, or unchanged
    rebalance_timeout_ms: Int32 = -1  # how long the member may take to give up tasks; -1: unchanged
    topology: Topology | None = None  # required when member_epoch is 0, null later
    # tasks the member has, to process records; null: as in the last heartbeat
    active_tasks: Array[TaskIds] | None = None
    # tasks of which it keeps a copy of the state; null: as in the last heartbeat
    standby_tasks: Array[TaskIds] | None = None
    # tasks whose state it is loading, to take them over; null: as in the last heartbeat
    warmup_tasks: Array[TaskIds] | None = None
    # the same for all members in one process, which share their state stores; null: as in the last heartbeat
    process_id: String | None = None
    # where other instances send interactive queries; null: none, or as in the last heartbeat
    user_endpoint: Endpoint | None = None
    client_tags: Array[KeyValue] | None = None  # labels for spreading standby tasks; null: as in the last heartbeat
    # how far the state stores have read their changelogs, summed up for each task; null: as in the last heartbeat
    task_offsets: Array[TaskOffset] | None = None
    # ends of these changelogs, summed up for each task; null: as in the last heartbeat
    task_end_offsets: Array[TaskOffset] | None = None
    shutdown_application: Bool = False  # true: every member of the group shall stop, usually after an error

    class Topology(Struct):
        epoch: Int32  # version of the topology; goes up when the application is changed
        subtopologies: Array[Subtopology]  # parts of the topology that share no state

        class Subtopology(Struct):
            subtopology_id: String  # the same on every client that runs this topology
            source_topics: Array[String]  # read from; made by the user
            source_topic_regex: Array[String]  # read from: every topic whose name matches
            state_changelog_topics: Array[TopicInfo]  # back up the state stores; the broker creates them
            repartition_sink_topics: Array[String]  # written to, for another subtopology to read
            repartition_source_topics: Array[TopicInfo]  # internal topics read from; the broker creates them
            # topics that are joined and so need the same number of partitions
            copartition_groups: Array[CopartitionGroup]

            class CopartitionGroup(Struct):
                source_topics: Array[Int16]  # indexes into source_topics of the subtopology
                source_topic_regex: Array[Int16]  # indexes into source_topic_regex of the subtopology
                repartition_source_topics: Array[Int16]  # indexes into repartition_source_topics of the subtopology

    class Endpoint(Struct):
        host: String
        port: UInt16


class TopicInfo(Struct):
    name: String
    partitions: Int32  # 0: follows from other topics, as always for changelogs
    replication_factor: Int16  # 0: the broker's default
    topic_configs: Array[KeyValue]


class KeyValue(Struct):
    key: String
    value: String


class TaskIds(Struct):
    subtopology_id: String
    partitions: Array[Int32]  # one task each


class TaskOffset(Struct):
    subtopology_id: String
    partition: Int32
    offset: Int64


class StreamsGroupHeartbeatResponse(Response, api=88, versions="0-1", flexible="0+"):
    """Give the member its epoch, and its tasks when they have changed."""

    throttle_time_ms: Int32  # how long the quota of the client makes it wait, 0: not at all
    # 25: join again, 110: epoch too old, join again; 130: invalid topology, 131: wrong topology epoch, 132: outdated
    # topology
    error_code: Int16
    error_message: String | None = None  # for people to read; null: no error
    member_id: String
    member_epoch: Int32  # goes into the next heartbeat
    heartbeat_interval_ms: Int32  # time until the next heartbeat
    acceptable_recovery_lag_legacy: Int32 = since("0", default=0)  # as acceptable_recovery_lag, which replaced it
    task_offset_interval_ms: Int32  # how often to send task_offsets and task_end_offsets
    # a warm-up task counts as ready when it lags by no more records than this; -1: not told
    acceptable_recovery_lag: Int64 = since("1+", default=-1)
    status: Array[Status] | None  # what keeps the group from working; null: as in the last heartbeat
    active_tasks: Array[TaskIds] | None = None  # tasks to process; null: as in the last heartbeat
    standby_tasks: Array[TaskIds] | None = None  # tasks whose state to copy; null: as in the last heartbeat
    # tasks whose state to load, to take them over later; null: as in the last heartbeat
    warmup_tasks: Array[TaskIds] | None = None
    # true: please send StreamsGroupTopologyDescriptionUpdate
    topology_description_required: Bool = since("1+", default=False)
    endpoint_information_epoch: Int32  # version of partitions_by_user_endpoint; goes into the next heartbeat
    # who holds which state, for interactive queries; null: as in the last heartbeat
    partitions_by_user_endpoint: Array[EndpointToPartitions] | None = None

    class Status(Struct):
        # 0: stale topology, 1: source topics missing, 2: partition counts do not fit, 3: internal topics missing,
        # 4: application shuts down, 5: assignment delayed, 6: client tags missing (v1+)
        status_code: Int8
        status_detail: String  # for people to read, with the topics concerned

    class EndpointToPartitions(Struct):
        user_endpoint: Endpoint
        active_partitions: Array[TopicPartition]  # up to date here
        standby_partitions: Array[TopicPartition]  # copies, which may lag

        class Endpoint(Struct):
            host: String
            port: UInt16


class TopicPartition(Struct):
    topic: String
    partitions: Array[Int32]

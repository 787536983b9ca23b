"""Describe Kafka Streams groups of the new protocol (KIP-1071). Admin tools send it to the groups' coordinator.

v1: the topology in words (KIP-1331) and the name of the assignor (KIP-1357).
"""

from __future__ import annotations

from minibroker.protocol.headers import Request, Response
from minibroker.schema.message import Struct
from minibroker.schema.types import EMPTY, Array, Bool, Int8, Int16, Int32, Int64, String, UInt16, since


class StreamsGroupDescribeRequest(Request, api=89, versions="0-1", flexible="0+"):
    """Name the groups to describe."""

    group_ids: Array[String]
    include_authorized_operations: Bool
    # true: also say which processors the subtopologies are made of, if the broker has it stored
    include_topology_description: Bool = since("1+", default=False)


class StreamsGroupDescribeResponse(Response, api=89, versions="0-1", flexible="0+"):
    """Give topology, members and tasks of each group."""

    throttle_time_ms: Int32  # how long the quota of the client makes it wait, 0: not at all
    groups: Array[DescribedGroup]

    class DescribedGroup(Struct):
        error_code: Int16  # 69: no such group, or not a streams group
        error_message: String | None = None  # for people to read; null: no error
        group_id: String
        group_state: String  # Empty, NotReady, Assigning, Reconciling, Stable or Dead
        group_epoch: Int32  # grows when members, topology or topics change
        assignment_epoch: Int32  # group epoch that the target assignment was made for
        topology: Topology | None = None  # null: no member has brought one yet
        members: Array[Member]
        # bit n is set if the caller may do ACL operation n; -2147483648: not asked for
        authorized_operations: Int32 = -2147483648
        # null unless topology_description_status is 3
        topology_description: TopologyDescription | None = since("1+", default=None)
        # 0: not asked for, 1: none stored, 2: could not be read, 3: given
        topology_description_status: Int8 = since("1+", default=0)
        assignor_name: String | None = since("1+", default=None)  # what distributes the tasks; null: not known

        class Topology(Struct):
            epoch: Int32  # version of the topology; clients of another one get no tasks
            # parts of the topology that share no state; each is split into tasks
            subtopologies: Array[Subtopology] | None = None

            class Subtopology(Struct):
                subtopology_id: String
                source_topics: Array[String]  # read from; made by the user
                repartition_sink_topics: Array[String]  # internal topics written to, for another subtopology to read
                state_changelog_topics: Array[TopicInfo]  # internal topics that back up state stores
                repartition_source_topics: Array[TopicInfo]  # internal topics read from

        class Member(Struct):
            member_id: String
            member_epoch: Int32  # the member has adopted the target assignment if equal to assignment_epoch
            instance_id: String | None = None  # null: not a static member
            rack_id: String | None = None  # null: not given
            client_id: String
            client_host: String  # address it is connected from
            topology_epoch: Int32  # version of the topology that this client runs
            process_id: String  # the same for all members in one process, which share their state stores
            user_endpoint: Endpoint | None = None  # where other instances send interactive queries; null: none
            client_tags: Array[KeyValue]  # labels of the client for spreading standby tasks
            # how far its state stores have read their changelogs, summed up for each task
            task_offsets: Array[TaskOffset]
            # ends of these changelogs, summed up for each task; the difference is the lag
            task_end_offsets: Array[TaskOffset]
            assignment: Assignment  # tasks it has now
            target_assignment: Assignment  # tasks it shall have
            is_classic: Bool  # true: joined with the classic protocol

            class Endpoint(Struct):
                host: String
                port: UInt16

        class TopologyDescription(Struct):
            subtopologies: Array[TopologyDescriptionSubtopology]
            global_stores: Array[TopologyDescriptionGlobalStore]

            class TopologyDescriptionSubtopology(Struct):
                subtopology_id: String
                nodes: Array[TopologyDescriptionNode]

            class TopologyDescriptionGlobalStore(Struct):
                """A store that every instance fills from the whole of a topic."""

                source: TopologyDescriptionNode
                processor: TopologyDescriptionNode


class TopicInfo(Struct):
    name: String
    partitions: Int32  # 0: follows from other topics
    replication_factor: Int16  # 0: the broker's default
    topic_configs: Array[KeyValue]


class KeyValue(Struct):
    key: String
    value: String


class TaskOffset(Struct):
    """How far one task is: a task is one partition of one subtopology."""

    subtopology_id: String
    partition: Int32
    offset: Int64


class Assignment(Struct):
    active_tasks: Array[TaskIds]  # process records
    standby_tasks: Array[TaskIds]  # only keep a copy of the state
    warmup_tasks: Array[TaskIds]  # catch up with the state, to become active later


class TaskIds(Struct):
    """Tasks of one subtopology: a task is one partition of one subtopology."""

    subtopology_id: String
    partitions: Array[Int32]


class TopologyDescriptionNode(Struct):
    """One box of the processing graph."""

    name: String = since("1+", default="")
    node_type: Int8 = since("1+", default=0)  # 1: source, 2: processor, 3: sink
    source_topics: Array[String] = since("1+", default=EMPTY)  # of a source, otherwise empty
    sink_topic: String | None = since("1+", default=None)  # of a sink; null: not a sink, or chosen for each record
    stores: Array[String] = since("1+", default=EMPTY)  # state stores that a processor uses
    successors: Array[String] = since("1+", default=EMPTY)  # names of the nodes its output goes to

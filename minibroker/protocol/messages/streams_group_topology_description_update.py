"""StreamsGroupTopologyDescriptionUpdate: store a readable picture of a Kafka Streams topology (KIP-1331).

A member of a streams group sends it to the group coordinator after a heartbeat answer asked for it
(topology_description_required). Admin tools get it back from StreamsGroupDescribe; tasks do not depend on it.
"""

from __future__ import annotations

from minibroker.protocol.headers import Request, Response
from minibroker.schema.message import Struct
from minibroker.schema.types import Array, Int8, Int16, Int32, String


class StreamsGroupTopologyDescriptionUpdateRequest(Request, api=93, versions="0", flexible="0+"):
    """The nodes of the whole topology and how they are connected."""

    group_id: String
    member_id: String
    topology_epoch: Int32  # epoch of the topology described; must be the group's current one
    topology_description: TopologyDescription

    class TopologyDescription(Struct):
        subtopologies: Array[TopologyDescriptionSubtopology]
        # stores that every instance fills from all partitions; each is a source and a processor
        global_stores: Array[TopologyDescriptionGlobalStore]

        class TopologyDescriptionSubtopology(Struct):
            subtopology_id: String  # as in StreamsGroupHeartbeat; tasks are numbered by it
            nodes: Array[TopologyDescriptionNode]  # unordered; the edges are in successors

        class TopologyDescriptionGlobalStore(Struct):
            source: TopologyDescriptionNode
            processor: TopologyDescriptionNode


class TopologyDescriptionNode(Struct):
    name: String
    node_type: Int8  # 1: source, 2: processor, 3: sink
    source_topics: Array[String]  # topics a source node reads; empty for other nodes, or when chosen by a pattern
    sink_topic: String | None = None  # topic a sink node writes to; null: no sink, or chosen record by record
    stores: Array[String]  # state stores a processor uses
    successors: Array[String]  # names of the nodes that get this node's output


class StreamsGroupTopologyDescriptionUpdateResponse(Response, api=93, versions="0", flexible="0+"):
    """Say whether the description was stored."""

    throttle_time_ms: Int32  # how long a quota makes the client wait before its next request; 0: not at all
    error_code: Int16  # UNSUPPORTED_VERSION (35): the broker has no plugin to store descriptions
    error_message: String | None = None  # null: no error or no text

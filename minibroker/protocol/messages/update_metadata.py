"""Tell a broker what it should answer to Metadata requests: partitions, leaders, live brokers.

The controller of a ZooKeeper cluster sends it to every broker after each change; KRaft brokers read the metadata log
instead, and the API ended with 3.9. v5: partitions grouped by topic, v6: flexible, v7: topic ids, v8: migration to
KRaft (KIP-866).
"""

from __future__ import annotations

from minibroker.protocol.headers import Request, Response
from minibroker.schema.message import Struct
from minibroker.schema.types import EMPTY, NO_ID, Array, Bool, Int8, Int16, Int32, Int64, String, Uuid, since


class UpdateMetadataRequest(Request, api=6, versions="0-8", flexible="6+"):
    """Carry the changed partitions and all live brokers."""

    controller_id: Int32  # broker id of the sender
    # true: the sender is a KRaft controller, in the middle of a migration
    is_k_raft_controller: Bool = since("8+", default=False)
    type: Int8 = since("8+", default=0, tag=0)  # 0: unknown, 1: what changed, 2: everything
    controller_epoch: Int32  # term of the controller; requests of an older one get error 11
    # of the broker addressed; error 77 if it has registered anew since; -1: not checked
    broker_epoch: Int64 = since("5+", default=-1)
    topic_states: Array[UpdateMetadataTopicState] = since("5+", default=EMPTY)
    ungrouped_partition_states: Array[UpdateMetadataPartitionState] = since("0-4", default=EMPTY)
    live_brokers: Array[UpdateMetadataBroker]

    class UpdateMetadataTopicState(Struct):
        topic_name: String
        topic_id: Uuid = since("7+", default=NO_ID)
        partition_states: Array[UpdateMetadataPartitionState]

        class UpdateMetadataPartitionState(Struct):
            partition_index: Int32
            controller_epoch: Int32  # term of the controller that made this decision
            leader: Int32  # -1: none, -2: the topic is being deleted
            leader_epoch: Int32
            isr: Array[Int32]  # broker ids of the in-sync replicas
            zk_version: Int32  # version of the partition's node in ZooKeeper
            replicas: Array[Int32]  # broker ids; the first is the preferred leader
            offline_replicas: Array[Int32]  # broker ids of replicas that are down or on a failed disk

    class UpdateMetadataPartitionState(Struct):
        topic_name: String
        partition_index: Int32
        controller_epoch: Int32  # term of the controller that made this decision
        leader: Int32  # -1: none, -2: the topic is being deleted
        leader_epoch: Int32
        isr: Array[Int32]  # broker ids of the in-sync replicas
        zk_version: Int32  # version of the partition's node in ZooKeeper
        replicas: Array[Int32]  # broker ids; the first is the preferred leader
        # broker ids of replicas that are down or on a failed disk
        offline_replicas: Array[Int32] = since("4", default=EMPTY)

    class UpdateMetadataBroker(Struct):
        id: Int32
        endpoints: Array[UpdateMetadataEndpoint] = since("1+", default=EMPTY)
        rack: String | None = since("2+", default="")  # null: no rack configured
        v0_host: String = since("0", default="")
        v0_port: Int32 = since("0", default=0)

        class UpdateMetadataEndpoint(Struct):
            port: Int32
            host: String
            listener: String = since("3+", default="")  # listener name
            security_protocol: Int16  # 0: PLAINTEXT, 1: SSL, 2: SASL_PLAINTEXT, 3: SASL_SSL


class UpdateMetadataResponse(Response, api=6, versions="0-8", flexible="6+"):
    """Say that the broker has taken it over."""

    error_code: Int16  # 11: sent by an old controller, 77: meant for an earlier life of this broker

"""Tells a broker to stop replicas and perhaps to delete them (ZooKeeper clusters only, gone with 4.0).

Sent by the controller when a topic is deleted, a replica moves elsewhere, or a broker shuts down. KRaft brokers read
the same from the metadata log.
v1: broker epoch (KIP-380). v2: flexible. v3: leader epoch and deletion per partition (KIP-570). v4: migration to KRaft
(KIP-866).
"""

from __future__ import annotations

from minibroker.protocol.headers import Request, Response
from minibroker.schema.message import Struct
from minibroker.schema.types import EMPTY, Array, Bool, Int16, Int32, Int64, String, since


class StopReplicaRequest(Request, api=5, versions="0-4", flexible="2+"):
    """Stop these replicas."""

    controller_id: Int32  # broker id of the sender, or node id of a KRaft controller during migration
    # true: sent by a KRaft controller during the migration from ZooKeeper
    is_k_raft_controller: Bool = since("4+", default=False)
    controller_epoch: Int32  # rises with each change of controller; a broker that has seen a larger one answers 11
    # life of the broker this is meant for: after a restart an old one is refused with 77; -1: not given
    broker_epoch: Int64 = since("1+", default=-1)
    topic_states: Array[StopReplicaTopicState] = since("3+", default=EMPTY)
    delete_partitions: Bool = since("0-2", default=False)  # true: delete the logs of all partitions named
    topics: Array[StopReplicaTopicV1] = since("1-2", default=EMPTY)
    ungrouped_partitions: Array[StopReplicaPartitionV0] = since("0", default=EMPTY)

    class StopReplicaTopicState(Struct):
        topic_name: String
        partition_states: Array[StopReplicaPartitionState]

        class StopReplicaPartitionState(Struct):
            partition_index: Int32
            # an older one than the broker knows is refused; -1: not given, -2: the topic is being deleted
            leader_epoch: Int32 = -1
            delete_partition: Bool  # true: delete the log; false: only stop fetching

    class StopReplicaTopicV1(Struct):
        name: String
        partition_indexes: Array[Int32]

    class StopReplicaPartitionV0(Struct):
        topic_name: String
        partition_index: Int32


class StopReplicaResponse(Response, api=5, versions="0-4", flexible="2+"):
    """One error code per partition."""

    error_code: Int16  # failure of the whole request, such as 11: old controller or 77: old broker epoch
    partition_errors: Array[StopReplicaPartitionError]

    class StopReplicaPartitionError(Struct):
        topic_name: String
        partition_index: Int32
        error_code: Int16  # 56: its log directory is offline, 74: old leader epoch

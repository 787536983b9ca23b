"""Tells brokers which partitions they lead or follow (ZooKeeper clusters only, gone with 4.0).

Sent by the controller to every broker that holds a replica of a partition whose leader or in-sync set has changed.
KRaft brokers read the same from the metadata log.
v2: grouped by topic, broker epoch (KIP-380). v3: reassignments (KIP-455). v4: flexible. v5: topic ids (KIP-516). v6:
leader recovery (KIP-704). v7: migration to KRaft (KIP-866).
"""

from __future__ import annotations

from minibroker.protocol.headers import Request, Response
from minibroker.schema.message import Struct
from minibroker.schema.types import EMPTY, NO_ID, Array, Bool, Int8, Int16, Int32, Int64, String, Uuid, since


class LeaderAndIsrRequest(Request, api=4, versions="0-7", flexible="4+"):
    """Become leader or follower of these partitions."""

    controller_id: Int32  # broker id of the sender, or node id of a KRaft controller during migration
    # true: sent by a KRaft controller during the migration from ZooKeeper
    is_k_raft_controller: Bool = since("7+", default=False)
    controller_epoch: Int32  # rises with each change of controller; a broker that has seen a larger one answers 11
    # life of the broker this is meant for: after a restart an old one is refused with 77; -1: not given
    broker_epoch: Int64 = since("2+", default=-1)
    # 0: not given, 1: incremental, 2: full: every replica of the broker is listed, others may be removed
    type: Int8 = since("5+", default=0)
    topic_states: Array[LeaderAndIsrTopicState] = since("2+", default=EMPTY)
    ungrouped_partition_states: Array[LeaderAndIsrPartitionState] = since("0-1", default=EMPTY)
    live_leaders: Array[LeaderAndIsrLiveLeader]  # addresses of the leaders named here, so that followers can reach them

    class LeaderAndIsrTopicState(Struct):
        topic_name: String
        topic_id: Uuid = since("5+", default=NO_ID)  # all zero: the topic has no id, as it was created before 2.8
        partition_states: Array[LeaderAndIsrPartitionState]

        class LeaderAndIsrPartitionState(Struct):
            partition_index: Int32
            controller_epoch: Int32  # of the controller that made this decision; may be older than the sender's
            leader: Int32  # broker id; -1: no leader, -2: the topic is being deleted
            leader_epoch: Int32  # rises with each change of leader; brokers ignore a state that is older than theirs
            isr: Array[Int32]  # broker ids of the in-sync replicas, the leader among them
            # version of the partition's state in ZooKeeper, the guard for the leader's next ISR change
            partition_epoch: Int32
            replicas: Array[Int32]  # broker ids; the first is the preferred leader
            # broker ids that a running reassignment brings in
            adding_replicas: Array[Int32] = since("3+", default=EMPTY)
            # broker ids that leave when the reassignment is done
            removing_replicas: Array[Int32] = since("3+", default=EMPTY)
            is_new: Bool = False  # true: never existed before, so a missing log is no sign of a lost disk
            # 0: recovered, 1: recovering: chosen outside the in-sync set, records may be lost
            leader_recovery_state: Int8 = since("6+", default=0)

    class LeaderAndIsrPartitionState(Struct):
        topic_name: String
        partition_index: Int32
        controller_epoch: Int32  # of the controller that made this decision; may be older than the sender's
        leader: Int32  # broker id; -1: no leader, -2: the topic is being deleted
        leader_epoch: Int32  # rises with each change of leader; brokers ignore a state that is older than theirs
        isr: Array[Int32]  # broker ids of the in-sync replicas, the leader among them
        # version of the partition's state in ZooKeeper, the guard for the leader's next ISR change
        partition_epoch: Int32
        replicas: Array[Int32]  # broker ids; the first is the preferred leader
        # true: never existed before, so a missing log is no sign of a lost disk
        is_new: Bool = since("1", default=False)

    class LeaderAndIsrLiveLeader(Struct):
        broker_id: Int32
        host_name: String
        port: Int32


class LeaderAndIsrResponse(Response, api=4, versions="0-7", flexible="4+"):
    """One error code per partition."""

    error_code: Int16  # failure of the whole request, such as 11: old controller or 77: old broker epoch
    topics: Array[LeaderAndIsrTopicError] = since("5+", default=EMPTY)
    partition_errors: Array[LeaderAndIsrPartitionError] = since("0-4", default=EMPTY)

    class LeaderAndIsrTopicError(Struct):
        topic_id: Uuid
        partition_errors: Array[LeaderAndIsrPartitionError]

        class LeaderAndIsrPartitionError(Struct):
            partition_index: Int32
            error_code: Int16

    class LeaderAndIsrPartitionError(Struct):
        topic_name: String
        partition_index: Int32
        error_code: Int16

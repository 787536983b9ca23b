"""Change the in-sync replicas (ISR) of partitions (KIP-497).

A partition's leader sends it to the controller when a follower falls behind or has caught up again.
v1: leader recovery (KIP-704), v2: topic ids in place of names (KIP-841), v3: the epoch of each replica (KIP-903).
"""

from __future__ import annotations

from minibroker.protocol.headers import Request, Response
from minibroker.schema.message import Struct
from minibroker.schema.types import EMPTY, NO_ID, Array, Int8, Int16, Int32, Int64, String, Uuid, since

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import ClassVar


class AlterPartitionRequest(Request, api=56, versions="0-3", flexible="0+"):
    """Propose a new ISR for partitions that the sender leads."""

    broker_id: Int32  # the leader that asks
    # given by the controller at registration; -1: not known. An older one than the latest gets error 77
    broker_epoch: Int64 = -1
    topics: Array[TopicData]

    class TopicData(Struct):
        topic_id: Uuid = since("2+", default=NO_ID)
        topic_name: String = since("0-1", default="")
        partitions: Array[PartitionData]

        class PartitionData(Struct):
            why: ClassVar[str] = ""  # the leader's reason, for events of its own process; no version has it

            partition_index: Int32
            leader_epoch: Int32  # the epoch in which the sender leads; an older one than the controller's gets error 74
            # the proposed ISR, complete, not only what changed
            new_isr_with_epochs: Array[BrokerState] = since("3+", default=EMPTY)
            new_isr: Array[Int32] = since("0-2", default=EMPTY)  # broker ids of the proposed ISR, complete
            # 0: recovered, 1: still recovering from an unclean election
            leader_recovery_state: Int8 = since("1+", default=0)
            # the state this proposal starts from; error 95 if the partition has changed meanwhile
            partition_epoch: Int32

            class BrokerState(Struct):
                broker_id: Int32
                # as the leader saw it in a fetch, so a restarted replica is not let in by mistake; -1: not checked
                broker_epoch: Int64 = -1


class AlterPartitionResponse(Response, api=56, versions="0-3", flexible="0+"):
    """Tell for each partition what is in force now."""

    throttle_time_ms: Int32  # how long the quota of the client makes it wait, 0: not at all
    error_code: Int16  # of the request as a whole: 41 not the controller, 77 the broker's registration is outdated
    topics: Array[TopicData]

    class TopicData(Struct):
        topic_id: Uuid = since("2+", default=NO_ID)
        topic_name: String = since("0-1", default="")
        partitions: Array[PartitionData]

        class PartitionData(Struct):
            partition_index: Int32
            # 74: leader epoch too old, 95: partition changed, 107: a replica may not join, 108: a new leader was
            # elected
            error_code: Int16
            leader_id: Int32  # -1: no leader
            leader_epoch: Int32
            isr: Array[Int32]  # broker ids in sync after the change
            # 0: recovered, 1: still recovering from an unclean election
            leader_recovery_state: Int8 = since("1+", default=0)
            partition_epoch: Int32  # grows with each change of the partition; the next proposal must carry it

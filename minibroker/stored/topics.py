"""Topics, their partitions and settings: records of the metadata log.

They live in __cluster_metadata-0 and in its snapshots. The active controller writes them when topics are created,
changed or deleted and whenever leader or in-sync replicas of a partition change; every controller and broker replays
them.
"""

from __future__ import annotations

from minibroker.schema.types import EMPTY, Array, Int8, Int32, String, Uuid, since
from minibroker.stored.kinds import MetadataRecord

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import ClassVar


class TopicRecord(MetadataRecord, type=2, versions="0", flexible="0+"):
    """A topic has been created; its partitions follow."""

    name: String
    topic_id: Uuid  # random: a topic created again under the same name is another topic (KIP-516)


class PartitionRecord(MetadataRecord, type=3, versions="0-2", flexible="0+"):
    """A partition in full, at its creation and in snapshots.

    v1: log directories (KIP-858), v2: eligible leader replicas (KIP-966).
    """

    partition_id: Int32 = -1
    topic_id: Uuid
    replicas: Array[Int32]  # broker ids; the first is the preferred leader
    isr: Array[Int32]  # in-sync replicas: hold all committed records, and one of them leads
    removing_replicas: Array[Int32]  # being taken away by a reassignment
    adding_replicas: Array[Int32]  # being added by a reassignment
    leader: Int32 = -1  # -1: nobody can lead, the partition is offline
    # 0: normal, 1: the leader was elected uncleanly and is still sorting out what it lost
    leader_recovery_state: Int8 = since("0+", default=0, tag=0)
    leader_epoch: Int32 = -1  # one larger at each election; consumers and followers fence old leaders by it
    partition_epoch: Int32 = -1  # one larger at each change; AlterPartition must name the present one
    # log directory of each replica, in the same order; ids 0: unspecified, 1: not assigned yet, 2: lost
    directories: Array[Uuid] = since("1+", default=EMPTY)
    # not in sync but known to hold all committed records, so may lead if the ISR is empty (KIP-966)
    eligible_leader_replicas: Array[Int32] | None = since("2+", default=None, tag=1)
    # lost eligibility, as by an unclean stop; used to pick a leader when nobody else is left
    last_known_elr: Array[Int32] | None = since("2+", default=None, tag=2)


class PartitionChangeRecord(MetadataRecord, type=5, versions="0-2", flexible="0+"):
    """A partition has changed; what is absent stays as it was. The partition epoch rises by one.

    v1: log directories (KIP-858), v2: eligible leader replicas (KIP-966).
    """

    why: ClassVar[str] = ""  # a clause of whoever decided it, for events; it is not written

    partition_id: Int32 = -1
    topic_id: Uuid
    isr: Array[Int32] | None = since("0+", default=None, tag=0)  # null: no change
    # -2: no change, -1: nobody can lead; any other value raises the leader epoch, even the same leader again
    leader: Int32 = since("0+", default=-2, tag=1)
    # null: no change; the first is the preferred leader
    replicas: Array[Int32] | None = since("0+", default=None, tag=2)
    removing_replicas: Array[Int32] | None = since("0+", default=None, tag=3)  # null: no change
    adding_replicas: Array[Int32] | None = since("0+", default=None, tag=4)  # null: no change
    # -1: no change, 0: normal, 1: elected uncleanly and still sorting out what it lost
    leader_recovery_state: Int8 = since("0+", default=-1, tag=5)
    # null: no change; otherwise the log directory of each replica, in the same order
    directories: Array[Uuid] | None = since("1+", default=None, tag=8)
    # null: no change; may lead although not in sync (KIP-966)
    eligible_leader_replicas: Array[Int32] | None = since("2+", default=None, tag=6)
    # null: no change; lost eligibility, used to pick a leader when nobody else is left
    last_known_elr: Array[Int32] | None = since("2+", default=None, tag=7)


class ClearElrRecord(MetadataRecord, type=28, versions="0", flexible="0+"):
    """Eligible leader replicas are forgotten, as after a change of min.insync.replicas (KIP-966)."""

    topic_name: String  # empty: in all topics


class RemoveTopicRecord(MetadataRecord, type=9, versions="0", flexible="0+"):
    """A topic has been deleted, with its partitions and settings."""

    topic_id: Uuid


class ConfigRecord(MetadataRecord, type=4, versions="0", flexible="0+"):
    """A setting has been made or taken back, by AlterConfigs, IncrementalAlterConfigs or CreateTopics."""

    resource_type: Int8  # 2: topic, 4: broker, 16: client metrics, 32: group
    resource_name: String  # topic, broker id, ...; empty with type 4: default of all brokers
    name: String  # of the setting
    value: String | None  # null: taken back, the default counts again

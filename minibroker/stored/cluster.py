"""Matters of the whole cluster: records of the metadata log.

They live in __cluster_metadata-0 and in its snapshots, written by the active controller and replayed by every
controller and broker: feature levels, blocks of producer ids, and the brackets that make many records one change.
"""

from __future__ import annotations

from minibroker.schema.types import Int8, Int16, Int32, Int64, String, since
from minibroker.stored.kinds import MetadataRecord


class FeatureLevelRecord(MetadataRecord, type=12, versions="0", flexible="0+"):
    """A feature has been finalized at a level: all brokers now work by it.

    metadata.version comes first in every log and snapshot, for it says which versions the records that follow may have.
    """

    name: String  # for example metadata.version, transaction.version, group.version
    feature_level: Int16  # 0: switched off; otherwise a level that every broker supports


class ProducerIdsRecord(MetadataRecord, type=15, versions="0", flexible="0+"):
    """A block of 1000 producer ids has been given to a broker, which hands them out by itself."""

    broker_id: Int32  # broker that asked for the block (AllocateProducerIds)
    broker_epoch: Int64 = -1
    next_producer_id: Int64  # first id after the block, where the next block will begin


class NoOpRecord(MetadataRecord, type=20, versions="0", flexible="0+"):
    """Nothing changed: appended when the log has been idle, so that its end keeps moving and lag can be seen."""


class ZkMigrationStateRecord(MetadataRecord, type=21, versions="0", flexible="0+"):
    """How far the migration from ZooKeeper has come (KIP-866)."""

    zk_migration_state: Int8  # 0: none, born in KRaft, 1: writing to both, 2: before the copy, 3: finished


class BeginTransactionRecord(MetadataRecord, type=23, versions="0", flexible="0+"):
    """From here on records form one change, applied at its end or not at all (KIP-868).

    This has nothing to do with the transactions of producers: it lets a change be larger than one batch.
    """

    # says what the change is, for people who read the log; null: not said
    name: String | None = since("0+", default=None, tag=0)


class EndTransactionRecord(MetadataRecord, type=24, versions="0", flexible="0+"):
    """The change that BeginTransactionRecord opened is complete and takes effect."""


class AbortTransactionRecord(MetadataRecord, type=25, versions="0", flexible="0+"):
    """The change that BeginTransactionRecord opened is dropped, as after a change of controller."""

    reason: String | None = since("0+", default=None, tag=0)  # for people who read the log; null: not said

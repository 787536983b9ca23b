"""Which brokers and controllers there are: records of the metadata log.

They live in __cluster_metadata-0 and in its snapshots. The active controller writes them when a node registers,
sends a heartbeat that changes its state, or is removed; every controller and broker replays them.
"""

from __future__ import annotations

from minibroker.schema.message import Struct
from minibroker.schema.types import EMPTY, Array, Bool, Int8, Int16, Int32, Int64, String, UInt16, Uuid, since
from minibroker.stored.kinds import MetadataRecord


class RegisterBrokerRecord(MetadataRecord, type=0, versions="0-4", flexible="0+"):
    """A broker has registered, with its addresses and what it supports.

    v1: controlled shutdown, v2: migration from ZooKeeper, v3: log directories (KIP-858), v4: cordoned directories.
    """

    broker_id: Int32
    # true: still run by ZooKeeper, registered only for the migration to KRaft (KIP-866)
    is_migrating_zk_broker: Bool = since("2+", default=False)
    incarnation_id: Uuid  # random for every start of the process: tells a repeated registration from a restarted broker
    # larger at every registration; requests with an older one come from an earlier life of the broker
    broker_epoch: Int64
    end_points: Array[BrokerEndpoint]  # one per listener
    # feature levels the broker can work with, so that none is finalized that it does not know
    features: Array[BrokerFeature]
    rack: String | None  # null: not configured; replicas are spread over racks
    # true: leads no partition and is not shown to clients, until its heartbeat says that it has caught up
    fenced: Bool = True
    # true: wants to stop, so leaderships are moved away from it
    in_controlled_shutdown: Bool = since("1+", default=False)
    # ids of the log directories that work (KIP-858); the id stands in meta.properties of each
    log_dirs: Array[Uuid] = since("3+", default=EMPTY, tag=0)
    # ids of log directories that get no new replicas (KIP-1066)
    cordoned_log_dirs: Array[Uuid] | None = since("4+", default=None, tag=1)

    class BrokerEndpoint(Struct):
        name: String  # listener name, not a host name
        host: String
        port: UInt16
        security_protocol: Int16  # 0: PLAINTEXT, 1: SSL, 2: SASL_PLAINTEXT, 3: SASL_SSL

    class BrokerFeature(Struct):
        name: String  # for example metadata.version or transaction.version
        min_supported_version: Int16  # lowest level it can work with
        max_supported_version: Int16  # highest level, inclusive


class UnregisterBrokerRecord(MetadataRecord, type=1, versions="0", flexible="0+"):
    """A broker has been removed from the cluster for good, by the UnregisterBroker request."""

    broker_id: Int32
    broker_epoch: Int64  # of the registration that ends


class BrokerRegistrationChangeRecord(MetadataRecord, type=17, versions="0-3", flexible="0+"):
    """The state of a registered broker has changed; what is absent stays as it was.

    v1: controlled shutdown, v2: log directories, v3: cordoned directories.
    """

    broker_id: Int32
    broker_epoch: Int64  # of the registration that this changes
    fenced: Int8 = since("0+", default=0, tag=0)  # -1: unfenced, 0: no change, 1: fenced
    # 0: no change, 1: has begun; only a new registration ends it
    in_controlled_shutdown: Int8 = since("1+", default=0, tag=1)
    log_dirs: Array[Uuid] = since("2+", default=EMPTY, tag=2)  # empty: no change
    # null: no change, empty: none is cordoned any more (KIP-1066)
    cordoned_log_dirs: Array[Uuid] | None = since("3+", default=None, tag=3)


class FenceBrokerRecord(MetadataRecord, type=7, versions="0", flexible="0+"):
    """A broker was fenced: the form before BrokerRegistrationChangeRecord, still read."""

    id: Int32  # broker id
    epoch: Int64  # broker epoch of the registration that this changes


class UnfenceBrokerRecord(MetadataRecord, type=8, versions="0", flexible="0+"):
    """A broker was unfenced: the form before BrokerRegistrationChangeRecord, still read."""

    id: Int32  # broker id
    epoch: Int64  # broker epoch of the registration that this changes


class RegisterControllerRecord(MetadataRecord, type=27, versions="0", flexible="0+"):
    """A controller has registered with the active controller, at its start (KIP-919)."""

    controller_id: Int32
    incarnation_id: Uuid  # random for every start of the process
    zk_migration_ready: Bool  # true: configured for the migration from ZooKeeper, which begins when all controllers are
    end_points: Array[ControllerEndpoint]  # one per listener of the controller
    features: Array[ControllerFeature]  # feature levels the controller can work with

    class ControllerEndpoint(Struct):
        name: String  # listener name, not a host name
        host: String
        port: UInt16
        security_protocol: Int16  # 0: PLAINTEXT, 1: SSL, 2: SASL_PLAINTEXT, 3: SASL_SSL

    class ControllerFeature(Struct):
        name: String  # for example metadata.version or kraft.version
        min_supported_version: Int16  # lowest level it can work with
        max_supported_version: Int16  # highest level, inclusive


class UnregisterControllerRecord(MetadataRecord, type=29, versions="0", flexible="0+"):
    """A controller has been removed from the cluster, by UnregisterController of 4.4."""

    controller_id: Int32

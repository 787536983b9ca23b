"""The state of the cluster that the records of the metadata log describe, as of one offset.

    records -> apply -> image -> records() -> the same image

What must hold: the same records in the same order give the same image, whoever applies them: Kafka's or ours. Records
between BeginTransactionRecord and its end take effect together, at the end, or not at all.
Not here: whether a record makes sense (who writes it has decided that: controller/controller.py), bytes (records.py).
"""

from __future__ import annotations

from copy import copy

from minibroker.errors import InvalidRecord
from minibroker.metadata.features import DIRECTORIES, ELR, METADATA_VERSION, MIGRATION, MIGRATION_END

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from minibroker.stored.brokers import RegisterBrokerRecord, RegisterControllerRecord
    from minibroker.stored.kinds import MetadataRecord
    from minibroker.stored.security import (
        AccessControlEntryRecord,
        DelegationTokenRecord,
        UserScramCredentialRecord,
    )

    ConfigResource = tuple[int, str]  # type and name
    QuotaEntity = tuple[tuple[str, str | None], ...]  # type and name of each part, sorted

TOPIC, BROKER, CLIENT_METRICS, GROUP = 2, 4, 16, 32  # types of resources that have settings
NO_LEADER, NO_LEADER_CHANGE = -1, -2
UNSPECIFIED_DIRECTORY = bytes(16)
UNASSIGNED_DIRECTORY = bytes(15) + b"\1"
LOST_DIRECTORY = bytes(15) + b"\2"  # failed, or the broker does not know which one


class Partition:
    """A partition as the controller sees it: where it is and who leads it."""

    __slots__ = (
        "adding",
        "directories",
        "elr",
        "id",
        "isr",
        "last_known_elr",
        "leader",
        "leader_epoch",
        "leader_recovery_state",
        "partition_epoch",
        "removing",
        "replicas",
    )

    def __init__(self, record: Any):
        self.id: int = record.partition_id
        self.replicas: list[int] = record.replicas  # the first is the preferred leader
        self.isr: list[int] = record.isr
        self.removing: list[int] = record.removing_replicas
        self.adding: list[int] = record.adding_replicas
        self.leader: int = record.leader  # NO_LEADER: offline
        self.leader_recovery_state: int = record.leader_recovery_state  # 1: elected uncleanly
        self.leader_epoch: int = record.leader_epoch
        self.partition_epoch: int = record.partition_epoch
        # of each replica, in the same order
        self.directories: list[bytes] = record.directories or [UNSPECIFIED_DIRECTORY] * len(record.replicas)
        self.elr: list[int] = record.eligible_leader_replicas or []
        self.last_known_elr: list[int] = record.last_known_elr or []

    def change(self, record: Any) -> None:
        """Take what the change names, and count it; a leader that is named begins a new epoch."""
        if record.replicas is not None:
            self.replicas = record.replicas
            if record.directories is None and set(self.directories) <= {UNSPECIFIED_DIRECTORY}:
                self.directories = [UNSPECIFIED_DIRECTORY] * len(record.replicas)
        for name, value in (
            ("isr", record.isr),
            ("removing", record.removing_replicas),
            ("adding", record.adding_replicas),
            ("directories", record.directories),
            ("elr", record.eligible_leader_replicas),
            ("last_known_elr", record.last_known_elr),
        ):
            if value is not None:
                setattr(self, name, value)
        if record.leader != NO_LEADER_CHANGE:
            self.leader = record.leader
            self.leader_epoch += 1
        if record.leader_recovery_state >= 0:
            self.leader_recovery_state = record.leader_recovery_state
        self.partition_epoch += 1


class Topic:
    """A topic and its partitions, by their numbers from 0 on."""

    __slots__ = ("_early", "id", "name", "partitions")

    def __init__(self, name: str, topic_id: bytes):
        self.name = name
        self.id = topic_id  # 16 bytes
        self.partitions: list[Partition] = []
        self._early: dict[int, Partition] = {}  # came before one with a smaller number

    def put(self, partition: Partition) -> None:
        if partition.id < len(self.partitions):
            self.partitions[partition.id] = partition
            return
        self._early[partition.id] = partition
        while (following := self._early.pop(len(self.partitions), None)) is not None:
            self.partitions.append(following)


def metric_name(topic: str) -> str:
    """Return what Kafka's metrics call a topic: they take two letters for the same."""
    return topic.replace(".", "_")


class MetadataImage:
    """Everything that the metadata log says, up to `offset`."""

    def __init__(self) -> None:
        self.offset = -1  # of the last record that has been applied
        self.epoch = -1  # of the leader that wrote it
        self.timestamp = 0  # when, ms since 1970
        self.topics: dict[str, Topic] = {}
        self.topics_by_id: dict[bytes, Topic] = {}
        # Names with '.' or '_' by what metrics make of them, where both are the same.
        self.names_by_metric: dict[str, list[str]] = {}
        self.configs: dict[ConfigResource, dict[str, str]] = {}
        self.brokers: dict[int, RegisterBrokerRecord] = {}  # kept up to date with what happened since
        self.brokers_version = 0  # how often they, or a feature's level, may have changed
        self.controllers: dict[int, RegisterControllerRecord] = {}
        self.features: dict[str, int] = {}
        self.features_set_to_0: set[str] = set()  # not merely never raised: who needs more does not raise them either
        self.next_producer_id = 0  # where the next block begins
        self.producer_ids: MetadataRecord | None = None  # the last block
        self.client_quotas: dict[QuotaEntity, dict[str, float]] = {}
        self.client_quotas_version = 0  # how many records there were of them
        self.scram: dict[tuple[str, int], UserScramCredentialRecord] = {}
        self.acls: dict[bytes, AccessControlEntryRecord] = {}
        self.delegation_tokens: dict[str, DelegationTokenRecord] = {}
        self.zk_migration_state: int | None = None
        self.ignored: dict[int, int] = {}  # number of a kind that we do not know -> how many
        self._change: list[MetadataRecord] | None = None  # of an open transaction

    @property
    def metadata_version(self) -> int:
        return self.features.get(METADATA_VERSION, 0)

    @property
    def in_transaction(self) -> bool:
        """Whether a change has begun and not ended."""
        return self._change is not None

    def topic_configs(self, name: str) -> dict[str, str]:
        """Return the settings made for a topic."""
        return self.configs.get((TOPIC, name), {})

    # Applying

    def apply(self, record: Any) -> None:
        """Let a record take effect, or wait for the end of the change that it is part of."""
        number = record.type_number
        if number == 23:
            if self._change is not None:
                raise InvalidRecord("a change begins within a change", 0, "BeginTransactionRecord")
            self._change = []
        elif number in (24, 25):
            if self._change is None:
                raise InvalidRecord("no change has begun", 0, type(record).__name__)
            complete, self._change = self._change, None
            for waiting in complete if number == 24 else ():
                self._take(waiting)
        elif self._change is not None:
            self._change.append(record)
        else:
            self._take(record)

    def _take(self, record: Any) -> None:
        if record.type_number in _OF_BROKERS:
            self.brokers_version += 1
        number = record.type_number
        if number in _TAKE:
            _TAKE[number](self, record)
        elif number in _ENTRIES:
            attribute, key, is_there = _ENTRIES[number]
            entries = getattr(self, attribute)
            if is_there:
                entries[key(record)] = record
            else:
                entries.pop(key(record), None)
        elif number != NO_OP:
            self.ignored[number] = self.ignored.get(number, 0) + 1

    def _topic(self, record: Any) -> None:
        topic = Topic(record.name, bytes(record.topic_id))
        self.topics[topic.name] = self.topics_by_id[topic.id] = topic
        if "." in topic.name or "_" in topic.name:
            self.names_by_metric.setdefault(metric_name(topic.name), []).append(topic.name)

    def _partition(self, record: Any) -> None:
        self._topic_of(record).put(Partition(record))

    def _partition_change(self, record: Any) -> None:
        partitions = self._topic_of(record).partitions
        if not 0 <= record.partition_id < len(partitions):
            raise InvalidRecord(f"no partition {record.partition_id} to change", 0, type(record).__name__)
        partitions[record.partition_id].change(record)

    def _topic_of(self, record: Any) -> Topic:
        topic = self.topics_by_id.get(bytes(record.topic_id))
        if topic is None:
            raise InvalidRecord(f"no topic has the id {bytes(record.topic_id).hex()}", 0, type(record).__name__)
        return topic

    def _clear_elr(self, record: Any) -> None:
        topics = [self.topics[record.topic_name]] if record.topic_name else self.topics.values()
        for topic in topics:
            for partition in topic.partitions:
                partition.elr = partition.last_known_elr = []

    def _remove_topic(self, record: Any) -> None:
        topic = self._topic_of(record)
        del self.topics_by_id[topic.id]
        del self.topics[topic.name]
        if "." in topic.name or "_" in topic.name:
            names = self.names_by_metric[metric_name(topic.name)]
            names.remove(topic.name)
            if not names:
                del self.names_by_metric[metric_name(topic.name)]
        self.configs.pop((TOPIC, topic.name), None)

    def _config(self, record: Any) -> None:
        resource = (record.resource_type, record.resource_name)
        settings = self.configs.setdefault(resource, {})
        if record.value is None:
            settings.pop(record.name, None)
        else:
            settings[record.name] = record.value
        if not settings:
            del self.configs[resource]

    def _register_broker(self, record: Any) -> None:
        self.brokers[record.broker_id] = copy(record)  # it will be changed, and other images may share the record

    def _broker_change(self, record: Any) -> None:
        broker = self._broker(record.broker_id, record)
        if record.fenced:
            broker.fenced = record.fenced > 0
        if record.in_controlled_shutdown:
            broker.in_controlled_shutdown = True
        if record.log_dirs:
            broker.log_dirs = record.log_dirs
        if record.cordoned_log_dirs is not None:
            broker.cordoned_log_dirs = record.cordoned_log_dirs

    def _fence(self, record: Any) -> None:
        self._broker(record.id, record).fenced = True

    def _unfence(self, record: Any) -> None:
        self._broker(record.id, record).fenced = False

    def _broker(self, broker_id: int, record: Any) -> RegisterBrokerRecord:
        if broker_id not in self.brokers:
            raise InvalidRecord(f"broker {broker_id} is not registered", 0, type(record).__name__)
        return self.brokers[broker_id]

    def _feature(self, record: Any) -> None:
        if record.feature_level:
            self.features[record.name] = record.feature_level
            self.features_set_to_0.discard(record.name)
        else:
            self.features.pop(record.name, None)
            self.features_set_to_0.add(record.name)

    def _producer_ids(self, record: Any) -> None:
        self.next_producer_id = record.next_producer_id
        self.producer_ids = record

    def _zk_migration_state(self, record: Any) -> None:
        self.zk_migration_state = record.zk_migration_state

    def _client_quota(self, record: Any) -> None:
        self.client_quotas_version += 1
        entity = quota_entity(record)
        limits = self.client_quotas.setdefault(entity, {})
        if record.remove:
            limits.pop(record.key, None)
        else:
            limits[record.key] = record.value
        if not limits:
            del self.client_quotas[entity]

    # Making it anew

    def records(self) -> Iterator[MetadataRecord]:
        """Yield records that make this image out of an empty one, in the order of Kafka's snapshots."""
        from minibroker.stored.cluster import FeatureLevelRecord, ZkMigrationStateRecord
        from minibroker.stored.security import ClientQuotaRecord
        from minibroker.stored.topics import ConfigRecord

        # metadata.version comes first, for it says how the rest is to be read.
        for name in sorted(self.features, key=lambda name: (name != METADATA_VERSION, name)):
            yield FeatureLevelRecord(name=name, feature_level=self.features[name])
        # Kafka: forgets these with the next snapshot, for nothing there raises a feature by itself.
        for name in sorted(self.features_set_to_0):
            yield FeatureLevelRecord(name=name, feature_level=0)
        if self.zk_migration_state is not None and MIGRATION <= self.metadata_version < MIGRATION_END:
            yield ZkMigrationStateRecord(zk_migration_state=self.zk_migration_state)
        yield from self.brokers.values()
        yield from self.controllers.values()
        yield from self._topic_records()
        for (kind, resource), settings in self.configs.items():
            for name, value in settings.items():
                yield ConfigRecord(resource_type=kind, resource_name=resource, name=name, value=value)
        for entity, limits in self.client_quotas.items():
            parts = [ClientQuotaRecord.EntityData(entity_type=kind, entity_name=name) for kind, name in entity]
            for key, limit in limits.items():
                yield ClientQuotaRecord(entity=parts, key=key, value=limit, remove=False)
        if self.producer_ids is not None:
            yield self.producer_ids
        yield from self.acls.values()
        yield from self.scram.values()
        yield from self.delegation_tokens.values()

    def _topic_records(self) -> Iterator[MetadataRecord]:
        from minibroker.stored.topics import TopicRecord

        for topic in self.topics.values():
            yield TopicRecord(name=topic.name, topic_id=topic.id)
            for partition in topic.partitions:
                yield partition_record(topic.id, partition, self.metadata_version)


def partition_record(topic_id: bytes, partition: Partition, metadata_version: int) -> MetadataRecord:
    """Return the record of a partition in full, with what the metadata.version can say."""
    from minibroker.stored.topics import PartitionRecord

    return PartitionRecord(
        partition_id=partition.id,
        topic_id=topic_id,
        replicas=partition.replicas,
        isr=partition.isr,
        removing_replicas=partition.removing,
        adding_replicas=partition.adding,
        leader=partition.leader,
        leader_recovery_state=partition.leader_recovery_state,
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
        directories=partition.directories if metadata_version >= DIRECTORIES else [],
        eligible_leader_replicas=(partition.elr or None) if metadata_version >= ELR else None,
        last_known_elr=(partition.last_known_elr or None) if metadata_version >= ELR else None,
    )


_OF_BROKERS = frozenset((0, 1, 7, 8, 12, 17))  # kinds that change brokers or features
NO_OP = 20
_ENTRIES: dict[int, tuple[str, Callable[[Any], object], bool]] = {  # records that are kept as they are, or end one
    1: ("brokers", lambda record: record.broker_id, False),
    10: ("delegation_tokens", lambda record: record.token_id, True),
    11: ("scram", lambda record: (record.name, record.mechanism), True),
    18: ("acls", lambda record: bytes(record.id), True),
    19: ("acls", lambda record: bytes(record.id), False),
    22: ("scram", lambda record: (record.name, record.mechanism), False),
    26: ("delegation_tokens", lambda record: record.token_id, False),
    27: ("controllers", lambda record: record.controller_id, True),
    29: ("controllers", lambda record: record.controller_id, False),
}
_TAKE = {  # by number of the kind
    0: MetadataImage._register_broker,
    2: MetadataImage._topic,
    3: MetadataImage._partition,
    4: MetadataImage._config,
    5: MetadataImage._partition_change,
    7: MetadataImage._fence,
    8: MetadataImage._unfence,
    9: MetadataImage._remove_topic,
    12: MetadataImage._feature,
    14: MetadataImage._client_quota,
    15: MetadataImage._producer_ids,
    17: MetadataImage._broker_change,
    21: MetadataImage._zk_migration_state,
    28: MetadataImage._clear_elr,
}


def quota_entity(record: Any) -> QuotaEntity:
    """Return whom a record limits (ClientQuotaRecord)."""
    return tuple(sorted(((part.entity_type, part.entity_name) for part in record.entity), key=lambda part: part[0]))

"""The controller: turns a wish into the records that fulfil it, or into the error that Kafka's controller answers.

Pure: it reads the image and writes nothing. Whoever calls appends the records to the metadata log, which applies them
to the image; for validate_only they are dropped. A wish that fails has changed nothing.

Topics, partitions, settings, features and producer ids are here. Elsewhere, as functions of a controller:

    registrations.py     brokers register, tell that they live, stop in order, and are fenced when they fall silent
    partitions.py        a leader changes the ISR (AlterPartition)
    elections.py         an administrator, or time, asks for another leader (ElectLeaders)
    reassignment.py      replicas move (AlterPartitionReassignments)
    partition_change.py  what all of them do to one partition: who leads, who is in sync, who is eligible
"""

from __future__ import annotations

from minibroker.controller.placement import (
    CHECKED_US,
    PIECE,
    PLACED_US,
    as_assigned,
    check_assignment,
    new_partition,
    place,
)
from minibroker.errors import Error, KafkaError
from minibroker.in_pieces import at_once
from minibroker.metadata.bootstrap import METADATA_TOPIC
from minibroker.metadata.features import ELR, ELR_VERSION, METADATA_VERSION
from minibroker.metadata.image import BROKER, TOPIC, metric_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Required, TypedDict, Unpack

    from minibroker.in_pieces import InPieces
    from minibroker.metadata.image import MetadataImage, Topic
    from minibroker.stored.kinds import MetadataRecord

    # Looks at all settings that a resource would have; raises KafkaError(INVALID_CONFIG).
    CheckConfigs = Callable[[int, str, Mapping[str, str]], object]

    class TopicWish(TypedDict, total=False):
        """What a new topic is to be like: numbers, of which -1 takes the default, or the brokers of each partition."""

        partitions: Required[int]
        replication_factor: Required[int]
        assignments: Sequence[tuple[int, Sequence[int]]]  # instead of both numbers, which must be -1 then
        configs: Mapping[str, str | None] | None
        default_partitions: int
        default_replication_factor: int


NAME_LENGTH_MAX = 249
NAME_LETTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")
RECORDS_MAX = 10_000  # of one wish
PRODUCER_IDS = 1000  # in a block
MIN_ISR = "min.insync.replicas"
UNCLEAN_ELECTION = "unclean.leader.election.enable"
UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3  # of UpdateFeatures

NO_TOPIC = "This server does not host this topic-partition."
NO_TOPIC_ID = "This server does not host this topic ID."


class Controller:
    """What the cluster does when asked. One object for the life of an image."""

    def __init__(
        self,
        image: MetadataImage,
        *,
        node_id: int,
        new_id: Callable[[], bytes],
        check_configs: CheckConfigs,
        supported_features: Mapping[str, tuple[int, int]],
        settings: Mapping[str, str] | None = None,
    ):
        """new_id: draws the id of a topic. supported_features: lowest and highest level of each, of this controller.

        settings: those of the controller's own properties, as text; what they leave out has Kafka's default.
        """
        self.image = image
        self.node_id = node_id
        self.new_id = new_id
        self.check_configs = check_configs
        self.supported_features = supported_features
        self.settings = settings or {}
        self._next_place: int | None = None  # where the next partition goes, as a number to be counted on; None: unset

    # Topics

    def create_topic_in_pieces(self, name: str, **wish: Unpack[TopicWish]) -> InPieces[list[MetadataRecord]]:
        """Return the records of a new topic; if others came in meanwhile, `facts` and its name are looked at again."""
        from minibroker.stored.topics import ConfigRecord, TopicRecord

        settings, placed, count, factor = yield from self._checked_topic(name, **wish)
        topic_id = self.new_id()
        records: list[MetadataRecord] = [TopicRecord(name=name, topic_id=topic_id)]
        records += [
            ConfigRecord(resource_type=TOPIC, resource_name=name, name=key, value=value)
            for key, value in settings.items()
        ]
        return (yield from self._add_partitions(records, topic_id, 0, count, factor, placed))

    create_topic = at_once(create_topic_in_pieces)

    def try_topic(self, name: str, **wish: Unpack[TopicWish]) -> InPieces[tuple[bytes, int, int]]:
        """Return id, number of partitions and replication factor of a topic that could be made, and make none of it."""
        _, _, count, factor = yield from self._checked_topic(name, **wish)
        return self.new_id(), count, factor

    def _checked_topic(
        self,
        name: str,
        *,
        partitions: int,
        replication_factor: int,
        assignments: Sequence[tuple[int, Sequence[int]]] = (),
        configs: Mapping[str, str | None] | None = None,
        default_partitions: int = 1,
        default_replication_factor: int = 1,
    ) -> InPieces[tuple[dict[str, str], list[list[int]] | None, int, int]]:
        """Return settings, brokers of each partition if they are assigned, number of partitions, replication factor."""
        settings = self.check_new_topic(name, configs)
        placed = None
        if assignments:
            placed = yield from as_assigned(self.image, partitions, replication_factor, assignments)
            count, factor = len(placed), len(placed[0])
        else:
            count = default_partitions if partitions == -1 else partitions
            factor = default_replication_factor if replication_factor == -1 else replication_factor
            self._check_numbers(partitions, replication_factor, count, factor)
        _check_count(1 + len(settings) + count)
        return settings, placed, count, factor

    def facts(self, name: str) -> tuple[object, ...]:
        """Return what decisions about the partitions of a topic rest on: they hold as long as it is the same.

        It does not come back when it has changed: of brokers it is how often they have, for what is decided in pieces
        may have seen one of them fenced that was active before and is again.
        """
        topic = self.image.topics.get(name)
        present = None if topic is None else (topic.id, len(topic.partitions))
        return present, self.image.brokers_version

    def check_new_topic(self, name: str, configs: Mapping[str, str | None] | None) -> dict[str, str]:
        """Return the settings of a new topic; raise the error for them or its name."""
        self.check_new_name(name)
        absent = [key for key, value in (configs or {}).items() if value is None]
        if absent:
            raise KafkaError(Error.INVALID_CONFIG, f"Null value not supported for topic configs: {','.join(absent)}")
        settings = {key: value for key, value in (configs or {}).items() if value is not None}
        if settings:
            self.check_configs(TOPIC, name, settings)
        return settings

    def check_new_name(self, name: str) -> None:
        """Raise the error for a name that a topic cannot have, or that one has already."""
        check_name(name)
        if name == METADATA_TOPIC:
            raise KafkaError(Error.INVALID_REQUEST, f"Creation of internal topic {name} is prohibited.")
        if name in self.image.topics:
            raise KafkaError(Error.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
        others = self.image.names_by_metric.get(metric_name(name))
        if others:
            raise KafkaError(Error.INVALID_TOPIC_EXCEPTION, f"Topic '{name}' collides with existing topic: {others[0]}")

    def delete_topic(self, *, name: str | None = None, topic_id: bytes | None = None) -> list[MetadataRecord]:
        """Return the record that ends a topic, its partitions and its settings."""
        from minibroker.stored.topics import RemoveTopicRecord

        topic = self.get_topic(name) if name is not None else self.get_topic_by_id(topic_id or bytes(16))
        return [RemoveTopicRecord(topic_id=topic.id)]

    def create_partitions_in_pieces(
        self, name: str, count: int, assignments: Sequence[Sequence[int]] | None = None
    ) -> InPieces[list[MetadataRecord]]:
        """Return the records of more partitions for a topic, `count` being how many it then has.

        If others came in meanwhile, `facts` is to be looked at again.
        """
        topic, present = self.get_topic(name), len(self.get_topic(name).partitions)
        placed = yield from self.try_partitions(name, count, assignments)
        factor = len(topic.partitions[0].replicas)
        return (yield from self._add_partitions([], topic.id, present, count - present, factor, placed))

    create_partitions = at_once(create_partitions_in_pieces)

    def try_partitions(
        self, name: str, count: int, assignments: Sequence[Sequence[int]] | None = None
    ) -> InPieces[list[list[int]] | None]:
        """Raise the error for partitions that cannot be made; return the assignments that have been checked."""
        topic = self.get_topic(name)
        present = len(topic.partitions)
        if count == present:
            raise KafkaError(Error.INVALID_PARTITIONS, f"Topic already has {present} partition(s).")
        if count < present:
            raise KafkaError(
                Error.INVALID_PARTITIONS,
                f"The topic {name} currently has {present} partition(s); {count} would not be an increase.",
            )
        replication_factor = len(topic.partitions[0].replicas)
        if assignments is None:
            _check_count(count - present)
            place(self.image, 0, 1, replication_factor)
            return None
        if len(assignments) != count - present:
            raise KafkaError(
                Error.INVALID_REPLICA_ASSIGNMENT,
                f"Attempted to add {count - present} additional partition(s), but only {len(assignments)} "
                "assignment(s) were specified.",
            )
        placed = []
        for index, replicas in enumerate(assignments):
            placed.append(check_assignment(self.image, present + index, replicas, replication_factor))
            if not len(placed) % PIECE:
                yield PIECE * CHECKED_US
        _check_count(len(placed))
        return placed

    def _add_partitions(
        self,
        records: list[MetadataRecord],
        topic_id: bytes,
        first: int,
        count: int,
        replication_factor: int,
        placed: list[list[int]] | None,
    ) -> InPieces[list[MetadataRecord]]:
        """Add the records of partitions from `first` on; placed: their brokers, None: they are chosen here."""
        start = self._take_places(count) if placed is None else 0
        for done in range(0, count, PIECE):
            size = min(PIECE, count - done)
            if placed is None:
                share = place(self.image, start + done, size, replication_factor)
            else:
                share = placed[done : done + size]
            records += [
                new_partition(self.image, topic_id, first + done + index, replicas)
                for index, replicas in enumerate(share)
            ]
            if size == PIECE:
                yield PIECE * PLACED_US
        return records

    def _check_numbers(self, partitions: int, replication_factor: int, count: int, factor: int) -> None:
        """Raise the error for numbers that cannot be; count and factor: with the defaults."""
        if replication_factor < -1 or replication_factor == 0:
            raise KafkaError(
                Error.INVALID_REPLICATION_FACTOR,
                "Replication factor must be larger than 0, or -1 to use the default value.",
            )
        if partitions < -1 or partitions == 0:
            raise KafkaError(Error.INVALID_PARTITIONS, "Number of partitions was set to an invalid non-positive value.")
        _check_count(count)
        try:
            place(self.image, 0, 1, factor)
        except KafkaError as error:
            raise KafkaError(
                error.code, f"Unable to replicate the partition {factor} time(s): {error.message}"
            ) from error

    def _take_places(self, count: int) -> int:
        """Return where new partitions go: on from where the last topic ended, so that all brokers lead as many."""
        if self._next_place is None:
            self._next_place = sum(len(topic.partitions) for topic in self.image.topics.values())
        first = self._next_place
        self._next_place += count
        return first

    def get_topic(self, name: str) -> Topic:
        topic = self.image.topics.get(name)
        if topic is None:
            raise KafkaError(Error.UNKNOWN_TOPIC_OR_PARTITION, NO_TOPIC)
        return topic

    def get_topic_by_id(self, topic_id: bytes) -> Topic:
        topic = self.image.topics_by_id.get(topic_id)
        if topic is None:
            raise KafkaError(Error.UNKNOWN_TOPIC_ID, NO_TOPIC_ID)
        return topic

    # Settings

    def alter_configs(
        self, resource_type: int, resource_name: str, changes: Mapping[str, str | None]
    ) -> list[MetadataRecord]:
        """Return the records that make settings, or take back those whose value is None; others stay."""
        from minibroker.stored.topics import ConfigRecord

        present = self.image.configs.get((resource_type, resource_name), {})
        # For brokers also what stays the same is written: they read files that settings name anew.
        told = {name: value for name, value in changes.items() if present.get(name) != value or resource_type == BROKER}
        self._check_min_isr(resource_type, resource_name, told)
        settled = {name: value for name, value in {**present, **told}.items() if value is not None}
        self.check_configs(resource_type, resource_name, settled)
        self._check_resource(resource_type, resource_name)
        return bounded(
            [
                ConfigRecord(resource_type=resource_type, resource_name=resource_name, name=name, value=value)
                for name, value in told.items()
            ]
        )

    def _check_resource(self, resource_type: int, name: str) -> None:
        if resource_type == TOPIC and name not in self.image.topics:
            raise KafkaError(Error.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")
        if resource_type == BROKER and name and int(name) not in self.image.brokers:
            raise KafkaError(Error.BROKER_ID_NOT_REGISTERED, f"No broker with id {name} found.")

    def _check_min_isr(self, resource_type: int, name: str, changes: Mapping[str, str | None]) -> None:
        """All brokers must agree on min.insync.replicas where the controller goes by it (KIP-966)."""
        if resource_type != BROKER or MIN_ISR not in changes or not self.has_elr:
            return
        if name:
            raise KafkaError(Error.INVALID_CONFIG, f"Broker-level {MIN_ISR} cannot be altered while ELR is enabled.")
        if changes[MIN_ISR] is None:
            raise KafkaError(Error.INVALID_CONFIG, f"Cluster-level {MIN_ISR} cannot be removed while ELR is enabled.")

    @property
    def has_elr(self) -> bool:
        """Whether replicas outside the ISR may be eligible leaders (KIP-966)."""
        return self.image.metadata_version >= ELR and self.image.features.get(ELR_VERSION, 0) > 0

    def min_in_sync(self, topic: Topic) -> int:
        """Return how many replicas must be in sync for a partition of a topic to take writes with acks=all."""
        wanted = int(self._topic_setting(topic.name, MIN_ISR) or 1)
        return min(wanted, len(topic.partitions[0].replicas))

    def elects_uncleanly(self, topic: Topic) -> bool:
        """Return whether a replica that is not in sync may lead when there is no other."""
        return (self._topic_setting(topic.name, UNCLEAN_ELECTION) or "").strip().lower() == "true"

    def _topic_setting(self, topic: str, name: str) -> str | None:
        for resource in ((TOPIC, topic), (BROKER, str(self.node_id)), (BROKER, "")):
            value = self.image.configs.get(resource, {}).get(name)
            if value is not None:
                return value
        return self.settings.get(name)

    # Brokers and producer ids

    def check_broker_epoch(self, broker_id: int, broker_epoch: int) -> None:
        """Raise unless a request comes from the life of a broker that is registered now."""
        broker = self.image.brokers.get(broker_id)
        if broker is None:
            raise KafkaError(Error.STALE_BROKER_EPOCH, f"No broker registration found for broker id {broker_id}")
        if broker.broker_epoch != broker_epoch:
            raise KafkaError(
                Error.STALE_BROKER_EPOCH,
                f"Expected broker epoch {broker.broker_epoch}, but got broker epoch {broker_epoch}",
            )

    def allocate_producer_ids(self, broker_id: int, broker_epoch: int) -> tuple[list[MetadataRecord], int, int]:
        """Return the record that gives a broker a block of producer ids, the first id and how many there are."""
        from minibroker.stored.cluster import ProducerIdsRecord

        if broker_id not in self.image.brokers:
            raise KafkaError(Error.BROKER_ID_NOT_REGISTERED, f"broker {broker_id} is not registered")
        self.check_broker_epoch(broker_id, broker_epoch)
        first = self.image.next_producer_id
        record = ProducerIdsRecord(
            broker_id=broker_id, broker_epoch=broker_epoch, next_producer_id=first + PRODUCER_IDS
        )
        return [record], first, PRODUCER_IDS

    # Features

    def update_features(self, updates: Sequence[tuple[str, int, int]]) -> list[MetadataRecord]:
        """Return the records that finalize features: name, level and type of each update."""
        from minibroker.stored.cluster import FeatureLevelRecord

        for name, level, kind in updates:
            reason = self._why_not(name, level, kind)
            if reason:
                raise KafkaError(
                    Error.INVALID_UPDATE_VERSION, f"Invalid update version {level} for feature {name}. {reason}"
                )
            if name == METADATA_VERSION and level < self.image.metadata_version:
                raise KafkaError(
                    Error.INVALID_UPDATE_VERSION,
                    f"Invalid metadata.version {level}. Refusing to perform the requested downgrade because it might "
                    "delete metadata information.",
                )
        return [FeatureLevelRecord(name=name, feature_level=level) for name, level, _ in updates]

    def _why_not(self, name: str, level: int, kind: int) -> str:
        if kind not in (UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE):
            return "The controller does not support the given upgrade type."
        if level < 0:
            return "A feature version cannot be less than 0."
        lowest, highest = self.supported_features.get(name, (0, 0))
        if not lowest <= level <= highest:
            if not highest:
                return f"Local controller {self.node_id} does not support this feature."
            versions = f"{lowest}-{highest}" if lowest != highest else str(lowest)
            return f"Local controller {self.node_id} only supports versions {versions}"
        current = self.image.features.get(name, 0)
        if level < current and kind == UPGRADE:
            return (
                "Can't downgrade the version of this feature without setting the upgrade type to either safe or "
                "unsafe downgrade."
            )
        if level > current and kind != UPGRADE:
            return "Can't downgrade to a newer version."
        return ""


def check_name(name: str) -> None:
    """Raise the error for a name that no topic can have."""
    reason = ""
    if not name:
        reason = "the empty string is not allowed"
    elif name in (".", ".."):
        reason = f"'{name}' is not allowed"
    elif len(name) > NAME_LENGTH_MAX:
        reason = f"the length of '{name}' is longer than the max allowed length {NAME_LENGTH_MAX}"
    elif not NAME_LETTERS.issuperset(name):
        reason = f"'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
    if reason:
        raise KafkaError(Error.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {reason}")


def _check_count(count: int) -> None:
    """Refuse before anything is made of a number that is far too large."""
    if count > RECORDS_MAX:
        raise _too_many()


def bounded(records: list[MetadataRecord]) -> list[MetadataRecord]:
    """Refuse what one wish may not do at once."""
    if len(records) > RECORDS_MAX:
        raise _too_many()
    return records


def _too_many() -> KafkaError:
    return KafkaError(Error.POLICY_VIOLATION, "Unable to perform excessively large batch operation.")

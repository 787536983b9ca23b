"""The life of a broker as the controller writes it down, and who leads while one is away.

    start:  fence what a killed one left, register, unfence: partitions without a leader get one
    stop:   controlled shutdown: its partitions go to others, or have no leader; then fenced

Each step is records for the metadata log and looks at the image that the step before has changed, so both are
generators: append what one yields before asking for the next.

    for records in brokers.starting(controller, ...):
        metadata_log.append(records, now_ms=now_ms)

What must hold: a leader is in the ISR, or was eligible when the ISR was empty (KIP-966); every change of leader, also
to none and back, raises the leader epoch. So a restart of a single broker raises it by two, as with Kafka.
"""

from __future__ import annotations

from minibroker.metadata.features import DIRECTORIES
from minibroker.metadata.image import BROKER, NO_LEADER, NO_LEADER_CHANGE, TOPIC
from minibroker.replication.controller import MIN_ISR
from minibroker.replication.placement import is_active

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from minibroker.metadata.image import MetadataImage, Partition
    from minibroker.replication.controller import Controller
    from minibroker.stored.kinds import MetadataRecord

UNFENCED, FENCED = -1, 1  # in a change of registration
RECOVERING = 1  # leader recovery state after an unclean election
SECURITY_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")  # by number


def starting(
    controller: Controller,
    broker_id: int,
    *,
    next_offset: Callable[[], int],
    incarnation_id: bytes,
    endpoints: Sequence[tuple[str, str, int, str]],
    log_dirs: Sequence[bytes],
    rack: str | None = None,
    clean_epoch: int | None = None,
) -> Iterator[list[MetadataRecord]]:
    """Yield the steps by which a broker that starts comes to lead its partitions.

    next_offset: of the metadata log. endpoints: listener, host, port and security protocol of each. clean_epoch: the
    broker epoch in the mark of a clean stop; another one than the last means that data may have been lost.
    """
    registered = controller.image.brokers.get(broker_id)
    if registered is not None and not registered.fenced:
        yield [*_without(controller, broker_id), _change(controller.image, broker_id, fenced=FENCED)]
    cleaned: list[MetadataRecord] = []
    if registered is not None and clean_epoch != registered.broker_epoch:
        cleaned = _forget_eligible(controller, broker_id)
    yield [
        *cleaned,
        _registration(
            controller,
            broker_id,
            next_offset(),
            incarnation_id,
            endpoints,
            rack,
            log_dirs if controller.image.metadata_version >= DIRECTORIES else (),
        ),
    ]
    yield [_change(controller.image, broker_id, fenced=UNFENCED), *_back(controller, broker_id)]


def stopping(controller: Controller, broker_id: int) -> Iterator[list[MetadataRecord]]:
    """Yield the steps by which a broker that stops in order gives up its partitions."""
    yield [
        _change(controller.image, broker_id, in_controlled_shutdown=1),
        *_without(controller, broker_id),
    ]
    yield [_change(controller.image, broker_id, fenced=FENCED)]


def _registration(
    controller: Controller,
    broker_id: int,
    broker_epoch: int,
    incarnation_id: bytes,
    endpoints: Sequence[tuple[str, str, int, str]],
    rack: str | None,
    log_dirs: Sequence[bytes],
) -> MetadataRecord:
    from minibroker.stored.brokers import RegisterBrokerRecord

    return RegisterBrokerRecord(
        broker_id=broker_id,
        incarnation_id=incarnation_id,
        broker_epoch=broker_epoch,  # the offset at which the step begins
        end_points=[
            RegisterBrokerRecord.BrokerEndpoint(
                name=name, host=host, port=port, security_protocol=SECURITY_PROTOCOLS.index(protocol)
            )
            for name, host, port, protocol in endpoints
        ],
        features=[
            RegisterBrokerRecord.BrokerFeature(name=name, min_supported_version=lowest, max_supported_version=highest)
            for name, (lowest, highest) in controller.supported_features.items()
        ],
        rack=rack,
        fenced=True,
        log_dirs=list(log_dirs),
    )


def _change(
    image: MetadataImage, broker_id: int, *, fenced: int = 0, in_controlled_shutdown: int = 0
) -> MetadataRecord:
    from minibroker.stored.brokers import BrokerRegistrationChangeRecord

    epoch = image.brokers[broker_id].broker_epoch
    return BrokerRegistrationChangeRecord(
        broker_id=broker_id, broker_epoch=epoch, fenced=fenced, in_controlled_shutdown=in_controlled_shutdown
    )


# Partitions


def _without(controller: Controller, broker_id: int) -> list[MetadataRecord]:
    """Return what changes in the partitions when a broker goes."""
    return _changes(controller, lambda partition: broker_id in partition.isr, gone=broker_id)


def _back(controller: Controller, broker_id: int) -> list[MetadataRecord]:
    """Return what changes in the partitions without a leader now that a broker is there."""
    return _changes(
        controller,
        lambda partition: partition.leader == NO_LEADER and broker_id in partition.replicas,
        back=broker_id,
    )


def _forget_eligible(controller: Controller, broker_id: int) -> list[MetadataRecord]:
    """Return what changes when a broker may have lost records: it is no eligible leader any more."""
    return _changes(controller, lambda partition: broker_id in partition.elr, gone=broker_id, lossy=broker_id)


def _changes(
    controller: Controller,
    concerns: Callable[[Partition], bool],
    *,
    gone: int | None = None,
    back: int | None = None,
    lossy: int | None = None,
) -> list[MetadataRecord]:
    found = []
    for topic in controller.image.topics.values():
        for partition in topic.partitions:
            if concerns(partition):
                wanted = _Change(controller, topic.name, partition, gone=gone, back=back, lossy=lossy)
                record = wanted.record(topic.id)
                if record is not None:
                    found.append(record)
    return found


class _Change:
    """What becomes of one partition when a broker goes or comes."""

    def __init__(
        self,
        controller: Controller,
        topic: str,
        partition: Partition,
        *,
        gone: int | None,
        back: int | None,
        lossy: int | None,
    ):
        self.controller = controller
        self.partition = partition
        self.gone = gone
        self.back = back
        self.isr = [broker for broker in partition.isr if broker != gone]
        self.elr: list[int] = []
        self.is_unclean = False
        if controller.has_elr and len(self.isr) < self._min_isr(topic):
            candidates = dict.fromkeys([*partition.elr, *partition.isr])
            self.elr = [broker for broker in candidates if broker not in self.isr and broker != lossy]

    def record(self, topic_id: bytes) -> MetadataRecord | None:
        """Return the record, None if nothing changes."""
        from minibroker.stored.topics import PartitionChangeRecord

        before, has_elr = self.partition, self.controller.has_elr
        leader = self._elect()
        if leader in self.elr:
            self.isr = [leader]
            self.elr = [broker for broker in self.elr if broker != leader]
        elif self.is_unclean:
            self.isr, self.elr = [leader], []
        changes: dict[str, object] = {}
        if leader != before.leader:
            changes["leader"] = leader
        # Only where replicas can be eligible without being in sync does nobody stay in sync.
        if self.isr != before.isr and (self.isr or has_elr):
            changes["isr"] = self.isr
        if self.is_unclean and before.leader_recovery_state != RECOVERING:
            changes["leader_recovery_state"] = RECOVERING
        if self.elr != before.elr:
            changes["eligible_leader_replicas"] = self.elr
        if has_elr:
            if changes.get("isr") == [] and before.last_known_elr != [before.leader]:
                changes["last_known_elr"] = [before.leader]
            elif leader != NO_LEADER and before.last_known_elr:
                changes["last_known_elr"] = []
        if not changes:
            return None
        changes.setdefault("leader", NO_LEADER_CHANGE)
        return PartitionChangeRecord(partition_id=before.id, topic_id=topic_id, **changes)  # type: ignore[arg-type]

    def _elect(self) -> int:
        """Return who leads: who does if possible, else the first replica that may."""
        before = self.partition
        for broker in (before.leader, *before.replicas):
            if self._is_alive(broker) and broker in (self.isr or self.elr):
                return broker
        if self.controller.has_elr and not self.isr and not self.elr and len(before.last_known_elr) == 1:
            # Better the one that led last, with what it has kept, than nobody.
            last = before.last_known_elr[0]
            if self._is_alive(last):
                self.is_unclean = True
                return last
        return NO_LEADER

    def _is_alive(self, broker: int) -> bool:
        return broker != self.gone and (broker == self.back or is_active(self.controller.image, broker))

    def _min_isr(self, topic: str) -> int:
        configs = self.controller.image.configs
        for resource in ((TOPIC, topic), (BROKER, "")):
            if MIN_ISR in configs.get(resource, {}):
                return min(int(configs[resource][MIN_ISR]), len(self.partition.replicas))
        return 1

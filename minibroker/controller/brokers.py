"""What the controller writes down when a broker comes, is there, stops, or is gone; and who leads without it.

    start:  fence what a killed one left, register, unfence: partitions without a leader get one
    stop:   controlled shutdown: its partitions go to others, or have no leader; then fenced

`starting` and `stopping` are the life of a broker that is its own controller: nobody has to be asked, or waited for.
Each step is records for the metadata log and looks at the image that the step before has changed, so both are
generators: append what one yields before asking for the next.

    for records in brokers.starting(controller, ...):
        metadata_log.append(records, now_ms=now_ms)

Several brokers go through registrations.py, which has the same steps and says when each may be taken.

What must hold: a leader is in the ISR, or was eligible when the ISR was empty (KIP-966); every change of leader, also
to none and back, raises the leader epoch. So a restart of a single broker raises it by two, as with Kafka.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from minibroker.controller.controller import Controller
from minibroker.controller.partition_change import changes_of, partitions_where
from minibroker.metadata.features import CONTROLLED_SHUTDOWN, DIRECTORIES
from minibroker.metadata.image import NO_LEADER
from minibroker.stored.kinds import MetadataRecord

UNFENCED, FENCED = -1, 1  # in a change of registration
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
        yield fenced(controller, broker_id)
    cleaned: list[MetadataRecord] = []
    if registered is not None:
        cleaned = left_behind(controller, broker_id, was_clean=clean_epoch == registered.broker_epoch)
    yield [
        *cleaned,
        registration(
            controller,
            broker_id,
            broker_epoch=next_offset(),
            incarnation_id=incarnation_id,
            endpoints=[
                (name, host, port, SECURITY_PROTOCOLS.index(protocol)) for name, host, port, protocol in endpoints
            ],
            features=controller.supported_features,
            rack=rack,
            log_dirs=log_dirs,
        ),
    ]
    yield unfenced(controller, broker_id)


def stopping(controller: Controller, broker_id: int) -> Iterator[list[MetadataRecord]]:
    """Yield the steps by which a broker that stops in order gives up its partitions."""
    yield shutting_down(controller, broker_id)
    yield [_change(controller, broker_id, fenced=FENCED)]


# The steps


def registration(
    controller: Controller,
    broker_id: int,
    *,
    broker_epoch: int,
    incarnation_id: bytes,
    endpoints: Sequence[tuple[str, str, int, int]],
    features: Mapping[str, tuple[int, int]],
    rack: str | None,
    log_dirs: Sequence[bytes],
    is_fenced: bool = True,
    in_controlled_shutdown: bool = False,
) -> MetadataRecord:
    """Return the record of a broker. broker_epoch: the offset at which the step begins, or the one it has already."""
    from minibroker.stored.brokers import RegisterBrokerRecord

    return RegisterBrokerRecord(
        broker_id=broker_id,
        incarnation_id=incarnation_id,
        broker_epoch=broker_epoch,
        end_points=[
            RegisterBrokerRecord.BrokerEndpoint(name=name, host=host, port=port, security_protocol=protocol)
            for name, host, port, protocol in endpoints
        ],
        features=[
            RegisterBrokerRecord.BrokerFeature(name=name, min_supported_version=lowest, max_supported_version=highest)
            for name, (lowest, highest) in features.items()
        ],
        rack=rack,
        fenced=is_fenced,
        in_controlled_shutdown=in_controlled_shutdown,
        log_dirs=list(log_dirs) if controller.image.metadata_version >= DIRECTORIES else [],
    )


def left_behind(controller: Controller, broker_id: int, *, was_clean: bool) -> list[MetadataRecord]:
    """Return what changes when a broker is back in another life: it is in sync no more, and what it has is in doubt.

    A replica whose broker did not stop in order may have lost records: it is no eligible leader any more.
    """
    image = controller.image
    in_isr = partitions_where(image, lambda partition: broker_id in partition.isr)
    if was_clean or not controller.has_elr:
        return changes_of(controller, in_isr, gone=broker_id)
    in_elr = partitions_where(image, lambda partition: broker_id in partition.elr)
    return changes_of(controller, [*in_isr, *in_elr], lossy=broker_id)


def unfenced(controller: Controller, broker_id: int) -> list[MetadataRecord]:
    """Return what changes when a broker is there: partitions without a leader may get one."""
    leaderless = partitions_where(controller.image, lambda partition: partition.leader == NO_LEADER)
    return [_change(controller, broker_id, fenced=UNFENCED), *changes_of(controller, leaderless, back=broker_id)]


def fenced(controller: Controller, broker_id: int) -> list[MetadataRecord]:
    """Return what changes when a broker is not there any more."""
    return [*_without(controller, broker_id), _change(controller, broker_id, fenced=FENCED)]


def shutting_down(controller: Controller, broker_id: int) -> list[MetadataRecord]:
    """Return what changes when a broker is about to stop: others lead, and wait for it no more."""
    image = controller.image
    records: list[MetadataRecord] = []
    if image.metadata_version >= CONTROLLED_SHUTDOWN and not image.brokers[broker_id].in_controlled_shutdown:
        records.append(_change(controller, broker_id, in_controlled_shutdown=1))
    return [*records, *_without(controller, broker_id)]


def unregistered(controller: Controller, broker_id: int) -> list[MetadataRecord]:
    """Return what changes when an administrator takes a broker out of the cluster for good."""
    from minibroker.stored.brokers import UnregisterBrokerRecord

    image = controller.image
    in_elr = partitions_where(image, lambda partition: broker_id in partition.elr)
    return [
        *_without(controller, broker_id),
        *changes_of(controller, in_elr, gone=broker_id),
        UnregisterBrokerRecord(broker_id=broker_id, broker_epoch=image.brokers[broker_id].broker_epoch),
    ]


def directories_failed(controller: Controller, broker_id: int, failed: Sequence[bytes]) -> list[MetadataRecord]:
    """Return what changes when log directories of a broker fail (KIP-858): others lead what lies there."""
    image = controller.image
    online = image.brokers[broker_id].log_dirs
    gone = [directory for directory in online if directory in failed]
    if not gone or image.metadata_version < DIRECTORIES:
        return []
    concerned = partitions_where(
        image,
        lambda partition: any(
            broker == broker_id and directory in gone
            for broker, directory in zip(partition.replicas, partition.directories, strict=True)
        ),
    )
    left = [directory for directory in online if directory not in gone]
    return [*changes_of(controller, concerned, gone=broker_id), _change(controller, broker_id, log_dirs=left)]


def directories_cordoned(controller: Controller, broker_id: int, cordoned: Sequence[bytes]) -> list[MetadataRecord]:
    """Return what changes when directories are to get no new replicas, or may get some again (KIP-1066)."""
    known = controller.image.brokers[broker_id].cordoned_log_dirs
    if known is not None and set(known) == set(cordoned):
        return []
    return [_change(controller, broker_id, cordoned_log_dirs=list(cordoned))]


def _without(controller: Controller, broker_id: int) -> list[MetadataRecord]:
    in_isr = partitions_where(controller.image, lambda partition: broker_id in partition.isr)
    return changes_of(controller, in_isr, gone=broker_id)


def _change(controller: Controller, broker_id: int, **changes: object) -> MetadataRecord:
    from minibroker.stored.brokers import BrokerRegistrationChangeRecord

    epoch = controller.image.brokers[broker_id].broker_epoch
    return BrokerRegistrationChangeRecord(broker_id=broker_id, broker_epoch=epoch, **changes)  # type: ignore[arg-type]

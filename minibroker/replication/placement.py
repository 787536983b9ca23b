"""Where the replicas of a partition go: by the controller's choice, or as an administrator assigned them."""

from __future__ import annotations

from minibroker.errors import Error, KafkaError
from minibroker.metadata.features import CORDONED
from minibroker.metadata.image import UNASSIGNED_DIRECTORY

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from minibroker.metadata.image import MetadataImage
    from minibroker.stored.kinds import MetadataRecord


def place(image: MetadataImage, first: int, count: int, replication_factor: int) -> list[list[int]]:
    """Return brokers for each partition: each begins with another broker, fenced ones come last.

    Kafka: draws the first broker and mixes the order by chance, and spreads replicas over racks.
    """
    brokers = sorted(image.brokers)
    active = [broker for broker in brokers if is_active(image, broker)]
    if not active:
        raise KafkaError(Error.INVALID_REPLICATION_FACTOR, "All brokers are currently fenced.")
    if replication_factor > len(brokers):
        also = ""
        if image.metadata_version >= CORDONED:
            also = " or some brokers have all their log directories cordoned"
        raise KafkaError(
            Error.INVALID_REPLICATION_FACTOR,
            f"The target replication factor of {replication_factor} cannot be reached because only "
            f"{len(brokers)} broker(s) are registered{also}.",
        )
    rest = [broker for broker in brokers if broker not in active]
    placed = []
    for partition in range(first, first + count):
        turn = partition % len(active)
        placed.append([*active[turn:], *active[:turn], *rest][:replication_factor])
    return placed


def as_assigned(
    image: MetadataImage, partitions: int, replication_factor: int, assignments: Sequence[tuple[int, Sequence[int]]]
) -> list[list[int]]:
    for number, what in ((replication_factor, "replication factor"), (partitions, "numPartitions")):
        if number != -1:
            raise KafkaError(
                Error.INVALID_REQUEST,
                f"A manual partition assignment was specified, but {what} was not set to -1.",
            )
    placed: dict[int, list[int]] = {}
    factor = None
    for partition, replicas in assignments:
        if partition in placed:
            raise KafkaError(
                Error.INVALID_REPLICA_ASSIGNMENT,
                f"Found multiple manual partition assignments for partition {partition}",
            )
        placed[partition] = check_assignment(image, partition, replicas, factor)
        factor = len(replicas)
    if sorted(placed) != list(range(len(placed))):
        raise KafkaError(
            Error.INVALID_REPLICA_ASSIGNMENT, "partitions should be a consecutive 0-based integer sequence"
        )
    return [placed[partition] for partition in range(len(placed))]


def check_assignment(image: MetadataImage, partition: int, replicas: Sequence[int], factor: int | None) -> list[int]:
    def wrong(what: str) -> KafkaError:
        return KafkaError(Error.INVALID_REPLICA_ASSIGNMENT, f"The manual partition assignment includes {what}")

    if not replicas:
        raise wrong("an empty replica list.")
    previous = None
    for broker in sorted(replicas):
        if broker not in image.brokers:
            raise wrong(f"broker {broker}, but no such broker is registered.")
        if broker == previous:
            raise wrong(f"the broker {broker} more than once.")
        previous = broker
    if factor is not None and len(replicas) != factor:
        raise wrong(
            f"a partition with {len(replicas)} replica(s), but this is not consistent with previous partitions, "
            f"which have {factor} replica(s)."
        )
    if not any(is_active(image, broker) for broker in replicas):
        raise KafkaError(
            Error.INVALID_REPLICA_ASSIGNMENT,
            f"All brokers specified in the manual partition assignment for partition {partition} are fenced or in "
            "controlled shutdown.",
        )
    return list(replicas)


def is_active(image: MetadataImage, broker_id: int) -> bool:
    """Return whether a broker may lead: registered, not fenced, not about to stop."""
    broker = image.brokers.get(broker_id)
    return broker is not None and not broker.fenced and not broker.in_controlled_shutdown


def new_partition(image: MetadataImage, topic_id: bytes, index: int, replicas: list[int]) -> MetadataRecord:
    from minibroker.stored.topics import PartitionRecord

    isr = [broker for broker in replicas if is_active(image, broker)]
    return PartitionRecord(
        partition_id=index,
        topic_id=topic_id,
        replicas=replicas,
        isr=isr,
        removing_replicas=[],
        adding_replicas=[],
        leader=isr[0],
        leader_epoch=0,
        partition_epoch=0,
        directories=[_directory_of(image, broker) for broker in replicas],
    )


def _directory_of(image: MetadataImage, broker_id: int) -> bytes:
    """Return where a new replica goes if there is no choice; otherwise the broker tells later."""
    directories = image.brokers[broker_id].log_dirs
    return directories[0] if len(directories) == 1 else UNASSIGNED_DIRECTORY

"""Where the replicas of a partition go: by the controller's choice, or as an administrator assigned them."""

from __future__ import annotations

from minibroker.errors import Error, KafkaError
from minibroker.metadata.features import CORDONED
from minibroker.metadata.image import UNASSIGNED_DIRECTORY, UNSPECIFIED_DIRECTORY

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from minibroker.in_pieces import InPieces
    from minibroker.metadata.image import MetadataImage
    from minibroker.stored.kinds import MetadataRecord

PIECE = 100  # partitions between two moments at which others may come in
CHECKED_US, PLACED_US = 5, 7


def place(image: MetadataImage, first: int, count: int, replication_factor: int) -> list[list[int]]:
    """Return brokers for each partition: each begins with another broker, its replicas are in different racks.

    first: where to begin, a number that goes round all brokers.
    Kafka: draws by chance where a topic begins, and mixes the order when it has been round; here it is always the same.
    """
    brokers = [broker for broker in sorted(image.brokers) if _is_usable(image, broker)]
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
    racks = _racks(image, brokers, active)
    return [_replicas(racks, partition, replication_factor) for partition in range(first, first + count)]


def _is_usable(image: MetadataImage, broker_id: int) -> bool:
    """Return whether a broker may get new replicas: it does not stop, and not all its directories are cordoned."""
    broker = image.brokers[broker_id]
    if broker.in_controlled_shutdown and not broker.fenced:
        return False
    return _has_room(image, broker_id)


def _has_room(image: MetadataImage, broker_id: int) -> bool:
    broker = image.brokers[broker_id]
    return not broker.log_dirs or not set(broker.log_dirs) <= set(broker.cordoned_log_dirs or ())


def _racks(image: MetadataImage, brokers: list[int], active: list[int]) -> list[tuple[list[int], list[int]]]:
    """Return active and fenced brokers of each rack; racks with active ones come first."""
    racks: dict[str | None, tuple[list[int], list[int]]] = {}
    for broker in brokers:
        there, fenced = racks.setdefault(image.brokers[broker].rack, ([], []))
        (there if broker in active else fenced).append(broker)
    names = sorted(racks, key=lambda name: (not racks[name][0], name is not None, name or ""))
    return [racks[name] for name in names]


def _replicas(racks: list[tuple[list[int], list[int]]], partition: int, replication_factor: int) -> list[int]:
    """Go round the racks, and in each round take the next broker of each; the leader is active."""
    leading = sum(bool(active) for active, _ in racks)
    begin = partition % leading
    turn = partition // leading  # how often each rack has led
    lines = []
    for index, (active, fenced) in enumerate([*racks[begin:leading], *racks[:begin], *racks[leading:]]):
        start = (turn + index) % max(len(active), 1)
        lines.append([*active[start:], *active[:start], *fenced])
    longest = max(map(len, lines))
    return [line[row] for row in range(longest) for line in lines if row < len(line)][:replication_factor]


def as_assigned(
    image: MetadataImage, partitions: int, replication_factor: int, assignments: Sequence[tuple[int, Sequence[int]]]
) -> InPieces[list[list[int]]]:
    """Return the brokers that an administrator names for each partition; raise the error for what cannot be."""
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
        if not len(placed) % PIECE:
            yield PIECE * CHECKED_US
    if sorted(placed) != list(range(len(placed))):
        raise KafkaError(
            Error.INVALID_REPLICA_ASSIGNMENT, "partitions should be a consecutive 0-based integer sequence"
        )
    return [placed[partition] for partition in range(len(placed))]


def check_assignment(image: MetadataImage, partition: int, replicas: Sequence[int], factor: int | None) -> list[int]:
    """Raise the error for brokers that a new partition cannot have."""
    check_brokers(image, replicas, factor)
    if not any(is_active(image, broker) for broker in replicas):
        raise _none_active(partition)
    return list(replicas)


def _none_active(partition: int) -> KafkaError:
    return KafkaError(
        Error.INVALID_REPLICA_ASSIGNMENT,
        f"All brokers specified in the manual partition assignment for partition {partition} are fenced or in "
        "controlled shutdown.",
    )


def check_brokers(image: MetadataImage, replicas: Sequence[int], factor: int | None = None) -> None:
    """Raise the error for brokers that no partition can have."""

    def wrong(what: str) -> KafkaError:
        return KafkaError(Error.INVALID_REPLICA_ASSIGNMENT, f"The manual partition assignment includes {what}")

    if not replicas:
        raise wrong("an empty replica list.")
    previous = None
    for broker in sorted(replicas):
        if broker not in image.brokers:
            raise wrong(f"broker {broker}, but no such broker is registered.")
        if not _has_room(image, broker):
            raise wrong(f"broker {broker}, but all its log directories are cordoned.")
        if broker == previous:
            raise wrong(f"the broker {broker} more than once.")
        previous = broker
    if factor is not None and len(replicas) != factor:
        raise wrong(
            f"a partition with {len(replicas)} replica(s), but this is not consistent with previous partitions, "
            f"which have {factor} replica(s)."
        )


def is_active(image: MetadataImage, broker_id: int) -> bool:
    """Return whether a broker may lead: registered, not fenced, not about to stop."""
    broker = image.brokers.get(broker_id)
    return broker is not None and not broker.fenced and not broker.in_controlled_shutdown


def new_partition(image: MetadataImage, topic_id: bytes, index: int, replicas: list[int]) -> MetadataRecord:
    """Return the record of a partition; the active ones of its replicas are in sync, and there is at least one."""
    from minibroker.stored.topics import PartitionRecord

    isr = [broker for broker in replicas if is_active(image, broker)]
    if not isr:  # fenced since they were checked: nobody could ever be elected
        raise _none_active(index)
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
        directories=[default_directory(image, broker) for broker in replicas],
    )


def default_directory(image: MetadataImage, broker_id: int) -> bytes:
    """Return where a new replica goes if there is no choice; otherwise the broker tells later."""
    broker = image.brokers.get(broker_id)
    if broker is None or len(broker.log_dirs) > 1:
        return UNASSIGNED_DIRECTORY
    return broker.log_dirs[0] if broker.log_dirs else UNSPECIFIED_DIRECTORY

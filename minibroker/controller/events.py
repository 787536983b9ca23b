"""What the controller decides, as events: who leads, who is in sync, which topics and brokers there are, and why."""

from __future__ import annotations

from contextlib import contextmanager
from copy import copy

from minibroker.controller.placement_events import tell_placement
from minibroker.event_kinds import Broker, Isr, Leader, Loss, Topic

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Any

    from minibroker.events import EventStream
    from minibroker.metadata.image import MetadataImage, Partition
    from minibroker.stored.kinds import MetadataRecord

    # Topic, partition, leader and leader epoch: from where to where the leader lacks what was committed, if it does.
    FindLost = Callable[[bytes, int, int, int], tuple[int, int] | None]

PARTITION, PARTITION_CHANGE, TOPIC, REMOVE_TOPIC, BROKER_CHANGE = 3, 5, 2, 9, 17
RECOVERING = 1
LOST = "the replica that leads now did not have what had been committed there when it was elected"


@contextmanager
def tell_decisions(
    events: EventStream,
    image: MetadataImage,
    records: Sequence[MetadataRecord],
    why: str,
    find_lost: FindLost = lambda *election: None,
) -> Iterator[None]:
    """Emit what records change in an image, when they have changed it. Costs nothing if nobody watches.

    find_lost: says what an election has lost.
    """
    if not events.observed:
        yield
        return
    # With the name of the topic, and why it changes: who decided it knows, and nobody can see it from what has changed.
    before: dict[tuple[bytes, int], tuple[str, Partition, str]] = {}
    removed = []
    for record in records:
        topic = image.topics_by_id.get(bytes(getattr(record, "topic_id", b"")))
        if topic is None:
            continue
        if record.type_number == PARTITION_CHANGE:
            number = record.partition_id  # type: ignore[attr-defined]
            reason: str = record.why or why  # type: ignore[attr-defined]
            before[topic.id, number] = topic.name, copy(topic.partitions[number]), reason  # it is changed in place
        elif record.type_number == REMOVE_TOPIC:
            removed.append((topic.name, len(topic.partitions)))
    with tell_placement(events, image, records, why):
        yield
    for record in records:
        if record.type_number == TOPIC:
            name: str = record.name  # type: ignore[attr-defined]
            events.emit(Topic(topic=name, what="created", partitions=len(image.topics[name].partitions), why=why))
        elif record.type_number == BROKER_CHANGE:
            _tell_broker(events, record, why)
    for name, count in removed:
        events.emit(Topic(topic=name, what="deleted", partitions=count, why=why))
    for (topic_id, number), (name, partition, reason) in before.items():
        now = image.topics_by_id[topic_id].partitions[number]
        _tell_partition(events, name, partition, now, reason)
        is_elected = now.leader >= 0 and now.leader != partition.leader
        if is_elected and (lost := find_lost(topic_id, number, now.leader, now.leader_epoch)) is not None:
            first, end = lost
            events.emit(Loss(now.leader, name, number, first_offset=first, last_offset=end - 1, why=LOST))


def _tell_broker(events: EventStream, record: Any, why: str) -> None:
    state = ""
    if record.in_controlled_shutdown:
        state = "stopping"
    elif record.fenced:
        state = "fenced" if record.fenced > 0 else "unfenced"
    if state:
        events.emit(Broker(broker=record.broker_id, state=state, why=why))


def _tell_partition(events: EventStream, topic: str, before: Partition, now: Partition, why: str) -> None:
    place: dict[str, Any] = {"broker": now.leader, "topic": topic, "partition": now.id}
    if now.isr != before.isr:
        events.emit(
            Isr(
                **place,
                before=tuple(before.isr),
                after=tuple(now.isr),
                leader_epoch=now.leader_epoch,
                partition_epoch=now.partition_epoch,
                why=why,
            )
        )
    if now.leader_epoch != before.leader_epoch:
        events.emit(
            Leader(
                **place,
                previous=before.leader,
                leader_epoch=now.leader_epoch,
                is_clean=now.leader_recovery_state != RECOVERING,
                why=why,
            )
        )

"""What the controller decides, as events: who leads, who is in sync, which topics and brokers there are, and why."""

from __future__ import annotations

from contextlib import contextmanager
from copy import copy

from minibroker.event_kinds import Broker, Isr, Leader, Topic

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any

    from minibroker.events import EventStream
    from minibroker.metadata.image import MetadataImage, Partition
    from minibroker.stored.kinds import MetadataRecord

PARTITION, PARTITION_CHANGE, TOPIC, REMOVE_TOPIC, BROKER_CHANGE = 3, 5, 2, 9, 17
RECOVERING = 1


@contextmanager
def tell_decisions(
    events: EventStream, image: MetadataImage, records: Sequence[MetadataRecord], why: str
) -> Iterator[None]:
    """Emit what records change in an image, when they have changed it. Costs nothing if nobody watches."""
    if not events.observed:
        yield
        return
    before: dict[tuple[bytes, int], tuple[str, Partition]] = {}  # with the name of the topic
    removed = []
    for record in records:
        topic = image.topics_by_id.get(bytes(getattr(record, "topic_id", b"")))
        if topic is None:
            continue
        if record.type_number == PARTITION_CHANGE:
            number = record.partition_id  # type: ignore[attr-defined]
            before[topic.id, number] = topic.name, copy(topic.partitions[number])  # it is changed in place
        elif record.type_number == REMOVE_TOPIC:
            removed.append((topic.name, len(topic.partitions)))
    yield
    for record in records:
        if record.type_number == TOPIC:
            name: str = record.name  # type: ignore[attr-defined]
            events.emit(Topic(topic=name, what="created", partitions=len(image.topics[name].partitions), why=why))
        elif record.type_number == BROKER_CHANGE:
            _tell_broker(events, record, why)
    for name, count in removed:
        events.emit(Topic(topic=name, what="deleted", partitions=count, why=why))
    for (topic_id, number), (name, partition) in before.items():
        _tell_partition(events, name, partition, image.topics_by_id[topic_id].partitions[number], why)


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
                why=why or _why_isr(before.isr, now.isr),
            )
        )
    if now.leader_epoch != before.leader_epoch:
        events.emit(
            Leader(
                **place,
                previous=before.leader,
                leader_epoch=now.leader_epoch,
                is_clean=now.leader_recovery_state != RECOVERING,
                why=why or "its replicas have changed",
            )
        )


def _why_isr(before: Sequence[int], after: Sequence[int]) -> str:
    """Say why a leader proposed it: that is all that a leader proposes."""
    joined = [broker for broker in after if broker not in before]
    gone = [broker for broker in before if broker not in after]
    reasons = []
    if joined:
        reasons.append(f"broker {_list(joined)} has all that may be committed")
    if gone:
        reasons.append(f"broker {_list(gone)} has not been caught up for longer than replica.lag.time.max.ms")
    return " and ".join(reasons) or "its order changed"


def _list(brokers: Sequence[int]) -> str:
    return ", ".join(map(str, brokers))

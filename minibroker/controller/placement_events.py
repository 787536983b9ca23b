"""What the controller decides of replicas and settings, as events; events.py has the others."""

from __future__ import annotations

from contextlib import contextmanager

from minibroker.config.tables import broker_settings
from minibroker.event_kinds import Config, Replicas, Topic
from minibroker.metadata.image import BROKER, CLIENT_METRICS, GROUP, TOPIC

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any

    from minibroker.events import EventStream
    from minibroker.metadata.image import MetadataImage, Partition
    from minibroker.stored.kinds import MetadataRecord

TOPIC_RECORD, PARTITION_RECORD, CONFIG_RECORD, PARTITION_CHANGE, CLEAR_ELR = 2, 3, 4, 5, 28
RESOURCES = {TOPIC: "topic", BROKER: "broker", GROUP: "group", CLIENT_METRICS: "client-metrics"}
SECRET = "***"


@contextmanager
def tell_placement(
    events: EventStream, image: MetadataImage, records: Sequence[MetadataRecord], why: str
) -> Iterator[None]:
    """Emit what records change in an image, when they have changed it."""
    before: dict[tuple[bytes, int], tuple[tuple[int, ...], ...]] = {}
    enlarged: dict[bytes, int] = {}  # topics by id, with how many partitions they had
    settings: dict[tuple[int, str, str], str | None] = {}
    for each in records:
        record: Any = each
        if record.type_number == CONFIG_RECORD:
            resource = (record.resource_type, record.resource_name)
            settings[(*resource, record.name)] = image.configs.get(resource, {}).get(record.name)
            continue
        topic = image.topics_by_id.get(bytes(getattr(record, "topic_id", b"")))
        if record.type_number == CLEAR_ELR:
            topics = [image.topics[record.topic_name]] if record.topic_name else list(image.topics.values())
            before |= {(topic.id, each.id): _placement(each) for topic in topics for each in topic.partitions}
        elif topic is None:
            continue
        elif record.type_number == PARTITION_CHANGE:
            before[topic.id, record.partition_id] = _placement(topic.partitions[record.partition_id])
        elif record.type_number == PARTITION_RECORD:
            enlarged.setdefault(topic.id, len(topic.partitions))
    yield
    why = why or "its replicas in sync have changed"
    for topic_id in enlarged:
        topic = image.topics_by_id[topic_id]
        events.emit(Topic(topic=topic.name, what="enlarged", partitions=len(topic.partitions), why=why))
    for (topic_id, number), was in before.items():
        topic = image.topics_by_id.get(topic_id)
        if topic is not None and _placement(topic.partitions[number]) != was:
            partition = topic.partitions[number]
            replicas, adding, removing, eligible = _placement(partition)
            place: dict[str, Any] = {"broker": partition.leader, "topic": topic.name, "partition": number}
            events.emit(
                Replicas(
                    **place,
                    before=was[0],
                    after=replicas,
                    adding=adding,
                    removing=removing,
                    eligible=eligible,
                    partition_epoch=partition.partition_epoch,
                    why=why,
                )
            )
    for (kind, name, key), value in settings.items():
        now = image.configs.get((kind, name), {}).get(key)
        if now != value:
            resource_name = RESOURCES.get(kind, str(kind))
            was_shown, shown = (value, now) if _may_be_shown(kind, key) else (value and SECRET, now and SECRET)
            events.emit(Config(resource_name, name, key, was_shown, shown, why))


def _placement(partition: Partition) -> tuple[tuple[int, ...], ...]:
    return (
        *(tuple(partition.replicas), tuple(partition.adding)),
        *(tuple(partition.removing), tuple(partition.elr)),
    )


def _may_be_shown(kind: int, key: str) -> bool:
    if kind != BROKER:
        return True
    setting = broker_settings().get(key)
    return setting is not None and not setting.is_sensitive

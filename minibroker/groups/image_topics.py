"""The topics of the cluster, as groups see them (groups/topics.py)."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from minibroker.metadata.image import MetadataImage, Topic


class SeenTopic:
    """One topic."""

    def __init__(self, topic: Topic, image: MetadataImage):
        self.name = topic.name
        self.topic_id = topic.id
        brokers = image.brokers
        self.racks = [
            [rack for replica in partition.replicas if replica in brokers and (rack := brokers[replica].rack)]
            for partition in topic.partitions
        ]


class ImageTopics:
    """All topics, as the metadata have them now."""

    def __init__(self, image: MetadataImage):
        self._image = image
        self.last_created_version = image.offset
        self._seen: dict[bytes, SeenTopic] = {}  # by id, of one version: all groups and members ask for the same
        self._seen_version = image.offset

    @property
    def version(self) -> int:
        return self._image.offset

    def find(self, name: str) -> SeenTopic | None:
        topic = self._image.topics.get(name)
        return None if topic is None else self._see(topic)

    def find_id(self, topic_id: bytes) -> SeenTopic | None:
        topic = self._image.topics_by_id.get(topic_id)
        return None if topic is None else self._see(topic)

    def _see(self, topic: Topic) -> SeenTopic:
        if self._seen_version != self._image.offset:
            self._seen.clear()
            self._seen_version = self._image.offset
        seen = self._seen.get(topic.id)
        if seen is None:
            seen = self._seen[topic.id] = SeenTopic(topic, self._image)
        return seen

    def names(self) -> Iterable[str]:
        return self._image.topics

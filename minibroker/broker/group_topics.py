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

    @property
    def version(self) -> int:
        return self._image.offset

    def find(self, name: str) -> SeenTopic | None:
        topic = self._image.topics.get(name)
        return None if topic is None else SeenTopic(topic, self._image)

    def find_id(self, topic_id: bytes) -> SeenTopic | None:
        topic = self._image.topics_by_id.get(topic_id)
        return None if topic is None else SeenTopic(topic, self._image)

    def names(self) -> Iterable[str]:
        return self._image.topics

"""Topics of the cluster as groups see them, and the metadata hash by which a group sees that its own have changed.

The metadata hash is one number for the topics that a group subscribes to: it changes with their ids, partitions or
racks (KIP-1101). The coordinator stores it with the group epoch; another number later means that partitions must be
shared out anew. It is Kafka's number, so a log that Kafka wrote causes no rebalance.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Protocol

from minibroker.metadata.image import MetadataImage
from minibroker.metadata.image import Topic as TopicImage

LAYOUT = b"\0"  # version of what is hashed for a topic
NO_TOPICS = 0  # metadata hash of a group whose topics do not exist


class Topic(Protocol):
    """One topic."""

    @property
    def name(self) -> str: ...
    @property
    def topic_id(self) -> bytes: ...
    @property
    def racks(self) -> Sequence[Sequence[str]]:
        """For each partition the racks of its replicas, as far as they are known: its length is their count."""
        ...

    @property
    def metadata_hash(self) -> int: ...


class Topics(Protocol):
    """All topics, as the metadata have them at one moment."""

    @property
    def version(self) -> int:
        """Of the metadata: rises with each change."""
        ...

    @property
    def last_created_version(self) -> int:
        """The version with which a topic last came to be; of the first metadata, if none has since."""
        ...

    def find(self, name: str) -> Topic | None: ...
    def find_id(self, topic_id: bytes) -> Topic | None: ...
    def names(self) -> Iterable[str]: ...


class ImageTopic:
    """One topic of the metadata image."""

    def __init__(self, topic: TopicImage, image: MetadataImage):
        self.name = topic.name
        self.topic_id = topic.id
        brokers = image.brokers
        self.racks = [
            [rack for replica in partition.replicas if replica in brokers and (rack := brokers[replica].rack)]
            for partition in topic.partitions
        ]
        self._metadata_hash: int | None = None  # nobody has asked yet

    @property
    def metadata_hash(self) -> int:
        if self._metadata_hash is None:
            self._metadata_hash = topic_hash(self)
        return self._metadata_hash


class ImageTopics:
    """All topics of the metadata image, as it is now."""

    def __init__(self, image: MetadataImage):
        self._image = image
        self.last_created_version = image.offset
        self._seen: dict[bytes, ImageTopic] = {}  # by id, of one version: all groups and members ask for the same
        self._seen_version = image.offset

    @property
    def version(self) -> int:
        return self._image.offset

    def find(self, name: str) -> ImageTopic | None:
        topic = self._image.topics.get(name)
        return None if topic is None else self._see(topic)

    def find_id(self, topic_id: bytes) -> ImageTopic | None:
        topic = self._image.topics_by_id.get(topic_id)
        return None if topic is None else self._see(topic)

    def _see(self, topic: TopicImage) -> ImageTopic:
        if self._seen_version != self._image.offset:
            self._seen.clear()
            self._seen_version = self._image.offset
        seen = self._seen.get(topic.id)
        if seen is None:
            seen = self._seen[topic.id] = ImageTopic(topic, self._image)
        return seen

    def names(self) -> Iterable[str]:
        return self._image.topics


def metadata_hash(names: Iterable[str], topics: Topics) -> int:
    """Return the metadata hash, with sign; topics that do not exist do not count."""
    found = [topic for name in sorted(names, key=utf16) if (topic := topics.find(name)) is not None]
    if not found:
        return NO_TOPICS
    value = xxh3(b"".join(topic.metadata_hash.to_bytes(8, "little") for topic in found))
    return value - (1 << 64) if value >= 1 << 63 else value


def topic_hash(topic: Topic) -> int:
    """Return a topic's share in it, without sign; whoever has the topic keeps it."""
    return _topic_hash(topic.topic_id, topic.name, tuple(map(tuple, topic.racks)))


@lru_cache(1000)
def _topic_hash(topic_id: bytes, name: str, racks: tuple[tuple[str, ...], ...]) -> int:
    parts = [LAYOUT, topic_id[7::-1], topic_id[:7:-1], _string(name), _int32(len(racks))]
    for partition, names in enumerate(racks):
        parts.append(_int32(partition))
        for rack in sorted(names, key=utf16):
            parts += [_int32(len(utf16(rack)) // 2), _string(rack)]
    return xxh3(b"".join(parts))


def xxh3(data: bytes) -> int:
    """Return XXH3 with 64 bits and no seed, as a number without sign."""
    from xxhash import xxh3_64_intdigest

    return xxh3_64_intdigest(data)


def utf16(text: str) -> bytes:
    """Return what Java compares when it sorts strings."""
    return text.encode("utf-16-be", "surrogatepass")


def _string(text: str) -> bytes:
    return text.encode("utf-16-le", "surrogatepass") + _int32(len(utf16(text)) // 2)


def _int32(value: int) -> bytes:
    return value.to_bytes(4, "little")

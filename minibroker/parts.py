"""What every part of one broker is given: who it is, its settings, its clock, its disk, and the metadata it has.

What must hold: a part sees of its broker what is here, and is handed the rest by name. So no part knows the broker
itself, and each can be read, tested and moved without the others.
Not here: sockets and requests (broker/), and the parts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from minibroker.clock.broker_clock import BrokerClock
from minibroker.config import BrokerConfig, TopicConfig
from minibroker.errors import KafkaError, LogDamaged, StorageError
from minibroker.events import EventStream
from minibroker.log.directory import LogDirectory
from minibroker.log.disk_trouble import DiskTrouble
from minibroker.reporter import Reporter
from minibroker.turns import Shares

TYPE_CHECKING = False
if TYPE_CHECKING:
    from random import Random

    from minibroker.clock import Clock
    from minibroker.log.storage import Storage
    from minibroker.metadata.image import MetadataImage

    class Metadata(Protocol):
        """What a broker knows of the cluster, and has the controller change."""

        @property
        def image(self) -> MetadataImage: ...

        @property
        def broker_epoch(self) -> int: ...

        def may_have_feature(self, name: str, level: int) -> bool: ...

        def need_feature(self, name: str, level: int) -> None: ...

    class Release(Protocol):
        """What the release that is appeared as changes below the wire."""

        release: str

        @property
        def is_before_4(self) -> bool: ...

        def bootstrap_features(self) -> Mapping[str, int]: ...

        @property
        def knows_consumer_protocol(self) -> bool: ...

        def message_format(self, topic: TopicConfig) -> int: ...

        def raises_transaction_version(self, metadata: Metadata) -> bool: ...


NOTHING: Mapping[bytes, object] = {}
LINES_ONCE_MAX = 200
RACK_AWARE = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


class Parts:
    """One for the life of a broker."""

    metadata: Metadata
    emulated: Release

    def __init__(
        self,
        config: BrokerConfig,
        storage: Storage,
        *,
        clock: Clock,
        chance: Random,
        reporter: Reporter | None = None,
        events: EventStream | None = None,
        repairs: bool = False,
    ):
        """repairs: what is damaged or missing in the storage is given up, where otherwise the start is refused."""
        self.config = config
        self.repairs = repairs
        self.storage = storage
        self.clock = BrokerClock(clock)
        self.chance = chance
        self.reporter = reporter or Reporter()
        self.events = events or EventStream(clock.now_ms)
        self.node_id: int = config["node.id"] if config["node.id"] >= 0 else 1
        self.sends_to_racks = config["replica.selector.class"] == RACK_AWARE  # clients fetch from followers, too
        self.directory_id = b""
        self.cluster_id = ""
        self.directory = LogDirectory(
            storage,
            jitter=lambda most_ms: self.chance.randrange(most_ms) if most_ms else 0,
            say=self.reporter.say,
            repairs=repairs,
        )
        self.shares = Shares(self.clock.run)
        self.disk_trouble = DiskTrouble(storage, self.clock.steady_ms, self.reporter.say)
        self.when_disk_fails: Callable[[Exception], object] = lambda failure: None  # told of a write that was refused
        self._said_once: dict[str, set[str]] = {}  # by kind
        self.watchers: dict[Callable[[], object], None] = {}  # told after each change of the metadata
        self.changed_topics: Mapping[
            bytes, object
        ] = {}  # ids of those that the last change was about; some may be gone

    @property
    def image(self) -> MetadataImage:
        return self.metadata.image

    def topic_config(self, topic: str) -> TopicConfig:
        return TopicConfig(self.image.topic_configs(topic), self.config)

    def topic_name(self, topic_id: bytes) -> str | None:
        topic = self.image.topics_by_id.get(topic_id)
        return None if topic is None else topic.name

    def tell_watchers(self, changed: Mapping[bytes, object] = NOTHING) -> None:
        """Say that the metadata have changed, or what this broker has made of them; changed: the topics, by id."""
        for tell in list(self.watchers):
            self.changed_topics = changed  # one that was told may have made another change meanwhile
            tell()

    def disk_failed(self, failure: Exception) -> None:
        """Say that a disk has refused something, and let the cluster know."""
        self.disk_trouble.note(failure)
        self.when_disk_fails(failure)

    def say_if_damaged(self, error: KafkaError) -> None:
        """Tell people of a log that cannot be read."""
        if isinstance(error, LogDamaged):
            self.say_once("damage", error.message)
        elif isinstance(error, StorageError):
            self.disk_trouble.note(error)

    def say_once(self, kind: str, line: str) -> None:
        """Tell people what clients would make the broker say several times a second, for they ask again.

        Of each kind there are only so many lines: what is in them may be a client's word.
        """
        said = self._said_once.setdefault(kind, set())
        if line not in said and len(said) < LINES_ONCE_MAX:
            said.add(line)
            self.reporter.say(line)

"""One broker: its directory, its metadata, its partitions, its listeners; what handlers ask.

    start   lock and read the directory, load the metadata log and lead it, open every partition, listen
    stop    close every socket, flush and close every log, leave the clean mark

What must hold: the metadata log comes first: what it says is there is there, after a crash too. Between two awaits
nothing is half done, so handlers need no locks.
"""

from __future__ import annotations

from contextlib import contextmanager

from minibroker.broker.appearance import Appearance
from minibroker.broker.chores import Chores
from minibroker.broker.dispatch import Dispatcher
from minibroker.broker.handlers.fetch_sessions import FetchSessions
from minibroker.config import TopicConfig, check_topic_config, log_settings
from minibroker.errors import Error, KafkaError
from minibroker.faults.faults import Faults
from minibroker.log.checkpoints import format_id
from minibroker.log.directory import LogDirectory
from minibroker.metadata.bootstrap import check_directory, format_directory, random_id
from minibroker.metadata.features import supported
from minibroker.metadata.image import BROKER, TOPIC
from minibroker.metadata.metadata_log import MetadataLog
from minibroker.replication.brokers import starting, stopping
from minibroker.replication.controller import Controller, check_name
from minibroker.replication.replica import Replica
from minibroker.server.listeners import address, parse_listeners
from minibroker.server.server import Limits, Reporter, Server

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from random import Random

    from minibroker.clock import Clock
    from minibroker.config import BrokerConfig
    from minibroker.faults.toxics import Toxics
    from minibroker.log.settings import LogSettings
    from minibroker.log.storage import Storage
    from minibroker.metadata.image import MetadataImage, Topic
    from minibroker.server.connection import Connection
    from minibroker.server.listeners import Listener
    from minibroker.stored.kinds import MetadataRecord

EVERY_ADDRESS = ("0.0.0.0", "::")
PARTITION_RECORD, CONFIG_RECORD = 3, 4  # kinds of metadata records
METADATA_TOPIC = "__cluster_metadata"


class Node:
    """A broker that is its own controller."""

    def __init__(
        self,
        config: BrokerConfig,
        storage: Storage,
        *,
        log_dir: str = "",
        cluster_id: str | None = None,
        as_version: str | None = None,
        clock: Clock,
        chance: Random,
        reporter: Reporter | None = None,
    ):
        """log_dir: what clients are told of the storage. as_version: the release of Kafka to appear as."""
        self.config = config
        self.storage = storage
        self.log_dir = log_dir
        self.clock = clock
        self.chance = chance
        self.reporter = reporter or Reporter()
        self.node_id: int = config["node.id"] if config["node.id"] >= 0 else 1
        self.alive = frozenset((self.node_id,))  # the brokers that are there
        self.cluster_id = cluster_id or ""
        self.directory = LogDirectory(storage, jitter=lambda most_ms: self.chance.randrange(most_ms) if most_ms else 0)
        self.replicas: dict[tuple[str, int], Replica] = {}
        self.servers: list[Server] = []
        self.dispatcher = Dispatcher(self)
        self.fetch_sessions = FetchSessions(
            config["max.incremental.fetch.session.cache.slots"], lambda: self.chance.randrange(1, 1 << 31)
        )
        self.fetch_bytes_max: int = config["fetch.max.bytes"]
        self.is_ready = False
        self.appearance = Appearance(as_version)
        self.served, self.announced = self.appearance.served, self.appearance.announced
        self.faults = Faults(
            broker=self.node_id,
            chance=chance,
            served=self.served,
            switch=self.dispatcher.switch_faults,
            new_toxics=self._new_toxics,
        )
        config.release = self.appearance.settings_release
        self._advertised: dict[str, tuple[str, int]] = {}
        self._broker_epoch = -1
        self._next_producer_id = self._producer_ids_end = 0
        self.chores = Chores(self)
        self._is_together = False
        self.watchers: dict[Callable[[], object], None] = {}  # told after each change of the metadata

    # Start and stop

    async def start(self) -> None:
        """Return when requests are answered; a start that fails leaves nothing open."""
        self.storage.make_directory("")
        self.storage.lock()
        try:
            await self._start()
        except BaseException:
            await self._give_up()
            raise

    async def _start(self) -> None:
        now_ms = self.clock.now_ms()
        meta = check_directory(self.storage, node_id=self.node_id, cluster_id=self.cluster_id or None)
        if meta is None:
            meta = format_directory(
                self.storage,
                cluster_id=self.cluster_id or format_id(random_id(self.chance)),
                node_id=self.node_id,
                directory_id=random_id(self.chance),
                now_ms=now_ms,
                features=self.appearance.bootstrap_features,
            )
        self.cluster_id = meta.cluster_id or ""
        self._directory_id = meta.directory_id or random_id(self.chance)
        self.directory.start()
        self.metadata_log = MetadataLog(self.storage, node_id=self.node_id, fsync=self.storage.is_durable)
        self.image: MetadataImage = self.metadata_log.load(now_ms=now_ms, was_clean=self.directory.was_clean)
        self.metadata_log.lead(now_ms=now_ms)
        self.controller = Controller(
            self.image,
            node_id=self.node_id,
            new_id=lambda: random_id(self.chance),
            check_configs=self._check_configs,
            supported_features=supported(self.appearance.release),
            settings=self.config.static,
        )
        self._take_dynamic_configs()
        await self._bind()
        self._register()
        self._set_strays_aside()
        for topic in self.image.topics.values():
            self._open_partitions(topic)
        self.directory.sync_names()
        self.is_ready = True
        for server in self.servers:
            await server.listen()
        self.chores.start()

    async def _give_up(self) -> None:
        """Let go of what a start had taken; the directory is as after a crash."""
        for server in self.servers:
            await server.stop()
        for log in self.directory.logs.values():
            log.release()
        if hasattr(self, "metadata_log"):
            self.metadata_log.release()
        self.storage.unlock()

    async def _bind(self) -> None:
        texts = self.config["listeners"] if self.config.is_set("listeners") else ["PLAINTEXT://127.0.0.1:9092"]
        for name, host, port in ((each.name, each.host, each.port) for each in self._advertised_listeners()):
            self._advertised[name] = (host, port)
        for listener in parse_listeners(texts):
            limits = Limits(
                frame_bytes_max=self.config["socket.request.max.bytes"],
                connections_max=self.config["max.connections"],
                connections_per_address_max=self.config["max.connections.per.ip"],
                idle_ms=self.config["connections.max.idle.ms"],
            )
            server = Server(self.dispatcher, self.clock, limits, listener.name, self.reporter)
            await server.bind(listener.host, listener.port)
            self.servers.append(server)

    def _advertised_listeners(self) -> list[Listener]:
        texts = self.config["advertised.listeners"] if self.config.is_set("advertised.listeners") else None
        return parse_listeners(texts or [])

    def _register(self) -> None:
        """Write down that this broker is there and leads its partitions."""
        endpoints = []
        for server in self.servers:
            endpoints.append((server.listener_name, *self._endpoint(server), "PLAINTEXT"))
        steps = starting(
            self.controller,
            self.node_id,
            next_offset=lambda: self.metadata_log.next_offset,
            incarnation_id=random_id(self.chance),
            endpoints=endpoints,
            log_dirs=[self._directory_id],
            rack=self.config["broker.rack"],
            clean_epoch=self.directory.clean_epoch,
        )
        for records in steps:
            self.metadata_log.append(records, now_ms=self.clock.now_ms())
        self._broker_epoch = self.image.brokers[self.node_id].broker_epoch

    async def stop(self) -> None:
        """Return when every socket is closed, every log flushed, and the directory marked clean."""
        self.is_ready = False
        self.chores.stop()
        for server in self.servers:
            await server.stop()
        now_ms = self.clock.now_ms()
        for records in stopping(self.controller, self.node_id):
            self.metadata_log.append(records, now_ms=now_ms)
        self.metadata_log.close()
        self.directory.close(
            {key: replica.high_watermark for key, replica in self.replicas.items()}, broker_epoch=self._broker_epoch
        )
        self.replicas.clear()
        self.storage.unlock()

    def _new_toxics(self) -> Toxics:
        from minibroker.faults.toxics import Toxics

        return Toxics(self.servers, self.clock, self.chance)

    # The metadata and what follows from it

    def change(self, records: Sequence[MetadataRecord]) -> None:
        """Write records into the metadata log and do what they say."""
        before = {topic.id: topic for topic in self.image.topics.values()}
        self.metadata_log.append(records, now_ms=self.clock.now_ms(), flush=not self._is_together)
        for topic_id, topic in before.items():
            if topic_id not in self.image.topics_by_id:
                self._delete_partitions(topic)
        grown: dict[bytes, None] = {}
        for record in records:
            if record.type_number == PARTITION_RECORD:
                grown[bytes(record.topic_id)] = None  # type: ignore[attr-defined]
            elif record.type_number == CONFIG_RECORD:
                self._take_configs(record.resource_type, record.resource_name)  # type: ignore[attr-defined]
        for topic_id in grown:
            self._open_partitions(self.image.topics_by_id[topic_id])
        if not self._is_together:
            self.directory.sync_names()
        for tell in list(self.watchers):
            tell()

    @contextmanager
    def together(self) -> Iterator[None]:
        """Let changes reach the disk together, when all of them are made; nobody may be told of one before."""
        assert not self._is_together
        self._is_together = True
        try:
            yield
        finally:
            self._is_together = False
            self.metadata_log.flush(now_ms=self.clock.now_ms())
            self.directory.sync_names()

    def _set_strays_aside(self) -> None:
        """See to it that nobody takes what a deleted topic left for the log of a new one."""
        claimed = {
            (topic.name, partition.id)
            for topic in self.image.topics.values()
            for partition in topic.partitions
            if self.node_id in partition.replicas
        }
        for topic_name, number in self.directory.found():
            if (topic_name, number) not in claimed and topic_name != METADATA_TOPIC:
                name = self.directory.set_aside(topic_name, number, f"{self.chance.getrandbits(128):032x}")
                self.reporter.say(f"{topic_name}-{number} belongs to no topic; it is called {name} now")

    def _open_partitions(self, topic: Topic) -> None:
        settings = None
        min_in_sync = 1
        for partition in topic.partitions:
            key = (topic.name, partition.id)
            if key in self.replicas or self.node_id not in partition.replicas:
                continue
            if settings is None:
                settings = self._log_settings(topic.name)
                min_in_sync = self.topic_config(topic.name)["min.insync.replicas"]
            log = self.directory.open(
                topic.name,
                partition.id,
                settings,
                now_ms=self.clock.now_ms(),
                topic_id=topic.id,
                is_synced=False,
            )
            high_watermark = self.directory.high_watermarks.get(key, 0)
            replica = Replica(topic.name, topic.id, partition.id, self.node_id, log, high_watermark=high_watermark)
            self.replicas[key] = replica
            replica.min_in_sync = min_in_sync
            if log.recovery.reason:
                self.reporter.say(
                    f"{log.directory}: {log.recovery.cut_bytes} bytes cut off after a crash: {log.recovery.reason}"
                )
            replica.take(partition, now_ms=self.clock.now_ms(), find_broker=self.image.brokers.get)

    def _delete_partitions(self, topic: Topic) -> None:
        for partition in topic.partitions:
            replica = self.replicas.pop((topic.name, partition.id), None)
            if replica is not None:
                replica.leave()
                self.directory.purge(
                    self.directory.delete(topic.name, partition.id, f"{self.chance.getrandbits(128):032x}")
                )

    def _log_settings(self, topic: str) -> LogSettings:
        config = self.topic_config(topic)
        return log_settings(config, self.appearance.message_format(config.overrides))

    def topic_config(self, topic: str) -> TopicConfig:
        return TopicConfig(self.image.topic_configs(topic), self.config)

    def _check_configs(self, resource_type: int, name: str, configs: Mapping[str, str]) -> None:
        if resource_type == TOPIC:
            check_topic_config(configs, self.config)

    def _take_configs(self, resource_type: int, name: str) -> None:
        if resource_type == BROKER:
            self._take_dynamic_configs()
        settings_by_topic = {}
        for replica in self.replicas.values():
            if resource_type == BROKER or replica.topic == name:
                if replica.topic not in settings_by_topic:
                    config = self.topic_config(replica.topic)
                    settings_by_topic[replica.topic] = (
                        self._log_settings(replica.topic),
                        config["min.insync.replicas"],
                    )
                replica.log.settings, replica.min_in_sync = settings_by_topic[replica.topic]

    def _take_dynamic_configs(self) -> None:
        self.config.set_dynamic(
            broker=self.image.configs.get((BROKER, str(self.node_id)), {}),
            default=self.image.configs.get((BROKER, ""), {}),
        )

    # What handlers ask

    @property
    def bootstrap_servers(self) -> str:
        """Where clients begin: the first listener."""
        return address(*self._endpoint(self.servers[0]))

    def _endpoint(self, server: Server) -> tuple[str, int]:
        """Return where a listener is found by who has not come through it yet."""
        host = "localhost" if server.host in EVERY_ADDRESS else server.host
        return self._advertised.get(server.listener_name, (host, server.port))

    def advertised_host(self, server: Server) -> str:
        """Return the name under which clients of a listener find this broker."""
        return self._endpoint(server)[0]

    def brokers_for(self, connection: Connection) -> list[tuple[int, str, int, str | None]]:
        """Return id, host, port and rack of every broker, as the client on a connection is to reach it."""
        host, port = self._advertised.get(connection.listener_name, connection.local_address)
        return [(self.node_id, host, port, self.config["broker.rack"])]

    def topic_name(self, topic_id: bytes) -> str | None:
        topic = self.image.topics_by_id.get(topic_id)
        return None if topic is None else topic.name

    def has_partition(self, topic: str, partition: int) -> bool:
        found = self.image.topics.get(topic)
        return found is not None and 0 <= partition < len(found.partitions)

    def auto_create(self, name: str, *, is_allowed: bool) -> Topic:
        """Make a topic that a client asks about, if that is wanted."""
        check_name(name)
        if not is_allowed or not self.config["auto.create.topics.enable"]:
            raise KafkaError(Error.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}")
        try:
            self.create_topic(name)
        except KafkaError as error:
            raise KafkaError(Error.UNKNOWN_TOPIC_OR_PARTITION, error.message) from error
        return self.image.topics[name]

    def create_topic(
        self, name: str, partitions: int = -1, configs: Mapping[str, str] | None = None, *, replication_factor: int = -1
    ) -> None:
        """Make a topic; -1 is the broker's default."""
        self.change(
            self.controller.create_topic(
                name,
                partitions=partitions,
                replication_factor=replication_factor,
                configs=configs,
                default_partitions=self.config["num.partitions"],
                default_replication_factor=self.config["default.replication.factor"],
            )
        )

    def next_producer_id(self) -> int:
        """Return an id that nobody had before, from a block that the controller gave."""
        if self._next_producer_id >= self._producer_ids_end:
            records, first, count = self.controller.allocate_producer_ids(self.node_id, self._broker_epoch)
            self.change(records)
            self._next_producer_id, self._producer_ids_end = first, first + count
        self._next_producer_id += 1
        return self._next_producer_id - 1

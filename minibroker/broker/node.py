"""One broker: its directory, its metadata, its partitions, its listeners; what handlers ask.

    start   lock and read the directory, load the metadata log and lead it, open every partition, listen
    stop    close every socket, flush and close every log, leave the clean mark

What must hold: the metadata log comes first: what it says is there is there, after a crash too. Between two awaits
nothing is half done, so handlers need no locks.
"""

from __future__ import annotations

from minibroker.broker.apis import SERVED
from minibroker.broker.dispatch import Dispatcher
from minibroker.broker.handlers.fetch_sessions import FetchSessions
from minibroker.config import TopicConfig, check_topic_config, log_settings
from minibroker.errors import Error, KafkaError
from minibroker.log.checkpoints import format_id
from minibroker.log.directory import LogDirectory
from minibroker.metadata.bootstrap import check_directory, format_directory, random_id
from minibroker.metadata.features import NEWEST, supported
from minibroker.metadata.image import BROKER, TOPIC
from minibroker.metadata.metadata_log import MetadataLog
from minibroker.replication.brokers import starting, stopping
from minibroker.replication.controller import Controller
from minibroker.replication.replica import Replica
from minibroker.server.listeners import parse_listeners
from minibroker.server.server import Limits, Reporter, Server

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from random import Random

    from minibroker.clock import Clock, Timer
    from minibroker.config import BrokerConfig
    from minibroker.log.storage import Storage
    from minibroker.metadata.image import MetadataImage, Topic
    from minibroker.protocol.messages.produce import ProduceResponse
    from minibroker.server.connection import Connection
    from minibroker.server.listeners import Listener
    from minibroker.stored.kinds import MetadataRecord

CHECKPOINT_MS = 60_000
EXPIRY_MS = 600_000
PRODUCE = 0
PARTITION_RECORD, CONFIG_RECORD = 3, 4  # kinds of metadata records


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
        self.as_version = as_version
        self.clock = clock
        self.chance = chance
        self.reporter = reporter or Reporter()
        self.node_id: int = config["node.id"] if config["node.id"] >= 0 else 1
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
        self.served = {api: (first, last) for api, (first, last, _) in SERVED.items()}
        self.announced = dict(self.served)
        self.message_format = 2
        if as_version is not None:
            self._appear_as(as_version)
        self._advertised: dict[str, tuple[str, int]] = {}
        self._broker_epoch = -1
        self._next_producer_id = self._producer_ids_end = 0
        self._timers: list[Timer] = []

    def _appear_as(self, name: str) -> None:
        """Serve what a release served, as far as we can."""
        from minibroker.broker.releases import RELEASES, ranges_of, release_named

        release = release_named(name)
        number = RELEASES.index(release)
        served = {}
        for api, (first, last) in ranges_of(release).items():
            if api in self.served:
                served[api] = max(first, self.served[api][0]), min(last, self.served[api][1])
        self.served = {api: versions for api, versions in served.items() if versions[0] <= versions[1]}
        self.announced = dict(self.served)
        if number >= RELEASES.index("4.0"):
            # Kafka: announces Produce from 0 on, for librdkafka looks at the least, and closes on versions below 3.
            self.announced[PRODUCE] = (0, self.served[PRODUCE][1])
        if number < RELEASES.index("0.11.0"):
            self.message_format = 0 if number < RELEASES.index("0.10.0") else 1

    # Start and stop

    async def start(self) -> None:
        """Return when requests are answered."""
        now_ms = self.clock.now_ms()
        self.storage.make_directory("")
        self.storage.lock()
        meta = check_directory(self.storage, node_id=self.node_id, cluster_id=self.cluster_id or None)
        if meta is None:
            meta = format_directory(
                self.storage,
                cluster_id=self.cluster_id or format_id(random_id(self.chance)),
                node_id=self.node_id,
                directory_id=random_id(self.chance),
                now_ms=now_ms,
            )
        self.cluster_id = meta.cluster_id or ""
        self._directory_id = meta.directory_id or random_id(self.chance)
        self.directory.start()
        self.metadata_log = MetadataLog(
            self.storage, node_id=self.node_id, directory_id=self._directory_id, fsync=self.storage.is_durable
        )
        self.image: MetadataImage = self.metadata_log.load(now_ms=now_ms, was_clean=self.directory.was_clean)
        self.metadata_log.lead(now_ms=now_ms)
        self.controller = Controller(
            self.image,
            node_id=self.node_id,
            new_id=lambda: random_id(self.chance),
            check_configs=self._check_configs,
            supported_features=supported(NEWEST),
        )
        self._take_dynamic_configs()
        await self._bind()
        self._register()
        for topic in self.image.topics.values():
            self._open_partitions(topic)
        self.is_ready = True
        for server in self.servers:
            await server.listen()
        self._every(CHECKPOINT_MS, self._checkpoint)
        self._every(EXPIRY_MS, self._expire_producers)
        self._every(1000, self._flush_due)

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
            host, port = self._advertised.get(server.listener_name, (server.host, server.port))
            endpoints.append((server.listener_name, host, port, "PLAINTEXT"))
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
        for timer in self._timers:
            timer.cancel()
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

    # The metadata and what follows from it

    def change(self, records: Sequence[MetadataRecord]) -> None:
        """Write records into the metadata log and do what they say."""
        before = {topic.id: topic for topic in self.image.topics.values()}
        self.metadata_log.append(records, now_ms=self.clock.now_ms())
        for topic_id, topic in before.items():
            if topic_id not in self.image.topics_by_id:
                self._delete_partitions(topic)
        for record in records:
            if record.type_number == PARTITION_RECORD:
                self._open_partitions(self.image.topics_by_id[bytes(record.topic_id)])  # type: ignore[attr-defined]
            elif record.type_number == CONFIG_RECORD:
                self._take_configs(record.resource_type, record.resource_name)  # type: ignore[attr-defined]

    def _open_partitions(self, topic: Topic) -> None:
        settings = None
        for partition in topic.partitions:
            key = (topic.name, partition.id)
            if key in self.replicas or self.node_id not in partition.replicas:
                continue
            if settings is None:
                settings = log_settings(self.topic_config(topic.name), self.message_format)
            log = self.directory.open(topic.name, partition.id, settings, now_ms=self.clock.now_ms(), topic_id=topic.id)
            replica = self.replicas[key] = Replica(topic.name, topic.id, partition.id, self.node_id, log)
            replica.min_in_sync = self.topic_config(topic.name)["min.insync.replicas"]
            if log.recovery.reason:
                self.reporter.say(
                    f"{log.directory}: {log.recovery.cut_bytes} bytes cut off after a crash: {log.recovery.reason}"
                )
            if partition.leader == self.node_id:
                replica.lead(partition.leader_epoch)

    def _delete_partitions(self, topic: Topic) -> None:
        for partition in topic.partitions:
            replica = self.replicas.pop((topic.name, partition.id), None)
            if replica is not None:
                replica.leave()
                self.directory.purge(
                    self.directory.delete(topic.name, partition.id, f"{self.chance.getrandbits(128):032x}")
                )

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
                        log_settings(config, self.message_format),
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
        server = self.servers[0]
        host, port = self._advertised.get(server.listener_name, (server.host, server.port))
        return f"{host}:{port}"

    def brokers_for(self, connection: Connection) -> list[tuple[int, str, int, str | None]]:
        """Return id, host, port and rack of every broker, as the client on a connection is to reach it."""
        host, port = self._advertised.get(connection.listener_name, connection.local_address)
        return [(self.node_id, host, port, self.config["broker.rack"])]

    @property
    def alive(self) -> dict[int, object]:
        """The brokers that are there."""
        return {self.node_id: self}

    def topic_name(self, topic_id: bytes) -> str | None:
        topic = self.image.topics_by_id.get(topic_id)
        return None if topic is None else topic.name

    def has_partition(self, topic: str, partition: int) -> bool:
        found = self.image.topics.get(topic)
        return found is not None and 0 <= partition < len(found.partitions)

    def auto_create(self, name: str, *, is_allowed: bool) -> Topic:
        """Make a topic that a client asks about, if that is wanted."""
        from minibroker.replication.controller import check_name

        check_name(name)
        if not is_allowed or not self.config["auto.create.topics.enable"]:
            raise KafkaError(Error.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}")
        self.create_topic(name)
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

    def may_convert_down(self, topic: str) -> bool:
        return bool(self.topic_config(topic)["message.downconversion.enable"])

    def hint_leaders(self, response: ProduceResponse) -> None:
        """Add the addresses of leaders that an answer names: there is nobody but us."""

    @property
    def supported_features(self) -> dict[str, tuple[int, int]]:
        return supported(NEWEST)

    @property
    def finalized_features(self) -> dict[str, int]:
        return self.image.features

    @property
    def features_epoch(self) -> int:
        return self.image.offset

    def disk_space(self) -> tuple[int, int]:
        """Return size and free bytes of the disk, -1 if there is none."""
        return self.storage.disk_space()

    # From time to time

    def _every(self, period_ms: int, act: Callable[[], object]) -> None:
        """Do something again and again."""
        number = len(self._timers)

        def again() -> None:
            try:
                act()
            finally:
                self._timers[number] = self.clock.after(period_ms, again)

        self._timers.append(self.clock.after(period_ms, again))

    def _checkpoint(self) -> None:
        self.directory.write_checkpoints({key: replica.high_watermark for key, replica in self.replicas.items()})

    def _expire_producers(self) -> None:
        now_ms = self.clock.now_ms()
        for replica in self.replicas.values():
            log = replica.log
            if log.producers.producers:
                log.producers.expire(now_ms, log.settings.producer_id_expiration_ms)

    def _flush_due(self) -> None:
        now_ms = self.clock.now_ms()
        for replica in self.replicas.values():
            if replica.log.offline is None and replica.log.flush_due(now_ms):
                replica.log.flush(now_ms=now_ms)

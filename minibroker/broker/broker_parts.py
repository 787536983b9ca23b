"""Parts of a broker put together for its handlers: partitions, groups, metadata, and what it tells clients of itself.

Where its metadata come from: metadata_standalone.py if it is its own controller, metadata_in_cluster.py if it belongs
to a cluster.
What must hold: what the metadata say is done here before anybody is told of it. Between two awaits nothing is half
done, so handlers need no locks.
Not here: its life, and its listeners (broker.py).
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import cached_property
from typing import Any

from minibroker.broker.emulated_release import EmulatedRelease
from minibroker.broker.handlers.fetch_sessions import FetchSessions
from minibroker.broker.metadata_standalone import StandaloneMetadata
from minibroker.broker.producer_ids import ProducerIds
from minibroker.broker.scheduler import Scheduler
from minibroker.config import BrokerConfig, ConfigError
from minibroker.config.listeners import EVERY_ADDRESS, Listener, address, is_local
from minibroker.config.start import connection_overrides
from minibroker.controller.controller import Controller
from minibroker.errors import Error, KafkaError
from minibroker.events import EventStream
from minibroker.faults.faults import Faults
from minibroker.groups.service import Groups
from minibroker.log.checkpoints import format_id
from minibroker.metadata.bootstrap import random_id
from minibroker.metadata.image import BROKER, quota_entity
from minibroker.metadata.metadata_log import MetadataLog
from minibroker.parts import Parts
from minibroker.protocol.headers import Request, Response
from minibroker.replication.replica_set import Partitions
from minibroker.reporter import Reporter
from minibroker.server.connection import Connection
from minibroker.server.connection_quotas import ConnectionQuotas
from minibroker.server.server import Server
from minibroker.stored.kinds import MetadataRecord
from minibroker.transactions.service import Transactions

TYPE_CHECKING = False
if TYPE_CHECKING:
    from random import Random

    from minibroker.broker.metadata_in_cluster import ClusterMetadata
    from minibroker.cleaner.scheduler import Cleaning
    from minibroker.clock import Clock
    from minibroker.controller.delegation_tokens import DelegationTokens
    from minibroker.log.storage import Storage
    from minibroker.metadata.image import QuotaEntity
    from minibroker.quotas.controller_mutations import MutationQuota, Mutations
    from minibroker.replication.manager import Replication
    from minibroker.replication.network import Network
    from minibroker.security.acls import Authorizer
    from minibroker.security.delegation_tokens import TokenSecrets
    from minibroker.security.users import Users
    from minibroker.view.feed import Feed

    Steer = Callable[[str, Mapping[str, Any]], Coroutine[Any, Any, Any]]

# Kinds of metadata records.
PARTITION_RECORD, CONFIG_RECORD, PARTITION_CHANGE_RECORD, REMOVE_TOPIC_RECORD = 3, 4, 5, 9
ACL_RECORDS = frozenset((18, 19, 24))  # a rule comes or goes, or a change ends in which some did
CLIENT_QUOTA_RECORD = 14
BROKER_RECORDS = frozenset((0, 1, 7, 8, 17))  # one comes, goes, is fenced or unfenced
PARTITION_RECORD = 3  # the number of their type
TOPICS_TOGETHER, TOPIC_US = 8, 250  # that reach the disk together, and what one takes

# Who may steer by the page in a browser: who sits at this machine, everybody, nobody; or there is none.
NEAR, FULL, READ_ONLY, OFF = PAGE_MODES = ("near", "full", "read-only", "off")


class BrokerParts(Parts):
    """The parts of one broker put together: of one alone, or one of a cluster."""

    emulated: EmulatedRelease

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
        events: EventStream | None = None,
        network: Network | None = None,
        repairs: bool = False,
        users: Users | None = None,
    ):
        """log_dir: what clients are told of the storage. as_version: the release of Kafka to appear as.

        network: of the cluster that the broker belongs to; without one it is its own controller.
        users: who can log in, beside those of settings and metadata.
        repairs: what is damaged or missing in the storage is given up, where otherwise the start is refused.
        """
        super().__init__(config, storage, clock=clock, chance=chance, reporter=reporter, events=events, repairs=repairs)
        self.log_dir = log_dir
        self.users = users
        self.network = network
        self.cluster_id = cluster_id or ""
        self.partitions = Partitions(self)
        self.replicas = self.partitions.replicas
        self.servers: list[Server] = []
        self.login_counts: dict[
            str, dict[str, int]
        ] = {}  # by listener, of those that ask for one, and by what came of it
        self.quotas = ConnectionQuotas()
        self.stretches = self.clock.stretches
        self.request_counts: dict[tuple[int, int], int] = {}  # by API and version
        self.fetch_sessions = FetchSessions(
            config["max.incremental.fetch.session.cache.slots"], lambda: self.chance.randrange(1, 1 << 31)
        )
        self.fetch_bytes_max: int = config["fetch.max.bytes"]
        self.is_ready = False
        # Narrower than what parts may know of them, and set once.
        self.emulated = EmulatedRelease(as_version)  # pyright: ignore[reportIncompatibleVariableOverride]
        self.served, self.announced = self.emulated.served, self.emulated.announced
        config.appear_as(self.emulated.settings_release, self.emulated.defaults_release)
        metadata: StandaloneMetadata | ClusterMetadata
        if network is None:
            metadata = StandaloneMetadata(self.partitions, self.follow, self.endpoints)
        else:
            from minibroker.broker.metadata_in_cluster import ClusterMetadata

            metadata = ClusterMetadata(self.partitions, self.follow, self.endpoints, network)
        self.metadata: StandaloneMetadata | ClusterMetadata = metadata  # pyright: ignore[reportIncompatibleVariableOverride]
        self.replication: Replication | None = None if network is None else self.metadata.replication  # type: ignore[union-attr]
        self.scheduler = Scheduler(self, self.replicas, lambda: self.asked_count)
        self.partitions.replication, self.partitions.upkeep = self.replication, self.scheduler
        self._advertised: dict[str, Listener] = {}  # by name, where that differs from the address that is bound
        self._protocols: dict[str, str] = {}  # by listener
        self.producer_ids = ProducerIds(self.metadata)
        self.authorizer: Authorizer | None = None  # who says what each client may do
        self.page = NEAR  # who may steer by the page that a browser is shown
        self.steer: Steer | None = None  # does what a verb says to the cluster that the broker belongs to
        self.groups = Groups(self, self.replicas)
        self._alive: tuple[int, frozenset[int]] = (-1, frozenset())  # as of an offset of the metadata

    @cached_property
    def faults(self) -> Faults:
        """Rules and toxics, which take hold of whoever answers requests."""
        raise NotImplementedError

    @cached_property
    def transactions(self) -> Transactions:
        """The transaction coordinator, once there is one."""
        raise NotImplementedError

    @cached_property
    def token_secrets(self) -> TokenSecrets | None:
        """The secrets of delegation tokens; None: there are none."""
        if not self.config["delegation.token.secret.key"]:
            return None
        from minibroker.controller.delegation_tokens import secrets_of

        return secrets_of(self.config, lambda: self.image)

    @cached_property
    def tokens(self) -> DelegationTokens:
        """What a broker that is its own controller decides of delegation tokens."""
        from minibroker.controller.delegation_tokens import tokens_of

        return tokens_of(self.config, lambda: self.image, lambda: format_id(random_id(self.chance)))

    @property
    def mutation_quota(self) -> MutationQuota:
        """What counts the changes of topics, where somebody limits them."""
        raise NotImplementedError

    @property
    def feed(self) -> Feed:
        """What somebody sees who looks at the broker, or at its cluster."""
        raise NotImplementedError

    async def handle(self, request: Request, version: int, connection: Connection, client_id: str) -> Any:
        """Return the answer to a request that has come by another way than as a frame of a client."""
        raise NotImplementedError

    @property
    def asked_count(self) -> int:
        """How many requests there have been."""
        return sum(self.request_counts.values())

    def offline(self) -> dict[tuple[str, int], str]:
        """Return the partitions that are not served, and why."""
        found = {key: str(failure) for key, failure in self.partitions.unopened.items()}
        for key, log in self.directory.logs.items():
            if log.offline is not None:
                found[key] = str(log.offline)
        return found

    @property
    def cleaning(self) -> Cleaning:
        return self.scheduler.cleaning

    # The metadata and what follows from it

    @property
    def alive(self) -> frozenset[int]:
        """The brokers that are there."""
        image = self.image
        if self._alive[0] != image.offset:
            alive = frozenset(broker_id for broker_id, broker in image.brokers.items() if not broker.fenced)
            self._alive = (image.offset, alive)
        return self._alive[1]

    @property
    def controller(self) -> Controller:
        return self._own_metadata.controller

    @property
    def metadata_log(self) -> MetadataLog:
        return self._own_metadata.log

    def metadata_observers(self) -> list[tuple[int, int]]:
        """Return who follows the metadata log without a vote, and how far: nobody but the only voter itself."""
        return []

    def unregister(self, broker_id: int) -> list[MetadataRecord]:
        """Return the records that forget a broker: another than this one, of a directory that was Kafka's."""
        from minibroker.controller.brokers import unregistered

        if broker_id not in self.image.brokers:
            raise KafkaError(Error.BROKER_ID_NOT_REGISTERED, f"Broker ID {broker_id} is not currently registered")
        if broker_id == self.node_id:
            raise KafkaError(Error.INVALID_REQUEST, f"broker {broker_id} runs, and would be there again")
        return unregistered(self.controller, broker_id)

    @property
    def _own_metadata(self) -> StandaloneMetadata:
        assert isinstance(self.metadata, StandaloneMetadata), "the controller of a cluster is asked, not called"
        return self.metadata

    def change(self, records: Sequence[MetadataRecord], *, at_once: bool = True) -> None:
        """Write records into the metadata log and do what they say; at_once: all of it before this returns."""
        self._own_metadata.change(records, at_once=at_once)

    def opened(self, made: Iterable[tuple[str, Iterable[int]]]) -> Coroutine[Any, Any, None] | None:
        """Return what waits until these partitions of topics are open, which have been made; None: they are."""
        return self.partitions.opened(made)

    def together(self) -> AbstractContextManager[None]:
        """Let changes reach the disk together, when all of them are made; nobody may be told of one before."""
        return self._own_metadata.together()

    def follow(self, records: Iterable[MetadataRecord], *, at_once: bool = True) -> None:
        """Do what records say that the image has taken in; at_once: all of it before this returns."""
        changed: dict[bytes, dict[int, None]] = {}  # partitions by topic
        brokers: dict[int, None] = {}
        settled: dict[tuple[int, str], None] = {}
        rules_changed = False
        limited: list[QuotaEntity] = []
        for record in records:
            kind = record.type_number
            if kind in (PARTITION_RECORD, PARTITION_CHANGE_RECORD):
                changed.setdefault(bytes(record.topic_id), {})[record.partition_id] = None  # type: ignore[attr-defined]
            elif kind in BROKER_RECORDS:
                brokers[record.broker_id] = None  # type: ignore[attr-defined]
            elif kind == CONFIG_RECORD:
                settled[record.resource_type, record.resource_name] = None  # type: ignore[attr-defined]
            elif kind in ACL_RECORDS and self.authorizer is not None:
                self.authorizer.follow(record, self.image.acls)
                rules_changed = True
            elif kind == REMOVE_TOPIC_RECORD:
                changed.setdefault(bytes(record.topic_id), {})  # type: ignore[attr-defined]
                self.partitions.delete_topic(bytes(record.topic_id), at_once=at_once)  # type: ignore[attr-defined]
            elif kind == CLIENT_QUOTA_RECORD:
                limited.append(quota_entity(record))
        if limited:
            self.take_client_quotas(limited)
        for resource_type, name in settled:
            if resource_type == BROKER:
                self._take_dynamic_configs()
            self.partitions.take_configs(resource_type, name)
        for topic_id, numbers in changed.items():
            topic = self.image.topics_by_id.get(topic_id)
            if topic is not None:
                self.partitions.take(topic, numbers, at_once=at_once)
        if brokers:
            self.partitions.take_brokers(brokers)
        if rules_changed:
            self.fetch_sessions.look_everywhere()
        if not at_once:
            self.partitions.begin()
        self.tell_watchers(changed)

    def take_client_quotas(self, changed: Sequence[QuotaEntity] = ()) -> None:
        """Limit what clients take as the metadata say; changed: whom records limit that are new, none: all."""
        if not changed or any(kind == "ip" for entity in changed for kind, _ in entity):
            self._take_connection_rates()

    def _take_dynamic_configs(self) -> None:
        self.config.set_dynamic(
            broker=self.image.configs.get((BROKER, str(self.node_id)), {}),
            default=self.image.configs.get((BROKER, ""), {}),
        )
        overrides: dict[str, int] = {}
        try:
            overrides = connection_overrides(self.config)
        except ConfigError as error:  # another release has stored what we do not take
            self.reporter.say(str(error))
        self.quotas.take_limits(
            count_max=self.config["max.connections"],
            per_address_max=self.config["max.connections.per.ip"],
            address_overrides=overrides,
            listener_overrides=self.config.of_listeners("max.connections"),
        )
        for server in self.servers:
            if server.handshakes is not None:
                server.handshakes.reload()
        self._take_connection_rates()

    def _take_connection_rates(self) -> None:
        by_address: dict[str, int] = {}
        default = None
        if self.image.client_quotas:
            from minibroker.quotas.entities import rates_by_address

            by_address, default = rates_by_address(self.image.client_quotas)
        self.quotas.take_rates(
            (self.config["quota.window.num"], self.config["quota.window.size.seconds"] * 1000),
            count_max=self.config["max.connection.creation.rate"],
            listener_max=self.config.of_listeners("max.connection.creation.rate"),
            address_max=by_address,
            address_default=default,
        )

    # What handlers ask

    def check_settings(self, altered: Mapping[str, str]) -> None:
        """Raise KafkaError if this broker cannot have other settings of its own instead of those that were altered."""
        if not any(server.handshakes for server in self.servers):
            return
        then = BrokerConfig(self.config.static)
        then.set_dynamic(broker=altered, default=self.config.dynamic_default)
        try:
            for server in self.servers:
                if server.handshakes is not None:
                    server.handshakes.check(then)
        except ConfigError as error:
            raise KafkaError(Error.INVALID_REQUEST, error.allowed) from None

    @property
    def bootstrap_servers(self) -> str:
        """Where clients begin: a listener that programs of this machine reach, else the first; empty: none is open."""
        found = [self._endpoint(server) for server in self.servers]
        return address(*next((each for each in found if is_local(each[0])), found[0])) if found else ""

    def endpoints(self) -> list[tuple[str, str, int, str]]:
        """Return listener, host, port and security protocol of each."""
        return [
            (server.listener_name, *self._endpoint(server), self._protocols[server.listener_name])
            for server in self.servers
        ]

    def _endpoint(self, server: Server) -> tuple[str, int]:
        """Return where a listener is found by who has not come through it yet."""
        host = "localhost" if server.host in EVERY_ADDRESS else server.host
        told = self._advertised.get(server.listener_name)
        return (host, server.port) if told is None else (told.host, told.port or server.port)

    def protocol_of(self, connection: Connection) -> str:
        """Return the security protocol of the listener that a client came through."""
        return self._protocols[connection.listener_name]

    def advertised_host(self, server: Server) -> str:
        """Return the name under which clients of a listener find this broker."""
        return self._endpoint(server)[0]

    def brokers_for(self, connection: Connection) -> list[tuple[int, str, int, str | None]]:
        """Return id, host, port and rack of every broker, as the client on a connection is to reach it."""
        host, port = connection.local_address
        if (told := self._advertised.get(connection.listener_name)) is not None:
            host, port = told.host, told.port or port
        found: list[tuple[int, str, int, str | None]] = [(self.node_id, host, port, self.config["broker.rack"])]
        for broker_id, broker in self.image.brokers.items():
            if broker_id != self.node_id and not broker.fenced:
                for endpoint in broker.end_points:
                    if endpoint.name == connection.listener_name:
                        found.append((broker_id, endpoint.host, endpoint.port, broker.rack))
        return sorted(found)

    async def forward(self, request: Request, version: int) -> Response:
        """Have the controller of the cluster answer."""
        assert self.replication is not None
        answer: Response = await self.metadata.forward(request, version)  # type: ignore[union-attr]
        return answer

    def instance_rows(self) -> list[dict[str, Any]]:
        """Return a row for each instance, if there are any."""
        return []

    def owns_configs_of(self, broker_id: int) -> bool:
        """Whether settings of a broker are asked for here."""
        return broker_id == self.node_id

    def has_partition(self, topic: str, partition: int) -> bool:
        found = self.image.topics.get(topic)
        return found is not None and 0 <= partition < len(found.partitions)

    def create_topic(
        self,
        name: str,
        partitions: int = -1,
        configs: Mapping[str, str] | None = None,
        *,
        replication_factor: int = -1,
        at_once: bool = True,
        quota: Mutations | None = None,
    ) -> None:
        """Make a topic; -1 is the broker's default. at_once: its partitions are open when this returns.

        quota: what counts its partitions.
        """
        records = self.controller.create_topic(
            name,
            partitions=partitions,
            replication_factor=replication_factor,
            configs=configs,
            default_partitions=self.config["num.partitions"],
            default_replication_factor=self.config["default.replication.factor"],
        )
        if quota is not None:
            quota.take(sum(record.type_number == PARTITION_RECORD for record in records))
        self.change(records, at_once=at_once)


def topic_shares(topics: Sequence[Any]) -> Iterator[Sequence[Any]]:
    """Return as many topics at a time as may reach the disk together."""
    for start in range(0, len(topics), TOPICS_TOGETHER):
        yield topics[start : start + TOPICS_TOGETHER]

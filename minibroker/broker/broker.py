"""The life of one broker: its directory, its listeners, and who answers the requests that come in there.

    start   lock and read the directory, get the metadata, open every partition, listen
    stop    close every socket, flush and close every log, leave the clean mark
    kill    as kill -9: nothing is closed in order
    pause   as SIGSTOP: nothing moves until `resume`

Not here: what handlers ask of it (broker_parts.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, partial
from typing import Final

from minibroker.broker.broker_calls import BrokerToBroker
from minibroker.broker.broker_parts import BrokerParts
from minibroker.broker.dispatch import Context, Dispatcher
from minibroker.clock import IDLE
from minibroker.config import ConfigError
from minibroker.config.listeners import advertised_listeners, client_listeners
from minibroker.config.start import check_start
from minibroker.config.tables import INSTANCE_PREFIX, is_of_logins
from minibroker.errors import StorageError
from minibroker.faults.faults import Faults
from minibroker.log.checkpoints import format_id
from minibroker.log.partition_log import FlushPlan
from minibroker.metadata.bootstrap import check_directory, random_id
from minibroker.server.server import Limits, Server
from minibroker.transactions.service import Transactions

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from minibroker.broker.authenticating import Authenticating
    from minibroker.broker.dispatch import Guard, Handler
    from minibroker.broker.instance_flows import InstanceFlows
    from minibroker.broker.quotas_guard import QuotasGuard
    from minibroker.config.listeners import Listener
    from minibroker.faults.toxics import Toxics
    from minibroker.log.storage import Storage
    from minibroker.metadata.image import QuotaEntity
    from minibroker.protocol.headers import Request
    from minibroker.quotas.controller_mutations import MutationQuota
    from minibroker.server.connection import Connection, Service
    from minibroker.view.feed import Feed

# What changes users, access rules, tokens and quotas.
AUDITED: Final = frozenset((30, 31, 38, 39, 40, 49, 51))


class Node(BrokerParts):
    """A broker that can be started and stopped."""

    _has_quotas = False  # or had some
    instances: InstanceFlows | None = None  # if there are any
    _authorizing: Guard | None = None  # if there is an authorizer
    _has_own_settings = False  # that are checked here before the controller alters them
    tap: Callable[[Service, int], Service] | None = None  # puts who keeps or records requests before each listener

    @cached_property
    def logins(self) -> dict[str, Authenticating]:
        """What stands before the dispatcher, by listener, at those that ask for a login."""
        return {}

    @cached_property
    def dispatcher(self) -> Dispatcher:
        dispatcher = Dispatcher(self)
        dispatcher.guard([_audited])
        return dispatcher

    async def handle(self, request: Request, version: int, connection: Connection, client_id: str) -> Any:
        return await self.dispatcher.handle(request, Context(self, connection, version, client_id))

    @cached_property
    def quotas_guard(self) -> QuotasGuard:
        from minibroker.broker.quotas_guard import QuotasGuard

        return QuotasGuard(self)

    @property
    def mutation_quota(self) -> MutationQuota:
        return self.quotas_guard.quotas.mutations

    @cached_property
    def calls(self) -> BrokerToBroker:
        return BrokerToBroker(self, self.network)

    @cached_property
    def transactions(self) -> Transactions:
        return Transactions(self, self.replicas, self.calls, self.producer_ids)

    @cached_property
    def faults(self) -> Faults:
        faults = Faults(
            broker=self.node_id,
            chance=self.chance,
            served=self.served,
            switch=self._switch_faults,
            new_toxics=self._new_toxics,
        )
        faults.events = self.events
        return faults

    shared_feed: Callable[[], Feed] | None = None  # of the cluster that the broker belongs to

    @property
    def feed(self) -> Feed:
        return self._own_feed if self.shared_feed is None else self.shared_feed()

    @cached_property
    def _own_feed(self) -> Feed:
        from minibroker.broker.view_source import NodeSource
        from minibroker.view.feed import Feed

        return Feed(NodeSource(self))

    def _close_feed(self) -> None:
        """Tell nobody anything more, if anybody looks."""
        if "_own_feed" in self.__dict__:
            self._own_feed.close()

    async def start(self) -> None:
        """Return when requests are answered; a start that fails leaves nothing open."""
        check_start(self.config)
        self.storage.make_directory("")
        self.storage.lock()
        try:
            await self._start()
        except BaseException:
            await self._give_up()
            raise

    async def _start(self) -> None:
        if self.replication is not None:
            self.replication.answer_call = self.calls.answer
        meta = check_directory(self.storage, node_id=self.node_id, cluster_id=self.cluster_id or None)
        self.directory.read()
        if meta is None:
            meta = self.metadata.format(self.cluster_id or format_id(random_id(self.chance)))
        self.cluster_id = meta.cluster_id or ""
        self.directory_id = meta.directory_id or random_id(self.chance)
        await self.metadata.load()
        self._take_dynamic_configs()
        await self._bind()
        self.directory.begin()  # not before the metadata have been read: what is refused stays as it was left
        await self.metadata.join()
        self._begin_to_authorize()
        self._take_dynamic_configs()  # a member of a cluster has them from now on, a new log begins with some
        self.partitions.set_strays_aside()
        for topic in self.image.topics.values():
            self.partitions.take(topic, at_once=False)
        await self.metadata.enter()
        self.take_client_quotas()
        if self._has_instances:
            self._begin_instances()
        self.is_ready = True
        self.groups.start()
        self.transactions.start()
        if self.replication is None and (self.image.scram or self.image.acls):
            from minibroker.security.unused import say_what_is_unused

            say_what_is_unused(self.image, self.config, self.reporter.say)
        if self.users is not None or self.token_secrets is not None:
            self._prepare_logins()
        for server in self.servers:
            await server.listen()
        self.scheduler.start()

    @cached_property
    def _has_instances(self) -> bool:
        return any(name.startswith(INSTANCE_PREFIX) for name in self.config.static)

    def _begin_instances(self) -> None:
        """Share what instances are promised; nothing of it is imported where there are none."""
        from minibroker.broker.instance_flows import InstanceFlows as Flows

        masters, epoch = None, 1
        if self.replication is None:
            from minibroker.instances.masters import Masters
            from minibroker.instances.settings import read_instances

            masters = Masters(
                *(read_instances(self.config), lambda: self.image, 1, self.events, self.reporter.say),
                began_ms=self.clock.steady_ms(),
                is_first=True,
            )
        else:
            epoch = self.metadata.broker_epoch
        self.instances = Flows(self, masters, epoch)
        self._post_guards()
        self.instances.start()

    def instance_rows(self) -> list[dict[str, Any]]:
        return [] if self.instances is None else self.instances.rows()

    def _take_dynamic_configs(self) -> None:
        super()._take_dynamic_configs()
        if self._has_instances and self.servers:
            from minibroker.instances.allow_list import AllowList
            from minibroker.instances.settings import allowed_networks, why_in_vain

            for name in {**self.config.dynamic_default, **self.config.dynamic_broker}:
                if name.startswith(INSTANCE_PREFIX) and (words := why_in_vain(name, self.config)):
                    self.say_once(name, f"{name} is stored, and has no effect: {words}")
            for server in self.servers:
                networks = allowed_networks(self.config, server.listener_name)
                server.allow_list = AllowList(networks) if networks else None

    def _begin_to_authorize(self) -> None:
        """Have each request asked about, if there is an authorizer; nothing of it is imported otherwise."""
        if self.config["authorizer.class.name"]:
            from minibroker.broker.auditing import Audit
            from minibroker.broker.authorize.guards import guard, new_authorizer

            self.authorizer = new_authorizer(self)
            self.authorizer.audit = Audit(self).tell
            self._authorizing = guard
            self._post_guards()

    async def _give_up(self) -> None:
        """Let go of what a start had taken; the directory is as after a crash."""
        self.partitions.give_up()
        if self.instances is not None:
            self.instances.stop()
        if self.replication is not None:
            self.replication.stop()
        for server in self.servers:
            await server.stop()
        self._release()

    def _release(self) -> None:
        for log in self.directory.logs.values():
            log.release()
        self.metadata.release()
        self.storage.unlock()

    async def stop(self) -> None:
        """Return when every socket is closed, every log flushed, and the directory marked clean.

        Whatever fails on the way, the rest is done, and nothing is left open; without a mark of a clean stop the next
        start is as after a crash.
        """
        self.is_ready = False
        self._close_feed()
        self.scheduler.stop()
        if self.instances is not None:
            self.instances.stop()
        left = False
        try:
            if self.replication is None:
                self.groups.stop()
                self.transactions.stop()
                await self._close_servers()
                left = await self._leave()
            else:  # the leaders move first, while clients can still be told where they are
                left = await self._leave()
                self.groups.stop()
                self.transactions.stop()
                self.replication.stop()
                await self._close_servers()
        finally:
            try:
                reason = self._close_logs(left)
            finally:
                self.replicas.clear()
                self.storage.unlock()
        if reason:
            self.reporter.say(f"{reason}: the next start is as after a crash")

    async def _leave(self) -> bool:
        """Write down that this broker stops in order; return whether that could be written."""
        try:
            await self.metadata.leave()
        except StorageError as failure:
            self.disk_failed(failure)
            return False
        return True

    def _close_logs(self, left: bool) -> str:
        """Flush and close everything, and set the clean mark, which says that all is on the disk; or return why not."""
        self.scheduler.finish()
        try:
            self.partitions.finish_removing()
            self.metadata.close()
        except StorageError as failure:
            self.disk_failed(failure)
            self.metadata.release()
            left = False
        # What could not be opened has not been looked at since it was left as after a crash.
        unknown = (
            [] if self.directory.was_clean else [f"{topic}-{number}" for topic, number in self.partitions.unopened]
        )
        is_written = self.directory.close(
            {key: replica.high_watermark for key, replica in self.replicas.items()},
            broker_epoch=self.metadata.broker_epoch,
            may_be_clean=left and not unknown,
            carry_out=self._carry_out,
        )
        if not left or not is_written:
            return "a disk refused what was to be written in the end"
        more = f" and {len(unknown) - 1} more" if unknown[1:] else ""
        return f"{unknown[0]}{more} could not be opened" if unknown else ""

    def _carry_out(self, storage: Storage, plans: Sequence[FlushPlan]) -> Sequence[StorageError | None]:
        """Sync what the logs have written in the end."""
        from minibroker.broker.flushing import carry_out_in_threads

        return carry_out_in_threads(self.config["num.recovery.threads.per.data.dir"], storage, plans)

    async def _close_servers(self) -> None:
        for logins in self.logins.values():
            logins.stop()
        for server in self.servers:
            await server.stop()

    async def kill(self) -> None:
        """End here and now, as after kill -9: what has been written is there, nothing else is put in order."""
        self.is_ready = False
        self._close_feed()
        self.scheduler.stop()
        self.groups.stop()
        self.transactions.stop()
        self.partitions.give_up()
        if self.instances is not None:
            self.instances.stop()
        self.clock.end()
        if self.replication is not None:
            self.replication.stop()
        for server in self.servers:
            server.abort()
        self._release()
        self.replicas.clear()
        await self._close_servers()

    @property
    def is_held(self) -> bool:
        return self.clock.is_paused

    def pause(self) -> None:
        """Stand still, as after SIGSTOP: clients see a machine that hangs."""
        self.clock.pause()
        for server in self.servers:
            server.pause()

    def resume(self) -> None:
        """Go on where it stood."""
        self.clock.resume()
        for server in self.servers:
            server.resume()

    async def _bind(self) -> None:
        limits = Limits(
            frame_bytes_max=self.config["socket.request.max.bytes"],
            idle_ms=self.config["connections.max.idle.ms"],
            backlog=self.config["socket.listen.backlog.size"],
            receive_buffer_bytes=self.config["socket.receive.buffer.bytes"],
            send_buffer_bytes=self.config["socket.send.buffer.bytes"],
        )
        self._advertised = advertised_listeners(self.config)
        listeners = client_listeners(self.config)
        self._read_logins(listeners, limits.frame_bytes_max)
        of_brokers = (
            self.config["inter.broker.listener.name"] or self.config["security.inter.broker.protocol"]
        ).upper()
        if len(listeners) > 1:
            self.quotas.protected = of_brokers
        for listener in listeners:
            self._protocols[listener.name] = listener.protocol
            logins = self.logins.get(listener.name)
            service: Service = self.dispatcher if logins is None else logins
            if self.tap is not None:
                service = self.tap(service, self.node_id)
            server = Server(service, self.clock, limits, listener.name, self.reporter, self.quotas)
            if logins is not None:
                server.logins, server.frame_bytes_max = logins, logins.receive_bytes_max
            if listener.uses_tls:
                from minibroker.security.tls import ListenerTls
                from minibroker.server.handshakes import Handshakes

                tls = ListenerTls(self.config, listener.name, self.reporter.say, has_login=logins is not None)
                server.handshakes = Handshakes(server, tls)
                tls.tell = partial(self._tell_certificate, listener.name)
                tls.watch(self.clock)
                if self.replication is not None:
                    self._has_own_settings = True
                    self._post_guards()
            await server.bind(listener.host, listener.port)
            server.siblings = self.servers
            self.servers.append(server)

    def _tell_certificate(self, listener: str, address: str, principal: str, reason: str) -> None:
        """Tell watchers who a client is by its certificate, or why it is nobody."""
        if self.events.observed:
            from minibroker.event_kinds import Certificate

            told = Certificate(broker=self.node_id, listener=listener, address=address, principal=principal)
            if reason:
                told.why = reason
            self.events.emit(told)

    def _read_logins(self, listeners: Sequence[Listener], frame_bytes_max: int) -> None:
        """Make ready who lets clients in, at listeners that ask for a login."""
        asking = [listener for listener in listeners if listener.asks_for_login]
        if not asking and self.users is None and not any(map(is_of_logins, self.config.static)):
            return
        from minibroker.broker.authenticating import Authenticating
        from minibroker.security.named_files import read_file
        from minibroker.security.sasl_settings import ListenerLogins, LoginSources, check_scopes

        if self.users is not None and not asking:
            words = "no listener asks for a login; listeners=SASL_PLAINTEXT://127.0.0.1:9092 has one that does"
            raise ConfigError("users", "", "", words)
        check_scopes(self.config, listeners)
        sources = LoginSources(
            lambda: self.image,
            users=self.users,
            now_ms=self.clock.now_ms,
            random_bits=self.chance.getrandbits,
            read_file=read_file,
            tokens=self.token_secrets,
            is_before_4=self.emulated.is_before_4,
        )
        for listener in asking:
            logins = ListenerLogins(self.config, listener, sources)
            made = self.logins[listener.name] = Authenticating(self, self.dispatcher, logins, frame_bytes_max)
            self.login_counts[listener.name] = made.counts
            if logins.takes_unsigned:
                self.reporter.say(f"listener {listener.name} takes tokens without a signature: anybody can be anybody")

    def _prepare_logins(self) -> None:
        """Write down who can come in by SCRAM, and see that tokens end, where nobody else does."""
        if self.token_secrets is not None:
            self.token_secrets.find(b"")  # now, when nobody has to wait: all that are there are digested
        if self.replication is not None:
            return
        if self.users is not None and (records := self.users.records(self.image, self.chance, self.reporter.say)):
            self.change(records)
        if self.token_secrets is not None:
            self.scheduler.every(self.config["delegation.token.expiry.check.interval.ms"], self.expire_tokens)

    def expire_tokens(self) -> object:
        records = self.tokens.expired(self.clock.now_ms())
        if not records:
            return IDLE
        self.change(records)
        return None

    def _switch_faults(self, is_on: bool) -> None:
        """Ask the rules for faults before each request, or no more."""
        from minibroker.broker.inject_faults import Injection

        self.dispatcher.injection = Injection(self.dispatcher).strike if is_on else None

    def take_client_quotas(self, changed: Sequence[QuotaEntity] = ()) -> None:
        """Limit what clients take, as long as there are limits."""
        if not self.image.client_quotas and not self._has_quotas:
            return
        super().take_client_quotas(changed)
        self._has_quotas = True
        self.quotas_guard.quotas.follow(self.image, changed)
        self._post_guards()

    def _post_guards(self) -> None:
        """Have those stand before handlers that are wanted; from next to the handler outwards, each with why there."""
        guards: list[Guard] = []
        if self._has_own_settings:
            from minibroker.broker.handlers.configs import guard_own_settings

            guards.append(guard_own_settings)  # asks whoever is next for the answer of the controller
        flows = self.instances if self.instances is not None and self.instances.flows else None
        if flows is not None:
            guards.append(flows.guard_produce)  # counts what may be written and is
        if self._authorizing is not None:
            guards.append(self._authorizing)
        guards.append(_audited)  # is told of what is refused, too
        if self._has_quotas and self.quotas_guard.quotas.has_limits:
            guards.append(self.quotas_guard.guard)  # counts what is refused, too, as in Kafka
        if flows is not None:
            guards.append(flows.guard_fetch)  # counts what quotas have left of an answer
        self.dispatcher.guard(guards)

    def _new_toxics(self) -> Toxics:
        from minibroker.faults.toxics import Toxics

        return Toxics(self.servers, self.clock, self.chance)


def _audited(api: int, version: int, handler: Handler) -> Handler:
    """Have watchers told who changes users, rules, tokens and quotas."""
    if api not in AUDITED:
        return handler
    from minibroker.broker.auditing import audited

    return audited(handler)

"""The controller of a cluster: it leads the metadata log, and answers what brokers ask of it.

    brokers    register, send heartbeats, propose ISRs, ask for producer ids, and fetch the metadata log
    clients    have their wishes handed on by the broker that they ask: topics, settings, elections, moves of replicas
    by itself  fences who is silent, gives partitions back to their preferred leaders, elects uncleanly where allowed

What is decided is written down before anybody is told, and brokers learn of it from the log alone. There is one
controller, so the metadata wait for it while it is down, and records do not: leaders go on leading.
Not here: what is decided (minibroker/replication/).
"""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from functools import cached_property

from minibroker.broker.dispatch import Context, find_route
from minibroker.broker.emulated_release import EmulatedRelease
from minibroker.clock import CHORE
from minibroker.clock.broker_clock import BrokerClock
from minibroker.config import TopicConfig, check_topic_config
from minibroker.controller.alter_partition import alter_partition
from minibroker.controller.controller import Controller
from minibroker.controller.directories import assign_replicas
from minibroker.controller.elections import balance_leaders, elect_uncleanly
from minibroker.controller.events import tell_decisions
from minibroker.controller.registrations import Registrations
from minibroker.errors import Error, KafkaError
from minibroker.log.checkpoints import format_id
from minibroker.metadata import fetch as metadata_fetch
from minibroker.metadata.bootstrap import check_directory, format_directory, random_id
from minibroker.metadata.features import supported
from minibroker.metadata.image import BROKER, TOPIC
from minibroker.metadata.metadata_log import MetadataLog
from minibroker.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from minibroker.protocol.messages.alter_partition import AlterPartitionRequest
from minibroker.protocol.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest
from minibroker.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from minibroker.protocol.messages.broker_registration import BrokerRegistrationRequest
from minibroker.protocol.messages.envelope import EnvelopeRequest, EnvelopeResponse
from minibroker.protocol.messages.fetch import FetchRequest, FetchResponse
from minibroker.protocol.messages.fetch_snapshot import FetchSnapshotRequest
from minibroker.replication.network import CONTROLLER
from minibroker.turns import Shares, is_work

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from random import Random
    from typing import Any

    from minibroker.clock import Clock, Timer
    from minibroker.config import BrokerConfig
    from minibroker.controller.delegation_tokens import DelegationTokens
    from minibroker.controller.events import FindLost
    from minibroker.events import EventStream
    from minibroker.instances.masters import Masters
    from minibroker.instances.messages import FlowReportRequest
    from minibroker.log.storage import Storage
    from minibroker.metadata.image import MetadataImage
    from minibroker.quotas.controller_mutations import MutationQuota
    from minibroker.replication.gate import Gate
    from minibroker.replication.network import Network, NodeId
    from minibroker.stored.kinds import MetadataRecord

FLOW_REPORT = 9999  # as in instances/messages.py, which is imported when there are instances
NODE_ID = 3000  # as in Kafka's sample files: out of the way of brokers
UNCLEAN_ELECTION_MS = 300_000  # unclean.leader.election.interval.ms


class ControllerNode:
    """The controller as a process with a disk."""

    image: MetadataImage
    controller: Controller
    registrations: Registrations
    log: MetadataLog

    def __init__(
        self,
        config: BrokerConfig,
        storage: Storage,
        network: Network,
        *,
        clock: Clock,
        chance: Random,
        events: EventStream,
        cluster_id: str = "",
        as_version: str | None = None,
        gate: Gate,
        find_lost: FindLost,
        say: Callable[[str], object],
    ):
        """gate: where elections wait in step mode. find_lost: says what an election has lost. say: a line to people."""
        self.say = say
        self.gate = gate
        self.find_lost = find_lost
        self.config = config
        self.storage = storage
        self.network = network
        self.clock = BrokerClock(clock)
        self.shares = Shares(self.clock.run)
        self.chance = chance
        self.events = events
        self.cluster_id = cluster_id
        self.emulated = EmulatedRelease(as_version)
        config.appear_as(self.emulated.settings_release, self.emulated.defaults_release)
        self.node_id = NODE_ID
        self.is_running = False
        self._waiting: dict[asyncio.Future[None], None] = {}  # fetches of the metadata, until there are more
        self._heard: dict[asyncio.Future[None], None] = {}  # brokers that stop, until another heartbeat comes
        self._timers: dict[str, Timer] = {}
        self._answers: dict[type, Callable[[Any, int], Any]] = {
            BrokerRegistrationRequest: self._register,
            BrokerHeartbeatRequest: self._heartbeat,
            AlterPartitionRequest: self._alter_partition,
            AllocateProducerIdsRequest: self._producer_ids,
            AssignReplicasToDirsRequest: self._assign_replicas,
            EnvelopeRequest: self._answer_client,
            FetchRequest: self._fetch,
            FetchSnapshotRequest: self._fetch_snapshot,
        }

    # Start and stop

    async def start(self) -> None:
        self.storage.make_directory("")
        self.storage.lock()
        now_ms = self.clock.now_ms()
        try:
            meta = check_directory(self.storage, node_id=NODE_ID, cluster_id=self.cluster_id or None)
            self._is_new = meta is None
            if meta is None:
                meta = format_directory(
                    self.storage,
                    cluster_id=self.cluster_id or format_id(random_id(self.chance)),
                    node_id=NODE_ID,
                    directory_id=random_id(self.chance),
                    now_ms=now_ms,
                    features=self.emulated.bootstrap_features(is_cluster=True),
                )
            self.cluster_id = meta.cluster_id or ""
            segment_bytes = self.config["metadata.log.segment.bytes"]
            self.log = MetadataLog(self.storage, node_id=NODE_ID, segment_bytes=segment_bytes)
            self.image = self.log.load(now_ms=now_ms)
            self.log.lead(now_ms=now_ms, min_insync_replicas=self.config["min.insync.replicas"])
        except BaseException:
            self.storage.unlock()
            raise
        self.controller = Controller(
            self.image,
            node_id=NODE_ID,
            new_id=lambda: random_id(self.chance),
            check_configs=self._check_configs,
            supported_features=supported(self.emulated.release),
            settings=self.config.texts,
        )
        self.registrations = Registrations(
            self.controller,
            cluster_id=self.cluster_id,
            session_timeout_ms=self.config["broker.session.timeout.ms"],
            steady_ms=self.clock.steady_ms(),
        )
        self._take_dynamic_configs()
        self.is_running = True
        self._began_ms = self.clock.steady_ms()
        self.__dict__.pop("masters", None)
        self.network.attach(CONTROLLER, self.answer)
        self._set_expiry()
        if self.config["auto.leader.rebalance.enable"]:
            self._every("balance", self.config["leader.imbalance.check.interval.seconds"] * 1000, self.balance)
        self._every("unclean", UNCLEAN_ELECTION_MS, self._elect_uncleanly)
        if self.config["delegation.token.secret.key"]:
            self._every("tokens", self.config["delegation.token.expiry.check.interval.ms"], self._expire_tokens)

    async def stop(self) -> None:
        """Close the metadata log in order."""
        self._end()
        try:
            self.log.close()
        finally:
            self.storage.unlock()

    async def kill(self) -> None:
        """End here and now, as after kill -9."""
        self._end()
        self.clock.end()
        self.log.release()
        self.storage.unlock()

    def _end(self) -> None:
        self.is_running = False
        self.network.detach(CONTROLLER)
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def pause(self) -> None:
        self.clock.pause()

    def resume(self) -> None:
        self.clock.resume()

    # What is due

    def _every(self, name: str, period_ms: float, act: Callable[[], object]) -> None:
        def again() -> None:
            self._every(name, period_ms, act)
            act()

        self._timers[name] = self.clock.after(period_ms, again, CHORE)

    def _set_expiry(self) -> None:
        """Look again when the next broker has been silent for too long."""
        timer = self._timers.pop("expiry", None)
        if timer is not None:
            timer.cancel()
        due_ms = self.registrations.next_expiry_ms
        if due_ms is not None:
            self._timers["expiry"] = self.clock.after(max(due_ms - self.clock.steady_ms(), 0), self._expire)

    def _expire(self) -> None:
        self._timers.pop("expiry", None)
        for broker_id in self.registrations.silent(self.clock.steady_ms()):
            self.lose(broker_id, "it has been silent for longer than broker.session.timeout.ms")
        self._set_expiry()

    def lose(self, broker_id: int, why: str) -> None:
        """Fence a broker that is gone, when it is its turn in step mode and unless it has come back by then."""
        session = self.registrations.sessions.get(broker_id)
        if session is not None:
            session.contact_ms = None
            self.gate.enter(f"fence broker {broker_id}", lambda: self._fence(broker_id, why))

    def _fence(self, broker_id: int, why: str) -> None:
        is_back = self.registrations.sessions[broker_id].contact_ms is not None
        if self.is_running and not is_back and not self.image.brokers[broker_id].fenced:
            self.change(self.registrations.end_session(broker_id), why)

    def forget_sessions(self) -> None:
        """Know that no broker lives: after a crash of the whole cluster each would have to wait for its own session.

        Kafka: its controller cannot know, so brokers wait for broker.session.timeout.ms there.
        """
        for session in self.registrations.sessions.values():
            session.contact_ms = None
        self._set_expiry()

    def balance(self) -> None:
        """Give partitions back to their preferred leaders, as far as these are in sync."""
        self.change(balance_leaders(self.controller), "its preferred leader is in sync again")

    def _elect_uncleanly(self) -> None:
        self.change(elect_uncleanly(self.controller), "unclean.leader.election.enable lets anybody lead")

    # Changes

    def change(
        self, records: Sequence[MetadataRecord], why: str = "somebody asked for it", *, at_once: bool = True
    ) -> None:
        """Write records into the metadata log; brokers fetch them from there, and do what they say."""
        if not records:
            return
        with tell_decisions(self.events, self.image, records, why, self.find_lost):
            self.log.append(records, now_ms=self.clock.now_ms())
        if any(record.type_number == 4 for record in records):
            self._take_dynamic_configs()
        if not self.log.is_together:
            self._wake()

    @contextmanager
    def together(self) -> Iterator[None]:
        """Let changes reach the disk and the brokers together."""
        try:
            with self.log.together(self.clock.now_ms):
                yield
        finally:
            self._wake()

    def _wake(self) -> None:
        """Let those hear who wait for a change."""
        _wake(self._waiting)
        _wake(self._heard)

    def _check_configs(self, resource_type: int, name: str, configs: Mapping[str, str]) -> None:
        if resource_type == TOPIC:
            check_topic_config(configs, self.config)

    def _take_dynamic_configs(self) -> None:
        self.config.set_dynamic(default=self.image.configs.get((BROKER, ""), {}))

    # What handlers of wishes ask

    @cached_property
    def mutation_quota(self) -> MutationQuota:
        """What counts the changes of topics, where somebody limits them."""
        from minibroker.quotas.controller_mutations import MutationQuota

        sample_ms = self.config["controller.quota.window.size.seconds"] * 1000
        return MutationQuota(self.config["controller.quota.window.num"], sample_ms)

    def opened(self, made: Iterable[tuple[str, Iterable[int]]]) -> None:
        """Brokers open partitions when they have read of them; here is none to wait for."""

    def topic_config(self, topic: str) -> TopicConfig:
        return TopicConfig(self.image.topic_configs(topic), self.config)

    def check_settings(self, altered: Mapping[str, str]) -> None:
        """Take settings of a broker that it alone could judge: it keeps what it has where it cannot take them."""

    def owns_configs_of(self, broker_id: int) -> bool:
        """Return whether settings of a broker can be altered here."""
        return broker_id in self.image.brokers

    @property
    def metadata_log(self) -> MetadataLog:
        return self.log

    def metadata_observers(self) -> list[tuple[int, int]]:
        """Return the brokers, which follow the metadata log without a vote, and up to where each has applied it."""
        sessions = self.registrations.sessions
        return [(broker_id, session.metadata_offset) for broker_id, session in sorted(sessions.items())]

    def unregister(self, broker_id: int) -> list[MetadataRecord]:
        """Return the records that forget a broker."""
        session = self.registrations.sessions.get(broker_id)
        if session is not None and session.contact_ms is not None:
            # Kafka: forgets it, and it goes on without ever being heard again.
            raise KafkaError(Error.INVALID_REQUEST, f"broker {broker_id} runs: stop it first")
        return self.registrations.unregister(broker_id)

    # Messages

    def answer(self, source: NodeId, message: Any, version: int) -> Any:
        """Answer a broker, now or later."""
        own = self._answers.get(type(message))
        if own is None and message.api == FLOW_REPORT:
            own = self._flow_report
        if own is not None:
            return own(message, version)
        # The wish of a client. None of these handlers looks at a connection.
        context = Context(self, None, version, None)  # type: ignore[arg-type]
        made = find_route(message.api, version).handler(message, context)
        return self.shares.start(made) if is_work(made) else made

    def _register(self, request: BrokerRegistrationRequest, version: int) -> Any:
        steady_ms = self.clock.steady_ms()
        records, response = self.registrations.register(
            request, next_offset=self.log.log_end_offset, steady_ms=steady_ms
        )
        self.change(records, f"broker {request.broker_id} registers for a new life")
        return response

    def _heartbeat(self, request: BrokerHeartbeatRequest, version: int) -> Any:
        response = self._beat(request)
        if _has_to_wait(request, response):
            response = self._beat(request)  # who is the last one alive has nobody to wait for
        _wake(self._heard)
        return self._stopping(request, self._begin_wait(self._heard)) if _has_to_wait(request, response) else response

    def _beat(self, request: BrokerHeartbeatRequest) -> BrokerHeartbeatResponse:
        steady_ms = self.clock.steady_ms()
        records, response = self.registrations.heartbeat(
            request, next_offset=self.log.log_end_offset, steady_ms=steady_ms
        )
        self.change(records, f"broker {request.broker_id} {'stops in order' if request.want_shut_down else 'is there'}")
        self._set_expiry()
        return response

    async def _stopping(self, request: BrokerHeartbeatRequest, heard: asyncio.Future[None]) -> Any:
        """Answer a broker that wants to stop when it may, or when its next heartbeat is due."""
        await self._wait(self._heard, heard, self.config["broker.heartbeat.interval.ms"] / 2)
        return self._beat(request)

    def _alter_partition(self, request: AlterPartitionRequest, version: int) -> Any:
        records, response = alter_partition(self.controller, request, version)
        self.change(records, "")
        return response

    def _assign_replicas(self, request: AssignReplicasToDirsRequest, version: int) -> Any:
        records, response = assign_replicas(self.controller, request)
        self.change(records, f"broker {request.broker_id} says which of its logs can be opened")
        return response

    @cached_property
    def tokens(self) -> DelegationTokens:
        """What is decided of delegation tokens."""
        from minibroker.controller.delegation_tokens import tokens_of

        return tokens_of(self.config, lambda: self.image, lambda: format_id(random_id(self.chance)))

    def _answer_client(self, envelope: EnvelopeRequest, version: int) -> EnvelopeResponse:
        """Decide what a client wishes of delegation tokens, of whom its broker says who it is."""
        from minibroker.security.envelopes import unseal

        request, request_version, requester = unseal(envelope)
        records, response = self.tokens.decide(request, requester, self.clock.now_ms())
        self.change(records, f"{requester} asked for it")
        return EnvelopeResponse(response_data=response.encode(request_version), error_code=Error.NONE)

    def _expire_tokens(self) -> None:
        self.change(self.tokens.expired(self.clock.now_ms()), "their time is over")

    @cached_property
    def masters(self) -> Masters:
        """Who shares what instances are promised."""
        from minibroker.instances.masters import Masters
        from minibroker.instances.settings import read_instances

        return Masters(
            *(read_instances(self.config), lambda: self.image, self.log.epoch, self.events, self.say),
            began_ms=self._began_ms,
            is_first=self._is_new,
        )

    def _flow_report(self, request: FlowReportRequest, version: int) -> Any:
        from minibroker.instances.messages import report_of, response_of

        return response_of(self.masters.take(request.instance, report_of(request), self.clock.steady_ms()))

    def _producer_ids(self, request: AllocateProducerIdsRequest, version: int) -> Any:
        try:
            records, first, count = self.controller.allocate_producer_ids(request.broker_id, request.broker_epoch)
        except KafkaError as error:
            return AllocateProducerIdsResponse(
                throttle_time_ms=0, error_code=error.code, producer_id_start=-1, producer_id_len=0
            )
        self.change(records)
        return AllocateProducerIdsResponse(
            throttle_time_ms=0, error_code=Error.NONE, producer_id_start=first, producer_id_len=count
        )

    def _fetch(self, request: FetchRequest, version: int) -> Any:
        answer = metadata_fetch.fetch(self.log, request)
        return self._read_later(request, self._begin_wait(self._waiting)) if answer is None else answer

    async def _read_later(self, request: FetchRequest, more: asyncio.Future[None]) -> FetchResponse:
        await self._wait(self._waiting, more, request.max_wait_ms)
        return metadata_fetch.fetch(self.log, request) or FetchResponse(responses=[])

    def _fetch_snapshot(self, request: FetchSnapshotRequest, version: int) -> Any:
        return metadata_fetch.fetch_snapshot(self.log, request)

    def _begin_wait(self, waiting: dict[asyncio.Future[None], None]) -> asyncio.Future[None]:
        """Hear from now on: a coroutine that waits is run later, and would miss what happens until then."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiting[done] = None
        return done

    async def _wait(
        self, waiting: dict[asyncio.Future[None], None], done: asyncio.Future[None], max_wait_ms: float
    ) -> None:
        timer = self.clock.after(max_wait_ms, lambda: None if done.done() else done.set_result(None))
        try:
            await done
        finally:
            timer.cancel()
            waiting.pop(done, None)


def _has_to_wait(request: BrokerHeartbeatRequest, response: BrokerHeartbeatResponse) -> bool:
    """Whether a broker wants to stop and may not yet."""
    return request.want_shut_down and not response.should_shut_down and response.error_code == Error.NONE


def _wake(waiting: dict[asyncio.Future[None], None]) -> None:
    for done in list(waiting):
        if not done.done():
            done.set_result(None)

"""The stage of a lesson: a cluster whose clock stands still, the lesson's clients, and what each command does to them.

    stage = Stage(clock, events, chance)
    told = await stage.do(parse_command('produce orders-0 "a" acks=all'))

What must hold: a command returns when nothing moves any more, and returns what it has to tell; what it did shows in the
events. With the clock frozen and nothing left to chance, the same commands have the same events.
"""

from __future__ import annotations

import asyncio
from inspect import isawaitable

from minibroker.client.coordinators import GROUP, TRANSACTION
from minibroker.clock.steered import duration_ms
from minibroker.cluster.cluster import Cluster
from minibroker.cluster.control import call_through
from minibroker.cluster.groups import seen_groups
from minibroker.cluster.nodes import RUNNING
from minibroker.errors import Error, KafkaError
from minibroker.event_kinds import Clock as ClockMoved
from minibroker.lessons import exhibits, operators
from minibroker.lessons.clients import (
    Asking,
    NotPossible,
    Produced,
    Reader,
    data_of,
    delete_records,
    produce,
    texts_of,
)
from minibroker.lessons.commands import policy_since
from minibroker.lessons.latency import timed
from minibroker.lessons.limits import LimitedClients, shares_told
from minibroker.lessons.logins import Talks, login_of
from minibroker.lessons.members import CONSUMER, EAGER, JOIN, REBALANCE_MS, SESSION_MS, SYNC, Member, Members, commit
from minibroker.lessons.producers import Producer
from minibroker.lessons.rules import look_for, make_rule, remove_rules, tell_decision, topics_seen
from minibroker.log.memory_storage import MemoryStorage
from minibroker.protocol.messages.end_txn import EndTxnRequest
from minibroker.protocol.messages.metadata import MetadataRequest
from minibroker.protocol.messages.produce import ProduceRequest
from minibroker.reporter import Reporter
from minibroker.security.users import Users

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from contextlib import AbstractAsyncContextManager
    from random import Random
    from typing import Any, TypeVar

    from minibroker.client.transactions import Transactions
    from minibroker.clock.steered import SteeredClock
    from minibroker.events import EventStream
    from minibroker.lessons.commands import Command
    from minibroker.protocol.headers import Request
    from minibroker.taught import SeenLesson

    T = TypeVar("T")

CLIENT_ID = "lesson"
# Nobody wants to look at fifty.
SETTINGS = {"offsets.topic.num.partitions": "1", "transaction.state.log.num.partitions": "1"}
DELAY, MECHANISMS = "connection.failed.authentication.delay.ms", "sasl.enabled.mechanisms"
AUTHORIZER, STANDARD = "authorizer.class.name", "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
ARRIVAL_MS = 3_000  # within which what was sent is at its broker, and an answer is there that waits for nobody


class Quiet(Reporter):
    """What brokers would tell their operator; a student is told by events."""

    def say(self, line: str) -> None: ...


class Stage:
    """One cluster, from the command that starts it to the end."""

    def __init__(self, clock: SteeredClock, events: EventStream, chance: Random, *, ports: Sequence[int] = ()):
        self.clock = clock
        self.events = events
        self.cluster: Cluster | None = None
        self.on_page: SeenLesson | None = None  # what brokers say of the lesson that is played
        self._chance = chance
        self._ports = ports
        self._asking = Asking(self.address_of, CLIENT_ID)
        self._readers: dict[tuple[str, int, str, bool], Reader] = {}
        self._later: dict[asyncio.Task[str], Asking] = {}
        self._members = Members(self._group_state)
        self._producers: dict[str, Producer] = {}
        self._talks = Talks(chance)
        self._users: dict[str, str] = {}  # passwords
        self._user = "who has not logged in"
        self._ruling: Asking | None = None  # as the first user
        self.limits = LimitedClients(self._asking, self.address_of, clock, lambda: self.on.nodes, self._leader)
        self.sent: list[bytes] = []  # batches, as the lesson's producers made them
        self.v07 = bytearray()  # a log of Kafka 0.7
        clock.watchers[self._tell_clock] = None

    def _tell_clock(self, what: str, amount: float) -> None:
        if self.events.observed and self.cluster is not None and self.cluster.nodes:
            self.events.emit(ClockMoved(what=what, amount=amount))

    async def do(self, command: Command) -> list[str]:
        """Carry out a command; return what it tells. KafkaError, ValueError or TimeoutError say why it cannot be."""
        if self.cluster is None and command.verb != "start brokers":
            raise NotPossible("a lesson begins with a cluster: start 3 brokers")
        told: list[str] = []
        if command.verb in VERBS:
            result = VERBS[command.verb](self, command)
            if isawaitable(result):
                await result
        else:
            told = await ACTS[command.verb](self, command) or []
        await self.clock.settle()
        return told + await self._hear()

    async def close(self) -> None:
        """End the clients, then the cluster, as they stand."""
        for task in self._later:
            task.cancel()
        await asyncio.gather(*self._later, return_exceptions=True)
        await self._members.close()
        await self._talks.close()
        if self._ruling is not None:
            await self._ruling.close()
        await self.limits.close()
        for asking in (*self._later.values(), *(each.asking for each in self._producers.values()), self._asking):
            await asking.close()
        if self.cluster is not None:
            self.cluster.links.heal()
            await self.cluster.kill_all()
        self.clock.watchers.pop(self._tell_clock, None)

    @property
    def asking(self) -> Asking:
        """The client of the lesson that is nobody in particular."""
        return self._asking

    @property
    def on(self) -> Cluster:
        assert self.cluster is not None
        return self.cluster

    # Brokers

    async def _start_cluster(self, command: Command) -> None:
        if self.cluster is not None:
            raise NotPossible("the cluster is there already")
        settings = {**SETTINGS, **command.get("SETTINGS", {})}
        users = None
        if "users" in command:
            self._users = command["users"]
            users = Users(self._users)
            settings = {DELAY: "0", MECHANISMS: users.mechanisms, **settings}
            if "authorizer" in command:
                settings = {AUTHORIZER: STANDARD, "super.users": f"User:{next(iter(self._users))}", **settings}
        cluster = self.cluster = Cluster(
            settings,
            lambda name: MemoryStorage(self.clock.now_ms),
            brokers=command["COUNT"],
            racks=command.get("racks", ()),
            as_version=command.get("as"),
            ports=self._ports,
            protocol="PLAINTEXT" if users is None else "SASL_PLAINTEXT",
            users=users,
            clock=self.clock,
            chance=self._chance,
            events=self.events,
            reporter=Quiet(),
            steer=call_through,
        )
        cluster.lesson = self.on_page
        await self._in_time(cluster.start_all(), freeze=True)

    async def _start(self, command: Command) -> None:
        await self._in_time(self.on.start(command["WHO"]))

    async def _stop(self, command: Command) -> None:
        await self._in_time(self.on.stop(command["WHO"]))

    async def _in_time(self, work: Awaitable[None], *, freeze: bool = False) -> None:
        """Let the clock run while something waits for it; brokers start and stop in real time."""
        was_frozen = self.clock.is_frozen or freeze
        watchers, self.clock.watchers = self.clock.watchers, {}  # nobody asked for it
        try:
            if was_frozen:
                self.clock.thaw()
            await work
        finally:
            if was_frozen:
                self.clock.freeze()
            self.clock.watchers = watchers

    # Topics

    async def _topic(self, command: Command) -> None:
        name = command["NAME"]
        self.on.create_topic(
            name,
            command.get("partitions", 1),
            assignments=command.get("replicas", ()),
            **command.get("SETTINGS", {}),
        )
        for partition in range(len(self.on.controller.controller.get_topic(name).partitions)):
            await self.on.waits.leader(name, partition)

    async def _rule(self, command: Command) -> list[str]:
        cluster = self.on
        cluster.cuts_to_high_watermark = command["RULE"] == "high-watermark"
        for node in cluster.nodes.values():
            node.partitions.cuts_to_high_watermark = cluster.cuts_to_high_watermark
        if not cluster.cuts_to_high_watermark:
            return ["followers cut their logs where the epochs part, as since Kafka 0.11"]
        return ["followers cut their logs to their high watermark, as before Kafka 0.11"]

    # Steps

    async def _step(self, command: Command) -> None:
        for _ in range(command.get("times", 1)):
            self.on.steps.step(command.get("KIND"))
            await self.clock.settle()

    # Clients

    async def _produce(self, command: Command) -> list[str]:
        topic, partition = command.topic, command.partition
        found = self.on.controller.controller.get_topic(topic)
        broker = command["to"] if "to" in command else self._leader(topic, partition)
        acks, is_later = command.get("acks", -1), "later" in command
        now_ms = self.clock.now_ms() + round(duration_ms(command.get("ahead", 0)))
        rows = [each._replace(timestamp=now_ms) for each in exhibits.records_of(self, command)]
        batch = Produced(
            topic, found.id, partition, rows, acks, format=command.get("format", 2), codec=exhibits.codec_of(command)
        )
        if "as" in command:
            return await self._produce_as(self._producer(command["as"]), broker, batch, command)
        self.sent.append(data_of(batch))
        if "lost" in command:
            return [await self._losing(broker, self._asking, ProduceRequest, produce(self._asking, broker, batch))]
        asking = Asking(self.address_of, CLIENT_ID) if is_later or not acks else self._asking
        work = produce(asking, broker, batch, is_later=is_later)
        if asking is self._asking:
            return [await work]
        # Nobody waits for the answer, so wait until it has arrived, as far as one can see that.
        task = asyncio.get_running_loop().create_task(work)
        self._later[task] = asking
        try:
            await self.events.wait_for(
                lambda event: event.kind == "produce" and getattr(event, "broker", 0) == broker, timeout_ms=ARRIVAL_MS
            )
        except TimeoutError:
            return ["sent, and not at its broker"]
        return [await task] if not acks else []

    def _leader(self, topic: str, partition: int) -> int:
        leader = self.on.partition(topic, partition).leader
        if leader < 0:
            raise KafkaError(Error.LEADER_NOT_AVAILABLE, "nobody leads")
        return leader

    def _reader(self, command: Command) -> Reader:
        rack, is_committed = command.get("rack", ""), "committed" in command
        topic, partition = command.topic, command.partition
        key = (topic, partition, rack, is_committed)
        if key not in self._readers:
            self._readers[key] = Reader(self._asking, topic, partition, rack, is_committed=is_committed)
        return self._readers[key]

    async def _consume(self, command: Command) -> list[str]:
        reader, told = self._reader(command), []
        if "from" in command:
            told = await reader.seek(command["from"], self.reachable())
        return told + await reader.read(self.reachable())

    async def _delete(self, command: Command) -> None:
        topic, partition = command.topic, command.partition
        leader = self.on.partition(topic, partition).leader
        await delete_records(self._asking, leader, topic, partition, command["OFFSET"])

    async def _offsets(self, command: Command) -> list[str]:
        reader = Reader(self._asking, command.topic, command.partition, is_committed="committed" in command)
        return await reader.ends(self.reachable())

    def reachable(self) -> list[int]:
        """Brokers that a client finds."""
        cluster = self.on
        return [
            broker
            for broker in cluster.broker_ids
            if cluster.states[broker] == RUNNING and broker not in cluster.cut_from_clients
        ]

    def address_of(self, broker: int) -> tuple[str, int]:
        node = self.on.nodes.get(broker)
        if node is None:
            raise NotPossible(f"there is no broker {broker}")
        server = node.servers[0]
        return server.host, server.port

    # Logins and access rules

    async def _connect(self, command: Command) -> list[str]:
        broker = self.reachable()[0]
        mechanism = command.get("by", "SCRAM-SHA-256")
        return await self._talks.connect(command["CLIENT"], broker, self.address_of(broker), mechanism)

    async def _say_first(self, command: Command) -> list[str]:
        return await self._talks.find(command["CLIENT"]).say_first(command["NAME"], self._talks.new_nonce())

    async def _say_final(self, command: Command) -> list[str]:
        return await self._talks.find(command["CLIENT"]).say_final(command["WORD"], command.get("nonce"))

    async def _check_login(self, command: Command) -> list[str]:
        return self._talks.find(command["CLIENT"]).check()

    async def _repeat_first(self, command: Command) -> list[str]:
        return await self._talks.find(command["CLIENT"]).send_first(self._talks.find(command["CLIENT'"]).first)

    async def _repeat_final(self, command: Command) -> list[str]:
        return await self._talks.find(command["CLIENT"]).send_final(self._talks.find(command["CLIENT'"]).final)

    async def _overhear(self, command: Command) -> list[str]:
        return self._talks.find(command["CLIENT"]).overheard()

    async def _guess(self, command: Command) -> list[str]:
        talk = self._talks.find(command["CLIENT"])
        return [line for text in command["TEXTS"] for line in talk.guess(text)]

    async def _log_in(self, command: Command) -> list[str]:
        """Begin anew as somebody: what clients knew before, another one has learned."""
        await self._asking.close()
        self._asking = self._as(command["NAME"])
        self._readers.clear()
        self._user = command["NAME"]
        await self._asking.ask(self.reachable()[0], MetadataRequest(topics=[]))
        return [f"{self._user} has logged in"]

    def _as(self, user: str) -> Asking:
        """Return somebody who asks as a user."""
        if user not in self._users:
            raise NotPossible(f"there is no user {user}: start 1 brokers users={user}:secret")
        asking = Asking(self.address_of, CLIENT_ID)
        asking.security = login_of(user, self._users[user])
        return asking

    def _rules(self) -> Asking:
        """Return who may make rules."""
        if self._ruling is None:
            if not self._users:
                raise NotPossible("rules are made by the first user: start 1 brokers users=admin:top authorizer")
            self._ruling = self._as(next(iter(self._users)))
        return self._ruling

    async def _make_rule(self, command: Command) -> None:
        await make_rule(
            self._rules(),
            self.reachable()[0],
            command["NAME"],
            command["OPERATION"],
            command["RESOURCE"],
            allows=command.verb == "allow",
            host=command.get("from"),
        )

    async def _take_back(self, command: Command) -> list[str]:
        return await remove_rules(
            self._rules(), self.reachable()[0], command["NAME"], command["OPERATION"], command["RESOURCE"]
        )

    async def _who_may(self, command: Command) -> list[str]:
        authorizer = self.on.nodes[self.reachable()[0]].authorizer
        return tell_decision(
            authorizer, command["NAME"], command["OPERATION"], command["RESOURCE"], command.get("from")
        )

    async def _topics(self, command: Command) -> list[str]:
        return await topics_seen(self._asking, self.reachable()[0], self._user)

    async def _look_for(self, command: Command) -> list[str]:
        return await look_for(self._asking, self.reachable()[0], self._user, command["TOPIC"])

    # Groups

    async def _consume_for(self, command: Command) -> list[str]:
        """A consumer that starts knows nothing: what it read before, another one has read."""
        reader = Reader(self._asking, command.topic, command.partition, is_committed="committed" in command)
        coordinator, reset = await self._coordinator(command["GROUP"]), command.get("reset", "latest")
        since = policy_since(reset, self.clock.now_ms())
        return await reader.resume(command["GROUP"], reset, coordinator, self.reachable(), since)

    def _group_state(self, group: str) -> str:
        try:
            return seen_groups(self.on).group(group).state
        except KafkaError:
            return ""

    async def _coordinator(self, key: str, key_type: int = GROUP) -> int:
        """Return who coordinates a group or a transactional id, when it is ready to."""
        broker = await self._asking.coordinator(self.reachable()[0], key, key_type)
        is_ready = self._coordinates if key_type == TRANSACTION else seen_groups(self.on).coordinator
        await self.events.wait_until(lambda: is_ready(key) == broker, timeout_ms=ARRIVAL_MS)
        return broker

    def _coordinates(self, transactional_id: str) -> int:
        """Return the broker that is ready to coordinate an id, -1 if none is."""
        for broker, node in self.on.nodes.items():
            try:
                node.transactions.coordinator.find(transactional_id)
            except KafkaError:
                continue
            return broker
        return -1

    async def _hear(self) -> list[str]:
        """Wait for the answers to members that are under way; return what members have to tell."""
        while due := self._members.due():
            if not await self._first_of(due):
                break
        return self._members.take_lines()

    async def _first_of(self, answers: list[asyncio.Task[None]], kind: str = "group") -> bool:
        """Wait until an answer has come, or something has happened to a group; False if nothing does."""
        news = asyncio.get_running_loop().create_task(
            self.events.wait_for(lambda event: True, (kind,), timeout_ms=ARRIVAL_MS)
        )
        try:
            await asyncio.wait([news, *answers], return_when=asyncio.FIRST_COMPLETED)
            return not news.done() or news.exception() is None
        finally:
            news.cancel()
            await asyncio.gather(news, return_exceptions=True)
            await self.clock.settle()

    def _member(self, command: Command) -> Member:
        member = self._members.get(command["MEMBER"])
        if member is None:
            raise NotPossible(f"there is no member {command['MEMBER']}: join GROUP as {command['MEMBER']}")
        if member.waits_for:
            raise NotPossible(f"{member.name} waits for the answer to its {member.waits_for}")
        return member

    async def _join(self, command: Command) -> None:
        member = self._members.get(command["MEMBER"])
        if member is None:
            member = Member(
                command["MEMBER"],
                command["GROUP"],
                command.get("topics", []),
                by=command.get("by", EAGER),
                session_ms=round(duration_ms(command.get("session", SESSION_MS))),
                rebalance_ms=round(duration_ms(command.get("rebalance", REBALANCE_MS))),
                asking=Asking(self.address_of, command["MEMBER"]),
            )
            self._members.add(member)
        member = self._member(command)
        broker = await self._coordinator(member.group)
        if member.by == CONSUMER:
            await member.enter(broker)
        else:
            await self._first_of([member.begin(JOIN, member.join(broker))])

    async def _sync(self, command: Command) -> None:
        member = self._member(command)
        answer = member.begin(SYNC, member.sync(await self._coordinator(member.group)))
        if member.leads is not None:  # it need not wait for anybody
            await asyncio.wait([answer], timeout=ARRIVAL_MS / 1000)

    async def _heartbeat(self, command: Command) -> None:
        member = self._member(command)
        await member.heartbeat(await self._coordinator(member.group))

    async def _leave(self, command: Command) -> None:
        member = self._member(command)
        await member.leave(await self._coordinator(member.group))

    async def _commit(self, command: Command) -> None:
        member = self._member(command)
        await member.commit(await self._coordinator(member.group), command["PARTITION"], command["OFFSET"])

    async def _commit_for(self, command: Command) -> list[str]:
        group, place, offset = command["GROUP"], command["PARTITION"], command["OFFSET"]
        broker = await self._coordinator(group)
        if "as" in command:
            producer = self._producer(command["as"])
            coordinator = await self._coordinator_of(producer)
            return await producer.commit_offset(coordinator, broker, group, place, offset)
        await commit(self._asking, broker, group, place, offset)
        return []

    # Producers that brokers know

    def _producer(self, name: str) -> Producer:
        if name not in self._producers:
            raise NotPossible(f"there is no producer {name}: init {name}, or init {name} for ID")
        return self._producers[name]

    async def _coordinator_of(self, producer: Producer) -> int:
        """Return who coordinates its transactions; of one without any, whom it asks for an id."""
        if producer.transactional_id is None:
            return self.reachable()[0]
        return await self._coordinator(producer.transactional_id, TRANSACTION)

    async def _init(self, command: Command) -> list[str]:
        name = command["PRODUCER"]
        said: dict[str, Any] = {"transactional_id": command["ID"]} if "ID" in command else {}
        if "classic" in command:
            said["is_classic"] = True
        if "timeout" in command:
            said["timeout_ms"] = round(duration_ms(command["timeout"]))
        producer = self._producers.get(name)
        if producer is None:
            producer = Producer(name, **said, asking=Asking(self.address_of, name))
        elif any(getattr(producer, what) != value for what, value in said.items()):
            # Begun anew with other settings. What is on its way arrives all the same.
            before = producer
            producer = Producer(name, **said, asking=before.asking)
            producer.delayed = before.delayed
        self._producers[name] = producer
        return await producer.init(await self._coordinator_of(producer))

    async def _produce_as(self, producer: Producer, broker: int, batch: Produced, command: Command) -> list[str]:
        told = []
        if producer.transactional_id is not None:
            place = (batch.topic, batch.partition)
            told = await producer.add(await self._coordinator_of(producer), place)
        sent = producer.batch(batch)
        if "delayed" in command:
            what = f"{texts_of(sent)} of {producer.name}"
            producer.delayed.append((what, lambda: producer.send(broker, sent, self._asking)))
            return [*told, f"{what} is on its way"]
        if "lost" in command:
            return told + await self._losing(broker, producer.asking, ProduceRequest, producer.send(broker, sent))
        return told + await producer.send(broker, sent)

    async def _resend(self, command: Command) -> list[str]:
        producer = self._producer(command["PRODUCER"])
        batch = producer.last
        return await producer.send(self._leader(batch.topic, batch.partition), batch)

    async def _end(self, command: Command) -> list[str]:
        producer, is_commit = self._producer(command["PRODUCER"]), command.verb == "commit"
        request = producer.end_request(commit=is_commit)
        broker = await self._coordinator_of(producer)
        if "delayed" in command:
            what = f"the {command.verb} of {producer.name} in epoch {producer.epoch}"
            producer.delayed.append((what, lambda: producer.end_late(broker, request, self._asking)))
            return [f"{what} is on its way"]
        if "lost" in command:
            return await self._losing(broker, producer.asking, EndTxnRequest, producer.end(broker, request))
        return await producer.end(broker, request)

    async def _arrive(self, command: Command) -> list[str]:
        producer = self._producer(command["PRODUCER"])
        if not producer.delayed:
            raise NotPossible(f"nothing of {producer.name} is on its way")
        what, arrive = producer.delayed.pop(0)
        return [f"{what} arrives", *await arrive()]

    # Operators

    async def _transactions(self, command: Command) -> list[str]:
        async with self._operating() as transactions:
            return await operators.known_to_coordinators(transactions)

    async def _open(self, command: Command) -> list[str]:
        async with self._operating() as transactions:
            return await operators.open_for_leaders(transactions, command["PARTITION"])

    async def _hanging(self, command: Command) -> list[str]:
        longer_than = command.get("timeout", operators.LONGER_THAN)
        async with self._operating() as transactions:
            return await operators.hanging(transactions, command["PARTITION"], longer_than, self.clock.now_ms())

    async def _abort_hanging(self, command: Command) -> None:
        async with self._operating() as transactions:
            await operators.abort(transactions, command["PARTITION"], command["OFFSET"])

    def _operating(self) -> AbstractAsyncContextManager[Transactions]:
        return operators.operating(self.on.bootstrap_servers, self.clock)

    async def _losing(self, broker: int, asking: Asking, request: type[Request], work: Awaitable[T]) -> T:
        """Ask something of a broker that does it, and closes the connection in place of an answer."""
        faults = self.on.nodes[broker].faults
        rule = faults.add(api=request.api, client_id=asking.client_id, close="after", times=1)
        try:
            return await work
        finally:
            faults.remove(rule.id)

    # Old records: every replica cleans its own log, so this goes to all brokers that run

    async def _roll(self, command: Command) -> list[str]:
        rows = await self.on.cleaning.roll_now(command.topic, command.partition)
        return [_nothing(row) for row in rows if not row.is_rolled]

    async def _retention(self, command: Command) -> list[str]:
        rows = await self.on.cleaning.retention_now(command.topic, command.partition)
        return [_nothing(row) for row in rows if not row.segments]

    async def _compact(self, command: Command) -> list[str]:
        rows = await self.on.cleaning.compact_now(command.topic, command.partition)
        return [_nothing(row) for row in rows if not row.passes]


def _nothing(row: Any) -> str:
    return f"broker {row.broker} did nothing: {row.reason}"


# What is a verb of the cluster and has nothing to tell.
VERBS: dict[str, Callable[[Stage, Command], object]] = {
    "kill": lambda stage, given: stage.on.kill(
        given["WHO"], lossy="lossy" in given, torn_bytes=given.get("torn", 0), notice="unnoticed" not in given
    ),
    "pause": lambda stage, given: stage.on.pause(given["WHO"]),
    "resume": lambda stage, given: stage.on.resume(given["WHO"]),
    "set": lambda stage, given: stage.on.alter_topic(given["TOPIC"], **given["SETTINGS"]),
    "elect": lambda stage, given: stage.on.elect(given.topic, given.partition, unclean="unclean" in given),
    "move to": lambda stage, given: stage.on.move_leader(given.topic, given.partition, given["BROKER"]),
    "reassign to": lambda stage, given: stage.on.reassign(given.topic, given.partition, given["BROKERS"]),
    "reassign cancel": lambda stage, given: stage.on.reassign(given.topic, given.partition, None),
    "cut": lambda stage, given: stage.on.links.cut(given["END"], given["END'"], one_way="one-way" in given),
    "heal": lambda stage, given: stage.on.links.heal(given.get("END"), given.get("END'"), one_way="one-way" in given),
    "delay": lambda stage, given: stage.on.links.delay(given["END"], given["END'"], duration_ms(given["TIME"])),
    "isolate": lambda stage, given: stage.on.links.isolate(given["WHO"]),
    "hold": lambda stage, given: stage.on.steps.hold(*given["KINDS"], broker=given.get("of")),
    "release": lambda stage, given: stage.on.steps.release(*given.get("KINDS", ())),
    "freeze": lambda stage, given: stage.clock.freeze(),
    "thaw": lambda stage, given: stage.clock.thaw(),
    "advance": lambda stage, given: stage.clock.advance(given["TIME"], sessions=True),
    "wait isr": lambda stage, given: stage.on.waits.isr(given.topic, given.partition, given["BROKERS"]),
    "wait leader": lambda stage, given: stage.on.waits.leader(given.topic, given.partition, given["BROKER"]),
    "wait hw": lambda stage, given: stage.on.waits.high_watermark(given.topic, given.partition, given["OFFSET"]),
    "wait in sync": lambda stage, given: stage.on.waits.in_sync(),
    "wait group": lambda stage, given: stage.on.groups.wait_group(
        given["GROUP"], given["COUNT"], timeout=ARRIVAL_MS / 1000
    ),
}
# What a lesson does by itself.
ACTS: dict[str, Callable[[Stage, Command], Awaitable[list[str] | None]]] = {
    "start brokers": Stage._start_cluster,
    "start": Stage._start,
    "stop": Stage._stop,
    "topic": Stage._topic,
    "followers cut by": Stage._rule,
    "step": Stage._step,
    "produce": Stage._produce,
    "time": lambda stage, given: timed(stage.clock, stage.events, given, stage._produce, stage._tell_clock),
    "consume": Stage._consume,
    "delete": Stage._delete,
    "offsets": Stage._offsets,
    "consume for": Stage._consume_for,
    "commit for": Stage._commit_for,
    "commit as": Stage._commit,
    "init": Stage._init,
    "init for": Stage._init,
    "resend": Stage._resend,
    "commit": Stage._end,
    "abort": Stage._end,
    "arrive": Stage._arrive,
    "limit": lambda stage, given: stage.limits.limit(stage.reachable()[0], given),
    "send bytes by": lambda stage, given: stage.limits.send(given),
    "want": lambda stage, given: stage.limits.want(given),
    "instances": lambda stage, given: shares_told(stage.on.instances()),
    "rate": lambda stage, given: stage.limits.rate(stage.reachable()[0], given),
    "knock": lambda stage, given: stage.limits.knock(stage.reachable()[0], given),
    "hear": lambda stage, given: stage.limits.hear(given),
    "transactions": Stage._transactions,
    "transactions in": Stage._open,
    "find hanging": Stage._hanging,
    "abort hanging": Stage._abort_hanging,
    "connect": Stage._connect,
    "say first as": Stage._say_first,
    "say final with": Stage._say_final,
    "check": Stage._check_login,
    "repeat first of": Stage._repeat_first,
    "repeat final of": Stage._repeat_final,
    "overhear": Stage._overhear,
    "guess": Stage._guess,
    "log in": Stage._log_in,
    "allow": Stage._make_rule,
    "deny": Stage._make_rule,
    "take back": Stage._take_back,
    "who may": Stage._who_may,
    "topics": Stage._topics,
    "look for": Stage._look_for,
    "join as": Stage._join,
    "sync": Stage._sync,
    "heartbeat": Stage._heartbeat,
    "leave": Stage._leave,
    "roll": Stage._roll,
    "retention": Stage._retention,
    "compact": Stage._compact,
    **exhibits.ACTS,
}

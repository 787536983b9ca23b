"""Clients of transactions in the simulation: each life of one is a process, and speaks the raw protocol.

    Writer       writes to some partitions in each transaction, and commits or aborts it
    Processor    reads a partition, writes of each record another one, and commits with that how far it has read
    Reader       reads along, committed or all there is
    OffsetReader looks how far the processors have read

Both protocols: classic ones add partitions before they write, and raise their epoch after an error (KIP-360); those of
transactions v2 leave that to the brokers (KIP-890). What they ask and are told is written down (history.py). A client
that is told that it is fenced tries once more now and then, as a zombie does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from minibroker.client import Cluster as Client
from minibroker.client import Consumer
from minibroker.errors import Error, KafkaError, ProtocolError
from minibroker.log.build import build_batch
from minibroker.log.records import Record
from minibroker.protocol.headers import Request
from minibroker.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from minibroker.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from minibroker.protocol.messages.end_txn import EndTxnRequest
from minibroker.protocol.messages.find_coordinator import FindCoordinatorRequest
from minibroker.protocol.messages.init_producer_id import InitProducerIdRequest
from minibroker.protocol.messages.offset_fetch import OffsetFetchRequest
from minibroker.protocol.messages.produce import ProduceRequest
from minibroker.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest
from minibroker.simulation.processes import Process, ProcessKilled

from .edn import Keyword
from .history import ASSIGN, FAIL, FETCH_OFFSETS, INFO, OK, POLL, POLL_UNCOMMITTED, SEND, TXN, Entry
from .invariants import Violation

if TYPE_CHECKING:
    from .transaction_run import Run

Place = tuple[str, int]  # topic and partition

GROUP, TRANSACTION = 0, 1  # kinds of coordinators
GROUP_ID = "processors"
CALL_MS = 2500
PAUSE_MS, PAUSE_MS_MAX = 50, 1000  # before something is tried again; doubled each time
WRITE_MS_MAX = 6000  # so long a batch is sent again
END_MS_MAX = 20_000
NO_PRODUCER = (-1, -1)
NOT_COORDINATING = (Error.NOT_COORDINATOR, Error.COORDINATOR_NOT_AVAILABLE)
FENCED = (
    Error.PRODUCER_FENCED,
    Error.INVALID_PRODUCER_EPOCH,
    Error.INVALID_PRODUCER_ID_MAPPING,
    Error.TRANSACTIONAL_ID_NOT_FOUND,
)
# Answers that say that nothing has happened; after others that may pass, or none, the end may have been decided.
NOT_DECIDED = (Error.CONCURRENT_TRANSACTIONS, Error.COORDINATOR_LOAD_IN_PROGRESS)
WRITTEN_BEFORE = (Error.NONE, Error.DUPLICATE_SEQUENCE_NUMBER)


class Failed(Exception):
    """The transaction has to be aborted."""


class Over(Exception):
    """This life cannot go on."""


class Caller:
    """Somebody who asks brokers, in a process of its own."""

    def __init__(self, run: Run, name: str):
        self.run = run
        self.world = run.world
        self.chance = run.chance
        self.name = name
        self.number = run.next_process()
        self.process: Process = run.world.loop.process(name)
        self.client = Client(
            run.cluster.bootstrap_servers,
            client_id=name,
            clock=run.world.clock,
            timeout_ms=CALL_MS,
            retry_count=2,
            retry_pause_ms=PAUSE_MS,
        )
        self._coordinators: dict[tuple[int, str], int] = {}

    @property
    def now(self) -> int:
        """Virtual time, in microseconds."""
        return int(self.world.loop.time() * 1e6)

    async def live(self) -> None:
        """Do all there is to do, to the end or until somebody kills the process."""
        with suppress(ProcessKilled):
            await self.process.run(self._live())

    async def _live(self) -> None:
        try:
            await self.act()
        except Over as reason:
            self.world.trace.add(f"{self.name} ends: {reason}")
        finally:
            await self.client.close()

    async def act(self) -> None:
        raise NotImplementedError

    async def ask(self, request: Request, version: int, node: int) -> Any:
        """Ask a broker once; None: there is no answer, or it is lost on its way."""
        try:
            answer = await self.client.call(request, node, version=version, timeout_ms=CALL_MS)
        except (KafkaError, OSError):
            return None
        return None if self.chance.random() < self.run.lost_share else answer

    async def ask_coordinator(
        self, kind: int, key: str, request: Request, version: int, code_of: Callable[[Any], int]
    ) -> tuple[Any, Error]:
        """Ask whoever coordinates something, once; the error is NETWORK_EXCEPTION if there is no answer."""
        node = self._coordinators.get((kind, key))
        if node is None:
            node = await self._find(kind, key)
            if node is None:
                return None, Error.COORDINATOR_LOAD_IN_PROGRESS  # nobody has been asked for it
            self._coordinators[kind, key] = node
        answer = await self.ask(request, version, node)
        code = Error.NETWORK_EXCEPTION if answer is None else Error(code_of(answer))
        if answer is None or code in NOT_COORDINATING:
            self._coordinators.pop((kind, key), None)
        self.sent(request, version, node)
        return answer, code

    def sent(self, request: Request, version: int, node: int) -> None:
        """Take note of a request: it may come once more."""

    async def _find(self, kind: int, key: str) -> int | None:
        try:
            found = (await self.client.call(FindCoordinatorRequest(key_type=kind, coordinator_keys=[key]))).coordinators
        except (KafkaError, OSError):
            return None
        return found[0].node_id if found[0].error_code == Error.NONE else None

    async def until_told(self, attempt: Callable[[], Awaitable[Error]], time_ms: int) -> Error:
        """Try again as long as an error may pass, for so long; return the last."""
        until, pause_ms = self.world.loop.time() + time_ms / 1000, PAUSE_MS
        while True:
            code = await attempt()
            if not code.retriable or self.world.loop.time() > until:
                return code
            await self.world.clock.sleep(pause_ms)
            pause_ms = min(2 * pause_ms, PAUSE_MS_MAX)

    async def fetch_offset(self, place: Place, *, stable: bool) -> tuple[int, int] | None:
        """Return what is committed of a partition, and by which transaction; None: nothing.

        Kafka's, too, may be told of old offsets by a broker that does not know yet that it coordinates no more; nobody
        here believes such a one.
        """
        Group = OffsetFetchRequest.OffsetFetchRequestGroup
        topics = [Group.OffsetFetchRequestTopics(name=place[0], partition_indexes=[place[1]])]
        request = OffsetFetchRequest(groups=[Group(group_id=GROUP_ID, topics=topics)], require_stable=stable)
        found: list[Any] = []

        async def attempt() -> Error:
            led = self.run.leading_groups()
            answer, code = await self.ask_coordinator(
                GROUP, GROUP_ID, request, 9, lambda answer: answer.groups[0].error_code
            )
            if code != Error.NONE:
                return code
            if led is None or self.run.leading_groups() != led or self._coordinators.get((GROUP, GROUP_ID)) != led[0]:
                self._coordinators.clear()
                return Error.NOT_COORDINATOR
            found[:] = answer.groups[0].topics[0].partitions
            return Error(found[0].error_code)

        code = await self.until_told(attempt, END_MS_MAX)
        if code != Error.NONE:
            raise Over(f"offsets: {code.name}")
        offset = found[0].committed_offset
        return None if offset < 0 else (offset, int(found[0].metadata))


class Instance(Caller):
    """One life of a producer with a transactional id."""

    def __init__(self, run: Run, name: str, life: int, *, is_v2: bool, timeout_ms: int):
        super().__init__(run, f"{name}, life {life}")
        self.transactional_id = name
        self.is_v2 = is_v2
        self.timeout_ms = timeout_ms
        self.producer = NO_PRODUCER
        self.sequences: dict[Place, int] = {}
        self.added: set[Place | str] = set()  # to the transaction: partitions and groups
        self.is_unsure = False  # a batch may or may not be there, so its sequence numbers are of no use any more
        self.asked = 0  # when the commit was first asked for; 0: it was not
        self.entry: Entry | None = None  # the transaction
        self.micro_ops: list[Any] = []

    async def act(self) -> None:
        await self.init()
        while not self.run.is_over:
            await self.work()
            await self.world.clock.sleep(self.run.pause_ms())

    async def work(self) -> None:
        raise NotImplementedError

    def sent(self, request: Request, version: int, node: int) -> None:
        if not isinstance(request, InitProducerIdRequest | OffsetFetchRequest):
            self.run.repeat(self, request, version, node)

    async def init(self, expected: tuple[int, int] = NO_PRODUCER) -> None:
        """Get an id and epoch; whoever had the transactional id before is fenced."""
        request = InitProducerIdRequest(
            transactional_id=self.transactional_id,
            transaction_timeout_ms=self.timeout_ms,
            producer_id=expected[0],
            producer_epoch=expected[1],
        )

        async def attempt() -> Error:
            answer, code = await self.ask_coordinator(
                TRANSACTION, self.transactional_id, request, 5, lambda answer: answer.error_code
            )
            if code == Error.NONE:
                self.goes_on(answer.producer_id, answer.producer_epoch)
            return code

        code = await self.until_told(attempt, END_MS_MAX)
        if code != Error.NONE:
            raise Over(f"init: {code.name}")

    def goes_on(self, producer_id: int, epoch: int) -> None:
        """With another epoch the sequence numbers begin anew."""
        if (producer_id, epoch) != self.producer:
            self.producer = producer_id, epoch
            self.sequences.clear()
            self.is_unsure = False

    # A transaction

    async def transact(self, micro_ops: list[Any], commits: dict[Place, int] | None = None) -> bool:
        """Carry one out; return whether it was committed."""
        run = self.run
        self.micro_ops, self.asked, self.added = micro_ops, 0, set()
        self.entry = entry = run.history.invoke(self.number, TXN, [list(each) for each in micro_ops], self.now)
        run.transactions.append((self, entry, commits))
        try:
            await self._write_all(commits, entry)
            if self.chance.random() < 0.15:
                raise Failed("it is its own wish")
            if run.slow_share and self.chance.random() < run.slow_share:
                await self.world.clock.sleep(self.chance.uniform(0, 1.5 * self.timeout_ms))
        except Failed as reason:
            self.world.trace.add(f"{self.name}: {reason}")
            await self._abort()
            return False
        self.asked = self.now
        code, is_sure = await self._end(commit=True)
        if code == Error.NONE:
            self.conclude(OK)
            return True
        self.conclude(FAIL if is_sure else INFO)
        if code in FENCED:
            await self._go_on_as_zombie()
        if code != Error.INVALID_TXN_STATE and code != Error.TRANSACTION_ABORTABLE:
            raise Over(f"end: {code.name}")
        await self._abort()
        return False

    def conclude(self, outcome: Keyword) -> None:
        """The outcome is known, or never will be."""
        entry, run = self.entry, self.run
        if entry is None or not run.history.is_open(entry):
            return
        more: dict[str, Any] = {"asked": self.asked} if self.asked else {}
        commits = next(each for _, other, each in run.transactions if other is entry)
        if commits is not None:
            offsets = {f"{topic}-{number}": offset for (topic, number), offset in commits.items()}
            more["commits"] = {GROUP_ID: offsets}
        run.history.complete(entry, outcome, self.micro_ops, self.now, **more)

    async def _write_all(self, commits: dict[Place, int] | None, entry: Entry) -> None:
        sends = [op for op in self.micro_ops if op[0] == SEND]
        if commits is not None and self.chance.random() < 0.5:
            await self._commit_offsets(commits, entry)
            commits = None
        step = self.chance.choice([1, 3, 100])
        for first in range(0, len(sends), step):
            await self._write(sends[first : first + step])
            await self.run.repeat_old(self)
            if self.chance.random() < 0.2:
                await self.world.clock.sleep(self.chance.uniform(0, 300))
        if commits is not None:
            await self._commit_offsets(commits, entry)

    async def _write(self, sends: list[Any]) -> None:
        """Write some records, to each partition a batch."""
        by_place: dict[Place, list[Any]] = {}
        for op in sends:
            topic, _, number = op[1].rpartition("-")
            by_place.setdefault((topic, int(number)), []).append(op)
        if not self.is_v2:
            await self._add_partitions(by_place)
        batches = {place: self._batch(place, ops) for place, ops in by_place.items()}
        left = dict(batches)

        async def attempt() -> Error:
            worst = Error.NONE
            for leader, places in (await self._by_leader(left)).items():
                codes = Error.LEADER_NOT_AVAILABLE if leader < 0 else await self._produce(leader, places, batches)
                for place in places:
                    code, offset = (codes, -1) if isinstance(codes, Error) else codes[place]
                    if code in WRITTEN_BEFORE:
                        del left[place]
                        for index, op in enumerate(by_place[place] if offset >= 0 else ()):
                            op[2] = [offset + index, op[2]]
                    elif not code.retriable:
                        raise Failed(f"produce: {code.name}")
                    else:
                        self.client.forget(place[0])
                        worst = code
            return worst

        self.is_unsure = True
        code = await self.until_told(attempt, WRITE_MS_MAX)
        if code != Error.NONE:
            raise Failed(f"produce: {code.name}")
        self.is_unsure = False

    def _batch(self, place: Place, ops: list[Any]) -> bytes:
        sequence = self.sequences.get(place, 0)
        self.sequences[place] = sequence + len(ops)
        now_ms = self.world.clock.now_ms()
        records = [Record(None, b"%d" % op[2], (), now_ms, index) for index, op in enumerate(ops)]
        producer_id, epoch = self.producer
        return build_batch(
            2,
            records,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            transactional=True,
        )

    async def _by_leader(self, places: Iterable[Place]) -> dict[int, list[Place]]:
        found: dict[int, list[Place]] = {}
        for place in places:
            try:
                leader = (await self.client.leader_of(*place)).leader_id
            except KafkaError:
                leader = -1
            found.setdefault(leader, []).append(place)
        return found

    async def _produce(
        self, leader: int, places: list[Place], batches: dict[Place, bytes]
    ) -> Error | dict[Place, tuple[Error, int]]:
        Topic = ProduceRequest.TopicProduceData
        topics: dict[str, Any] = {}
        for topic, number in places:
            row = Topic.PartitionProduceData(index=number, records=batches[topic, number])
            topics.setdefault(topic, Topic(name=topic, partition_data=[])).partition_data.append(row)
        request = ProduceRequest(
            transactional_id=self.transactional_id, acks=-1, timeout_ms=CALL_MS, topic_data=list(topics.values())
        )
        version = 12 if self.is_v2 else 11
        answer = await self.ask(request, version, leader)
        self.sent(request, version, leader)
        if answer is None:
            return Error.NETWORK_EXCEPTION
        return {
            (topic.name, row.index): (Error(row.error_code), row.base_offset)
            for topic in answer.responses
            for row in topic.partition_responses
        }

    async def _add_partitions(self, places: Iterable[Place]) -> None:
        new = [place for place in places if place not in self.added]
        if not new:
            return
        topics: dict[str, list[int]] = {}
        for topic, number in new:
            topics.setdefault(topic, []).append(number)
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self.producer[0],
            v3_and_below_producer_epoch=self.producer[1],
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=name, partitions=each) for name, each in topics.items()],
        )
        await self._ask_in_transaction(
            "add partitions",
            TRANSACTION,
            self.transactional_id,
            request,
            3,
            _first_error,
        )
        self.added.update(new)

    async def _commit_offsets(self, commits: dict[Place, int], entry: Entry) -> None:
        """Commit offsets with the transaction; what is kept beside them says with which."""
        producer_id, epoch = self.producer
        if not self.is_v2:
            adding = AddOffsetsToTxnRequest(
                transactional_id=self.transactional_id,
                producer_id=producer_id,
                producer_epoch=epoch,
                group_id=GROUP_ID,
            )
            await self._ask_in_transaction(
                "add offsets", TRANSACTION, self.transactional_id, adding, 3, lambda answer: answer.error_code
            )
        Topic = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic
        Row = Topic.TxnOffsetCommitRequestPartition
        request = TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=GROUP_ID,
            producer_id=producer_id,
            producer_epoch=epoch,
            topics=[
                Topic(
                    name=topic,
                    partitions=[
                        Row(partition_index=number, committed_offset=offset, committed_metadata=str(entry["index"]))
                    ],
                )
                for (topic, number), offset in commits.items()
            ],
        )
        self.is_unsure = True
        await self._ask_in_transaction(
            "commit offsets",
            GROUP,
            GROUP_ID,
            request,
            5 if self.is_v2 else 3,
            lambda answer: answer.topics[0].partitions[0].error_code,
        )
        self.is_unsure = False

    async def _ask_in_transaction(
        self, what: str, kind: int, key: str, request: Request, version: int, code_of: Callable[[Any], int]
    ) -> None:
        async def attempt() -> Error:
            return (await self.ask_coordinator(kind, key, request, version, code_of))[1]

        code = await self.until_told(attempt, WRITE_MS_MAX)
        if code != Error.NONE:
            raise Failed(f"{what}: {code.name}")

    # The end

    async def _end(self, *, commit: bool) -> tuple[Error, bool]:
        """Return what the coordinator says, and if that is an error whether nothing can have been decided."""
        producer_id, epoch = self.producer
        request = EndTxnRequest(
            transactional_id=self.transactional_id, producer_id=producer_id, producer_epoch=epoch, committed=commit
        )
        is_sure = True

        async def attempt() -> Error:
            nonlocal is_sure
            version = 5 if self.is_v2 else 4
            answer, code = await self.ask_coordinator(
                TRANSACTION, self.transactional_id, request, version, lambda answer: answer.error_code
            )
            if code == Error.NONE and self.is_v2:
                self.goes_on(answer.producer_id, answer.producer_epoch)
            is_sure = is_sure and (not code.retriable or code in NOT_DECIDED)
            return code

        code = await self.until_told(attempt, END_MS_MAX)
        return code, is_sure

    async def _abort(self) -> None:
        """Abort the transaction; a classic producer of which a batch may be anywhere raises its epoch then."""
        code, _ = await self._end(commit=False)
        self.conclude(FAIL)
        if code in FENCED:
            await self._go_on_as_zombie()
        if code != Error.NONE and (self.is_v2 or code != Error.INVALID_TXN_STATE):
            raise Over(f"abort: {code.name}")
        if self.is_unsure:
            await self.init(self.producer)

    async def _go_on_as_zombie(self) -> None:
        """Write and commit once more, though it was told that it is fenced: nobody may ever see that (T2)."""
        if self.chance.random() < 0.5:
            return
        run, place = self.run, self.chance.choice(self.run.written)
        op = [SEND, f"{place[0]}-{place[1]}", run.next_value()]
        self.micro_ops, self.asked, self.added = [op], 0, set()
        self.entry = entry = run.history.invoke(self.number, TXN, [list(op)], self.now)
        run.transactions.append((self, entry, None))
        with suppress(Failed):
            await self._write([op])
        code, _ = await self._end(commit=True)
        self.conclude(FAIL)
        if code == Error.NONE:
            raise Violation("T2", f"{self.name} was told that it is fenced, and then that its transaction is committed")


def _first_error(answer: Any) -> int:
    rows = [row for topic in answer.results_by_topic_v3_and_below for row in topic.results_by_partition]
    return next((row.partition_error_code for row in rows if row.partition_error_code), int(Error.NONE))


class Successor(Instance):
    """Has what was left open aborted, and does nothing else."""

    async def act(self) -> None:
        await self.init()


class Writer(Instance):
    """Writes."""

    async def work(self) -> None:
        run, chance = self.run, self.chance
        places = chance.sample(run.written, chance.randint(1, len(run.written)))
        count = chance.choice([1, 3, 8])
        ops = [
            [SEND, f"{topic}-{number}", run.next_value()]
            for topic, number in (chance.choice(places) for _ in range(max(count, len(places))))
        ]
        await self.transact(ops)


class Processor(Instance):
    """Reads a partition, and writes."""

    def __init__(self, run: Run, name: str, life: int, place: Place, *, is_v2: bool, timeout_ms: int):
        super().__init__(run, name, life, is_v2=is_v2, timeout_ms=timeout_ms)
        self.place = place
        self.consumer = consumer_of(self, "read_committed")
        self.ready: list[tuple[int, int]] = []  # offsets and values that have been read

    async def act(self) -> None:
        await self.init()
        committed = await self.fetch_offset(self.place, stable=True)
        offset = 0 if committed is None else committed[0]
        await self.consumer.assign([(*self.place, offset)])
        try:
            while not self.run.is_over:
                offset = await self.process_some(offset)
                await self.world.clock.sleep(self.run.pause_ms())
        finally:
            await self.consumer.close()

    async def process_some(self, offset: int) -> int:
        """Process what comes at an offset; return where to go on."""
        run, chance = self.run, self.chance
        if not self.ready:
            self.ready = await fetch_values(self.consumer, self, 2000)
        if not self.ready:
            return offset
        count = chance.choice([1, 3, 10])
        taken, self.ready = self.ready[:count], self.ready[count:]
        key = f"{self.place[0]}-{self.place[1]}"
        ops: list[Any] = [[POLL, {key: [list(each) for each in taken]}]]
        for _ in taken:
            topic, number = chance.choice(run.made)
            ops.append([SEND, f"{topic}-{number}", run.next_value()])
        after = taken[-1][0] + 1
        if await self.transact(ops, {self.place: after}):
            return after
        self.ready = []
        await self.consumer.seek(*self.place, offset)
        return offset


def consumer_of(caller: Caller, isolation: str) -> Consumer:
    return Consumer(caller.client, isolation_level=isolation, partition_bytes_max=caller.run.fetch_bytes)


async def fetch_values(consumer: Consumer, caller: Caller, max_wait_ms: int) -> list[tuple[int, int]]:
    """Return offsets and values of one partition."""
    try:
        return [(record.offset, int(record.value or b"")) for record in await consumer.fetch(max_wait_ms)]
    except (KafkaError, ProtocolError, OSError) as error:
        caller.world.trace.add(f"{caller.name}: {error}")
        await caller.world.clock.sleep(PAUSE_MS_MAX)
        return []


class Reader(Caller):
    """Reads everything."""

    def __init__(self, run: Run, name: str, *, committed: bool):
        super().__init__(run, name)
        self.f = POLL if committed else POLL_UNCOMMITTED
        isolation = "read_committed" if committed else "read_uncommitted"
        self.consumer = consumer_of(self, isolation)

    async def act(self) -> None:
        await self.assign()
        while not self.run.is_over:
            await self.poll()
        await self.consumer.close()

    async def assign(self) -> None:
        """Begin at the beginning."""
        places = self.run.read
        await self.consumer.assign([(*place, 0) for place in places])
        keys = [f"{topic}-{number}" for topic, number in places]
        entry = self.run.history.invoke(self.number, ASSIGN, keys, self.now)
        self.run.history.complete(entry, OK, keys, self.now)

    async def poll(self, max_wait_ms: int = 3000, **more: Any) -> None:
        history = self.run.history
        entry = history.invoke(self.number, self.f, [[POLL]], self.now)
        found: dict[str, list[list[int]]] = {}
        try:
            for record in await self.consumer.fetch(max_wait_ms):
                key = f"{record.topic}-{record.partition}"
                found.setdefault(key, []).append([record.offset, int(record.value or b"")])
        except (KafkaError, ProtocolError, OSError) as error:
            self.world.trace.add(f"{self.name}: {error}")
            history.complete(entry, FAIL, [[POLL]], self.now, **more)
            await self.world.clock.sleep(PAUSE_MS_MAX)
            return
        history.complete(entry, OK, [[POLL, found]], self.now, **more)

    async def read_to_end(self) -> None:
        """Read all there is, at last."""
        await self.assign()
        ends = {place: self.run.end_of(place) for place in self.run.read}
        while any(self.consumer.position(*place) < end for place, end in ends.items()):
            await self.poll(final=True)
        await self.consumer.close()
        await self.client.close()


class OffsetReader(Caller):
    """Looks at offsets."""

    async def act(self) -> None:
        while not self.run.is_over:
            with suppress(Over):
                await self.look(self.chance.choice(self.run.written))
            await self.world.clock.sleep(self.chance.uniform(0, 4000))

    async def look(self, place: Place, *, stable: bool = False, **more: Any) -> None:
        history, key = self.run.history, f"{place[0]}-{place[1]}"
        entry = history.invoke(self.number, FETCH_OFFSETS, {GROUP_ID: {key: None}}, self.now)
        try:
            found = await self.fetch_offset(place, stable=stable)
        except Over:
            history.complete(entry, FAIL, {GROUP_ID: {key: None}}, self.now, **more)
            raise
        value = None if found is None else list(found)
        history.complete(entry, OK, {GROUP_ID: {key: value}}, self.now, **more)

    async def look_at_all(self) -> None:
        for place in self.run.written:
            await self.look(place, stable=True, final=True)
        await self.client.close()


async def send_late(client: Client, request: Request, version: int, node: int) -> None:
    """Have a request arrive again, when nobody asks for it any more."""
    with suppress(KafkaError, OSError, asyncio.CancelledError):
        await client.call(request, node, version=version, lane="late", timeout_ms=CALL_MS)

"""The ways of requests through a broker, traced, and docs/reading.md made of them.

A warm broker runs as `minibroker serve` runs it, on a directory and by the machine's clock, but in a loop of ours; a
client asks it through a real socket. From the first byte of a request on
we note every function of minibroker that is entered: in the calls of the connection, and in all that those schedule,
wake or begin in a thread, up to the last of it. Timers are not followed, so what a broker does unasked is in no trace.
What must hold: the same code gives the same page, on every Python that we support. So comprehensions and lambdas count
as the function around them, and generated codecs, which lie in no file, not at all.
"""

from __future__ import annotations

import ast
import asyncio
import re
import socket
import sys
import tempfile
import threading
from collections.abc import Callable, Coroutine, Iterable
from contextvars import Context
from functools import cache
from itertools import pairwise
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple

from minibroker import Broker, Cluster
from minibroker.client.coordinators import GROUP, TRANSACTION
from minibroker.clock import LoopClock
from minibroker.log.build import build_batch
from minibroker.log.records import Record
from minibroker.protocol import message
from minibroker.protocol.framing import decode_response, encode_request
from minibroker.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnTopic
from minibroker.server.connection import Connection
from minibroker.traffic.tap import Tap

TYPE_CHECKING = False
if TYPE_CHECKING:
    from minibroker.broker.broker import Node

PACKAGE = Path(__file__).parent.parent / "minibroker"
QUIET_TURNS = 50  # of the loop without anything that follows from the request: that was all


STEPS_MAX = 100_000


class Row(NamedTuple):
    """How much one request crosses: files, and the statements in these files. Explanations are none."""

    files: int
    statements: int


# What each request crosses. What is small must not grow unnoticed; how exactly is said by tests/test_reading_path.py.
ROWS = {
    "Produce": Row(13, 3_058),
    "Fetch": Row(11, 2_654),
    "Produce to three replicas": Row(26, 4_735),
    "CreateTopics with three replicas": Row(61, 9_600),
    "JoinGroup": Row(15, 2_356),
    "Heartbeat": Row(11, 1_688),
    "OffsetCommit": Row(29, 5_158),
    "ConsumerGroupHeartbeat of a new member": Row(35, 5_537),
    "ConsumerGroupHeartbeat without news": Row(17, 2_684),
    "Compaction": Row(33, 4_775),
    "InitProducerId": Row(26, 4_217),
    "AddPartitionsToTxn": Row(30, 4_720),
    "Produce, first of a classic transaction": Row(30, 5_350),
    "EndTxn of a classic transaction": Row(35, 5_409),
    "Produce, first of a transaction": Row(39, 6_200),
    "TxnOffsetCommit": Row(44, 7_160),
    "EndTxn": Row(38, 6_027),
    "Rows for Spark, of a directory": Row(31, 4_474),
    "Rows for Spark, of a broker": Row(37, 4_004),
}
NOT_THE_BROKER = ("embedded/",)  # who asks for a compaction
LEFT_OUT = ("clock/", "config/", "protocol/", "schema/varint.py")  # files that are crossed, and read on no evening
WARM_COUNT, TRACED_COUNT = 2, 3  # what is not in each of the traced is chance: a slow turn of the loop, a buffer grown
REPEATS = range(WARM_COUNT + TRACED_COUNT)


class Entered(NamedTuple):
    """A function that a request has entered."""

    file: str  # below minibroker/
    function: str


Way = dict[
    Entered, tuple[Entered, ...]
]  # what was entered, in order, and what stood above it then, the outermost first


class FollowingLoop(asyncio.SelectorEventLoop):
    """A loop that notes what runs because of one request."""

    def __init__(self) -> None:
        super().__init__()
        self.entered: Way = {}
        self._root: FrameType | None = None  # where bytes of the request have come in
        self._follows = False  # what runs now follows from the request
        self._steps = 0
        self._threads: set[threading.Thread] = set()  # those that the request has begun

    def call_soon_threadsafe(
        self, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        """Schedule a callback from a thread; one that follows from the request schedules more of it."""
        if threading.current_thread() in self._threads:
            return super().call_soon_threadsafe(self._go_on, callback, *args, context=context)
        return super().call_soon_threadsafe(callback, *args, context=context)

    def call_soon(self, callback: Callable[..., Any], *args: Any, context: Any = None) -> asyncio.Handle:
        """Schedule a callback; what follows from the request schedules more of it."""
        if self._follows:
            return super().call_soon(self._go_on, callback, *args, context=context)
        return super().call_soon(callback, *args, context=context)

    def _go_on(self, callback: Callable[..., Any], *args: Any) -> None:
        self._follows = True
        self._steps += 1
        try:
            callback(*args)
        finally:
            self._follows = False

    def _note(self, frame: FrameType, event: str, _: object) -> None:
        if event == "return" and frame is self._root:
            self._root, self._follows = None, False
        elif event == "call":
            if not self._follows and frame.f_code in ROOTS:
                self._root, self._follows = frame, True
            if self._follows and frame.f_code is threading.Thread.start.__code__:
                self._threads.add(frame.f_locals["self"])
            elif self._follows:
                self._keep(frame)

    def _note_in_thread(self, frame: FrameType, event: str, _: object) -> None:
        if event == "call" and threading.current_thread() in self._threads:
            self._keep(frame)

    def _keep(self, frame: FrameType) -> None:
        entered = _entered(frame.f_code)
        if entered is not None and entered not in self.entered:
            self.entered[entered] = _callers(frame)

    async def follow(self, request: Coroutine[Any, Any, Any], *, is_inside: bool = False) -> Any:
        """Return the answer to a request, when all that follows from it has been done.

        is_inside: it is no request but a call of the broker itself.
        """
        self.entered = {}
        before = sys.getprofile()
        sys.setprofile(self._note)
        threading.setprofile(self._note_in_thread)
        self._threads.clear()
        try:
            self._follows = is_inside
            task = asyncio.create_task(request)
            self._follows = False
            answer = await task
            self._follows = False  # we have been woken by what we follow
            quiet = 0
            while quiet < QUIET_TURNS:
                steps = self._steps
                assert steps < STEPS_MAX, "what follows from a request has no end"
                await asyncio.sleep(0)
                is_over = steps == self._steps and not any(thread.is_alive() for thread in self._threads)
                quiet = quiet + 1 if is_over else 0
        finally:
            sys.setprofile(before)
            threading.setprofile(None)
        return answer


ROOTS = {Connection.get_buffer.__code__, Connection.buffer_updated.__code__}


@cache
def _entered(code: CodeType) -> Entered | None:
    """Return where a piece of code belongs, None if that is in no function of a file of ours."""
    if not code.co_filename.startswith(f"{PACKAGE}/"):
        return None
    file = Path(code.co_filename).relative_to(PACKAGE).as_posix()
    function = code.co_qualname.split(".<locals>.<")[0].replace(".<locals>", "")
    return None if function.startswith("<") or file.startswith(NOT_THE_BROKER) else Entered(file, function)


def _callers(frame: FrameType) -> tuple[Entered, ...]:
    """Return what of ours has called a function, the outermost first."""
    found = []
    above = frame.f_back
    while above is not None:
        if (entered := _entered(above.f_code)) is not None:
            found.append(entered)
        above = above.f_back
    return tuple(reversed(found))


class Client:
    """One connection to a broker."""

    def __init__(self, address: str):
        host, port = address.split(":")
        self._socket = socket.create_connection((host, int(port)))
        self._socket.setblocking(False)
        self._asked_count = 0

    async def ask(self, api: str, version: int, **fields: Any) -> Any:
        """Send a request and return its answer."""
        loop = asyncio.get_running_loop()
        request = message(f"{api}Request")(**fields)
        self._asked_count += 1
        frame = b"".join(encode_request(request, version, self._asked_count, "reader"))
        await loop.sock_sendall(self._socket, frame)
        length = int.from_bytes(await self._receive(4), "big")
        return decode_response(await self._receive(length), request.api, version)[1]

    async def _receive(self, size_bytes: int) -> bytes:
        received = b""
        while len(received) < size_bytes:
            some = await asyncio.get_running_loop().sock_recv(self._socket, size_bytes - len(received))
            assert some, "the broker has closed the connection"
            received += some
        return received

    def close(self) -> None:
        self._socket.close()


# What is asked


class Tracer:
    """Asks a broker the same thing some times, and keeps what each of the last times entered."""

    def __init__(self, loop: FollowingLoop) -> None:
        self._loop = loop
        self._ways: dict[str, list[Way]] = {}

    async def follow(self, name: str, request: Coroutine[Any, Any, Any], *, is_inside: bool = False) -> Any:
        """Return the answer to a request, and keep its way. is_inside: it is a call of the broker itself."""
        answer = await self._loop.follow(request, is_inside=is_inside)
        self._ways.setdefault(name, []).append(self._loop.entered)
        return answer

    def ways(self) -> dict[str, Way]:
        """Return by name what was entered each time, in order."""
        found: dict[str, Way] = {}
        for name, times in self._ways.items():
            always = times[-1].keys() & set.intersection(*map(set, times[-TRACED_COUNT:]))
            found[name] = {
                entered: tuple(each for each in above if each in always)
                for entered, above in times[-1].items()
                if entered in always
            }
        return found


async def traced(directory: Path) -> dict[str, Way]:
    """Return what each request enters, in order, once everything has been loaded, compiled and asked before."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, FollowingLoop)
    tracer = Tracer(loop)
    # Who joins within the interval is not assigned yet, however busy the machine is.
    settings = {"group.consumer.assignment.interval.ms": 15_000}
    async with Broker(topics="orders", data_dir=directory / "broker", clock=LoopClock(), config=settings) as broker:
        _keep_no_requests([broker._running()._node])  # type: ignore[attr-defined]
        client = Client(broker.bootstrap_servers)
        for _ in REPEATS:
            await tracer.follow("Produce", client.ask("Produce", 9, **_records_of("orders")))
            await tracer.follow("Fetch", client.ask("Fetch", 11, **_positions()))
        await _join(client, tracer)
        await _join_consumer_group(client, tracer)
        await broker.acreate_topic("latest", cleanup_policy="compact")
        for _ in REPEATS:
            for _ in range(2):
                await client.ask("Produce", 9, **_records_of("latest"))
            await broker.aroll_now("latest")
            await tracer.follow("Compaction", broker.acompact_now("latest"), is_inside=True)
        await _transact(client, tracer)
        client.close()
    async with Cluster(brokers=3, topics="orders:1:3", data_dir=directory / "cluster", clock=LoopClock()) as cluster:
        await cluster.await_in_sync()
        _keep_no_requests(cluster._running().core.nodes.values())
        leader = await cluster.aleader("orders")
        client = Client(cluster.bootstrap_servers.split(",")[leader - 1])
        for number in REPEATS:
            await tracer.follow("Produce to three replicas", client.ask("Produce", 9, **_records_of("orders")))
            create = client.ask("CreateTopics", 7, **_topic(f"topic-{number}"))
            await tracer.follow("CreateTopics with three replicas", create)
        client.close()
    await _query(directory / "queried", tracer)
    return {name: tracer.ways()[name] for name in ROWS}


def _keep_no_requests(nodes: Iterable[Node]) -> None:
    """Take away what a test's broker has more than others: the last requests, for reports of failures."""
    for node in nodes:
        for server in node.servers:
            assert isinstance(server.service, Tap)
            server.service = server.service.service


async def _query(directory: Path, tracer: Tracer) -> None:
    """Ask for the rows of a topic as Spark does, of a broker in a thread of its own and of its directory."""
    from minibroker.spark.options import parse
    from minibroker.spark.reading import plan, read

    def ask(asked: dict[str, str]) -> None:
        options = parse({"subscribe": "orders", **asked})
        assert sum(batch.num_rows for task in plan(options) for batch in read(task, options)) == 1

    async def query(**asked: str) -> None:
        worker = threading.Thread(target=ask, args=(asked,))  # as there is no loop where Spark asks
        worker.start()
        worker.join()

    with Broker(topics="orders", data_dir=directory, clock=LoopClock()) as broker:
        client = Client(broker.bootstrap_servers)
        await client.ask("Produce", 9, **_records_of("orders"))
        client.close()
        brokers = {"kafka.bootstrap.servers": broker.bootstrap_servers}
        for _ in REPEATS:
            await tracer.follow("Rows for Spark, of a broker", query(**brokers), is_inside=True)
    for _ in REPEATS:
        await tracer.follow("Rows for Spark, of a directory", query(path=str(directory)), is_inside=True)


def _records_of(name: str, **producer: Any) -> dict[str, Any]:
    """Return the fields of a ProduceRequest: one batch of one record."""
    topic = message("ProduceRequest").TopicProduceData
    records = bytes(build_batch(2, [Record(b"key", b"value", timestamp=1)], **producer))
    partition = topic.PartitionProduceData(index=0, records=records)
    return {"acks": -1, "timeout_ms": 60_000, "topic_data": [topic(name=name, partition_data=[partition])]}


def _positions() -> dict[str, Any]:
    """Return the fields of a FetchRequest: from the beginning, without a session."""
    topic = message("FetchRequest").FetchTopic
    partition = topic.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    return {"max_wait_ms": 0, "min_bytes": 1, "topics": [topic(topic="orders", partitions=[partition])]}


def _topic(name: str) -> dict[str, Any]:
    """Return the fields of a CreateTopicsRequest: one partition, on brokers that chance does not choose."""
    topic = message("CreateTopicsRequest").CreatableTopic
    place = topic.CreatableReplicaAssignment(partition_index=0, broker_ids=[1, 2, 3])
    return {"topics": [topic(name=name, num_partitions=-1, replication_factor=-1, assignments=[place], configs=[])]}


async def _join(client: Client, tracer: Tracer) -> None:
    """Be the one member of a group of the classic protocol: join again, be given a plan, stay, commit."""
    plan = message("SyncGroupRequest").SyncGroupRequestAssignment
    member = {"group_id": "billing", "member_id": ""}
    await _wait_for_coordinator(client, "billing")
    for _ in REPEATS:  # the first answer gives it an id, with the second it has joined
        fields = {**member, "session_timeout_ms": 30_000, "rebalance_timeout_ms": 30_000, "protocol_type": "consumer"}
        protocol = message("JoinGroupRequest").JoinGroupRequestProtocol(name="range", metadata=bytes(10))
        joined = await tracer.follow("JoinGroup", client.ask("JoinGroup", 7, **fields, protocols=[protocol]))
        member["member_id"] = joined.member_id
    generation = {**member, "generation_id": joined.generation_id}
    await client.ask("SyncGroup", 3, **generation, assignments=[plan(member_id=joined.member_id, assignment=b"")])
    commit = message("OffsetCommitRequest").OffsetCommitRequestTopic
    partition = commit.OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata="")
    offsets = {**member, "generation_id_or_member_epoch": joined.generation_id}
    for _ in REPEATS:
        await tracer.follow("Heartbeat", client.ask("Heartbeat", 4, **generation))
        topics = [commit(name="orders", partitions=[partition])]
        await tracer.follow("OffsetCommit", client.ask("OffsetCommit", 8, **offsets, topics=topics))


async def _join_consumer_group(client: Client, tracer: Tracer) -> None:
    """Be all members of a group of the newer protocol, one after the other, and then say that the last is there."""
    await _wait_for_coordinator(client, "shipping")
    for number in REPEATS:
        new = {"group_id": "shipping", "member_id": f"member-{number}", "member_epoch": 0}
        aims = {"rebalance_timeout_ms": 30_000, "subscribed_topic_names": ["orders"], "topic_partitions": []}
        heartbeat = client.ask("ConsumerGroupHeartbeat", 1, **new, **aims)
        joined = await tracer.follow("ConsumerGroupHeartbeat of a new member", heartbeat)
    member = {"group_id": "shipping", "member_id": joined.member_id, "member_epoch": joined.member_epoch}
    for _ in REPEATS:
        heartbeat = client.ask("ConsumerGroupHeartbeat", 1, **member)
        await tracer.follow("ConsumerGroupHeartbeat without news", heartbeat)


async def _transact(client: Client, tracer: Tracer) -> None:
    """Have transactions of one record, in the classic protocol; then such with an offset as well, in v2."""
    await _wait_for_coordinator(client, "copies")
    await _wait_for_coordinator(client, "pay", TRANSACTION)
    begin = {"transactional_id": "pay", "transaction_timeout_ms": 60_000, "producer_id": -1, "producer_epoch": -1}
    while (await client.ask("InitProducerId", 4, **begin)).error_code:  # it is found before it has read its partition
        await asyncio.sleep(0)
    for _ in REPEATS:
        begun = await tracer.follow("InitProducerId", client.ask("InitProducerId", 4, **begin))
        number, epoch = begun.producer_id, begun.producer_epoch
        added = AddPartitionsToTxnTopic(name="orders", partitions=[0])
        fields = {"transactional_id": "pay", "producer_id": number, "producer_epoch": epoch, "topics": [added]}
        add = {f"v3_and_below_{name}": value for name, value in fields.items()}
        await tracer.follow("AddPartitionsToTxn", client.ask("AddPartitionsToTxn", 3, **add))
        first = _records_in("pay", number, epoch)
        await tracer.follow("Produce, first of a classic transaction", client.ask("Produce", 9, **first))
        end = _end_of("pay", number, epoch)
        await tracer.follow("EndTxn of a classic transaction", client.ask("EndTxn", 4, **end))
        await _wait_until_complete(client, "pay")
    begun = await client.ask("InitProducerId", 4, **begin)
    number, epoch = begun.producer_id, begun.producer_epoch
    commit = message("TxnOffsetCommitRequest").TxnOffsetCommitRequestTopic
    partition = commit.TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata="")
    topics = [commit(name="orders", partitions=[partition])]
    for _ in REPEATS:
        first = _records_in("pay", number, epoch)
        await tracer.follow("Produce, first of a transaction", client.ask("Produce", 12, **first))
        producer = {"transactional_id": "pay", "producer_id": number, "producer_epoch": epoch}
        offsets = client.ask("TxnOffsetCommit", 5, **producer, group_id="copies", topics=topics)
        await tracer.follow("TxnOffsetCommit", offsets)
        ended = await tracer.follow("EndTxn", client.ask("EndTxn", 5, **_end_of("pay", number, epoch)))
        number, epoch = ended.producer_id, ended.producer_epoch
        await _wait_until_complete(client, "pay")


def _records_in(transactional_id: str, producer_id: int, epoch: int) -> dict[str, Any]:
    """Return the fields of the first ProduceRequest of a transaction in an epoch of its own."""
    producer = {"producer_id": producer_id, "producer_epoch": epoch, "base_sequence": 0, "transactional": True}
    return {**_records_of("orders", **producer), "transactional_id": transactional_id}


def _end_of(transactional_id: str, producer_id: int, epoch: int) -> dict[str, Any]:
    """Return the fields of an EndTxnRequest that commits."""
    producer = {"transactional_id": transactional_id, "producer_id": producer_id, "producer_epoch": epoch}
    return {**producer, "committed": True}


async def _wait_until_complete(client: Client, transactional_id: str) -> None:
    """Return when every marker of the last transaction is written."""
    while True:
        answer = await client.ask("DescribeTransactions", 0, transactional_ids=[transactional_id])
        if answer.transaction_states[0].transaction_state.startswith("Complete"):
            return
        await asyncio.sleep(0)


async def _wait_for_coordinator(client: Client, key: str, key_type: int = GROUP) -> None:
    """Return when a group or transactional id has its coordinator: the first question makes the topic of all."""
    while (await client.ask("FindCoordinator", 3, key=key, key_type=key_type)).error_code:
        await asyncio.sleep(0)


@cache
def ways() -> dict[str, Way]:
    """Return for each of ROWS what it enters, in order."""
    with tempfile.TemporaryDirectory() as directory, asyncio.Runner(loop_factory=FollowingLoop) as runner:
        return runner.run(traced(Path(directory)))


def size_of(way: Iterable[Entered]) -> Row:
    """Return how many files a way crosses, and how many statements are in them, docstrings left out."""
    files = {entered.file for entered in way}
    return Row(len(files), sum(map(_statement_count, files)))


# The page


class Evening(NamedTuple):
    """What is read in an evening."""

    title: str
    words: str
    names: tuple[str, ...]  # of ROWS
    without: tuple[str, ...] = ()  # functions of which nothing is read that they call


EVENINGS = (
    Evening(
        "a record goes in and comes out",
        "A producer sends one batch, and a consumer fetches it. On the way in a connection cuts the frame off its "
        "buffer, a handler finds the partition, and its log checks the batch, gives it offsets and writes it; on the "
        "way out an offset becomes a place in a file. [broker.md](broker.md) and [log.md](log.md) say why "
        "it is so, `minibroker/protocol/messages/produce.py` and `fetch.py` what the bytes mean.",
        ("Produce", "Fetch"),
    ),
    Evening(
        "three replicas",
        "The same Produce with acks=all, where two brokers follow: their fetches, which have waited, are answered with "
        "the batch; their next ones say that they have it; so the high watermark rises and the producer has its "
        "answer. Read [replication.md](replication.md) beside it, and play `minibroker lesson high-watermark`.",
        ("Produce to three replicas",),
    ),
    Evening(
        "who leads",
        "A broker hands a CreateTopics to the controller, which decides where the replicas are and who leads, and "
        "writes that as records into the metadata log. Every broker reads them, changes its image of the cluster, "
        "opens the log, and leads or follows. [controller.md](controller.md) has the other decisions. Not followed "
        "here: how a route and the settings of the answer are found, how a log is opened, and how the metadata log is "
        "flushed.",
        ("CreateTopics with three replicas",),
        (
            "find_route",
            "_configs",
            "LogDirectory._opening_log",
            "write_topic_id",
            "read_topic_id",
            "MetadataLog._flush",
        ),
    ),
    Evening(
        "groups",
        "Consumers share partitions, by the classic protocol and by the newer one (KIP-848): see "
        "[groups.md](groups.md). A heartbeat without news is the shortest way through a coordinator; a member that "
        "joins makes a new target, which is written to `__consumer_offsets` before anybody is told, and so is a "
        "commit. The JoinGroup is that of a group's only member, which joins again: the group is complete at once.",
        (
            "Heartbeat",
            "JoinGroup",
            "OffsetCommit",
            "ConsumerGroupHeartbeat without news",
            "ConsumerGroupHeartbeat of a new member",
        ),
    ),
    Evening(
        "what goes",
        "One pass of compaction over a log: which segments, the map from each key to its last offset, what is kept, "
        "and how the new segments take the place of the old. [cleaning.md](cleaning.md) has retention as well.",
        ("Compaction",),
    ),
    Evening(
        "all or nothing",
        "Transactions ([transactions.md](transactions.md)), first in the classic protocol, each step a request of its "
        "own: a producer gets its epoch, adds a partition, writes, and ends. The end is decided in "
        "`transactions/shard.py` and written; when every replica has it the producer is answered, and the markers go "
        "out. In v2 the first batch adds its partition by itself, and an offset of a group ends with the marker in "
        "`__consumer_offsets`. Play `minibroker lesson open-transaction` and `late-end` beside it.",
        (
            "InitProducerId",
            "AddPartitionsToTxn",
            "Produce, first of a classic transaction",
            "EndTxn of a classic transaction",
            "Produce, first of a transaction",
            "TxnOffsetCommit",
            "EndTxn",
        ),
    ),
    Evening(
        "rows for Spark",
        "A query that reads a topic as a table: options are checked, ranges of offsets become tasks, and a task makes "
        "columns of Arrow out of whole batches, many records at a time with numpy, without an object for each. First "
        "of a log directory, which is never written to; then of a broker, where only planning and fetching differ. "
        "Spark calls all of this from [spark/source.py](../minibroker/spark/source.py): `plan` beside its driver, "
        "`read` in its workers. [spark.md](spark.md) says what the options mean.",
        ("Rows for Spark, of a directory", "Rows for Spark, of a broker"),
    ),
)


def reading_page() -> str:
    """Return docs/reading.md: seven evenings, each the way of some requests, in the order in which it is gone."""
    lines = [_READING]
    lines += [f"| {name} | {row.files} | {round(row.statements, -2):,} |" for name, row in ROWS.items()]
    lines.append(_EVENINGS)
    read: set[Entered] = set()
    for number, evening in enumerate(EVENINGS, 1):
        met: set[str] = set()  # files of which the first sentence has been shown
        lines += [f"\n## Evening {number}: {evening.title}\n", evening.words]
        for name in evening.names:
            lines += [f"\n### {name}\n", *_way_lines(ways()[name], read, met, evening.without)]
            read.update(ways()[name])
    return "\n".join([*lines, ""])


def _way_lines(way: Way, read: set[Entered], met: set[str], without: tuple[str, ...]) -> list[str]:
    """Return a way as a list: an item for each run of functions in one file, below the run that has called it."""
    callers = {above[-1] for above in way.values() if above}
    shown = {
        each
        for each, above in way.items()
        if not (each in read or each.file.startswith(LEFT_OUT) or _is_plain(each, callers))
        if not any(caller.function in without for caller in above)
    }
    lines: list[str] = []
    before, depth = None, 0
    for entered in (each for each in way if each in shown):
        turns = _turns([*(each.file for each in way[entered] if each in shown), entered.file])
        if before is not None and before.file == entered.file and turns == depth:
            lines[-1] += f", `{entered.function}`"
        else:
            caller = way[entered][-1] if way[entered] else before
            came = "" if caller is None or caller == before else f", from `{caller.function}`"
            words = "" if entered.file in met else f" ({_first_sentence(entered.file)})"
            link = f"[{entered.file}](../minibroker/{entered.file})"
            lines.append(f"{'  ' * turns}- {link}{words}{came}: `{entered.function}`")
            met.add(entered.file)
        before, depth = entered, turns
    return lines


def _turns(files: list[str]) -> int:
    """Return how often the file changes on the way down to a function."""
    return sum(one != other for one, other in pairwise(files))


def _is_plain(entered: Entered, callers: set[Entered]) -> bool:
    """Say whether nobody need read a function: it is one statement, and calls nothing of ours."""
    return entered not in callers and _functions(entered.file).get(entered.function, 0) <= 1


_READING = """\
# Reading the broker in seven evenings

<!-- Made by `python -m docs.generate` from docs/reading.py: change it there. -->

Nobody reads a broker from its first file to its last. This page follows requests instead: what one enters, in the order
in which it is entered, traced in a broker on a directory that has been asked before, without what timers do meanwhile.
An item is a run of functions in one file; it stands below the run that has called it, and what begins at the left again
was scheduled or woken, or is called by what an evening before has shown. Left out is what was on an evening before,
what is one statement and calls nothing, and clocks, settings and codecs, of which only the door is shown: a decoder is
generated from its declaration ([protocol.md](protocol.md)). Read the functions that are named; the rest of their files
is there when you need it. What one request crosses is counted by the tests (`tests/test_reading_path.py`), so that it
does not grow unnoticed:

| request | files | statements in them, about |
|---|---:|---:|"""

_EVENINGS = """
[architecture.md](architecture.md) has all parts on one page."""


@cache
def _tree(file: str) -> ast.Module:
    return ast.parse((PACKAGE / file).read_text("utf-8"))


def _first_sentence(file: str) -> str:
    """Return the first sentence of a module's docstring, as one line."""
    words = " ".join((ast.get_docstring(_tree(file)) or "").split("\n\n")[0].split())
    return re.split(r"(?<=\.) |:$", words, maxsplit=1)[0].removesuffix(".")


@cache
def _statement_count(file: str) -> int:
    return statements_in(_tree(file))


def statements_in(node: ast.AST) -> int:
    """Return how many statements are in a piece of code, without its docstrings."""
    return sum(
        isinstance(each, ast.stmt) and not (isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant))
        for each in ast.walk(node)
        if each is not node
    )


@cache
def _functions(file: str) -> dict[str, int]:
    """Return how many statements are in every function of a file, by qualified name."""
    found: dict[str, int] = {}

    def walk(node: ast.AST, before: str) -> None:
        for child in ast.iter_child_nodes(node):
            name = f"{before}{getattr(child, 'name', '')}"
            is_function = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef)
            if is_function:
                found[name] = statements_in(child)
            walk(child, f"{name}." if is_function or isinstance(child, ast.ClassDef) else before)

    walk(_tree(file), "")
    return found


def main() -> None:
    """Print what each request crosses; with -v file by file."""
    for name, way in ways().items():
        files, statements = size_of(way)
        print(f"{name:42} {files:3} files {statements:6,} statements {len(way):4} functions")
        for file in dict.fromkeys(entered.file for entered in way) if "-v" in sys.argv else ():
            print(f"  {_statement_count(file):5} {file}:", *[each.function for each in way if each.file == file])


if __name__ == "__main__":
    main()

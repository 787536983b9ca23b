"""The ways of requests through a broker, traced, and docs/reading.md made of them.

A warm broker runs in a loop of ours and a client asks it through a real socket. From the first byte of a request on
we note every function of minibroker that is entered: in the calls of the connection, and in all that those schedule or
wake, up to the last of it. Timers are not followed, so what a broker does unasked is in no trace.
What must hold: the same code gives the same page, on every Python that we support. So comprehensions and lambdas count
as the function around them, and generated codecs, which lie in no file, not at all.
"""

from __future__ import annotations

import ast
import asyncio
import re
import socket
import sys
from collections.abc import Callable, Coroutine, Iterable
from functools import cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple

from minibroker import Broker, Cluster
from minibroker.log.build import build_batch
from minibroker.log.records import Record
from minibroker.protocol import message
from minibroker.protocol.framing import decode_response, encode_request
from minibroker.server.connection import Connection

PACKAGE = Path(__file__).parent.parent / "minibroker"
QUIET_TURNS = 50  # of the loop without anything that follows from the request: that was all


STEPS_MAX = 100_000


class Row(NamedTuple):
    """How much one request may cross: files, and the lines of these files."""

    files: int
    lines: int


# What each request may cross, lines rounded up. What is small must not grow unnoticed; where it has become smaller,
# write that here.
ROWS = {
    "Produce": Row(14, 5_500),
    "Fetch": Row(11, 4_350),
    "Produce to three replicas": Row(26, 8_050),
    "CreateTopics with three replicas": Row(61, 16_400),
    "JoinGroup": Row(15, 3_750),
    "Heartbeat": Row(12, 3_350),
    "ConsumerGroupHeartbeat of a new member": Row(34, 9_600),
    "ConsumerGroupHeartbeat without news": Row(16, 4_350),
    "Compaction": Row(33, 8_550),
}
NOT_THE_BROKER = ("embedded/",)  # who asks for a compaction
WARM_COUNT, TRACED_COUNT = 2, 3  # what is not in each of the traced is chance: a slow turn of the loop, a buffer grown
REPEATS = range(WARM_COUNT + TRACED_COUNT)


class Entered(NamedTuple):
    """A function that a request has entered."""

    file: str  # below minibroker/
    function: str


class FollowingLoop(asyncio.SelectorEventLoop):
    """A loop that notes what runs because of one request."""

    def __init__(self) -> None:
        super().__init__()
        self.entered: dict[Entered, None] = {}  # in the order in which they were
        self._root: FrameType | None = None  # where bytes of the request have come in
        self._follows = False  # what runs now follows from the request
        self._steps = 0

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
            if self._follows and (entered := _entered(frame.f_code)) is not None:
                self.entered.setdefault(entered)

    async def follow(self, request: Coroutine[Any, Any, Any], *, is_inside: bool = False) -> Any:
        """Return the answer to a request, when all that follows from it has been done.

        is_inside: it is no request but a call of the broker itself.
        """
        self.entered = {}
        before = sys.getprofile()
        sys.setprofile(self._note)
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
                quiet = quiet + 1 if steps == self._steps else 0
        finally:
            sys.setprofile(before)
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
            received += await asyncio.get_running_loop().sock_recv(self._socket, size_bytes - len(received))
        return received

    def close(self) -> None:
        self._socket.close()


# What is asked


class Tracer:
    """Asks a broker the same thing some times, and keeps what each of the last times entered."""

    def __init__(self, loop: FollowingLoop) -> None:
        self._loop = loop
        self._ways: dict[str, list[dict[Entered, None]]] = {}

    async def follow(self, name: str, request: Coroutine[Any, Any, Any], *, is_inside: bool = False) -> Any:
        """Return the answer to a request, and keep its way. is_inside: it is a call of the broker itself."""
        answer = await self._loop.follow(request, is_inside=is_inside)
        self._ways.setdefault(name, []).append(self._loop.entered)
        return answer

    def ways(self) -> dict[str, list[Entered]]:
        """Return by name what was entered each time, in order."""
        return {
            name: [entered for entered in times[-1] if all(entered in each for each in times[-TRACED_COUNT:])]
            for name, times in self._ways.items()
        }


async def traced() -> dict[str, list[Entered]]:
    """Return what each request enters, in order, once everything has been loaded, compiled and asked before."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, FollowingLoop)
    tracer = Tracer(loop)
    async with Broker(topics="orders") as broker:
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
        client.close()
    async with Cluster(brokers=3, topics="orders:1:3") as cluster:
        await cluster.await_in_sync()
        leader = await cluster.aleader("orders")
        client = Client(cluster.bootstrap_servers.split(",")[leader - 1])
        for number in REPEATS:
            await tracer.follow("Produce to three replicas", client.ask("Produce", 9, **_records_of("orders")))
            create = client.ask("CreateTopics", 7, **_topic(f"topic-{number}"))
            await tracer.follow("CreateTopics with three replicas", create)
        client.close()
    return {name: tracer.ways()[name] for name in ROWS}


def _records_of(name: str) -> dict[str, Any]:
    """Return the fields of a ProduceRequest: one batch of one record."""
    topic = message("ProduceRequest").TopicProduceData
    records = bytes(build_batch(2, [Record(b"key", b"value", timestamp=1)]))
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
    """Be the one member of a group of the classic protocol: join again, be given a plan, say that one is there."""
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
    for _ in REPEATS:
        await tracer.follow("Heartbeat", client.ask("Heartbeat", 4, **generation))


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


async def _wait_for_coordinator(client: Client, group: str) -> None:
    """Return when a group has its coordinator: the first question makes the topic of all groups."""
    while (await client.ask("FindCoordinator", 3, key=group, key_type=0)).error_code:
        await asyncio.sleep(0)


@cache
def ways() -> dict[str, list[Entered]]:
    """Return for each of ROWS what it enters, in order."""
    with asyncio.Runner(loop_factory=FollowingLoop) as runner:
        return runner.run(traced())


def size_of(way: Iterable[Entered]) -> Row:
    """Return how many files a way crosses, and how many lines are in them."""
    files = {entered.file for entered in way}
    return Row(len(files), sum(len(_text(file).splitlines()) for file in files))


# The page


class Evening(NamedTuple):
    """What is read in an evening."""

    title: str
    words: str
    names: tuple[str, ...]  # of ROWS


EVENINGS = (
    Evening(
        "a record goes in and comes out",
        "A producer sends one batch, and a consumer fetches it. On the way in a connection cuts the frame off its "
        "buffer, a handler finds the partition, and its log checks the batch, gives it offsets and writes it; on the "
        "way out an index turns an offset into a place in a file. [broker.md](broker.md) and [log.md](log.md) say why "
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
        "opens the log, and leads or follows. [controller.md](controller.md) has the other decisions.",
        ("CreateTopics with three replicas",),
    ),
    Evening(
        "groups",
        "Consumers share partitions, by the classic protocol and by the newer one (KIP-848): see "
        "[groups.md](groups.md). A heartbeat without news is the shortest way through a coordinator; a member that "
        "joins makes a new target, which is written to `__consumer_offsets` before anybody is told.",
        ("Heartbeat", "JoinGroup", "ConsumerGroupHeartbeat without news", "ConsumerGroupHeartbeat of a new member"),
    ),
    Evening(
        "what goes",
        "One pass of compaction over a log: which segments, the map from each key to its last offset, what is kept, "
        "and how the new segments take the place of the old. [cleaning.md](cleaning.md) has retention as well.",
        ("Compaction",),
    ),
)


def reading_page() -> str:
    """Return docs/reading.md: five evenings, each the way of some requests, file by file and function by function."""
    lines = [_READING]
    lines += [f"| {name} | {row.files} | {row.lines:,} |" for name, row in ROWS.items()]
    lines.append(_EVENINGS)
    read: set[Entered] = set()
    for number, evening in enumerate(EVENINGS, 1):
        lines += [f"\n## Evening {number}: {evening.title}\n", evening.words]
        for name in evening.names:
            new = [entered for entered in ways()[name] if entered not in read]
            read.update(new)
            functions = sum(_function_lines(entered) for entered in new)
            lines.append(f"\n### {name}\n\n{len(new)} functions that were not read before, {functions:,} lines:\n")
            for file in dict.fromkeys(entered.file for entered in new):
                names = ", ".join(f"`{entered.function}`" for entered in new if entered.file == file)
                lines.append(f"1. [{file}](../minibroker/{file}): {_first_sentence(file)}<br>{names}")
    return "\n".join([*lines, ""])


_READING = """\
# Reading the broker in five evenings

<!-- Made by `python -m docs.generate` from docs/reading.py: change it there. -->

Nobody reads a broker from its first file to its last. This page follows requests instead: what one enters, in this
order, traced in a broker that has been asked before, without what timers do meanwhile. Read the functions that are
named; the rest of their files is there when you need it. What one request crosses is counted by the tests
(`tests/test_reading_path.py`), so that it does not grow unnoticed:

| request | files, at most | lines in them, at most |
|---|---:|---:|"""

_EVENINGS = """
Of the codecs only the door is in the lists: the decoder of a message is generated from its declaration
([protocol.md](protocol.md)). [architecture.md](architecture.md) has all parts on one page."""


@cache
def _text(file: str) -> str:
    return (PACKAGE / file).read_text("utf-8")


def _first_sentence(file: str) -> str:
    """Return the first sentence of a module's docstring, as one line."""
    words = " ".join((ast.get_docstring(ast.parse(_text(file))) or "").split("\n\n")[0].split())
    return re.split(r"(?<=\.) |:$", words, maxsplit=1)[0].removesuffix(".") + "."


def _function_lines(entered: Entered) -> int:
    """Return how long a function is."""
    return _functions(entered.file).get(entered.function, 0)


@cache
def _functions(file: str) -> dict[str, int]:
    """Return the length of every function of a file, by qualified name."""
    found: dict[str, int] = {}

    def walk(node: ast.AST, before: str) -> None:
        for child in ast.iter_child_nodes(node):
            name = f"{before}{getattr(child, 'name', '')}"
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                assert child.end_lineno is not None
                found[name] = child.end_lineno - child.lineno + 1
            walk(
                child,
                f"{name}." if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) else before,
            )

    walk(ast.parse(_text(file)), "")
    return found


def main() -> None:
    """Print what each request crosses; with -v file by file."""
    for name, way in ways().items():
        files, lines = size_of(way)
        print(f"{name:42} {files:3} files {lines:6,} lines {len(way):4} functions")
        for file in dict.fromkeys(entered.file for entered in way) if "-v" in sys.argv else ():
            print(f"  {len(_text(file).splitlines()):5} {file}:", *[each.function for each in way if each.file == file])


if __name__ == "__main__":
    main()

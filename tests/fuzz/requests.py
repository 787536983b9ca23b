"""Fuzz target: a request, as a client may send it, to a broker on memory.

The input is a frame without its length: header and message.

What must hold: an answer that can be decoded, no answer where there is none, or a ProtocolError; never another
exception. Nothing goes on waiting when time has passed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from random import Random
from typing import Any

from minibroker.broker.apis import SERVED
from minibroker.broker.broker import Node
from minibroker.config import BrokerConfig
from minibroker.errors import ProtocolError
from minibroker.log.memory_storage import MemoryStorage
from minibroker.protocol import message
from minibroker.protocol.framing import decode_response, encode_request
from minibroker.protocol.registry import APIS
from minibroker.schema.message import Message
from tests import goldens
from tests.client.scripted import TestClock
from tests.server.running import FedTransport, Said, append, batch

CHECKS_OF_ONE_NODE = 300  # then another takes its place: what requests leave behind would make later ones slow
LONGEST_WAIT_MS = 1 << 31
API_VERSIONS, PRODUCE = 18, 0
TOPIC = "t"


class World:
    """A broker in a loop of its own, which runs only while a request is answered."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.clock = TestClock()
        self.node = Node(
            BrokerConfig.from_sources({"listeners": "PLAINTEXT://127.0.0.1:0", "node.id": 1}, {}, None),
            MemoryStorage(self.clock.now_ms),
            clock=self.clock,
            chance=Random(5),
            reporter=Said(),
        )
        self.loop.run_until_complete(self.node.start())
        self.node.create_topic(TOPIC, 2)
        append(self.node, TOPIC, b"a", b"b")
        self.left = CHECKS_OF_ONE_NODE

    def end(self) -> None:
        self.loop.run_until_complete(self.node.stop())
        self.loop.close()

    def answer(self, frame: bytes) -> list[Any] | None:
        self.left -= 1
        return self.loop.run_until_complete(self._answer(frame))

    async def _answer(self, frame: bytes) -> list[Any] | None:
        fed = FedTransport(self.node)
        try:
            answer: Any = self.node.dispatcher.answer(memoryview(bytearray(frame)), fed.connection)
            if asyncio.iscoroutine(answer):
                task = asyncio.get_running_loop().create_task(answer)
                for _ in range(20):
                    await asyncio.sleep(0)
                    self.clock.pass_time(LONGEST_WAIT_MS)
                assert task.done(), "still waits when all time has passed"
                answer = task.result()
            return answer
        finally:
            fed.close()


_world: World | None = None


def world() -> World:
    global _world
    if _world is None or not _world.left or TOPIC not in _world.node.image.topics:
        forget()
        _world = World()
    return _world


def forget() -> None:
    """End the broker that is there, if there is one."""
    global _world
    if _world is not None:
        _world.end()
        _world = None


def check(data: bytes) -> None:
    try:
        answer = world().answer(data)
    except ProtocolError as error:
        assert error.position >= 0
        return
    api, version = int.from_bytes(data[:2], "big"), int.from_bytes(data[2:4], "big")
    if answer is None:
        assert api == PRODUCE
        return
    whole = b"".join(bytes(chunk) for chunk in answer)
    assert int.from_bytes(whole[:4], "big") == len(whole) - 4
    if api == API_VERSIONS and not SERVED[api][0] <= version <= SERVED[api][1]:
        version = 0
    header, _ = decode_response(whole[4:], api, version)
    assert header.correlation_id == int.from_bytes(data[4:8], "big", signed=True)


def frames(variant: str) -> Iterator[tuple[str, int, bytes]]:
    """Yield name, version and frame of what Kafka's own code wrote, for all that is served."""
    for vector in goldens.wire("requests"):
        name, version = vector["name"], vector["version"]
        api = vector["apiKey"]
        if vector["variant"] == variant and api in SERVED and SERVED[api][0] <= version <= SERVED[api][1]:
            yield name, version, bytes.fromhex(vector["header"] + vector["hex"])


def aimed_frames() -> Iterator[tuple[str, int, bytes]]:
    """Yield the same with names of topics and partitions that are there."""
    topic_id = world().node.image.topics[TOPIC].id
    for vector in goldens.wire("requests"):
        name, version, api = vector["name"], vector["version"], vector["apiKey"]
        if vector["variant"] == "full" and api in SERVED and SERVED[api][0] <= version <= SERVED[api][1]:
            cls: Any = message(name)
            request = cls.decode(bytes.fromhex(vector["hex"]), version)
            _aim(request, topic_id)
            yield name, version, b"".join(encode_request(request, version, 7, "fuzzer"))[4:]


def _aim(value: Any, topic_id: bytes) -> None:
    for field in type(value).__fields__:
        old = getattr(value, field)
        new: Any = old
        if field in ("name", "topic", "topic_name", "resource_name") and isinstance(old, str):
            new = TOPIC
        elif field in ("partition", "partition_index", "index", "partition_id") and isinstance(old, int):
            new = 0
        elif field in ("replica_id", "current_leader_epoch", "last_fetched_epoch", "session_epoch", "transactional_id"):
            new = -1 if field != "transactional_id" else None if "None" in type(value).__fields__[field] else old
        elif field in ("fetch_offset", "isolation_level", "session_id"):
            new = 0
        elif field in ("max_bytes", "partition_max_bytes", "timeout_ms"):
            new = 1000
        elif field == "acks":
            new = -1
        elif field == "resource_type":
            new = 2
        elif field in ("records",):
            new = batch(b"value")
        elif field in ("topic_names", "partitions", "partition_indexes") and isinstance(old, list):
            new = [TOPIC if isinstance(each, str) else 0 if isinstance(each, int) else each for each in old]
        if field == "topic_id":
            new = topic_id
        if new is not old:
            setattr(value, field, new)
        for each in new if isinstance(new, list) else [new]:
            if isinstance(each, Message):
                _aim(each, topic_id)


def mutated(frame: bytes, chance: Random) -> bytes:
    """Change a frame in a few places behind its API and version."""
    data = bytearray(frame)
    for _ in range(chance.choice((1, 1, 2, 4))):
        position = chance.randrange(8, max(len(data), 9))
        kind = chance.randrange(6)
        if kind == 0:
            data[position : position + 1] = bytes([chance.randrange(256)])
        elif kind == 1:
            data[position : position + 4] = chance.choice((b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"\x80\0\0\0"))
        elif kind == 2:
            del data[position : position + chance.randrange(1, 9)]
        elif kind == 3:
            data[position:position] = chance.randbytes(chance.randrange(1, 9))
        elif kind == 4:
            data[position:position] = data[position : position + chance.randrange(1, 60)]
        else:
            data[position : position + 5] = b"\xff\xff\xff\xff\x0f"  # the largest length that a varint can say
    return bytes(data)


def seeds() -> Iterator[bytes]:
    """Yield the newest version of every request that is served, aimed at a topic that is there, and some oddities."""
    newest = {name: frame for name, _, frame in aimed_frames()}
    yield from newest.values()
    yield b""
    yield bytes(8)
    yield bytes.fromhex("00127fff00000001ffff")
    yield bytes.fromhex("0003000000000001ffff7fffffff")
    for api in SERVED:
        assert api in APIS

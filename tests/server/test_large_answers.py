"""Answers with many records are read as they are sent: how much is held at once, and what happens meanwhile."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from minibroker.broker.broker import Node
from minibroker.broker.handlers.fetch import OPEN_BYTES
from minibroker.errors import Error
from minibroker.log.memory_storage import MemoryStorage
from minibroker.log.pruning import drop_oldest, purge
from minibroker.log.shared_file import SharedFile
from minibroker.log.storage import OsStorage
from minibroker.protocol.framing import decode_response
from minibroker.protocol.messages.metadata import MetadataRequest
from minibroker.server.connection import UNSENT_BYTES_MAX
from minibroker.server.large_answer import LARGE_BYTES, PIECE_BYTES, TURN_BYTES
from tests.server.running import (
    Chunk,
    FedTransport,
    append,
    connected,
    fetch,
    frame,
    running,
    said,
    settle,
    turns,
)

SETTINGS = {"message.max.bytes": "2000000", "log.segment.bytes": "100000000"}
FETCH = (1, 12)
ASK = MetadataRequest(topics=[])
VALUE_BYTES = 500_000


class SlowTransport(FedTransport):
    """A transport whose client takes what the test says, and nothing else."""

    def __init__(self, node: Node):
        self.buffered = bytearray()
        self.is_full = False
        self.held_bytes_max = 0
        super().__init__(node)

    def write(self, data: Chunk) -> None:
        self.buffered += data
        self.held_bytes_max = max(self.held_bytes_max, len(self.buffered))
        if len(self.buffered) > UNSENT_BYTES_MAX and not self.is_full:
            self.is_full = True
            self.connection.pause_writing()

    def writelines(self, chunks: Any) -> None:
        self.write(b"".join(chunks))

    def close(self) -> None:
        self.sent += self.buffered  # as a transport does: what it has still leaves
        self.buffered.clear()
        super().close()

    abort = close

    async def take(self, size_bytes: int) -> None:
        """Let the client read."""
        self.sent += self.buffered[:size_bytes]
        del self.buffered[:size_bytes]
        if self.is_full and len(self.buffered) <= UNSENT_BYTES_MAX // 4:
            self.is_full = False
            self.connection.resume_writing()
        await turns(5)

    async def take_all(self) -> None:
        for _ in range(10_000):
            if not self.buffered and not self.connection.is_answering:
                return
            await self.take(100_000)
        raise AssertionError("it has no end")


@pytest.fixture(params=["memory", "disk"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> MemoryStorage | OsStorage:
    if request.param == "memory":
        return MemoryStorage(lambda: 1_700_000_000_000)
    return OsStorage(str(tmp_path))


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many bytes each read of an answer has returned."""
    sizes: list[int] = []
    view = SharedFile.view

    def counted(shared: SharedFile, position: int, size_bytes: int) -> memoryview:
        found = view(shared, position, size_bytes)
        sizes.append(len(found))
        return found

    monkeypatch.setattr(SharedFile, "view", counted)
    return sizes


def fill(node: Node, count: int) -> bytes:
    """Put records into a log; return what its file holds."""
    node.create_topic("t")
    chance = Random(count)
    for _ in range(count):
        append(node, "t", chance.randbytes(VALUE_BYTES))
    log = node.replicas["t", 0].log
    return bytes(log.active.view(0, log.active.size_bytes))


def records_in(sent: bytes | bytearray, version: int = 12) -> Any:
    length = int.from_bytes(sent[:4], "big")
    assert len(sent) == 4 + length
    _, message = decode_response(bytes(sent[4:]), 1, version)
    return message.responses[0].partitions[0]


async def test_a_client_that_does_not_read_costs_a_piece_or_two(
    storage: MemoryStorage | OsStorage, read: list[int]
) -> None:
    async with running(SETTINGS, storage=storage) as node:
        there = fill(node, 40)
        slow = SlowTransport(node)
        slow.feed(frame(fetch("t"), 12))
        await turns()
        assert slow.is_full
        assert slow.connection.is_unread
        assert not slow.sent
        assert slow.held_bytes_max <= UNSENT_BYTES_MAX + PIECE_BYTES
        assert sum(read) <= UNSENT_BYTES_MAX + PIECE_BYTES, "read, and nobody takes it"
        slow.feed(frame(ASK, 9))
        await slow.take_all()
        assert slow.held_bytes_max <= UNSENT_BYTES_MAX + PIECE_BYTES
        assert max(read) <= PIECE_BYTES
        assert len(there) <= sum(read) <= len(there) + 1  # each byte once; first it looks whether the last is there
        length = 4 + int.from_bytes(slow.sent[:4], "big")
        assert bytes(records_in(slow.sent[:length]).records) == there
        assert len(slow.sent) > length, "the next request has no answer"
        slow.close()


async def test_a_client_that_reads_quickly_gets_only_so_much_in_a_turn(read: list[int]) -> None:
    async with running(SETTINGS) as node:
        there = fill(node, 40)
        quick, other = FedTransport(node), FedTransport(node)
        quick.feed(frame(fetch("t"), 12))
        in_a_turn = [len(quick.sent)]
        answered = 0
        while quick.connection.is_answering:
            other.feed(frame(ASK, 9))
            answered += bool(other.sent)
            other.sent.clear()
            before = len(quick.sent)
            await asyncio.sleep(0)
            in_a_turn.append(len(quick.sent) - before)
        assert max(in_a_turn) <= TURN_BYTES
        assert answered >= len(there) // TURN_BYTES
        assert bytes(records_in(quick.sent).records) == there
        quick.close()
        other.close()


async def test_small_answers_are_whole_when_they_are_made(read: list[int]) -> None:
    async with running(SETTINGS) as node:
        node.create_topic("t")
        append(node, "t", bytes(OPEN_BYTES - 200))
        quick = FedTransport(node)
        quick.feed(frame(fetch("t"), 12))
        assert len(records_in(quick.sent).records) < OPEN_BYTES
        assert not read
        quick.close()
    assert OPEN_BYTES >= LARGE_BYTES, "what is written at once has to be bytes"


@pytest.mark.parametrize("version", range(18))
async def test_every_version_gets_the_bytes_of_the_log(version: int) -> None:
    async with running({**SETTINGS, "log.message.format.version": "3.0"}, as_version="3.9") as node:
        there = fill(node, 3)
        quick = FedTransport(node)
        request = fetch("t")
        if version >= 13:
            request.topics[0].topic_id = node.image.topics["t"].id
        quick.feed(frame(request, version))
        await quick.idle()
        found = bytes(records_in(quick.sent, version).records)
        if version >= 4:
            assert found == there
        else:
            assert len(found) > 3 * VALUE_BYTES  # in an older format
        quick.close()


def _remove(node: Node) -> None:
    log = node.replicas["t", 0].log
    log.roll()
    purge(log.storage, drop_oldest(log, 1))
    assert log.log_start_offset == log.log_end_offset


def _delete_topic(node: Node) -> None:
    log = node.replicas["t", 0].log
    log.release()
    for segment in log.segments:
        segment.rename(".deleted")
        segment.remove()


def _roll_and_go_on(node: Node) -> None:
    node.replicas["t", 0].log.roll()
    append(node, "t", b"more")


def _start_anew(node: Node) -> None:
    node.replicas["t", 0].log.truncate_fully_and_start_at(100)
    append(node, "t", b"other" * 1_000)


@pytest.mark.parametrize("meanwhile", [_remove, _delete_topic, _roll_and_go_on, _start_anew])
async def test_an_answer_under_way_outlives_what_is_done_to_its_log(
    storage: MemoryStorage | OsStorage, meanwhile: Callable[[Node], None]
) -> None:
    async with running(SETTINGS, storage=storage) as node:
        there = fill(node, 10)
        slow = SlowTransport(node)
        slow.feed(frame(fetch("t"), 12))
        await slow.take(100_000)
        meanwhile(node)
        await slow.take_all()
        assert bytes(records_in(slow.sent).records) == there
        slow.close()
        if meanwhile is _delete_topic:
            await node.stop()


@pytest.mark.parametrize("is_written_anew", [False, True])
async def test_what_is_cut_off_meanwhile_is_not_sent_and_nothing_in_its_place(
    storage: MemoryStorage | OsStorage, *, is_written_anew: bool
) -> None:
    async with running(SETTINGS, storage=storage) as node:
        there = fill(node, 10)
        slow = SlowTransport(node)
        slow.feed(frame(fetch("t"), 12))
        await slow.take(100_000)
        log = node.replicas["t", 0].log
        place = log.segments[0].find(5)
        assert place is not None
        log.truncate_to(5)
        if is_written_anew:
            for _ in range(10):
                append(node, "t", b"x" * VALUE_BYTES)
        await slow.take_all()
        assert slow.is_gone
        sent = bytes(slow.sent)
        header_bytes = sent.index(there[:100])
        assert there.startswith(sent[header_bytes:])
        assert 100_000 < len(sent) - header_bytes <= place.position
        assert sum("the rest of an answer cannot be read" in line for line in said(node)) == 1
        again = SlowTransport(node)
        again.feed(frame(fetch("t"), 12))
        await again.take_all()
        found = bytes(records_in(again.sent).records)
        assert found == bytes(log.active.view(0, log.active.size_bytes))
        again.close()


async def test_a_file_that_another_program_cuts_meanwhile_closes_the_connection(tmp_path: Path) -> None:
    async with running(SETTINGS, storage=OsStorage(str(tmp_path))) as node:
        there = fill(node, 10)
        slow = SlowTransport(node)
        slow.feed(frame(fetch("t"), 12))
        await turns()
        os.truncate(tmp_path / "t-0" / "00000000000000000000.log", 3_000_000)
        await slow.take_all()
        assert slow.is_gone
        header_bytes = slow.sent.index(there[:100])
        assert there.startswith(slow.sent[header_bytes:])
        assert sum("the rest of an answer cannot be read" in line for line in said(node)) == 1
        # From now on it is known before anything is sent: an error of the partition.
        late = SlowTransport(node)
        late.feed(frame(fetch("t"), 12))
        await late.take_all()
        assert records_in(late.sent).error_code == Error.KAFKA_STORAGE_ERROR
        late.close()


async def test_what_is_left_of_an_answer_when_most_of_it_is_refused_is_read_too(tmp_path: Path) -> None:
    """Together they were to be read as they are sent; without the second it is a small answer."""
    async with running(SETTINGS, storage=OsStorage(str(tmp_path))) as node:
        there = fill(node, 1)
        node.create_topic("u")
        append(node, "u", bytes(2 * VALUE_BYTES))
        os.truncate(tmp_path / "u-0" / "00000000000000000000.log", VALUE_BYTES)
        request, slow = fetch("t"), SlowTransport(node)
        request.topics += fetch("u").topics
        slow.feed(frame(request, 12))
        await slow.take_all()
        _, message = decode_response(bytes(slow.sent[4:]), 1, 12)
        found = [each.partitions[0] for each in message.responses]
        assert [each.error_code for each in found] == [Error.NONE, Error.KAFKA_STORAGE_ERROR]
        assert bytes(found[0].records) == there
        slow.close()


async def test_what_has_been_written_leaves_before_a_connection_closes() -> None:
    async with running(SETTINGS) as node:
        there = fill(node, 10)
        slow = SlowTransport(node)
        slow.feed(frame(fetch("t"), 12))
        await turns()
        slow.connection.close()
        assert not slow.is_gone
        await slow.take_all()
        assert slow.is_gone
        assert bytes(records_in(slow.sent).records) == there


async def test_a_client_that_has_gone_leaves_nothing_open(tmp_path: Path) -> None:
    async with running(SETTINGS, storage=OsStorage(str(tmp_path))) as node:
        fill(node, 10)
        slow = SlowTransport(node)
        slow.feed(frame(fetch("t"), 12))
        await turns()
        segment = node.replicas["t", 0].log.active
        assert segment._find_shared() is not None
        slow.close()
        await turns()
        assert segment._find_shared() is None


async def test_a_broker_that_is_held_sends_no_piece() -> None:
    async with running(SETTINGS) as node:
        there = fill(node, 10)
        quick = FedTransport(node)
        quick.feed(frame(fetch("t"), 12))
        node.servers[0].pause()
        before = len(quick.sent)
        assert 0 < before < len(there)
        await turns()
        assert len(quick.sent) == before
        node.servers[0].resume()
        await quick.idle()
        assert bytes(records_in(quick.sent).records) == there
        quick.close()


async def test_whoever_says_that_it_has_no_more_to_ask_gets_the_whole_answer(tmp_path: Path) -> None:
    async with running(SETTINGS, storage=OsStorage(str(tmp_path))) as node:
        there = fill(node, 40)
        async with connected(node, buffer_bytes=4096) as client:
            client.reader._transport.pause_reading()  # type: ignore[attr-defined]
            client.send(frame(fetch("t"), 12))
            while not (found := list(node.servers[0].connections)) or not found[0].is_unread:
                await asyncio.sleep(0)
            client.writer.write_eof()
            await turns()
            client.reader._transport.resume_reading()  # type: ignore[attr-defined]
            assert bytes(records_in(await client.reader.read()).records) == there
        await settle(node)


@pytest.mark.parametrize(
    "toxic",
    [
        {"type": "slicer", "attributes": {"average_size": 70_000, "size_variation": 60_000}},
        {"type": "bandwidth", "attributes": {"rate": 50_000}},
        {"type": "latency", "attributes": {"latency": 1}},
    ],
)
async def test_a_toxic_that_comes_and_goes_under_way_changes_no_byte(tmp_path: Path, toxic: dict[str, Any]) -> None:
    async with running(SETTINGS, storage=OsStorage(str(tmp_path))) as node:
        there = fill(node, 20)
        async with connected(node, buffer_bytes=4096) as client:
            client.send(frame(fetch("t"), 12))
            head = await client.reader.readexactly(200_000)
            node.faults.add_toxic(name="it", **toxic)
            head += await client.reader.readexactly(2_000_000)
            node.faults.remove_toxic("it")
            length = 4 + int.from_bytes(head[:4], "big")
            head += await client.reader.readexactly(length - len(head))
            assert bytes(records_in(head).records) == there


@pytest.mark.parametrize("rule", [{"delay_ms": 1}, {"throttle_ms": 1}, {"truncate": 3_000_000}])
async def test_a_rule_for_faults_has_the_whole_answer(storage: MemoryStorage | OsStorage, rule: dict[str, int]) -> None:
    async with running(SETTINGS, storage=storage) as node:
        there = fill(node, 20)
        node.faults.add(api="Fetch", times=1, **rule)
        async with connected(node, buffer_bytes=4096) as client:
            client.send(frame(fetch("t"), 12))
            if "truncate" in rule:
                assert len(await client.reader.read()) == 3_000_000
            else:
                head = await client.reader.readexactly(4)
                head += await client.reader.readexactly(int.from_bytes(head, "big"))
                assert bytes(records_in(head).records) == there
        await settle(node)

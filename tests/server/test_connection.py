"""Bytes in whatever pieces they come: frames are found, answered in order, and never mixed up."""

from __future__ import annotations

import asyncio
import errno
import mmap
import os
import sys
from pathlib import Path
from random import Random
from typing import Any

import pytest

from minibroker.protocol.messages.api_versions import ApiVersionsRequest
from minibroker.protocol.messages.list_offsets import ListOffsetsRequest
from minibroker.protocol.messages.metadata import MetadataRequest
from minibroker.server.buffers import FIRST_BYTES, RECEIVE_BYTES
from minibroker.server.connection import SHARED_BYTES
from tests.client.scripted import TestClock
from tests.server.running import (
    FedTransport,
    append,
    batch,
    connected,
    fetch,
    frame,
    produce,
    running,
    said,
    settle,
    turns,
    values_of,
)

METADATA = (3, 9)
PRODUCE = (0, 9)
FETCH = (1, 12)


def metadata(*topics: str) -> MetadataRequest:
    return MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=name) for name in topics])


async def test_a_frame_is_found_wherever_it_is_cut() -> None:
    async with running() as node:
        node.create_topic("t")
        whole = frame(metadata("t"), 9, 77) + frame(produce("t", batch(b"value")), 9, 78)
        expected = None
        for cut in range(len(whole) + 1):
            fed = FedTransport(node)
            fed.feed(whole[:cut])
            fed.feed(whole[cut:])
            await fed.idle()
            (first, described), (second, produced) = fed.answers(METADATA, PRODUCE)
            assert (first, second) == (77, 78)
            assert produced.responses[0].partition_responses[0].base_offset == cut
            assert expected in (None, repr(described))
            expected = repr(described)
            fed.close()
        assert values_of(node, "t") == [b"value"] * (len(whole) + 1)


async def test_a_frame_that_comes_byte_by_byte_is_answered_when_its_last_byte_is_there() -> None:
    async with running() as node:
        fed = FedTransport(node)
        data = frame(metadata(), 9, 5)
        for position in range(len(data) - 1):
            fed.feed(data[position : position + 1])
        assert not fed.sent
        fed.feed(data[-1:])
        assert fed.answers(METADATA)[0][0] == 5
        assert fed.connection.partial.held_bytes == 0
        fed.close()


async def test_many_frames_in_one_segment_are_answered_in_order() -> None:
    async with running() as node, connected(node) as client:
        client.send(b"".join(frame(metadata(), 9, number) for number in range(500)))
        assert [(await client.answer(*METADATA))[0] for _ in range(500)] == list(range(500))


async def test_requests_behind_a_fetch_that_waits_wait_too() -> None:
    clock = TestClock()
    async with running(clock=clock) as node:
        node.create_topic("t")
        fed = FedTransport(node)
        fed.feed(
            frame(fetch("t", wait_ms=500), 12, 1)
            + frame(produce("t", batch(b"mine")), 9, 2)
            + frame(metadata("t"), 9, 3)
        )
        await turns()
        assert not fed.sent
        assert fed.is_paused
        assert len(node.replicas["t", 0].waiters) == 1
        # Others overwrite the buffer that all share, while the requests above are still to be read.
        other = FedTransport(node)
        other.feed(frame(produce("t", batch(b"theirs" * 1000)), 9, 4))
        assert other.answers(PRODUCE)[0][0] == 4
        await turns()
        fetched, mine, _ = fed.answers(FETCH, PRODUCE, METADATA)
        assert [fetched[0], mine[0]] == [1, 2]
        assert bytes(fetched[1].responses[0].partitions[0].records) == bytes(
            node.replicas["t", 0].log.active.view(0, len(batch(b"theirs" * 1000)))
        )
        assert values_of(node, "t") == [b"theirs" * 1000, b"mine"]
        assert not fed.is_paused
        assert fed.connection.partial.held_bytes == 0
        fed.close()
        other.close()


async def test_a_fetch_that_waits_in_vain_answers_when_its_time_is_over() -> None:
    clock = TestClock()
    async with running(clock=clock) as node, connected(node) as client:
        node.create_topic("t")
        client.send(frame(fetch("t", wait_ms=500), 12, 1) + frame(metadata(), 9, 2))
        await _until(lambda: bool(node.replicas["t", 0].waiters))
        clock.pass_time(499)
        assert node.replicas["t", 0].waiters
        clock.pass_time(1)
        assert [(await client.answer(*FETCH))[0], (await client.answer(*METADATA))[0]] == [1, 2]
        assert not node.replicas["t", 0].waiters


async def test_a_fetch_whose_time_is_over_takes_what_came_in_its_last_moment() -> None:
    clock = TestClock()
    async with running(clock=clock) as node, connected(node) as client:
        node.create_topic("t")
        client.send(frame(fetch("t", wait_ms=500, bytes_min=10_000), 12, 1))
        await _until(lambda: bool(node.replicas["t", 0].waiters))
        append(node, "t", b"too little to be waited for")
        clock.pass_time(500)
        _, answer = await client.answer(*FETCH)
        assert bytes(answer.responses[0].partitions[0].records) == bytes(
            node.replicas["t", 0].log.active.view(0, node.replicas["t", 0].log.size_bytes)
        )


@pytest.mark.parametrize("largest", [1, 7, 1500, 70_000, 1_000_000])
async def test_produce_requests_that_come_in_pieces_on_many_connections_are_not_mixed_up(largest: int) -> None:
    chance = Random(largest)
    count, per_connection, size_bytes = (4, 2, 20_000) if largest < 10 else (12, 6, 400_000)
    async with running() as node:
        node.create_topic("t", count)
        backlogs = []
        for number in range(count):
            sizes = [SHARED_BYTES + 5000 if largest > 10 else 9000, *(chance.randrange(size_bytes) for _ in range(9))]
            values = [chance.randbytes(size) for size in sizes[:per_connection]]
            data = b"".join(
                frame(produce("t", batch(value), partition=number), 9, index) for index, value in enumerate(values)
            )
            backlogs.append((number, FedTransport(node), values, memoryview(data)))
        unfinished = dict(enumerate(backlogs))
        while unfinished:
            number, fed, values, left = unfinished[chance.choice(list(unfinished))]
            piece = chance.randint(1, largest)
            fed.feed(left[:piece])
            if piece < len(left):
                unfinished[number] = number, fed, values, left[piece:]
            else:
                del unfinished[number]
        for number, fed, values, _ in backlogs:
            await fed.idle()
            answers = fed.answers(*[PRODUCE] * len(values))
            assert [found for found, _ in answers] == list(range(len(values)))
            assert not any(each.responses[0].partition_responses[0].error_code for _, each in answers)
            assert values_of(node, "t", number) == values
            fed.close()
        assert node.servers[0].held_bytes == 0


async def test_produce_requests_over_real_sockets_are_not_mixed_up() -> None:
    chance = Random(3)
    values = [[chance.randbytes(chance.choice((10, 5000, 700_000))) for _ in range(12)] for _ in range(8)]
    async with running() as node:
        node.create_topic("t", len(values))

        async def send(number: int) -> None:
            async with connected(node) as client:
                for index, value in enumerate(values[number]):
                    client.send(frame(produce("t", batch(value), partition=number), 9, index))
                for index in range(len(values[number])):
                    assert (await client.answer(*PRODUCE))[0] == index

        await asyncio.gather(*map(send, range(len(values))))
        assert [values_of(node, "t", number) for number in range(len(values))] == values


async def test_a_large_frame_in_small_pieces_is_copied_only_a_few_times() -> None:
    async with running({"message.max.bytes": "20000000"}) as node:
        node.create_topic("t")
        value = Random(1).randbytes(12_000_000)
        data = memoryview(frame(produce("t", batch(value)), 9))
        fed = FedTransport(node)
        taken: list[int] = []
        buffers = node.servers[0].buffers
        take = buffers.take
        buffers.take = lambda size_bytes: taken.append(size_bytes) or take(size_bytes)  # type: ignore
        for position in range(0, len(data), 1000):
            fed.feed(data[position : position + 1000])
        assert len(taken) < 20, taken
        assert sum(taken) < 4 * len(data), taken
        assert values_of(node, "t") == [value]
        fed.close()


async def test_a_turn_of_the_loop_receives_a_bounded_piece_and_copies_only_the_beginning() -> None:
    async with running({"message.max.bytes": "20000000"}) as node:
        node.create_topic("t")
        value = Random(2).randbytes(8 << 20)
        data = frame(produce("t", batch(value)), 9)
        fed = FedTransport(node)
        gotten_bytes: list[int] = []
        copied: list[int] = []
        get_buffer, keep = fed.connection.get_buffer, fed.connection._keep

        def gotten(sizehint: int) -> memoryview:
            found = get_buffer(sizehint)
            gotten_bytes.append(len(found))
            return found

        def kept(rest: memoryview) -> None:
            before = fed.connection.partial._buffer
            keep(rest)
            if fed.connection.partial._buffer is not before:
                copied.append(len(rest))

        fed.connection.get_buffer = gotten  # type: ignore[method-assign]
        fed.connection._keep = kept  # type: ignore[method-assign]
        fed.feed(data)
        assert len(gotten_bytes) <= 3, "it goes on receiving, and nobody else has a turn"
        assert fed.connection.is_answering, "it goes on receiving, and nobody else has a turn"
        await fed.idle()
        assert values_of(node, "t") == [value]
        assert max(gotten_bytes) <= RECEIVE_BYTES
        assert sum(copied) <= SHARED_BYTES
        fed.close()


@pytest.mark.skipif(sys.platform != "linux", reason="/proc says what a process takes")
async def test_memory_grows_with_what_has_come_and_not_with_what_was_announced() -> None:
    async with running() as node:
        announced = [FedTransport(node) for _ in range(50)]
        before_bytes = resident_bytes()
        for fed in announced:
            fed.feed((100_000_000).to_bytes(4, "big") + bytes(200_000))
        grown_bytes = resident_bytes() - before_bytes
        assert 50 * 200_000 <= node.servers[0].held_bytes <= 50 * 210_000
        assert 0.9 * 50 * 200_000 < grown_bytes < 2 * 50 * 200_000
        for fed in announced:
            fed.close()


async def test_a_few_bytes_of_a_long_frame_take_a_small_buffer() -> None:
    async with running() as node:
        announced = [FedTransport(node) for _ in range(50)]
        for fed in announced:
            fed.feed((1_000_000).to_bytes(4, "big") + bytes(18))
        assert node.servers[0].held_bytes <= 50 * FIRST_BYTES
        for fed in announced:
            fed.close()


async def test_a_frame_for_which_there_is_no_memory_closes_its_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(size_bytes: int) -> Any:
        raise OSError(errno.ENOMEM, "Cannot allocate memory")

    async with running() as node:
        monkeypatch.setattr("minibroker.server.buffers._mapped", refuse)
        fed = FedTransport(node)
        fed.feed((90_000_000).to_bytes(4, "big") + bytes(100_000))
        assert fed.is_gone
        assert node.servers[0].held_bytes == 0
        assert "there is no memory for a request of 90000004 bytes" in said(node)[-1]


class WithoutHugePages(mmap.mmap):
    """A map of a kernel that has no huge pages, and so refuses what would keep them away."""

    def madvise(self, *advice: int) -> None:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))


async def test_a_long_frame_needs_no_kernel_with_huge_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mmap.mmap", WithoutHugePages)
    value = b"v" * 3_000_000
    async with running({"message.max.bytes": "20000000"}) as node:
        node.create_topic("t")
        fed = FedTransport(node)
        fed.feed(frame(produce("t", batch(value)), 9))
        await fed.idle()
        assert not fed.is_gone
        assert values_of(node, "t") == [value]
        fed.close()


async def test_long_frames_at_once_have_buffers_of_their_own() -> None:
    async with running({"message.max.bytes": "20000000"}) as node:
        expected = {topic: [topic.encode() * 3_000_000] for topic in ("a", "b", "c")}
        for together in ("a", "bc", "cab"):  # the first gives its map back, and one of those that follow has it
            feds = []
            for topic in together:
                if topic not in node.image.topics:
                    node.create_topic(topic)
                feds.append((FedTransport(node), frame(produce(topic, batch(topic.encode() * 3_000_000)), 9)))
            for start in range(0, len(feds[0][1]), 200_000):
                for fed, data in feds:
                    fed.feed(data[start : start + 200_000])
                    await asyncio.sleep(0)
            for fed, _ in feds:
                await fed.idle()
                assert not fed.is_gone
                fed.close()
        for topic, values in expected.items():
            assert values_of(node, topic) == values * 2


def resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


async def test_acks_0_gets_no_answer() -> None:
    async with running() as node, connected(node) as client:
        node.create_topic("t")
        client.send(frame(produce("t", batch(b"a"), acks=0), 9, 1) + frame(metadata(), 9, 2))
        assert (await client.answer(*METADATA))[0] == 2
        assert values_of(node, "t") == [b"a"]


async def test_acks_0_that_fails_loses_the_connection() -> None:
    async with running() as node, connected(node) as client:
        client.send(frame(produce("nowhere", batch(b"a"), acks=0), 9, 1) + frame(metadata(), 9, 2))
        assert await client.is_closed()
        await settle(node)


async def test_an_unknown_version_of_api_versions_is_answered_in_version_0() -> None:
    async with running() as node, connected(node) as client:
        data = bytearray(frame(ApiVersionsRequest(client_software_name="a", client_software_version="1"), 3, 99))
        data[6:8] = (1000).to_bytes(2, "big")
        client.send(bytes(data))
        correlation_id, answer = await client.answer(18, 0)
        assert (correlation_id, answer.error_code) == (99, 35)
        assert [(each.api_key, each.max_version) for each in answer.api_keys] == [(18, node.announced[18][1])]
        assert (await client.ask(ApiVersionsRequest(), 0)).error_code == 0


@pytest.mark.parametrize(("api", "version"), [(999, 0), (-1, 0), (3, 99), (3, -1), (0, 32767), (4, 0)])
async def test_an_unknown_api_or_version_closes(api: int, version: int) -> None:
    async with running() as node, connected(node) as client:
        header = (api & 0xFFFF).to_bytes(2, "big") + (version & 0xFFFF).to_bytes(2, "big") + bytes(20)
        client.send(len(header).to_bytes(4, "big") + header)
        assert await client.is_closed()
        await settle(node)


async def test_all_versions_of_a_simple_request_are_answered() -> None:
    async with running() as node, connected(node) as client:
        for version in range(node.served[3][1] + 1):
            assert (await client.ask(metadata(), version, version)).brokers
        for version in range(1, node.served[2][1] + 1):
            assert (await client.ask(ListOffsetsRequest(replica_id=-1, topics=[]), version)).topics == []


async def _until(is_so: object) -> None:
    assert callable(is_so)
    for _ in range(10_000):
        if is_so():
            return
        await asyncio.sleep(0)
    raise AssertionError("it never became so")

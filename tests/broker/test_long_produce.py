"""A Produce of the worst kind that is legal: how long it holds the loop is counted, in lines of Python and in bytes."""

from __future__ import annotations

import sys
from collections.abc import Callable
from random import Random
from types import FrameType, GeneratorType
from typing import Any

import pytest

from minibroker.broker.handlers.context import Context
from minibroker.broker.handlers.produce import produce
from minibroker.broker.node import Node
from minibroker.errors import Error
from minibroker.log import compression
from minibroker.log.batches import batches
from minibroker.log.build import build_batch
from minibroker.log.compression import GZIP, LZ4, NONE, SNAPPY, ZSTD
from minibroker.log.formats import HEADER_BYTES
from minibroker.log.records import Record
from minibroker.protocol.messages.produce import ProduceRequest, ProduceResponse
from minibroker.server.shares import FIRST_US, SHARE_US
from tests.server.running import FedTransport, running

NOW_MS = 1_700_000_000_000
MIB = 1 << 20
Topic = ProduceRequest.TopicProduceData
LINES_MAX = 250_000  # at a stretch; 20 ms have about a million
UNPACKED_BYTES_MAX, GUNZIPPED_BYTES_MAX = 4 * MIB, 1 * MIB  # at a stretch; 4 ms each


def tiny(count: int, codec: int = NONE) -> bytes:
    """Records whose sizes change, so that they are gone through one by one."""
    chance = Random(1)
    sizes = [chance.randrange(3) for _ in range(61)]
    return build_batch(2, [Record(None, bytes(sizes[each % 61]), (), NOW_MS) for each in range(count)], codec=codec)


def headers(count: int, records: int) -> bytes:
    sizes = (b"", b"12")
    return build_batch(2, [Record(b"k", sizes[each % 2], (("", b""),) * count, NOW_MS) for each in range(records)])


def almost_alike(count: int) -> bytes:
    """Records that are equal up to their last field."""
    last = [(("a", b""),), (("", b"a"),)]
    return build_batch(2, [Record(b"", b"", last[each % 2], NOW_MS) for each in range(count)])


def bomb(codec: int) -> bytes:
    size_bytes = 16 * MIB if codec == SNAPPY else 60 * MIB  # a MiB of snappy holds no more
    return build_batch(2, [Record(b"k", bytes(size_bytes // 4), (), NOW_MS)] * 4, codec=codec)


def refused(count: int) -> bytes:
    return build_batch(2, [Record(b"k", b"", (), 2 * NOW_MS)] * count)


WORST: dict[str, tuple[Callable[[], bytes], Error]] = {
    "tiny": (lambda: tiny(40_000), Error.NONE),
    "tiny and packed": (lambda: tiny(40_000, ZSTD), Error.NONE),
    "alike": (lambda: build_batch(2, [Record(None, None, (), NOW_MS)] * 100_000), Error.NONE),
    "almost alike": (lambda: almost_alike(20_000), Error.NONE),
    "one with many headers": (lambda: headers(200_000, 1), Error.NONE),
    "each with some headers": (lambda: headers(63, 2_000), Error.NONE),
    "each with many headers": (lambda: headers(200, 600), Error.NONE),
    "each at fault": (lambda: refused(40_000), Error.INVALID_TIMESTAMP),
    "bomb of gzip": (lambda: bomb(GZIP), Error.NONE),
    "bomb of snappy": (lambda: bomb(SNAPPY), Error.NONE),
    "bomb of lz4": (lambda: bomb(LZ4), Error.NONE),
    "bomb of zstd": (lambda: bomb(ZSTD), Error.NONE),
}


class Counted:
    """Counts the lines that are run, and the bytes that are unpacked, until it is asked."""

    def __init__(self) -> None:
        self.lines = self.unpacked_bytes = 0
        self.longest_lines = self.longest_bytes = self.stretches = 0

    def trace(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event == "line":
            self.lines += 1
        elif event == "call" and frame.f_code is compression._Output.add.__code__:
            self.unpacked_bytes += len(frame.f_locals["piece"])
        return self.trace

    def pause(self) -> None:
        self.longest_lines = max(self.longest_lines, self.lines)
        self.longest_bytes = max(self.longest_bytes, self.unpacked_bytes)
        self.lines = self.unpacked_bytes = 0
        self.stretches += 1


def request_of(*records: bytes, acks: int = 1) -> ProduceRequest:
    rows = [Topic.PartitionProduceData(index=index, records=memoryview(data)) for index, data in enumerate(records)]
    return ProduceRequest(acks=acks, timeout_ms=1000, topic_data=[Topic(name="orders", partition_data=rows)])


def produced(node: Node, request: ProduceRequest, version: int = 9) -> tuple[ProduceResponse, Counted]:
    """Handle a request as the shares do (server/shares.py), and count what is done between their pauses."""
    context = Context(node, FedTransport(node).connection, version, "client")
    counted = Counted()
    before = sys.gettrace()
    sys.settrace(counted.trace)
    try:
        answer: Any = produce(request, context)
        if isinstance(answer, GeneratorType):
            spent_us, enough_us = 0, FIRST_US
            try:
                while True:
                    spent_us += next(answer)
                    if spent_us >= enough_us:
                        counted.pause()
                        spent_us, enough_us = 0, SHARE_US
            except StopIteration as end:
                answer = end.value
    finally:
        sys.settrace(before)
    counted.pause()
    assert isinstance(answer, ProduceResponse)
    return answer, counted


@pytest.mark.parametrize("kind", WORST)
async def test_the_loop_is_not_held_by_the_largest_batch(kind: str) -> None:
    make, code = WORST[kind]
    data = make()
    assert len(data) <= MIB, len(data)
    async with running() as node:
        node.create_topic("orders", 1)
        answer, counted = produced(node, request_of(data))
        (row,) = answer.responses[0].partition_responses
        (batch,) = batches(data)
        log = node.replicas["orders", 0].log
        assert (row.error_code, log.next_offset) == (code, 0 if code else batch.count)
        assert len(row.record_errors) == (batch.count if code else 0)
    assert counted.longest_lines <= LINES_MAX, vars(counted)
    assert counted.longest_bytes <= (GUNZIPPED_BYTES_MAX if "gzip" in kind else UNPACKED_BYTES_MAX), vars(counted)
    assert counted.stretches > 1, vars(counted)


async def test_many_batches_hold_the_loop_no_longer_than_one() -> None:
    """Each of them is short enough to be looked at without a pause."""
    data = tiny(1_500)
    async with running() as node:
        node.create_topic("orders", 60)
        answer, counted = produced(node, request_of(*[data] * 60))
        assert [row.error_code for row in answer.responses[0].partition_responses] == [Error.NONE] * 60
        assert [node.replicas["orders", each].log.next_offset for each in range(60)] == [1_500] * 60
    assert counted.longest_lines <= LINES_MAX, vars(counted)


@pytest.mark.parametrize("magic", [0, 1])
async def test_old_wrappers_hold_the_loop_no_longer_than_one(magic: int) -> None:
    """They are unpacked, read, and written anew in format 2."""
    records = [Record(None, b"", (), NOW_MS if magic else -1, offset) for offset in range(3_000)]
    data = build_batch(magic, records, codec=GZIP)
    async with running() as node:
        node.create_topic("orders", 40)
        answer, counted = produced(node, request_of(*[data] * 40), version=2)
        assert [row.error_code for row in answer.responses[0].partition_responses] == [Error.NONE] * 40
        assert [node.replicas["orders", each].log.next_offset for each in range(40)] == [3_000] * 40
    assert counted.longest_lines <= LINES_MAX, vars(counted)
    assert counted.stretches > 40, vars(counted)


async def test_a_batch_that_is_looked_at_in_pieces_is_what_came_and_goes_where_the_log_ends_then() -> None:
    """Meanwhile the receive buffer is used again, and others write."""
    sent = tiny(10_000)
    received = bytearray(sent)
    async with running() as node:
        node.create_topic("orders", 1)
        replica = node.replicas["orders", 0]
        work = produce(request_of(received), Context(node, FedTransport(node).connection, 9, "client"))  # type: ignore[arg-type]
        assert isinstance(work, GeneratorType)
        next(work)
        received[:] = bytes(len(received))
        replica.append(tiny(5), now_ms=NOW_MS, steady_ms=0)
        answer = await node.shares.run(work)
        (row,) = answer.responses[0].partition_responses  # type: ignore[union-attr]
        assert (row.error_code, row.base_offset, replica.log.next_offset) == (Error.NONE, 5, 10_005)
        first, second = replica.log.active.batches()
        assert (first.count, second.base_offset, second.count) == (5, 5, 10_000)
        assert second.view[HEADER_BYTES:] == sent[HEADER_BYTES:]
        second.check_crc()


async def test_who_leads_no_more_when_a_batch_has_been_looked_at_appends_nothing() -> None:
    async with running() as node:
        node.create_topic("orders", 1)
        replica = node.replicas["orders", 0]
        work = produce(request_of(tiny(10_000)), Context(node, FedTransport(node).connection, 9, "client"))
        assert isinstance(work, GeneratorType)
        next(work)
        replica.leader_id = 77
        answer = await node.shares.run(work)
        (row,) = answer.responses[0].partition_responses
        assert (row.error_code, replica.log.next_offset) == (Error.NOT_LEADER_OR_FOLLOWER, 0)
        replica.leader_id = node.node_id

"""A Produce of the worst kind that is legal: how long it holds the loop is counted, in lines of Python and in bytes."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from minibroker.broker.broker import Node
from minibroker.broker.dispatch import Context
from minibroker.broker.handlers.produce import produce
from minibroker.errors import Error
from minibroker.log.batches import batches
from minibroker.log.build import build_batch
from minibroker.log.compression import GZIP, LZ4, NONE, SNAPPY, ZSTD
from minibroker.log.formats import HEADER_BYTES
from minibroker.log.records import Record
from minibroker.protocol.messages.produce import ProduceRequest, ProduceResponse
from minibroker.turns import is_work
from tests.broker.stretches import Counted, counted
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


def request_of(*records: bytes, acks: int = 1) -> ProduceRequest:
    rows = [Topic.PartitionProduceData(index=index, records=memoryview(data)) for index, data in enumerate(records)]
    return ProduceRequest(acks=acks, timeout_ms=1000, topic_data=[Topic(name="orders", partition_data=rows)])


def produced(node: Node, request: ProduceRequest, version: int = 9) -> tuple[ProduceResponse, Counted]:
    context = Context(node, FedTransport(node).connection, version, "client")
    answer, count = counted(lambda: produce(request, context))
    assert isinstance(answer, ProduceResponse)
    return answer, count


@pytest.mark.slow
@pytest.mark.parametrize("kind", WORST)
async def test_the_loop_is_not_held_by_the_largest_batch(kind: str) -> None:
    make, code = WORST[kind]
    data = make()
    assert len(data) <= MIB, len(data)
    async with running() as node:
        node.create_topic("orders", 1)
        answer, count = produced(node, request_of(data))
        (row,) = answer.responses[0].partition_responses
        (batch,) = batches(data)
        log = node.replicas["orders", 0].log
        assert (row.error_code, log.log_end_offset) == (code, 0 if code else batch.count)
        assert len(row.record_errors) == (batch.count if code else 0)
    assert count.longest_lines <= LINES_MAX, vars(count)
    assert count.longest_bytes <= (GUNZIPPED_BYTES_MAX if "gzip" in kind else UNPACKED_BYTES_MAX), vars(count)
    assert count.stretches > 1, vars(count)


async def test_many_batches_hold_the_loop_no_longer_than_one() -> None:
    """Each of them is short enough to be looked at without a pause."""
    data = tiny(1_500)
    async with running() as node:
        node.create_topic("orders", 60)
        answer, count = produced(node, request_of(*[data] * 60))
        assert [row.error_code for row in answer.responses[0].partition_responses] == [Error.NONE] * 60
        assert [node.replicas["orders", each].log.log_end_offset for each in range(60)] == [1_500] * 60
    assert count.longest_lines <= LINES_MAX, vars(count)


@pytest.mark.slow
@pytest.mark.parametrize("magic", [0, 1])
async def test_old_wrappers_hold_the_loop_no_longer_than_one(magic: int) -> None:
    """They are unpacked, read, and written anew in format 2."""
    records = [Record(None, b"", (), NOW_MS if magic else -1, offset) for offset in range(3_000)]
    data = build_batch(magic, records, codec=GZIP)
    async with running() as node:
        node.create_topic("orders", 40)
        answer, count = produced(node, request_of(*[data] * 40), version=2)
        assert [row.error_code for row in answer.responses[0].partition_responses] == [Error.NONE] * 40
        assert [node.replicas["orders", each].log.log_end_offset for each in range(40)] == [3_000] * 40
    assert count.longest_lines <= LINES_MAX, vars(count)
    assert count.stretches > 40, vars(count)


OLD = {
    "messages": (0, NONE, 38_000),
    "messages with a time": (1, NONE, 30_000),
    "wrapper": (0, GZIP, 40_000),
    "wrapper with a time": (1, GZIP, 40_000),
    "wrapper of lz4": (1, LZ4, 40_000),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", OLD)
async def test_the_loop_is_not_held_by_the_largest_old_batch(kind: str) -> None:
    magic, codec, records = OLD[kind]
    data = build_batch(magic, [Record(None, None, (), NOW_MS if magic else -1)] * records, codec=codec)
    assert len(data) <= MIB, len(data)
    async with running() as node:
        node.create_topic("orders", 1)
        answer, count = produced(node, request_of(data), version=2)
        (row,) = answer.responses[0].partition_responses
        log = node.replicas["orders", 0].log
        assert (row.error_code, log.log_end_offset) == (Error.NONE, records)
        assert sum(1 for batch in log.active.batches() for _ in batch.records(check_crc=True)) == records
    assert count.longest_lines <= LINES_MAX, vars(count)


REWRITTEN: dict[str, Callable[[], bytes]] = {
    "tiny": lambda: tiny(60_000),
    "one with many headers": lambda: headers(200_000, 1),
    "each with many headers": lambda: headers(200, 600),
    "headers unpacked": lambda: build_batch(2, [Record(b"k", b"", (("", b""),) * 500_000, NOW_MS)] * 2, codec=ZSTD),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", REWRITTEN)
@pytest.mark.parametrize("append_time", [False, True])
async def test_the_loop_is_not_held_by_a_batch_that_gets_the_codec_of_the_topic(kind: str, append_time: bool) -> None:
    data = REWRITTEN[kind]()
    (sent,) = batches(data)
    async with running() as node:
        wanted = {"compression.type": "gzip", "max.message.bytes": "4000000"}
        wanted |= {"message.timestamp.type": "LogAppendTime"} if append_time else {}
        node.create_topic("orders", 1, wanted)
        answer, count = produced(node, request_of(data))
        (row,) = answer.responses[0].partition_responses
        assert row.error_code == Error.NONE
        (stored,) = node.replicas["orders", 0].log.active.batches()
        stored.check_crc()
        assert (stored.codec, stored.count, stored.timestamp_type) == (GZIP, sent.count, int(append_time))
        assert stored.partition_leader_epoch == node.replicas["orders", 0].leader_epoch
        if sent.count < 1000:
            kept = [(record.key, record.value, record.headers) for record in stored.records()]
            assert kept == [(record.key, record.value, record.headers) for record in sent.records()]
    assert count.longest_lines <= LINES_MAX, vars(count)


async def test_a_batch_that_is_looked_at_in_pieces_is_what_came_and_goes_where_the_log_ends_then() -> None:
    """Meanwhile the receive buffer is used again, and others write."""
    sent = tiny(10_000)
    received = bytearray(sent)
    async with running() as node:
        node.create_topic("orders", 1)
        replica = node.replicas["orders", 0]
        work = produce(request_of(received), Context(node, FedTransport(node).connection, 9, "client"))  # type: ignore[arg-type]
        assert is_work(work)
        next(work)
        received[:] = bytes(len(received))
        replica.append(tiny(5), now_ms=NOW_MS, steady_ms=0)
        answer = await node.shares.run(work)
        (row,) = answer.responses[0].partition_responses
        assert (row.error_code, row.base_offset, replica.log.log_end_offset) == (Error.NONE, 5, 10_005)
        first, second = replica.log.active.batches()
        assert (first.count, second.base_offset, second.count) == (5, 5, 10_000)
        assert second.view[HEADER_BYTES:] == sent[HEADER_BYTES:]
        second.check_crc()


async def test_who_leads_no_more_when_a_batch_has_been_looked_at_appends_nothing() -> None:
    async with running() as node:
        node.create_topic("orders", 1)
        replica = node.replicas["orders", 0]
        work = produce(request_of(tiny(10_000)), Context(node, FedTransport(node).connection, 9, "client"))
        assert is_work(work)
        next(work)
        replica.leader_id = 77
        answer = await node.shares.run(work)
        (row,) = answer.responses[0].partition_responses
        assert (row.error_code, replica.log.log_end_offset) == (Error.NOT_LEADER_OR_FOLLOWER, 0)
        replica.leader_id = node.node_id

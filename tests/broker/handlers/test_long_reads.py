"""Fetch of clients for which everything is converted, and ListOffsets by time: others have their turn in between."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from minibroker.broker.broker import Node
from minibroker.broker.dispatch import Context
from minibroker.broker.handlers.fetch import fetch
from minibroker.broker.handlers.group_offsets import offset_fetch
from minibroker.broker.handlers.offsets import list_offsets
from minibroker.errors import Error, LogOffline, StorageError
from minibroker.in_pieces import finish
from minibroker.log.batches import batches
from minibroker.log.build import build_batch
from minibroker.log.compression import GZIP, LZ4, NONE, ZSTD
from minibroker.log.pruning import drop_oldest
from minibroker.log.reading import MAX_TIMESTAMP, find_time_in_pieces
from minibroker.log.records import Record
from minibroker.protocol.messages.fetch import FetchRequest, FetchResponse
from minibroker.protocol.messages.find_coordinator import FindCoordinatorRequest
from minibroker.protocol.messages.list_offsets import ListOffsetsRequest
from minibroker.protocol.messages.offset_fetch import OffsetFetchRequest
from tests.broker.stretches import counted
from tests.server.running import FedTransport, connected, running

NOW_MS = 1_700_000_000_000
RECORDS, PARTITIONS = 3_000, 20
DATA = build_batch(2, [Record(b"k", b"v", (), NOW_MS + each) for each in range(RECORDS)], codec=GZIP)


def filled(node: Node, count: int, batch_count: int = 1) -> None:
    node.create_topic("orders", count)
    for partition in range(count):
        for _ in range(batch_count):
            node.replicas["orders", partition].append(bytearray(DATA), now_ms=NOW_MS, steady_ms=0)


def fetch_request(count: int, *, max_wait_ms: int = 0, min_bytes: int = 1) -> FetchRequest:
    Topic = FetchRequest.FetchTopic
    rows = [Topic.FetchPartition(partition=each, fetch_offset=0, partition_max_bytes=1 << 20) for each in range(count)]
    topics = [Topic(topic="orders", partitions=rows)]
    return FetchRequest(max_wait_ms=max_wait_ms, min_bytes=min_bytes, max_bytes=1 << 30, topics=topics)


async def answered(
    node: Node, request: FetchRequest | ListOffsetsRequest, version: int, at_turn: Callable[[int], object] = id
) -> tuple[Any, int]:
    """Ask a broker; return the answer, and how many turns others have had meanwhile.

    at_turn: what happens in each of them.
    """
    turns = 0
    turn = node.shares.turn

    async def counted() -> None:
        nonlocal turns
        turns += 1
        at_turn(turns)
        await turn()

    async with connected(node) as client:
        node.shares.turn = counted  # type: ignore[method-assign]
        return await client.ask(request, version), turns


def records_in(answer: FetchResponse) -> list[int]:
    """Return how many records came of each partition."""
    rows = answer.responses[0].partitions
    return [sum(1 for batch in batches(row.records or b"") for _ in batch.records()) for row in rows]


@pytest.mark.parametrize("version", [0, 2, 3])
async def test_others_have_a_turn_behind_each_batch_that_is_converted(version: int) -> None:
    async with running() as node:
        filled(node, PARTITIONS)
        answer, turns = await answered(node, fetch_request(PARTITIONS), version)
    assert {row.error_code for row in answer.responses[0].partitions} == {Error.NONE}
    assert all(count > 0 for count in records_in(answer))
    assert turns >= PARTITIONS, turns


async def test_others_have_a_turn_between_the_batches_of_one_partition() -> None:
    async with running() as node:
        filled(node, 1, PARTITIONS)
        _, turns = await answered(node, fetch_request(1), 3)
    assert turns >= 6, turns  # what is converted is longer, and the answer is not: 7 of them are in it


async def test_a_fetch_that_has_waited_is_converted_in_pieces_too() -> None:
    async with running() as node:
        filled(node, PARTITIONS)
        answer, turns = await answered(node, fetch_request(PARTITIONS, max_wait_ms=1, min_bytes=1 << 29), 3)
    assert all(count > 0 for count in records_in(answer))
    assert turns >= PARTITIONS, turns


async def test_a_log_is_looked_at_again_after_a_pause() -> None:
    """Of one the beginning has been deleted, and one leads no more."""
    async with running() as node:
        filled(node, PARTITIONS)
        last = node.replicas["orders", PARTITIONS - 1]
        deleted = node.replicas["orders", PARTITIONS - 2]

        def change(turn: int) -> None:
            if turn == 1:
                last.leader_id = 77
                deleted.log.advance_log_start(RECORDS)

        answer, _ = await answered(node, fetch_request(PARTITIONS), 3, change)
        codes = [row.error_code for row in answer.responses[0].partitions]
        last.leader_id = node.node_id
    assert codes == [*[Error.NONE] * (PARTITIONS - 2), Error.OFFSET_OUT_OF_RANGE, Error.NOT_LEADER_OR_FOLLOWER]


@pytest.mark.parametrize("timestamp", [NOW_MS + RECORDS - 1, MAX_TIMESTAMP])
async def test_others_have_a_turn_behind_what_is_searched_by_time(timestamp: int) -> None:
    Topic = ListOffsetsRequest.ListOffsetsTopic
    rows = [Topic.ListOffsetsPartition(partition_index=each, timestamp=timestamp) for each in range(PARTITIONS)]
    request = ListOffsetsRequest(replica_id=-1, topics=[Topic(name="orders", partitions=rows)])
    async with running() as node:
        filled(node, PARTITIONS)
        answer, turns = await answered(node, request, 7)
    found = [(row.error_code, row.offset, row.timestamp) for row in answer.topics[0].partitions]
    assert found == [(Error.NONE, RECORDS - 1, NOW_MS + RECORDS - 1)] * PARTITIONS
    assert turns >= PARTITIONS, turns


OFFSETS_LINES_MAX = 20_000
LINES_MAX = 250_000  # at a stretch; 20 ms have about a million
LARGE: dict[str, tuple[int, Callable[[], list[Record]]]] = {
    "tiny": (NONE, lambda: [Record(None, b"x" * (each % 3), (), NOW_MS + each) for each in range(60_000)]),
    "tiny and packed": (GZIP, lambda: [Record(None, None, (), NOW_MS + each) for each in range(60_000)]),
    "headers": (LZ4, lambda: [Record(b"k", b"", (("", b""),) * 300_000, NOW_MS + each) for each in range(2)]),
}


def work_of(node: Node, request: FetchRequest | ListOffsetsRequest, version: int) -> Callable[[], Any]:
    handle: Any = fetch if isinstance(request, FetchRequest) else list_offsets
    return lambda: handle(request, Context(node, FedTransport(node).connection, version, "client"))


def offsets_request(timestamp: int, count: int = 1) -> ListOffsetsRequest:
    Topic = ListOffsetsRequest.ListOffsetsTopic
    rows = [Topic.ListOffsetsPartition(partition_index=each, timestamp=timestamp) for each in range(count)]
    return ListOffsetsRequest(replica_id=-1, topics=[Topic(name="orders", partitions=rows)])


@pytest.mark.slow
@pytest.mark.parametrize("kind", LARGE)
@pytest.mark.parametrize("version", [0, 3])
async def test_the_loop_is_not_held_by_one_batch_that_is_converted(kind: str, version: int) -> None:
    codec, make = LARGE[kind]
    records = make()
    async with running() as node:
        node.create_topic("orders", 1)
        data = build_batch(2, records, codec=codec)
        node.replicas["orders", 0].append(bytearray(data), now_ms=NOW_MS, steady_ms=0)
        answer, count = counted(work_of(node, fetch_request(1), version))
    (row,) = answer.responses[0].partitions
    found = [record for batch in batches(row.records, strict=True) for record in batch.records(check_crc=True)]
    assert [(record.key, record.value) for record in found] == [(record.key, record.value) for record in records]
    assert [record.offset for record in found] == list(range(len(records)))
    assert [record.timestamp for record in found] == [record.timestamp if version else -1 for record in records]
    assert count.longest_lines <= LINES_MAX, vars(count)


@pytest.mark.slow
async def test_the_loop_is_not_held_by_looking_for_what_is_to_be_converted() -> None:
    """All of it is old, so it goes out as it lies there."""
    async with running(as_version="2.8") as node:
        node.create_topic("orders", 1, {"message.format.version": "0.10.0", "max.message.bytes": "8000000"})
        data = build_batch(1, [Record(None, None, (), NOW_MS)] * 100_000)
        node.replicas["orders", 0].append(bytearray(data), now_ms=NOW_MS, steady_ms=0)
        request = fetch_request(1)
        request.topics[0].partitions[0].partition_max_bytes = 1 << 23
        answer, count = counted(work_of(node, request, 3))
    assert len(answer.responses[0].partitions[0].records) == len(data)
    assert count.longest_lines <= LINES_MAX, vars(count)


@pytest.mark.slow
@pytest.mark.parametrize("kind", LARGE)
async def test_the_loop_is_not_held_by_one_batch_that_is_searched_by_time(kind: str) -> None:
    codec, make = LARGE[kind]
    records = make()
    async with running() as node:
        node.create_topic("orders", 1)
        node.replicas["orders", 0].append(bytearray(build_batch(2, records, codec=codec)), now_ms=NOW_MS, steady_ms=0)
        for timestamp in (records[-1].timestamp, MAX_TIMESTAMP):
            answer, count = counted(work_of(node, offsets_request(timestamp), 7))
            (row,) = answer.topics[0].partitions
            assert (row.offset, row.timestamp) == (len(records) - 1, records[-1].timestamp)
            assert count.longest_lines <= LINES_MAX, vars(count)


async def test_the_loop_is_not_held_by_batches_that_are_too_old() -> None:
    """The only one that is not lies below where the log begins now."""
    async with running() as node:
        node.create_topic("orders", 1)
        replica = node.replicas["orders", 0]
        replica.append(bytearray(build_batch(2, [Record(None, b"", (), NOW_MS + 9)])), now_ms=NOW_MS, steady_ms=0)
        for _ in range(8_000):
            replica.append(bytearray(build_batch(2, [Record(None, b"", (), NOW_MS)])), now_ms=NOW_MS, steady_ms=0)
        replica.log.advance_log_start(1)
        answer, count = counted(work_of(node, offsets_request(NOW_MS + 5), 7))
    assert (answer.topics[0].partitions[0].error_code, answer.topics[0].partitions[0].offset) == (Error.NONE, -1)
    assert count.longest_lines <= LINES_MAX, vars(count)
    assert count.stretches > 1, vars(count)


@pytest.mark.parametrize(
    "change", ["lost", "failed", "deleted below", "deleted within", "cut and led anew", "cleaned away"]
)
async def test_what_is_searched_by_time_is_looked_at_again_after_a_pause(change: str) -> None:
    """The log changes while its second batch is searched; the last two records of each are what is looked for."""
    async with running() as node:
        node.create_topic("orders", 1)
        replica = node.replicas["orders", 0]
        log = replica.log
        records = [Record(None, b"", (), NOW_MS + each // (RECORDS - 2)) for each in range(RECORDS)]
        for _ in range(3):
            replica.append(bytearray(build_batch(2, records, codec=GZIP)), now_ms=NOW_MS, steady_ms=0)
            log.roll()
        log.advance_log_start(RECORDS)
        wanted = [2 * RECORDS - 2]

        def at_turn(turn: int) -> None:
            if turn != 1:
                return
            if change == "lost":
                replica.leader_id = 77
            elif change == "failed":
                log.fail(StorageError("the disk is gone"))
            elif change == "cut and led anew":
                replica.leader_epoch += 1
                log.truncate_to(RECORDS)
                others = [Record(None, b"", (), NOW_MS + each // 10) for each in range(RECORDS)]
                replica.append(bytearray(build_batch(2, others, codec=GZIP)), now_ms=NOW_MS, steady_ms=0)
                wanted[0] = RECORDS + 10
            elif change == "deleted within":
                log.advance_log_start(2 * RECORDS - 1)
                wanted[0] = 2 * RECORDS - 1
            else:
                log.advance_log_start(2 * RECORDS)
                wanted[0] = 3 * RECORDS - 2
                if change == "cleaned away":
                    drop_oldest(log, 1)

        answer, turns = await answered(node, offsets_request(NOW_MS + 1), 7, at_turn)
        replica.leader_id = node.node_id
    (row,) = answer.topics[0].partitions
    assert turns >= 1
    if change == "lost":
        assert (row.error_code, row.offset) == (Error.NOT_LEADER_OR_FOLLOWER, -1)
    elif change == "failed":
        assert (row.error_code, row.offset) == (Error.KAFKA_STORAGE_ERROR, -1)
    else:
        assert (row.error_code, row.offset) == (Error.NONE, wanted[0])


async def test_what_was_found_in_a_log_that_has_failed_meanwhile_is_nothing() -> None:
    async with running() as node:
        filled(node, 1)
        replica = node.replicas["orders", 0]
        search = find_time_in_pieces(replica.log, NOW_MS + RECORDS - 1, limit_offset=RECORDS)
        next(search)
        replica.log.fail(StorageError("the disk is gone"))
        with pytest.raises(LogOffline):
            finish(search)


@pytest.mark.parametrize("change", ["lost", "led anew", "deleted"])
async def test_a_batch_that_was_being_converted_is_read_again_after_a_change(change: str) -> None:
    async with running() as node:
        filled(node, 2)
        replica = node.replicas["orders", 0]

        def at_turn(turn: int) -> None:
            if turn == 1 and change == "lost":
                replica.leader_id = 77
            elif turn == 1 and change == "led anew":
                replica.leader_epoch += 1
            elif turn == 1:
                del node.replicas["orders", 0]

        answer, _ = await answered(node, fetch_request(2), 3, at_turn)
        replica.leader_id = node.node_id
        node.replicas["orders", 0] = replica
    codes = {row.partition_index: row.error_code for row in answer.responses[0].partitions}
    assert codes == {0: Error.NONE if change == "led anew" else Error.NOT_LEADER_OR_FOLLOWER, 1: Error.NONE}


@pytest.mark.parametrize("version", [0, 3])
async def test_a_codec_that_an_old_format_lacks_is_no_damage(version: int) -> None:
    async with running() as node:
        node.create_topic("orders", 1)
        data = build_batch(2, [Record(b"k", b"v", (), NOW_MS)], codec=ZSTD)
        node.replicas["orders", 0].append(bytearray(data), now_ms=NOW_MS, steady_ms=0)
        answer, _ = await answered(node, fetch_request(1), version)
        assert "damage" not in node._said_once
    (row,) = answer.responses[0].partitions
    assert (row.error_code, row.records) == (Error.UNSUPPORTED_COMPRESSION_TYPE, None)


@pytest.mark.parametrize(("topics", "partitions"), [(6_000, 1), (1, 16_000)])
async def test_the_oldest_fetch_of_many_offsets_lets_others_in(topics: int, partitions: int) -> None:
    Topic = OffsetFetchRequest.OffsetFetchRequestTopic
    rows = [Topic(name=f"t{each}", partition_indexes=list(range(partitions))) for each in range(topics)]
    request = OffsetFetchRequest(group_id="g", topics=rows)
    async with running({"offsets.topic.num.partitions": "1"}) as node, connected(node) as client:
        await client.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 4)
        context = Context(node, FedTransport(node).connection, 0, "client")
        answer, count = counted(lambda: offset_fetch(request, context))
    assert sum(len(topic.partitions) for topic in answer.topics) == topics * partitions
    assert {row.error_code for topic in answer.topics for row in topic.partitions} <= {
        Error.UNKNOWN_TOPIC_OR_PARTITION,
        Error.NOT_COORDINATOR,
        Error.COORDINATOR_LOAD_IN_PROGRESS,
    }
    assert count.longest_lines <= OFFSETS_LINES_MAX, vars(count)

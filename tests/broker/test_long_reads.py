"""Fetch of clients for which everything is converted, and ListOffsets by time: others have their turn in between."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from minibroker.broker.node import Node
from minibroker.errors import Error
from minibroker.log.batches import batches
from minibroker.log.build import build_batch
from minibroker.log.compression import GZIP
from minibroker.log.reading import MAX_TIMESTAMP
from minibroker.log.records import Record
from minibroker.protocol.messages.fetch import FetchRequest, FetchResponse
from minibroker.protocol.messages.list_offsets import ListOffsetsRequest
from tests.server.running import connected, running

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

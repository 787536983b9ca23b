"""Which records travel together, and in which order batches leave."""

from __future__ import annotations

import asyncio

from minibroker.client.accumulator import PartitionQueue, ProducerId, size_of
from minibroker.log.batches import batches
from minibroker.log.records import Record

BATCH_BYTES = 1000
HUNDRED = Record(None, bytes(100 - size_of(Record(None, b""))))


def queue_of(*records: Record) -> PartitionQueue:
    queue = PartitionQueue("orders", 0)
    for record in records:
        queue.add(record, asyncio.get_running_loop().create_future(), BATCH_BYTES)
    return queue


async def test_records_share_a_batch_until_it_is_full() -> None:
    queue = queue_of(*[HUNDRED] * 23)
    sizes = []
    while queue:
        sizes.append(len(queue.take(None).records))
    assert sizes == [10, 10, 3]


async def test_a_record_larger_than_a_batch_goes_alone() -> None:
    queue = queue_of(HUNDRED, Record(None, bytes(5000)), HUNDRED)
    assert [len(queue.take(None).records) for _ in range(3)] == [1, 1, 1]


async def test_a_batch_waits_until_it_is_due_or_full_or_another_one_stands_behind_it() -> None:
    queue = queue_of(HUNDRED)
    assert not queue.is_ready(BATCH_BYTES)
    queue.make_due()
    assert queue.is_ready(BATCH_BYTES)
    assert queue_of(*[HUNDRED] * 10).is_ready(BATCH_BYTES)
    assert queue_of(HUNDRED, Record(None, bytes(950))).is_ready(BATCH_BYTES)


async def test_one_batch_of_a_partition_is_under_way_at_a_time() -> None:
    queue = queue_of(*[HUNDRED] * 20)
    first = queue.take(None)
    assert not queue.is_ready(BATCH_BYTES)
    queue.is_sending = False
    queue.put_back(first)
    assert queue.is_ready(BATCH_BYTES)
    assert queue.take(None) is first


async def test_a_batch_that_was_sent_takes_no_more_records() -> None:
    queue = queue_of(HUNDRED)
    batch = queue.take(None)
    batch.build(2, 0)
    queue.put_back(batch)
    queue.add(HUNDRED, asyncio.get_running_loop().create_future(), BATCH_BYTES)
    assert [len(queue.take(None).records) for _ in range(2)] == [1, 1]


async def test_what_came_behind_a_batch_that_is_sent_again_follows_it_without_a_timer() -> None:
    queue = queue_of(HUNDRED)
    batch = queue.take(None)
    batch.build(2, 0)
    batch.tries = 1
    queue.put_back(batch)
    assert not queue.add(HUNDRED, asyncio.get_running_loop().create_future(), BATCH_BYTES)
    assert queue.take(None) is batch
    queue.is_sending = False
    assert queue.is_ready(BATCH_BYTES)


async def test_sequence_numbers_go_on_from_batch_to_batch_and_begin_anew_for_a_new_identity() -> None:
    old, new = ProducerId(7, 0), ProducerId(8, 0)
    queue = queue_of(*[HUNDRED] * 35)
    built = [next(batches(queue.take(producer).build(2, 0))) for producer in (old, old, new, new)]
    assert [(batch.producer_id, batch.base_sequence) for batch in built] == [(7, 0), (7, 10), (8, 0), (8, 10)]


async def test_a_repeated_batch_keeps_its_bytes_even_if_the_identity_has_changed() -> None:
    queue = queue_of(HUNDRED)
    batch = queue.take(ProducerId(7, 0))
    before = batch.build(2, 0)
    queue.put_back(batch)
    assert queue.take(ProducerId(8, 0)).build(2, 0) is before


async def test_a_leader_that_wants_another_format_gets_it() -> None:
    batch = queue_of(HUNDRED).take(None)
    assert [next(batches(batch.build(magic, 0))).magic for magic in (2, 1, 0)] == [2, 1, 0]

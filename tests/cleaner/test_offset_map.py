"""The offset map: exact, and never larger than it may be."""

from __future__ import annotations

import tracemalloc
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from minibroker.cleaner import offset_map
from minibroker.cleaner.keys import EXACT_BYTES_MAX, map_key
from minibroker.cleaner.offset_map import OffsetMap
from minibroker.in_pieces import finish
from minibroker.log.batches import Batch, batches
from minibroker.log.build import build_batch
from minibroker.log.compression import GZIP
from minibroker.log.records import Record
from tests.cleaner.random_batches import Case

KIB = 1 << 10
SMALLEST_BYTES = 600  # with room for a key or two


def batch_of(records: list[Record], magic: int = 2, codec: int = 0) -> Batch:
    return next(batches(build_batch(magic, records, codec=codec)))


def test_the_last_offset_of_a_key_is_what_was_put_last() -> None:
    offsets = OffsetMap(KIB)
    assert offsets.latest(b"a") == -1
    assert offsets.put(b"a", 5)
    assert offsets.put(b"b", 6)
    assert offsets.put(b"a", 9)
    assert (offsets.latest(b"a"), offsets.latest(b"b"), offsets.latest(b"")) == (9, 6, -1)
    assert (offsets.count, offsets.end_offset, offsets.is_full) == (2, 10, False)
    offsets.cover(20)
    offsets.cover(15)
    assert offsets.end_offset == 20
    offsets.clear()
    assert (offsets.latest(b"a"), offsets.count, offsets.end_offset) == (-1, 0, 0)


def test_no_key_is_taken_for_another_however_long_they_are() -> None:
    offsets = OffsetMap(64 * KIB)
    keys = [letter * size for size in range(100) for letter in (b"a", b"b")][1:]
    for offset, key in enumerate(keys):
        assert offsets.put(key, offset)
    assert [offsets.latest(key) for key in keys] == list(range(len(keys)))


def test_the_digest_of_a_long_key_is_no_key_that_somebody_could_send() -> None:
    long = b"k" * (EXACT_BYTES_MAX + 1)
    digest = map_key(long)
    assert isinstance(digest, int)
    offsets = OffsetMap(KIB)
    offsets.put(digest.to_bytes(16, "big"), 1)
    assert offsets.latest(long) == -1


def test_a_map_without_room_for_a_single_key_says_which_setting_to_raise() -> None:
    with pytest.raises(ValueError, match=r"log\.cleaner\.dedupe\.buffer\.size"):
        OffsetMap(300)
    offsets = OffsetMap(SMALLEST_BYTES)
    assert offsets.put(b"k" * EXACT_BYTES_MAX, 1)


def test_a_full_map_takes_no_new_key_and_changes_nothing() -> None:
    offsets = OffsetMap(4 * KIB)
    number = 0
    while offsets.put(b"key-%d" % number, number):
        number += 1
    assert offsets.is_full
    assert (offsets.count, offsets.end_offset) == (number, number)
    assert 10 < number < 40
    assert offsets.latest(b"key-%d" % number) == -1
    assert offsets.put(b"key-3", number)  # no new one
    assert (offsets.latest(b"key-3"), offsets.end_offset) == (number, number + 1)


@pytest.mark.parametrize(("key_bytes", "load_factor"), [(8, 0.9), (36, 1.0), (47, 0.9), (100, 0.5)])
def test_memory_stays_below_the_bound_and_is_counted_rightly(key_bytes: int, load_factor: float) -> None:
    bytes_max = 1536 * KIB
    offsets = OffsetMap(bytes_max, load_factor)
    # In batches, as the cleaner does it: the chunk that is being read is no part of the map.
    chunk_bytes = 40 * KIB
    taken = 0
    tracemalloc.start()
    try:
        number = 0
        while not offsets.is_full:
            some = [
                Record((number + index).to_bytes(key_bytes, "big"), b"", (), 0, (1 << 33) + number + index)
                for index in range(100)
            ]
            number += 100
            batch = batch_of(some)
            del some
            tracemalloc.reset_peak()
            finish(offsets.take(batch))
            taken, peak = tracemalloc.get_traced_memory()
            assert offsets.used_bytes <= bytes_max * load_factor
            assert taken <= offsets.used_bytes + chunk_bytes
            assert peak <= bytes_max * load_factor + chunk_bytes
    finally:
        tracemalloc.stop()
    assert offsets.used_bytes - taken < 0.2 * offsets.used_bytes
    # Not full too early: at worst it wants to double a table for which there is almost room.
    assert offsets.used_bytes > 0.45 * bytes_max * load_factor


def test_taking_yields_after_every_128_records() -> None:
    records = [Record(b"%d" % index, b"v", (), 0, index) for index in range(300)]
    for magic, codec in ((2, 0), (2, GZIP), (1, GZIP)):
        work = OffsetMap(64 * KIB)
        assert 2 <= sum(1 for _ in work.take(batch_of(records, magic, codec))) <= 3
        assert work.count == 300
        assert work.end_offset == 300


@pytest.mark.parametrize(("magic", "codec"), [(2, 0), (2, GZIP), (1, GZIP)])
def test_a_batch_that_does_not_fit_is_taken_as_far_as_it_does(magic: int, codec: int) -> None:
    records = [Record(b"%d" % (index // 2), b"v", (), 0, 10 + index) for index in range(200)]
    offsets = OffsetMap(4 * KIB)
    finish(offsets.take(batch_of(records, magic, codec)))
    assert offsets.is_full
    assert 10 < offsets.count < 40
    assert offsets.end_offset == 10 + 2 * offsets.count
    assert offsets.latest(b"0") == 11


def test_records_before_the_start_and_without_key_are_passed_over() -> None:
    records = [Record(key, b"v", (), 0, 5 + index) for index, key in enumerate((b"a", b"b", None, b"c", None))]
    offsets = OffsetMap(KIB)
    finish(offsets.take(batch_of(records), 6))
    assert [offsets.latest(key) for key in (b"a", b"b", b"c")] == [-1, 6, 8]
    assert (offsets.count, offsets.end_offset) == (2, 10)


@pytest.mark.outside
@settings(derandomize=True, max_examples=100, deadline=None)
@given(st.randoms(use_true_random=False), st.sampled_from([KIB, 2 * KIB, 1 << 20]))
def test_any_batches_are_taken_as_one_record_after_the_other(random: Random, bytes_max: int) -> None:
    case = Case(random)
    start_offset = random.choice([0, random.choice(case.batches).last_offset])
    offsets = OffsetMap(bytes_max)
    latest: dict[bytes, int] = {}
    for batch in case.batches:
        if batch.last_offset < start_offset or batch.is_control:
            continue
        finish(offsets.take(batch, start_offset))
        for record in batch.records():
            if record.key is not None and start_offset <= record.offset < offsets.end_offset:
                latest[record.key] = record.offset
        if offsets.is_full:
            assert offsets.end_offset <= batch.last_offset
            break
        assert offsets.end_offset == batch.next_offset
    assert {key: offsets.latest(key) for key in latest} == latest
    assert offsets.count == len(latest)


# Many keys


@pytest.fixture
def few_are_100(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offset_map, "FEW_KEYS_MAX", 100)


@pytest.mark.slow
@pytest.mark.usefixtures("few_are_100")
@settings(derandomize=True, max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.randoms(use_true_random=False), st.sampled_from([30 * KIB, 60 * KIB, 1 << 20]))
def test_many_keys_move_to_a_table_and_none_is_lost(random: Random, bytes_max: int) -> None:
    offsets = OffsetMap(bytes_max)
    latest: dict[bytes, int] = {}
    offset, pool = 1 << 33, random.choice([90, 300, 5000])
    for _ in range(random.randrange(40)):
        sizes = random.choice([(0, 1, 5), (8, 47, 48), (100,)])
        keys = [b"%*d" % (random.choice(sizes), random.randrange(pool)) for _ in range(random.randrange(1, 200))]
        records = [Record(key, b"v", (), 0, offset + index) for index, key in enumerate(keys)]
        offset += len(keys)
        batch = batch_of(records, random.choice([1, 2, 2]))
        if random.random() < 0.9:
            for _ in offsets.take(batch):
                assert offsets.used_bytes <= bytes_max * 0.9
        else:
            all(offsets.put(record.key or b"", record.offset) for record in records)
        assert offsets.used_bytes <= bytes_max * 0.9
        latest |= {record.key or b"": record.offset for record in records if record.offset < offsets.end_offset}
        if offsets.is_full:
            break
    assert offsets.count == len(latest)
    assert {key: offsets.latest(key) for key in latest} == latest
    assert offsets.latest(b"none") == -1
    keys = [map_key(key) for key in latest]
    assert offsets.superseded(keys, list(latest.values())) == [False] * len(latest)
    assert offsets.superseded(keys, [offset - 1 for offset in latest.values()]) == [True] * len(latest)


@pytest.mark.usefixtures("few_are_100")
@pytest.mark.parametrize("key_bytes", [8, 40, 100])
def test_a_table_has_room_for_the_same_number_of_any_keys(key_bytes: int) -> None:
    offsets = OffsetMap(1 << 20)
    number = 0
    while offsets.put(number.to_bytes(key_bytes, "big"), number):
        number += 1
    assert (offsets.count, offsets.end_offset, offsets.is_full) == (20_247, 20_247, True)
    assert offsets.used_bytes < 0.9 * (1 << 20)
    assert [offsets.latest(index.to_bytes(key_bytes, "big")) for index in range(0, number, 99)] == list(
        range(0, number, 99)
    )


def test_growing_yields_often() -> None:
    """While others wait no table is doubled, cleared or emptied as a whole."""
    offsets = OffsetMap(32 << 20)
    size = offset_map.FEW_KEYS_MAX
    keys = [b"%d" % number for number in range(size)]
    for first in range(0, size, 128):
        offsets._put_all(list(keys[first : first + 128]), range(first, min(first + 128, size)))
    before = offsets.used_bytes
    pieces = most = 0
    for _ in offsets.take(batch_of([Record(b"one more", b"v", (), 0, size)])):
        pieces += 1
        most = max(most, offsets.used_bytes)
    assert pieces > 300
    assert offsets.used_bytes < before < most
    assert [offsets.latest(key) for key in (keys[0], keys[-1], b"one more")] == [0, size - 1, size]


def test_where_hashes_cannot_be_trusted_a_dictionary_has_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offset_map, "FEW_KEYS_MAX", 100)
    monkeypatch.setattr(offset_map, "can_be_trusted", False)
    offsets = OffsetMap(1 << 20)
    number = 0
    while offsets.put(b"%d" % number, number):
        number += 1
    assert offsets.is_full
    assert 5000 < number < 9000

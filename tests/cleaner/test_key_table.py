"""The table of many keys is a dictionary, and its memory is what it says."""

from __future__ import annotations

import tracemalloc
from collections import deque
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minibroker.cleaner import key_table
from minibroker.cleaner.key_table import SLOT_BYTES, KeyTable, prime_below
from minibroker.cleaner.keys import EXACT_BYTES_MAX, map_key


def emptied(slots: int) -> KeyTable:
    table = KeyTable(slots)
    deque(table.clear(), 0)
    return table


def some_key(random: Random) -> bytes | int:
    size = random.choice([0, 1, 2, 8, EXACT_BYTES_MAX, EXACT_BYTES_MAX + 1, 200])
    return map_key(random.choice([bytes(size), random.randbytes(size), b"%d" % random.randrange(50)]))


@pytest.mark.outside
@settings(derandomize=True, max_examples=100, deadline=None)
@given(st.randoms(use_true_random=False), st.sampled_from([101, 199, 1000, 5000]))
def test_it_knows_what_a_dictionary_knows(random: Random, slots: int) -> None:
    table, known = emptied(slots), dict[bytes | int, int]()
    for _ in range(random.randrange(12)):
        keys = [some_key(random) for _ in range(random.randrange(10))]
        offsets = [random.choice([0, random.randrange(1 << 62)]) for _ in keys]
        if len(known) + len(keys) >= table.slots:
            break
        count_before = len(known)
        known.update(zip(keys, offsets, strict=True))
        assert table.put(keys, offsets) == len(known) - count_before
    if random.random() < 0.5:
        larger = emptied(random.choice([slots + 1, slots * 4]))
        deque(table.move(larger), 0)
        table = larger
    asked = [*known, *(some_key(random) for _ in range(20)), -1]  # the last is no key: whatever the answer is
    assert table.offsets(asked)[:-1] == [known.get(key, -1) for key in asked[:-1]]
    assert sorted(offset for piece in table.all_offsets() for offset in piece) == sorted(known.values())


def test_it_works_when_all_but_one_slot_are_taken() -> None:
    table = emptied(20_000)
    keys: list[bytes | int] = [b"%d" % number for number in range(table.slots - 1)]
    assert table.put(keys, range(len(keys))) == len(keys)
    assert table.offsets([*keys[::50], b"x"]) == [*range(0, len(keys), 50), -1]


def test_the_halves_of_long_keys_tell_them_apart() -> None:
    table = emptied(101)
    digests: list[bytes | int] = [0, 1, 1 << 63, 1 << 64, (1 << 127) + 1, (1 << 128) - 1, (1 << 64) - 1]
    table.put(digests, range(7))
    assert table.offsets(digests) == list(range(7))


@pytest.mark.parametrize("slots", [1000, 100_000])
def test_its_memory_is_counted(slots: int) -> None:
    tracemalloc.start()
    try:
        table = emptied(slots)
        made = tracemalloc.take_snapshot()
    finally:
        tracemalloc.stop()
    # Whatever else goes on in this process takes memory too.
    own = made.filter_traces([tracemalloc.Filter(True, key_table.__file__)])
    taken = sum(each.size for each in own.statistics("filename"))
    assert table.slots * 24 <= taken <= table.used_bytes <= slots * SLOT_BYTES + 1000


def test_it_has_a_prime_number_of_slots() -> None:
    assert [prime_below(number) for number in (17, 18, 19, 20, 24, 100, 262_144)] == [17, 17, 19, 19, 23, 97, 262_139]

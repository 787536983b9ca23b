"""Records go where Kafka's Java client sends them."""

from __future__ import annotations

import json

import pytest

from minibroker.client.partitioner import Sticky
from minibroker.log.murmur2 import murmur2, partition_of_key
from tests.goldens import GOLDEN

HASHES = json.loads((GOLDEN / "hashes.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("row", HASHES, ids=lambda row: repr(row["text"][:20]))
def test_keys_hash_and_are_placed_as_by_java(row: dict[str, object]) -> None:
    key = str(row["text"]).encode()
    hashed = murmur2(key)
    assert (hashed - (1 << 32) if hashed >> 31 else hashed) == row["murmur2"]
    assert partition_of_key(key, 12) == row["producerPartitionOf12"]


def test_records_without_key_fill_one_batch_before_the_next_partition_has_its_turn() -> None:
    sticky, filling = Sticky(), {0, 1, 2}
    chosen = [sticky.choose([0, 1, 2], filling.__contains__) for _ in range(3)]
    filling.discard(0)
    chosen += [sticky.choose([0, 1, 2], filling.__contains__) for _ in range(2)]
    assert chosen == [0, 0, 0, 1, 1]
    assert [sticky.choose([0, 1, 2], set().__contains__) for _ in range(4)] == [2, 0, 1, 2]


def test_a_partition_that_is_gone_is_not_chosen() -> None:
    sticky = Sticky()
    for _ in range(3):
        sticky.choose([0, 1, 2], lambda index: False)
    assert sticky.choose([0, 1], lambda index: True) in (0, 1)

"""Keys in columns go to the partitions that they go to one by one, and with Kafka's Java client."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from minibroker.log.murmur2 import murmur2, partition_of_key
from minibroker.spark.columns.partitions import NO_PARTITION, hashes_of, partitions_of
from tests.goldens import GOLDEN

HASHES = json.loads((GOLDEN / "hashes.json").read_text(encoding="utf-8"))


def test_keys_hash_and_are_placed_as_by_java() -> None:
    keys = pa.array([str(row["text"]).encode() for row in HASHES], pa.binary())
    signed = [hashed - (1 << 32) if hashed >> 31 else hashed for hashed in hashes_of(keys).tolist()]
    assert signed == [row["murmur2"] for row in HASHES]
    assert partitions_of(keys, 12).tolist() == [row["producerPartitionOf12"] for row in HASHES]


@settings(derandomize=True, max_examples=100, deadline=None)
@given(st.lists(st.none() | st.binary(max_size=70), max_size=40), st.integers(1, 1 << 31), st.integers(0, 40))
@example([], 1, 0)
@example([None], 3, 0)
@example([b"", b"abc"], 3, 0)
def test_keys_together_go_where_each_goes_alone(keys: list[bytes | None], count: int, begin: int) -> None:
    array = pa.array(keys, pa.binary())[begin:]
    left = keys[begin:]
    found = partitions_of(array, count)
    assert found.tolist() == [NO_PARTITION if key is None else partition_of_key(key, count) for key in left]
    assert hashes_of(array).tolist() == [murmur2(key or b"") for key in left]


def test_keys_may_be_text_and_there_must_be_a_partition() -> None:
    assert partitions_of(pa.array(["a", "é"]), 7).tolist() == [
        partition_of_key(b"a", 7),
        partition_of_key("é".encode(), 7),
    ]
    with pytest.raises(ValueError, match="0 partitions"):
        partitions_of(pa.array([b"a"]), 0)

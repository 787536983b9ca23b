"""Where micro-batches end, and what lies between two offsets: Spark's rules, on plain numbers."""

from __future__ import annotations

from typing import Any

import pytest

from minibroker.schema.types import NO_ID
from minibroker.spark.options import parse
from minibroker.spark.ranges import DataLoss
from minibroker.spark.streams.offsets import (
    Admission,
    Bound,
    from_json,
    ids_in,
    ids_of,
    limited,
    ranges_between,
    remade,
    reporting,
    to_json,
)

Numbers = dict[tuple[str, int], int]
A, B, C = ("a", 0), ("a", 10), ("b", 2)


def admission(**told: object) -> Admission:
    options = {name: str(value) for name, value in told.items()}
    return Admission(parse({"path": "x", "subscribe": "a", **options}, streaming=True))


def test_offsets_are_written_as_spark_writes_them_always_in_the_same_order() -> None:
    made = to_json({C: 5, B: 1, A: 0}, {})
    assert str(made) == "{'a': {'0': 0, '10': 1}, 'b': {'2': 5}}"
    assert from_json(made) == {A: 0, B: 1, C: 5}


def test_ids_of_topics_stand_beside_them_where_spark_sees_topics_without_partitions() -> None:
    ids = {"a": bytes(range(16)), "b": NO_ID, "other": bytes(16)}
    made = to_json({C: 5, A: 0}, ids)
    assert str(made) == "{'a': {'0': 0}, 'b': {'2': 5}, 'a#AAECAwQFBgcICQoLDA0ODw': {}}"
    assert from_json(made) == {A: 0, C: 5}
    assert ids_in(made) == {"a": bytes(range(16))}


def test_a_topic_is_another_one_only_if_both_ids_are_known() -> None:
    one, other = b"1" * 16, b"2" * 16
    assert remade({"a": one, "b": one, "c": one, "d": NO_ID}, {"a": other, "b": one, "c": NO_ID, "d": one}) == {"a"}
    # Of partitions that do not agree nobody says which topic they are of.
    assert ids_of({A: Bound(0, 1, one), B: Bound(0, 1, other), C: Bound(0, 1, one)}) == {"b": one}


@pytest.mark.parametrize(
    ("most", "start", "latest", "wanted"),
    [
        (10, {A: 0, B: 0}, {A: 100, B: 100}, {A: 5, B: 5}),
        (10, {A: 0, B: 90}, {A: 90, B: 100}, {A: 9, B: 91}),
        (10, {A: 0, B: 0}, {A: 1000, B: 1}, {A: 9, B: 1}),  # small ones do not starve
        (10, {A: 0, B: 7}, {A: 3, B: 7}, {A: 3, B: 7}),
        (10, {A: 5}, {A: 5}, {A: 5}),
        (10, {A: 9}, {A: 5}, {A: 5}),  # the log went back
        (1 << 62, {A: 0}, {A: (1 << 63) - 1}, {A: 1 << 62}),
    ],
)
def test_a_limit_is_shared_in_proportion(most: int, start: Numbers, latest: Numbers, wanted: Numbers) -> None:
    assert limited(most, start, latest) == wanted


def test_a_new_partition_counts_from_its_beginning() -> None:
    found = admission(maxOffsetsPerTrigger=10).end({A: 0}, {A: 40, B: 100}, {A: 0, B: 60}, 0)
    assert found == {A: 5, B: 65}


def test_a_batch_waits_for_enough_offsets_or_for_so_long() -> None:
    waiting = admission(minOffsetsPerTrigger=10, maxTriggerDelay="1s", maxOffsetsPerTrigger=12)
    assert waiting.end({A: 0}, {A: 1}, {}, 5000) == {A: 1}  # the first waits for nothing
    assert waiting.end({A: 1}, {A: 9}, {}, 5500) == {A: 1}
    assert waiting.end({A: 1}, {A: 11}, {}, 5600) == {A: 11}
    assert waiting.end({A: 11}, {A: 12}, {}, 6599) == {A: 11}
    assert waiting.end({A: 11}, {A: 12}, {}, 6600) == {A: 12}
    assert waiting.end({A: 12}, {A: 90}, {}, 6601) == {A: 24}


@pytest.mark.parametrize(
    ("start", "end", "begins", "ranges", "told"),
    [
        ({A: 1, C: 5}, {A: 4, C: 5}, {}, {A: (1, 4)}, []),
        ({A: 1}, {A: 4, B: 7}, {B: 0}, {A: (1, 4), B: (0, 7)}, []),
        ({A: 1}, {A: 4, B: 7}, {B: 3}, {A: (1, 4), B: (3, 7)}, ["a-10 is new and begins at 3: what was before"]),
        ({A: 1}, {A: 4, B: 7}, {}, {A: (1, 4)}, ["a-10 cannot be found: the topic was deleted"]),
        ({A: 1, C: 5}, {A: 4}, {}, {A: (1, 4)}, ["b-2 has gone: the topic was deleted, or is not asked for any more"]),
        ({A: 9}, {A: 4}, {}, {}, ["a-0 went back from 9 to 4: it was cut"]),
    ],
)
def test_ranges_between_two_offsets(
    start: Numbers, end: Numbers, begins: Numbers, ranges: dict[Any, Any], told: list[str]
) -> None:
    said: list[str] = []
    assert ranges_between(start, end, begins, reporting(False, said.append)) == ranges
    assert [text.removeprefix("data loss, ")[: len(part)] for text, part in zip(said, told, strict=True)] == told
    assert len(said) == len(told)
    if told:
        with pytest.raises(DataLoss, match="set failOnDataLoss to false"):
            ranges_between(start, end, begins, reporting(True, said.append))

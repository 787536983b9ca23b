"""Filters as Spark hands them down: which are taken, and what they mean in whole offsets and milliseconds."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from minibroker.spark.filters import EPOCH, Filters


def given(kind: str, column: str, value: Any = None) -> Any:
    """Return an object as those of pyspark.sql.datasource are."""
    made = type(kind, (), {})()
    made.attribute = tuple(column.split("."))
    if kind not in ("IsNull", "IsNotNull"):
        made.value = value
    return made


def taken(*filters: Any) -> dict[str, Any]:
    found = Filters()
    assert found.take(filters) == []
    return {name: getattr(found, name) for name in Filters.__slots__ if getattr(found, name) is not None}


@pytest.mark.parametrize(
    ("kind", "first", "end"),
    [
        ("EqualTo", 5, 6),
        ("GreaterThan", 6, None),
        ("GreaterThanOrEqual", 5, None),
        ("LessThan", None, 5),
        ("LessThanOrEqual", None, 6),
    ],
)
def test_offsets_are_ranges(kind: str, first: int | None, end: int | None) -> None:
    wanted = {"first_offset": first, "end_offset": end}
    assert taken(given(kind, "offset", 5)) == {name: value for name, value in wanted.items() if value is not None}


@pytest.mark.parametrize("microseconds", [-1500, -1000, -1, 0, 1, 999, 1000, 1001, 1_700_000_000_000_500])
@pytest.mark.parametrize("kind", ["EqualTo", "GreaterThan", "GreaterThanOrEqual", "LessThan", "LessThanOrEqual"])
def test_times_between_milliseconds_are_on_the_right_side(kind: str, microseconds: int) -> None:
    """Compared with every millisecond around, as Spark would compare."""
    compare = {
        "EqualTo": int.__eq__,
        "GreaterThan": int.__gt__,
        "GreaterThanOrEqual": int.__ge__,
        "LessThan": int.__lt__,
        "LessThanOrEqual": int.__le__,
    }[kind]
    time = (EPOCH + timedelta(microseconds=microseconds)).astimezone(timezone(timedelta(hours=5, minutes=30)))
    found = taken(given(kind, "timestamp", time))
    for ms in range(microseconds // 1000 - 3, microseconds // 1000 + 4):
        is_inside = found.get("first_timestamp", ms) <= ms < found.get("end_timestamp", ms + 1)
        assert is_inside == compare(ms * 1000, microseconds), ms


def test_several_are_all_kept() -> None:
    assert taken(
        given("IsNotNull", "offset"),
        given("GreaterThan", "offset", 5),
        given("GreaterThan", "offset", 3),
        given("LessThan", "offset", 9),
        given("LessThanOrEqual", "offset", 20),
        given("In", "topic", ["a", "b"]),
        given("EqualTo", "topic", "b"),
        given("In", "partition", [1, 2]),
        given("In", "partition", [2, 3]),
    ) == {"first_offset": 6, "end_offset": 9, "topics": frozenset("b"), "partitions": frozenset([2])}


@pytest.mark.parametrize(
    "one",
    [
        given("EqualTo", "value", b"x"),
        given("EqualTo", "offset.x", 5),
        given("EqualTo", "offset", True),
        given("EqualTo", "offset", 5.0),
        given("EqualTo", "offset"),
        given("EqualNullSafe", "offset", 5),
        given("In", "offset", [5]),
        given("In", "topic", ["a", None]),
        given("GreaterThan", "partition", 0),
        given("StringStartsWith", "topic", "a"),
        given("IsNull", "offset"),
        given("IsNotNull", "key"),
        given("EqualTo", "timestamp", datetime(2024, 1, 1)),
        type("Not", (), {"child": given("EqualTo", "topic", "a")})(),
    ],
    ids=lambda one: f"{type(one).__name__} {getattr(one, 'attribute', '')}",
)
def test_others_go_back(one: Any) -> None:
    filters = Filters()
    kept = given("EqualTo", "timestamp", datetime(2024, 1, 1, tzinfo=UTC))
    left = filters.take([one, kept])
    assert len(left) == 1
    assert left[0] is one
    assert filters.first_offset is filters.topics is filters.partitions is None
    assert filters.first_timestamp is not None

"""Filters that Spark hands down, as far as they can be kept here: topic, partition, offset, timestamp.

What must hold: a filter that is taken is kept exactly, to the row; all others go back, and Spark keeps them itself.
These columns are never null; tables of batches have the first two of them.
Spark hands filters to a Python data source from 4.1 on, if spark.sql.python.filterPushdown.enabled is true. They are
known here by the names of their classes, so this needs no pyspark.
Not here: what is left out because of them (spark/files/planning.py, spark/files/rows.py).
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
COMPARISONS = ("EqualTo", "GreaterThan", "GreaterThanOrEqual", "LessThan", "LessThanOrEqual")
NEVER_NULL = ("topic", "partition", "offset", "timestamp")


class Filters:
    """What rows must be to be wanted; ends are excluded."""

    __slots__ = ("end_offset", "end_timestamp", "first_offset", "first_timestamp", "partitions", "topics")

    def __init__(
        self,
        *,
        topics: frozenset[str] | None = None,
        partitions: frozenset[int] | None = None,
        first_offset: int | None = None,
        end_offset: int | None = None,
        first_timestamp: int | None = None,
        end_timestamp: int | None = None,
    ):
        self.topics = topics
        self.partitions = partitions
        self.first_offset = first_offset
        self.end_offset = end_offset
        self.first_timestamp = first_timestamp  # ms
        self.end_timestamp = end_timestamp

    def lets_through(self, topic: str, partition: int) -> bool:
        return (self.topics is None or topic in self.topics) and (
            self.partitions is None or partition in self.partitions
        )

    def take(self, filters: Iterable[Any]) -> list[Any]:
        """Take what can be kept here; return the others."""
        return [each for each in filters if not self._take(each)]

    def _take(self, given: Any) -> bool:
        kind = type(given).__name__
        column: tuple[str, ...] = getattr(given, "attribute", ())
        if len(column) != 1:
            return False
        name = column[0]
        if kind == "IsNotNull":
            return name in NEVER_NULL
        value = getattr(given, "value", None)
        values: tuple[Any, ...] = tuple(value or ()) if kind == "In" else (value,)
        if name == "topic" and kind in ("EqualTo", "In") and all(isinstance(each, str) for each in values):
            self.topics = frozenset(values) if self.topics is None else self.topics & frozenset(values)
        elif name == "partition" and kind in ("EqualTo", "In") and all(type(each) is int for each in values):
            self.partitions = frozenset(values) if self.partitions is None else self.partitions & frozenset(values)
        elif name == "offset" and kind in COMPARISONS and type(value) is int:
            self._narrow_offsets(*_ends(kind, value, value + 1))
        elif name == "timestamp" and kind in COMPARISONS and isinstance(value, datetime) and value.tzinfo is not None:
            # A time without a zone would be one of the session's, of which nothing is known here. Records know ms: one
            # is at or behind a time if it is at or behind the next whole ms.
            microseconds = (value - EPOCH) // timedelta(microseconds=1)
            self._narrow_timestamps(*_ends(kind, -(-microseconds // 1000), microseconds // 1000 + 1))
        else:
            return False
        return True

    def _narrow_offsets(self, first: int | None, end: int | None) -> None:
        self.first_offset, self.end_offset = _later(self.first_offset, first), _earlier(self.end_offset, end)

    def _narrow_timestamps(self, first: int | None, end: int | None) -> None:
        self.first_timestamp = _later(self.first_timestamp, first)
        self.end_timestamp = _earlier(self.end_timestamp, end)


def _ends(kind: str, at: int, behind: int) -> tuple[int | None, int | None]:
    """Return the range, end excluded, of what compares so; `at` is the first not less, `behind` the first more."""
    if kind == "EqualTo":
        return at, behind
    if kind.startswith("GreaterThan"):
        return (at if kind.endswith("OrEqual") else behind), None
    return None, (behind if kind.endswith("OrEqual") else at)


def _later(one: int | None, other: int | None) -> int | None:
    return one if other is None else other if one is None else max(one, other)


def _earlier(one: int | None, other: int | None) -> int | None:
    return one if other is None else other if one is None else min(one, other)

"""Compares two answers field by field under rules.py, and keeps the ids that mean the same on both sides.

`Names` learns pairs of ids from answers in which they stand at the same place, and puts one side's ids into requests
that were made with the other's. Every difference is kept, none stops the comparison.
"""

from __future__ import annotations

import re
import time
from collections import defaultdict
from collections.abc import Iterator
from typing import Any, NamedTuple

from minibroker.errors import ProtocolError
from minibroker.log.batches import Batch, batches
from minibroker.schema.message import Struct
from tests.differential.rules import COMMON, IGNORED, RECORDS, RENAMED, TEXT, TIME, UNORDERED, Rule, rule_for
from tests.sealing import seal

DAY_MS = 86_400_000
CLOCKS_SINCE_MS = 1_790_000_000_000  # recordings and runs are younger, times that requests name are older
NO_ID = {  # what says that there is no id, by the field's name
    "session_id": (0, -1),
    "producer_id": (-1,),  # the first producer's is 0
    "topic_id": (bytes(16), bytes(15) + b"\1"),  # the second is the metadata topic's
    "cluster_id": (None, ""),
    "member_id": (None, ""),
}
NAMESPACES = {  # fields that hold an id of another name
    "leader": "member_id",
    "v3_and_below_producer_id": "producer_id",
    "producer_id_filters": "producer_id",
}
# What is random in an id that also tells something: Java's and Kafka's ways of writing a UUID.
UUIDS = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|^[A-Za-z0-9_-]{22}$")
TIMES_OF_BROKER = 8 | 32  # append time, and markers of transactions
CODEC_MASK = 7
PRODUCER_ID_AT = 43  # in a v2 batch
ABSENT = "(absent)"
BATCH_FIELDS = (
    *("magic", "base_offset", "last_offset", "attributes", "partition_leader_epoch", "count"),
    *("producer_id", "producer_epoch", "base_sequence"),
)


class Found(NamedTuple):
    """A difference within one answer."""

    path: str
    expected: Any
    actual: Any


class Names:
    """Ids of the expected side and what the actual side calls the same."""

    def __init__(self) -> None:
        self._pairs: dict[str, dict[Any, Any]] = defaultdict(dict)

    def agree(self, namespace: str, expected: Any, actual: Any) -> bool:
        """Whether the two can be the same thing, from now on known as such."""
        if expected in NO_ID[namespace] or actual in NO_ID[namespace]:
            return bool(expected == actual)
        if _shape(expected) != _shape(actual):
            return False
        return bool(self._pairs[namespace].setdefault(expected, actual) == actual)

    def known(self, namespace: str, expected: Any) -> Any:
        """Return what the actual side calls an id, the id itself if that is not known."""
        return self._pairs[namespace].get(expected, expected)

    def learn(self, namespace: str, expected: Any, actual: Any) -> None:
        """Take two ids for the same thing, whatever was known."""
        self._pairs[namespace][expected] = actual

    def translate(self, request: Any) -> Any:
        """Return a request or a part of one in the words of the actual side."""
        if not isinstance(request, Struct):
            return request
        values: dict[str, Any] = {}
        for field in request.__fields_all__():
            value = getattr(request, field)
            pairs = self._pairs.get(NAMESPACES.get(field, field), {})
            if isinstance(value, (bytes, memoryview)) and field == "records":
                values[field] = self._translate_records(bytes(value))
            elif isinstance(value, Struct):
                values[field] = self.translate(value)
            elif isinstance(value, list):
                values[field] = [
                    self.translate(item) if isinstance(item, Struct) else pairs.get(item, item) for item in value
                ]
            else:
                values[field] = pairs.get(value, value)
        cls = type(request)
        return (cls if cls.__fields__ else cls.__mro__[1])(**values)

    def _translate_records(self, records: bytes) -> bytes:
        producers = {old: new for old, new in self._pairs.get("producer_id", {}).items() if old != new}
        if not producers:
            return records
        changed = bytearray(records)
        try:
            for batch in batches(records):
                if batch.magic == 2 and batch.producer_id in producers and batch.crc_is_valid():
                    at, end = batch.position, batch.end_position
                    new = producers[batch.producer_id].to_bytes(8, "big")
                    changed[at + PRODUCER_ID_AT : at + PRODUCER_ID_AT + 8] = new
                    seal(changed, at, end)
        except ProtocolError:
            return records  # broken on purpose
        return bytes(changed)


class Comparison:
    """Of one answer with another."""

    def __init__(self, message: str, names: Names, texts: bool = False):
        self.message = message
        self.names = names
        self.texts = texts
        self.found: list[Found] = []

    def compare(self, expected: Any, actual: Any, path: str = "", field: str = "") -> None:
        """Compare two values at a path; `field` is the path without indexes."""
        rule = rule_for(f"{self.message}.{field}")
        kind = rule.kind if rule else ""
        if kind == IGNORED:
            return
        if rule and isinstance(expected, list) and isinstance(actual, list) and kind in (UNORDERED, COMMON):
            self._by_key(expected, actual, path, field, rule)
        elif kind == RECORDS:
            self._records(expected, actual, path)
        elif isinstance(expected, dict) and isinstance(actual, dict):
            for name in expected:
                self.compare(expected[name], actual[name], f"{path}.{name}".lstrip("."), f"{field}.{name}".lstrip("."))
        elif isinstance(expected, list) and isinstance(actual, list):
            for index, (one, other) in enumerate(zip(expected, actual)):
                self.compare(one, other, f"{path}[{index}]", field)
            for index in range(len(actual), len(expected)):
                self.add(f"{path}[{index}]", expected[index], ABSENT)
            for index in range(len(expected), len(actual)):
                self.add(f"{path}[{index}]", ABSENT, actual[index])
        elif not self._same(kind, field, expected, actual):
            self.add(path, expected, actual)

    def add(self, path: str, expected: Any, actual: Any) -> None:
        """Note a difference."""
        self.found.append(Found(path, expected, actual))

    def _same(self, kind: str, field: str, expected: Any, actual: Any) -> bool:
        if kind == RENAMED:
            name = field.rpartition(".")[2]
            return self.names.agree(NAMESPACES.get(name, name), expected, actual)
        if kind == TIME:
            return bool(expected == actual or (_is_of_a_clock(expected) and _is_of_a_clock(actual)))
        if kind == TEXT and not self.texts:
            return text_kind(expected) == text_kind(actual)
        return type(expected) is type(actual) and expected == actual

    def _by_key(self, expected: list[Any], actual: list[Any], path: str, field: str, rule: Rule) -> None:
        theirs = _keyed(expected, rule.key.split(), self.names)
        ours = _keyed(actual, rule.key.split(), None)
        if rule.kind == UNORDERED:
            _pair_the_last(theirs, ours)
        for key, value in theirs.items():
            if key in ours:
                self.compare(value, ours[key], f"{path}[{_shown_key(key)}]", field)
            elif rule.kind != COMMON:
                self.add(f"{path}[{_shown_key(key)}]", value, ABSENT)
        for key in ours:
            if key not in theirs:
                self.add(f"{path}[{_shown_key(key)}]", ABSENT, ours[key])

    def _records(self, expected: Any, actual: Any, path: str) -> None:
        if expected is None or actual is None:
            if expected is not actual:
                self.add(path, expected, actual)
            return
        theirs, ours = list(_batch_meanings(expected)), list(_batch_meanings(actual))
        if _has_false_end(expected):
            del ours[len(theirs) :]
        Comparison.compare(self, theirs, ours, f"{path}.batch", f"{path}.batch")


def _shape(value: Any) -> Any:
    """Return what an id tells, without what is random in it."""
    return UUIDS.sub("UUID", value) if isinstance(value, str) else None


def _pair_the_last(expected: dict[Any, Any], actual: dict[Any, Any]) -> None:
    """Where one row of each side is left over, take them for the same: its id may be one that is not known yet."""
    missing, surplus = expected.keys() - actual.keys(), actual.keys() - expected.keys()
    if len(missing) == len(surplus) == 1:
        actual[missing.pop()] = actual.pop(surplus.pop())


def text_kind(text: str | None) -> str:
    """Return what a text tells without being read."""
    return "null" if text is None else "a text" if text else "empty"


def _has_false_end(data: bytes) -> bool:
    """Whether down-conversion ended here before its space did, and filled it with an entry at offset -1."""
    try:
        return any(batch.base_offset < 0 for batch in batches(data)) or b"\xff" * 8 in _cut_end(data)
    except ProtocolError:
        return False


def _cut_end(data: bytes) -> bytes:
    """Return the first bytes behind the last whole batch."""
    end = 0
    for batch in batches(data):
        end = batch.end_position
    return bytes(data[end : end + 8])


def _batch_meanings(data: bytes) -> Iterator[dict[str, Any]]:
    try:
        for batch in batches(data):
            if batch.base_offset < 0 and batch.last_offset < 0:
                return  # the false entry that fills what down-conversion left free
            yield batch_meaning(batch)
    except ProtocolError as error:
        yield {"broken": type(error).__name__}


def batch_meaning(batch: Batch) -> dict[str, Any]:
    """Return what a consumer can see of a batch, times of the broker's clock as such."""
    by_broker = bool(batch.attributes & TIMES_OF_BROKER) and _is_of_a_clock(batch.max_timestamp)
    found: dict[str, Any] = {name: getattr(batch, name) for name in BATCH_FIELDS}
    if batch.magic == 2:
        found["base_timestamp"] = (
            "by the broker" if by_broker and _is_of_a_clock(batch.base_timestamp) else batch.base_timestamp
        )
    found["max_timestamp"] = "by the broker" if by_broker else batch.max_timestamp
    if not batch.attributes & CODEC_MASK:
        found["size_bytes"] = batch.size_bytes
    found["crc"] = batch.crc_is_valid()
    try:
        found["records"] = [
            {**record._asdict(), **({"timestamp": "by the broker"} if by_broker else {})} for record in batch.records()
        ]
    except ProtocolError as error:
        found["records"] = [f"broken: {type(error).__name__}"]
    return found


def _is_of_a_clock(timestamp: int) -> bool:
    return CLOCKS_SINCE_MS < timestamp < time.time() * 1000 + DAY_MS


def _keyed(rows: list[Any], fields: list[str], names: Names | None) -> dict[Any, Any]:
    """Return rows by key, plain values by themselves; of equal keys each has its number as well, so none is lost."""
    found: dict[Any, Any] = {}
    for row in rows:
        key, number = row, 0
        if isinstance(row, dict):
            field = next((field for field in fields if row.get(field) not in (None, "")), fields[-1])
            key = names.known(field, row[field]) if names else row[field]
        while (key, number) in found:
            number += 1
        found[key, number] = row
    return found


def _shown_key(key: tuple[Any, int]) -> str:
    name = key[0].hex() if isinstance(key[0], bytes) else f"{key[0]}"
    return name if not key[1] else f"{name} #{key[1] + 1}"

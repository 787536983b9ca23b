"""Values of options: words, numbers, times, and the JSON in which Spark's Kafka source names partitions and offsets.

What must hold: whatever is not understood raises OptionError, which names the option and shows how to write it.
Not here: which options there are, and what may stand together (options.py, sink/options.py, bulk_load/options.py).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection
from typing import Any, NoReturn

TopicPartition = tuple[str, int]
Numbers = dict[TopicPartition, int]

EARLIEST, LATEST = -2, -1  # of offsets, as Spark writes them in JSON
INT32_MAX, INT64_MAX = (1 << 31) - 1, (1 << 63) - 1


class OptionError(ValueError):
    """An option cannot be used; the text says what to do."""


class Limit:
    """Where a query begins or ends, as it was asked for: the same for all partitions, or a number for each."""

    def __init__(self, name: str, *, offset: int | None = None, timestamp: int | None = None):
        self.name = name  # of the option
        self.offset = offset  # of all: EARLIEST or LATEST
        self.timestamp = timestamp  # of all
        self.offsets: Numbers | None = None
        self.timestamps: Numbers | None = None

    def check_names_all(self, partitions: Collection[TopicPartition]) -> None:
        """Raise unless exactly these partitions have a number, if each must have one."""
        numbers = self.timestamps if self.offsets is None else self.offsets
        if numbers is None or numbers.keys() == set(partitions):
            return
        missing, unknown = sorted(set(partitions) - numbers.keys()), sorted(numbers.keys() - set(partitions))
        told = [f"{names(missing)} must have one"] if missing else []
        told += [f"{names(unknown)} will not be read"] if unknown else []
        hint = "; -1 is the latest, -2 the earliest" if self.offsets is not None else ""
        raise OptionError(f"{self.name} must name exactly the partitions of the query: {', '.join(told)}{hint}")


# Readers of kinds in a table of options (option_table.py)


def words(_: str, text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def flag(name: str, text: str) -> bool:
    return one_of(name, text, ("true", "false")) == "true"


def one_of(name: str, value: str, allowed: tuple[str, ...]) -> str:
    for known in allowed:
        if known.lower() == value.strip().lower():
            return known
    raise OptionError(f"{name} is {value!r}: it can be {' or '.join(allowed)}")


def positive(name: str, text: str) -> int:
    value = text.strip()
    if not (value.isascii() and value.isdigit() and len(value) < 20 and 0 < int(value) <= INT64_MAX):
        raise OptionError(f"{name} is {text!r}: it must be a number above 0")
    return int(value)


def number(name: str, text: str, least: int = 0) -> int:
    """Read an int of Kafka's."""
    if not re.fullmatch(r"\s*-?\d{1,11}\s*", text, re.ASCII) or not least <= int(text) <= INT32_MAX:
        raise OptionError(f"{name} is {text.strip()!r}: it must be a number from {least} to {INT32_MAX}")
    return int(text)


def timestamp(name: str, text: str) -> int:
    if not re.fullmatch(r"-?\d{1,18}", text.strip(), re.ASCII):
        raise OptionError(f"{name} is {text!r}: it must be one number, ms since 1970 as 1700000000000")
    return int(text)


_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}


def duration_ms(name: str, text: str) -> int:
    match = re.fullmatch(r"(\d{1,12})\s*([a-z]*)", text.strip().lower(), re.ASCII)
    if match is None or (match[2] or "ms") not in _UNITS_MS:
        raise OptionError(f"{name} is {text!r}: it must be a time as 15m, 30s or 500ms")
    return int(match[1]) * _UNITS_MS[match[2] or "ms"]


READERS: dict[str, Callable[[str, str], Any]] = {
    "text": lambda _, text: text,
    "word": lambda _, text: text.strip(),
    "words": words,
    "flag": flag,
    "positive": positive,
    "number": number,
    "number from 1": lambda name, text: number(name, text, 1),
    "duration": duration_ms,
}


# JSON


def _json(name: str, text: str, example: str) -> dict[str, Any]:
    try:
        value = json.loads(text, object_pairs_hook=_without_repetition)
    except (ValueError, RecursionError) as error:
        raise OptionError(f"{name} is no JSON ({error}): write it as {example}") from None
    if not isinstance(value, dict):
        raise OptionError(f"{name} is {text[:80]!r}: write it as {example}")
    return value


def _without_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        raise ValueError("a name comes twice")
    return made


def partitions_of(text: str) -> list[TopicPartition]:
    example = '{"orders":[0,1]}'
    found = []
    for topic, numbers in _json("assign", text, example).items():
        if not isinstance(numbers, list):
            _wrong("assign", topic, numbers, example)
        for number in numbers:
            if type(number) is not int or not 0 <= number < 1 << 31:
                _wrong("assign", topic, number, example)
            found.append((topic, number))
    if not found:
        raise OptionError(f"assign names no partition: write it as {example}")
    return list(dict.fromkeys(found))


def numbers_of(name: str, text: str, number: str, *, least: int) -> Numbers:
    example = f'{{"orders":{{"0":{number},"1":{number}}}}}'
    found: Numbers = {}
    for topic, partitions in _json(name, text, example).items():
        if not isinstance(partitions, dict):
            _wrong(name, topic, partitions, example)
        for partition, value in partitions.items():
            if not re.fullmatch(r"\d{1,9}", partition, re.ASCII) or type(value) is not int:
                _wrong(name, topic, {partition: value}, example)
            if not least <= value <= INT64_MAX:
                raise OptionError(f"{name}: {value} for {topic}-{partition} is no offset; -1 is latest, -2 earliest")
            found[topic, int(partition)] = value
    return found


def _wrong(name: str, topic: str, value: object, example: str) -> NoReturn:
    raise OptionError(f"{name}: {json.dumps(value)[:80]} for {topic!r} makes no sense: write it as {example}")


def names(partitions: list[TopicPartition]) -> str:
    shown = ", ".join(f"{topic}-{partition}" for topic, partition in partitions[:5])
    return shown + (f" and {len(partitions) - 5} more" if len(partitions) > 5 else "")

"""Rules by which records are made up: how many, which keys and how skewed, which sizes, which times, headers.

    parse_spec("records=1000000,keys=10000,skew=1.1,size=lognormal:200:0.5,rate=5000,late=0.02:60000,seed=7")

Not here: the records (loading_generator.py).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from minibroker.spark.option_values import OptionError

START_MS = 1_704_067_200_000  # 2024 begins


class Spec:
    """What is to be made. The names are those of the text."""

    def __init__(self) -> None:
        self.records = 1_000_000
        self.keys = 10_000  # how many there are; 0: none has a key
        self.skew = 0.0  # the share of the n-th most frequent key falls about as n ** -skew
        self.size = ("fixed", 200.0, 0.0)  # of values, in bytes
        self.values = "json"
        self.start = START_MS
        self.end: int | None = None  # instead of a rate
        self.rate = 1000.0  # records per second of their timestamps
        self.late = (0.0, 60_000)  # share, and by how many ms at most
        self.tombstones = 0.0  # share of records without a value
        self.headers = 0
        self.seed = 0


# Name -> what it is, for --help and the docs.
NAMES = {
    "records": "how many (1000000)",
    "keys": "how many keys there are (10000); 0: no keys",
    "skew": "0: all as often; 1: the n-th key about 1/n as often as the first (0)",
    "size": "bytes of a value: 200, uniform:100:300, or lognormal:MEDIAN:SIGMA (200)",
    "values": "json, text, or bytes that nothing compresses (json)",
    "start": "timestamp of the first record, in ms or as 2024-01-31T12:00 in UTC (2024-01-01)",
    "rate": "records per second by their timestamps (1000)",
    "end": "timestamp of the last record, instead of a rate",
    "late": "share of records that are late, and by how many ms at most: 0.05:60000 (0)",
    "tombstones": "share of records without a value (0)",
    "headers": "how many each record has (0)",
    "seed": "another number makes other records (0)",
}


def parse_spec(text: str) -> Spec:
    """Read NAME=VALUE, with commas between them; raise OptionError for what makes no sense."""
    spec = Spec()
    for part in text.split(","):
        name, sign, value = (piece.strip() for piece in part.partition("="))
        if not part.strip():
            continue
        if name not in NAMES or not sign:
            raise OptionError(f"--generate: {part.strip()!r} is not one of {', '.join(f'{name}=' for name in NAMES)}")
        try:
            setattr(spec, name, _READERS[name](value))
        except ValueError:
            raise OptionError(f"--generate {name}={value}: {NAMES[name]}") from None
    if spec.end is not None:
        if spec.end < spec.start:
            raise OptionError(f"--generate: the end {spec.end} is before the start {spec.start}")
        spec.rate = (spec.records - 1) * 1000 / max(spec.end - spec.start, 1)
    return spec


def _count(text: str) -> int:
    found = float(text) if "e" in text.lower() else int(text)
    if found != int(found):
        raise ValueError(text)
    return int(_within(found, 0, 1 << 53))


def _number(text: str) -> float:
    return _within(float(text), 0.0, 1e12)


def _share(text: str) -> float:
    return _within(float(text), 0.0, 1.0)


def _within(value: float, least: float, most: float) -> float:
    if not least <= value <= most:
        raise ValueError(value)
    return value


def time_ms(text: str) -> int:
    """Read a time: milliseconds since 1970, or a date, perhaps with a time, in UTC unless it says otherwise."""
    if re.fullmatch(r"-?\d{5,}", text):
        return int(text)
    from datetime import UTC, datetime

    found = datetime.fromisoformat(text)
    if found.tzinfo is None:
        found = found.replace(tzinfo=UTC)
    return round(found.timestamp() * 1000)


def _size(text: str) -> tuple[str, float, float]:
    kind, *numbers = text.split(":")
    if not numbers:
        return "fixed", float(_count(kind)), 0.0
    first, second = (_number(number) for number in numbers)
    if kind not in ("uniform", "lognormal") or (kind == "uniform" and second < first):
        raise ValueError(text)
    return kind, first, second


def _late(text: str) -> tuple[float, int]:
    share, _, most = text.partition(":")
    return _share(share), _count(most) if most else 60_000


def _kind(text: str) -> str:
    if text not in ("json", "text", "bytes"):
        raise ValueError(text)
    return text


def _rate(text: str) -> float:
    return _within(float(text), 1e-6, 1e12)


_READERS: dict[str, Callable[[str], Any]] = {
    "records": _count,
    "keys": _count,
    "skew": _number,
    "size": _size,
    "values": _kind,
    "start": time_ms,
    "rate": _rate,
    "end": time_ms,
    "late": _late,
    "tombstones": _share,
    "headers": _count,
    "seed": _count,
}

"""Limits of clients as people write and read them: 1MB/s, 50%, 10/s, and whom they are for.

What must hold: what is written here for people can be typed, and means the same; what is rounded says so.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from minibroker.cli.connect import Refused
from minibroker.quotas.entities import (
    CLIENT_ID,
    CONNECTION_RATE,
    CONSUMER_BYTE_RATE,
    IP,
    MUTATION_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    USER,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from minibroker.client.client_quotas import Entity

    Words = tuple[dict[str, int], str]

BYTES = {"B": 1, "kB": 1000, "MB": 10**6, "GB": 10**9, "KB": 1000, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
SHOWN = ("B", "kB", "MB", "GB", "KiB", "MiB", "GiB")
# Of each limit: its unit, and what it is called behind a number.
OF_CLIENTS: dict[str, Words] = {
    PRODUCER_BYTE_RATE: (BYTES, ""),
    CONSUMER_BYTE_RATE: (BYTES, ""),
    REQUEST_PERCENTAGE: ({"%": 1}, " %"),
    MUTATION_RATE: ({}, " partitions/s"),
}
OF_ADDRESSES: dict[str, Words] = {CONNECTION_RATE: ({}, " connections/s")}
LIMITS = {**OF_CLIENTS, **OF_ADDRESSES}
ORDER = (USER, CLIENT_ID, IP)
WRITTEN = re.compile(r"(\d+(?:\.\d*)?|\.\d+) *([A-Za-z%]*)(/s)?")
EXACT_MAX = 5  # characters of a number that is easy to read


def value_of(key: str, text: str) -> float:
    """Return what a limit comes to, in Kafka's unit of it."""
    units, _ = LIMITS[known(key)]
    match = WRITTEN.fullmatch(text.strip())
    unit = match[2] if match else ""
    if match is None or (unit and unit not in units) or (match[3] and key == REQUEST_PERCENTAGE):
        example = "1048576, 1MB/s or 1MiB/s" if units is BYTES else "50 or 50%" if units else "10 or 10/s"
        raise Refused(f"{key}={text}: say {example}")
    return float(match[1]) * (units[unit] if unit else 1)


def known(key: str) -> str:
    """Return a key that there is, Refused for others."""
    if key not in LIMITS:
        from difflib import get_close_matches

        near = get_close_matches(key, LIMITS, 1)
        raise Refused(f"there is no limit {key!r}{f'; did you mean {near[0]}?' if near else '.'} {_all()}")
    return key


def _all() -> str:
    return f"There are {', '.join(LIMITS)}"


def number(value: float) -> str:
    """Return a number as one types it."""
    return str(int(value)) if value.is_integer() else repr(value)


def readable(key: str, value: float) -> str:
    """Return a limit with its unit, in few digits."""
    units, suffix = LIMITS.get(key, ({}, ""))
    if units is not BYTES:
        return f"{number(value)}{suffix}"
    shown = [(number(value / BYTES[unit]), unit) for unit in SHOWN if value >= BYTES[unit] or unit == "B"]
    text, unit = min(shown, key=lambda each: len(each[0]))
    if len(text) <= EXACT_MAX:
        return f"{text} {unit}/s"
    unit = max((unit for unit in ("B", "kB", "MB", "GB") if value >= BYTES[unit]), key=BYTES.__getitem__, default="B")
    return f"about {value / BYTES[unit]:.1f} {unit}/s"


def whom(entity: Iterable[tuple[str, str | None]]) -> str:
    """Return whom limits are for, as in `user alice, default client-id`."""
    parts = sorted(entity, key=lambda part: ORDER.index(part[0]) if part[0] in ORDER else len(ORDER))
    return ", ".join(f"default {kind}" if name is None else f"{kind} {shown(name)}" for kind, name in parts)


def shown(name: str) -> str:
    """Return a name, in quotes if it would not look like one."""
    return name if name.isprintable() and name == name.strip() else repr(name)


def sorted_entities(entities: Iterable[Entity]) -> list[Entity]:
    """Return them users first, addresses last, and defaults behind names."""

    def place(entity: Entity) -> list[tuple[bool, bool, str]]:
        parts = dict(entity)
        return [(kind not in parts, parts.get(kind) is None, parts.get(kind) or "") for kind in ORDER]

    return sorted(entities, key=place)

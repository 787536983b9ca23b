"""Words of the command line: topics by name or by regular expression, as Kafka's tools take them, and moments."""

from __future__ import annotations

from collections.abc import Iterable

# A name of letters, digits, '.', '_' and '-' means itself, though to Kafka's tools a point means any character.
PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")

PLACES = {  # of --reset-offsets: what its value is called, and what it means
    "to-earliest": ("", "where partitions begin"),
    "to-latest": ("", "where they end"),
    "to-current": ("", "where the group is, or the end where it has nothing committed"),
    "to-offset": ("N", "the nearest there is"),
    "shift-by": ("N", "so many further; below zero: back"),
    "to-datetime": ("WHEN", "the first record since, as in 2024-05-01T12:00:00.000 (UTC)"),
    "by-duration": ("PnDTnHnMnS", "the first record since so long ago, as in PT1H30M"),
    "from-file": ("FILE", "what --export has printed: [group,]topic,partition,offset"),
}


def is_plain(name: str) -> bool:
    return PLAIN.issuperset(name)


def matching(names: Iterable[str], wanted: str) -> list[str]:
    """Return the names that are meant, sorted. Raises ValueError for what is neither a name nor an expression."""
    if is_plain(wanted):
        return [name for name in names if name == wanted]
    import re

    try:
        expression = re.compile(wanted.replace(",", "|"))
    except re.error as error:
        raise ValueError(f"{wanted!r} is no regular expression: {error}") from None
    return sorted(name for name in names if expression.fullmatch(name))


def milliseconds(text: str) -> int:
    """Return ms since 1970 of a number of such, or of an ISO date, in UTC unless it says otherwise; else ValueError."""
    try:
        return int(text)
    except ValueError:
        from datetime import UTC, datetime

        moment = datetime.fromisoformat(text)
        return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)

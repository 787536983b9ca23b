"""Moments as people write them."""

from __future__ import annotations


def milliseconds(text: str) -> int:
    """Return ms since 1970 of a number of such, or of an ISO date, in UTC unless it says otherwise; else ValueError."""
    try:
        return int(text)
    except ValueError:
        from datetime import UTC, datetime

        moment = datetime.fromisoformat(text)
        return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)

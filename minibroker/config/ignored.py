"""Settings that are accepted and have no effect, and why: no client can tell the difference.

What a client could tell is not accepted: it has its effect, or it is refused. Each name fits one row, the first.
"""

from __future__ import annotations

from minibroker.config.tables import read_text


def _read(text: str) -> tuple[tuple[tuple[str, ...], str], ...]:
    found: dict[str, list[str]] = {}
    reason = ""
    for line in text.splitlines():
        if line.startswith("  "):
            found[reason] += line.split()
        elif not line.startswith("#"):
            reason = line
            found[reason] = []
    return tuple((tuple(patterns), reason) for reason, patterns in found.items())


REASONS = _read(read_text("ignored.txt"))


def reason_of(name: str) -> str:
    """Return why a setting has no effect; KeyError for one that needs no reason."""
    for patterns, reason in REASONS:
        if any(_fits(name, pattern) for pattern in patterns):
            return reason
    raise KeyError(f"nobody has said why {name} is ignored")


def _fits(name: str, pattern: str) -> bool:
    if pattern.startswith("*"):
        return name.endswith(pattern[1:])
    return name.startswith(pattern[:-1]) if pattern.endswith("*") else name == pattern

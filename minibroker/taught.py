"""Which lessons there are, the texts that they are, and what brokers know of one that is played on them.

What must hold: this is a leaf, for brokers show lessons and know nothing of who plays them (lessons/).
"""

from __future__ import annotations

from typing import Protocol

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

# In the order in which they are best taken.
LESSONS = (
    "offset-is-a-name",
    "who-numbers",
    "sizes",
    "compression",
    "finding-an-offset",
    "high-watermark",
    "acks",
    "isr",
    "quorums",
    "unclean-election",
    "truncation",
    "committed-offset",
    "reset-policy",
    "rebalance-eager",
    "timeouts",
    "rebalance-cooperative",
    "rebalance-consumer",
    "leader-change",
    "reassignment",
    "racks",
    "torn-tail",
    "retention",
    "idle-topic",
    "compaction",
    "tombstones",
    "future-timestamps",
    "retries",
    "open-transaction",
    "markers",
    "zombies",
    "late-end",
    "hanging",
    "exactly-once",
    "scram",
    "access-rules",
    "throttled-producer",
    "promised-flow",
)


class SeenLesson(Protocol):
    """A lesson that is played on a cluster."""

    @property
    def name(self) -> str: ...

    @property
    def turn(self) -> int:
        """Another number when something has been done."""
        ...

    def as_json(self) -> Mapping[str, object]: ...

    async def do(self, wish: Mapping[str, object]) -> Mapping[str, object]:
        """Do what somebody wants who looks, and return what as_json does then; ValueError says why not."""
        ...


class NoSuchLesson(ValueError):
    """There is no lesson of that name."""


def text_of(name: str) -> str:
    """Return the text that a lesson is."""
    from pkgutil import get_data

    if name not in LESSONS:
        from difflib import get_close_matches

        near = get_close_matches(name, LESSONS, 1)
        raise NoSuchLesson(
            f"there is no lesson {name!r}{f'; did you mean {near[0]}?' if near else '.'} There are {', '.join(LESSONS)}"
        )
    data = get_data("minibroker", f"lessons/scenarios/{name}.txt")
    assert data is not None
    return data.decode()


def titles() -> dict[str, str]:
    """Return all lessons with their titles: the first lines of their texts."""
    return {name: text_of(name).partition("\n")[0].removeprefix("# ").strip() for name in LESSONS}

"""Lessons: text files of commands and of what has to happen then, for students and for tests.

scenario.py  a file as prose, steps and expectations; commands.py: what can be commanded
stage.py     the cluster that a lesson is played on, and what each command does there; clients.py: the lesson's clients
members.py   those that are members of groups; sharing.py: what they say to each other
producers.py those that brokers know: idempotent ones, and those that have transactions
operators.py who looks after a cluster: what `minibroker transactions` finds and ends
running.py   the steps one by one, and whether what had to happen did; states.py: what `state:` says
telling.py   a lesson as text; show.py: as a picture, with keys
scenarios/   the lessons
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from minibroker.lessons.scenario import Scenario

# In the order in which they are best taken.
LESSONS = (
    "high-watermark",
    "acks",
    "isr",
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
)


class NoSuchLesson(ValueError):
    """There is no lesson of that name."""


def load(name: str) -> Scenario:
    """Return a lesson by its name."""
    from minibroker.lessons.scenario import parse_scenario

    return parse_scenario(text_of(name), f"{name}.txt")


def text_of(name: str) -> str:
    """Return the text that a lesson is."""
    from pkgutil import get_data

    if name not in LESSONS:
        from difflib import get_close_matches

        near = get_close_matches(name, LESSONS, 1)
        raise NoSuchLesson(
            f"there is no lesson {name!r}{f'; did you mean {near[0]}?' if near else '.'} There are {', '.join(LESSONS)}"
        )
    data = get_data("minibroker.lessons", f"scenarios/{name}.txt")
    assert data is not None
    return data.decode()

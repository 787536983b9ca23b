"""Lessons: text files of commands and of what has to happen then, for students and for tests.

scenario.py  a file as prose, steps and expectations; commands.py: what can be commanded
stage.py     the cluster that a lesson is played on, and what each command does there; clients.py: the lesson's clients
members.py   those that are members of groups; sharing.py: what they say to each other
producers.py those that brokers know: idempotent ones, and those that have transactions
logins.py    those that log in, message by message; rules.py: access rules, and what one sees under them
limits.py    those that may take no more than so much
operators.py who looks after a cluster: what `minibroker transactions` finds and ends
exhibits.py  what there is to see of bytes: sizes, fields, what a leader changed, how an offset is found
guide.py     a step on, a step back; session.py: what somebody types, and is told; words.py: what words mean
on_page.py   the same in the page
running.py   the steps one by one, and whether what had to happen did; states.py: what `state:` says
telling.py   a lesson as text; show.py: as a picture, with keys
scenarios/   the lessons
"""

from __future__ import annotations

from minibroker.taught import LESSONS, NoSuchLesson, text_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from minibroker.lessons.scenario import Scenario

__all__ = ("LESSONS", "NoSuchLesson", "load", "text_of")


def load(name: str) -> Scenario:
    """Return a lesson by its name."""
    from minibroker.lessons.scenario import parse_scenario

    return parse_scenario(text_of(name), f"{name}.txt")

"""What happened in a step, in few lines: what is routine becomes one line, and who did the same is named together.

    orders-0: broker 1 appended 0..4; brokers 2 and 3 copied 0..4; high watermark 0 -> 5 on broker 1; 0..4 confirmed

A step is told in full if that takes no more than LINES_MAX; else what it does not expect is folded first, and then what
it does expect of the same kinds, for those who play it know what to look for.
What must hold: events stay in their order, and what is left out is counted.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from minibroker.event_kinds import Ack, Append, HighWatermark

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Sequence

    from minibroker.events import Event

LINES_MAX = 8  # of what happened in one step, and of the answers


class Rank(IntEnum):
    """How much it matters that something is told."""

    WANTED = 0  # the step is about it
    ANSWER = 1
    EVENT = 2
    ROUTINE = 3


class Told(NamedTuple):
    """One sentence, and the mark before it: - for what happened, < for what somebody was answered."""

    sentence: str
    mark: str = "-"
    rank: Rank = Rank.EVENT

    @property
    def is_kept(self) -> bool:
        return self.mark == "<" and self.rank == Rank.WANTED


class Chain:
    """Routine events of one partition: records come, are copied, are committed, are confirmed."""

    def __init__(self, place: str):
        self.place = place
        self.events: list[Append | HighWatermark | Ack] = []

    @property
    def sentence(self) -> str:
        if len(self.events) == 1:
            return self.events[0].sentence
        parts = [
            *self._ranges("appended", [each for each in self._appended() if each.origin != "leader"]),
            *self._ranges("copied", [each for each in self._appended() if each.origin == "leader"]),
        ]
        moved: dict[int, tuple[int, int]] = {}
        for each in self.events:
            if isinstance(each, HighWatermark):
                moved[each.broker] = (moved.get(each.broker, (each.previous, 0))[0], each.offset)
        for (first, last), brokers in _by_value(moved).items():
            parts.append(f"high watermark {first} -> {last} on {brokers_text(brokers)}")
        offsets = [each.offset for each in self.events if isinstance(each, Ack)]
        if offsets:
            parts.append(f"{_range(min(offsets), max(offsets))} confirmed")
        return f"{self.place}: {'; '.join(parts)}."

    def _appended(self) -> list[Append]:
        return [each for each in self.events if isinstance(each, Append)]

    def _ranges(self, verb: str, events: Iterable[Append]) -> list[str]:
        ranges: dict[int, tuple[int, int]] = {}
        for each in events:
            first = ranges.get(each.broker, (each.first_offset, 0))[0]
            ranges[each.broker] = (first, each.last_offset)
        return [f"{brokers_text(who)} {verb} {_range(*range_)}" for range_, who in _by_value(ranges).items()]


def folded(events: Sequence[Event], expected: Container[Event], kept: Container[Event]) -> list[Told]:
    """Return events as they are told, with what is routine in one for each partition, but for what is kept."""
    told: list[Event | Chain] = []
    open_: dict[str, Chain] = {}
    for event in events:
        place = f"{event.topic}-{event.partition}" if hasattr(event, "partition") else ""  # type: ignore[attr-defined]
        if event in kept or not _is_routine(event):
            open_.pop(place, None) if place else open_.clear()
            told.append(event)
            continue
        if place not in open_:
            open_[place] = Chain(place)
            told.append(open_[place])
        open_[place].events.append(event)  # type: ignore[arg-type]
    return together(Told(each.sentence, rank=_rank(each, expected)) for each in told)


def _rank(each: Event | Chain, expected: Container[Event]) -> Rank:
    if isinstance(each, Chain):
        return Rank.ROUTINE
    return Rank.WANTED if each in expected else Rank.EVENT


def together(told: Iterable[Told]) -> list[Told]:
    """Return what is told, with what is the same of several brokers as one."""
    found: list[tuple[str, list[int], Told]] = []  # what is said, and of whom
    for each in told:
        broker, rest = _subject(each.sentence)
        same = next((brokers for said, brokers, _ in found if brokers and said == rest), None)
        if broker is None or same is None:
            found.append((rest, [] if broker is None else [broker], each))
        else:
            same.append(broker)
    return [
        Told(f"B{brokers_text(brokers)[1:]} {said}" if brokers else said, rank=first.rank)
        for said, brokers, first in found
    ]


def shortened(told: Sequence[Told], height: Callable[[Told], int], lines_max: int) -> tuple[list[Told], int]:
    """Return what there is room for, and how many there is none for: what matters least goes first.

    An answer that the step is about stays, whatever room it takes: the words behind it speak of it.
    """
    left = list(told)
    while sum(map(height, left)) > lines_max and (loose := [each for each in left if not each.is_kept]):
        least = max(each.rank for each in loose)
        del left[max(index for index, each in enumerate(left) if each.rank == least and not each.is_kept)]
    return left, len(told) - len(left)


def _subject(sentence: str) -> tuple[int | None, str]:
    first, _, rest = sentence.partition(" ")
    number, _, verb = rest.partition(" ")
    # Of several one says what they did, not what they are doing.
    if first == "Broker" and number.isdigit() and not verb.startswith(("is ", "has ", "begins ", "knows ")):
        return int(number), verb
    return None, sentence


def _is_routine(event: Event) -> bool:
    return isinstance(event, Append | HighWatermark) or (isinstance(event, Ack) and not event.error)


def _by_value(found: dict[int, tuple[int, int]]) -> dict[tuple[int, int], list[int]]:
    by_value: dict[tuple[int, int], list[int]] = {}
    for broker, value in found.items():
        by_value.setdefault(value, []).append(broker)
    return by_value


def brokers_text(brokers: Iterable[int]) -> str:
    *most, last = sorted(set(brokers))
    return f"brokers {', '.join(map(str, most))} and {last}" if most else f"broker {last}"


def _range(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}..{last}"

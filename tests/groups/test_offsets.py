"""Committed offsets beside a log that is read from its beginning: what is appended, and what of it is committed."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from minibroker.groups.offsets import Offsets, commit_record, tombstone
from tests.groups.test_growth import steps_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from minibroker.groups.offsets import Mark, OpenOffsets, Place

PLACES = [("t", 0), ("t", 1), ("u", 0)]
PRODUCERS = (-1, -1, -1, 7, 8)
Event = tuple[Any, ...]  # ("commit", place, offset, producer id), ("delete", place), ("end", producer id, is committed)


def offsets_after(log: list[Event]) -> dict[Place, int]:
    """Return what the events of a log come to, by the rules of Kafka's OffsetMetadataManager."""
    stored: dict[Place, tuple[int, int]] = {}  # where it was written, and the offset
    pending: dict[int, dict[Place, tuple[int, int]]] = {}
    for index, event in enumerate(log):
        match event:
            case ("commit", place, offset, -1):
                stored[place] = (index, offset)
            case ("commit", place, offset, producer_id):
                pending.setdefault(producer_id, {})[place] = (index, offset)
            case ("delete", place):
                stored.pop(place, None)
                for places in pending.values():
                    places.pop(place, None)
            case ("end", producer_id, is_committed):
                for place, (written, offset) in pending.pop(producer_id, {}).items():
                    if is_committed and stored.get(place, (-1, 0))[0] < written:
                        stored[place] = (written, offset)
    return {place: offset for place, (_, offset) in stored.items()}


class Log:
    """Appends what comes, and commits it in its order.

    Transactions that have ended are settled when they are committed; a large one has others come in between.
    """

    def __init__(self) -> None:
        self.offsets = Offsets()
        self.events: list[Event] = []
        self.marks: list[list[Mark]] = []  # of each event
        self.ended: list[OpenOffsets | None] = []  # by each event
        self.settling: list[Iterator[Mark | None]] = []
        self.committed = 0

    def append(self, event: Event) -> None:
        offsets, ended, marks = self.offsets, None, []
        match event:
            case ("commit", (topic, partition), offset, producer_id):
                row = commit_record(
                    "g", topic, partition, offset, leader_epoch=-1, metadata="", commit_timestamp=1, topic_id=bytes(16)
                )
                mark = offsets.append(row[0], row[1], producer_id)  # type: ignore[arg-type]
                marks = [] if mark is None else [mark]
            case ("delete", (topic, partition)):
                mark = offsets.append(*tombstone("g", topic, partition))  # type: ignore[arg-type]
                marks = [] if mark is None else [mark]
            case (_, producer_id, is_committed):
                ended = offsets.end_transaction(producer_id, commit=is_committed)
        self.events.append(event)
        self.ended.append(ended)
        self.marks.append(marks)

    def commit(self, count: int, chance: Random | None = None) -> None:
        """chance: what ends is settled at once, or a step of it, or none."""
        until = min(self.committed + count, len(self.events))
        for marks, ended in zip(self.marks[self.committed : until], self.ended[self.committed : until], strict=True):
            for mark in marks:
                self.offsets.commit(mark)
            if ended is not None:
                self.settling.append(self.offsets.settle(ended))
        self.committed = until
        for settling in self.settling if chance is not None else ():
            for _ in range(chance.randrange(3)):  # type: ignore[union-attr]
                next(settling, None)
        if chance is None:
            self.settle()

    def settle(self) -> None:
        for settling in self.settling:
            deque(settling, 0)
        self.settling.clear()

    def take_back(self, count: int) -> None:
        """The last events could not be written; there is no end of a transaction among them."""
        for each in (self.events, self.marks, self.ended):
            del each[len(each) - count :]  # type: ignore[attr-defined]
        self.offsets.take_back(mark for marks in self.marks[self.committed :] for mark in marks)

    def check(self) -> None:
        offsets = self.offsets
        latest = {place: stored.value.offset for place, stored in offsets.latest("g").items() if stored.value}
        # An end counts for whoever decides when it is committed; before that the transaction is open for them.
        counting = [each for index, each in enumerate(self.events) if index < self.committed or each[0] != "end"]
        assert latest == offsets_after(counting), self.events
        shown = {place: found.offset for place in PLACES if (found := offsets.find("g", *place)) is not None}
        assert shown == offsets_after(self.events[: self.committed]), (self.events, self.committed)
        assert sorted(offsets.places("g")) == sorted(shown)


def event(chance: Random, number: int) -> Event:
    kind = chance.random()
    if kind < 0.6:
        return "commit", chance.choice(PLACES), number, chance.choice(PRODUCERS)
    if kind < 0.8:
        return "delete", chance.choice(PLACES)
    return "end", chance.choice((7, 8)), chance.random() < 0.7


@pytest.mark.parametrize("seed", range(100))
def test_appended_and_committed_are_what_the_log_says(seed: int) -> None:
    chance = Random(seed)
    log = Log()
    for number in range(40):
        log.append(event(chance, number))
        log.check()
        if chance.random() < 0.5:
            log.commit(chance.choice((1, 1, 2, 5)))
            log.check()


@pytest.mark.parametrize("seed", range(100))
def test_a_transaction_that_is_settled_step_by_step_comes_to_the_same(seed: int) -> None:
    chance = Random(seed)
    log = Log()
    for number in range(40):
        log.append(event(chance, number))
        log.commit(chance.choice((0, 1, 1, 2)), chance)
        for place in PLACES:
            assert (
                log.offsets.is_unstable("g", *place)
                or log.offsets.find("g", *place) is not None
                or (place not in offsets_after(log.events[: log.committed]))
            )
        if chance.random() < 0.2:
            log.settle()
            log.check()
    log.commit(len(log.events))
    log.check()
    assert log.offsets.ending("g") == []


def test_a_transaction_ends_in_one_step_whatever_it_would_commit() -> None:
    counts = {}
    for size in (10, 1000):
        offsets = Offsets()
        for number in range(size):
            key, value = commit_record(
                "g", "t", number, 1, leader_epoch=-1, metadata="", commit_timestamp=1, topic_id=bytes(16)
            )
            offsets.append(key, value, 7)  # type: ignore[arg-type]
        counts[size] = steps_of(lambda: offsets.end_transaction(7, commit=True))  # noqa: B023
    assert counts[10] == counts[1000]


@pytest.mark.parametrize("seed", range(100))
def test_what_could_not_be_written_counts_for_nobody(seed: int) -> None:
    chance = Random(seed)
    log = Log()
    for number in range(40):
        count = chance.choice((0, 0, 0, 1, 2))
        for _ in range(count):
            log.append(("commit", chance.choice(PLACES), 1000 + number, -1))
        if count:
            log.take_back(count)
            log.check()
        log.append(event(chance, number))
        log.commit(chance.choice((0, 0, 1, 2)))
        log.check()


def test_the_older_of_two_rows_is_committed_and_the_newer_one_counts_for_whoever_decides() -> None:
    for newer, latest in ((("delete", ("t", 0)), {}), (("commit", ("t", 0), 2, -1), {("t", 0): 2})):
        log = Log()
        log.append(("commit", ("t", 0), 1, -1))
        log.append(newer)
        log.commit(1)
        log.check()
        assert offsets_after(log.events) == latest

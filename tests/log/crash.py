"""Crash a workload everywhere it can be crashed, and look at what is found after each crash.

`explore` runs a workload once on a simulated disk. Between any two steps that change the disk, and at the end, it takes
many of the disks that a power loss might leave (power_loss.py) and hands each to a check, which recovers from it and
compares with what was known at that moment. A check is a workload too: with `crashes=2` the power also goes while the
first check writes, and another check has to cope with that, and so on.

    def workload(storage, mark): ...    mark(known) whenever something becomes known: before a write what is tried,
                                        after a sync what must survive; the first time before the first step
    def check(storage, known): ...      recover; raise if what is there does not agree with `known`

What must hold: a seed is the whole input, so neither may look at anything else. What a failure prints is enough to run
that one case again.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator
from random import Random
from typing import Generic, NamedTuple, TypeVar

from minibroker.log.memory_storage import Content, Directory
from minibroker.simulation.disk import SimulatedStorage, Step
from minibroker.simulation.power_loss import (
    HOLE,
    SECTOR_BYTES,
    TORN,
    WHOLE,
    ZEROS,
    Choice,
    Disk,
    PowerLoss,
    Writes,
)

Known = TypeVar("Known")
Workload = Callable[[SimulatedStorage, Callable[[Known], None]], None]
Check = Callable[[SimulatedStorage, Known], None]
Crashes = tuple[tuple[int, int], ...]  # one after the other: how many steps were done, and which choice of the many

STATES = int(os.environ.get("MINIBROKER_TEST_STATES", "2500"))  # of each workload; `make crashes` has more of them
REPEATS_MAX = 64  # so many choices in a row that give nothing new: there is nothing new


class Explored(NamedTuple):
    """How much was looked at."""

    boundaries: int  # of the workload: one more than its steps
    states: int  # crashes that were made
    distinct: int  # pairs of boundary and disk, each checked once
    disks: int  # disks, whatever the boundary


class CrashFound(AssertionError):
    """A check failed; `crashes` is the `only` that makes it fail again."""

    def __init__(self, story: str, crashes: Crashes):
        super().__init__(story)
        self.crashes = crashes


class Boundary(Generic[Known]):
    """A moment between two steps."""

    def __init__(self, number: int, step_after: str, loss: PowerLoss, known: Known):
        self.number = number  # steps done
        self.step_after = step_after
        self.loss = loss
        self.known = known
        self.extremes = extremes(loss)
        self.disks: set[int] = set()  # that were checked

    def choice(self, seed: int, crashes: Crashes) -> Choice:
        """Return the choice with the number that the last of some crashes has."""
        _, number = crashes[-1]
        return self.extremes[number] if number < len(self.extremes) else self.loss.choose(Random(f"{seed} {crashes}"))

    def crashed(self, seed: int) -> Iterator[tuple[Crashes, Disk | None]]:
        """Yield disks as long as there are new ones; None stands for one that was checked."""
        number = repeats = 0
        while repeats < REPEATS_MAX:
            crashes = ((self.number, number),)
            disk = self.loss.disk(self.choice(seed, crashes))
            number += 1
            repeats = repeats + 1 if disk.identity in self.disks else 0
            yield crashes, None if repeats else disk


def explore(
    workload: Workload[Known],
    check: Check[Known],
    *,
    seed: int = 0,
    states_max: int = 10_000,
    crashes: int = 1,
    sector_bytes: int = SECTOR_BYTES,
    only: Crashes = (),
) -> Explored:
    """Check at most `states_max` distinct states, taking turns between the boundaries. `only`: one case again."""
    marks: list[Known] = []

    def known() -> Known:
        assert marks, "mark what is known before the first step"
        return marks[-1]

    boundaries = boundaries_of(lambda storage: workload(storage, marks.append), SimulatedStorage(), known, sector_bytes)
    if only:
        _again(boundaries, check, seed, sector_bytes, only)
        return Explored(len(boundaries), len(only), len(only), len(only))
    states = distinct = 0
    disks: set[int] = set()
    turns = deque((boundary, boundary.crashed(seed)) for boundary in boundaries)
    while turns and distinct < states_max:
        boundary, turn = turns.popleft()
        found = next(turn, None)
        if found is None:
            continue
        turns.append((boundary, turn))
        trail = _Trail(boundary, check, seed, sector_bytes)
        case, disk = found
        states += 1
        while disk is not None and distinct < states_max:
            distinct += 1
            boundary.disks.add(disk.identity)
            disks.add(disk.identity)
            inner = trail.check(case, disk, is_recorded=len(case) < crashes)
            if len(inner) <= 1:
                break
            case, disk = trail.crash_within(inner, case)
            states += 1
    return Explored(len(boundaries), states, distinct, len(disks))


def boundaries_of(
    run: Callable[[SimulatedStorage], None],
    storage: SimulatedStorage,
    known: Callable[[], Known],
    sector_bytes: int,
) -> list[Boundary[Known]]:
    """Run something on a disk and return all its boundaries."""
    found: list[Boundary[Known]] = []

    def remember(step_after: Step | str) -> None:
        found.append(Boundary(len(found), str(step_after), storage.power_loss(sector_bytes), known()))

    storage.before_step = remember
    run(storage)
    storage.before_step = None
    remember("the end")
    return found


class _Trail(Generic[Known]):
    """One crash of the workload, and those of the checks after it."""

    def __init__(self, boundary: Boundary[Known], check: Check[Known], seed: int, sector_bytes: int):
        self.first = boundary
        self._check = check
        self._seed = seed
        self._sector_bytes = sector_bytes
        self._passed: list[Boundary[Known]] = [boundary]

    def check(self, crashes: Crashes, disk: Disk, *, is_recorded: bool) -> list[Boundary[Known]]:
        """Check a disk, and return the boundaries of the check itself if they are wanted."""
        storage, known = SimulatedStorage(disk=disk), self.first.known
        try:
            if is_recorded:
                return boundaries_of(
                    lambda recorded: self._check(recorded, known), storage, lambda: known, self._sector_bytes
                )
            self._check(storage, known)
            return []
        except Exception as failure:
            raise CrashFound(self._story(crashes, failure), crashes) from failure

    def crash_within(self, inner: list[Boundary[Known]], crashes: Crashes) -> tuple[Crashes, Disk | None]:
        """Return a disk that a crash during the last check may leave, None if it is a known one."""
        chance = Random(f"{self._seed} {crashes}")
        boundary = inner[1 + int(chance.random() * (len(inner) - 1))]  # before its first step there is nothing new
        number = int(chance.random() * (len(boundary.extremes) + 4))
        crashes = (*crashes, (boundary.number, number))
        disk = self.enter(boundary, crashes)
        return crashes, None if disk.identity in self.first.disks else disk

    def enter(self, boundary: Boundary[Known], crashes: Crashes) -> Disk:
        self._passed.append(boundary)
        return boundary.loss.disk(boundary.choice(self._seed, crashes))

    def _story(self, crashes: Crashes, failure: Exception) -> str:
        lines = [f"{type(failure).__name__}: {failure}"]
        for depth, boundary in enumerate(self._passed):
            kept = describe(boundary.loss, boundary.choice(self._seed, crashes[: depth + 1]))
            lines.append(f"boundary {boundary.number}: power lost before {boundary.step_after}; kept {kept}")
        return "\n".join([*lines, f"again: explore(..., seed={self._seed}, only={crashes})"])


def _again(boundaries: list[Boundary[Known]], check: Check[Known], seed: int, sector_bytes: int, only: Crashes) -> None:
    trail = _Trail(boundaries[only[0][0]], check, seed, sector_bytes)
    disk = trail.first.loss.disk(trail.first.choice(seed, only[:1]))
    for depth in range(1, len(only)):
        inner = trail.check(only[:depth], disk, is_recorded=True)
        disk = trail.enter(inner[only[depth][0]], only[: depth + 1])
    trail.check(only, disk, is_recorded=False)


# What a power loss may leave


def extremes(loss: PowerLoss) -> list[Choice]:
    """Return the choices that need no chance: nothing, all, only names, only bytes, one file alone, all but one."""
    no_names, all_names = [0] * len(loss.names_at_stake), [names.count for _, names in loss.names_at_stake]
    nothing: list[tuple[int, int, int]] = [(0, WHOLE, 0)] * len(loss.files_at_stake)
    whole: list[tuple[int, int, int]] = [(writes.count, WHOLE, 0) for _, writes in loss.files_at_stake]
    choices = [Choice(no_names, nothing), Choice(all_names, whole)]
    if no_names:
        choices += [Choice(all_names, nothing), Choice(no_names, whole)]
    if len(whole) > 1:
        for index in range(len(whole)):
            choices.append(Choice(all_names, [*nothing[:index], whole[index], *nothing[index + 1 :]]))
            choices.append(Choice(all_names, [*whole[:index], nothing[index], *whole[index + 1 :]]))
    return choices


def describe(loss: PowerLoss, choice: Choice) -> str:
    """Say what a choice lets through, with every name that a file or directory has or had."""
    paths = _paths(loss)
    told = [
        f"{paths[node] or 'the root'}: {count} of {names.count} changes of names"
        for (node, names), count in zip(loss.names_at_stake, choice.names, strict=True)
    ]
    told += [
        f"{paths[node]}: {_describe(writes, kept)}"
        for (node, writes), kept in zip(loss.files_at_stake, choice.files, strict=True)
    ]
    return "; ".join(told) or "nothing was at stake"


def _describe(writes: Writes, kept: tuple[int, int, int]) -> str:
    count, how, detail = kept
    more = {
        WHOLE: "",
        TORN: f" and {detail} bytes",
        ZEROS: f" and zeros up to {detail + 1}",
        HOLE: f" but {detail}",
    }
    return f"{count} of {writes.count} writes{more[how]}"


def _paths(loss: PowerLoss) -> dict[Content | Directory, str]:
    paths: dict[Content | Directory, str] = {loss.root: ""}
    for directory, names in loss.directories.items():
        above = f"{paths[directory]}/" if paths[directory] else ""
        for changes in [tuple(names.certain.items()), *names.changes[: names.count]]:
            for name, node in changes:
                if node is not None:
                    paths[node] = f"{paths[node]} or {above}{name}" if node in paths else above + name
    return paths

"""Every lesson does what it says, each time the same."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

import minibroker.lessons
from minibroker.events import EventStream
from minibroker.lessons import LESSONS, NoSuchLesson, load
from minibroker.lessons.running import Player, check, new_clock, rehearse
from minibroker.lessons.scenario import EVENT, STATE, TOLD
from minibroker.lessons.stage import Stage

FILES = sorted((Path(minibroker.lessons.__file__).parent / "scenarios").glob("*.txt"))


def test_every_file_is_a_lesson() -> None:
    assert sorted(LESSONS) == [path.stem for path in FILES]


@pytest.mark.outside
@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("name", LESSONS)
def test_a_lesson_does_what_it_says(name: str, seed: int) -> None:
    check(load(name), seed=seed)


@pytest.mark.parametrize("name", LESSONS)
def test_a_lesson_says_what_to_see_and_proves_it(name: str) -> None:
    scenario = load(name)
    assert scenario.last_words
    for step in scenario.steps:
        assert step.prose, f"{name}.txt:{step.line_number}: no words before a step"
        assert step.expectations, f"{name}.txt:{step.line_number}: nothing has to happen"
    kinds = {each.kind for step in scenario.steps for each in step.expectations}
    assert kinds & {EVENT, TOLD}
    assert kinds & {STATE, TOLD}


@pytest.mark.outside
def test_a_lesson_goes_the_same_way_each_time() -> None:
    def lines() -> list[str]:
        return [event.line for outcome in rehearse(load("truncation")) for event in outcome.events]

    assert lines() == lines()


def test_a_lesson_that_is_not_there_is_not_found() -> None:
    with pytest.raises(NoSuchLesson, match=r"did you mean truncation\?"):
        load("truncate")


@pytest.mark.slow
@pytest.mark.parametrize("name", LESSONS)
async def test_a_lesson_does_the_same_on_sockets(name: str) -> None:
    scenario, clock = load(name), new_clock()
    stage = Stage(clock, EventStream(clock.now_ms), Random(1))
    player = Player(scenario, stage)
    try:
        for step in scenario.steps:
            assert not (await player.play(step)).failures
    finally:
        await stage.close()

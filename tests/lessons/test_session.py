"""Taking a lesson: on, back, questions, words, and clients that join."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import pytest

from minibroker.events import EventStream
from minibroker.lessons import LESSONS, load
from minibroker.lessons.commands import parse_command
from minibroker.lessons.guide import Guide
from minibroker.lessons.running import REHEARSAL_MS, new_clock
from minibroker.lessons.scenario import ScenarioError, parse_scenario
from minibroker.lessons.session import KEYS, Session
from minibroker.lessons.stage import Stage
from minibroker.lessons.telling import WIDTH, tell_outcome
from minibroker.lessons.words import explained, words
from minibroker.simulation.run import World, simulate

pytestmark = pytest.mark.outside

ASKED = """# Made up

Words.

    start 1 brokers
    topic orders

One record.

    predict: where does the log end then?
        0        wrong: there is a record in it
        at one   right: the next one gets offset 1
    produce orders-0 "a"
    ----
    append b1 orders-0 offsets=0..0 leo=1

The end.
"""


def take(lines: Sequence[str], scenario: Any = None, between: Callable[[Guide, int], Any] | None = None) -> list[str]:
    """Type some lines in virtual time; return what was written after each, what was there before first."""

    async def main(world: World) -> list[str]:
        def new_stage(ports: Sequence[int]) -> Stage:
            clock = new_clock(REHEARSAL_MS, lambda: world.loop.time() * 1000)
            return Stage(clock, EventStream(clock.now_ms), Random(1), ports=ports)

        written: list[str] = []
        guide = Guide(scenario or parse_scenario(ASKED, "made.txt"), new_stage)
        session = Session(guide, written.append)
        found = []
        for index, line in enumerate([*lines, ""]):
            found.append("\n".join([*written, session.prompt]))
            written.clear()
            if index < len(lines):
                if between is not None:
                    await between(guide, index)
                await session.type(f"{line}\n")
        await guide.close()
        return found

    told: list[str] = simulate(main, 1).check()
    return told


def test_a_lesson_goes_on_and_ends() -> None:
    begin, first, second, end = take(["", "", ""])
    assert begin.splitlines()[:5] == ["Made up", "=======", "", KEYS, ""]
    assert begin.endswith("    start 1 brokers\n    topic orders\n\n[1 of 2: Enter] ")
    assert "Your own clients may join: 127.0.0.1:" in first
    assert first.endswith(
        '    produce orders-0 "a"\n\nWhat do you think: where does the log end then?\n      1  0\n      2  at one\n\n'
        "[2 of 2: 1-2, or Enter] "
    )
    assert 'The answer is "at one": the next one gets offset 1.' in second
    assert second.endswith("The end.\n\n[Enter to end, b: back] ")
    assert end == "[Enter to end, b: back] "


@pytest.mark.parametrize(
    ("typed", "told"),
    [
        ("1", 'No: there is a record in it.\n\nThe answer is "at one": the next one gets offset 1.'),
        ("2", "Right: the next one gets offset 1."),
    ],
)
def test_a_guess_is_judged_when_the_step_has_been_seen(typed: str, told: str) -> None:
    answer = take(["", typed])[2]
    assert told in answer
    assert answer.index("appended 1 record") < answer.index(told)


@pytest.mark.parametrize("typed", ["3", "0", "x", "12", "²", "b 3", "\x1b[A"])
def test_what_means_nothing_moves_nothing(typed: str) -> None:
    told = take(["", typed])[2]
    assert told.endswith(f"that means nothing here. {KEYS}\n[2 of 2: 1-2, or Enter] ")
    assert "\x1b" not in told


def test_back_is_where_one_was_before() -> None:
    begin, first, second, back, again, twice, beginning = take(["", "", "b", "", "b\n", "b"])
    assert back.startswith("Back to before step 2 of 2. Clients that have joined are as if they had not.")
    assert back.endswith(first.partition("One record.")[2])
    assert again == second
    assert twice == back
    assert beginning.endswith(begin.partition(f"{KEYS}\n\n")[2])
    assert take(["b"])[1].startswith("this is the beginning\n")


@pytest.mark.parametrize("name", ["high-watermark", "truncation", "scram", "promised-flow", "rebalance-eager"])
def test_a_step_that_is_played_again_is_what_it_was(name: str) -> None:
    async def main(world: World) -> None:
        def new_stage(ports: Sequence[int]) -> Stage:
            clock = new_clock(REHEARSAL_MS, lambda: world.loop.time() * 1000)
            return Stage(clock, EventStream(clock.now_ms), Random(1), ports=ports)

        guide = Guide(load(name), new_stage)
        while guide.next_step is not None:
            told = tell_outcome(await guide.go_on())
            place = len(guide.outcomes)
            await guide.go_back()
            assert len(guide.outcomes) == place - 1
            assert tell_outcome(await guide.go_on()) == told
        assert not [outcome.failures for outcome in guide.outcomes if outcome.failures]
        await guide.close()

    simulate(main, 1).check()


def test_what_clients_do_that_join_is_told_and_taken_back() -> None:
    async def write(guide: Guide, index: int) -> None:
        if index == 1:
            for _ in range(3):
                await guide.stage.do(parse_command('produce orders-0 "mine"'))

    _, _, went, back, again = take(["", "", "b", ""], between=write)
    assert went.startswith("Meanwhile:\n\n    - orders-0: broker 1 appended 0..2; high watermark 0 -> 3 on broker 1;")
    said = " ".join(went.replace("  ! ", "").split())
    assert "This step went another way than its words say: `append b1 orders-0 offsets=0..0 leo=1` did not" in said
    assert "made.txt" not in went
    assert back.startswith("Back to before step 2 of 2.")
    assert "Meanwhile" not in again
    assert "  !" not in again


def test_every_event_of_the_last_step_is_told_once_more() -> None:
    told = take(["e", "", "e"])
    assert told[1].startswith("nothing has happened yet")
    assert len(told[3].splitlines()) > len(told[2].partition("The clock stands")[0].splitlines())


def test_how_to_join_is_told_when_there_is_somebody_to_join() -> None:
    _, before, _, after = take(["t", "", "t"])
    assert before.startswith("there are no brokers yet")
    (address,) = set(re.findall(r"127\.0\.0\.1:\d+", after))
    assert f"    minibroker topics -b {address}" in after.splitlines()


def test_q_and_the_end_of_input_end_it() -> None:
    async def main(world: World) -> None:
        for line in ("q\n", " QUIT \n", ""):
            clock = new_clock(REHEARSAL_MS)
            guide = Guide(load("isr"), lambda ports, clock=clock: Stage(clock, EventStream(clock.now_ms), Random(1)))  # type: ignore[misc]
            session = Session(guide, lambda text: None)
            await session.type(line)
            assert session.is_over
            assert not session.has_failed
            await guide.close()

    simulate(main, 1).check()


# Words


def test_words_of_a_step_are_explained_in_their_order() -> None:
    told = take(["?"], load("isr"))[1]
    assert [line.partition(":")[0] for line in told.splitlines() if ": " in line[:20]][:2] == ["ISR", "position"]
    assert all(len(line) <= WIDTH + 2 for line in told.splitlines())


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("The ISR shrinks", "ISR"),
        ("two followers ask", "follower"),
        ("set min.insync.replicas=2", "min.insync.replicas"),
        ("its LEO is 1", "LEO"),
        ("an unclean election", "unclean election"),
    ],
)
def test_a_word_is_found_in_its_forms(text: str, word: str) -> None:
    assert word in [found for found, _ in explained(text)]


def test_what_is_part_of_another_word_is_none() -> None:
    assert not explained("LEOPARD, backlogs, min.insync.replicas.factor=2, offset_delta")


def test_the_list_has_each_word_once_and_no_word_that_no_lesson_has() -> None:
    forms = [form for each in words().values() for form in each]
    assert len(set(forms)) == len(forms)
    prose = " ".join(
        " ".join([*step.prose, *(command.line for command in step.commands)])
        for name in LESSONS
        for step in load(name).steps
    )
    prose += " ".join(" ".join([load(name).title, *load(name).last_words]) for name in LESSONS)
    found = {word for word, _ in explained(prose)}
    assert not {each[0] for each in words().values()} - found


# Questions


def test_questions_of_lessons_have_one_right_answer_each() -> None:
    asked = [step.question for name in LESSONS for step in load(name).steps if step.question is not None]
    assert len(asked) >= 15
    for question in asked:
        assert question.text.endswith("?")
        assert question.right in question.choices
        for each in question.choices:
            assert not each.why.endswith(".")


BROKEN = [
    (
        "predict: what?\n        a   right: b\n    heal",
        "made.txt:8: a question has two answers or more, of which one is right",
    ),
    ("predict: what?\n        a  right: b\n        c  right: d\n    heal", "made.txt:8: a question has two answers"),
    ("predict: what?\n        a right: b\n    heal", "made.txt:9: 'a right: b' is no answer: ANSWER, two spaces"),
    ("predict: what?\n        a  right: b\n        c  wrong: d", "made.txt:8: behind a question comes the step"),
]


@pytest.mark.parametrize(("step", "words"), BROKEN)
def test_other_questions_are_refused(step: str, words: str) -> None:
    text = f"# Made up\n\n    start 1 brokers\n    topic orders\n\nWords.\n\n    {step}\n"
    with pytest.raises(ScenarioError, match=re.escape(words)):
        parse_scenario(text, "made.txt")

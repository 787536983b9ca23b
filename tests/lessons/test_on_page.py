"""A lesson in the page: /api/lesson, and one at a time with whoever types."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from random import Random
from typing import Any, TypeVar

import pytest

from minibroker.broker.http_calls import Refused
from minibroker.broker.http_verbs import call
from minibroker.events import EventStream
from minibroker.lessons import LESSONS, load
from minibroker.lessons.commands import parse_command
from minibroker.lessons.guide import Guide
from minibroker.lessons.on_page import OnPage
from minibroker.lessons.running import REHEARSAL_MS, new_clock
from minibroker.lessons.scenario import parse_scenario
from minibroker.lessons.session import Session
from minibroker.lessons.stage import Stage
from minibroker.simulation.run import World, simulate
from minibroker.taught import titles
from minibroker.view.selection import parse_query
from tests.lessons.test_session import ASKED
from tests.server.running import running

pytestmark = pytest.mark.outside
T = TypeVar("T")


class Room:
    """Somebody types, and others look."""

    def __init__(self, world: World, scenario: Any = None):
        def new_stage(ports: Sequence[int]) -> Stage:
            clock = new_clock(REHEARSAL_MS, lambda: world.loop.time() * 1000)
            return Stage(clock, EventStream(clock.now_ms), Random(1), ports=ports)

        self.written: list[str] = []
        self.guide = Guide(scenario or parse_scenario(ASKED, "made.txt"), new_stage)
        self.session = Session(self.guide, self.written.append)
        self.on_page = OnPage(
            self.session, self.guide, self.written.append, lambda: self.written.append(self.session.prompt)
        )

    @property
    def node(self) -> Any:
        return self.guide.stage.on.nodes[1]

    async def ask(self, method: str = "GET", **body: Any) -> Any:
        return await call(self.node, method, "/api/lesson", body)

    async def refused(self, **body: Any) -> str:
        with pytest.raises(Refused) as refusal:
            await self.ask("POST", **body)
        assert refusal.value.status == "409 Conflict"
        return str(refusal.value)

    async def rest(self) -> None:
        """Return when nothing is being played any more."""
        assert self.on_page._work is not None
        await self.on_page._work

    def take(self) -> str:
        written = "\n".join(self.written)
        self.written.clear()
        return written


def with_room(main: Callable[[Room], Coroutine[Any, Any, T]], scenario: Any = None) -> T:
    async def run(world: World) -> T:
        room = Room(world, scenario)
        try:
            return await main(room)
        finally:
            await room.guide.close()

    found: T = simulate(run, 1).check()
    return found


def test_what_is_said_of_a_lesson() -> None:
    async def main(room: Room) -> None:
        await room.session.type("\n")
        told = await room.ask()
        assert (told["name"], told["title"], told["steps"]) == ("made", "Made up", 2)
        assert told["keys"] == {"n": "on", "1": "answer", "2": "answer"}
        assert told["next"] == {
            "prose": ["One record."],
            "commands": ['produce orders-0 "a"'],
            "question": {"text": "where does the log end then?", "choices": ["0", "at one"]},
        }
        assert [step["commands"] for step in told["played"]] == [["start 1 brokers", "topic orders"]]
        assert told["played"][0]["judged"] is None
        assert not told["is_moving"]

    with_room(main)


@pytest.mark.parametrize(
    ("wish", "judged"),
    [
        ({"do": "answer", "choice": 1}, (1, False, ["No: there is a record in it.", "The answer is"])),
        ({"do": "answer", "choice": 2}, (2, True, ["Right: the next one gets offset 1."])),
        ({"do": "on"}, (0, None, ["The answer is"])),
    ],
)
def test_an_answer_is_judged_here_and_at_the_terminal(wish: dict[str, Any], judged: tuple[Any, ...]) -> None:
    async def main(room: Room) -> None:
        await room.session.type("\n")
        room.take()
        told = await room.ask("POST", **wish)
        last = told["played"][-1]["judged"]
        choice, is_right, words = judged
        mark, sentence = told["played"][-1]["happened"][0]
        assert (mark, sentence.partition(";")[0]) == (
            "-",
            "Broker 1 appended 1 record that came from a producer to orders-0",
        )
        assert (last["choice"], last["is_right"]) == (choice, is_right)
        assert [said.startswith(word) for said, word in zip(last["words"], words, strict=True)] == [True] * len(words)
        assert told["next"] is None
        assert told["last_words"] == ["The end."]
        assert told["keys"] == {"b": "back"}
        written = room.take()
        assert written.startswith("n   (in the page)" if not choice else f"{choice}   (in the page)")
        assert all(said in written for said in last["words"])
        assert written.endswith("The end.\n\n[Enter to end, b: back] ")
        assert await room.ask() == told
        assert not room.session.is_over

    with_room(main)


def test_what_is_typed_shows_in_the_page_and_moves_its_turn() -> None:
    async def main(room: Room) -> None:
        await room.session.type("\n")
        before = await room.ask()
        node = room.node
        selection = parse_query("", may_be_all=True)
        assert f'"lesson":["made",{before["turn"]}]'.encode() in await node.feed.show(selection)
        await room.session.type("2\n")
        after = await room.ask()
        assert after["turn"] > before["turn"]
        assert after["played"][-1]["judged"]["is_right"]
        assert f'"lesson":["made",{after["turn"]}]'.encode() in await node.feed.show(selection)

    with_room(main)


def test_back_is_answered_first_for_its_brokers_start_anew() -> None:
    async def main(room: Room) -> None:
        await room.session.type("\n")
        before = await room.ask()
        await room.ask("POST", do="answer", choice=1)
        answered = await room.ask("POST", do="back")
        assert answered["is_moving"]
        assert len(answered["played"]) == 2
        old = room.node
        await room.rest()
        after = await room.ask()
        assert room.node is not old
        assert room.node.bootstrap_servers == old.bootstrap_servers
        assert {**after, "turn": 0, "is_moving": False} == {**before, "turn": 0}
        assert "Back to before step 2 of 2." in room.take()
        assert "no brokers, and no page" in await room.refused(do="back")
        assert (await room.ask())["keys"] == before["keys"]

    with_room(main)


def test_one_at_a_time() -> None:
    async def main(room: Room) -> None:
        await room.session.type("\n")
        turn = (await room.ask())["turn"]
        room.take()
        page = asyncio.ensure_future(room.ask("POST", do="on", turn=turn))
        while not room.session.is_moving:
            await asyncio.sleep(0)
        typed = asyncio.ensure_future(room.session.type("\n"))
        assert "somebody else" in await room.refused(do="on")
        await asyncio.gather(page, typed)
        assert len(room.guide.outcomes) == 2
        assert "That came while something else was done, and did nothing." in room.take()
        assert not room.session.is_over
        assert "somebody else" in await room.refused(do="back", turn=turn)
        assert len(room.guide.outcomes) == 2

    with_room(main)


@pytest.mark.parametrize(
    ("wish", "words"),
    [
        ({}, "do is to be on, back or answer"),
        ({"do": ["on"]}, "do is to be on, back or answer"),
        ({"do": "answer"}, "no such choice"),
        ({"do": "answer", "choice": 3}, "no such choice"),
        ({"do": "answer", "choice": True}, "no such choice"),
        ({"do": "answer", "choice": "1"}, "no such choice"),
        ({"do": "on", "to": 3}, "a lesson takes do, choice and turn, not to"),
    ],
)
def test_what_cannot_be_done_is_said_and_moves_nothing(wish: dict[str, Any], words: str) -> None:
    async def main(room: Room) -> None:
        await room.session.type("\n")
        before = await room.ask()
        room.take()
        assert words in await room.refused(**wish)
        assert await room.ask() == before
        assert room.take() == ""

    with_room(main)


def test_behind_the_end_there_is_only_back() -> None:
    async def main(room: Room) -> None:
        await room.session.type("\n")
        await room.session.type("\n")
        assert await room.refused(do="on") == "this is the end of the lesson"
        assert "no question" in await room.refused(do="answer", choice=1)

    with_room(main)


def test_a_step_that_silences_a_broker_is_answered_before() -> None:
    async def main(room: Room) -> None:
        while room.guide.next_step is not None and not any(
            command.verb == "kill" for command in room.guide.next_step.commands
        ):
            await room.session.type("\n")
        answered = await room.ask("POST", do="on")
        assert answered["is_moving"]
        await room.rest()
        place = len(answered["played"])
        assert len(room.guide.outcomes) == place + 1
        assert not room.guide.outcomes[-1].failures

    with_room(main, load("unclean-election"))


def test_a_step_that_went_another_way_says_so() -> None:
    async def main(room: Room) -> None:
        await room.session.type("\n")
        await room.guide.stage.do(parse_command('produce orders-0 "mine"'))
        told = await room.ask("POST", do="on")
        assert told["played"][-1]["deviation"].startswith("This step went another way than its words say: `append b1")

    with_room(main)


@pytest.mark.parametrize(
    ("name", "broker"), [("unclean-election", 2), ("high-watermark", 1), ("truncation", 3), ("torn-tail", 2)]
)
def test_the_page_is_at_a_broker_that_the_lesson_leaves_alone(name: str, broker: int) -> None:
    async def main(room: Room) -> None:
        assert room.guide.page == ""
        await room.session.type("\n")
        assert room.guide.page == f"http://{room.guide.stage.on.nodes[broker].bootstrap_servers}/#/lessons"
        written = room.take()
        assert f"A browser shows the same cluster, and this lesson with it: {room.guide.page}\n" in written
        await room.session.type("t\n")
        assert f"with a browser at {room.guide.page}\n" in room.take()

    with_room(main, load(name))


@pytest.mark.parametrize("name", ["scram", "access-rules"])
def test_where_brokers_want_a_login_no_page_is_told_of(name: str) -> None:
    async def main(room: Room) -> None:
        await room.session.type("\n")
        assert room.guide.page == ""
        assert "browser" not in room.take()

    with_room(main, load(name))


async def test_a_broker_of_no_lesson_lists_them() -> None:
    async with running() as node:
        listed = await call(node, "GET", "/api/lessons")
        assert [each["name"] for each in listed] == list(LESSONS)
        for method in ("GET", "POST"):
            with pytest.raises(Refused, match="no lesson is played here"):
                await call(node, method, "/api/lesson", {"do": "on"})
        assert '"lesson"' not in (await node.feed.show(parse_query("", may_be_all=True))).decode()


def test_words_are_explained_as_at_the_terminal() -> None:
    async def main(room: Room) -> None:
        await room.session.type("\n")
        told = (await room.ask())["words"]
        assert [word for word, _ in told][:2] == ["follower", "offset"]
        room.take()
        await room.session.type("?\n")
        assert room.take().startswith(f"{told[0][0]}: ")

    with_room(main, load("high-watermark"))


def test_titles_are_those_of_the_lessons() -> None:
    assert titles() == {name: load(name).title for name in LESSONS}

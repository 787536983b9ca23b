"""Links between brokers: what is delayed, cut, lost, repeated and held, and how a call ends. In virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from minibroker.cluster.links import Links
from minibroker.errors import Error
from minibroker.events import KINDS, Event, EventStream
from minibroker.protocol.messages.fetch import FetchRequest, FetchResponse
from minibroker.replication.gate import Gate
from minibroker.replication.network import Letter, Network, NetworkError
from minibroker.simulation.run import World, simulate

pytestmark = pytest.mark.outside

LEADER, FOLLOWER = 1, 2


class Nodes:
    """A leader that counts what it is asked, and a follower that asks."""

    def __init__(self, world: World):
        self.world = world
        self.events = world.events
        self.network = Network(world.clock, world.chance, world.events)
        self.cut_from_clients: dict[int, None] = {}
        self.links: Any = Links(self)  # type: ignore[arg-type]
        self.asked: list[int] = []  # max_wait_ms stands for a number of the request
        self.versions: list[int] = []
        self.times: list[int] = []
        self.waits: asyncio.Future[None] | None = None
        self.network.attach(LEADER, self.answer)
        self.network.attach(FOLLOWER, self.answer)

    def answer(self, source: object, request: FetchRequest, version: int) -> Any:
        self.asked.append(request.max_wait_ms)
        self.versions.append(version)
        self.times.append(self.world.clock.now_ms())
        response = FetchResponse(throttle_time_ms=request.max_wait_ms, responses=[])
        if self.waits is None:
            return response

        async def later() -> FetchResponse:
            assert self.waits is not None
            await self.waits
            return response

        return later()

    def check(self, *who: object) -> None:
        """All are there."""

    async def call(self, number: int, **options: Any) -> int:
        answer = await self.network.call(FOLLOWER, LEADER, request(number), **options)
        assert isinstance(answer, FetchResponse)
        return answer.throttle_time_ms

    def hold(self, name: str = "", target: int | None = None, *, answers: bool | None = False) -> Gate:
        """Let requests wait; answers: True for answers only, None for both."""

        def fits(letter: Letter) -> bool:
            is_asked = letter.name.startswith(name) and target in (None, letter.link.target)
            return is_asked and answers in (None, letter.is_answer)

        return self.network.hold(name, fits)

    @property
    def held(self) -> list[str]:
        return [held.what for gate in self.network.gates for held in gate.waiting]

    def start(self, number: int, **options: Any) -> asyncio.Task[int]:
        return self.world.loop.create_task(self.call(number, **options))


def request(number: int) -> FetchRequest:
    return FetchRequest(max_wait_ms=number, min_bytes=1, topics=[], forgotten_topics_data=[])


def play(scene: Callable[[Nodes], Coroutine[Any, Any, object]], seed: int = 1) -> Any:
    async def main(world: World) -> object:
        return await scene(Nodes(world))

    return simulate(main, seed).check()


async def elapsed_ms(nodes: Nodes, call: Coroutine[Any, Any, object]) -> int:
    begun = nodes.world.loop.time()
    await call
    return round((nodes.world.loop.time() - begun) * 1000)


def test_a_call_returns_the_answer_at_once_on_a_good_link() -> None:
    async def scene(nodes: Nodes) -> None:
        assert await nodes.call(7) == 7
        assert await elapsed_ms(nodes, nodes.call(8)) == 0

    play(scene)


def test_a_delay_counts_for_each_direction() -> None:
    async def scene(nodes: Nodes) -> None:
        nodes.links.delay(FOLLOWER, LEADER, 100, one_way=True)
        assert await elapsed_ms(nodes, nodes.call(1)) == 100
        nodes.links.delay(FOLLOWER, LEADER, 100)
        assert await elapsed_ms(nodes, nodes.call(2)) == 200

    play(scene)


def test_a_link_keeps_the_order_whatever_the_jitter() -> None:
    async def scene(nodes: Nodes) -> None:
        nodes.links.delay(FOLLOWER, LEADER, 1, jitter_ms=500)
        await asyncio.gather(*(nodes.start(number) for number in range(50)))
        assert nodes.asked == list(range(50))

    play(scene)


def test_a_throttled_link_takes_time_for_each_byte() -> None:
    async def scene(nodes: Nodes) -> None:
        size_bytes = len(request(1).encode(13))
        nodes.links.throttle(FOLLOWER, LEADER, size_bytes, one_way=True)
        calls = [nodes.start(number, version=13) for number in range(3)]
        assert await elapsed_ms(nodes, asyncio.wait(calls)) == 3000

    play(scene)


def test_a_cut_link_keeps_messages_until_it_is_healed() -> None:
    async def scene(nodes: Nodes) -> None:
        nodes.links.cut(FOLLOWER, LEADER)
        call = nodes.start(1)
        await nodes.world.clock.sleep(5000)
        assert not nodes.asked
        nodes.links.heal(FOLLOWER, LEADER)
        assert await call == 1

    play(scene)


def test_a_cut_of_one_way_lets_the_request_through_and_keeps_the_answer() -> None:
    async def scene(nodes: Nodes) -> None:
        nodes.links.cut(LEADER, FOLLOWER, one_way=True)
        with pytest.raises(NetworkError) as failure:
            await nodes.call(1, timeout_ms=1000)
        assert failure.value.code == Error.REQUEST_TIMED_OUT
        assert failure.value.code.retriable
        assert nodes.asked == [1]

    play(scene)


def test_what_the_caller_gave_up_is_not_delivered_later() -> None:
    async def scene(nodes: Nodes) -> None:
        nodes.links.cut(FOLLOWER, LEADER)
        with pytest.raises(NetworkError):
            await nodes.call(1, timeout_ms=1000)
        nodes.links.heal(FOLLOWER, LEADER)
        assert await nodes.call(2) == 2
        assert nodes.asked == [2]

    play(scene)


def test_a_late_message_arrives_after_the_caller_gave_up() -> None:
    async def scene(nodes: Nodes) -> None:
        link = nodes.network.link(FOLLOWER, LEADER)
        link.late_share = 1
        with pytest.raises(NetworkError):
            await nodes.call(1, timeout_ms=1)
        link.late_share = 0
        await nodes.call(2)
        await nodes.world.clock.sleep(60_000)
        assert nodes.asked == [2, 1]

    play(scene)


def test_a_repeated_message_is_handled_twice_and_answered_once() -> None:
    async def scene(nodes: Nodes) -> None:
        nodes.network.link(FOLLOWER, LEADER).twice_share = 1
        assert await nodes.call(1) == 1
        assert nodes.asked == [1, 1]

    play(scene)


def test_lost_messages_end_by_the_callers_patience() -> None:
    async def scene(nodes: Nodes) -> None:
        nodes.links.lose(FOLLOWER, LEADER, 0.5, one_way=True)
        ends = await asyncio.gather(*(nodes.start(n, timeout_ms=10) for n in range(100)), return_exceptions=True)
        lost = [end for end in ends if isinstance(end, NetworkError)]
        assert 30 < len(lost) < 70
        assert len(nodes.asked) == 100 - len(lost)

    play(scene)


def test_groups_are_cut_from_each_other_and_not_within() -> None:
    async def scene(nodes: Nodes) -> None:
        network = nodes.network
        for node in (3, "controller"):
            network.attach(node, nodes.answer)
        for target in (3, "controller"):
            nodes.links.cut(1, target)
            nodes.links.cut(2, target)
        assert await nodes.call(1) == 1
        assert (await network.call(3, "controller", request(2))).throttle_time_ms == 2
        for source, target in [(1, 3), (3, 1), (2, "controller"), ("controller", 1)]:
            assert network.link(source, target).is_cut
            with pytest.raises(NetworkError):
                await network.call(source, target, request(3), timeout_ms=1)
        nodes.links.heal()
        for other in (2, 3, "controller"):
            nodes.links.cut(1, other)
        assert not network.link(2, 3).is_cut
        assert network.link(1, 2).is_cut

    play(scene)


def test_a_gate_holds_messages_until_a_token_comes() -> None:
    async def scene(nodes: Nodes) -> None:
        gate = nodes.hold("Fetch", LEADER)
        calls = [nodes.start(number) for number in range(3)]
        await asyncio.sleep(1)
        assert (len(gate.waiting), nodes.asked) == (3, [])
        assert nodes.held == ["FetchRequest 2->1"] * 3
        assert gate.step() == 1
        assert await calls[0] == 0
        assert nodes.asked == [0]
        assert gate.step(5) == 2
        assert gate.step() == 0
        gate.step(ahead=True)
        assert await nodes.call(9) == 9
        last = nodes.start(10)
        await asyncio.sleep(1)
        assert not last.done()
        nodes.network.release(gate)
        assert await last == 10

    play(scene)


def test_a_gate_that_is_closed_again_has_no_tokens_left() -> None:
    gate, passed = Gate("fetches", EventStream(int)), []
    gate.close()
    for opens in (False, True):
        gate.step(2, ahead=True)
        if opens:
            gate.open()
        gate.close()
        assert gate.enter("a call", lambda: passed.append(1)) is not None
        assert passed == [1] * opens
        gate.open()
        assert passed == [1] * (1 + opens)


def test_a_gate_for_answers_lets_requests_pass() -> None:
    async def scene(nodes: Nodes) -> None:
        gate = nodes.hold("Fetch", answers=True)
        call = nodes.start(1)
        await asyncio.sleep(1)
        assert nodes.asked == [1]
        assert nodes.held == ["FetchResponse 1->2"]
        gate.step()
        assert await call == 1

    play(scene)


def test_who_gives_up_waits_no_more_at_the_gate() -> None:
    async def scene(nodes: Nodes) -> None:
        gate = nodes.hold()
        with pytest.raises(NetworkError):
            await nodes.call(1, timeout_ms=1)
        call = nodes.start(2)
        await asyncio.sleep(1)
        call.cancel()
        await asyncio.sleep(1)
        assert not gate.waiting
        assert gate.step() == 0
        assert not nodes.asked

    play(scene)


def test_calls_to_a_paused_node_wait_and_then_arrive_in_order() -> None:
    async def scene(nodes: Nodes) -> None:
        nodes.network.pause(LEADER)
        calls = [nodes.start(number) for number in range(3)]
        with pytest.raises(NetworkError):
            await nodes.call(9, timeout_ms=1000)
        nodes.network.resume(LEADER)
        assert await asyncio.gather(*calls) == [0, 1, 2]
        assert nodes.asked == [0, 1, 2]

    play(scene)


def test_calls_to_a_node_that_goes_fail_at_once() -> None:
    async def scene(nodes: Nodes) -> None:
        nodes.waits = nodes.world.loop.create_future()
        call = nodes.start(1)
        await asyncio.sleep(1)
        nodes.network.detach(LEADER)
        with pytest.raises(NetworkError, match="has gone"):
            await call
        with pytest.raises(NetworkError, match="not there"):
            await nodes.call(2)
        assert nodes.asked == [1]

    play(scene)


def test_calls_to_a_machine_without_power_hear_nothing() -> None:
    async def scene(nodes: Nodes) -> None:
        nodes.network.detach(LEADER, silent=True)

        async def call() -> None:
            with pytest.raises(NetworkError, match="within 500 ms"):
                await nodes.call(1, timeout_ms=500)

        assert await elapsed_ms(nodes, call()) == 500

    play(scene)


def test_what_was_meant_for_an_earlier_life_does_not_reach_the_next() -> None:
    async def scene(nodes: Nodes) -> None:
        nodes.links.delay(FOLLOWER, LEADER, 100)
        call = nodes.start(1, timeout_ms=1000)
        await nodes.world.clock.sleep(50)
        nodes.network.detach(LEADER, silent=True)
        nodes.network.attach(LEADER, nodes.answer)
        with pytest.raises(NetworkError):
            await call
        assert not nodes.asked
        assert await nodes.call(2) == 2

    play(scene)


def test_a_handler_may_wait_and_others_are_answered_meanwhile() -> None:
    async def scene(nodes: Nodes) -> None:
        nodes.waits = nodes.world.loop.create_future()
        first = nodes.start(1)
        await asyncio.sleep(1)
        waits, nodes.waits = nodes.waits, None
        assert await nodes.call(2) == 2
        nodes.waits = waits
        waits.set_result(None)
        assert await first == 1

    play(scene)


def test_a_handler_may_give_a_future() -> None:
    async def scene(nodes: Nodes) -> None:
        answer: asyncio.Future[FetchResponse] = nodes.world.loop.create_future()
        nodes.network.attach(3, lambda *_: answer)
        call = nodes.world.loop.create_task(nodes.network.call(FOLLOWER, 3, request(1)))
        await asyncio.sleep(1)
        answer.set_result(FetchResponse(responses=[]))
        assert await call is answer.result()

    play(scene)


def test_what_a_killed_process_was_about_to_answer_is_never_sent() -> None:
    async def scene(nodes: Nodes) -> None:
        seen: list[str] = []

        async def answer(source: object, message: object, version: int) -> FetchResponse:
            seen.append("asked")
            await asyncio.sleep(1)
            seen.append("answered")
            return FetchResponse(responses=[])

        async def program() -> None:
            nodes.network.attach(3, answer)

        process = nodes.world.loop.process("broker-3")
        await process.run(program())
        call = nodes.world.loop.create_task(nodes.network.call(FOLLOWER, 3, request(1), timeout_ms=5000))
        await asyncio.sleep(0.5)
        process.kill()
        with pytest.raises(NetworkError, match="within 5000 ms"):  # for the network was not told
            await call
        assert seen == ["asked"]

    play(scene)


def test_nodes_may_call_each_other_while_they_are_called() -> None:
    async def scene(nodes: Nodes) -> None:
        async def ask_back(source: Any, message: Any, version: int) -> Any:
            return await nodes.network.call(3, FOLLOWER, message)

        nodes.network.attach(3, ask_back)
        assert (await nodes.network.call(FOLLOWER, 3, request(5))).throttle_time_ms == 5

    play(scene)


def test_an_error_of_a_handler_breaks_the_call_and_the_run() -> None:
    async def scene(nodes: Nodes) -> None:
        def fail(source: object, message: object, version: int) -> None:
            raise ValueError("a bug")

        nodes.network.attach(3, fail)
        with pytest.raises(NetworkError, match="closed"):
            await nodes.network.call(FOLLOWER, 3, request(1))

    with pytest.raises(ValueError, match="a bug"):
        play(scene)


def test_encoding_carries_only_what_the_version_has() -> None:
    async def scene(nodes: Nodes) -> None:
        sent = FetchRequest(max_wait_ms=1, min_bytes=1, max_bytes=77, topics=[], forgotten_topics_data=[])
        seen: list[FetchRequest] = []

        def answer(source: object, message: FetchRequest, version: int) -> FetchResponse:
            seen.append(message)
            return FetchResponse(responses=[])

        nodes.network.attach(3, answer)
        await nodes.network.call(FOLLOWER, 3, sent, version=2)
        nodes.network.encodes = True
        await nodes.network.call(FOLLOWER, 3, sent, version=2)
        assert seen[0] is sent
        assert seen[1] is not sent
        assert (seen[0].max_bytes, seen[1].max_bytes) == (77, 0x7FFFFFFF)  # Fetch has max_bytes since version 3

    play(scene)


def test_changes_and_messages_are_told() -> None:
    async def scene(nodes: Nodes) -> None:
        heard: list[str] = []
        nodes.world.events.subscribe(lambda event: heard.append(event.line), KINDS)
        nodes.links.cut(FOLLOWER, LEADER, one_way=True)
        nodes.links.cut(FOLLOWER, LEADER, one_way=True)
        nodes.links.heal(FOLLOWER, LEADER)
        await nodes.call(1)
        assert heard == [
            "link 2->1 cut",
            "link 2->1 healed",
            "message 2->1 FetchRequest sent",
            "message 2->1 FetchRequest delivered",
            "message 1->2 FetchResponse sent",
            "message 1->2 FetchResponse delivered",
        ]

    play(scene)


def test_the_same_seed_goes_the_same_way() -> None:
    async def main(world: World) -> list[int]:
        nodes = Nodes(world)
        heard: list[Event] = []
        world.events.subscribe(heard.append, KINDS)
        nodes.links.delay(FOLLOWER, LEADER, 1, jitter_ms=20)
        nodes.links.lose(FOLLOWER, LEADER, 0.1)
        nodes.network.link(FOLLOWER, LEADER).twice_share = 0.1
        nodes.network.link(LEADER, FOLLOWER).late_share = 0.1
        await asyncio.gather(*(nodes.start(n, timeout_ms=100) for n in range(200)), return_exceptions=True)
        await world.clock.sleep(70_000)
        return nodes.times

    first, again, other = simulate(main, 5), simulate(main, 5), simulate(main, 6)
    assert first.check() == again.check()
    assert first.trace_hash == again.trace_hash != other.trace_hash

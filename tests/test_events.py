"""The stream of events: order, numbers, who is told, how one waits, and what a watcher that fails does."""

from __future__ import annotations

import asyncio
import json
import time

import pytest

from minibroker import event_kinds
from minibroker.event_kinds import Append, HighWatermark, Isr, Leader, Message
from minibroker.events import KINDS, Event, EventStream, from_json


def moved(offset: int) -> HighWatermark:
    why = "both replicas have it"
    return HighWatermark(broker=1, topic="orders", partition=0, previous=offset - 1, offset=offset, why=why)


def example(cls: type[Event]) -> Event:
    """Return an event of a kind with values for all that has none by itself."""
    values = {"before": (1, 2), "after": (1,), "why": "a test wants it", "topic": "orders"}
    values |= {"brokers": (1, 2), "shares": (10, 20)}
    values |= {"adding": (3,), "removing": (), "eligible": (2,), "members": (("anna-7", "anna", 1, "orders-0"),)}
    words = {"client", "state", "what", "source", "target", "name", "gate", "fault", "where"}
    for field in cls.fields:
        if field not in values and not hasattr(cls, field):
            values[field] = "Word" if field in words else 7
    return cls(**{field: value for field, value in values.items() if field in cls.fields})


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_every_kind_has_a_line_a_sentence_and_a_way_back_from_json(kind: str) -> None:
    stream = EventStream(lambda: 1234)
    stream.subscribe(id)
    event = example(KINDS[kind])
    stream.emit(event)
    assert event.sentence.endswith(".")
    assert event.sentence[0].isupper()
    assert "{" not in event.sentence
    assert "\n" not in event.line
    assert "{" not in event.line
    row = json.loads(json.dumps(event.as_json()))
    assert (row["number"], row["at_ms"], row["kind"]) == (1, 1234, kind)
    again = from_json(row)
    assert type(again) is type(event)
    assert again.as_json() == event.as_json()


def test_the_kinds_of_the_issue_are_there() -> None:
    wanted = "append truncate high_watermark isr leader epoch fetch produce ack broker link clock fault roll delete"
    assert set(wanted.split()) <= set(KINDS)
    assert all(cls.__doc__ for cls in vars(event_kinds).values() if isinstance(cls, type))


def test_a_sentence_says_what_happened_and_why() -> None:
    appended = Append(
        broker=1, topic="orders", partition=0, first_offset=3, last_offset=4, leader_epoch=2, size_bytes=90
    )
    assert appended.line == "append b1 orders-0 offsets=3..4 leo=5"
    assert appended.sentence == (
        "Broker 1 appended 2 records that came from a producer to orders-0; its log ends at 5 now, in leader epoch 2."
    )
    assert moved(5).line == "hw b1 orders-0 4->5"
    assert moved(5).sentence == (
        "Broker 1 moved the high watermark of orders-0 from 4 to 5, because both replicas have it."
    )
    shrunk = Isr(
        broker=1,
        topic="orders",
        partition=0,
        before=(1, 2),
        after=(1,),
        leader_epoch=2,
        partition_epoch=9,
        why="broker 2 has not caught up for 30000 ms",
    )
    assert shrunk.line == "isr orders-0 1,2->1"
    lost = Leader(
        broker=2, topic="orders", partition=0, previous=1, leader_epoch=3, why="nobody else is up", is_clean=False
    )
    assert lost.line == "leader orders-0 b1->b2 epoch=3 unclean"
    assert "though it was not in sync, because nobody else is up" in lost.sentence


def test_nobody_watches_then_nothing_is_counted() -> None:
    stream = EventStream()
    assert not stream.observed
    stream.emit(moved(1))
    assert stream.last_number == 0
    with stream.subscribe(id):
        assert stream.observed
    assert not stream.observed


def test_looking_whether_anybody_watches_costs_nearly_nothing() -> None:
    stream = EventStream()

    def run(count: int) -> float:
        begun = time.perf_counter()
        for _ in range(count):
            if stream.observed:
                stream.emit(moved(1))
        return time.perf_counter() - begun

    assert min(run(10_000) for _ in range(5)) / 10_000 < 1e-6  # some 20 ns; the limit is for machines that are busy


def test_everybody_gets_every_event_in_order_even_those_made_by_a_callback() -> None:
    stream = EventStream()
    first: list[int] = []
    second: list[int] = []

    def answer(event: Event) -> None:
        first.append(event.number)
        if isinstance(event, HighWatermark) and event.offset < 3:
            stream.emit(moved(event.offset + 1))

    stream.subscribe(answer)
    stream.subscribe(lambda event: second.append(event.number))
    stream.emit(moved(1))
    assert first == second == [1, 2, 3]


def test_a_subscription_can_name_kinds_and_end() -> None:
    stream = EventStream()
    heard: list[str] = []
    subscription = stream.subscribe(lambda event: heard.append(event.kind), ["high_watermark"])
    stream.emit(example(Append))
    stream.emit(moved(1))
    subscription.cancel()
    stream.emit(moved(2))
    assert heard == ["high_watermark"]


def test_what_is_wanted_is_what_anybody_is_told_of() -> None:
    stream = EventStream()
    assert not stream.wanted
    with stream.subscribe(id, ["leader"]), stream.subscribe(id, ["isr"]):
        assert stream.wanted == {"leader", "isr"}
        with stream.subscribe(id):
            assert stream.wanted == set(KINDS) - {"message", "allowed"}
        assert stream.wanted == {"leader", "isr"}
    assert not stream.wanted


def test_messages_are_for_those_who_ask_for_them() -> None:
    stream = EventStream()
    usual: list[str] = []
    asked: list[str] = []
    stream.subscribe(lambda event: usual.append(event.kind))
    stream.subscribe(lambda event: asked.append(event.kind), ["message"])
    stream.emit(moved(1))
    stream.emit(Message(source="1", target="2", name="FetchRequest", letter=1, state="sent"))
    assert (usual, asked) == (["high_watermark"], ["message"])


def test_a_watcher_that_fails_disturbs_nobody_and_is_told_no_more() -> None:
    stream = EventStream()
    heard: list[int] = []

    def fail(event: Event) -> None:
        raise ValueError("mine")

    broken = stream.subscribe(fail)
    stream.subscribe(lambda event: heard.append(event.number))
    stream.emit(moved(1))
    stream.emit(moved(2))
    assert heard == [1, 2]
    assert isinstance(broken.failure, ValueError)


async def test_a_failure_of_a_watcher_reaches_the_loop() -> None:
    told: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
    stream = EventStream()
    stream.subscribe(lambda event: [][0])
    stream.emit(moved(1))
    assert isinstance(told[0]["exception"], IndexError)


async def test_a_listener_gives_the_events_from_its_making_on() -> None:
    stream = EventStream()
    async with stream.listen() as heard:
        stream.emit(moved(1))
        asyncio.get_running_loop().call_soon(stream.emit, moved(2))
        found = []
        async for event in heard:
            found.append(event.number)
            if len(found) == 2:
                break
    assert found == [1, 2]
    assert not stream.observed
    assert [event async for event in heard] == []


async def test_closing_a_listener_ends_who_reads_it() -> None:
    stream = EventStream()
    heard = stream.listen()
    asyncio.get_running_loop().call_soon(heard.close)
    assert [event async for event in heard] == []


async def test_a_slow_listener_loses_the_oldest_and_is_told() -> None:
    stream = EventStream()
    async with stream.listen(buffered_max=3) as heard:
        for offset in range(1, 6):
            stream.emit(moved(offset))
        heard.close()
        assert [event.number async for event in heard] == [3, 4, 5]
        assert heard.dropped_count == 2


async def test_waiting_for_an_event_returns_it() -> None:
    stream = EventStream()
    asyncio.get_running_loop().call_soon(lambda: [stream.emit(moved(offset)) for offset in range(1, 9)])
    event = await stream.wait_for(lambda event: isinstance(event, HighWatermark) and event.offset >= 5)
    assert event.number == 5
    assert not stream.observed


async def test_waiting_until_something_holds_looks_at_once_and_then_after_events() -> None:
    stream = EventStream()
    state = {"isr": 1}
    looks: list[int] = []

    def holds() -> bool:
        looks.append(state["isr"])
        return state["isr"] == 3

    def grow() -> None:
        state["isr"] += 1
        stream.emit(moved(1))

    loop = asyncio.get_running_loop()
    loop.call_soon(grow)
    loop.call_soon(grow)
    await stream.wait_until(holds)
    assert looks == [1, 2, 3]
    await stream.wait_until(holds)


async def test_patience_ends() -> None:
    stream = EventStream()
    with pytest.raises(TimeoutError, match="within 1 ms"):
        await stream.wait_for(lambda event: True, timeout_ms=1)
    assert not stream.observed


async def test_a_condition_that_fails_fails_who_waits_for_it() -> None:
    stream = EventStream()
    asyncio.get_running_loop().call_soon(stream.emit, moved(1))
    with pytest.raises(ZeroDivisionError):
        await stream.wait_for(lambda event: 1 // 0)

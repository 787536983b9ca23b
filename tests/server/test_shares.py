"""Nobody waits for somebody else's work: what comes together, or takes long, is done in shares."""

from __future__ import annotations

import asyncio

import pytest

from minibroker.errors import InvalidLength, ProtocolError
from minibroker.protocol.messages.api_versions import ApiVersionsRequest
from minibroker.protocol.messages.metadata import MetadataRequest
from minibroker.server.connection import SHARE_REQUESTS
from minibroker.server.later import Later
from minibroker.turns import FIRST_US, SHARE_US, WORK_US_MAX, Shares, is_work
from tests.server.running import FedTransport, append, connected, fetch, frame, running, settle, turns

METADATA, VERSIONS, FETCH = (3, 9), (18, 0), (1, 12)
ASK = MetadataRequest(topics=[])
PING = ApiVersionsRequest()
Topic = MetadataRequest.MetadataRequestTopic


def names(count: int) -> MetadataRequest:
    return MetadataRequest(topics=[Topic(name=f"name-{index}") for index in range(count)], **NO_CREATION)


NO_CREATION = {"allow_auto_topic_creation": False}


def steps(log: list[str], name: str, count: int, each_us: int) -> object:
    for _ in range(count):
        log.append(name)
        yield each_us
    return name


async def waits() -> None: ...


def test_work_is_a_generator_and_nothing_else_that_a_handler_returns() -> None:
    assert is_work(steps([], "a", 1, 1))
    coroutine = waits()
    for other in (None, PING, [b""], Later(), coroutine, iter(())):
        assert not is_work(other), other
    coroutine.close()


async def test_work_of_several_is_done_by_turns() -> None:
    log: list[str] = []
    shares = Shares(lambda callback: callback())
    one = asyncio.ensure_future(shares.run(steps(log, "a", 8, SHARE_US // 2)))  # type: ignore[arg-type]
    two = asyncio.ensure_future(shares.run(steps(log, "b", 4, SHARE_US)))  # type: ignore[arg-type]
    assert (await one, await two) == ("a", "b")
    assert "".join(log) == "aabaabaabaab"


async def test_little_work_is_done_at_once_and_much_is_not() -> None:
    shares = Shares(lambda callback: callback())
    log: list[str] = []
    assert shares.start(steps(log, "a", 3, FIRST_US // 3)) == "a"  # type: ignore[arg-type]
    later = shares.start(steps(log, "b", 100, FIRST_US // 3))  # type: ignore[arg-type]
    assert log.count("b") < 6
    assert await later == "b"  # type: ignore[misc]


async def test_work_that_is_given_up_is_closed() -> None:
    shares = Shares(lambda callback: callback())
    ended = []

    def work() -> object:
        try:
            while True:
                yield SHARE_US
        finally:
            ended.append(True)

    task = asyncio.ensure_future(shares.run(work()))  # type: ignore[arg-type]
    await turns(10)
    task.cancel()
    await turns(3)
    assert ended


async def test_work_that_fails_holds_up_nobody() -> None:
    shares = Shares(lambda callback: callback())

    def work() -> object:
        yield SHARE_US
        raise ValueError("broken")

    failing = asyncio.ensure_future(shares.run(work()))  # type: ignore[arg-type]
    fine = asyncio.ensure_future(shares.run(steps([], "a", 10, SHARE_US)))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="broken"):
        await failing
    assert await fine == "a"


@pytest.mark.parametrize("waits", [False, True])
async def test_work_without_end_is_refused(waits: bool) -> None:
    """What waits now and then is as long as what does not."""
    shares = Shares(lambda callback: callback())
    done_us = 0
    ended = []

    def work() -> object:
        nonlocal done_us
        try:
            while True:
                yield SHARE_US // 2
                done_us += SHARE_US // 2
                if waits:
                    yield asyncio.sleep(0)
        finally:
            ended.append(True)

    with pytest.raises(InvalidLength, match="more work than 5 seconds"):
        await asyncio.wait_for(shares.run(work()), 60)  # type: ignore[arg-type]
    assert WORK_US_MAX - SHARE_US <= done_us <= WORK_US_MAX + SHARE_US
    assert ended


async def test_work_of_almost_that_length_is_done() -> None:
    shares = Shares(lambda callback: callback())
    assert await shares.run(steps([], "a", WORK_US_MAX // SHARE_US, SHARE_US)) == "a"  # type: ignore[arg-type]


async def test_one_who_sends_much_at_once_does_not_keep_others_waiting() -> None:
    async with running() as node:
        greedy, others = FedTransport(node), [FedTransport(node) for _ in range(3)]
        greedy.feed(frame(PING, 0) * 10 * SHARE_REQUESTS)
        assert 0 < node.asked_count <= SHARE_REQUESTS
        for each in others:
            each.feed(frame(PING, 0))
            assert each.answers(VERSIONS)
        await greedy.idle()
        assert node.asked_count == 10 * SHARE_REQUESTS + len(others)
        assert len(greedy.sent) == len(others[0].sent) * 10 * SHARE_REQUESTS
        for each in (greedy, *others):
            each.close()


async def test_what_one_who_has_gone_wanted_is_not_done() -> None:
    async with running() as node:
        fed = FedTransport(node)
        fed.feed(frame(PING, 0) * 10 * SHARE_REQUESTS)
        before = node.asked_count
        fed.is_gone = True  # as a transport whose write has failed, before it has told
        await turns(30)
        assert node.asked_count <= before + 1
        fed.is_gone = False
        fed.close()
        await turns()


async def test_a_share_is_as_long_as_the_clock_says() -> None:
    """Of requests that take long a share has fewer."""
    async with running() as node:
        node.create_topic("wide", 2000)
        fed = FedTransport(node)
        fed.feed(frame(MetadataRequest(topics=[Topic(name="wide")]), 9) * 20)
        await turns(1)
        assert node.asked_count < 20
        await fed.idle()
        assert node.asked_count == 20
        fed.close()


async def test_answers_keep_their_order_when_some_take_long() -> None:
    async with running() as node, connected(node) as client:
        node.create_topic("t")
        append(node, "t", b"a")
        for number in range(0, 60, 3):
            client.send(frame(names(3000), 9, number))
            client.send(frame(fetch("t"), 12, number + 1))
            client.send(frame(PING, 0, number + 2))
        for number in range(0, 60, 3):
            found, answer = await client.answer(*METADATA)
            assert (found, len(answer.topics)) == (number, 3000)
            assert (await client.answer(*FETCH))[0] == number + 1
            assert (await client.answer(*VERSIONS))[0] == number + 2


async def test_a_large_request_is_read_and_answered_while_others_are() -> None:
    """Counted in turns of the loop that a neighbour gets, not in time."""
    async with running() as node, connected(node) as client:
        fed = FedTransport(node)
        client.send(frame(names(10_000), 9))
        count = 0
        answer = asyncio.ensure_future(client.answer(*METADATA))
        while not answer.done():
            fed.feed(frame(PING, 0))
            await asyncio.sleep(0)
            count += 1
        assert len((await answer)[1].topics) == 10_000
        assert count > 10
        fed.close()


async def test_a_large_request_of_one_who_goes_is_given_up() -> None:
    async with running() as node:
        for size in (100, 10_000):
            async with connected(node) as client:
                client.send(frame(names(size), 9))
                await turns(4)
                client.reset()
            await settle(node)
        assert not node.dispatcher.shares._waiting


async def test_a_large_request_that_is_broken_is_refused_with_its_place() -> None:
    whole = frame(names(5000), 9)
    broken = whole[:-3]
    async with running() as node, connected(node) as client:
        client.send((len(broken) - 4).to_bytes(4, "big") + broken[4:])
        assert await client.is_closed()


def test_the_place_of_an_error_is_not_looked_for_without_end() -> None:
    data = names(40_000).encode(9)[:-1]
    with pytest.raises(ProtocolError, match="here or behind"):
        MetadataRequest.decode(data, 9)

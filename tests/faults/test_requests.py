"""What becomes of requests that a rule strikes, seen from the other end of a socket."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from minibroker.clock.steered import SteeredClock
from minibroker.errors import Error, ProtocolError
from minibroker.events import Event, EventStream
from minibroker.faults import FaultError
from minibroker.protocol.messages.fetch import FetchRequest
from minibroker.protocol.messages.metadata import MetadataRequest
from tests.server.running import Client, append, batch, connected, fetch, frame, produce, running, turns, values_of

pytestmark = pytest.mark.outside

PRODUCE, FETCH, METADATA = 0, 1, 3
NO_TOPICS = MetadataRequest(topics=[])


async def is_silent(client: Client) -> bool:
    """Whether nothing arrives although everybody had his turn."""
    reading = asyncio.ensure_future(client.reader.read(1))
    await turns()
    came = reading.done()
    reading.cancel()
    return not came


async def test_without_rules_nothing_asks_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running() as node, connected(node) as client:
        assert node.dispatcher.injection is None
        monkeypatch.setattr(type(node.faults), "strikes", lambda *_: pytest.fail("a rule was asked"))
        await client.ask(NO_TOPICS, 9)
        rule = node.faults.add(delay_ms=1)
        assert node.dispatcher.injection is not None
        node.faults.remove(rule.id)
        assert node.dispatcher.injection is None  # as if there had never been one
        await client.ask(NO_TOPICS, 9)
        assert type(client) is Client


async def test_an_error_is_answered_as_often_as_the_rule_says_and_nothing_is_written() -> None:
    async with running() as node, connected(node) as client:
        node.create_topic("orders")
        node.faults.add(api="Produce", topic="orders", error="NOT_LEADER_OR_FOLLOWER", times=2)
        codes = []
        for _ in range(3):
            response = await client.ask(produce("orders", batch(b"a")), 9)
            codes.append(response.responses[0].partition_responses[0].error_code)
        assert codes == [6, 6, 0]
        assert values_of(node, "orders") == [b"a"]


async def test_an_error_afterwards_is_that_of_a_lost_acknowledgement() -> None:
    async with running() as node, connected(node) as client:
        node.create_topic("orders")
        node.faults.add(api="Produce", error="NOT_ENOUGH_REPLICAS_AFTER_APPEND", after=True)
        (topic,) = (await client.ask(produce("orders", batch(b"a")), 9)).responses
        (row,) = topic.partition_responses
        assert (row.error_code, row.base_offset) == (Error.NOT_ENOUGH_REPLICAS_AFTER_APPEND, -1)
        assert "by rule 1" in row.error_message
        assert values_of(node, "orders") == [b"a"]


def produce_two(topic_id: bytes = bytes(16), acks: int = 1) -> Any:
    request = produce("" if topic_id != bytes(16) else "orders", batch(b"a"), acks=acks)
    rows = request.topic_data[0].partition_data
    rows.append(type(rows[0])(index=1, records=batch(b"b")))
    request.topic_data[0].topic_id = topic_id
    return request


@pytest.mark.parametrize("version", [3, 9, 12, 13])
async def test_other_partitions_are_written_as_ever(version: int) -> None:
    async with running() as node, connected(node) as client:
        node.create_topic("orders", 2)
        topic_id = node.image.topics["orders"].id if version >= 13 else bytes(16)
        node.faults.add(api="Produce", topic="orders", partition=0, error="CORRUPT_MESSAGE")
        (topic,) = (await client.ask(produce_two(topic_id), version)).responses
        assert topic.topic_id == topic_id
        assert {row.index: row.error_code for row in topic.partition_responses} == {0: 2, 1: 0}
        assert (values_of(node, "orders", 0), values_of(node, "orders", 1)) == ([], [b"b"])


async def test_with_acks_0_an_error_closes_the_connection() -> None:
    async with running() as node, connected(node) as client:
        node.create_topic("orders", 2)
        node.faults.add(api="Produce", partition=0, error="NOT_LEADER_OR_FOLLOWER")
        client.send(frame(produce_two(acks=0), 9))
        assert await client.is_closed()
        assert (values_of(node, "orders", 0), values_of(node, "orders", 1)) == ([], [b"b"])


async def test_with_acks_0_a_dropped_request_is_one_record_less() -> None:
    async with running() as node, connected(node) as client:
        node.create_topic("orders")
        node.faults.add(api="Produce", drop_request=True, nth=2)
        for value in (b"a", b"b", b"c"):
            client.send(frame(produce("orders", batch(value), acks=0), 9))
        await client.ask(NO_TOPICS, 9)
        assert values_of(node, "orders") == [b"a", b"c"]


@pytest.mark.parametrize(("drop", "written"), [("drop_request", []), ("drop_response", [b"a"])])
async def test_what_is_dropped_silences_its_connection_and_no_other(drop: str, written: list[bytes]) -> None:
    async with running() as node, connected(node) as client, connected(node) as other:
        node.create_topic("orders")
        node.faults.add(api="Produce", times=1, **{drop: True})
        client.send(frame(produce("orders", batch(b"a")), 9, 1) + frame(NO_TOPICS, 9, 2))
        await other.ask(NO_TOPICS, 9)
        assert await is_silent(client)  # nothing behind a lost segment arrives either
        assert values_of(node, "orders") == written
        await other.ask(produce("orders", batch(b"b")), 9)


@pytest.mark.parametrize(("when", "written"), [("before", []), ("after", [b"a"])])
async def test_a_connection_is_closed_before_or_after(when: str, written: list[bytes]) -> None:
    async with running() as node, connected(node) as client:
        node.create_topic("orders")
        node.faults.add(api="Produce", close=when)
        client.send(frame(produce("orders", batch(b"a")), 9))
        assert await client.is_closed()
        assert values_of(node, "orders") == written


async def test_an_answer_is_cut_off() -> None:
    async with running() as node, connected(node) as client:
        node.faults.add(api="Metadata", truncate=9)
        client.send(frame(NO_TOPICS, 9))
        assert len(await client.reader.read()) == 9


@pytest.mark.parametrize("place", [-1, 12])
async def test_a_byte_of_an_answer_is_inverted(place: int) -> None:
    async with running() as node, connected(node) as client:
        client.send(frame(NO_TOPICS, 9))
        whole = await client.reader.readexactly(4)
        whole += await client.reader.readexactly(int.from_bytes(whole, "big"))
        node.faults.add(api="Metadata", corrupt=place)
        client.send(frame(NO_TOPICS, 9))
        broken = await client.reader.readexactly(len(whole))
        changed = [index for index, (ours, theirs) in enumerate(zip(whole, broken)) if ours != theirs]
        assert changed == [place % len(whole)]


async def test_chance_leaves_the_length_alone() -> None:
    async with running() as node, connected(node) as client:
        node.faults.add(api="Metadata", corrupt="random")
        for _ in range(20):
            client.send(frame(NO_TOPICS, 9))
            length = int.from_bytes(await client.reader.readexactly(4), "big")
            await client.reader.readexactly(length)


async def test_our_client_notices_a_corrupt_record() -> None:
    async with running() as node, connected(node) as client:
        node.create_topic("orders")
        append(node, "orders", b"hello")
        node.faults.add(api="Fetch", corrupt=-1)
        from minibroker.log.batches import batches

        (topic,) = (await client.ask(fetch("orders"), 11)).responses
        with pytest.raises(ProtocolError, match=r"(?i)crc|checksum"):
            [list(each.records(check_crc=True)) for each in batches(topic.partitions[0].records)]


async def test_an_answer_is_late_by_the_brokers_clock() -> None:
    clock = SteeredClock()
    clock.freeze()
    async with running(clock=clock) as node, connected(node) as client:
        node.create_topic("orders")
        node.faults.add(api="Produce", delay_ms=500)
        client.send(frame(produce("orders", batch(b"a")), 9))
        await clock.advance(499)
        assert await is_silent(client)
        assert values_of(node, "orders") == [b"a"]
        await clock.advance(1)
        assert (await client.answer(PRODUCE, 9))[0] == 1


async def test_a_throttled_client_is_told_and_made_to_wait() -> None:
    clock = SteeredClock()
    clock.freeze()
    async with running(clock=clock) as node, connected(node) as client:
        node.faults.add(api="Metadata", throttle_ms=1000, times=1)
        client.send(frame(NO_TOPICS, 9, 1) + frame(NO_TOPICS, 9, 2))
        number, response = await client.answer(METADATA, 9)
        assert (number, response.throttle_time_ms) == (1, 1000)
        assert await is_silent(client)
        await clock.advance(1000)
        assert (await client.answer(METADATA, 9))[0] == 2


async def test_the_first_rule_that_strikes_decides() -> None:
    async with running() as node, connected(node) as client:
        first = node.faults.add(api="ListOffsets", delay_ms=1)
        second = node.faults.add(api="Metadata", throttle_ms=7, times=1)
        third = node.faults.add(throttle_ms=9)
        assert (await client.ask(NO_TOPICS, 9)).throttle_time_ms == 7
        assert (await client.ask(NO_TOPICS, 9)).throttle_time_ms == 9
        assert [rule.match_count for rule in (first, second, third)] == [0, 1, 1]


# Fetch sessions


def session_fetch(session_id: int, epoch: int, topic_id: bytes, partitions: range, wait_ms: int = 0) -> FetchRequest:
    Topic = FetchRequest.FetchTopic
    rows = [Topic.FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1000) for index in partitions]
    name = "" if topic_id != bytes(16) else "orders"
    topics = [Topic(topic=name, topic_id=topic_id, partitions=rows)] if rows else []
    return FetchRequest(
        max_wait_ms=wait_ms, min_bytes=1, session_id=session_id, session_epoch=epoch, replica_id=-1, topics=topics
    )


def fetched(response: Any) -> dict[int, int]:
    return {row.partition_index: row.error_code for topic in response.responses for row in topic.partitions}


@pytest.mark.parametrize("version", [7, 12, 13, 17])
async def test_a_partition_of_a_fetch_session_has_an_error_and_then_none(version: int) -> None:
    async with running() as node, connected(node) as client:
        node.create_topic("orders", 2)
        topic_id = node.image.topics["orders"].id if version >= 13 else bytes(16)
        opened = await client.ask(session_fetch(0, 0, topic_id, range(2)), version)
        session_id = opened.session_id
        assert session_id
        rule = node.faults.add(api="Fetch", topic="orders", partition=1, error="NOT_LEADER_OR_FOLLOWER")
        # Nothing is named: the session is. It would wait for a minute, but an error is told at once.
        response = await client.ask(session_fetch(session_id, 1, topic_id, range(0), 60_000), version)
        assert (response.session_id, response.error_code, fetched(response)) == (session_id, 0, {1: 6})
        node.faults.remove(rule.id)
        response = await client.ask(session_fetch(session_id, 2, topic_id, range(0)), version)
        assert fetched(response) == {1: 0}  # that the error is gone is news
        response = await client.ask(session_fetch(session_id, 3, topic_id, range(0)), version)
        assert fetched(response) == {}


async def test_records_of_other_partitions_come_with_the_error() -> None:
    async with running() as node, connected(node) as client:
        node.create_topic("orders", 2)
        append(node, "orders", b"a")
        node.faults.add(api="Fetch", partition=1, error="KAFKA_STORAGE_ERROR")
        response = await client.ask(session_fetch(0, -1, bytes(16), range(2)), 11)
        (topic,) = response.responses
        assert {row.partition_index: (row.error_code, bool(row.records)) for row in topic.partitions} == {
            0: (0, True),
            1: (56, False),
        }


async def test_an_error_of_the_session_is_one_of_the_whole_fetch() -> None:
    async with running() as node, connected(node) as client:
        node.create_topic("orders")
        node.faults.add(api="Fetch", error="FETCH_SESSION_ID_NOT_FOUND", times=1)
        response = await client.ask(fetch("orders"), 11)
        assert (response.error_code, response.session_id, response.responses) == (70, 0, [])


# Keeping rules


async def test_what_is_not_served_needs_no_rule() -> None:
    async with running() as node:
        with pytest.raises(FaultError, match="not served"):
            node.faults.add(api="Vote", delay_ms=1)
        with pytest.raises(FaultError, match="there is no rule 5"):
            node.faults.remove(5)


async def test_what_happens_to_rules_and_toxics_is_told() -> None:
    told: list[Event] = []
    async with running() as node, connected(node) as client:
        node.faults.events = EventStream()
        node.faults.events.subscribe(told.append)
        node.faults.add(api="Metadata", delay_ms=1, times=1)
        await client.ask(NO_TOPICS, 9)
        await client.ask(NO_TOPICS, 9)
        node.faults.clear()
        node.faults.add_toxic(type="latency")
        node.faults.clear_toxics()
    assert [event.line for event in told] == [
        "fault 1 (delay_ms=1) is set b1 api=Metadata times=1",
        "fault 1 (delay_ms=1) strikes b1 api=Metadata times=1",
        "fault 1 (delay_ms=1) is removed b1 api=Metadata times=1",
        "fault latency_downstream is set b1 downstream",
        "fault latency_downstream is removed b1 downstream",
    ]

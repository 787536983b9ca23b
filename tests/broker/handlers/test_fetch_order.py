"""The order of partitions in a Fetch response: that of the request or session, where those with records go last."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from minibroker.broker.broker import Node
from minibroker.protocol.messages.fetch import FetchRequest, FetchResponse
from tests.server.running import Client, append, connected, running

Topic = FetchRequest.FetchTopic
VERSION = 12  # the last that names topics
UNKNOWN = "unknown"
EVERYTHING, ONE_BATCH = 1 << 20, 1


@pytest.fixture
async def node() -> AsyncIterator[Node]:
    async with running() as node:
        for topic in "tuv":
            node.create_topic(topic, 2)
            append(node, topic, b"some value")
        yield node


def asked(*rows: tuple[str, int], session: int = 0, epoch: int = -1, bytes_max: int = EVERYTHING) -> FetchRequest:
    return FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=bytes_max,
        session_id=session,
        session_epoch=epoch,
        topics=[
            Topic(
                topic=topic,
                partitions=[Topic.FetchPartition(partition=partition, fetch_offset=0, partition_max_bytes=EVERYTHING)],
            )
            for topic, partition in rows
        ],
    )


def answered(answer: FetchResponse) -> list[list[tuple[str, int]]]:
    """Return the partitions of an answer, those together that stand in one entry for their topic."""
    return [[(topic.topic, row.partition_index) for row in topic.partitions] for topic in answer.responses]


async def ask(client: Client, request: FetchRequest) -> FetchResponse:
    answer = await client.ask(request, VERSION)
    assert isinstance(answer, FetchResponse)
    assert not answer.error_code
    return answer


async def test_a_topic_stands_in_an_answer_as_often_as_the_request_comes_back_to_it(node: Node) -> None:
    async with connected(node) as client:
        answer = await ask(client, asked(("t", 0), ("t", 1), ("u", 0), ("t", 7), (UNKNOWN, 0), ("v", 0)))
        assert answered(answer) == [[("t", 0), ("t", 1)], [("u", 0)], [("v", 0)], [("t", 7)], [(UNKNOWN, 0)]]


async def test_a_session_answers_in_the_order_in_which_partitions_came_into_it(node: Node) -> None:
    async with connected(node) as client:
        opened = await ask(client, asked(("t", 1), ("u", 0), ("t", 9), epoch=0))
        assert answered(opened) == [[("t", 1)], [("u", 0)], [("t", 9)]]
        session = opened.session_id
        # The order in which the request names them says nothing, and a partition that is not there comes last.
        again = await ask(client, asked(("v", 0), ("u", 0), session=session, epoch=1))
        assert answered(again) == [[("u", 0)], [("v", 0)], [("t", 9)]]
        third = await ask(client, asked(("v", 0), ("u", 0), session=session, epoch=2))
        assert answered(third) == [[("u", 0)], [("v", 0)], [("t", 9)]]


async def test_who_got_records_comes_last_where_an_answer_has_no_room_for_all(node: Node) -> None:
    async with connected(node) as client:
        rows = [("t", 0), ("u", 0), ("v", 0)]
        opened = await ask(client, asked(*rows, epoch=0, bytes_max=ONE_BATCH))
        assert answered(opened) == [[row] for row in rows]
        given = []
        for epoch in range(1, 8):
            # The offset of `u` is told anew, which is no reason to come later.
            told = [("u", 0)] if epoch == 5 else []
            answer = await ask(client, asked(*told, session=opened.session_id, epoch=epoch, bytes_max=ONE_BATCH))
            given += [topic.topic for topic in answer.responses if topic.partitions[0].records]
        assert given == ["t", "u", "v", "t", "u", "v", "t"]

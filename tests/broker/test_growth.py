"""What grows with the number of partitions, counted: one that changes costs as much among 9,000 as among ten."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from minibroker.broker.broker import Node
from minibroker.broker.dispatch import Context
from minibroker.broker.handlers import fetch as fetching
from minibroker.in_pieces import finish
from minibroker.log import reading
from minibroker.log.build import build_batch
from minibroker.log.records import Record
from minibroker.protocol.messages.fetch import FetchRequest
from minibroker.replication.replica import Replica
from minibroker.stored.topics import PartitionChangeRecord
from minibroker.turns import is_work

from .running import running_node

COUNTS = [10, 1_000, pytest.param(9_000, marks=pytest.mark.slow)]


@contextmanager
def counted(monkeypatch: pytest.MonkeyPatch, *functions: tuple[Any, str]) -> Iterator[Counter[str]]:
    """Count the calls of functions."""
    calls: Counter[str] = Counter()
    with monkeypatch.context() as patched:
        for owner, name in functions:
            patched.setattr(owner, name, counting(getattr(owner, name), name, calls))
        yield calls


def counting(function: Callable[..., Any], name: str, calls: Counter[str]) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        calls[name] += 1
        return function(*args, **kwargs)

    return call


def fetch_request(
    node: Node, session_id: int, epoch: int, numbers: range, *, offset: int = 0, wait_ms: int = 60_000
) -> FetchRequest:
    Topic = FetchRequest.FetchTopic
    rows = [
        Topic.FetchPartition(partition=number, fetch_offset=offset, partition_max_bytes=1 << 20) for number in numbers
    ]
    topics = [Topic(topic_id=node.image.topics["t"].id, partitions=rows)] if rows else []
    return FetchRequest(
        max_wait_ms=wait_ms, min_bytes=1, session_id=session_id, session_epoch=epoch, replica_id=-1, topics=topics
    )


def ask(node: Node, request: FetchRequest) -> Any:
    made = fetching.fetch(request, Context(node, SimpleNamespace(), 17, "test"))  # type: ignore[arg-type]
    return finish(made) if is_work(made) else made


def append(replica: Replica) -> None:
    data = bytearray(build_batch(2, [Record(None, b"value", (), 1_700_000_000_000)]))
    replica.append(data, now_ms=1_700_000_000_000, steady_ms=0)


def waiter_count(node: Node) -> int:
    return sum(len(replica.waiters) for replica in node.replicas.values())


def fetched(answer: Any) -> list[int]:
    return [row.partition_index for topic in answer.responses for row in topic.partitions]


async def waiting_for(answer: Any) -> asyncio.Task[Any]:
    task = asyncio.get_running_loop().create_task(answer)
    await asyncio.sleep(0)
    assert not task.done()
    return task


@pytest.mark.pure
@pytest.mark.parametrize("count", COUNTS)
async def test_a_record_costs_one_read_however_many_partitions_a_consumer_waits_for(
    count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_node() as node:
        node.create_topic("t", count)
        replicas = [node.replicas["t", number] for number in range(count)]
        opened = ask(node, fetch_request(node, 0, 0, range(count), wait_ms=0))
        session_id = opened.session_id
        assert session_id
        with counted(monkeypatch, (reading, "read")) as calls:
            named = range(0)
            for epoch in range(1, 4):
                waiting = await waiting_for(ask(node, fetch_request(node, session_id, epoch, named, offset=1)))
                changed = epoch
                append(replicas[changed])
                assert fetched(await waiting) == [changed]
                named = range(changed, changed + 1)
            assert calls["read"] == 3 + 2  # each record, and what the client then named
        assert waiter_count(node) == count - 1  # what had a record last is read with the next request anyway

        # Without a session the answer has every partition, and yet each wake reads one.
        with counted(monkeypatch, (reading, "read")) as calls:
            waiting = await waiting_for(ask(node, fetch_request(node, 0, -1, range(count // 2, count))))
            append(replicas[-1])
            assert len(fetched(await waiting)) == count - count // 2
            assert calls["read"] == count - count // 2 + 1
        node.fetch_sessions.close(session_id)
        assert waiter_count(node) == 0


@pytest.mark.pure
@pytest.mark.parametrize("count", COUNTS)
async def test_a_poll_without_news_reads_nothing(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    async with running_node() as node:
        node.create_topic("t", count)
        session_id = ask(node, fetch_request(node, 0, 0, range(count), wait_ms=0)).session_id
        with counted(monkeypatch, (reading, "read")) as calls:
            for epoch in range(1, 4):
                assert fetched(ask(node, fetch_request(node, session_id, epoch, range(0), wait_ms=0))) == []
        assert not calls


@pytest.mark.parametrize("count", COUNTS)
async def test_a_change_of_one_partition_is_about_one(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    async with running_node() as node:
        node.create_topic("t", count)
        topic = node.image.topics["t"]
        with counted(monkeypatch, (Replica, "take")) as calls:
            node.change([PartitionChangeRecord(partition_id=count // 2, topic_id=topic.id, leader=node.node_id)])
            assert calls["take"] == 1
            node.change(node.controller.create_partitions("t", count + 1))
            assert calls["take"] == 2
        assert len(node.replicas) == count + 1

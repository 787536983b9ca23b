"""A follower's fetches: what it does of an answer at once. In virtual time."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from minibroker.events import Event
from minibroker.protocol.messages.fetch import FetchRequest, FetchResponse
from minibroker.replication.fetcher import AT_ONCE_MAX
from minibroker.replication.follower_sessions import ANSWERED_MAX
from minibroker.replication.network import NodeId
from tests.cluster.virtual import TOPIC, Lab, in_cluster
from tests.server.running import batch

pytestmark = pytest.mark.outside


def test_an_answer_about_many_partitions_lets_others_have_their_turn() -> None:
    count, appended = 4 * AT_ONCE_MAX, Counter[int]()

    async def main(lab: Lab) -> None:
        cluster = lab.cluster

        def hear(event: Event) -> None:
            if event.broker == 2:  # type: ignore[attr-defined]
                appended[lab.world.loop.turns] += 1

        cluster.create_topic(TOPIC, assignments=[[1, 2]] * count)
        await cluster.waits.in_sync()
        with cluster.events.subscribe(hear, ("append",)):
            for number in range(count):
                leader = cluster.leader(TOPIC, number)
                assert leader is not None
                leader.append(bytearray(batch(b"value")), now_ms=lab.world.clock.now_ms(), steady_ms=0)
            await cluster.waits.in_sync()

    in_cluster(main, brokers=2)
    assert appended.total() == count
    assert max(appended.values()) <= AT_ONCE_MAX


@pytest.mark.parametrize("does", ["make", "start"])
def test_a_partition_is_not_asked_for_again_for_each_other_one_that_is_opened(
    does: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    count, named = 400, 0

    async def main(lab: Lab) -> None:
        cluster = lab.cluster
        call = cluster.network.call

        def counted(source: NodeId, target: NodeId, message: Any, *args: Any, **kwargs: Any) -> Any:
            nonlocal named
            if isinstance(message, FetchRequest) and target == 2:
                named += sum(len(topic.partitions) for topic in message.topics)
            return call(source, target, message, *args, **kwargs)

        if does == "make":
            monkeypatch.setattr(cluster.network, "call", counted)
        cluster.create_topic(TOPIC, assignments=[[2, 1]] * count)
        await cluster.waits.in_sync()
        await asyncio.sleep(1)  # empty ones are in sync before anybody has asked for them
        if does == "start":
            await cluster.kill(1)
            monkeypatch.setattr(cluster.network, "call", counted)
            await cluster.start(1)
            await cluster.waits.in_sync()

    in_cluster(main, brokers=2)
    assert count <= named <= 3 * count


def test_an_answer_has_records_of_so_many_partitions_and_the_next_ones_the_rest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    count, sizes = 3 * ANSWERED_MAX, Counter[int]()

    async def main(lab: Lab) -> None:
        cluster = lab.cluster
        call = cluster.network.call

        async def counted(*args: Any, **kwargs: Any) -> Any:
            answer = await call(*args, **kwargs)
            if isinstance(answer, FetchResponse):
                sizes[sum(bool(each.records) for topic in answer.responses for each in topic.partitions)] += 1
            return answer

        cluster.create_topic(TOPIC, assignments=[[1, 2]] * count)
        await cluster.waits.in_sync()
        await asyncio.sleep(1)
        monkeypatch.setattr(cluster.network, "call", counted)
        for number in range(count):
            leader = cluster.leader(TOPIC, number)
            assert leader is not None
            leader.append(bytearray(batch(b"value")), now_ms=lab.world.clock.now_ms(), steady_ms=0)
        await cluster.waits.in_sync()

    in_cluster(main, brokers=2)
    assert max(sizes) == ANSWERED_MAX  # but for the answer that was waited for when this began


def test_an_answer_that_is_full_is_not_kept_until_there_are_more_bytes() -> None:
    count = 2 * ANSWERED_MAX

    async def main(lab: Lab) -> None:
        cluster = lab.cluster
        cluster.create_topic(TOPIC, assignments=[[1, 2]] * count)
        await cluster.waits.in_sync()
        await asyncio.sleep(2)
        began_ms = lab.world.clock.steady_ms()
        for number in range(count):
            leader = cluster.leader(TOPIC, number)
            assert leader is not None
            leader.append(bytearray(batch(b"v" * 1000)), now_ms=lab.world.clock.now_ms(), steady_ms=0)
        for number in range(count):
            await cluster.waits.high_watermark(TOPIC, number, 1)
        assert lab.world.clock.steady_ms() - began_ms < 500

    settings = {"replica.fetch.min.bytes": str(ANSWERED_MAX * 1500), "replica.fetch.wait.max.ms": "500"}
    in_cluster(main, brokers=2, settings=settings)

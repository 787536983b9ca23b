"""A follower's fetches: what it does of an answer at once. In virtual time."""

from __future__ import annotations

from collections import Counter

import pytest

from minibroker.events import Event
from minibroker.replication.fetcher import AT_ONCE_MAX
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

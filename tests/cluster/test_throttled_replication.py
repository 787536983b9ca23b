"""Replicas that move are fetched no faster than the throttles allow, and others as fast as ever; in virtual time."""

from __future__ import annotations

import pytest

from minibroker.metadata.image import BROKER
from tests.cluster.virtual import TOPIC, Lab, in_cluster
from tests.server.running import append

OTHER = "others"
BATCHES, BATCH_BYTES = 100, 10_000
RATE = 50_000
SETTINGS = {"replica.fetch.max.bytes": "11000", "replica.fetch.wait.max.ms": "20"}


class Holder:
    def __init__(self, replica: object):
        self.replicas = {(TOPIC, 0): replica}


def fill(lab: Lab, topic: str, broker: int = 1, count: int = BATCHES) -> None:
    replica = lab.cluster.replica(topic, 0, broker)
    assert replica is not None
    for _ in range(count):
        append(Holder(replica), TOPIC, bytes(BATCH_BYTES))  # type: ignore[arg-type]


def set_rate(lab: Lab, name: str, broker: int, rate: int | None) -> None:
    controller = lab.cluster.running_controller()
    value = None if rate is None else str(rate)
    controller.change(controller.controller.alter_configs(BROKER, str(broker), {name: value}))


async def seconds_to_move(lab: Lab, topic: str, replicas: list[int]) -> float:
    begun_ms = lab.world.clock.steady_ms()
    lab.cluster.reassign(topic, 0, replicas)
    await lab.cluster.waits.in_sync(timeout=300)
    return (lab.world.clock.steady_ms() - begun_ms) / 1000


SIDES = [("leader", 1, "0:1"), ("follower", 2, "0:2"), ("leader", 1, "*"), ("follower", 2, "0:7, 0:2")]


@pytest.mark.setting(
    "leader.replication.throttled.rate",
    "follower.replication.throttled.rate",
    "leader.replication.throttled.replicas",
    "follower.replication.throttled.replicas",
)
@pytest.mark.parametrize(("side", "broker", "replicas"), SIDES)
def test_a_replica_that_moves_comes_as_fast_as_it_may(side: str, broker: int, replicas: str) -> None:
    async def main(lab: Lab) -> tuple[float, float]:
        for topic in (TOPIC, OTHER):
            lab.cluster.create_topic(topic, assignments=[[1]])
            await lab.cluster.waits.in_sync(timeout=300)
            fill(lab, topic)
        lab.cluster.alter_topic(TOPIC, **{f"{side}_replication_throttled_replicas": replicas})
        set_rate(lab, f"{side}.replication.throttled.rate", broker, RATE)
        await lab.world.clock.sleep(100)
        throttled = await seconds_to_move(lab, TOPIC, [1, 2])
        return throttled, await seconds_to_move(lab, OTHER, [1, 2])

    throttled, free = in_cluster(main, brokers=2, settings=SETTINGS)
    assert free < 2
    assert 1 <= throttled / (BATCHES * BATCH_BYTES / RATE) < 1.12  # it is asked again each 20 ms


@pytest.mark.parametrize("side", ["leader", "follower"])
def test_a_throttle_of_other_brokers_or_partitions_holds_nobody_back(side: str) -> None:
    async def main(lab: Lab) -> float:
        lab.cluster.create_topic(TOPIC, assignments=[[1]])
        await lab.cluster.waits.in_sync(timeout=300)
        fill(lab, TOPIC)
        lab.cluster.alter_topic(TOPIC, **{f"{side}_replication_throttled_replicas": "0:3,1:1,1:2"})
        for broker in (1, 2):
            set_rate(lab, f"{side}.replication.throttled.rate", broker, RATE)
        await lab.world.clock.sleep(100)
        return await seconds_to_move(lab, TOPIC, [1, 2])

    assert in_cluster(main, brokers=2, settings=SETTINGS) < 2


@pytest.mark.parametrize("side", ["leader", "follower"])
def test_who_is_in_sync_is_not_held_back_but_counted(side: str) -> None:
    async def main(lab: Lab) -> float:
        lab.cluster.create_topic(TOPIC, assignments=[[1, 2]])
        await lab.cluster.waits.in_sync(timeout=300)
        lab.cluster.alter_topic(TOPIC, **{f"{side}_replication_throttled_replicas": "*"})
        for broker in (1, 2):
            set_rate(lab, f"{side}.replication.throttled.rate", broker, RATE)
        await lab.world.clock.sleep(100)
        begun_ms = lab.world.clock.steady_ms()
        fill(lab, TOPIC)
        await lab.cluster.waits.high_watermark(TOPIC, 0, BATCHES)
        return (lab.world.clock.steady_ms() - begun_ms) / 1000

    assert in_cluster(main, brokers=2, settings=SETTINGS) < 2


@pytest.mark.parametrize("side", ["leader", "follower"])
def test_a_throttle_that_is_taken_away_holds_nobody_back_any_more(side: str) -> None:
    async def main(lab: Lab) -> float:
        lab.cluster.create_topic(TOPIC, assignments=[[1]])
        await lab.cluster.waits.in_sync(timeout=300)
        fill(lab, TOPIC)
        lab.cluster.alter_topic(TOPIC, **{f"{side}_replication_throttled_replicas": "*"})
        for broker in (1, 2):
            set_rate(lab, f"{side}.replication.throttled.rate", broker, 100)
        await lab.world.clock.sleep(100)
        lab.cluster.reassign(TOPIC, 0, [1, 2])
        await lab.world.clock.sleep(20_000)
        assert lab.ends()[2][0] < BATCHES / 2
        for broker in (1, 2):
            set_rate(lab, f"{side}.replication.throttled.rate", broker, None)
        begun_ms = lab.world.clock.steady_ms()
        await lab.cluster.waits.in_sync(timeout=300)
        return (lab.world.clock.steady_ms() - begun_ms) / 1000

    assert in_cluster(main, brokers=2, settings=SETTINGS) < 2


@pytest.mark.setting("replication.quota.window.num", "replication.quota.window.size.seconds")
@pytest.mark.parametrize(("samples", "seconds"), [(2, 1), (10, 1), (3, 3)])
def test_after_so_many_samples_it_is_forgotten_what_was_fetched(samples: int, seconds: int) -> None:
    """A batch is much more than the limit: the next comes when the window has passed, and the word of the last, too."""

    async def main(lab: Lab) -> float:
        lab.cluster.create_topic(TOPIC, assignments=[[1]])
        await lab.cluster.waits.in_sync(timeout=300)
        fill(lab, TOPIC, count=3)
        lab.cluster.alter_topic(TOPIC, follower_replication_throttled_replicas="*")
        set_rate(lab, "follower.replication.throttled.rate", 2, 10)
        await lab.world.clock.sleep(100)
        return await seconds_to_move(lab, TOPIC, [1, 2])

    settings = {
        **SETTINGS,
        "replication.quota.window.num": str(samples),
        "replication.quota.window.size.seconds": str(seconds),
    }
    took = in_cluster(main, brokers=2, settings=settings)
    assert took == pytest.approx(3 * samples * seconds, rel=0.1)

"""Settings of brokers with others, and of their controller: seen in what they ask each other, and when."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple

import pytest

from minibroker.client.connection import Connection
from minibroker.errors import Error, KafkaError
from minibroker.protocol.headers import Request
from minibroker.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from minibroker.protocol.messages.create_topics import CreateTopicsRequest
from minibroker.protocol.messages.fetch import FetchRequest
from minibroker.protocol.messages.find_coordinator import FindCoordinatorRequest
from minibroker.replication.network import CONTROLLER
from tests.cluster.virtual import TOPIC, Lab, in_cluster
from tests.groups.test_offsets_partition import Caller
from tests.server.running import append


class Asked(NamedTuple):
    at_ms: int
    source: Any
    target: Any
    request: Any


class Wire:
    """What brokers have asked each other and the controller."""

    def __init__(self, lab: Lab):
        self.asked: list[Asked] = []
        network, clock = lab.cluster.network, lab.world.clock
        call = network.call

        def heard(source: Any, target: Any, message: Request, *rest: Any, **named: Any) -> Any:
            self.asked.append(Asked(clock.steady_ms(), source, target, message))
            return call(source, target, message, *rest, **named)

        network.call = heard  # type: ignore[method-assign]

    def of(self, kind: type[Request], source: int, target: Any) -> list[Asked]:
        return [
            each
            for each in self.asked
            if isinstance(each.request, kind) and (each.source, each.target) == (source, target)
        ]

    def fetches(self, source: int = 2, target: int = 1) -> list[Asked]:
        return self.of(FetchRequest, source, target)


def distances(asked: list[Asked]) -> list[int]:
    return [later.at_ms - earlier.at_ms for earlier, later in pairwise(asked)]


@pytest.mark.setting("replica.fetch.wait.max.ms")
@pytest.mark.parametrize("wait_ms", [300, 700])
def test_a_follower_waits_at_its_leader_as_long_as_replica_fetch_wait_max_ms_says(wait_ms: int) -> None:
    async def main(lab: Lab) -> None:
        lab.cluster.create_topic(TOPIC, assignments=[[1, 2]])
        await lab.cluster.waits.in_sync()
        wire = Wire(lab)
        await lab.world.clock.sleep(10 * wait_ms)
        waits = distances(wire.fetches()[1:])  # the first one begins a session
        assert len(waits) >= 8, waits
        assert all(wait_ms <= each <= wait_ms + 10 for each in waits), waits

    in_cluster(main, brokers=2, settings={"replica.fetch.wait.max.ms": str(wait_ms)})


@pytest.mark.setting("replica.fetch.max.bytes", "replica.fetch.response.max.bytes")
@pytest.mark.parametrize("name", ["replica.fetch.max.bytes", "replica.fetch.response.max.bytes"])
def test_a_follower_gets_as_much_at_once_as_its_settings_let_it(name: str) -> None:
    """Of one partition, or of all together: ten batches in two partitions take so many fetches."""

    async def main(lab: Lab) -> int:
        lab.cluster.create_topic(TOPIC, assignments=[[1, 2], [1, 2]])
        await lab.cluster.waits.in_sync()
        wire = Wire(lab)
        for partition in (0, 1):
            for _ in range(5):
                replica = lab.cluster.replica(TOPIC, partition, 1)
                assert replica is not None
                append_to(replica, bytes(900))
        for partition in (0, 1):
            await lab.cluster.waits.high_watermark(TOPIC, partition, 5)
        return len(wire.fetches())

    counts = [in_cluster(main, brokers=2, settings={name: size}) for size in ("1100", "2200", "100000")]
    assert counts == sorted(counts, reverse=True), counts
    assert len(set(counts)) == 3, counts


def append_to(replica: Any, value: bytes) -> None:
    append(Holder(replica), TOPIC, value)  # type: ignore[arg-type]


class Holder:
    def __init__(self, replica: Any):
        self.replicas = {(TOPIC, 0): replica}


@pytest.mark.setting("replica.fetch.min.bytes")
def test_a_follower_is_answered_when_there_is_as_much_as_replica_fetch_min_bytes_says() -> None:
    async def main(lab: Lab) -> None:
        lab.cluster.create_topic(TOPIC, assignments=[[1, 2]])
        await lab.cluster.waits.in_sync()
        leader, follower = (lab.cluster.replica(TOPIC, 0, broker) for broker in (1, 2))
        assert leader is not None
        assert follower is not None
        await lab.world.clock.sleep(100)  # the fetch that begins a session is over
        for end in (1, 2):
            append_to(leader, bytes(900))
            await lab.world.clock.sleep(100)
            assert follower.log.log_end_offset == (0 if end == 1 else 2)

    settings = {"replica.fetch.min.bytes": "1500", "replica.fetch.wait.max.ms": "20000"}
    in_cluster(main, brokers=2, settings=settings)


@pytest.mark.setting("replica.fetch.backoff.ms")
@pytest.mark.parametrize("backoff_ms", [200, 3000])
def test_a_follower_asks_again_when_replica_fetch_backoff_ms_has_passed(backoff_ms: int) -> None:
    async def main(lab: Lab) -> None:
        lab.cluster.create_topic(TOPIC, assignments=[[1, 2]])
        await lab.cluster.waits.in_sync()
        wire = Wire(lab)
        await lab.cluster.kill(CONTROLLER)  # so that the leader stays
        await lab.cluster.kill(1)  # calls fail at once
        await lab.world.clock.sleep(5 * backoff_ms)
        assert distances(wire.fetches())[1:4] == [backoff_ms] * 3
        await lab.cluster.start(CONTROLLER)
        await lab.cluster.start(1)

    in_cluster(main, brokers=2, settings={"replica.fetch.backoff.ms": str(backoff_ms)})


@pytest.mark.setting("replica.socket.timeout.ms")
@pytest.mark.parametrize("timeout_ms", [2000, 5000])
def test_a_follower_gives_up_a_fetch_after_replica_socket_timeout_ms(timeout_ms: int) -> None:
    async def main(lab: Lab) -> None:
        lab.cluster.create_topic(TOPIC, assignments=[[1, 2]])
        await lab.cluster.waits.in_sync()
        wire = Wire(lab)
        lab.cluster.pause(1)  # it hangs
        await lab.world.clock.sleep(4 * (timeout_ms + 1000))
        assert distances(wire.fetches())[-2:] == [timeout_ms + 1000] * 2  # and replica.fetch.backoff.ms
        lab.cluster.resume(1)

    settings = {"replica.socket.timeout.ms": str(timeout_ms), "broker.session.timeout.ms": "60000"}
    in_cluster(main, brokers=2, settings=settings)


@pytest.mark.setting("replica.lag.time.max.ms")
@pytest.mark.parametrize("lag_ms", [4000, 12_000])
def test_who_lags_leaves_the_isr_after_replica_lag_time_max_ms(lag_ms: int) -> None:
    async def main(lab: Lab) -> None:
        lab.cluster.create_topic(TOPIC, assignments=[[1, 2]])
        await lab.cluster.waits.in_sync()
        lab.cluster.links.cut(1, 2)
        begun_ms = lab.world.clock.steady_ms()
        await lab.send(b"a", acks=1)
        await lab.cluster.waits.isr(TOPIC, 0, [1], timeout=60)
        # As long ago may its last fetch be, and half of it until somebody looks.
        assert lag_ms - 500 <= lab.world.clock.steady_ms() - begun_ms <= 1.5 * lag_ms + 100
        lab.cluster.links.heal()

    in_cluster(main, brokers=2, settings={"replica.lag.time.max.ms": str(lag_ms)})


@pytest.mark.setting("broker.heartbeat.interval.ms")
@pytest.mark.parametrize("interval_ms", [500, 3000])
def test_a_broker_says_that_it_lives_every_broker_heartbeat_interval_ms(interval_ms: int) -> None:
    async def main(lab: Lab) -> None:
        wire = Wire(lab)
        await lab.world.clock.sleep(6 * interval_ms)
        beats = distances(wire.of(BrokerHeartbeatRequest, 1, CONTROLLER))
        assert len(beats) >= 4, beats
        assert all(interval_ms <= each <= interval_ms + 10 for each in beats), beats

    in_cluster(main, brokers=1, settings={"broker.heartbeat.interval.ms": str(interval_ms)})


@pytest.mark.setting("broker.heartbeat.interval.ms")
@pytest.mark.parametrize("interval_ms", [500, 3000])
def test_who_wants_to_stop_hears_of_the_controller_every_half_interval(interval_ms: int) -> None:
    """A broker that has not heard that another leads keeps it from stopping; then heartbeats are answered late."""

    async def main(lab: Lab) -> None:
        cluster = lab.cluster
        cluster.create_topic(TOPIC, assignments=[[1, 2]])
        await cluster.waits.in_sync()
        cluster.links.cut(3, CONTROLLER)
        wire = Wire(lab)
        await cluster.stop(1)
        beats = [each for each in wire.of(BrokerHeartbeatRequest, 1, CONTROLLER) if each.request.want_shut_down]
        # Others' heartbeats wake it as well.
        longest = max(distances(beats))
        assert interval_ms / 2 <= longest <= interval_ms / 2 + 10, distances(beats)
        cluster.links.heal()

    settings = {"broker.heartbeat.interval.ms": str(interval_ms), "broker.session.timeout.ms": "20000"}
    in_cluster(main, settings=settings)


@pytest.mark.setting("broker.session.timeout.ms")
@pytest.mark.parametrize("session_ms", [4000, 15_000])
def test_who_is_silent_for_broker_session_timeout_ms_leads_no_more(session_ms: int) -> None:
    async def main(lab: Lab) -> None:
        lab.cluster.create_topic(TOPIC, assignments=[[2, 1]])
        await lab.cluster.waits.in_sync()
        await lab.cluster.kill(2, notice=False)
        begun_ms = lab.world.clock.steady_ms()
        await lab.cluster.waits.leader(TOPIC, 0, other_than=2, timeout=60)
        assert session_ms - 2000 <= lab.world.clock.steady_ms() - begun_ms <= session_ms + 100  # 2 s: a heartbeat

    in_cluster(main, brokers=2, settings={"broker.session.timeout.ms": str(session_ms)})


@pytest.mark.setting("default.replication.factor", "num.partitions")
def test_a_topic_without_numbers_has_those_of_the_settings() -> None:
    async def main(lab: Lab) -> None:
        host, _, port = lab.cluster.bootstrap_servers.split(",")[0].rpartition(":")
        async with await Connection.open(host, int(port), clock=lab.world.clock) as connection:
            topic = CreateTopicsRequest.CreatableTopic(
                name=TOPIC, num_partitions=-1, replication_factor=-1, assignments=[], configs=[]
            )
            await connection.call(CreateTopicsRequest(topics=[topic], timeout_ms=1000), 5)
        await lab.cluster.waits.in_sync()
        for partition in range(4):
            assert len(lab.cluster.partition(TOPIC, partition).replicas) == 2

    in_cluster(main, settings={"default.replication.factor": "2", "num.partitions": "4"})


@pytest.mark.setting("offsets.topic.replication.factor")
@pytest.mark.parametrize("factor", [1, 2, 3])
def test_the_topic_of_offsets_has_as_many_replicas_as_offsets_topic_replication_factor_says(factor: int) -> None:
    async def main(lab: Lab) -> None:
        host, _, port = lab.cluster.bootstrap_servers.split(",")[0].rpartition(":")
        async with await Connection.open(host, int(port), clock=lab.world.clock) as connection:
            await connection.call(FindCoordinatorRequest(key="g", key_type=0), 3)
        await lab.cluster.waits.in_sync()
        assert len(lab.cluster.partition("__consumer_offsets", 0).replicas) == factor

    in_cluster(main, settings={"offsets.topic.replication.factor": str(factor), "offsets.topic.num.partitions": "1"})


@pytest.mark.setting("min.insync.replicas")
def test_records_are_for_as_many_as_min_insync_replicas_says_also_when_it_is_altered() -> None:
    """The topic's own before that of all brokers."""

    async def main(lab: Lab) -> None:
        cluster = lab.cluster
        cluster.create_topic(TOPIC, assignments=[[1, 2]])
        cluster.create_topic("other", assignments=[[1, 2]], min_insync_replicas="1")
        await cluster.waits.in_sync()
        await cluster.kill(2)
        await cluster.waits.isr(TOPIC, 0, [1])
        with pytest.raises(KafkaError) as refused:
            await lab.send(b"a", timeout_ms=2000)
        assert refused.value.code in (Error.NOT_ENOUGH_REPLICAS, Error.REQUEST_TIMED_OUT)
        assert await lab.send(b"a", topic="other") == [0]
        cluster.alter_topic(TOPIC, min_insync_replicas=1)
        await lab.world.clock.sleep(100)
        assert await lab.send(b"a") == [0]
        await cluster.start(2)
        await cluster.waits.in_sync()

    in_cluster(main, brokers=2, settings={"min.insync.replicas": "2"})


@pytest.mark.setting("offsets.commit.timeout.ms")
@pytest.mark.parametrize("timeout_ms", [2000, 9000])
def test_a_commit_waits_for_other_replicas_as_long_as_offsets_commit_timeout_ms_says(timeout_ms: int) -> None:
    async def main(lab: Lab) -> None:
        clock = lab.world.clock
        host, _, port = lab.cluster.bootstrap_servers.split(",")[0].rpartition(":")
        async with await Connection.open(host, int(port), clock=clock) as connection:
            caller = Caller(connection)
            await caller.find()
            lab.cluster.create_topic("t", assignments=[[1]])
            await lab.cluster.waits.in_sync()
            lab.cluster.move_leader("__consumer_offsets", 0, 1)
            await lab.cluster.waits.leader("__consumer_offsets", 0, broker=1)
            await clock.sleep(1000)
            assert await caller.commit(1) == Error.NONE
            lab.cluster.links.cut(1, 2)
            begun_ms = clock.steady_ms()
            assert await caller.commit(2) == Error.COORDINATOR_NOT_AVAILABLE
            assert timeout_ms <= clock.steady_ms() - begun_ms <= timeout_ms + 10
        lab.cluster.links.heal()

    settings = {"offsets.commit.timeout.ms": str(timeout_ms), "offsets.topic.num.partitions": "1"}
    in_cluster(main, brokers=2, settings=settings)

"""A cluster in a Python program: everything that can be done to it, from threads and from loops."""

from __future__ import annotations

import asyncio
import gc
import inspect
import threading
import time
import warnings
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

import minibroker
from minibroker import Broker, Cluster
from minibroker.client import Cluster as Client
from minibroker.client import Producer
from minibroker.cluster.nodes import NoSuchBroker, WrongState
from minibroker.cluster.steps import NothingWaits
from minibroker.config import ConfigError
from minibroker.embedded import BrokerError
from minibroker.errors import Error, KafkaError
from tests.embedded.test_broker import handles

ONE = {"topics": ["orders"]}


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(**ONE) as cluster:
        yield cluster


@pytest.fixture
async def acluster() -> AsyncIterator[Cluster]:
    async with Cluster(**ONE) as cluster:
        yield cluster


def produce(cluster: Cluster, *values: bytes, **more: Any) -> None:
    asyncio.run(aproduce(cluster, *values, **more))


async def aproduce(cluster: Cluster, *values: bytes, topic: str = "orders", **more: Any) -> None:
    async with Client(cluster.bootstrap_servers) as client, Producer(client, **more) as producer:
        for value in values:
            await producer.send(topic, value, partition=0)


def values(cluster: Cluster, topic: str = "orders") -> list[bytes | None]:
    return [record.value for record in cluster.records(topic)]


# Looking


def test_a_cluster_answers_at_every_broker_and_copies_what_it_gets(cluster: Cluster) -> None:
    assert cluster.bootstrap_servers.count(",") == 2
    assert cluster.client_config("confluent") == {"bootstrap.servers": cluster.bootstrap_servers}
    assert cluster.topics() == {"orders": 1}
    assert cluster.states() == {"controller": "running", 1: "running", 2: "running", 3: "running"}
    produce(cluster, b"1", b"2")
    cluster.wait_in_sync()
    assert values(cluster) == [b"1", b"2"]
    rows = cluster.describe("orders")
    assert [row.broker for row in rows] == [cluster.leader("orders"), *[row.broker for row in rows[1:]]]
    assert sorted(row.broker for row in rows) == [1, 2, 3]
    assert [row.role for row in rows] == ["leader", "follower", "follower"]
    assert {(row.log_start_offset, row.log_end_offset, row.leader_epoch, row.is_in_sync) for row in rows} == {
        (0, 2, 0, True)
    }
    assert rows[0].high_watermark == 2
    assert sorted(cluster.isr("orders")) == [1, 2, 3]


def test_a_row_of_a_replica_that_is_down_says_so(cluster: Cluster) -> None:
    cluster.kill(3)
    (row,) = [row for row in cluster.describe("orders") if row.broker == 3]
    assert row == (0, 3, "offline", -1, -1, -1, -1, False)


def test_what_cannot_be_done_says_why(cluster: Cluster) -> None:
    wishes: list[tuple[Any, type[Exception], str]] = [
        (lambda: cluster.kill(4), NoSuchBroker, "there is no broker 4: there are controller, 1, 2, 3"),
        (lambda: cluster.kill("2"), NoSuchBroker, "there is no broker '2'"),
        (lambda: cluster.start_broker(1), WrongState, "broker 1 is running; it would have to be stopped or killed"),
        (lambda: cluster.resume(1), WrongState, "broker 1 is running; it would have to be paused"),
        (lambda: cluster.cut(1, 7), NoSuchBroker, "there is no broker 7"),
        (lambda: cluster.leader("bills"), KafkaError, "there is no topic 'bills'"),
        (lambda: cluster.leader("orders", 5), KafkaError, "there is no partition 5 of 'orders'"),
        (lambda: cluster.records("bills"), KafkaError, "there is no topic 'bills'"),
        (lambda: cluster.create_topic("orders"), KafkaError, "already exists"),
        (lambda: cluster.create_topic("bills", cleanup_policy="burn"), KafkaError, "burn"),
        (lambda: cluster.hold("breath"), ValueError, "'breath' is none of fetch"),
        (lambda: cluster.step(), NothingWaits, "hold something first"),
        (
            lambda: cluster.wait_event("leaders"),
            ValueError,
            "'leaders' is no kind of event: there are .* append, truncate",
        ),
        (lambda: cluster.watching("leaders"), ValueError, "is no kind of event"),
        (lambda: cluster.advance("soon"), ValueError, "'soon' is no duration"),
    ]
    for act, kind, words in wishes:
        with pytest.raises(kind, match=words):
            act()


def test_every_verb_has_a_twin_with_the_same_arguments_and_the_same_words() -> None:
    names = [name for name, each in vars(Cluster).items() if hasattr(each, "__wrapped__")]
    plain = [name for name in names if not inspect.iscoroutinefunction(vars(Cluster)[name])]
    assert len(plain) * 2 == len(names) >= 70
    for name in plain:
        verb, twin = getattr(Cluster, name), getattr(Cluster, f"a{name}")
        assert verb.__wrapped__ is twin.__wrapped__
        assert verb.__doc__


# Brokers


def test_another_broker_leads_when_the_leader_is_killed_and_nothing_is_lost(cluster: Cluster) -> None:
    produce(cluster, b"1")
    first = cluster.leader("orders")
    cluster.kill(first)
    second = cluster.wait_leader("orders", other_than=first)
    assert sorted(cluster.isr("orders")) == sorted({1, 2, 3} - {first})
    produce(cluster, b"2")
    assert values(cluster) == [b"1", b"2"]
    cluster.start_broker(first)
    cluster.wait_in_sync()
    assert cluster.leader("orders") == second
    cluster.elect("orders")
    assert cluster.wait_leader("orders", broker=first) == first
    assert values(cluster) == [b"1", b"2"]


def test_a_broker_that_is_killed_without_notice_is_missed_after_its_session() -> None:
    with Cluster(broker_session_timeout_ms=300, broker_heartbeat_interval_ms=100, **ONE) as cluster:
        first = cluster.leader("orders")
        with cluster.watching("broker") as heard:
            cluster.kill(first, notice=False)
            assert cluster.leader("orders") == first
            cluster.wait_leader("orders", other_than=first)
            fenced = heard.wait(lambda event: event.state == "fenced")  # type: ignore[attr-defined]
        assert "silent" in fenced.sentence


def test_a_power_loss_takes_what_was_not_flushed_and_the_broker_copies_it_again(cluster: Cluster) -> None:
    produce(cluster, *(b"%d" % number for number in range(20)))
    cluster.wait_in_sync()
    first = cluster.leader("orders")
    cluster.kill(first, lossy=True)
    cluster.wait_leader("orders", other_than=first)
    cluster.start_broker(first)
    cluster.wait_in_sync()
    assert {row.log_end_offset for row in cluster.describe("orders")} == {20}


def test_a_stop_in_order_moves_the_leader_first(cluster: Cluster) -> None:
    first = cluster.leader("orders")
    with cluster.watching("leader", "broker") as heard:
        cluster.stop_broker(first)
        assert cluster.leader("orders") != first
    lines = [event.line for event in heard]
    moved = next(place for place, line in enumerate(lines) if line.startswith("leader orders-0"))
    assert moved < lines.index(f"broker b{first} stopped")
    cluster.restart_broker(first)
    other = cluster.leader("orders")
    cluster.restart_broker(other)
    cluster.wait_in_sync()


def test_records_go_on_without_a_controller_and_topics_wait_for_it(cluster: Cluster) -> None:
    cluster.kill("controller")
    produce(cluster, b"1")
    assert values(cluster) == [b"1"]
    with pytest.raises(NoSuchBroker, match="the controller is killed"):
        cluster.create_topic("bills")
    cluster.start_broker("controller")
    cluster.create_topic("bills")
    assert cluster.topics() == {"bills": 1, "orders": 1}


def test_a_client_of_a_paused_broker_sees_a_hang_and_no_error(cluster: Cluster) -> None:
    cluster.pause(cluster.leader("orders"))
    done = threading.Event()

    def work() -> None:
        produce(cluster, b"1")
        done.set()

    thread = threading.Thread(target=work)
    thread.start()
    with pytest.raises(TimeoutError, match="orders has 0 records after 100 ms; 1 was waited for"):
        cluster.wait_records("orders", 1, timeout=0.1)
    assert not done.is_set()
    cluster.resume(cluster.leader("orders"))
    thread.join(10)
    assert done.is_set()
    assert values(cluster) == [b"1"]


@pytest.mark.parametrize("away", ["pause", "cut"])
def test_records_that_a_former_leader_took_are_refused_at_once_and_sent_again(away: str) -> None:
    with Cluster(config={"broker.session.timeout.ms": 300, "broker.heartbeat.interval.ms": 50}, **ONE) as cluster:
        produce(cluster, b"1")
        first = cluster.leader("orders")
        cluster.pause(first) if away == "pause" else cluster.isolate(first)
        thread = threading.Thread(target=produce, args=(cluster, b"2"))
        thread.start()
        cluster.wait_leader("orders", other_than=first)
        cluster.resume(first) if away == "pause" else cluster.heal()
        assert len(cluster.wait_records("orders", 2)) == 2  # and not when the client has lost its patience
        thread.join(10)
        cluster.wait_in_sync()


def test_a_broker_whose_disk_is_full_ends_and_comes_back_when_there_is_room(cluster: Cluster) -> None:
    first = cluster.leader("orders")
    follower = next(broker for broker in cluster.isr("orders") if broker != first)
    with cluster.watching("broker") as heard:
        cluster.fill_disk(follower)
        produce(cluster, b"1")
        heard.wait(lambda event: event.line == f"broker b{follower} killed")
    cluster.heal_disk()
    cluster.start_broker(follower)
    cluster.wait_in_sync()
    cluster.slow_disk(follower, 20)
    produce(cluster, b"2")
    assert values(cluster) == [b"1", b"2"]


# Links


def test_a_leader_without_its_controller_and_followers_commits_nothing_until_it_is_healed(cluster: Cluster) -> None:
    first = cluster.leader("orders")
    others = [broker for broker in (1, 2, 3) if broker != first]
    cluster.split([first], ["controller", *others])
    thread = threading.Thread(target=produce, args=(cluster, b"1"))
    thread.start()
    assert cluster.wait_event(lambda event: event.kind == "append").broker == first  # type: ignore[attr-defined]
    (row,) = [row for row in cluster.describe("orders") if row.broker == first]
    assert (row.log_end_offset, row.high_watermark) == (1, 0)
    cluster.heal()
    cluster.wait_high_watermark("orders", offset=1)
    thread.join(10)
    assert values(cluster) == [b"1"]


def test_links_can_be_slow_and_lossy_and_cut_in_one_direction(cluster: Cluster) -> None:
    with cluster.watching("link") as heard:
        cluster.delay(1, 2, 5, jitter_ms=5)
        cluster.throttle(1, 3, 1_000_000)
        cluster.lose(2, 3, 0.1)
        cluster.cut(2, "controller", one_way=True)
        cluster.isolate(3)
    told = [event.line for event in heard]
    assert "link 1->2 delayed by 5 to 10 ms" in told
    assert "link 2->controller cut" in told
    assert "link controller->2 cut" not in told
    assert "link clients->3 cut" in told
    cluster.heal()
    for a, b in ((1, 2), (1, 3), (2, 3)):
        cluster.delay(a, b, 0)
        cluster.throttle(a, b, 0)
        cluster.lose(a, b, 0)
    produce(cluster, b"1")
    cluster.wait_in_sync()


# Step mode


def test_replication_goes_step_by_step(cluster: Cluster) -> None:
    first = cluster.leader("orders")
    cluster.hold("fetch", "answer")
    with cluster.watching("append") as heard:
        thread = threading.Thread(target=produce, args=(cluster, b"1"))
        thread.start()
        heard.wait("append")
        assert {row.log_end_offset for row in cluster.describe("orders")} == {0, 1}
        assert {kind for kind, _ in cluster.waiting()} <= {"fetch", "answer"}
        while cluster.describe("orders")[0].high_watermark == 0:
            if not cluster.waiting():
                cluster.wait_event("step")
            assert len(cluster.step()) == 1
        thread.join(10)
    where = [event.broker for event in heard]  # type: ignore[attr-defined]
    assert where[0] == first
    assert sorted(where) == [1, 2, 3]
    cluster.release()
    assert cluster.waiting() == []
    produce(cluster, b"2")


# Topics and leaders


def test_topics_are_made_changed_and_deleted_and_everybody_knows(cluster: Cluster) -> None:
    cluster.create_topic("bills", 2, 2, cleanup_policy="compact")
    assert len(cluster.describe("bills")) == 4
    assert {row.role for row in cluster.describe("bills")} == {"leader", "follower"}
    cluster.create_topic("placed", assignments=[[3, 1], [2, 1]])
    assert [(row.partition, row.broker) for row in cluster.describe("placed")] == [(0, 3), (0, 1), (1, 2), (1, 1)]
    assert (cluster.leader("placed"), cluster.leader("placed", 1)) == (3, 2)
    cluster.alter_topic("bills", retention_ms=5)
    cluster.alter_topic("bills", retention_ms=None)
    cluster.delete_topic("bills")
    assert cluster.topics() == {"orders": 1, "placed": 2}


def test_a_topic_without_numbers_is_as_the_settings_say() -> None:
    with Cluster(topics=["spec"], num_partitions=2, default_replication_factor=1) as cluster:
        cluster.create_topic("made")
        cluster.create_topic("told", 1, 3)
        assert cluster.topics() == {"made": 2, "spec": 2, "told": 1}
        assert [len(cluster.isr(name)) for name in ("made", "spec", "told")] == [1, 1, 3]


def test_leaders_and_replicas_are_moved() -> None:
    with Cluster(4) as cluster:
        cluster.create_topic("orders", assignments=[[1, 2, 3]])
        cluster.move_leader("orders", 0, 2)
        assert cluster.leader("orders") == 2
        with pytest.raises(KafkaError, match="broker 4 is not in sync: 1, 2, 3 is"):
            cluster.move_leader("orders", 0, 4)
        produce(cluster, b"1")
        cluster.reassign("orders", 0, [4, 2])
        assert cluster.wait_isr("orders", brokers=[4, 2])
        cluster.wait_in_sync()
        assert [row.broker for row in cluster.describe("orders")] == [4, 2]
        assert values(cluster) == [b"1"]


def test_racks_let_consumers_read_near_them() -> None:
    with Cluster(racks=["a", "b", "c"], **ONE) as cluster:
        assert cluster.topics() == {"orders": 1}


# Waiting


def test_waits_say_what_there_is_when_their_time_is_over(cluster: Cluster) -> None:
    cluster.kill(3)
    waits = [
        (lambda: cluster.wait_isr("orders", timeout=0.05), "not within 0.05 s: the ISR of orders-0 is"),
        (lambda: cluster.wait_leader("orders", broker=3, timeout=0.05), "broker . leads orders-0"),
        (lambda: cluster.wait_records("ordres", 1, timeout=0.05), "there is no topic 'ordres'.*did you mean orders"),
        (lambda: cluster.wait_high_watermark("orders", offset=1, timeout=0.05), "watermark of orders-0 is 0"),
        (lambda: cluster.wait_in_sync(timeout=0.05), "not in sync: orders-0"),
        (lambda: cluster.wait_records("orders", 1, timeout=0.05), "orders has 0 records after 50 ms; 1 was"),
        (lambda: cluster.wait_records("nothing", 1, timeout=0.05), "there is no topic 'nothing' after"),
        (lambda: cluster.wait_event("loss", timeout=0.05), "no event 'loss' within 0.05 s"),
    ]
    for wait, words in waits:
        with pytest.raises(TimeoutError, match=words):
            wait()
    with cluster.watching() as heard, pytest.raises(TimeoutError, match="no event 'loss' among"):
        heard.wait("loss", timeout=0.05)


def test_waiting_ends_when_the_records_are_there_even_if_the_topic_was_not(cluster: Cluster) -> None:
    found: list[int] = []
    waiting = threading.Thread(target=lambda: found.append(len(cluster.wait_records("bills", 3))))
    waiting.start()
    cluster.create_topic("bills")
    produce(cluster, b"1", b"2", topic="bills")
    produce(cluster, b"3", topic="bills")
    waiting.join()
    assert found == [3]


# Time


def test_time_is_frozen_advanced_and_run_faster(cluster: Cluster) -> None:
    with cluster.watching("clock") as heard:
        cluster.freeze()
        before = cluster.clock.now_ms()
        cluster.advance("1h")
        assert cluster.clock.now_ms() == before + 3_600_000
        cluster.thaw()
        cluster.rate(10)
        cluster.jump("1d")
        assert cluster.clock.now_ms() >= before + 90_000_000
    assert [event.line for event in heard] == [
        "clock is frozen",
        "clock was advanced by 3600000 ms",
        "clock runs again",
        "clock runs at x10",
        "clock was set by 86400000 ms",
    ]
    produce(cluster, b"1")
    cluster.wait_in_sync()


@pytest.mark.slow
@pytest.mark.parametrize("is_frozen", [False, True])
def test_a_week_ends_no_session_and_is_not_played_heartbeat_by_heartbeat(is_frozen: bool) -> None:
    with Cluster(topics=["orders:3:3:retention.ms=86400000"]) as cluster:
        produce(cluster, b"old")
        cluster.wait_in_sync()
        if is_frozen:
            cluster.freeze()
        # Only what brokers do by themselves: a million heartbeats and fetches would be 100 seconds of work.
        with cluster.watching("message") as messages, cluster.watching("broker", "isr", "leader") as heard:
            before_ms = cluster.clock.now_ms()
            cluster.advance("7d")
            assert cluster.clock.now_ms() >= before_ms + 7 * 86_400_000
            assert len(messages) < 1000
            assert cluster.records("orders") == []
            if not is_frozen:
                produce(cluster, b"new")
                cluster.wait_in_sync()
        assert not heard


def test_who_is_silent_is_taken_for_dead_when_sessions_go_on() -> None:
    with Cluster(topics=["orders:1:3"]) as cluster:
        cluster.wait_in_sync()
        cluster.freeze()
        cluster.kill(1, notice=False)
        cluster.advance("1h")
        assert cluster.leader("orders") == 1
        with cluster.watching("broker") as heard:
            cluster.advance("10s", sessions=True)
        assert [event.line for event in heard] == ["broker b1 fenced"]
        cluster.thaw()
        assert cluster.wait_leader("orders", other_than=1) in (2, 3)


def test_time_moves_in_a_loop_too() -> None:
    async def main() -> None:
        async with Cluster(1, topics=["orders"]) as cluster:
            with pytest.raises(RuntimeError, match="would block the loop"):
                cluster.advance("1s")
            cluster.freeze()
            before_ms = cluster.clock.now_ms()
            await cluster.aadvance("1s", sessions=True)
            assert cluster.clock.now_ms() == before_ms + 1000

    asyncio.run(main())


def test_a_frozen_clock_keeps_nobody_from_stopping() -> None:
    cluster = Cluster(**ONE)
    with cluster:
        cluster.freeze()
    assert cluster.clock.is_frozen  # type: ignore[attr-defined]


# Threads and loops


async def test_the_twins_are_awaited(acluster: Cluster) -> None:
    await acluster.acreate_topic("bills", 3)
    assert await acluster.atopics() == {"bills": 3, "orders": 1}
    await aproduce(acluster, b"1")
    assert [record.value for record in await acluster.await_records("orders", 1)] == [b"1"]
    first = await acluster.aleader("orders")
    with acluster.watching("leader") as heard:
        await acluster.akill(first)
        await heard.await_("leader")
    assert await acluster.await_leader("orders", other_than=first) != first
    await acluster.astart_broker(first)
    await acluster.await_in_sync()
    await acluster.adelete_topic("bills")


async def test_plain_verbs_work_in_the_loop_of_the_cluster_unless_they_would_block_it(acluster: Cluster) -> None:
    acluster.cut(1, 2)
    acluster.heal()
    assert acluster.topics() == {"orders": 1}
    for act in (
        lambda: acluster.kill(1),
        lambda: acluster.create_topic("bills"),
        lambda: acluster.wait_records("orders", 0),
        lambda: acluster.wait_leader("orders"),
    ):
        with pytest.raises(RuntimeError, match="await the twin"):
            act()
    assert acluster.states()[1] == "running"
    with pytest.raises(RuntimeError, match="await astop"):
        acluster.stop()
    assert await asyncio.to_thread(acluster.topics) == {"orders": 1}


async def test_a_cluster_in_a_thread_can_be_awaited_from_another_loop(cluster: Cluster) -> None:
    waiting = asyncio.ensure_future(cluster.await_records("orders", 1))
    await aproduce(cluster, b"1")
    assert [record.value for record in await waiting] == [b"1"]
    await cluster.akill(await cluster.aleader("orders"))


def test_many_threads_use_one_cluster(cluster: Cluster) -> None:
    def work(number: int) -> None:
        cluster.create_topic(f"topic-{number}")
        produce(cluster, b"1", topic=f"topic-{number}")

    threads = [threading.Thread(target=work, args=(number,)) for number in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [len(cluster.wait_records(f"topic-{number}", 1)) for number in range(5)] == [1] * 5


# Arguments


def test_topics_come_with_replicas_and_settings() -> None:
    topics = ["a", "b:1:1", "c:1:compact"]
    with Cluster(2, topics=topics, num_partitions=2, config={"message.max.bytes": 5000}) as cluster:
        assert cluster.topics() == {"a": 2, "b": 1, "c": 1}
        assert len(cluster.describe("a")) == 4
        assert len(cluster.describe("b")) == 1


def test_what_no_setting_takes_is_refused_before_the_start() -> None:
    with pytest.raises(ValueError, match="at least one broker, not 0"):
        Cluster(0)
    with pytest.raises(ConfigError, match="each broker of a cluster has its own"):
        Cluster(node_id=3)
    with pytest.raises(ConfigError, match="each broker of a cluster has its own"):
        Cluster(config={"listeners": "PLAINTEXT://localhost:1"})
    with pytest.raises(ValueError, match="no 3 ports from 65535 on"):
        Cluster(port=65535)
    with pytest.raises(KafkaError, match="is no release"):
        Cluster(as_version="17")
    with pytest.raises(ConfigError, match=r"minibroker.Cluster: log_segmnt_ms is neither .*; did you mean log_"):
        Cluster(log_segmnt_ms=5)
    with pytest.raises(ConfigError, match="did you mean brokers"):
        Cluster(broker=3)
    with pytest.raises(ConfigError, match=r"serve --brokers 3"):
        Cluster(process=True)


@pytest.mark.parametrize("place", ["memory", "disk"])
def test_brokers_may_begin_with_another_id(place: str, tmp_path: Path) -> None:
    directory = None if place == "memory" else tmp_path
    with Cluster(3, first_id=0, topics="orders", racks="abc", data_dir=directory) as cluster:
        assert list(cluster.states()) == ["controller", 0, 1, 2]
        assert cluster.wait_isr("orders", brokers=[0, 1, 2])
        assert cluster.leader("orders") == 0
        produce(cluster, b"1")
        with cluster.watching("broker") as heard:
            cluster.kill(0)
            assert cluster.wait_leader("orders", other_than=0) in (1, 2)
            cluster.kill("controller")
        assert [event.line for event in heard if "killed" in event.line] == ["broker b0 killed", "broker b3000 killed"]
        cluster.start_broker("controller")
        cluster.start_broker(0)
        assert set(cluster.wait_isr("orders")) == {0, 1, 2}
        cluster.faults(0).clear()
        assert values(cluster) == [b"1"]
    with cluster:
        assert values(cluster) == [b"1"]


def test_an_old_cluster_can_be_had() -> None:
    with Cluster(as_version="2.8", **ONE) as cluster:
        produce(cluster, b"1")
        assert values(cluster) == [b"1"]


def test_a_clock_that_cannot_be_steered_says_so() -> None:
    from minibroker.clock import LoopClock

    with Cluster(1, clock=LoopClock()) as cluster, pytest.raises(TypeError, match="cannot be moved"):
        cluster.freeze()


# Start and stop


def test_a_restart_keeps_ports_and_data_and_who_may_lead(tmp_path: Path) -> None:
    for data_dir in (None, tmp_path / "data"):
        cluster = Cluster(data_dir=data_dir, **ONE)
        with cluster:
            before = cluster.bootstrap_servers
            produce(cluster, b"1")
            cluster.wait_in_sync()
        with cluster:
            assert cluster.bootstrap_servers == before
            assert values(cluster) == [b"1"]
            cluster.wait_in_sync()
            cluster.elect("orders") if cluster.leader("orders") != 1 else None
            assert cluster.leader("orders") == 1


def test_a_port_that_is_taken_is_named_and_nothing_is_left(tmp_path: Path) -> None:
    Cluster().start().stop()
    with Broker() as broker:
        port = int(broker.bootstrap_servers.rpartition(":")[2])
        before, threads = handles(), threading.enumerate()
        with pytest.raises(BrokerError, match="address already in use"):
            Cluster(port=port - 1, data_dir=tmp_path).start()
        assert handles() == before
        assert threading.enumerate() == threads
    Cluster(data_dir=tmp_path).start().stop()


def test_a_topic_that_cannot_be_made_ends_the_start_and_leaves_nothing() -> None:
    Cluster().start().stop()
    before = handles()
    with pytest.raises(BrokerError, match="burn"):
        Cluster(topics="orders:1:cleanup.policy=burn").start()
    assert handles() == before


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="only Linux shows what is open")
def test_a_stop_leaves_no_thread_file_or_socket_whatever_was_done_before(tmp_path: Path) -> None:
    Cluster(**ONE).start().stop()
    before, threads = handles(), threading.enumerate()
    with Cluster(data_dir=tmp_path, **ONE) as cluster:
        produce(cluster, b"1")
        cluster.kill(1)
        cluster.pause(2)
        cluster.isolate(3)
        cluster.hold()
        cluster.freeze()
    assert handles() == before
    assert threading.enumerate() == threads


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="only Linux shows what is open")
async def test_a_stop_in_a_loop_leaves_no_task_file_or_socket(tmp_path: Path) -> None:
    async with Cluster(**ONE):
        pass
    before = handles()
    async with Cluster(data_dir=tmp_path, **ONE) as cluster:
        await aproduce(cluster, b"1")
        cluster.pause("controller")
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert handles() == before


def test_a_cluster_that_was_forgotten_is_stopped_and_told_of(tmp_path: Path) -> None:
    Cluster(**ONE).start().stop()
    before, threads = handles(), threading.enumerate()
    cluster = Cluster(data_dir=tmp_path, **ONE).start()
    with pytest.warns(ResourceWarning, match="has not been stopped"):
        del cluster
        gc.collect()
    assert threading.enumerate() == threads
    assert handles() == before
    Cluster(data_dir=tmp_path).start().stop()


def test_a_cluster_that_does_not_run_says_so_and_may_be_stopped() -> None:
    cluster = Cluster()
    cluster.stop()
    with pytest.raises(RuntimeError, match="the cluster is not running"):
        cluster.topics()
    with pytest.raises(RuntimeError, match="the cluster is not running"):
        cluster.watching()
    assert "stopped" in repr(cluster)
    assert "Cluster" in dir(minibroker)


def test_nothing_is_warned_of_in_a_usual_life_and_it_is_short() -> None:
    Cluster().start().stop()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        begun = time.monotonic()
        with Cluster(**ONE) as cluster:
            produce(cluster, b"1")
        assert time.monotonic() - begun < 2


def test_an_error_has_its_code(cluster: Cluster) -> None:
    with pytest.raises(KafkaError) as caught:
        cluster.delete_topic("bills")
    assert caught.value.code == Error.UNKNOWN_TOPIC_OR_PARTITION

"""A broker in a Python program: the same verbs wherever it runs, and nothing left of it when it has stopped."""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
import threading
import warnings
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import minibroker
from minibroker import Broker
from minibroker.client import Cluster, Producer
from minibroker.config import ConfigError
from minibroker.embedded import BrokerError
from minibroker.errors import Error, KafkaError

IN_PROCESS, PROCESS = "in process", "process"
EVERYWHERE = [IN_PROCESS, pytest.param(PROCESS, marks=pytest.mark.slow)]


@pytest.fixture(params=EVERYWHERE)
def is_process(request: pytest.FixtureRequest) -> bool:
    return bool(request.param == PROCESS)


@pytest.fixture
def broker(is_process: bool) -> Iterator[Broker]:
    with Broker(process=is_process) as broker:
        yield broker


@pytest.fixture
async def abroker(is_process: bool) -> AsyncIterator[Broker]:
    async with Broker(process=is_process) as broker:
        yield broker


def produce(broker: Broker, topic: str, *values: bytes) -> None:
    asyncio.run(aproduce(broker, topic, *values))


async def aproduce(broker: Broker, topic: str, *values: bytes, **more: Any) -> None:
    async with Cluster(broker.bootstrap_servers) as cluster, Producer(cluster) as producer:
        for value in values:
            await producer.send(topic, value, partition=0, **more)


def values(broker: Broker, topic: str) -> list[bytes | None]:
    return [record.value for record in broker.records(topic)]


# Verbs


def test_topics_are_made_listed_and_deleted(broker: Broker) -> None:
    broker.create_topic("orders", 3, cleanup_policy="compact", retention_ms=1000)
    broker.create_topic("bills")
    assert broker.topics() == {"bills": 1, "orders": 3}
    broker.delete_topic("orders")
    assert broker.topics() == {"bills": 1}


@pytest.mark.parametrize("as_version", [None, "0.10.2"])
@pytest.mark.parametrize("runs_apart", [False, True])
def test_a_topic_without_a_number_has_as_many_partitions_as_the_setting_says(
    runs_apart: bool, as_version: str | None
) -> None:
    with Broker(process=runs_apart, as_version=as_version, num_partitions=3, topics=["spec"]) as broker:
        broker.create_topic("made")
        broker.create_topic("one", 1)
        asyncio.run(broker.acreate_topic("awaited"))
        assert broker.topics() == {"awaited": 3, "made": 3, "one": 1, "spec": 3}


async def test_the_twins_of_the_verbs_are_awaited(abroker: Broker) -> None:
    await abroker.acreate_topic("orders", 3)
    assert await abroker.atopics() == {"orders": 3}
    await aproduce(abroker, "orders", b"1")
    assert len(await abroker.await_records("orders", 1)) == 1
    assert [record.value for record in await abroker.arecords("orders")] == [b"1"]
    await abroker.adelete_topic("orders")
    assert await abroker.atopics() == {}


async def test_records_come_with_all_that_the_producer_gave(abroker: Broker) -> None:
    await abroker.acreate_topic("orders", 2)
    await aproduce(abroker, "orders", b"value", key=b"key", headers=[("who", b"me")], timestamp=12345)
    (record,) = await abroker.arecords("orders")
    assert (record.partition, record.offset, record.timestamp) == (0, 0, 12345)
    assert (record.key, record.value, record.headers) == (b"key", b"value", (("who", b"me"),))


def test_waiting_ends_when_the_records_are_there_even_if_the_topic_was_not(broker: Broker) -> None:
    found: list[int] = []
    waiting = threading.Thread(target=lambda: found.append(len(broker.wait_records("orders", 3))))
    waiting.start()
    broker.create_topic("orders")
    produce(broker, "orders", b"1", b"2")
    produce(broker, "orders", b"3")
    waiting.join()
    assert found == [3]


def test_waiting_for_what_does_not_come_says_what_there_is(broker: Broker) -> None:
    broker.create_topic("orders")
    produce(broker, "orders", b"1")
    with pytest.raises(TimeoutError, match="orders has 1 record after 50 ms; 2 were waited for"):
        broker.wait_records("orders", 2, timeout=0.05)
    with pytest.raises(TimeoutError, match=r"there is no topic 'nothing' after \d+ ms \(topics: orders\)"):
        broker.wait_records("nothing", 1, timeout=0.05)


def test_who_waits_for_a_topic_that_is_not_there_is_told(broker: Broker) -> None:
    with pytest.raises(TimeoutError, match=r"there is no topic 'nope' after 10 ms \(no topic at all\)"):
        broker.wait_records("nope", 1, timeout=0.01)
    broker.create_topic("orders")
    broker.create_topic("bills")
    with pytest.raises(
        TimeoutError, match=r"no topic 'ordrs' after 10 ms \(topics: bills, orders\); did you mean orders\?"
    ):
        broker.wait_records("ordrs", 1, timeout=0.01)
    with pytest.raises(TimeoutError, match=r"bills has 0 records after 10 ms; 1 was waited for"):
        broker.wait_records("bills", 1, timeout=0.01)


def test_what_cannot_be_done_is_an_error_of_kafka(broker: Broker) -> None:
    broker.create_topic("orders")
    wishes: list[tuple[Callable[[], object], Error]] = [
        (lambda: broker.create_topic("orders"), Error.TOPIC_ALREADY_EXISTS),
        (lambda: broker.create_topic("bills", cleanup_policy="burn"), Error.INVALID_CONFIG),
        (lambda: broker.delete_topic("bills"), Error.UNKNOWN_TOPIC_OR_PARTITION),
        (lambda: broker.records("bills"), Error.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    for act, code in wishes:
        with pytest.raises(KafkaError) as caught:
            act()
        assert caught.value.code == code


async def test_plain_verbs_work_in_the_loop_of_the_broker_unless_they_would_block_it() -> None:
    async with Broker(topics="orders") as broker:
        broker.create_topic("bills")
        assert broker.topics() == {"bills": 1, "orders": 1}
        assert broker.records("orders") == []
        with pytest.raises(RuntimeError, match="await the twin"):
            broker.wait_records("orders", 0)
        with pytest.raises(RuntimeError, match="await astop"):
            broker.stop()
        assert await asyncio.to_thread(broker.topics) == broker.topics()


async def test_a_broker_in_a_thread_can_be_awaited_from_another_loop() -> None:
    with Broker(topics="orders") as broker:
        waiting = asyncio.ensure_future(broker.await_records("orders", 1))
        await aproduce(broker, "orders", b"1")
        assert [record.value for record in await waiting] == [b"1"]
        await broker.astop()
        assert threading.active_count() == len(threading.enumerate())


@pytest.mark.parametrize(
    ("library", "expected"),
    [
        ("confluent", {"bootstrap.servers": "{}"}),
        ("java", {"bootstrap.servers": "{}"}),
        ("aiokafka", {"bootstrap_servers": "{}"}),
        ("kafka-python", {"bootstrap_servers": "{}"}),
        ("spark", {"kafka.bootstrap.servers": "{}"}),
    ],
)
def test_each_library_is_told_in_its_own_words(kafka: Broker, library: str, expected: dict[str, str]) -> None:
    address = kafka.bootstrap_servers
    assert kafka.client_config(library) == {key: text.format(address) for key, text in expected.items()}  # type: ignore[arg-type]


def test_an_unknown_library_is_named(kafka: Broker) -> None:
    with pytest.raises(ValueError, match="'pykafka' is none of confluent"):
        kafka.client_config("pykafka")  # type: ignore[arg-type]


# Arguments


def test_topics_are_made_at_the_start(is_process: bool) -> None:
    with Broker(topics=["orders:3:compact", "bills:2:retention.ms=5", "plain"], process=is_process) as broker:
        assert broker.topics() == {"bills": 2, "orders": 3, "plain": 1}


def test_settings_come_by_kafkas_names_or_with_underscores(is_process: bool) -> None:
    with Broker(config={"num.partitions": 4}, message_max_bytes=2000, topics="orders", process=is_process) as broker:
        assert broker.topics() == {"orders": 4}


def test_the_environment_counts_only_if_it_is_handed_in(monkeypatch: pytest.MonkeyPatch, is_process: bool) -> None:
    monkeypatch.setenv("KAFKA_NUM_PARTITIONS", "7")
    monkeypatch.setenv("KAFKA_CREATE_TOPICS", "bills")
    with Broker(topics="orders", process=is_process) as broker:
        assert broker.topics() == {"orders": 1}
    with Broker(topics="orders", environ=os.environ, process=is_process) as broker:
        assert broker.topics() == {"bills": 7, "orders": 7}


def test_what_no_setting_takes_is_refused_before_the_start() -> None:
    with pytest.raises(ConfigError, match=r"num\.partitions=0"):
        Broker(num_partitions=0)
    with pytest.raises(ConfigError, match="a cleanup policy"):
        Broker(topics="orders:3:eternal")
    with pytest.raises(KafkaError, match="is no release"):
        Broker(as_version="17")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"topic": "orders"}, "topic is neither .*; did you mean topics"),
        ({"num_partitons": 3}, "did you mean num_partitions"),
        ({"config": {"log.segmnt.ms": 5}}, r"did you mean log\.segment\.ms|did you mean log\.segment"),
        ({"as_verison": "2.8"}, "did you mean as_version"),
        ({"brokers": 3}, "several are a minibroker.Cluster, and in pytest the fixture minibroker_cluster"),
        ({"sasl": "plain:u:p"}, "docs/settings.md has them all"),
        ({"retention_ms": None}, "did you mean log_retention_ms"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_an_argument_that_means_nothing_is_refused(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        Broker(**arguments)


OTHER_KINDS: list[tuple[dict[str, Any], str]] = [
    ({"as_version": 2.8}, r"as_version=2\.8 is not a release such as '2\.8'"),
    ({"port": "9092"}, "port='9092' is not a number"),
    ({"port": True}, "port=True is not a number"),
    ({"host": 127}, "host=127 is not a name or an address"),
    ({"cluster_id": 5}, "cluster_id=5 is not text"),
    ({"topics": 5}, "topics=5 are no topics"),
    ({"topics": ["orders", 5]}, "topics: 5 is no topic"),
    ({"clock": 5}, "clock=5 is no clock"),
]
OF_A_BROKER: list[tuple[dict[str, Any], str]] = [
    ({"process": "yes"}, "process='yes' is not True or False"),
    ({"node_id": "1"}, "node_id='1' is not a number"),
]
OF_A_CLUSTER: list[tuple[dict[str, Any], str]] = [
    ({"brokers": "3"}, "brokers='3' is not a number"),
    ({"first_id": "1"}, "first_id='1' is not a number"),
]


@pytest.mark.parametrize(
    ("owner", "arguments", "words"),
    [
        *((Broker, *row) for row in OTHER_KINDS + OF_A_BROKER),
        *((minibroker.Cluster, *row) for row in OTHER_KINDS + OF_A_CLUSTER),
    ],
    ids=str,
)
def test_an_argument_of_another_kind_is_refused(
    owner: Callable[..., object], arguments: dict[str, Any], words: str
) -> None:
    with pytest.raises(TypeError, match=words):
        owner(**arguments)


def test_what_comes_by_the_environment_is_told_and_taken_as_in_kafka() -> None:
    with pytest.warns(UserWarning, match=r"unknown setting log\.segmnt\.ms; did you mean"):
        Broker(environ={"KAFKA_LOG_SEGMNT_MS": "5"})


def test_an_id_may_be_given_by_its_old_name() -> None:
    with Broker(broker_id=7) as broker:
        assert broker.bootstrap_servers


def test_an_old_broker_can_be_had(is_process: bool) -> None:
    with Broker(as_version="0.9", topics="orders", process=is_process) as broker:
        assert broker.topics() == {"orders": 1}
        assert broker.records("orders") == []


# Start and stop


def test_two_brokers_at_once_know_nothing_of_each_other() -> None:
    with Broker(topics="one") as one, Broker(topics="two") as two:
        assert one.bootstrap_servers != two.bootstrap_servers
        produce(one, "one", b"1")
        assert (one.topics(), two.topics()) == ({"one": 1}, {"two": 1})


def test_a_restart_keeps_port_and_data(is_process: bool, tmp_path: Path) -> None:
    broker = Broker(data_dir=tmp_path / "data", process=is_process, topics="orders")
    with broker:
        before = broker.bootstrap_servers
        produce(broker, "orders", b"1")
    with broker:
        assert broker.bootstrap_servers == before
        assert values(broker, "orders") == [b"1"]


def test_a_restart_in_memory_keeps_the_data_as_long_as_the_object_lives() -> None:
    broker = Broker(topics="orders")
    with broker:
        produce(broker, "orders", b"1")
    with broker:
        assert values(broker, "orders") == [b"1"]


def test_the_directory_can_be_used_by_the_next_broker(is_process: bool, tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path, topics="orders") as broker:
        produce(broker, "orders", b"1")
    with Broker(data_dir=tmp_path, process=is_process) as broker:
        assert values(broker, "orders") == [b"1"]


def test_a_second_broker_in_a_directory_is_told_so(is_process: bool, tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path, process=is_process):
        for other in (False, True):
            for _ in range(2):  # the first try must not take the lock away
                with pytest.raises(BrokerError, match=r"another broker.*is at work in this directory"):
                    Broker(data_dir=tmp_path, process=other).start()
    Broker(data_dir=tmp_path).start().stop()


def test_a_port_that_is_taken_is_named_and_nothing_is_left(kafka: Broker, tmp_path: Path, is_process: bool) -> None:
    port = int(kafka.bootstrap_servers.rpartition(":")[2])
    before = handles()
    with pytest.raises(BrokerError, match="address already in use"):
        Broker(port=port, data_dir=tmp_path, process=is_process).start()
    assert handles() == before
    Broker(data_dir=tmp_path).start().stop()


def test_a_topic_that_cannot_be_made_ends_the_start_and_leaves_nothing(is_process: bool, tmp_path: Path) -> None:
    before = handles()
    with pytest.raises(BrokerError, match="burn"):
        Broker(topics="orders:1:cleanup.policy=burn", data_dir=tmp_path, process=is_process).start()
    assert handles() == before


def test_a_broker_that_runs_is_not_started_again(kafka: Broker) -> None:
    with pytest.raises(RuntimeError, match="runs already"):
        kafka.start()


def test_a_broker_that_does_not_run_says_so_and_may_be_stopped() -> None:
    broker = Broker()
    broker.stop()
    with pytest.raises(RuntimeError, match="not running"):
        broker.topics()
    assert "stopped" in repr(broker)


def handles() -> list[str]:
    """What this process has open: files, sockets, pipes."""
    gc.collect()
    found = []
    for name in os.listdir("/proc/self/fd"):
        try:
            found.append(os.readlink(f"/proc/self/fd/{name}"))
        except OSError:
            continue  # the handle that listed them
    return sorted(found)


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="only Linux shows what is open")
def test_a_stop_leaves_no_thread_file_or_socket(is_process: bool, tmp_path: Path) -> None:
    Broker(process=is_process).start().stop()  # what Python opens once and keeps
    before, threads = handles(), threading.enumerate()
    with Broker(data_dir=tmp_path, topics=["orders:3"], process=is_process) as broker:
        produce(broker, "orders", b"1")
        assert broker.wait_records("orders", 1)
        assert handles() != before
    assert handles() == before
    assert threading.enumerate() == threads


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="only Linux shows what is open")
async def test_a_stop_in_a_loop_leaves_no_task_file_or_socket(is_process: bool, tmp_path: Path) -> None:
    async with Broker(process=is_process):
        pass
    before, threads = handles(), threading.enumerate()
    async with Broker(data_dir=tmp_path, topics=["orders:3"], process=is_process) as broker:
        client = Cluster(broker.bootstrap_servers)
        await client.metadata()
        waiting = asyncio.ensure_future(client.topic("orders"))
        await waiting
    await client.close()
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert handles() == before
    assert threading.enumerate() == threads


def test_a_broker_that_was_forgotten_is_stopped_and_told_of(is_process: bool, tmp_path: Path) -> None:
    Broker(process=is_process).start().stop()
    before, threads = handles(), threading.enumerate()
    broker = Broker(data_dir=tmp_path, process=is_process).start()
    with pytest.warns(ResourceWarning, match="has not been stopped"):
        del broker
        gc.collect()
    assert threading.enumerate() == threads
    assert handles() == before
    Broker(data_dir=tmp_path).start().stop()


@pytest.mark.slow
def test_a_program_that_ends_without_stopping_its_broker_leaves_a_clean_directory(tmp_path: Path) -> None:
    program = (
        f"import minibroker; broker = minibroker.Broker(data_dir={str(tmp_path)!r}).start(); print(broker.topics())"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=True)
    assert (done.stdout, done.stderr) == ("{}\n", "")
    assert (tmp_path / ".kafka_cleanshutdown").exists()


def test_importing_the_package_costs_nothing_until_somebody_asks_for_a_broker() -> None:
    program = "import sys, minibroker; print(*sys.modules); minibroker.Broker; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=True)
    assert ["asyncio" in line.split() for line in done.stdout.splitlines()] == [False, True]


def test_a_name_that_the_package_does_not_have_is_no_attribute() -> None:
    import minibroker

    assert "Broker" in dir(minibroker)
    with pytest.raises(AttributeError, match="has no attribute 'Brokre'"):
        minibroker.Brokre  # noqa: B018


def test_nothing_is_warned_of_in_a_usual_life() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with Broker(topics="orders") as broker:
            produce(broker, "orders", b"1")

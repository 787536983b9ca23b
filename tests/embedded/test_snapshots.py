"""Snapshots of a broker: brokers that go on from there, each on its own, and the same broker as it was."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import os
import shutil
import socket
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from minibroker import Broker, Cluster
from minibroker.client import Cluster as Client
from minibroker.client import Producer
from minibroker.client.groups import Groups
from minibroker.embedded import BrokerError
from minibroker.errors import StorageError
from minibroker.log.checkpoints import read_file
from minibroker.log.directory import split_name
from minibroker.log.storage import OsStorage

MEMORY, DISK = "memory", "disk"
LONG_BYTES = 100_000  # shared in memory, and copied piece by piece on a disk


@pytest.fixture(params=[MEMORY, DISK])
def data_dir(request: pytest.FixtureRequest, tmp_path: Path) -> Path | None:
    return tmp_path / "data" if request.param == DISK else None


@pytest.fixture
def broker(data_dir: Path | None) -> Iterator[Broker]:
    with Broker(topics=["orders"], data_dir=data_dir) as broker:
        yield broker


def values(broker: Broker, topic: str = "orders") -> list[bytes | None]:
    return [record.value for record in broker.records(topic)]


def digest(broker: Broker) -> str:
    """Return a hash of all files of batches that a broker has, with their names."""
    storage: Any = broker._storage
    found = hashlib.sha256()
    for directory in filter(split_name, storage.list("")):
        for name in storage.list(directory):
            if name.endswith(".log"):
                path = f"{directory}/{name}"
                found.update(path.encode() + read_file(storage, path))
    return found.hexdigest()


def test_forks_have_all_that_was_there_and_nothing_of_each_other(broker: Broker) -> None:
    broker.produce("orders", "x" * LONG_BYTES)
    broker.produce("orders", "a")
    with broker.snapshot() as snapshot:
        broker.produce("orders", "later")
        before = digest(broker)
        with snapshot.fork() as one, snapshot.fork(topics=["bills"]) as other:
            assert len({each.bootstrap_servers for each in (broker, one, other)}) == 3
            assert values(one) == values(other) == values(broker)[:2]
            one.produce("orders", "one")
            other.produce("orders", "other")
            one.delete_topic("orders")
            assert values(other)[1:] == [b"a", b"other"]
            assert other.topics() == {"bills": 1, "orders": 1}
            with other.snapshot().fork() as child:
                child.produce("orders", "child")
                assert values(child)[1:] == [b"a", b"other", b"child"]
                assert values(other)[1:] == [b"a", b"other"]
        with snapshot.fork() as again:
            assert values(again)[1:] == [b"a"]
        assert digest(broker) == before
        assert values(broker)[1:] == [b"a", b"later"]


def test_a_fork_goes_on_in_a_directory_of_its_own(broker: Broker, tmp_path: Path) -> None:
    broker.produce("orders", "x" * LONG_BYTES)
    with broker.snapshot() as snapshot, snapshot.fork(data_dir=tmp_path / "fork") as fork:
        fork.produce("orders", "a")
        assert values(fork)[1:] == [b"a"]
        assert len(values(broker)) == 1
        fork.stop()
        with fork:
            assert values(fork)[1:] == [b"a"]
        with pytest.raises(BrokerError, match="holds something already"):
            snapshot.fork(data_dir=tmp_path / "fork").start()


def test_a_snapshot_is_saved_and_loaded(broker: Broker, tmp_path: Path) -> None:
    broker.produce("orders", "a")
    with broker.snapshot() as snapshot:
        snapshot.save(tmp_path / "saved")
    loaded = Broker.load_snapshot(tmp_path / "saved")
    with loaded.fork() as one, loaded.fork() as other:
        one.produce("orders", "b")
        assert (values(one), values(other)) == ([b"a", b"b"], [b"a"])
    with Broker(data_dir=tmp_path / "saved") as opened:
        assert values(opened) == [b"a"]
        with pytest.raises(BrokerError, match="at work"):
            Broker.load_snapshot(tmp_path / "saved")
    with pytest.raises(BrokerError, match="no data directory"):
        Broker.load_snapshot(tmp_path)


def test_a_snapshot_of_a_disk_leaves_no_directory(tmp_path: Path) -> None:
    with Broker(topics=["orders"], data_dir=tmp_path / "data") as broker:
        snapshot = broker.snapshot()
        assert len(list(tmp_path.iterdir())) == 2
        snapshot.close()
        assert [path.name for path in tmp_path.iterdir()] == ["data"]
        with pytest.raises(ValueError, match="closed"):
            broker.reset(snapshot)
        assert broker.topics() == {"orders": 1}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="a system without fork")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # Python 3.12: threads are there
@pytest.mark.parametrize("end", ["closes it", "exits"])
def test_the_child_of_a_program_that_forks_leaves_a_snapshot_to_its_parent(end: str, tmp_path: Path) -> None:
    with Broker(topics=["orders"], data_dir=tmp_path / "data") as broker:
        broker.produce("orders", "a")
        with broker.snapshot() as snapshot:
            child = os.fork()
            if child == 0:
                if end == "closes it":
                    snapshot.close()
                else:
                    weakref.finalize._exitfunc()  # type: ignore[attr-defined]  # as the end of the interpreter does
                os._exit(0)
            assert os.waitpid(child, 0)[1] == 0
            with snapshot.fork() as fork:
                assert values(fork) == [b"a"]
        assert [path.name for path in tmp_path.iterdir()] == ["data"]


def test_what_is_saved_has_the_files_of_a_clean_stop(broker: Broker, tmp_path: Path) -> None:
    broker.produce("orders", "a")
    with broker.snapshot() as snapshot:
        snapshot.save(tmp_path / "saved")
    with Broker(topics=["orders"], data_dir=tmp_path / "stopped") as stopped:
        stopped.produce("orders", "a")
    saved, of_stop = (sorted(os.listdir(tmp_path / each / "orders-0")) for each in ("saved", "stopped"))
    assert saved == of_stop


@pytest.mark.parametrize("into", ["saved", "fork"])
def test_a_copy_that_fails_half_way_leaves_nothing(
    into: str, broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.produce("orders", "a")
    path, done = tmp_path / into, OsStorage.set_modified_ms

    def fail(storage: OsStorage, name: str, modified_ms: int) -> None:
        if name.endswith(".log"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        done(storage, name, modified_ms)

    with broker.snapshot() as snapshot:
        fork = snapshot.fork(data_dir=path)
        with monkeypatch.context() as patched, pytest.raises((BrokerError, StorageError), match="No space left"):
            patched.setattr(OsStorage, "set_modified_ms", fail)
            snapshot.save(path) if into == "saved" else fork.start()
        assert not list(path.iterdir())
        if into == "saved":
            snapshot.save(path)
            fork = Broker(data_dir=path)
        with fork:
            assert values(fork) == [b"a"]


def test_a_start_from_a_snapshot_reads_no_log(broker: Broker) -> None:
    broker.produce("orders", "a")
    with broker.snapshot() as snapshot, snapshot.fork() as fork:
        engine: Any = fork._engine
        directory = engine._node.directory
        assert directory.was_clean
        assert [log.recovery.scanned_bytes for log in directory.logs.values()] == [0]
        assert directory.logs["orders", 0].segments[0].time_index.count == 1


# Reset


def test_reset_gives_the_old_state_at_the_same_address(broker: Broker) -> None:
    broker.produce("orders", "a")
    address = broker.bootstrap_servers
    host, port = address.split(":")
    with broker.snapshot() as snapshot, socket.create_connection((host, int(port))) as connection:
        broker.produce("orders", "b")
        broker.create_topic("bills")
        for _ in range(2):
            broker.reset(snapshot)
            assert (values(broker), broker.topics()) == ([b"a"], {"orders": 1})
            broker.produce("orders", "c")
        assert broker.bootstrap_servers == address
        assert connection.recv(1) == b""  # it has been closed
    broker.stop()
    with broker:
        assert values(broker) == [b"a", b"c"]


def test_reset_without_a_snapshot_is_the_first_start() -> None:
    with Broker(topics=["orders"]) as broker:
        broker.produce("orders", "a")
        with broker.snapshot() as snapshot, snapshot.fork() as fork:
            fork.produce("orders", "b")
            fork.reset()
            assert values(fork) == [b"a"]
        engine: Any = broker._engine
        cluster_id = engine.cluster_id
        broker.reset()
        assert (values(broker), broker.topics()) == ([], {"orders": 1})
        engine = broker._engine
        assert engine.cluster_id == cluster_id


def test_reset_of_a_disk_wants_a_snapshot(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path / "data") as broker, pytest.raises(ValueError, match="give reset"):
        broker.reset()


@pytest.mark.parametrize("place", ["", "backup"])
def test_reset_does_not_empty_the_directory_that_it_goes_back_to(place: str, tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    with Broker(topics=["orders"], data_dir=data_dir) as broker:
        broker.produce("orders", "a")
        if place:
            with broker.snapshot() as snapshot:
                snapshot.save(data_dir / place)
    loaded = Broker.load_snapshot(data_dir / place)
    with Broker(data_dir=data_dir) as broker:
        with pytest.raises(ValueError, match="which a reset empties"):
            broker.reset(loaded)
        assert values(broker) == [b"a"]


def test_reset_to_a_directory_that_is_gone_changes_nothing(tmp_path: Path) -> None:
    with Broker(topics=["orders"], data_dir=tmp_path / "data") as broker:
        broker.produce("orders", "a")
        with broker.snapshot() as snapshot:
            snapshot.save(tmp_path / "saved")
        loaded = Broker.load_snapshot(tmp_path / "saved")
        shutil.rmtree(tmp_path / "saved")
        with pytest.raises(ValueError, match="is gone"):
            broker.reset(loaded)
        assert values(broker) == [b"a"]


async def test_one_reset_at_a_time(data_dir: Path | None) -> None:
    async with Broker(topics=["orders"], data_dir=data_dir) as broker:
        await broker.aproduce("orders", "a")
        with await broker.asnapshot() as snapshot:
            done = await asyncio.gather(*(broker.areset(snapshot) for _ in range(3)), return_exceptions=True)
            assert [str(each) for each in done] == ["None", *["somebody is resetting this broker"] * 2]
            assert [record.value for record in await broker.arecords("orders")] == [b"a"]
            await broker.areset(snapshot)


async def test_the_twins_are_awaited(data_dir: Path | None) -> None:
    async with Broker(topics=["orders"], data_dir=data_dir) as broker:
        await broker.aproduce("orders", "x" * LONG_BYTES)
        with await broker.asnapshot() as snapshot:
            await broker.aproduce("orders", "b")
            async with snapshot.fork() as fork:
                assert len(await fork.arecords("orders")) == 1
            with pytest.raises(RuntimeError, match="await"):
                broker.reset(snapshot)
            await broker.areset(snapshot)
            assert len(await broker.arecords("orders")) == 1


async def test_who_writes_meanwhile_loses_nothing_and_each_snapshot_has_what_was_acknowledged(
    data_dir: Path | None,
) -> None:
    async with (
        Broker(topics=["orders"], data_dir=data_dir) as broker,
        Client(broker.bootstrap_servers) as client,
        Producer(client, idempotent=True) as producer,
    ):
        acknowledged, is_over = 0, False

        async def write() -> None:
            nonlocal acknowledged
            while not is_over:
                await producer.send("orders", b"x" * 3000)
                acknowledged += 1

        writers = [asyncio.ensure_future(write()) for _ in range(4)]
        for count in range(40, 200, 40):
            await broker.await_records("orders", count, timeout=60)
            before = acknowledged
            with await broker.asnapshot() as snapshot:
                async with snapshot.fork() as fork:
                    offsets = [record.offset for record in await fork.arecords("orders")]
            assert offsets == [*range(len(offsets))]
            assert len(offsets) >= before
        is_over = True
        await asyncio.gather(*writers)
        assert len(await broker.arecords("orders")) == acknowledged


# What a fork goes on with


def test_a_fork_goes_on_at_the_time_of_a_moved_clock() -> None:
    with Broker(topics=["orders"]) as broker:
        broker.freeze()
        broker.jump("-30d")
        now_ms = broker.clock.now_ms()
        snapshot = broker.snapshot()
        broker.advance("1d")
        with snapshot.fork() as fork:
            assert fork.clock.now_ms() == now_ms
            fork.advance("1h")
            assert fork.clock.now_ms() == now_ms + 3_600_000
            fork.reset()
            assert fork.clock.now_ms() == now_ms
        broker.reset(snapshot)
        assert broker.clock.now_ms() == now_ms


def test_a_fork_has_the_arguments_of_its_broker_unless_it_is_given_others() -> None:
    users = {"alice": "secret"}
    with Broker(node_id=7, users=users, topics=["orders:1"], num_partitions=4) as broker:
        snapshot = broker.snapshot()
    with snapshot.fork() as fork:
        fork.create_topic("many")
        fork.produce("orders", "a")  # as alice
        assert fork.topics() == {"many": 4, "orders": 1}
        assert fork.client_config("confluent")["sasl.username"] == "alice"
    with snapshot.fork(num_partitions=2) as fork:
        fork.create_topic("fewer")
        assert fork.topics()["fewer"] == 2
    with pytest.raises(ValueError, match="node_id=7"), Broker() as other:
        other.reset(snapshot)


async def test_a_broker_that_does_not_run_has_no_snapshot() -> None:
    with pytest.raises(RuntimeError, match="call start"):
        Broker().snapshot()
    with pytest.raises(RuntimeError, match="call start"):
        await Broker().asnapshot()


def test_what_is_no_snapshot_is_refused() -> None:
    with pytest.raises(TypeError, match="load_snapshot"):
        Broker(snapshot="data")  # type: ignore[arg-type]
    with pytest.raises(NotImplementedError, match="no snapshot"):
        Cluster().snapshot()


@pytest.mark.slow
def test_a_process_goes_on_from_a_directory_and_has_no_snapshot_of_its_own(broker: Broker, tmp_path: Path) -> None:
    broker.produce("orders", "a")
    with broker.snapshot() as snapshot:
        with pytest.raises(ValueError, match="data_dir"):
            snapshot.fork(process=True)
        with snapshot.fork(process=True, data_dir=tmp_path / "fork") as fork:
            assert values(fork) == [b"a"]
            with pytest.raises(ValueError, match="process of its own"):
                fork.snapshot()
            with pytest.raises(ValueError, match="process of its own"):
                fork.reset(snapshot)


# Clients


@pytest.mark.interop
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_group_of_kafka_python_goes_on_from_what_it_had_committed(broker: Broker) -> None:
    kafka_python = pytest.importorskip("kafka")
    producer = kafka_python.KafkaProducer(bootstrap_servers=broker.bootstrap_servers)
    for number in range(3):
        producer.send("orders", b"%d" % number, partition=0)
    producer.flush()
    consumer = _consumer(broker)
    assert [next(consumer).value for _ in range(2)] == [b"0", b"1"]
    consumer.commit()
    consumer.close()
    with broker.snapshot() as snapshot:
        producer.send("orders", b"after").get(30)
        producer.close()
        for _ in range(2):
            with snapshot.fork() as fork:
                assert fork.group("readers").partition("orders", 0).committed == 2
                late = kafka_python.KafkaProducer(bootstrap_servers=fork.bootstrap_servers)
                late.send("orders", b"3").get(30)
                late.close()
                consumer = _consumer(fork)
                assert [next(consumer).value for _ in range(2)] == [b"2", b"3"]
                consumer.commit()
                consumer.close()
                assert fork.group("readers").partition("orders", 0).committed == 4
        assert broker.group("readers").partition("orders", 0).committed == 2


def _consumer(broker: Broker) -> Any:
    kafka: Any = pytest.importorskip("kafka")
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=broker.bootstrap_servers,
        group_id="readers",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        consumer_timeout_ms=60_000,
        max_poll_records=1,
    )
    consumer.assign([kafka.TopicPartition("orders", 0)])
    return consumer


async def test_an_open_transaction_can_be_aborted_in_a_fork_and_goes_on_in_the_origin(data_dir: Path | None) -> None:
    async with (
        Broker(topics=["orders"], data_dir=data_dir) as broker,
        Client(broker.bootstrap_servers) as client,
        Producer(client, transactional_id="pay-1") as producer,
    ):
        await producer.init_transactions()
        producer.begin_transaction()
        await producer.send("orders", b"a")
        with await broker.asnapshot() as snapshot:
            async with snapshot.fork() as fork:
                before = await fork.atransaction("pay-1")
                assert before == await broker.atransaction("pay-1")
                assert before.state == "Ongoing"
                await fork.aabort_transaction("pay-1")
                await fork.await_transaction("pay-1", "CompleteAbort")
                assert await fork.aproduce("orders", "b")
                assert [record.value for record in await fork.arecords("orders")] == [b"a", b"b"]
            await producer.commit_transaction()
            await broker.await_transaction("pay-1", "CompleteCommit")
            async with snapshot.fork() as fork:
                assert (await fork.atransaction("pay-1")).state == "Ongoing"


async def test_producer_ids_of_the_origin_are_known_and_no_fork_gives_them_away(data_dir: Path | None) -> None:
    async with Broker(topics=["orders"], data_dir=data_dir) as broker:
        await broker.acreate_topic("bills")
        await _send_idempotently(broker, "orders")
        assert (first := _producer_ids(broker, "orders"))
        with await broker.asnapshot() as snapshot:
            async with snapshot.fork() as fork:
                await _send_idempotently(fork, "bills")
                assert _producer_ids(fork, "orders") == first
                assert min(_producer_ids(fork, "bills")) > max(first)


async def _send_idempotently(broker: Broker, topic: str) -> None:
    async with Client(broker.bootstrap_servers) as client, Producer(client, idempotent=True) as producer:
        await producer.send(topic, b"a")


def _producer_ids(broker: Broker, topic: str) -> list[int]:
    engine: Any = broker._engine
    return [*engine._node.replicas[topic, 0].log.producers.producers]


def test_compaction_goes_on_where_it_was(broker: Broker) -> None:
    broker.create_topic("state", cleanup_policy="compact")
    for number in range(4):
        broker.produce("state", f"{number}", key="k")
    broker.roll_now("state")
    broker.produce("state", "last", key="other")
    with broker.snapshot() as snapshot, snapshot.fork() as fork:
        fork.compact_now("state")
        assert values(fork, "state") == [b"3", b"last"]
        assert len(values(broker, "state")) == 5
        with fork.snapshot().fork() as child:
            assert values(child, "state") == [b"3", b"last"]
            engine: Any = child._engine
            assert engine._node.directory.cleaner_offsets["state", 0] == 4


async def test_committed_groups_of_our_own_client_are_there() -> None:
    async with Broker(topics=["orders"]) as broker:
        async with Client(broker.bootstrap_servers) as client:
            await Groups(client).alter_offsets("readers", {("orders", 0): 2})
        with await broker.asnapshot() as snapshot:
            async with snapshot.fork() as fork:
                assert (await fork.agroup("readers")).partition("orders", 0).committed == 2

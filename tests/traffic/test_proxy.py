"""Clients behind the proxy: they stay there, whichever broker they are sent to."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from minibroker import Broker, Cluster
from minibroker.clock import LoopClock
from minibroker.protocol.registry import APIS, response_class
from minibroker.reporter import Reporter
from minibroker.traffic.exchanges import rows
from minibroker.traffic.files import open_recorder, read
from minibroker.traffic.lines import RequestRow
from minibroker.traffic.proxy import ADDRESSES, Proxy
from tests.differential.kafka import Kafka, missing_tools

KAFKA = "4.4.0"
pytestmark = [pytest.mark.interop, pytest.mark.filterwarnings("ignore::DeprecationWarning")]  # kafka-python's


@contextmanager
def proxy_before(bootstrap: str, path: Path | None = None) -> Iterator[str]:
    """Run a proxy in a thread; give the address for clients."""
    host, _, port = bootstrap.partition(",")[0].rpartition(":")
    loop = asyncio.new_event_loop()
    clock = LoopClock()
    recorder = None if path is None else open_recorder(str(path), clock, pytest.fail)
    proxy = Proxy(clock, Reporter(), tap=recorder and recorder.over)
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        server = asyncio.run_coroutine_threadsafe(proxy.listen((host, int(port))), loop).result()
        yield f"{server.host}:{server.port}"
    finally:
        asyncio.run_coroutine_threadsafe(proxy.stop(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
        if recorder is not None:
            recorder.close()


def use(address: str, make_topic: Callable[[], None]) -> set[int]:
    """Produce, read and commit by kafka-python; return the ports of the brokers that it knows."""
    from kafka import KafkaConsumer, KafkaProducer

    make_topic()
    producer = KafkaProducer(bootstrap_servers=address, client_id="shop")
    for partition in range(4):
        producer.send("orders", b"%d" % partition, partition=partition).get(60)
    producer.send("orders", b"unanswered", partition=0)
    consumer: Any = KafkaConsumer(
        "orders", bootstrap_servers=address, group_id="g", auto_offset_reset="earliest", enable_auto_commit=False
    )
    found = {next(consumer).value for _ in range(5)}
    consumer.commit()
    assert len(found) == 5
    ports = {broker.port for broker in consumer._client.cluster.brokers()}
    consumer.close()
    producer.close()
    return ports


def rows_in(path: Path) -> list[RequestRow]:
    return [row for _, row in rows(read(str(path)).entries)]


def test_a_client_stays_behind_the_proxy(tmp_path: Path) -> None:
    with Broker() as broker:
        with proxy_before(broker.bootstrap_servers, tmp_path / "traffic.rec") as address:
            ports = use(address, lambda: broker.create_topic("orders", 4))
            assert ports == {int(address.rpartition(":")[2])}
        assert broker.group("g").partition("orders", 3).committed == 1
    found = rows_in(tmp_path / "traffic.rec")
    assert {"Produce", "Fetch", "Metadata", "FindCoordinator", "JoinGroup"} <= {row.api for row in found}


@pytest.mark.slow
def test_each_broker_of_a_cluster_has_a_listener_of_its_own(tmp_path: Path) -> None:
    with Cluster(2) as cluster:
        own = {int(each.rpartition(":")[2]) for each in cluster.bootstrap_servers.split(",")}
        with proxy_before(cluster.bootstrap_servers, tmp_path / "traffic.rec") as address:
            ports = use(address, lambda: cluster.create_topic("orders", 4))
            assert len(ports) == 2
            assert not ports & own
    produced = [row for row in rows_in(tmp_path / "traffic.rec") if row.api == "Produce"]
    assert len({row.broker for row in produced}) == 2


@pytest.mark.slow
def test_clients_log_in_through_it(tmp_path: Path) -> None:
    path = tmp_path / "traffic.rec"
    with Broker(users={"alice": "hush-hush"}, topics=["orders"]) as broker:
        with proxy_before(broker.bootstrap_servers, path) as address:
            from kafka import KafkaProducer

            config = {**broker.client_config("kafka-python"), "bootstrap_servers": address}
            producer = KafkaProducer(**config)
            producer.send("orders", b"x").get(60)
            producer.close()
        broker.wait_records("orders", 1)
    assert b"hush" not in path.read_bytes()


def test_who_is_behind_a_broker_that_is_not_there_is_closed() -> None:
    from minibroker.client import Admin
    from minibroker.client import Cluster as Client
    from minibroker.errors import KafkaError

    async def main(address: str) -> None:
        async with Client(address) as client:
            await Admin(client).delete_topics(["x"])

    with proxy_before("127.0.0.1:1") as address, pytest.raises(KafkaError):
        asyncio.run(main(address))


def test_every_answer_with_the_address_of_a_broker_is_known() -> None:
    # Of controllers among themselves, and to brokers; of applications of Kafka Streams, which are no brokers.
    others = {"Vote", "BeginQuorumEpoch", "EndQuorumEpoch", "FetchSnapshot", "DescribeQuorum", "UpdateRaftVoter"}
    others |= {"StreamsGroupHeartbeat", "StreamsGroupDescribe"}

    def has_address(struct: type) -> bool:
        fields = getattr(struct, "__fields__", {})
        inner = [each for each in vars(struct).values() if isinstance(each, type) and each is not struct]
        return {"host", "port"} <= {*fields} or any(has_address(each) for each in inner)

    found = {name for api, name in APIS.items() if has_address(response_class(api))}
    assert found - others == {APIS[api] for api in ADDRESSES}


@pytest.mark.slow
@pytest.mark.skipif(bool(missing_tools()), reason=f"needs {missing_tools()}")
def test_before_a_real_kafka(tmp_path: Path) -> None:
    """What is recorded there is answered by us: most of it alike."""
    from minibroker.traffic.replay import Replay, ReplayedRequest

    path = tmp_path / "traffic.rec"
    with (
        Kafka(KAFKA, tmp_path / "kafka") as kafka,
        Broker.attach(kafka.address) as attached,
        proxy_before(kafka.address, path) as address,
    ):
        ports = use(address, lambda: attached.create_topic("orders", 4))
        assert kafka.address.rpartition(":")[2] not in map(str, ports)

    async def replay() -> list[ReplayedRequest]:
        async with Broker(topics=["orders:4"]) as ours:
            host, _, port = ours.bootstrap_servers.rpartition(":")
            return [each async for each in Replay((host, int(port)), LoopClock()).run(read(str(path)).entries)]

    outcomes = asyncio.run(replay())
    produced = [each for each in outcomes if each.exchange.request.payload[:2] == b"\0\0"]
    assert produced
    assert not [each for each in produced if each.reason]
    assert not [str(each) for outcome in produced for each in outcome.differences if not each.is_natural]

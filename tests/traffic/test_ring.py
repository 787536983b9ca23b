"""The last requests of clients, as a test that fails shows them."""

from __future__ import annotations

import base64

import pytest

from minibroker import Broker, Cluster
from minibroker.protocol.framing import encode_request
from minibroker.protocol.messages.metadata import MetadataRequest
from minibroker.protocol.messages.produce import ProduceRequest
from minibroker.traffic.lines import summary_of
from minibroker.traffic.ring import REQUESTS_MAX

pytest_plugins = ["pytester"]


async def test_a_row_says_what_was_asked_and_answered() -> None:
    async with Broker(topics=["orders"]) as broker:
        await broker.aproduce("orders", "hello", key="k")
        (row,) = [row for row in await broker.arequests() if row.api == "Produce"]
    assert row.client_id == "minibroker-embedded"
    assert row.summary == "orders-0 1 record, 74 B -> offset 0"
    assert (row.error, row.broker) == ("", 1)
    assert row.ms is not None
    assert str(row).endswith(f"minibroker-embedded  Produce v{row.version} {row.summary}, {row.ms:.1f} ms")


async def test_errors_have_the_names_of_kafka_and_large_frames_are_read_by_their_start() -> None:
    async with Broker(message_max_bytes=10_000, topics=["orders"]) as broker:
        with pytest.raises(Exception, match="MESSAGE_TOO_LARGE"):
            await broker.aproduce("orders", base64.b64encode(bytes(30_000)))
        rows = [row for row in await broker.arequests() if row.api == "Produce"]
    assert rows[-1].error == "MESSAGE_TOO_LARGE"
    assert "orders-0 1 record, 40" in rows[-1].summary


async def test_of_a_login_nothing_is_kept() -> None:
    async with Broker(users={"alice": "hush-hush"}, topics=["orders"]) as broker:
        await broker.aproduce("orders", "x")
        rows = await broker.arequests()
        kept = repr(broker._running()._ring._kept)  # type: ignore[attr-defined]
    assert [row.summary for row in rows if row.api == "SaslAuthenticate"]
    assert "hush" not in kept
    assert "alice" not in kept


async def test_so_many_of_each_connection() -> None:
    async with Broker(topics=["orders"]) as broker:
        async with Broker.attach(broker.bootstrap_servers) as client:
            for _ in range(2 * REQUESTS_MAX):
                await client.atopics()
        rows = await broker.arequests()
        assert len(rows) == REQUESTS_MAX
        assert len(await broker.arequests(5)) == 5


def test_a_cluster_has_those_of_all_its_brokers() -> None:
    with Cluster(2, topics=["orders:2:2"]) as cluster:
        for partition in range(2):
            cluster.produce("orders", "x", partition=partition)
        rows = [row for row in cluster.requests() if row.api == "Produce"]
    assert {row.broker for row in rows} == {1, 2}


def test_what_cannot_be_read_is_a_line_too() -> None:
    metadata = b"".join(encode_request(MetadataRequest(topics=[]), 5, 7, "me"))[4:]
    assert summary_of(metadata, b"\0\0\0\x05\0\0\0\x07\xff", lambda _: None).summary == "-> 9 B"
    assert summary_of(b"\0\x7f\0\0\0\0", None, lambda _: None)[1:4] == ("api 127", 0, "6 B")
    topic = ProduceRequest.TopicProduceData(topic_id=b"t" * 16, partition_data=[])
    data = b"".join(encode_request(ProduceRequest(acks=0, timeout_ms=1, topic_data=[topic]), 13, 7, "me"))[4:]
    assert summary_of(data, None, lambda _: None).api == "Produce"


def test_a_failing_test_shows_them(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        def test_orders(kafka):
            kafka.create_topic("orders")
            kafka.produce("orders", "x")
            assert kafka.topics() == {}
        """
    )
    result = pytester.runpytest("-p", "no:cacheprovider")
    result.stdout.fnmatch_lines(
        ["*minibroker: kafka*", "orders: 1 partition, 1 offset", "last requests", "*Produce v* orders-0 1 record*"]
    )

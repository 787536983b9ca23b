"""One and the same test on a broker of its own, on one that somebody else runs, and on a real Kafka."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from minibroker import Broker
from minibroker.client import Cluster
from minibroker.client.groups import Groups
from minibroker.embedded import BrokerError
from minibroker.embedded.attached import Attached, NotToBeHad
from minibroker.errors import Error, KafkaError
from tests.differential.kafka import Kafka, missing_tools

pytest_plugins = ["pytester"]
pytestmark = pytest.mark.outside
KAFKA = "4.4.0"
REAL = pytest.param(
    KAFKA, marks=[pytest.mark.interop, pytest.mark.skipif(bool(missing_tools()), reason=f"needs {missing_tools()}")]
)


@pytest.fixture(params=["ours", REAL])
def outside(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Attached]:
    if request.param == "ours":
        with Broker() as own, Broker.attach(own.bootstrap_servers) as broker:
            yield broker
    else:
        with Kafka(request.param, tmp_path) as kafka, Broker.attach(kafka.address) as broker:
            yield broker


def commit(address: str, group: str, topic: str, offset: int) -> None:
    async def main() -> None:
        async with Cluster(address) as cluster:
            await Groups(cluster).alter_offsets(group, {(topic, 0): offset})

    asyncio.run(main())


def test_the_verbs_of_a_broker_do_the_same_on_an_outside_one(outside: Attached) -> None:
    assert outside.topics() == {}
    outside.create_topic("orders", 2, cleanup_policy="compact")
    outside.create_topic("bills")
    assert outside.topics() == {"bills": 1, "orders": 2}
    written = outside.produce("orders", {"id": 1, "state": "new"}, key="1", partition=1)
    assert (written.partition, written.offset) == (1, 0)
    assert outside.load("bills", [{"id": number} for number in range(5)]) == 5
    assert [record.value for record in outside.records("orders")] == [b'{"id":1,"state":"new"}']
    (found,) = outside.expect("orders", key="1", value={"state": "new"}, within="5s")
    assert found.offset == 0
    outside.never("orders", value={"state": "paid"}, within="50ms")
    with pytest.raises(AssertionError, match="this came instead"):
        outside.expect("orders", value={"state": "paid"}, within="50ms")
    assert outside.ends("bills") == {0: (0, 5)}
    assert [record.offset for record in outside.last_records("bills", 2)] == [3, 4]
    assert len(outside.wait_records("bills", 5)) == 5
    with pytest.raises(TimeoutError, match="bills has 5 records"):
        outside.wait_records("bills", 6, timeout=0.2)
    outside.delete_topic("orders")
    assert outside.topics() == {"bills": 1}


def test_groups_are_seen_and_waited_for(outside: Attached) -> None:
    assert outside.groups() == []
    outside.create_topic("orders")
    outside.load("orders", range(5))
    with pytest.raises(TimeoutError, match="readers has committed nothing of orders-0, and not 3"):
        outside.wait_committed("readers", "orders", offset=3, timeout=0.1)
    commit(outside.bootstrap_servers, "readers", "orders", 3)
    assert outside.wait_committed("readers", "orders", offset=3) == 3
    group = outside.wait_group("readers", members=0)
    row = group.partition("orders")
    assert (group.state, row.committed, row.high_watermark, row.lag_to_hw, row.lag_to_lso) == ("Empty", 3, 5, 2, 2)
    with pytest.raises(TimeoutError, match="group 'readers' is Empty with 0 members, and not Stable with 2 members"):
        outside.wait_group("readers", members=2, timeout=0.1)
    assert [(each.group, each.state, each.members) for each in outside.groups()] == [("readers", "Empty", 0)]
    assert outside.overview().endswith("group readers: Empty, 0 members, lag 2\n  orders-0: committed 3 of 5")
    outside.delete_group("readers")
    with pytest.raises(KafkaError) as caught:
        outside.group("readers")
    assert caught.value.code == Error.GROUP_ID_NOT_FOUND
    assert outside.wait_group("readers", state="Dead").members == []


def test_members_and_what_they_have_are_seen(outside: Attached) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from kafka import KafkaConsumer
    outside.create_topic("orders", 2)
    consumer = KafkaConsumer("orders", bootstrap_servers=outside.bootstrap_servers, group_id="readers")
    try:
        with ThreadPoolExecutor() as others:
            waiting = others.submit(outside.wait_group, "readers", 1, None, 30)
            while not waiting.done():
                consumer.poll(timeout_ms=50)
        group = waiting.result()
        while not group.partitions:  # the consumer may have joined before it knew of the topic
            consumer.poll(timeout_ms=50)
            group = outside.wait_group("readers", 1)
        (member,) = group.members
        assert (group.state, group.protocol_type) == ("Stable", "consumer")
        assert sorted(member.assignment) == [("orders", 0), ("orders", 1)]
        assert [row.member for row in group.partitions] == [member.id, member.id]
    finally:
        consumer.close()


@pytest.mark.parametrize("verb", ["advance", "faults", "retention_now", "abort_transaction", "clock", "freeze"])
def test_what_an_outside_broker_cannot_have_is_said_by_name(verb: str) -> None:
    with Broker() as own, Broker.attach(own.bootstrap_servers) as broker:
        with pytest.raises(NotToBeHad, match=f"{verb} is not to be had of an outside broker"):
            getattr(broker, verb)
        with pytest.raises(AttributeError, match="has no attribute 'nonsense'"):
            broker.nonsense  # type: ignore[attr-defined]  # noqa: B018


def test_who_is_not_there_is_said() -> None:
    with pytest.raises(BrokerError, match=r"no broker answers at 127\.0\.0\.1:1: "):
        Broker.attach("127.0.0.1:1").start()


def test_it_comes_in_as_a_client_does() -> None:
    with Broker(users={"alice": "secret"}, tls=True) as own:
        settings: dict[str, Any] = dict(own.client_config("minibroker"))
        with Broker.attach(settings.pop("bootstrap.servers"), settings) as broker:
            broker.create_topic("orders")
            broker.produce("orders", "one")
            assert own.records("orders")[0].value == b"one"
            with pytest.raises(NotToBeHad):
                broker.client_config("confluent")


# The plugin

SUITE = """
    import pytest

    def test_orders(kafka):
        assert list(kafka.topics()) == BEFORE
        kafka.create_topic("orders")
        kafka.produce("orders", {"id": 1})
        kafka.expect("orders", value={"id": 1})

    def test_orders_again(kafka):
        kafka.create_topic("orders")
        assert kafka.records("orders") == []

    @pytest.mark.kafka(topics=["bills:3:compact"])
    def test_topics_of_a_marker(kafka):
        assert kafka.topics()["bills"] == 3

    @pytest.mark.kafka(num_partitions=3)
    def test_settings(kafka):
        kafka.create_topic("orders")
        assert kafka.topics()["orders"] == 3

    def test_time(kafka):
        kafka.advance("7d")

    def test_three(minibroker_cluster):
        minibroker_cluster.kill(1)

    def test_session(kafka_session, kafka_topic):
        kafka_session.produce(kafka_topic, "x")
        assert len(kafka_session.records(kafka_topic)) == 1

    def test_that_fails(kafka):
        kafka.create_topic("orders")
        kafka.produce("orders", "mine")
        kafka.expect("orders", value="yours", within="10ms")
"""


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["own", "ours", REAL])
def test_a_suite_runs_on_each_of_them(kind: str, pytester: pytest.Pytester, tmp_path: Path) -> None:
    before = [] if kind == "own" else ["kept"]
    pytester.makepyfile(f"BEFORE = {before}\n" + "\n".join(line[4:] for line in SUITE.splitlines()))

    def run(*options: str) -> pytest.RunResult:
        return pytester.runpytest_subprocess("-p", "no:cacheprovider", "-rs", "-W", "error::ResourceWarning", *options)

    if kind == "own":
        run().assert_outcomes(passed=7, failed=1)
        return
    with Broker() if kind == "ours" else Kafka(kind, tmp_path / "kafka") as other:
        address: str = getattr(other, "bootstrap_servers", "") or other.address  # type: ignore[union-attr]
        with Broker.attach(address) as broker:
            broker.create_topic("kept")
            broker.produce("kept", "stays")
            result = run(f"--kafka-bootstrap={address}")
            result.assert_outcomes(passed=4, failed=1, skipped=3)
            told = "\n".join(result.outlines)
            for words in (
                "num_partitions=3: not to be had of an outside broker",
                "advance is not to be had of an outside broker",
                "minibroker_cluster is not to be had outside",
                "orders: 1 partition, 1 offset",
            ):
                assert words in told
            assert broker.topics() == {"kept": 1}
            assert [record.value for record in broker.records("kept")] == [b"stays"]


@pytest.mark.slow
def test_an_ini_file_says_where_and_what_is_there_already_is_not_touched(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        import pytest

        @pytest.mark.kafka(topics=["orders"])
        def test_orders(kafka):
            pass
        """)
    with Broker(topics="orders") as own:
        pytester.makeini(f"[pytest]\nkafka_bootstrap = {own.bootstrap_servers}\n")
        result = pytester.runpytest_subprocess("-p", "no:cacheprovider")
        result.assert_outcomes(errors=1)
        result.stdout.fnmatch_lines(["*ValueError: orders is there already, and its records would count*"])
        assert own.topics() == {"orders": 1}

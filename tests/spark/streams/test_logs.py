"""A stream commits its offsets to a group only if it is asked to, and never over those of somebody else."""

from __future__ import annotations

import asyncio

import pytest

from minibroker import Broker
from minibroker.client import Cluster
from minibroker.client.groups import CommittedOffset, Groups
from minibroker.spark.brokers.planning import BrokerLogs
from minibroker.spark.filters import Filters
from minibroker.spark.options import parse

ORDERS = ("orders", 0), ("orders", 1)


def logs_of(broker: Broker, **options: str) -> BrokerLogs:
    told = {"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": "orders"}
    told |= {name.replace("_", "."): value for name, value in options.items()}
    return BrokerLogs(parse(told, streaming=True))


def test_times_are_for_the_beginning_only_and_a_new_partition_needs_none() -> None:
    with Broker(topics=["orders:2"]) as broker:
        logs = logs_of(broker, startingOffsetsByTimestamp='{"orders":{"0":1700000000000}}')
        assert {*logs.find(Filters(), must_be_there=False)} == {*ORDERS}
        logs.close()


def committed(broker: Broker) -> dict[str, dict[tuple[str, int], CommittedOffset]]:
    """Return what every group has committed."""

    async def ask() -> dict[str, dict[tuple[str, int], CommittedOffset]]:
        async with Cluster(broker.bootstrap_servers) as cluster:
            groups = Groups(cluster)
            return await groups.fetch_offsets([each.id for each in await groups.list_groups()])

    return asyncio.run(ask())


def commit_as_application(broker: Broker, group: str, offset: int) -> None:
    async def commit() -> None:
        async with Cluster(broker.bootstrap_servers) as cluster:
            await Groups(cluster).alter_offsets(group, dict.fromkeys(ORDERS, offset))

    asyncio.run(commit())


def test_nothing_is_committed_unless_it_was_asked_for() -> None:
    with Broker(topics=["orders:2"]) as broker:
        for options in ({}, {"kafka_group_id": "billing"}):
            logs = logs_of(broker, **options)
            logs.commit(dict.fromkeys(ORDERS, 3))
            logs.close()
        assert committed(broker) == {}


def test_the_group_shows_where_a_stream_is_if_it_was_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    with Broker(topics=["orders:2"]) as broker:
        for offset in (3, 5):  # the second stream goes on where the first one was
            logs = logs_of(broker, kafka_group_id="lake", commitOffsets="true")
            logs.commit(dict.fromkeys(ORDERS, offset))
            logs.close()
            offsets = {key: each.offset for key, each in committed(broker)["lake"].items()}
            assert offsets == dict.fromkeys(ORDERS, offset)
    assert capsys.readouterr().err == ""


def test_offsets_of_somebody_else_stay_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    with Broker(topics=["orders:2"]) as broker:
        commit_as_application(broker, "billing", 100)
        before = committed(broker)
        logs = logs_of(broker, kafka_group_id="billing", commitOffsets="true")
        for offset in (3, 5):
            logs.commit(dict.fromkeys(ORDERS, offset))
        logs.close()
        assert committed(broker) == before
    told = capsys.readouterr().err.splitlines()
    assert len(told) == 1
    assert "group billing does not show where this stream is: it has offsets that somebody" in told[0]


def test_an_application_that_takes_the_group_over_is_left_alone() -> None:
    with Broker(topics=["orders:2"]) as broker:
        logs = logs_of(broker, kafka_group_id="lake", commitOffsets="true")
        logs.commit(dict.fromkeys(ORDERS, 3))
        commit_as_application(broker, "lake", 100)
        logs.commit(dict.fromkeys(ORDERS, 5))
        logs.close()
        assert {each.offset for each in committed(broker)["lake"].values()} == {100}

"""Groups in a cluster: they outlive their coordinator, and are seen and waited for from everywhere."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from typing import Any

import pytest

from minibroker import Cluster
from minibroker.client import Producer
from minibroker.client.control import Refusal
from minibroker.cluster.snapshot import snapshot
from minibroker.errors import Error, KafkaError
from tests.embedded.groups import team
from tests.embedded.test_cluster import Client, aproduce

from .served import served
from .test_control import post

ONE_PARTITION: dict[str, Any] = {"offsets_topic_num_partitions": 1}


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    async with Cluster(topics=["orders:2"], **ONE_PARTITION) as cluster:
        yield cluster


async def test_a_group_and_its_offsets_outlive_their_coordinator(cluster: Cluster) -> None:
    async with team(cluster.bootstrap_servers, "readers", ["orders"]) as readers:
        await readers.join("anna")
        await readers.share()
        await readers.commit("anna", "orders", 0, 3)
        first = (await cluster.await_group("readers", 1)).coordinator
        assert first == await readers.coordinator()
        with cluster.watching("group") as heard:
            await cluster.akill(first)
            found = await cluster.await_group("readers", 1)
            assert f"group b{found.coordinator} readers Stable->Stable" in [event.line for event in heard]
        assert found.coordinator != first
        assert [member.client_id for member in found.members] == ["anna"]
        assert found.members[0].assignment == [("orders", 0), ("orders", 1)]
        assert await cluster.await_committed("readers", "orders", 0, 3) == 3
        assert cluster.groups() == [("readers", "Classic", "consumer", "Stable", 1, found.coordinator)]


async def test_a_group_that_nobody_can_tell_of_is_waited_for_until_somebody_can(cluster: Cluster) -> None:
    async with team(cluster.bootstrap_servers, "readers", ["orders"]) as readers:
        await readers.join("anna")
        await readers.share()
        for broker in (1, 2, 3):
            await cluster.akill(broker)
        with pytest.raises(
            KafkaError, match="nobody knows of group 'readers': nobody leads __consumer_offsets-0"
        ) as no:
            cluster.group("readers")
        assert no.value.code == Error.COORDINATOR_NOT_AVAILABLE
        assert cluster.groups() == []
        waiting = asyncio.create_task(cluster.await_group("readers", 1))
        for broker in (1, 2, 3):
            await cluster.astart_broker(broker)
        assert (await waiting).members[0].client_id == "anna"


async def test_lags_are_those_of_the_leader_and_committed_records_only_lag_to_the_high_watermark(
    cluster: Cluster,
) -> None:
    await aproduce(cluster, b"1", b"2")
    await cluster.await_in_sync()
    async with team(cluster.bootstrap_servers, "readers", ["orders"]) as readers:
        await readers.join("anna")
        await readers.share()
        await readers.commit("anna", "orders", 0, 1)
        cluster.hold("fetch")
        async with Client(cluster.bootstrap_servers) as client, Producer(client, acks=1) as producer:
            await producer.send("orders", b"3", partition=0)
        row = cluster.group("readers").partition("orders", 0)
        assert (row.last_stable_offset, row.high_watermark, row.log_end_offset) == (2, 2, 3)
        assert (row.lag_to_lso, row.lag_to_hw, row.lag_to_leo) == (1, 1, 2)


async def test_of_a_partition_that_nobody_leads_only_the_committed_offset_is_known(cluster: Cluster) -> None:
    await cluster.acreate_topic("bills", assignments=[[3]])
    async with team(cluster.bootstrap_servers, "readers", ["bills"]) as readers:
        await readers.join("anna")
        await readers.share()
        await readers.commit("anna", "bills", 0, 0)
        assert cluster.group("readers").partition("bills").lag_to_leo == 0
        await cluster.akill(3)
        row = (await cluster.await_group("readers", 1)).partition("bills")
        assert row[2:] == (readers.members["anna"].id, None, 0, None, None, None, None, None, None, None)


async def test_a_snapshot_has_the_groups(cluster: Cluster) -> None:
    async with team(cluster.bootstrap_servers, "readers", ["orders"]) as readers:
        await readers.join("anna")
        await readers.share()
        await readers.commit("anna", "orders", 1, 2)
        state = snapshot(cluster._running().core)
        assert json.loads(json.dumps(state["groups"])) == [
            {
                "id": "readers",
                "state": "Stable",
                "coordinator": cluster.group("readers").coordinator,
                "protocol": "Classic",
                "epoch": 1,
                "assignor": "range",
                "members": {"anna": {"assigned": ["orders-0", "orders-1"], "owned": ["orders-0", "orders-1"]}},
                "committed": {"orders-1": 2},
            }
        ]


async def test_any_broker_tells_of_groups_and_waits_for_them_over_http() -> None:
    async with served() as cluster:
        cluster.create_topic("orders", 2)
        assert await post(cluster, 2, "groups") == []
        async with team(cluster.bootstrap_servers, "readers", ["orders"]) as readers:
            waiting = asyncio.create_task(post(cluster, 3, "wait-group", group="readers", members=1))
            await readers.join("anna")
            await readers.share()
            found = await waiting
            assert (found["state"], found["members"][0]["client_id"]) == ("Stable", "anna")
            await readers.commit("anna", "orders", 1, 5)
            assert await post(cluster, 1, "wait-committed", group="readers", topic="orders", partition="1") == 5
            view = await post(cluster, 2, "group", group="readers")
            assert [row["committed"] for row in view["partitions"]] == [None, 5]
            assert (await post(cluster, 2, "groups"))[0][:5] == ["readers", "Classic", "consumer", "Stable", 1]
            with pytest.raises(Refusal, match="'readers' is Stable with 1 member, and not Stable with 2 members"):
                await post(cluster, 2, "wait-group", group="readers", members=2, timeout_ms=50)
            with pytest.raises(Refusal, match="'stable' is no state of a group"):
                await post(cluster, 2, "wait-group", group="readers", state="stable")
        with pytest.raises(Refusal, match="there is no group 'writers'"):
            await post(cluster, 2, "group", group="writers")


@pytest.mark.slow
async def test_the_command_line_waits_too() -> None:
    async def command(*words: str) -> tuple[int | None, str, str]:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "minibroker", "cluster", *words, "-b", cluster.bootstrap_servers),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, complaints = await process.communicate()
        return process.returncode, out.decode(), complaints.decode()

    async with served() as cluster:
        cluster.create_topic("orders", 2)
        async with team(cluster.bootstrap_servers, "readers", ["orders"]) as readers:
            waiting = asyncio.create_task(command("wait-group", "readers", "1", "--state", "Stable"))
            await readers.join("anna")
            await readers.share()
            status, out, _ = await waiting
            assert status == 0
            assert json.loads(out)["members"][0]["client_id"] == "anna"
            await readers.commit("anna", "orders", 0, 4)
            assert await command("wait-committed", "readers", "orders", "0", "4") == (0, "4\n", "")
            status, _, complaint = await command("wait-group", "readers", "3", "--timeout-ms", "50")
            assert status == 1
            assert "'readers' is Stable with 1 member, and not Stable with 3 members" in complaint

"""Kafka's tools set quotas, show them and throttle a move; a real Kafka goes on with our quotas, and we with its."""

from __future__ import annotations

import asyncio
import json
import re
import time
from pathlib import Path
from typing import Any

import pytest

from minibroker import Broker, Cluster
from minibroker.client import Cluster as Client
from minibroker.client import Producer
from minibroker.protocol.framing import decode_response
from tests.differential.kafka import CLUSTER_ID, Kafka, missing_tools
from tests.differential.play import _frame
from tests.differential.wire import ANSWER, Side
from tests.interop import kafka
from tests.interop.golden_quotas import GOOD, altering, described

pytestmark = [
    pytest.mark.interop,
    pytest.mark.slow,
    pytest.mark.skipif(bool(missing_tools()), reason=f"a real Kafka needs {missing_tools()}, not found"),
]

CONFIGS = [kafka.Release("kafka_2.13", "3.9.2"), kafka.Release("kafka_2.13", "4.3.1")]
REASSIGN = [kafka.Release("kafka-tools", "3.9.2"), kafka.Release("kafka-tools", "4.3.1")]


def tool(release: kafka.Release, name: str, address: str, directory: Path, *words: str) -> list[str]:
    """Return the lines that a tool prints."""
    done = kafka.run(release, name, "--bootstrap-server", address, *words, cwd=directory)
    assert done.returncode == 0, done.stdout + done.stderr
    return [line for line in done.stdout.splitlines() if line]


@pytest.mark.parametrize("release", CONFIGS, ids=lambda release: release.version)
def test_kafka_configs_sets_shows_and_takes_back_limits(release: kafka.Release, tmp_path: Path) -> None:
    with Broker() as broker:

        def configs(*words: str) -> list[str]:
            return tool(release, "kafka.admin.ConfigCommand", broker.bootstrap_servers, tmp_path, *words)

        cases = [
            (("users", "alice"), "producer_byte_rate=1024,consumer_byte_rate=2048"),
            (("clients", "app"), "request_percentage=12.5,controller_mutation_rate=0.5"),
            (("users", None), "producer_byte_rate=4096"),
            (("ips", "127.0.0.9"), "connection_creation_rate=50"),
            (("ips", None), "connection_creation_rate=60"),
        ]
        for (kind, name), limits in cases:
            whom = ("--entity-type", kind, *(("--entity-name", name) if name else ("--entity-default",)))
            assert any("Completed updating" in line for line in configs("--alter", *whom, "--add-config", limits))
            told = "\n".join(configs("--describe", *whom))
            assert all(limit in told for limit in limits.split(",")), told
        both = ("--entity-type", "users", "--entity-name", "alice", "--entity-type", "clients", "--entity-name", "app")
        configs("--alter", *both, "--add-config", "consumer_byte_rate=7")
        assert "consumer_byte_rate=7" in "\n".join(configs("--describe", *both))
        gone = "producer_byte_rate,consumer_byte_rate"
        configs("--alter", "--entity-type", "users", "--entity-name", "alice", "--delete-config", gone)
        left = "\n".join(configs("--describe", "--entity-type", "users"))
        assert "alice" not in left
        assert "4096" in left


@pytest.mark.parametrize("release", REASSIGN, ids=lambda release: release.version)
def test_a_move_with_a_throttle_takes_its_time_and_leaves_no_throttle_behind(
    release: kafka.Release, tmp_path: Path
) -> None:
    size_bytes, rate = 3_000_000, 500_000
    with Cluster(2, topics=["t:1:1"], config={"replica.fetch.max.bytes": 50_000}) as cluster:

        async def fill() -> None:
            async with Client(cluster.bootstrap_servers) as client, Producer(client) as producer:
                for _ in range(size_bytes // 10_000):
                    await producer.enqueue("t", bytes(10_000), partition=0)
                await producer.flush()

        asyncio.run(fill())
        before = cluster.leader("t", 0)
        plan = {"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [3 - before]}]}
        (tmp_path / "plan.json").write_text(json.dumps(plan))

        def reassign(*words: str) -> str:
            name = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
            words = ("--reassignment-json-file", "plan.json", *words)
            return "\n".join(tool(release, name, cluster.bootstrap_servers, tmp_path, *words))

        begun = time.monotonic()
        told = reassign("--execute", "--throttle", str(rate))
        assert f"The inter-broker throttle limit was set to {rate} B/s" in told
        assert "Successfully started partition reassignment for t-0" in told
        while cluster.leader("t", 0) == before:
            time.sleep(0.05)
            assert time.monotonic() - begun < 60
        assert time.monotonic() - begun > size_bytes / rate * 0.8
        told = reassign("--verify")
        assert "is completed" in told
        assert re.search(r"Clearing broker-level throttles on brokers? 1,2", told)
        assert "Clearing topic-level throttles on topic t" in told


def ask(address: str, request: Any, version: int = 1) -> Any:
    side = Side(address)
    side.send(_frame(request, version))
    outcome = side.receive()
    side.close()
    assert outcome.kind == ANSWER
    return decode_response(outcome.frame, request.api, version)[1]


def quotas_at(address: str) -> list[Any]:
    found = ask(address, described([], strict=False)).to_dict()["entries"]
    for entry in found:
        entry["entity"].sort(key=repr)
        entry["values"].sort(key=repr)
    return sorted(found, key=repr)


@pytest.mark.parametrize("version", ["3.9.2", "4.4.0"])
async def test_quotas_go_to_kafka_and_back(version: str, tmp_path: Path) -> None:
    there = Kafka(version, tmp_path)
    async with Broker(data_dir=there.data, cluster_id=CLUSTER_ID) as broker:
        await asyncio.to_thread(ask, broker.bootstrap_servers, altering(GOOD[:9]))
        ours = await asyncio.to_thread(quotas_at, broker.bootstrap_servers)
        assert len(ours) == 9
    await asyncio.to_thread(there.__enter__)
    try:
        assert await asyncio.to_thread(quotas_at, there.address) == ours
        await asyncio.to_thread(
            ask, there.address, altering([*GOOD[9:11], ([("user", "u")], [("consumer_byte_rate", None)])])
        )
        for _ in range(50):  # until the broker has read what the controller has written
            theirs = await asyncio.to_thread(quotas_at, there.address)
            if len(theirs) == 11 and "2000.0" not in repr(theirs):
                break
            await asyncio.sleep(0.1)
        await asyncio.to_thread(there.stop)
    finally:
        if there._process is not None:
            await asyncio.to_thread(there.__exit__)
    async with Broker(data_dir=there.data, cluster_id=CLUSTER_ID) as broker:
        assert await asyncio.to_thread(quotas_at, broker.bootstrap_servers) == theirs

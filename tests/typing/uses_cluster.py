"""What type checkers know of a cluster: the verbs, which are made in a table, keep their arguments and results."""

# pyright: reportUnnecessaryTypeIgnoreComment=true

from __future__ import annotations

from typing import Any, assert_type

from minibroker import Cluster
from minibroker.embedded import Record, ReplicaRow
from minibroker.events import Event


def plain_verbs(cluster: Cluster) -> None:
    assert_type(cluster.leader("orders"), int)
    assert_type(cluster.isr("orders", partition=1), list[int])
    assert_type(cluster.describe("orders"), list[ReplicaRow])
    assert_type(cluster.wait_records("orders", 3, timeout=1), list[Record])
    assert_type(cluster.wait_event(lambda event: event.kind == "isr"), Event)
    assert_type(cluster.kill("controller", notice=False), None)
    cluster.create_topic("orders", 3, 2, cleanup_policy="compact")
    assert_type(cluster.faults(1).rules(), list[dict[str, Any]])
    cluster.kill()  # type: ignore[call-arg]
    cluster.leader(1)  # type: ignore[arg-type]


async def twins(cluster: Cluster) -> None:
    assert_type(await cluster.aleader("orders"), int)
    assert_type(await cluster.astep("fetch", count=2), list[str])
    await cluster.aadvance("7d")

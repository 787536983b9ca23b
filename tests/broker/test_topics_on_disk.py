"""What a client is told of topics is on the disk: it outlives a loss of power that keeps nothing else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from minibroker.protocol.headers import Request
from minibroker.protocol.messages.create_partitions import CreatePartitionsRequest
from minibroker.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from minibroker.protocol.messages.metadata import MetadataRequest
from minibroker.simulation.disk import SimulatedStorage
from tests.broker.test_many_topics import creation, deletion
from tests.log.crash import extremes
from tests.server.running import connected, running

NOW_MS = 1_700_000_000_000
SETTINGS = {"log.index.size.max.bytes": "80"}
Changed = IncrementalAlterConfigsRequest.AlterConfigsResource
# A request, its version, and what it comes to: the topics with their partitions and settings.
ASKED: dict[str, tuple[Request, int, Callable[[Any], dict[str, Any]]]] = {
    "create topics": (creation(("a", 1), ("b", 2)), 7, lambda before: {**before, "a": (1, {}), "b": (2, {})}),
    "ask for a topic": (
        MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name="a")]),
        9,
        lambda before: {**before, "a": (1, {})},
    ),
    "delete topics": (deletion("old", "other"), 6, lambda before: {}),
    "create partitions": (
        CreatePartitionsRequest(
            topics=[CreatePartitionsRequest.CreatePartitionsTopic(name="old", count=3, assignments=None)],
            timeout_ms=0,
            validate_only=False,
        ),
        3,
        lambda before: {**before, "old": (3, {})},
    ),
    "alter settings": (
        IncrementalAlterConfigsRequest(
            resources=[
                Changed(
                    resource_type=2,
                    resource_name="old",
                    configs=[Changed.AlterableConfig(name="retention.ms", config_operation=0, value="77")],
                )
            ],
            validate_only=False,
        ),
        1,
        lambda before: {**before, "old": (1, {"retention.ms": "77"})},
    ),
}


def known(node: Any) -> dict[str, Any]:
    image = node.image
    return {
        name: (len(topic.partitions), dict(image.configs.get((2, name), {}))) for name, topic in image.topics.items()
    }


@pytest.mark.parametrize("asked", ASKED)
async def test_what_is_answered_is_there_after_a_loss_of_power(asked: str) -> None:
    request, version, becomes = ASKED[asked]
    storage = SimulatedStorage(lambda: NOW_MS)
    async with running(SETTINGS, storage=storage) as node, connected(node) as client:
        node.create_topic("old", 1)
        node.create_topic("other", 1)
        wanted = becomes(known(node))
        await client.ask(request, version)
        loss = storage.power_loss()
        nothing_kept = loss.disk(extremes(loss)[0])
        assert known(node) == wanted
        await node.kill()
    async with running(SETTINGS, storage=SimulatedStorage(lambda: NOW_MS, disk=nothing_kept)) as node:
        assert known(node) == wanted

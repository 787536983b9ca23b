"""What a broker finds in its directory when it starts, whatever happened before: nobody's log becomes another's."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from minibroker.errors import Error
from minibroker.log.memory_storage import MemoryStorage
from minibroker.protocol.headers import Request
from minibroker.protocol.messages.alter_configs import AlterConfigsRequest
from minibroker.protocol.messages.create_partitions import CreatePartitionsRequest
from minibroker.protocol.messages.create_topics import CreateTopicsRequest
from minibroker.protocol.messages.delete_topics import DeleteTopicsRequest
from minibroker.protocol.messages.metadata import MetadataRequest
from tests.server.running import append, connected, running, said, values_of


def memory() -> MemoryStorage:
    return MemoryStorage(lambda: 1_700_000_000_000)


async def test_what_a_deleted_topic_left_is_not_the_log_of_a_new_one() -> None:
    storage = memory()
    async with running(storage=storage) as node:
        node.create_topic("t")
        append(node, "t", b"old")
        # The power ends between the record that the topic is gone and the directory's new name.
        node.metadata.log.append(node.controller.delete_topic(name="t"), now_ms=1)
    async with running(storage=storage) as node:
        assert any("t-0 belongs to no topic" in line for line in said(node))
        assert [name for name in storage.list("") if name.endswith("-stray")]
        node.create_topic("t")
        assert values_of(node, "t") == []


async def test_a_directory_of_another_topic_of_the_same_name_is_set_aside() -> None:
    storage = memory()
    async with running(storage=storage) as node:
        node.create_topic("t")
        append(node, "t", b"old")
        node.metadata.log.append(node.controller.delete_topic(name="t"), now_ms=1)
        records = node.controller.create_topic("t", partitions=1, replication_factor=1)
        node.metadata.log.append(records, now_ms=1)
    async with running(storage=storage) as node:
        assert values_of(node, "t") == []


async def test_a_partition_whose_files_a_crash_took_is_made_again() -> None:
    storage = memory()
    async with running(storage=storage) as node:
        node.create_topic("t", 3)
        topic_id = node.image.topics["t"].id
    for name in storage.list("t-0"):
        storage.remove(f"t-0/{name}")
    storage.remove("t-0")
    for name in storage.list("t-1"):
        storage.remove(f"t-1/{name}")
    for name in storage.list("t-2"):
        file = storage.open(f"t-2/{name}")
        file.truncate(file.size_bytes // 2)
        file.close()
    storage.remove(".kafka_cleanshutdown")
    async with running(storage=storage) as node:
        from minibroker.log.checkpoints import read_topic_id

        for partition in range(3):
            assert read_topic_id(storage, f"t-{partition}") == topic_id
            append_to = node.replicas["t", partition]
            assert append_to.is_leader and append_to.log.next_offset == 0


async def test_many_topics_of_one_request_are_there_after_a_crash() -> None:
    storage = memory()
    async with running(storage=storage) as node:
        with node.together():
            for number in range(20):
                node.create_topic(f"t{number}")
    storage.remove(".kafka_cleanshutdown")
    async with running(storage=storage) as node:
        assert len(node.image.topics) == len(node.replicas) == 20


METADATA = "__cluster_metadata"


def asks_for(name: str) -> list[tuple[Request, int, Callable[[Any], Iterable[int]]]]:
    """Return a request of each API that takes the name of a topic and changes something, and what finds its errors."""
    return [
        (
            MetadataRequest(
                topics=[MetadataRequest.MetadataRequestTopic(name=name, topic_id=bytes(16))],
                allow_auto_topic_creation=True,
            ),
            9,
            lambda answer: [topic.error_code for topic in answer.topics],
        ),
        (
            CreateTopicsRequest(
                topics=[
                    CreateTopicsRequest.CreatableTopic(
                        name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[]
                    )
                ],
                timeout_ms=1000,
                validate_only=False,
            ),
            7,
            lambda answer: [topic.error_code for topic in answer.topics],
        ),
        (
            DeleteTopicsRequest(
                topics=[DeleteTopicsRequest.DeleteTopicState(name=name, topic_id=bytes(16))], timeout_ms=1000
            ),
            6,
            lambda answer: [topic.error_code for topic in answer.responses],
        ),
        (
            CreatePartitionsRequest(
                topics=[CreatePartitionsRequest.CreatePartitionsTopic(name=name, count=3, assignments=None)],
                timeout_ms=1000,
                validate_only=False,
            ),
            3,
            lambda answer: [topic.error_code for topic in answer.results],
        ),
        (
            AlterConfigsRequest(
                resources=[AlterConfigsRequest.AlterConfigsResource(resource_type=2, resource_name=name, configs=[])],
                validate_only=False,
            ),
            2,
            lambda answer: [resource.error_code for resource in answer.responses],
        ),
    ]


@pytest.mark.parametrize("which", range(5), ids=["Metadata", "Create", "Delete", "CreatePartitions", "AlterConfigs"])
async def test_nobody_makes_or_changes_a_topic_that_is_called_like_the_metadata_log(which: int) -> None:
    storage = memory()
    request, version, errors = asks_for(METADATA)[which]
    async with running(storage=storage) as node, connected(node) as client:
        node.create_topic("t")
        append(node, "t", b"v")
        before = node.metadata.log.next_offset
        refusal = Error.TOPIC_AUTHORIZATION_FAILED if which == 1 else Error.UNKNOWN_TOPIC_OR_PARTITION
        assert list(errors(await client.ask(request, version))) == [refusal]
        assert node.metadata.log.next_offset == before
        assert "__cluster_metadata-0" in storage.list("")
        assert not [name for name in storage.list("") if name.endswith("-stray")]
    async with running(storage=storage) as node:
        assert values_of(node, "t") == [b"v"]

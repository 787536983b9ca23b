"""What a broker finds in its directory when it starts, whatever happened before: nobody's log becomes another's."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from minibroker.errors import Error
from minibroker.log.batches import batches
from minibroker.log.checkpoints import read_file
from minibroker.log.memory_storage import Directory, MemoryStorage
from minibroker.metadata.bootstrap import WrongDirectory
from minibroker.metadata.records import read_record
from minibroker.protocol.headers import Request
from minibroker.protocol.messages.alter_configs import AlterConfigsRequest
from minibroker.protocol.messages.create_partitions import CreatePartitionsRequest
from minibroker.protocol.messages.create_topics import CreateTopicsRequest
from minibroker.protocol.messages.delete_topics import DeleteTopicsRequest
from minibroker.protocol.messages.metadata import MetadataRequest
from tests.server.running import append, batch, connected, produce, running, said, values_of


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
        (stray,) = (name for name in storage.list("") if name.endswith("-stray"))
        assert not [line for line in said(node) if "nobody removes" in line]
        node.create_topic("t")
        assert values_of(node, "t") == []
    kept = storage.list(stray)
    async with running(storage=storage) as node:
        # It stays, with all that is in it, and each start says so: nobody else would know what fills the disk.
        assert [line for line in said(node) if line.startswith(f"{stray} belongs to no topic, and nobody removes")]
        assert storage.list(stray) == kept != []


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
            assert append_to.is_leader
            assert append_to.log.log_end_offset == 0


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
        before = node.metadata.log.log_end_offset
        refusal = Error.INVALID_REQUEST if which == 1 else Error.UNKNOWN_TOPIC_OR_PARTITION
        assert list(errors(await client.ask(request, version))) == [refusal]
        assert node.metadata.log.log_end_offset == before
        assert "__cluster_metadata-0" in storage.list("")
        assert not [name for name in storage.list("") if name.endswith("-stray")]
    async with running(storage=storage) as node:
        assert values_of(node, "t") == [b"v"]


# Metadata that are damaged or gone


def tree(storage: MemoryStorage) -> dict[str, bytes]:
    """Return every file, by its path."""
    found: dict[str, bytes] = {}
    for name in storage.list(""):
        paths = [f"{name}/{inner}" for inner in storage.list(name)] if is_directory(storage, name) else [name]
        found |= {path: read_file(storage, path) for path in paths}
    return found


def is_directory(storage: MemoryStorage, name: str) -> bool:
    return isinstance(storage.root.entries[name], Directory)


def lose_metadata(storage: MemoryStorage) -> None:
    for name in storage.list("__cluster_metadata-0"):
        storage.remove(f"__cluster_metadata-0/{name}")


def lose_owner(storage: MemoryStorage) -> None:
    storage.remove("meta.properties")


def damage_metadata(storage: MemoryStorage) -> None:
    """Flip a bit of the batch that makes a topic."""
    path = "__cluster_metadata-0/00000000000000000000.log"
    position = next(
        batch.position + 80
        for batch in batches(read_file(storage, path))
        if not batch.is_control
        for record in batch.records()
        if getattr(read_record(bytes(record.value or b"")), "name", "") == "t"
    )
    file = storage.open(path)
    file.write_at(position, bytes([file.read_at(position, 1)[0] ^ 1]))


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("damage", [lose_metadata, lose_owner, damage_metadata])
async def test_damaged_metadata_are_refused_as_they_are_until_somebody_asks_for_a_repair(
    damage: Callable[[MemoryStorage], None], is_clean: bool
) -> None:
    storage = memory()
    async with running({"offsets.topic.num.partitions": "2"}, storage=storage) as node:
        node.create_topic("t", 3, {"retention.ms": "77"})
        node.create_topic("__consumer_offsets", 2)
        append(node, "t", b"v")
        append(node, "t", b"w")
        topic_id = node.image.topics["t"].id
        if not is_clean:
            await node.kill()
    damage(storage)
    before = tree(storage)
    for _ in range(2):
        with pytest.raises(WrongDirectory, match="--repair"):
            async with running(storage=storage):
                pass
        assert tree(storage) == before
    for repairs in (True, False):
        async with running(storage=storage, repairs=repairs) as node, connected(node) as client:
            line = "meta.properties is made anew" if damage is lose_owner else "topic t is put back with 3 partitions"
            assert not repairs or any(line in each for each in said(node))
            assert {name: len(topic.partitions) for name, topic in node.image.topics.items()} == {
                "t": 3,
                "__consumer_offsets": 2,
            }
            assert node.image.topics["t"].id == topic_id
            answer = await client.ask(produce("t", batch(b"x")), 9)
            assert answer.responses[0].partition_responses[0].error_code == Error.NONE
    assert not [name for name in storage.list("") if name.endswith("-stray")]
    async with running(storage=storage) as node:
        assert values_of(node, "t") == [b"v", b"w", b"x", b"x"]


async def test_a_start_that_fails_for_another_reason_keeps_the_mark_of_a_clean_stop() -> None:
    storage = memory()
    async with running(storage=storage) as node:
        node.create_topic("t")
    async with running() as other:
        taken = {"listeners": f"PLAINTEXT://127.0.0.1:{other.servers[0].port}"}
        with pytest.raises(OSError):
            async with running(taken, storage=storage):
                pass
    async with running(storage=storage) as node:
        assert node.directory.was_clean

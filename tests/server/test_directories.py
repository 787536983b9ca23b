"""What a broker finds in its directory when it starts, whatever happened before: nobody's log becomes another's."""

from __future__ import annotations

from minibroker.log.memory_storage import MemoryStorage
from tests.server.running import append, running, said, values_of


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

"""A disk that refuses: whoever asked is told, people are told, and when it works again so does the broker."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from minibroker.broker.broker import Node
from minibroker.broker.http_pages import page
from minibroker.clock.steered import SteeredClock
from minibroker.errors import Error, StorageError
from minibroker.in_pieces import PIECE_US
from minibroker.log.checkpoints import CLEAN_SHUTDOWN
from minibroker.log.disk_trouble import FILES_MAX, DiskTrouble
from minibroker.log.memory_storage import Content, MemoryStorage
from minibroker.log.segment import Segment
from minibroker.log.storage import OsStorage
from minibroker.metadata.damage import FLUSHED_END
from minibroker.metadata.image import BROKER, TOPIC
from minibroker.protocol.messages.create_partitions import CreatePartitionsRequest
from minibroker.protocol.messages.create_topics import CreateTopicsRequest
from minibroker.protocol.messages.delete_topics import DeleteTopicsRequest
from minibroker.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from minibroker.protocol.messages.metadata import MetadataRequest
from minibroker.simulation.disk import SimulatedFile, SimulatedStorage, Step
from minibroker.stored.topics import ConfigRecord, PartitionChangeRecord
from tests.server.running import Client, Said, append, batch, connected, fetch, produce, running, said, values_of

SMALL = {"log.index.size.max.bytes": "80"}


def full(doing: str, path: str) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def memory() -> MemoryStorage:
    return MemoryStorage(lambda: 1_700_000_000_000)


def ready(node: Node) -> tuple[str, str]:
    status, _, body = page(node, "/ready")
    return status[:3], body.decode()


async def test_a_stop_on_a_full_disk_leaves_nothing_open() -> None:
    storage = memory()
    async with running(storage=storage) as node:
        node.create_topic("t")
        append(node, "t", b"v")
        storage.trouble = full
        await node.stop()
        assert any("No space left" in line for line in said(node))
        assert any("as after a crash" in line for line in said(node))
    assert not storage.exists(CLEAN_SHUTDOWN)
    storage.trouble = None
    async with running(storage=storage) as node:
        assert values_of(node, "t") == [b"v"]


async def test_a_full_disk_is_said_once_shown_and_over_when_there_is_room() -> None:
    storage = memory()
    async with running(storage=storage) as node, connected(node) as client:
        node.create_topic("t")
        assert ready(node) == ("200", "ready\n")
        storage.trouble = full
        for _ in range(30):
            answer = await client.ask(produce("t", batch(b"v")), 9)
            assert answer.responses[0].partition_responses[0].error_code == Error.KAFKA_STORAGE_ERROR
        assert [line for line in said(node) if "No space left" in line] == [
            "KAFKA_STORAGE_ERROR: append t-0/leader-epoch-checkpoint.tmp: No space left on device"
        ]
        status, body = ready(node)
        assert status == "503"
        assert "No space left" in body
        assert "minibroker_storage_failures_total 30" in page(node, "/metrics")[2].decode()
        storage.trouble = None
        answer = await client.ask(produce("t", batch(b"v")), 9)
        assert answer.responses[0].partition_responses[0].error_code == Error.NONE
        assert values_of(node, "t") == [b"v"]
        assert ready(node) == ("200", "ready\n")


async def refused_append(node: Node, client: Client) -> str:
    await client.ask(produce("t", batch(b"w")), 9)
    return "append t-0/00000000000000000000.log"


async def refused_checkpoint(node: Node, client: Client) -> str:
    try:
        node.scheduler.checkpoint_high_watermarks()
    except StorageError as failure:
        node.disk_failed(failure)
    return "append replication-offset-checkpoint.tmp"


@pytest.mark.parametrize("write", [refused_append, refused_checkpoint])
async def test_a_broker_is_ready_again_when_what_failed_works(
    tmp_path: Path, write: Callable[[Node, Client], Awaitable[str]]
) -> None:
    storage = OsStorage(str(tmp_path))
    async with running(storage=storage) as node, connected(node) as client:
        node.create_topic("t")
        await client.ask(produce("t", batch(b"v")), 9)
        storage.trouble = full
        for _ in range(2):
            refused = await write(node, client)
            status, body = ready(node)
            assert status == "503"
            assert refused in body
        storage.trouble = None
        assert ready(node)[0] == "503"  # nobody has tried it again
        await write(node, client)
        assert ready(node) == ("200", "ready\n")


async def test_a_broker_is_ready_again_when_all_that_failed_works() -> None:
    storage, topics = memory(), ("t", "u", "v")
    async with running(storage=storage) as node, connected(node) as client:
        for topic in topics:
            node.create_topic(topic)
            await client.ask(produce(topic, batch(b"v")), 9)
        storage.trouble = full
        for topic in topics:
            await client.ask(produce(topic, batch(b"w")), 9)
        storage.trouble = None
        for worked, left in (("u", "v"), ("v", "t")):  # that of which people are told is what failed last
            await client.ask(produce(worked, batch(b"w")), 9)
            status, body = ready(node)
            assert (status, f"append {left}-0/" in body) == ("503", True)
        await client.ask(produce("t", batch(b"w")), 9)
        assert ready(node) == ("200", "ready\n")


def test_the_files_that_failed_are_bounded() -> None:
    storage = memory()
    trouble = DiskTrouble(storage, SteeredClock(0).steady_ms, Said().say)
    for number in range(3 * FILES_MAX):
        storage.open(f"f{number}", create=True).close()
        trouble.note(StorageError.of("append", f"f{number}", OSError(errno.EIO, "broken")))
    for number in range(2 * FILES_MAX, 3 * FILES_MAX):
        assert trouble.recent()
        storage.open(f"f{number}").append([b"v"])
    assert trouble.recent() == ""


@pytest.mark.parametrize("doing", ["create", "append", "rename"])
async def test_a_file_that_is_put_in_the_place_of_another_has_worked_though_it_is_the_same(doing: str) -> None:
    storage = CountingStorage()
    async with running(storage=storage) as node:
        node.directory.write_high_watermarks({("t", 0): 0})
        temporary, checkpoint = "replication-offset-checkpoint.tmp", "replication-offset-checkpoint"
        size_bytes = storage.size_bytes(checkpoint)
        storage.fail(doing=doing, path=f"{temporary} to {checkpoint}" if doing == "rename" else temporary)
        with pytest.raises(StorageError) as refused:
            node.directory.write_high_watermarks({("t", 0): 0})
        storage.remove(temporary)  # so that only the file in whose place it is put tells
        node.disk_failed(refused.value)
        assert ready(node)[0] == "503"
        storage.time_ms += 1000
        node.directory.write_high_watermarks({("t", 0): 0})
        assert storage.size_bytes(checkpoint) == size_bytes
        assert ready(node) == ("200", "ready\n")


async def test_what_is_not_tried_again_is_told_of_for_half_a_minute() -> None:
    storage, clock = memory(), SteeredClock(1_700_000_000_000)
    async with running(storage=storage, clock=clock) as node, connected(node) as client:
        node.create_topic("t")
        await client.ask(produce("t", batch(b"v")), 9)
        storage.trouble = full
        await refused_append(node, client)
        storage.trouble = None
        await clock.advance("29s", sessions=True)
        assert ready(node)[0] == "503"
        await clock.advance("1s", sessions=True)
        assert ready(node) == ("200", "ready\n")


async def test_a_partition_that_is_damaged_is_named_and_the_others_are_served() -> None:
    storage = memory()
    async with running(storage=storage) as node:
        for topic in ("a", "b"):
            node.create_topic(topic)
            append(node, topic, b"v")
    storage.remove("a-0/00000000000000000000.log")
    for count in (1, 2):
        async with running(storage=storage) as node, connected(node) as client:
            assert [line for line in said(node) if "a-0: there is no segment" in line]
            status, body = ready(node)
            assert (status, "a-0 is offline: " in body) == ("200", True)
            metrics = page(node, "/metrics")[2].decode()
            assert 'minibroker_offline_partition{partition="0",topic="a"} 1' in metrics
            for topic, error in (("a", Error.KAFKA_STORAGE_ERROR), ("b", Error.NONE)):
                answer = await client.ask(produce(topic, batch(b"w")), 9)
                assert answer.responses[0].partition_responses[0].error_code == error
            assert values_of(node, "b") == [b"v", *[b"w"] * count]


async def test_a_broker_is_not_ready_when_a_sync_has_failed_or_nothing_is_served() -> None:
    storage, clock = SimulatedStorage(lambda: 1_700_000_000_000), SteeredClock(1_700_000_000_000)
    async with running(SMALL, storage=storage, clock=clock) as node, connected(node) as client:
        for topic in ("a", "b"):
            node.create_topic(topic)
            append(node, topic, b"v")
        for topic, left in (("a", ("200", "ready\n")), ("b", ("503", "not ready: no partition is served\n"))):
            storage.fail(doing="sync", path=f"{topic}-0/00000000000000000000.log")
            node.replicas[topic, 0].log.roll()
            status, body = ready(node)
            assert status == "503"
            assert f"not ready: KAFKA_STORAGE_ERROR: sync {topic}-0/" in body
            await clock.advance("40s", sessions=True)
            await client.ask(produce(topic, batch(b"w")), 9)  # who asks again learns nothing new of the disk
            status, body = ready(node)
            assert status == left[0]
            assert body.startswith(left[1])
            assert f"{topic}-0 is offline: " in body


SEGMENT = "a-0/00000000000000000000.log"


class CountingStorage(SimulatedStorage):
    """A disk that counts which bytes of a segment are read."""

    def __init__(self) -> None:
        self.time_ms = 1_700_000_000_000
        self.read_bytes = 0
        super().__init__(lambda: self.time_ms)

    def _new_file(self, path: str, content: Content) -> SimulatedFile:
        return CountingFile(self, path, content)


class CountingFile(SimulatedFile):
    def view(self, position: int, size_bytes: int) -> memoryview:
        found = super().view(position, size_bytes)
        assert isinstance(self._storage, CountingStorage)
        if self.path == SEGMENT:
            self._storage.read_bytes += len(found)
        return found


async def killed(storage: SimulatedStorage) -> None:
    """Leave two partitions as after kill -9, all of them flushed before."""
    async with running(storage=storage) as node:
        for topic in ("a", "b"):
            node.create_topic(topic)
            append(node, topic, *[b"v" * 10] * 10_000)
            append(node, topic, b"w")
    async with running(storage=storage) as node:
        await node.kill()


async def test_damage_is_looked_for_once_until_a_file_changes() -> None:
    storage, clock = CountingStorage(), SteeredClock(1_700_000_000_000)
    await killed(storage)
    storage.flip(SEGMENT, 1000, 0)
    storage.read_bytes = 0
    async with running(storage=storage, clock=clock) as node:
        assert storage.read_bytes > 100_000
        for _ in range(2):
            storage.read_bytes = 0
            await clock.advance("10m", sessions=True)
            node.partitions.take(node.image.topics["a"])  # the metadata have changed
            assert "checksum" in str(node.partitions.unopened["a", 0])
            assert storage.read_bytes == 0
            storage.time_ms += 1000
            storage.set_modified_ms(SEGMENT, storage.time_ms)
            await clock.advance("2m", sessions=True)
            assert storage.read_bytes > 100_000
        storage.time_ms += 1000
        storage.flip(SEGMENT, 1000, 0)  # brought back from a copy
        storage.set_modified_ms(SEGMENT, storage.time_ms)
        await clock.advance("2m", sessions=True)
        assert len(values_of(node, "a")) == 10_001


BATCHES = 3000


class Watched:
    """How a partition of BATCHES smallest batches that was found damaged comes back while others are served."""

    def __init__(self, storage: CountingStorage, node: Node, client: Client):
        self.storage = storage
        self.node = node
        self.client = client

    async def begin(self) -> None:
        """Bring the file back, and return when its opening has begun and is not over."""
        self.storage.time_ms += 1000
        self.storage.flip(SEGMENT, 1000, 0)
        self.storage.set_modified_ms(SEGMENT, self.storage.time_ms)
        self.node.partitions._try_again()
        assert ("a", 0) in self.node.partitions.unopened
        assert not self.node.partitions.is_settled


@asynccontextmanager
async def coming_back() -> AsyncIterator[Watched]:
    storage, clock = CountingStorage(), SteeredClock(1_700_000_000_000)
    async with running(storage=storage) as node:
        for topic in ("a", "b"):
            node.create_topic(topic)
            for _ in range(BATCHES):
                append(node, topic, b"v")
    async with running(storage=storage) as node:
        await node.kill()
    storage.flip(SEGMENT, 1000, 0)
    async with running(storage=storage, clock=clock) as node, connected(node) as client:
        assert ("a", 0) in node.partitions.unopened
        yield Watched(storage, node, client)


async def test_others_are_served_while_a_large_partition_comes_back() -> None:
    async with coming_back() as watched:
        node = watched.node
        await watched.begin()
        answered = 0
        while not node.partitions.is_settled:
            answer = await watched.client.ask(produce("b", batch(b"w")), 9)
            answered += answer.responses[0].partition_responses[0].error_code == Error.NONE
        assert answered > 1
        await node.partitions.settled()
        assert len(values_of(node, "a")) == BATCHES
        assert not node.partitions.unopened
        answer = await watched.client.ask(produce("a", batch(b"w")), 9)
        assert answer.responses[0].partition_responses[0].error_code == Error.NONE


async def test_an_opening_is_cut_into_pieces_of_one_size_however_large_the_log() -> None:
    async with coming_back() as watched:
        partitions = watched.node.partitions
        await watched.begin()
        pieces = []
        while not partitions.is_settled:
            pieces.append(partitions._do_next())
        assert len(pieces) > 40
        assert max(pieces) <= 2 * PIECE_US


async def test_a_change_of_the_metadata_leaves_an_opening_alone() -> None:
    async with coming_back() as watched:
        node = watched.node
        await watched.begin()
        node.partitions.take(node.image.topics["a"])
        assert not node.partitions.is_settled
        await node.partitions.settled()
        assert node.replicas["a", 0].is_leader
        assert len(values_of(node, "a")) == BATCHES


def config(resource_type: int, name: str, key: str, value: int) -> ConfigRecord:
    return ConfigRecord(resource_type=resource_type, resource_name=name, name=key, value=str(value))


async def test_whatever_is_altered_between_two_pieces_of_an_opening_reaches_the_log() -> None:
    async with coming_back() as watched:
        node = watched.node
        topic = node.image.topics["a"]
        epoch, pieces = topic.partitions[0].leader_epoch, 0
        await watched.begin()
        while ("a", 0) not in node.replicas:
            pieces += 1
            of_topic = [("retention.ms", 7_000), ("max.message.bytes", 8_000), ("min.insync.replicas", 1)]
            node.change([config(TOPIC, "a", key, start + pieces) for key, start in of_topic], at_once=False)
            node.change([config(BROKER, "", "log.segment.bytes", 2_000_000 + pieces)], at_once=False)
            change = PartitionChangeRecord(partition_id=0, topic_id=topic.id, leader=node.node_id)
            node.change([change], at_once=False)
            node.partitions._do_next()
        assert pieces > 40
        replica, settings = node.replicas["a", 0], node.replicas["a", 0].log.settings
        assert (settings.retention_ms, settings.segment_bytes) == (7_000 + pieces, 2_000_000 + pieces)
        assert settings.validation.max_message_bytes == 8_000 + pieces
        assert replica.min_in_sync == 1 + pieces
        assert replica.leader_epoch == topic.partitions[0].leader_epoch == epoch + pieces
        assert replica.is_leader
        assert len(values_of(node, "a")) == BATCHES


async def test_a_new_partition_waits_for_one_piece_of_a_log_that_comes_back() -> None:
    async with coming_back() as watched:
        node = watched.node
        await watched.begin()
        for index in range(40):
            node.create_topic(f"new{index}", 2, at_once=False)
            for _ in range(3):
                node.partitions._do_next()
            assert (f"new{index}", 1) in node.replicas
            assert ("a", 0) not in node.replicas
        await node.partitions.settled()
        assert len(values_of(node, "a")) == BATCHES


def one_that_lasts(opening: Iterator[int], held: list[bool]) -> Generator[int, None, None]:
    while held:
        yield PIECE_US
    yield from opening


async def test_who_makes_partitions_waits_for_them_and_not_for_a_log_that_comes_back() -> None:
    more = CreatePartitionsRequest.CreatePartitionsTopic(name="a", count=3, assignments=None)
    extension = CreatePartitionsRequest(topics=[more], timeout_ms=0, validate_only=False)
    async with coming_back() as watched:
        node, client = watched.node, watched.client
        await watched.begin()
        held, opening = [True], node.partitions._begun["a", 0]
        node.partitions._begun["a", 0] = one_that_lasts(opening, held)
        created = await client.ask(create("new"), 7)
        assert created.topics[0].error_code == Error.NONE
        assert ("new", 0) in node.replicas
        again = await client.ask(create("a"), 7)
        assert again.topics[0].error_code == Error.TOPIC_ALREADY_EXISTS
        extended = await client.ask(extension, 3)
        assert extended.results[0].error_code == Error.NONE
        assert ("a", 2) in node.replicas
        asked = await client.ask(MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name="asked")]), 9)
        assert asked.topics[0].error_code == Error.NONE
        assert ("asked", 0) in node.replicas
        assert ("a", 0) not in node.replicas
        held.clear()
        await node.partitions.settled()
        assert len(values_of(node, "a")) == BATCHES


async def test_a_partition_for_which_there_is_no_memory_is_opened_later(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_memory(segment: Segment, index_bytes: int) -> None:
        raise MemoryError

    clock = SteeredClock(1_700_000_000_000)
    async with running(clock=clock) as node:
        with monkeypatch.context() as patch:
            patch.setattr(Segment, "create", no_memory)
            node.create_topic("a", at_once=False)
            await node.partitions.settled()
            assert said(node)[-1] == str(node.partitions.unopened["a", 0])
            assert said(node)[-1].endswith("a-0: there is no memory to open it")
        await clock.advance("10s", sessions=True)
        append(node, "a", b"v")
        assert not node.partitions.unopened


async def test_a_topic_that_is_deleted_while_it_is_opened_leaves_nothing() -> None:
    async with coming_back() as watched:
        node, client = watched.node, watched.client
        await watched.begin()
        assert await delete_topic(client, "a") == Error.NONE
        assert ("a", 0) not in node.partitions._begun
        await node.partitions.settled()
        assert [name for name in watched.storage.list("") if name.startswith("a-0")] == []
        await client.ask(create("a"), 7)
        await node.partitions.settled()
        assert values_of(node, "a") == []


@pytest.mark.parametrize("end", ["stop", "kill"])
async def test_an_opening_is_given_up_when_the_broker_ends(end: str) -> None:
    async with coming_back() as watched:
        node = watched.node
        await watched.begin()
        await (node.stop() if end == "stop" else node.kill())
        assert not node.partitions._begun
        assert node.partitions.is_settled
        assert not watched.storage.exists(CLEAN_SHUTDOWN)
        storage = watched.storage
    async with running(storage=storage) as node:
        assert len(values_of(node, "a")) == len(values_of(node, "b")) == BATCHES


async def test_a_stop_says_what_keeps_the_next_start_from_being_short() -> None:
    storage = CountingStorage()
    await killed(storage)
    storage.flip(SEGMENT, 1000, 0)
    for _ in range(2):
        async with running(storage=storage) as node:
            await node.stop()
            assert said(node)[-1] == "a-0 could not be opened: the next start is as after a crash"
            assert not [line for line in said(node) if "disk refused" in line]
        assert not storage.exists(CLEAN_SHUTDOWN)
    storage.flip(SEGMENT, 1000, 0)
    async with running(storage=storage) as node:
        assert len(values_of(node, "a")) == len(values_of(node, "b")) == 10_001
        await node.stop()
        assert not [line for line in said(node) if "as after a crash" in line]
    assert storage.exists(CLEAN_SHUTDOWN)


async def test_a_topic_that_cannot_be_opened_leaves_nothing_when_it_is_deleted() -> None:
    storage, clock = CountingStorage(), SteeredClock(1_700_000_000_000)
    await killed(storage)
    storage.flip(SEGMENT, 1000, 0)
    async with running(storage=storage, clock=clock) as node, connected(node) as client:
        Topic = DeleteTopicsRequest.DeleteTopicState
        request = DeleteTopicsRequest(topics=[Topic(name="a", topic_id=bytes(16))], timeout_ms=1000)
        assert (await client.ask(request, 6)).responses[0].error_code == Error.NONE
        assert [name for name in storage.list("") if name.startswith("a-0")] == []
        assert not node.partitions.unopened
        await client.ask(create("a"), 7)
        assert values_of(node, "a") == []
        await clock.advance("2m", sessions=True)
        await node.stop()
        assert not [line for line in said(node) if "as after a crash" in line]
    async with running(storage=storage) as node:
        assert values_of(node, "a") == []
        assert not [line for line in said(node) if "belongs to no topic" in line]


async def test_what_the_disk_refused_is_tried_again() -> None:
    storage, clock = CountingStorage(), SteeredClock(1_700_000_000_000)
    await killed(storage)
    storage.fail(errno.EIO, doing="read", path=SEGMENT, times=3)
    async with running(storage=storage, clock=clock) as node:
        assert "Input/output error" in str(node.partitions.unopened["a", 0])
        await clock.advance("10s", sessions=True)
        assert len(values_of(node, "a")) == 10_001


async def test_a_log_that_another_program_cuts_is_an_error_of_its_partition(tmp_path: Path) -> None:
    async with running(storage=OsStorage(str(tmp_path))) as node, connected(node) as client:
        for topic in ("a", "b"):
            node.create_topic(topic)
            for _ in range(5):
                append(node, topic, b"v" * 100_000)
        for topic in ("a", "b"):
            answer = await client.ask(fetch(topic), 12)
            assert len(answer.responses[0].partitions[0].records) > 500_000
        os.truncate(tmp_path / "a-0/00000000000000000000.log", 60)
        for topic, error in (("a", Error.KAFKA_STORAGE_ERROR), ("b", Error.NONE)):
            answer = await client.ask(fetch(topic), 12)
            assert answer.responses[0].partitions[0].error_code == error
        assert len([line for line in said(node) if "it ends at byte 60" in line]) == 1
        answer = await client.ask(produce("a", batch(b"w")), 9)
        assert answer.responses[0].partition_responses[0].base_offset == 5


# Every API that changes something, and a disk that fails at each of its steps


def create(name: str) -> CreateTopicsRequest:
    topic = CreateTopicsRequest.CreatableTopic(
        name=name, num_partitions=2, replication_factor=1, assignments=[], configs=[]
    )
    return CreateTopicsRequest(topics=[topic], timeout_ms=1000, validate_only=False)


async def create_topic(client: Client) -> Any:
    return (await client.ask(create("new"), 7)).topics[0].error_code


async def create_partitions(client: Client) -> Any:
    topic = CreatePartitionsRequest.CreatePartitionsTopic(name="t", count=3, assignments=None)
    request = CreatePartitionsRequest(topics=[topic], timeout_ms=1000, validate_only=False)
    return (await client.ask(request, 3)).results[0].error_code


async def delete_topic(client: Client, name: str = "t") -> Any:
    topic = DeleteTopicsRequest.DeleteTopicState(name=name, topic_id=bytes(16))
    return (await client.ask(DeleteTopicsRequest(topics=[topic], timeout_ms=1000), 6)).responses[0].error_code


async def alter_config(client: Client) -> Any:
    Resource = IncrementalAlterConfigsRequest.AlterConfigsResource
    config = Resource.AlterableConfig(name="retention.ms", config_operation=0, value="60000")
    resource = Resource(resource_type=2, resource_name="t", configs=[config])
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
    return (await client.ask(request, 1)).responses[0].error_code


async def auto_create(client: Client) -> Any:
    topic = MetadataRequest.MetadataRequestTopic(name="new", topic_id=bytes(16))
    request = MetadataRequest(topics=[topic], allow_auto_topic_creation=True)
    return (await client.ask(request, 9)).topics[0].error_code


WISHES = [create_topic, create_partitions, delete_topic, alter_config, auto_create]
STORAGE_ERRORS = {Error.NONE, Error.KAFKA_STORAGE_ERROR, Error.LEADER_NOT_AVAILABLE, Error.UNKNOWN_TOPIC_OR_PARTITION}


async def is_served(client: Client, topic: str, partition: int) -> bool:
    answer = await client.ask(produce(topic, batch(b"w"), partition=partition), 9)
    error = answer.responses[0].partition_responses[0].error_code
    assert error in (Error.NONE, Error.KAFKA_STORAGE_ERROR, Error.UNKNOWN_TOPIC_OR_PARTITION), error
    return bool(error == Error.NONE)


async def fail_at(wish: Callable[[Client], Awaitable[Any]], step: int, error: int) -> bool:
    """Let the disk fail once at a step of what a wish does; return whether there was such a step."""
    storage = SimulatedStorage(lambda: 1_700_000_000_000)
    async with running(SMALL, storage=storage) as node, connected(node) as client:
        node.create_topic("t", 2)
        append(node, "t", b"v")
        struck = ""

        def note(found: Step) -> None:
            nonlocal struck
            if found.number == at:
                struck = f"{found.doing} {found.path}"

        at = storage.steps + step
        storage.before_step = note
        storage.fail(error, at=at, times=1)
        try:
            found = await wish(client)
        except asyncio.IncompleteReadError:
            # Nobody can say what has become of the wish, so nothing is.
            assert node.metadata.log.log.offline is not None, struck
            assert said(node), struck
            found = Error.KAFKA_STORAGE_ERROR
        assert found in STORAGE_ERRORS, found
        storage.before_step = None
        storage.faults.clear()
        assert not struck or said(node) or FLUSHED_END in struck, f"nobody was told of {struck}"
        is_offline = node.metadata.log.log.offline is not None  # the disk failed while it was synced
        for _ in range(3):
            if node.partitions.unopened:
                node.partitions._try_again()
        if not is_offline:
            # What the metadata say is served, without a new start.
            for topic in list(node.image.topics.values()):
                for partition in topic.partitions:
                    log = node.replicas[topic.name, partition.id].log
                    assert log.offline is not None or await is_served(client, topic.name, partition.id)
            assert await create_topic(client) in (Error.NONE, Error.TOPIC_ALREADY_EXISTS)
            assert await is_served(client, "new", 0)
        known = {name: len(topic.partitions) for name, topic in node.image.topics.items()}
        values = values_of(node, "t") if "t" in known else []
        assert values[:1] == ([b"v"] if "t" in known else [])
    async with running(SMALL, storage=storage) as node, connected(node) as client:
        assert not node.partitions.unopened
        if not is_offline:
            assert {name: len(topic.partitions) for name, topic in node.image.topics.items()} == known
        if "t" in node.image.topics:
            assert values_of(node, "t") == values
        assert await create_topic(client) in (Error.NONE, Error.TOPIC_ALREADY_EXISTS)
        assert await is_served(client, "new", 0)
    return bool(struck)


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO, errno.EMFILE], ids=["ENOSPC", "EIO", "EMFILE"])
@pytest.mark.parametrize("wish", WISHES)
async def test_a_disk_that_fails_once_costs_one_request(wish: Callable[[Client], Awaitable[Any]], error: int) -> None:
    step = 1
    while await fail_at(wish, step, error):
        step += 1
    assert step > 3

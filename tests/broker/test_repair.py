"""A start with --repair on metadata that lost something: nothing is deleted because of what is not known any more."""

from __future__ import annotations

import errno
from contextlib import suppress
from copy import deepcopy
from pathlib import Path

import pytest

from minibroker.broker.broker import Node
from minibroker.errors import Error, StorageError
from minibroker.groups import OFFSETS_TOPIC
from minibroker.groups.offsets import commit_record
from minibroker.log.batches import batches
from minibroker.log.build import build_batch
from minibroker.log.checkpoints import read_file
from minibroker.log.memory_storage import MemoryStorage
from minibroker.log.records import Record
from minibroker.log.storage import OsStorage
from minibroker.metadata.bootstrap import METADATA_DIRECTORY, WrongDirectory, format_directory
from minibroker.metadata.image import BROKER, TOPIC
from minibroker.simulation.disk import FOREVER, SimulatedStorage
from tests.server.running import running, said, turns, values_of

LOG = f"{METADATA_DIRECTORY}/{0:020}.log"
NOW_MS = 1_700_000_000_000
SETTINGS = {"offsets.topic.num.partitions": "1", "log.retention.ms": "1000"}
TOPICS = {  # and what keeps their records of long ago, so that losing any of it could lose them
    "forever": {"retention.ms": "-1"},
    "latest": {"cleanup.policy": "compact"},
    "altered": {},
    "by-the-broker": {},
}


async def fill(storage: MemoryStorage) -> dict[str, list[bytes]]:
    """Let a directory have had a life; return what its topics hold."""
    async with running(SETTINGS, storage=storage) as node:
        for name, settings in TOPICS.items():
            node.create_topic(name, 1, settings)
        node.create_topic("gone")
        node.change(node.controller.alter_configs(TOPIC, "altered", {"retention.ms": "-1"}))
        node.change(node.controller.alter_configs(BROKER, "", {"log.retention.ms": "-1"}))
        node.change(node.controller.delete_topic(name="gone"))
        await node.partitions.settled()
        node.create_topic(OFFSETS_TOPIC, 1, {"cleanup.policy": "compact", "compression.type": "producer"})
        for name in TOPICS:
            for number in range(3):
                record = Record(b"%d" % number, b"v", (), NOW_MS)
                node.replicas[name, 0].append(bytearray(build_batch(2, [record])), now_ms=NOW_MS, steady_ms=0)
                node.replicas[name, 0].log.roll()
        await commit(node, 42)
        assert node.producer_ids.next() == 0
        return {name: values_of(node, name) for name in TOPICS}


async def commit(node: Node, offset: int) -> None:
    (led,) = node.groups.led()
    topic_id = node.image.topics["forever"].id
    now_ms = node.clock.now_ms()
    row = commit_record(
        "g", "forever", 0, offset, leader_epoch=0, metadata="", commit_timestamp=now_ms, topic_id=topic_id
    )
    told: list[Error] = []
    led.write("g", [row], told.append)
    await turns(3)
    assert told == [Error.NONE]


def committed(node: Node) -> int:
    (led,) = node.groups.led()
    found = led.shard.offsets.find("g", "forever", 0)
    assert found is not None
    return found.offset


def flip(storage: MemoryStorage, position: int) -> None:
    file = storage.open(LOG)
    file.write_at(position, bytes([file.read_at(position, 1)[0] ^ 1]))


DAMAGES = [
    "the log is gone",
    "the log and the note are gone",
    "half of the log is gone",
    *(f"batch {number}" for number in range(16)),
]


def damage(storage: MemoryStorage, what: str) -> bool:
    """Damage the metadata; return False if there is no such batch."""
    data = read_file(storage, LOG)
    if what.startswith("batch"):
        found = list(batches(data))
        number = int(what.split()[1])
        if number < len(found):
            flip(storage, (found[number].position + 61 + found[number].end_position) // 2)
        return number < len(found)
    if what == "half of the log is gone":
        storage.open(LOG).truncate(len(data) // 2)
        return True
    names = storage.list(METADATA_DIRECTORY)
    for name in names if "note" in what else [LOG.rpartition("/")[2]]:
        storage.remove(f"{METADATA_DIRECTORY}/{name}")
    return True


@pytest.mark.parametrize("what", DAMAGES)
async def test_whatever_is_lost_of_the_metadata_a_repair_keeps_records_and_offsets(what: str) -> None:
    storage = MemoryStorage(lambda: NOW_MS)
    before = await fill(storage)
    assert damage(storage, what)
    async with running(SETTINGS, storage=storage, repairs=True) as node:
        assert node.scheduler.keeps_all or what == "batch 0"
        assert {name: values_of(node, name) for name in TOPICS} == before
        assert "gone" not in node.image.topics or any("topic gone has no directories" in line for line in said(node))
        assert node.image.topic_configs(OFFSETS_TOPIC)["cleanup.policy"] == "compact"
        assert committed(node) == 42
        await commit(node, 43)
        given = node.producer_ids.next()
        assert given is not None
        assert given > 0
        kept = {name for name in TOPICS if node.image.topic_configs(name) != TOPICS[name]}
        is_broker_known = bool(node.image.configs.get((BROKER, "")))
    async with running(SETTINGS, storage=storage) as node:
        assert not node.scheduler.keeps_all
        await node.cleaning.retention_now()
        found = {name: values_of(node, name) for name in TOPICS}
        # What a topic had of its own, or has since, counts; what the broker had is to be looked at before.
        for name in ("forever", "latest", *(["by-the-broker"] if is_broker_known else []), *kept):
            assert found[name] == before[name], name
        assert committed(node) == 43
    async with running(SETTINGS, storage=storage) as node:
        assert committed(node) == 43


async def test_a_topic_without_settings_is_said() -> None:
    storage = MemoryStorage(lambda: NOW_MS)
    await fill(storage)
    damage(storage, "the log and the note are gone")
    async with running(SETTINGS, storage=storage, repairs=True) as node:
        (line,) = [line for line in said(node) if "no settings are known" in line]
        assert line.startswith("altered, by-the-broker, forever, latest: ")
        assert any("until the next start nothing is deleted or compacted" in line for line in said(node))


async def test_a_repair_whose_start_fails_is_begun_again() -> None:
    storage = MemoryStorage(lambda: NOW_MS)
    await fill(storage)
    damage(storage, "batch 3")
    async with running() as other:
        taken = {"listeners": f"PLAINTEXT://127.0.0.1:{other.servers[0].port}"}
        with pytest.raises(OSError):
            async with running({**SETTINGS, **taken}, storage=storage, repairs=True):
                pass
    with pytest.raises(WrongDirectory, match="a repair has begun and not ended"):
        async with running(SETTINGS, storage=storage):
            pass
    async with running(SETTINGS, storage=storage, repairs=True) as node:
        assert sorted(node.image.topics) == sorted([*TOPICS, OFFSETS_TOPIC])
        assert node.image.topic_configs("latest") == TOPICS["latest"]


@pytest.mark.slow
async def test_a_repair_can_be_broken_off_at_any_step() -> None:
    made = SimulatedStorage(lambda: NOW_MS)
    await fill(made)
    damage(made, "batch 4")
    storage = deepcopy(made)
    async with running(SETTINGS, storage=storage, repairs=True) as node:
        last, expected = storage.steps, dict(node.image.configs)
    assert last - made.steps > 20
    for step in range(made.steps + 1, last + 1):
        storage = deepcopy(made)
        storage.fail(errno.EIO, at=step, times=FOREVER)
        with suppress(StorageError):
            async with running(SETTINGS, storage=storage, repairs=True):
                storage.faults.clear()
        storage.faults.clear()
        for repairs in (False, True):
            try:
                async with running(SETTINGS, storage=storage, repairs=repairs) as node:
                    assert dict(node.image.configs) == expected, step
                    assert committed(node) == 42
                    assert not [name for name in storage.list("") if name.endswith("-stray")]
                break
            except WrongDirectory:
                assert not repairs, step


@pytest.mark.parametrize("repairs", [False, True])
async def test_the_directory_of_a_broker_of_a_cluster_is_not_started_alone(tmp_path: Path, repairs: bool) -> None:
    cluster_id = "AAAAAAAAAAAAAAAAAAAAAQ"
    for node_id, name in ((3000, "controller"), (1, "broker-1")):
        format_directory(
            OsStorage(str(tmp_path / name)),
            cluster_id=cluster_id,
            node_id=node_id,
            directory_id=bytes(16),
            now_ms=NOW_MS,
        )
    before = sorted(path.name for path in tmp_path.rglob("*"))
    with pytest.raises(WrongDirectory, match="broker 1 of the cluster in"):
        async with running(storage=OsStorage(str(tmp_path / "broker-1")), repairs=repairs):
            pass
    assert sorted(path.name for path in tmp_path.rglob("*") if path.name != ".lock") == before
    (tmp_path / "controller").rename(tmp_path / "elsewhere")
    async with running(storage=OsStorage(str(tmp_path / "broker-1")), repairs=repairs) as node:
        assert node.cluster_id == cluster_id

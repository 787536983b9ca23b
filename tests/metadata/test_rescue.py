"""A damaged batch of the metadata log costs what it said, and nothing that stands behind it."""

from __future__ import annotations

from copy import deepcopy
from random import Random
from typing import Any

import pytest

from minibroker.log.batches import Batch, batches
from minibroker.log.checkpoints import read_file
from minibroker.log.memory_storage import MemoryStorage
from minibroker.metadata.bootstrap import METADATA_DIRECTORY
from minibroker.metadata.image import BROKER, TOPIC, MetadataImage
from minibroker.metadata.metadata_log import MetadataLog
from minibroker.metadata.records import read_record
from minibroker.metadata.snapshot import find_snapshots
from minibroker.simulation.disk import SimulatedStorage, Step
from tests.metadata.nodes import NOW_MS, LoneNode
from tests.metadata.test_damage import LOG, put

NAMES = ("a", "b", "c", "d")


def lived(chance: Random, *, snapshot_at: int = -1) -> MemoryStorage:
    """Let topics come, change and go; write a snapshot after so many steps."""
    storage = MemoryStorage(int)
    node = LoneNode(storage)
    for step in range(40):
        if step == snapshot_at:
            node.log.write_snapshot(now_ms=NOW_MS)
        name = chance.choice(NAMES)
        controller, known = node.controller, node.image.topics.get(name)
        if known is None:
            node.create(name, partitions=chance.randint(1, 3), configs={"retention.ms": str(step)})
        elif chance.random() < 0.3:
            node.append(controller.delete_topic(name=name))
        elif chance.random() < 0.3:
            node.append(controller.create_partitions(name, len(known.partitions) + 1))
        else:
            value = chance.choice([None, str(step)])
            node.append(controller.alter_configs(TOPIC, name, {chance.choice(["segment.ms", "retention.ms"]): value}))
        if chance.random() < 0.1:
            node.append(controller.alter_configs(BROKER, "", {"log.retention.ms": str(step)}))
    node.log.release()
    return storage


def seen(image: MetadataImage) -> dict[str, Any]:
    """Return what is known of each topic, by its name, and of the settings of brokers."""
    return {"": image.configs.get((BROKER, ""), {})} | {
        topic.name: (topic.id, len(topic.partitions), image.topic_configs(topic.name))
        for topic in image.topics.values()
    }


def loaded(storage: MemoryStorage, *, repairs: bool = False) -> MetadataLog:
    log = MetadataLog(storage, node_id=1)
    log.load(now_ms=NOW_MS, repairs=repairs)
    if repairs:
        log.lead(now_ms=NOW_MS)
        log.end_repair()
    log.release()
    return log


def concerned(batch: Batch, image: MetadataImage) -> set[str]:
    """Return the topics of which a batch says something; "" for a broker."""
    names = set()
    ids = {topic.id: topic.name for topic in image.topics.values()}
    for record in batch.records():
        found: Any = read_record(bytes(record.value or b""))
        if found.type_number == 4:
            names.add(found.resource_name)
        elif found.type_number == 2:
            ids[bytes(found.topic_id)] = found.name
        if hasattr(found, "topic_id"):
            names.add(ids.get(bytes(found.topic_id), ""))
    return names


@pytest.mark.outside
@pytest.mark.parametrize("seed", range(6))
def test_a_batch_that_is_damaged_costs_what_it_said(seed: int) -> None:
    storage = lived(Random(seed))
    data, whole = read_file(storage, LOG), seen(loaded(deepcopy(storage)).image)
    image = MetadataImage()
    for batch in batches(data):
        if not batch.is_control:
            said = concerned(batch, image)
            copy = deepcopy(storage)
            at = (batch.position + 61 + batch.end_position) // 2
            put(copy, LOG, data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
            log = loaded(copy, repairs=True)
            assert log.rescue is not None
            assert not log.rescue.is_complete
            found = seen(log.image)
            for name in whole.keys() | found.keys():
                assert name in said or found.get(name) == whole.get(name), (name, said)
            assert seen(loaded(copy).image) == found
            for record in batch.records():
                image.apply(read_record(bytes(record.value or b"")))


@pytest.mark.parametrize("seed", range(6))
def test_what_a_snapshot_has_is_not_lost_and_nothing_behind_it(seed: int) -> None:
    chance = Random(seed)
    storage = lived(chance, snapshot_at=25)
    data, whole = read_file(storage, LOG), seen(loaded(deepcopy(storage)).image)
    end_offset = max(end_offset for end_offset, _ in find_snapshots(storage, METADATA_DIRECTORY))
    covered = [batch for batch in batches(data) if batch.last_offset < end_offset]
    for position in (covered[0].position, chance.choice(covered).position, covered[-1].position):
        copy = deepcopy(storage)
        put(copy, LOG, data[: position + 65] + bytes([data[position + 65] ^ 1]) + data[position + 66 :])
        log = loaded(copy, repairs=True)
        assert log.rescue is not None
        assert log.rescue.is_complete
        assert seen(log.image) == whole
        assert seen(loaded(copy).image) == whole


def test_what_is_rescued_reaches_the_disk_together() -> None:
    counts = []
    for changes in (300, 900):
        storage = SimulatedStorage(int)
        node = LoneNode(storage)
        node.create("a")
        for number in range(changes):
            node.append(node.controller.alter_configs(TOPIC, "a", {"retention.ms": str(number)}))
        node.log.release()
        data = read_file(storage, LOG)
        put(storage, LOG, data[:100] + bytes([data[100] ^ 1]) + data[101:])
        steps: list[Step] = []
        storage.before_step = steps.append
        assert loaded(storage, repairs=True).image.topic_configs("a") == {"retention.ms": str(changes - 1)}
        counts.append(sum(step.doing == "sync" for step in steps))
    assert counts[1] == counts[0]

"""The metadata logs of real brokers mean to us what they meant to Kafka."""

from __future__ import annotations

import pytest

from minibroker.log.checkpoints import format_id, read_topic_id
from minibroker.log.directory import split_name
from minibroker.metadata.bootstrap import bootstrap_records, check_directory
from minibroker.metadata.features import FINALIZED, NEWEST
from minibroker.metadata.image import MetadataImage
from minibroker.metadata.metadata_log import MetadataLog
from minibroker.stored.cluster import FeatureLevelRecord
from tests import goldens
from tests.metadata.nodes import CLUSTER_ID, NOW_MS, LoneNode, golden_storage, memory, plain

KRAFT = [name for name in goldens.LOG_DIRECTORIES if name.startswith("kraft")]
# As tests/golden/README.md has them made; 4.x calls the setting for small segments by another name.
CONFIGS = {
    "plain": {"index.interval.bytes": "200", "segment.bytes": "1000"},
    "appendtime": {"message.timestamp.type": "LogAppendTime"},
    "recompress": {"compression.type": "gzip"},
    "compact-fast": {
        "cleanup.policy": "compact",
        "segment.bytes": "700",
        "min.cleanable.dirty.ratio": "0.01",
        "delete.retention.ms": "1",
    },
    "codecs": {},
}


def loaded(name: str) -> MetadataImage:
    storage = golden_storage(name)
    return MetadataLog(storage, node_id=1).load(now_ms=NOW_MS)


@pytest.mark.parametrize("name", KRAFT)
def test_every_partition_directory_is_known_by_its_topic_id(name: str) -> None:
    storage, image = golden_storage(name), loaded(name)
    found = {split: each for each in storage.list("") if (split := split_name(each)) and split[0][:9] != "__cluster"}
    assert found
    assert set(found) == {(topic.name, each.id) for topic in image.topics.values() for each in topic.partitions}
    for (topic, _), directory in found.items():
        assert image.topics[topic].id == read_topic_id(storage, directory)
        assert image.topics_by_id[image.topics[topic].id] is image.topics[topic]


@pytest.mark.parametrize("name", KRAFT)
def test_settings_are_those_the_topics_were_made_with(name: str) -> None:
    image = loaded(name)
    small = "internal.segment.bytes" if "44" in name else "segment.bytes"
    for topic, configs in CONFIGS.items():
        expected = {small if key == "segment.bytes" else key: value for key, value in configs.items()}
        assert image.topic_configs(topic) == expected, topic
    assert image.topic_configs("__consumer_offsets")["cleanup.policy"] == "compact"


@pytest.mark.parametrize("name", KRAFT)
def test_offset_epoch_and_leaders_are_those_of_the_log(name: str) -> None:
    image, meaning = loaded(name), goldens.log_meaning(name)["partitions"]["__cluster_metadata-0"]
    assert image.offset + 1 == meaning["logEndOffset"]
    assert image.epoch == int(meaning["leader-epoch-checkpoint"][-1].split()[0])
    assert image.features == FINALIZED["4.4" if "44" in name else "3.9"]
    killed = name == "kraft39-3-killed"
    assert image.brokers[1].fenced is not killed
    starts = {"kraft39-1-before-clean": 1, "kraft39-2-after-clean": 2, "kraft39-3-killed": 3, "kraft44-1": 1}[name]
    for partition in image.topics["plain"].partitions:
        assert partition.leader == (1 if killed else -1)
        # Each stop and each later start is a change of leader.
        assert partition.leader_epoch == 2 * starts - (2 if killed else 1)
        assert (partition.isr, partition.elr) == (([], [1]) if "44" in name else ([1], []))
    assert image.next_producer_id == (2000 if killed else 1000)
    assert not image.ignored


@pytest.mark.parametrize("name", KRAFT)
def test_the_records_of_an_image_make_it_again(name: str) -> None:
    image, again = loaded(name), MetadataImage()
    for record in image.records():
        again.apply(record)
    assert plain(again) == plain(image)


@pytest.mark.parametrize("name", KRAFT)
def test_a_snapshot_of_a_real_log_says_what_the_log_says(name: str) -> None:
    storage = golden_storage(name)
    log = MetadataLog(storage, node_id=1)
    expected = plain(log.load(now_ms=NOW_MS))
    log.write_snapshot(now_ms=NOW_MS)
    log.close()
    again = MetadataLog(storage, node_id=1)
    assert plain(again.load(now_ms=NOW_MS)) == expected
    assert again._since_snapshot == 0


@pytest.mark.parametrize("name", KRAFT)
def test_a_real_brokers_directory_can_be_led_on(name: str) -> None:
    storage = golden_storage(name)
    epoch = MetadataLog(storage, node_id=1).load(now_ms=NOW_MS).epoch
    node = LoneNode(storage, release="4.4" if "44" in name else "3.9")
    assert node.log.epoch == epoch + 1
    assert {each.leader for topic in node.image.topics.values() for each in topic.partitions} == {1}
    node.create("more")
    assert node.image.topics["more"].partitions[0].directories == list(node.image.brokers[1].log_dirs)


@pytest.mark.parametrize("name", KRAFT)
def test_a_fresh_log_begins_as_kafkas_does(name: str) -> None:
    theirs = golden_storage(name)
    meta = check_directory(theirs, node_id=1)
    assert meta is not None
    assert [(r.name, r.feature_level) for r in bootstrap_records(theirs) if isinstance(r, FeatureLevelRecord)] == list(
        FINALIZED["4.4" if "44" in name else "3.9"].items()
    )
    ours = memory()
    LoneNode(ours, release="4.4" if "44" in name else "3.9")
    for path in ("bootstrap.checkpoint", "__cluster_metadata-0/00000000000000000000-0000000000.checkpoint"):
        assert ours.exists(path) == theirs.exists(path)
        if ours.exists(path):
            assert ours.size_bytes(path) == theirs.size_bytes(path)  # they differ in times and checksums
    for path in ("__cluster_metadata-0/partition.metadata", "__cluster_metadata-0/quorum-state"):
        if "killed" not in name and "after" not in name:
            assert read(ours, path) == read(theirs, path)
    assert [line.split("=")[0] for line in read(ours, "meta.properties").decode().splitlines()[2:]] == [
        line.split("=")[0] for line in read(theirs, "meta.properties").decode().splitlines()[2:]
    ]


def read(storage: object, path: str) -> bytes:
    file = storage.open(path)  # type: ignore[attr-defined]
    found: bytes = file.read_at(0, file.size_bytes)
    return found


def test_what_is_new_is_what_kafka_4_4_finalizes() -> None:
    assert NEWEST == "4.4"
    node = LoneNode(memory())
    assert node.image.features == loaded("kraft44-1").features
    assert node.image.configs[4, ""] == loaded("kraft44-1").configs[4, ""]
    assert format_id(node.image.brokers[1].log_dirs[0])
    assert CLUSTER_ID

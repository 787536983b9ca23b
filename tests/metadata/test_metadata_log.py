"""The metadata log of one node: what it writes, what a later start finds, and whose directory it takes."""

from __future__ import annotations

import json
from random import Random

import pytest

from minibroker.errors import InvalidRecord, UnsupportedVersion
from minibroker.log.batches import batches
from minibroker.log.checkpoints import format_id, read_file
from minibroker.log.memory_storage import MemoryStorage
from minibroker.metadata.bootstrap import (
    METADATA_DIRECTORY,
    WrongDirectory,
    check_directory,
    format_directory,
    random_id,
)
from minibroker.metadata.features import FINALIZED
from minibroker.metadata.image import MetadataImage
from minibroker.metadata.metadata_log import MetadataLog
from minibroker.metadata.records import UnknownRecord, read_record, record_version
from minibroker.metadata.snapshot import find_snapshots
from minibroker.simulation.disk import SimulatedStorage
from minibroker.stored.brokers import (
    BrokerRegistrationChangeRecord,
    FenceBrokerRecord,
    RegisterBrokerRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
)
from minibroker.stored.cluster import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    NoOpRecord,
)
from minibroker.stored.security import ClientQuotaRecord
from minibroker.stored.topics import ClearElrRecord, ConfigRecord, PartitionChangeRecord, TopicRecord
from tests.metadata.nodes import CLUSTER_ID, DIRECTORY_ID, NOW_MS, LoneNode, memory, plain

LOG = f"{METADATA_DIRECTORY}/{0:020}.log"


def reloaded(storage: MemoryStorage) -> MetadataLog:
    log = MetadataLog(storage, node_id=1)
    log.load(now_ms=NOW_MS)
    return log


# Across starts


@pytest.mark.parametrize("snapshot_records", [1, 7, 10_000])
def test_a_later_start_finds_what_was_written(snapshot_records: int) -> None:
    storage = memory()
    node = LoneNode(storage, snapshot_records=snapshot_records)
    for index in range(12):
        node.create(f"topic{index}", index + 1, configs={"retention.ms": str(index)})
    node.append(node.controller.delete_topic(name="topic3"))
    node.append(node.controller.alter_configs(2, "topic4", {"retention.ms": None, "segment.ms": "5"}))
    expected = plain(node.image)
    log = reloaded(storage)
    assert plain(log.image) == expected
    assert (log.image.offset, log.image.epoch) == (node.image.offset, node.image.epoch)
    assert log.image.offset == log.log_end_offset - 1
    assert len(find_snapshots(storage, METADATA_DIRECTORY)) <= 3
    assert log._since_snapshot < max(snapshot_records, log._snapshot_size) + 12


@pytest.mark.parametrize("release", ["3.9", "4.4"])
def test_a_start_after_a_loss_of_power_finds_what_was_written(release: str) -> None:
    storage = SimulatedStorage(lambda: NOW_MS)
    node = LoneNode(storage, release=release)
    node.create("orders", 1)
    for seed in range(10):
        assert plain(reloaded(storage.crashed(Random(seed))).image) == plain(node.image)


def test_each_start_leads_in_a_later_epoch() -> None:
    storage = memory()
    assert [LoneNode(storage).log.epoch for _ in range(3)] == [1, 2, 3]
    assert json.loads(read_file(storage, f"{METADATA_DIRECTORY}/quorum-state"))["leaderEpoch"] == 3
    epochs = [batch.partition_leader_epoch for batch in batches(read_file(storage, LOG))]
    assert epochs == sorted(epochs)
    assert set(epochs) == {1, 2, 3}


def test_where_voters_stand_in_the_log_they_are_kept() -> None:
    """kraft.version 1, as `kafka-storage format --standalone` makes it: checked by hand with a real 4.4.0 as well."""
    from minibroker.log.formats import KRAFT_VERSION, KRAFT_VOTERS, LEADER_CHANGE
    from minibroker.log.records import control_type
    from minibroker.metadata.bootstrap import FIRST_SNAPSHOT, bootstrap_records
    from minibroker.metadata.snapshot import control_key, read_newest, write_snapshot
    from minibroker.stored.control import KRaftVersionRecord, VotersRecord

    storage = memory()
    format_directory(storage, cluster_id=CLUSTER_ID, node_id=1, directory_id=DIRECTORY_ID, now_ms=NOW_MS)
    ranges = VotersRecord.Voter.KRaftVersionFeature(min_supported_version=0, max_supported_version=1)
    me = VotersRecord.Voter(voter_id=1, voter_directory_id=DIRECTORY_ID, endpoints=[], k_raft_version_feature=ranges)
    voters = [
        (control_key(KRAFT_VERSION), KRaftVersionRecord(version=0, k_raft_version=1).encode(0)),
        (control_key(KRAFT_VOTERS), VotersRecord(version=0, voters=[me]).encode(0)),
    ]
    records = bootstrap_records(storage)
    write_snapshot(storage, FIRST_SNAPSHOT, records, metadata_version=33, voters=voters, now_ms=NOW_MS)
    for _ in range(2):
        node = LoneNode(storage)
        assert json.loads(read_file(storage, f"{METADATA_DIRECTORY}/quorum-state"))["data_version"] == 1
        node.log.write_snapshot(now_ms=NOW_MS)
        newest = read_newest(storage, METADATA_DIRECTORY)
        assert newest is not None
        assert newest[2].voters == voters
    # Kafka 4.4 knows version 0 of this record and nothing else, whatever kraft.version is.
    changes = [batch for batch in batches(read_file(storage, LOG)) if batch.is_control]
    for record in (record for batch in changes for record in batch.records()):
        assert control_type(record) == LEADER_CHANGE
        assert bytes(record.value or b"")[:2] == b"\0\0"


def test_the_epoch_rises_even_if_quorum_state_is_gone_or_broken() -> None:
    storage = memory()
    LoneNode(storage)
    for data in (b"", b"{", b'{"leaderEpoch":"x"}', b"[1]"):
        file = storage.open(f"{METADATA_DIRECTORY}/quorum-state", create=True)
        file.truncate(0)
        file.append([data])
        before = reloaded(storage).image.epoch
        assert LoneNode(storage).log.epoch == before + 1


def test_a_broken_snapshot_is_passed_over() -> None:
    storage = memory()
    node = LoneNode(storage, snapshot_records=5)
    for index in range(8):
        node.create(f"topic{index}")
    expected = plain(node.image)
    for end_offset, epoch in find_snapshots(storage, METADATA_DIRECTORY)[:1]:
        file = storage.open(f"{METADATA_DIRECTORY}/{end_offset:020}-{epoch:010}.checkpoint")
        file.truncate(file.size_bytes - 1)
    assert plain(reloaded(storage).image) == expected


def test_a_log_that_begins_behind_its_snapshots_is_refused() -> None:
    storage = memory()
    node = LoneNode(storage)
    node.create("orders")
    end = node.log.log_end_offset
    node.log.log.roll(end)
    node.create("payments")
    node.log.close()
    for suffix in (".log", ".index", ".timeindex", ".snapshot"):
        storage.remove(f"{METADATA_DIRECTORY}/{0:020}{suffix}")
    with pytest.raises(InvalidRecord, match=f"the log begins at offset {end}, and no snapshot"):
        reloaded(storage)


def test_a_torn_tail_is_cut_and_the_rest_stays() -> None:
    storage = memory()
    node = LoneNode(storage)
    node.create("orders")
    expected = plain(node.image)
    node.log.is_together = True  # it has not been flushed, and nobody was told of it
    node.create("payments")
    file = storage.open(LOG)
    file.truncate(file.size_bytes - 3)
    said: list[str] = []
    log = MetadataLog(storage, node_id=1)
    log.load(now_ms=NOW_MS, say=said.append)
    assert plain(log.image) == expected
    assert log.log.recovery.cut_bytes
    assert len(said) == 1
    assert "cut off after a crash" in said[0]


def test_many_records_become_batches_that_kafka_takes() -> None:
    node = LoneNode(memory())
    changes = {f"key{index}": "x" * 20_000 for index in range(900)}
    node.create("orders")
    before = node.log.log_end_offset
    assert node.append(node.controller.alter_configs(2, "orders", changes)) == before
    assert node.log.log_end_offset == before + 900
    assert max(batch.size_bytes for batch in batches(read_file(node.storage, LOG))) < 8 << 20
    assert reloaded(node.storage).image.topic_configs("orders") == changes  # type: ignore[arg-type]


# A change of several records


def test_records_of_a_change_take_effect_at_its_end() -> None:
    image = MetadataImage()
    topic = TopicRecord(name="a", topic_id=bytes(16))
    for record, known in [
        (BeginTransactionRecord(), []),
        (topic, []),
        (AbortTransactionRecord(), []),
        (BeginTransactionRecord(), []),
        (topic, []),
        (EndTransactionRecord(), ["a"]),
    ]:
        image.apply(record)
        assert list(image.topics) == known
    with pytest.raises(InvalidRecord, match="no change has begun"):
        image.apply(EndTransactionRecord())


def test_half_a_change_is_dropped_by_the_next_leader() -> None:
    storage = memory()
    node = LoneNode(storage)
    node.append([BeginTransactionRecord(), TopicRecord(name="half", topic_id=bytes(16))])
    node = LoneNode(storage)
    assert "half" not in node.image.topics
    assert not node.image.in_transaction
    node.create("whole")
    assert list(reloaded(storage).image.topics) == ["whole"]


# The image


def test_what_refers_to_nothing_is_refused() -> None:
    for record in (
        PartitionChangeRecord(partition_id=0, topic_id=bytes(16)),
        BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=1),
    ):
        with pytest.raises(InvalidRecord):
            MetadataImage().apply(record)


def test_quotas_features_and_settings_come_and_go() -> None:
    image = MetadataImage()
    entity = [ClientQuotaRecord.EntityData(entity_type="user", entity_name=None)]
    image.apply(ClientQuotaRecord(entity=entity, key="producer_byte_rate", value=5.0, remove=False))
    assert image.client_quotas == {(("user", None),): {"producer_byte_rate": 5.0}}
    image.apply(ClientQuotaRecord(entity=entity, key="producer_byte_rate", value=0.0, remove=True))
    image.apply(ConfigRecord(resource_type=4, resource_name="", name="a", value="1"))
    image.apply(ConfigRecord(resource_type=4, resource_name="", name="a", value=None))
    image.apply(FeatureLevelRecord(name="group.version", feature_level=1))
    image.apply(FeatureLevelRecord(name="group.version", feature_level=0))
    image.apply(NoOpRecord())
    assert (image.client_quotas, image.configs, image.features) == ({}, {}, {})


OF_BROKERS = [
    RegisterBrokerRecord(broker_id=1, incarnation_id=bytes(16), broker_epoch=1, end_points=[], features=[], rack=None),
    UnfenceBrokerRecord(id=1, epoch=1),
    FenceBrokerRecord(id=1, epoch=1),
    BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=1, fenced=-1),
    BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=1, cordoned_log_dirs=[bytes(16)]),
    UnregisterBrokerRecord(broker_id=1, broker_epoch=1),
    FeatureLevelRecord(name="metadata.version", feature_level=20),
]


def test_each_change_of_brokers_or_features_is_counted_when_it_takes_effect() -> None:
    image = MetadataImage()
    for count, record in enumerate(OF_BROKERS, 1):
        image.apply(record)
        assert image.brokers_version == count
    image.apply(TopicRecord(name="a", topic_id=bytes(16)))
    image.apply(BeginTransactionRecord(name=None))
    for record in OF_BROKERS:
        image.apply(record)
    assert image.brokers_version == len(OF_BROKERS)
    image.apply(EndTransactionRecord())
    assert image.brokers_version == 2 * len(OF_BROKERS)


def test_partitions_may_come_in_any_order() -> None:
    node = LoneNode(memory())
    records = node.controller.create_topic("a", partitions=5, replication_factor=1)
    node.append([records[0], *reversed(records[1:])])
    assert [partition.id for partition in node.image.topics["a"].partitions] == [0, 1, 2, 3, 4]


def test_eligible_leaders_can_be_forgotten() -> None:
    node = LoneNode(memory())
    node.create("a")
    partition = node.image.topics["a"].partitions[0]
    partition.elr = [3]
    node.append([ClearElrRecord(topic_name="a")])
    assert partition.elr == []


def test_a_kind_that_we_do_not_know_is_counted_and_left_out() -> None:
    record = read_record(b"\1\x64\0\0")
    assert isinstance(record, UnknownRecord)
    image = MetadataImage()
    image.apply(record)
    assert image.ignored == {100: 1}
    with pytest.raises(UnsupportedVersion):
        read_record(b"\1\2\x07\0")


@pytest.mark.parametrize(("level", "version"), [(6, 0), (7, 1), (8, 2), (17, 3), (25, 3), (30, 4), (33, 4)])
def test_the_finalized_level_says_which_version_is_written(level: int, version: int) -> None:
    registration = LoneNode(memory()).image.brokers[1]
    assert record_version(registration, level) == version
    change = PartitionChangeRecord(topic_id=bytes(16))
    assert record_version(change, level) == (2 if level >= 23 else 1 if level >= 17 else 0)


# Whose directory


def test_a_directory_is_formatted_once_and_belongs_to_its_node() -> None:
    storage = memory()
    assert check_directory(storage, node_id=1) is None
    meta = format_directory(storage, cluster_id=CLUSTER_ID, node_id=1, directory_id=DIRECTORY_ID, now_ms=NOW_MS)
    assert check_directory(storage, node_id=1, cluster_id=CLUSTER_ID) == meta
    with pytest.raises(WrongDirectory, match=f"belongs to cluster {CLUSTER_ID}, not other"):
        check_directory(storage, node_id=1, cluster_id="other")
    with pytest.raises(WrongDirectory, match="belongs to node 1, not 2"):
        check_directory(storage, node_id=2)


def test_a_directory_of_zookeepers_time_or_without_sense_is_refused() -> None:
    for text, said in ((b"version=0\nbroker.id=1\ncluster.id=x\n", "version 0"), (b"version=9\n", "version '9'")):
        storage = memory()
        file = storage.open("meta.properties", create=True)
        file.append([text])
        with pytest.raises(WrongDirectory, match=said):
            check_directory(storage, node_id=1)


@pytest.mark.parametrize("release", FINALIZED)
def test_every_release_can_be_formatted_and_led(release: str) -> None:
    node = LoneNode(memory(), release=release)
    assert node.image.features == FINALIZED[release]
    node.create("a")
    assert plain(reloaded(node.storage).image) == plain(node.image)  # type: ignore[arg-type]


def test_ids_never_begin_with_a_dash() -> None:
    chance = Random(3)
    drawn = [format_id(random_id(chance)) for _ in range(500)]
    assert not [each for each in drawn if each.startswith("-")]
    assert len(set(drawn)) == 500

"""A setting that is accepted has its effect, at a start and, where it can change while the broker runs, at once.

Settings that a topic has or follows are seen in the live log of a partition. Every other one that is honoured is named
by a test, here or of its part; what no test names stands in a list that may only get shorter.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pytest

from minibroker import Cluster
from minibroker.broker.node import Node
from minibroker.config.setting import HONOURED, PER_BROKER, READ_ONLY
from minibroker.config.tables import broker_settings, group_settings, topic_settings
from minibroker.errors import Error
from minibroker.log.memory_storage import MemoryStorage
from minibroker.protocol.messages.create_topics import CreateTopicsRequest
from minibroker.protocol.messages.describe_cluster import DescribeClusterRequest
from minibroker.protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from minibroker.protocol.messages.find_coordinator import FindCoordinatorRequest
from minibroker.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from minibroker.protocol.messages.join_group import JoinGroupRequest
from minibroker.protocol.messages.offset_commit import OffsetCommitRequest
from tests.broker.running import running_node
from tests.client.scripted import TestClock
from tests.server.running import Client, append, connected, fetch, running

TESTS = Path(__file__).parent.parent
TOPIC, BROKER, GROUP = 2, 4, 32
SET, DELETE = 0, 1


class Seen(NamedTuple):
    """Where the effect of a topic's setting is, and two values with what is to be seen there."""

    attribute: str  # of the log's settings; of what validates with a dot
    values: tuple[tuple[str, Any], tuple[str, Any]]


NUMBERS = (("1200000", 1_200_000), ("1300000", 1_300_000))
# Every honoured setting of a topic.
SEEN: dict[str, Seen] = {
    "cleanup.policy": Seen("compact", (("compact", True), ("delete", False))),
    "compression.gzip.level": Seen("validation.level", (("7", 7), ("3", 3))),
    "compression.lz4.level": Seen("validation.level", (("7", 7), ("3", 3))),
    "compression.zstd.level": Seen("validation.level", (("7", 7), ("5", 5))),
    "compression.type": Seen("validation.codec", (("gzip", 1), ("zstd", 4))),
    "delete.retention.ms": Seen("delete_retention_ms", NUMBERS),
    "file.delete.delay.ms": Seen("file_delete_delay_ms", NUMBERS),
    "flush.messages": Seen("flush_messages", NUMBERS),
    "flush.ms": Seen("flush_ms", NUMBERS),
    "index.interval.bytes": Seen("index_interval_bytes", NUMBERS),
    "internal.segment.bytes": Seen("segment_bytes", (("5000", 5000), ("6000", 6000))),
    "max.compaction.lag.ms": Seen("max_compaction_lag_ms", NUMBERS),
    "max.message.bytes": Seen("validation.max_message_bytes", NUMBERS),
    "message.timestamp.after.max.ms": Seen("validation.timestamp_after_max_ms", NUMBERS),
    "message.timestamp.before.max.ms": Seen("validation.timestamp_before_max_ms", NUMBERS),
    "message.timestamp.type": Seen("validation.timestamp_type", (("LogAppendTime", 1), ("CreateTime", 0))),
    "min.cleanable.dirty.ratio": Seen("min_cleanable_dirty_ratio", (("0.25", 0.25), ("0.75", 0.75))),
    "min.compaction.lag.ms": Seen("min_compaction_lag_ms", NUMBERS),
    "retention.bytes": Seen("retention_bytes", NUMBERS),
    "retention.ms": Seen("retention_ms", NUMBERS),
    "segment.bytes": Seen("segment_bytes", NUMBERS),
    "segment.index.bytes": Seen("segment_index_bytes", NUMBERS),
    "segment.jitter.ms": Seen("segment_jitter_ms", (("0", 0), ("5", 5))),
    "segment.ms": Seen("segment_ms", NUMBERS),
}
# Seen elsewhere: in an answer, and not in the log.
ELSEWHERE = {
    "max.decompressed.message.bytes",
    "message.downconversion.enable",
    "message.format.version",
    "message.timestamp.difference.max.ms",
    "min.insync.replicas",
    "unclean.leader.election.enable",
}
# What a level needs in order to be used at all.
NEEDS = {f"compression.{codec}.level": {"compression.type": codec} for codec in ("gzip", "lz4", "zstd")}


def seen(node: Node, attribute: str) -> Any:
    found: Any = node.replicas["t", 0].log.settings
    for name in attribute.split("."):
        found = getattr(found, name)
    return found


async def alter(client: Client, kind: int, name: str, configs: dict[str, str | None]) -> str | None:
    """Set settings, None takes one back; return why that was refused."""
    Resource = IncrementalAlterConfigsRequest.AlterConfigsResource
    rows = [
        Resource.AlterableConfig(name=key, config_operation=DELETE if value is None else SET, value=value)
        for key, value in configs.items()
    ]
    request = IncrementalAlterConfigsRequest(
        resources=[Resource(resource_type=kind, resource_name=name, configs=rows)], validate_only=False
    )
    (answer,) = (await client.ask(request, 1)).responses
    return answer.error_message if answer.error_code else None


def test_every_honoured_setting_of_a_topic_has_its_probe() -> None:
    honoured = {name for name, setting in topic_settings().items() if setting.treatment == HONOURED}
    assert honoured == set(SEEN) | ELSEWHERE


@pytest.mark.parametrize("name", SEEN)
async def test_a_topics_setting_has_its_effect_from_the_start_and_when_it_is_altered(name: str) -> None:
    (first, wanted), (second, then) = SEEN[name].values
    async with running_node() as node, connected(node) as client:
        Topic = CreateTopicsRequest.CreatableTopic
        configs = [
            Topic.CreatableTopicConfig(name=key, value=value)
            for key, value in {**NEEDS.get(name, {}), name: first}.items()
        ]
        topic = Topic(name="t", num_partitions=1, replication_factor=1, assignments=[], configs=configs)
        answer = await client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=1000), 5)
        assert not answer.topics[0].error_code, answer.topics[0].error_message
        assert seen(node, SEEN[name].attribute) == wanted
        assert await alter(client, TOPIC, "t", {name: second}) is None
        assert seen(node, SEEN[name].attribute) == then


FOLLOWED = [(name, synonym) for name in SEEN for synonym in topic_settings()[name].synonyms]
UNITS = {"minutes": 60_000, "hours": 3_600_000}


def in_unit(name: str, synonym: str) -> tuple[tuple[str, Any], tuple[str, Any]]:
    """Return two values of a broker's setting, with what is to be seen of them in the log."""
    unit = UNITS.get(synonym.rpartition(".")[2])
    return SEEN[name].values if unit is None else (("7", 7 * unit), ("9", 9 * unit))


@pytest.mark.parametrize(("name", "synonym"), FOLLOWED)
async def test_a_topic_follows_the_broker_from_the_start_and_when_that_is_altered(name: str, synonym: str) -> None:
    (first, wanted), (second, then) = in_unit(name, synonym)
    setting = broker_settings()[synonym]
    given = {broker_name_of(key): value for key, value in NEEDS.get(name, {}).items()}
    async with running_node(**given, **{synonym: first}) as node, connected(node) as client:
        node.create_topic("t")
        before = seen(node, SEEN[name].attribute)
        assert before == wanted
        for broker in ("", "1"):
            refused = await alter(client, BROKER, broker, {synonym: second})
            if setting.update == READ_ONLY:
                assert refused == f"Cannot update these configs dynamically: [{synonym}]"
                continue
            assert refused is None
            assert seen(node, SEEN[name].attribute) == then
            assert await alter(client, BROKER, broker, {synonym: None}) is None
            assert seen(node, SEEN[name].attribute) == wanted


def broker_name_of(topic_setting: str) -> str:
    return topic_settings()[topic_setting].synonyms[0]


@pytest.mark.parametrize("seed", range(5))
async def test_whatever_is_altered_where_the_strongest_word_counts_at_once(seed: int) -> None:
    """A model: topic before broker before all brokers before the start before the default."""
    chance = Random(seed)
    names = [name for name in SEEN if topic_settings()[name].synonyms and name not in NEEDS]
    given = {broker_name_of(name): SEEN[name].values[0][0] for name in chance.sample(names, 5)}
    async with running_node(**given) as node, connected(node) as client:
        node.create_topic("t")
        defaults = {name: seen(node, SEEN[name].attribute) for name in names}
        layers: dict[tuple[int, str], dict[str, str]] = {(TOPIC, "t"): {}, (BROKER, "1"): {}, (BROKER, ""): {}}
        for _ in range(60):
            (kind, who), name = chance.choice(list(layers)), chance.choice(names)
            key = name if kind == TOPIC else broker_name_of(name)
            if broker_settings()[broker_name_of(name)].update in (READ_ONLY, PER_BROKER) and kind == BROKER:
                continue
            value = chance.choice([*(text for text, _ in SEEN[name].values), None])
            assert await alter(client, kind, who, {key: value}) is None
            layers[kind, who].pop(name, None)
            if value is not None:
                layers[kind, who][name] = value
            for each in names:
                text = next((layer[each] for layer in layers.values() if each in layer), None)
                expected = defaults[each] if text is None else dict(SEEN[each].values)[text]
                assert seen(node, SEEN[each].attribute) == expected, (each, layers)


# Every other setting of a broker


async def test_the_rack_is_told() -> None:
    async with running_node(**{"broker.rack": "a"}) as node, connected(node) as client:
        asked = DescribeClusterRequest(include_cluster_authorized_operations=False)
        assert [broker.rack for broker in (await client.ask(asked, 0)).brokers] == ["a"]


async def test_an_answer_to_fetch_is_as_large_as_fetch_max_bytes_lets_it() -> None:
    async with running_node(**{"fetch.max.bytes": 1024}) as node, connected(node) as client:
        node.create_topic("t")
        append(node, "t", bytes(900))
        append(node, "t", bytes(900))
        (answer,) = (await client.ask(fetch("t"), 12)).responses[0].partitions
        assert len(answer.records) <= 1024  # it may end within a batch, as Kafka's does


BOUNDED = ("session.timeout.ms", "heartbeat.interval.ms", "assignment.interval.ms")


@pytest.mark.parametrize("setting", BOUNDED)
async def test_a_group_stays_within_the_brokers_bounds(setting: str) -> None:
    low, high = {"session.timeout.ms": (100, 200), "heartbeat.interval.ms": (10, 20)}.get(setting, (30, 40))
    given = {f"group.consumer.min.{setting}": low, f"group.consumer.max.{setting}": high}
    given[f"group.consumer.{setting}"] = low
    if setting == "session.timeout.ms":
        given |= {"group.consumer.min.heartbeat.interval.ms": 1, "group.consumer.heartbeat.interval.ms": 1}
    async with running_node(**given) as node, connected(node) as client:
        for value, words in ((low, None), (high, None), (low - 1, "range"), (high + 1, "range")):
            refused = await alter(client, GROUP, "g", {f"consumer.{setting}": str(value)})
            assert (refused is None) == (words is None) and (words or "") in (refused or "")


async def test_a_session_of_a_classic_group_is_bounded() -> None:
    async with running_node(**{"group.max.session.timeout.ms": 7000}) as node, connected(node) as client:
        await client.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 4)
        for timeout_ms, code in ((7001, Error.INVALID_SESSION_TIMEOUT), (7000, Error.MEMBER_ID_REQUIRED)):
            asked = JoinGroupRequest(
                group_id="g",
                session_timeout_ms=timeout_ms,
                rebalance_timeout_ms=1000,
                member_id="",
                protocol_type="consumer",
                protocols=[JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"")],
            )
            assert (await client.ask(asked, 5)).error_code == code


@pytest.mark.parametrize("is_on", [True, False])
async def test_old_clients_get_their_format_unless_log_message_downconversion_enable_is_false(is_on: bool) -> None:
    settings = {"log.message.downconversion.enable": is_on}
    async with running_node(as_version="2.8", **settings) as node, connected(node) as client:
        node.create_topic("t")
        append(node, "t", b"value")
        (answer,) = (await client.ask(fetch("t"), 3)).responses[0].partitions
        assert answer.error_code == (Error.NONE if is_on else Error.UNSUPPORTED_VERSION)


async def test_without_slots_there_is_no_fetch_session() -> None:
    for slots, has_session in ((0, False), (1, True)):
        settings = {"max.incremental.fetch.session.cache.slots": slots}
        async with running_node(**settings) as node, connected(node) as client:
            node.create_topic("t")
            asked = fetch("t")
            asked.session_epoch = 0
            assert bool((await client.ask(asked, 12)).session_id) == has_session


async def test_a_segment_of_the_metadata_log_is_as_large_as_metadata_log_segment_bytes_says() -> None:
    async with running_node(**{"metadata.log.segment.bytes": 9 << 20}) as node:
        assert node.metadata_log.log.settings.segment_bytes == 9 << 20


async def test_a_text_beside_an_offset_is_bounded() -> None:
    async with running_node(**{"offset.metadata.max.bytes": 5}) as node, connected(node) as client:
        node.create_topic("t")
        await client.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 4)
        for text, code in (("12345", Error.NONE), ("123456", Error.OFFSET_METADATA_TOO_LARGE)):
            Topic = OffsetCommitRequest.OffsetCommitRequestTopic
            row = Topic.OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata=text)
            asked = OffsetCommitRequest(group_id="g", topics=[Topic(name="t", partitions=[row])])
            answer = await client.ask(asked, 8)
            assert answer.topics[0].partitions[0].error_code == code


async def test_the_topic_of_offsets_is_made_as_the_settings_say() -> None:
    given = {"offsets.topic.compression.codec": 1, "offsets.topic.segment.bytes": 2 << 20}
    async with running_node(**given, **{"offsets.topic.num.partitions": 3}) as node, connected(node) as client:
        await client.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 4)
        assert len(node.image.topics["__consumer_offsets"].partitions) == 3
        assert node.topic_config("__consumer_offsets")["segment.bytes"] == 2 << 20
        node.create_topic("t")
        Topic = OffsetCommitRequest.OffsetCommitRequestTopic
        row = Topic.OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata="")
        await client.ask(OffsetCommitRequest(group_id="g", topics=[Topic(name="t", partitions=[row])]), 8)
        logs = [replica.log for key, replica in node.replicas.items() if key[0] == "__consumer_offsets"]
        stored = [batch for log in logs for segment in log.segments for batch in segment.batches()]
        assert stored and {batch.codec for batch in stored} == {1}


async def test_a_page_of_partitions_has_as_many_as_max_request_partition_size_limit_says() -> None:
    async with running_node(**{"max.request.partition.size.limit": 2}) as node, connected(node) as client:
        node.create_topic("t", 3)
        asked = DescribeTopicPartitionsRequest(topics=[DescribeTopicPartitionsRequest.TopicRequest(name="t")])
        answer = await client.ask(asked, 0)
        assert len(answer.topics[0].partitions) == 2
        assert (answer.next_cursor.topic_name, answer.next_cursor.partition_index) == ("t", 2)


async def test_producers_are_forgotten_after_producer_id_expiration_ms_also_when_it_is_altered() -> None:
    async with running_node(**{"producer.id.expiration.ms": 5000}) as node, connected(node) as client:
        node.create_topic("t")
        assert seen(node, "producer_id_expiration_ms") == 5000
        assert await alter(client, BROKER, "", {"producer.id.expiration.ms": "6000"}) is None
        assert seen(node, "producer_id_expiration_ms") == 6000


async def test_the_listening_socket_has_the_backlog_that_socket_listen_backlog_size_says() -> None:
    async with running_node(**{"socket.listen.backlog.size": 7}) as node:
        assert [server.limits.backlog for server in node.servers] == [7]


@pytest.mark.parametrize("is_on", [True, False])
def test_a_partition_goes_back_to_its_preferred_leader_if_auto_leader_rebalance_enable_says_so(is_on: bool) -> None:
    settings = {"auto.leader.rebalance.enable": is_on, "leader.imbalance.check.interval.seconds": 1}
    with Cluster(2, topics=["t:1:2"], config=settings) as cluster:
        cluster.wait_in_sync()
        preferred = cluster.leader("t")
        (other,) = {1, 2} - {preferred}
        cluster.kill(preferred)
        cluster.wait_leader("t", 0, other)
        cluster.start_broker(preferred)
        cluster.wait_in_sync()
        cluster.advance("5s")
        assert cluster.leader("t") == (preferred if is_on else other)


@pytest.mark.parametrize("is_on", [True, False])
def test_a_broker_that_stops_gives_its_leaders_away_first_if_controlled_shutdown_enable_says_so(is_on: bool) -> None:
    with Cluster(2, topics=["t:1:2"], config={"controlled.shutdown.enable": is_on}) as cluster:
        cluster.wait_in_sync()
        leader = cluster.leader("t")
        (other,) = {1, 2} - {leader}
        cluster.freeze()  # so that no session ends
        cluster.stop_broker(leader)
        assert cluster.leader("t") == (other if is_on else leader)
        cluster.thaw()


# What is written down from time to time, and after which setting's time.
CHECKPOINTS = {
    "log.flush.offset.checkpoint.interval.ms": "recovery-point-offset-checkpoint",
    "log.flush.start.offset.checkpoint.interval.ms": "log-start-offset-checkpoint",
    "replica.high.watermark.checkpoint.interval.ms": "replication-offset-checkpoint",
}


@pytest.mark.parametrize("setting", CHECKPOINTS)
async def test_offsets_are_written_down_as_often_as_their_setting_says(setting: str) -> None:
    clock, storage = TestClock(), MemoryStorage(lambda: 1_700_000_000_000)
    others = {name: 1_000_000 for name in CHECKPOINTS if name != setting}
    async with running({setting: 7000, **others}, clock=clock, storage=storage) as node:
        node.create_topic("t")
        append(node, "t", b"value")
        log = node.replicas["t", 0].log
        log.flush()
        log.advance_log_start(1)
        clock.pass_time(6999)
        assert noted(storage, CHECKPOINTS[setting]) != 1
        clock.pass_time(1)
        assert {name for name, file in CHECKPOINTS.items() if noted(storage, file) == 1} == {setting}


def noted(storage: MemoryStorage, file: str) -> int | None:
    """Return the offset of the partition in a checkpoint, None if it is in none."""
    if not storage.exists(file):
        return None
    opened = storage.open(file)
    try:
        lines = bytes(opened.view(0, opened.size_bytes)).decode().splitlines()
    finally:
        opened.close()
    return next((int(line.split()[2]) for line in lines if line.startswith("t 0 ")), None)


# Honoured settings of a broker that no test outside tests/config names, and why. It may only get shorter.
NAMED_BY_NO_TEST = {
    "log.cleaner.io.buffer.load.factor",  # a share of log.cleaner.dedupe.buffer.size, which is tried
    "metadata.log.dir",  # it can only be refused: tests/config/test_start.py
    "replica.fetch.min.bytes",  # among brokers
    "replica.selector.class",  # by `racks` of Cluster, which sets it
    "replica.socket.timeout.ms",  # among brokers
}


@cache
def texts_of_tests() -> str:
    ours = Path(__file__)
    files = (path for path in TESTS.rglob("*.py") if path != ours and path.parent.name != "config")
    here, _, after = ours.read_text(encoding="utf-8").partition("NAMED_BY_NO_TEST = {")
    texts = [here, after.partition("}")[2], *(path.read_text(encoding="utf-8") for path in files)]
    # What is put together from parts, as in f"group.consumer.min.{setting}".
    bounds = [f'"group.consumer.{end}.{name}"' for end in ("min", "max") for name in BOUNDED]
    return "\n".join([*texts, *bounds])


def is_named(setting: str) -> bool:
    text = texts_of_tests()
    spellings = (setting, setting.replace(".", "_"), "KAFKA_" + setting.replace(".", "_").upper())
    return any(f"{quote}{each}" in text for each in spellings for quote in ('"', "'", " ", "(", "/", "\n"))


def test_every_other_honoured_setting_is_named_by_a_test_of_its_part() -> None:
    followed = {synonym for _, synonym in FOLLOWED}
    grouped = {synonym for each in group_settings().values() if each.treatment == HONOURED for synonym in each.synonyms}
    found = {
        name
        for name, setting in broker_settings().items()
        if setting.treatment == HONOURED and name not in followed | grouped and not is_named(name)
    }
    assert found == NAMED_BY_NO_TEST

"""A broker that is to look like an old release has its defaults, and takes its words for formats."""

from __future__ import annotations

import pytest

from minibroker import Cluster
from minibroker.broker.broker import Node
from minibroker.broker.emulated_release import EmulatedRelease
from minibroker.broker.releases import RELEASES
from minibroker.config.tables import broker_settings, old_defaults
from minibroker.errors import Error
from minibroker.protocol.messages.create_topics import CreateTopicsRequest
from minibroker.protocol.messages.delete_topics import DeleteTopicsRequest
from tests.broker.running import running_node
from tests.goldens import table
from tests.server.running import append, batch, connected, produce

Topic = CreateTopicsRequest.CreatableTopic
FORMAT = "message.format.version"


def around(size_bytes: int) -> tuple[bytes, bytes]:
    """Return the largest batch of one record that is not longer, and the next one."""
    value_bytes = size_bytes
    while len(batch(bytes(value_bytes))) > size_bytes:
        value_bytes -= 1
    return batch(bytes(value_bytes)), batch(bytes(value_bytes + 1))


@pytest.mark.parametrize(("as_version", "most"), [("2.4", 1000012), ("2.5", 1048588), (None, 1048588)])
async def test_a_batch_may_be_as_large_as_in_the_release(as_version: str | None, most: int) -> None:
    async with running_node(as_version=as_version) as node, connected(node) as client:
        node.create_topic("t")
        for data, code in zip(around(most), (Error.NONE, Error.MESSAGE_TOO_LARGE)):
            answer = await client.ask(produce("t", data), 7)
            assert answer.responses[0].partition_responses[0].error_code == code


async def test_a_default_of_an_old_release_gives_way_to_what_is_set() -> None:
    async with running_node(as_version="1.0", message_max_bytes=2_000_000) as node, connected(node) as client:
        node.create_topic("t")
        answer = await client.ask(produce("t", batch(bytes(1_500_000))), 5)
        assert not answer.responses[0].partition_responses[0].error_code


@pytest.mark.parametrize(("as_version", "is_deleted"), [("0.11", False), ("1.0", True)])
async def test_topics_could_not_be_deleted_before_1_0_unless_that_was_switched_on(
    as_version: str, is_deleted: bool
) -> None:
    async with running_node(as_version=as_version) as node, connected(node) as client:
        node.create_topic("t")
        await client.ask(DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000), 1)
        assert ("t" not in node.image.topics) == is_deleted


@pytest.mark.parametrize(("as_version", "is_led"), [("0.10.2", True), ("0.11", False)])
def test_who_was_out_of_sync_could_lead_before_0_11(as_version: str, is_led: bool) -> None:
    with Cluster(2, topics=["t:1:2"], as_version=as_version) as cluster:
        cluster.wait_in_sync()
        leader = cluster.leader("t")
        (follower,) = {1, 2} - {leader}
        cluster.kill(follower)
        cluster.wait_isr("t", 0, [leader])
        cluster.kill(leader)
        cluster.start_broker(follower)
        if is_led:
            cluster.wait_leader("t", 0, follower)
        else:
            assert cluster.leader("t") is None or cluster.leader("t") != follower


def test_no_default_is_older_than_its_setting_and_the_newest_has_none() -> None:
    assert old_defaults("4.4") == {}
    assert set(old_defaults("0.8.2")) == {name for name, setting in broker_settings().items() if setting.old_defaults}


FORMATS = [
    ("0.8.2", 0),
    ("0.9.0", 0),
    ("0.9.0.1", 0),
    ("0.10.0", 1),
    ("0.10.2", 1),
    ("0.10.2-IV0", 1),
    ("0.11.0", 2),
    ("1.0", 2),
    ("1.0.2", 2),
    ("2.8", 2),
    ("2.8-IV1", 2),
]


def stored_format(node: Node) -> int:
    """Append a record; return the format of what is in the file."""
    append(node, "t", b"value")
    file = node.storage.open("t-0/00000000000000000000.log")
    try:
        return file.read_at(16, 1)[0]  # the same place in every format
    finally:
        file.close()


@pytest.mark.setting("message.format.version")
@pytest.mark.parametrize(("version", "magic"), FORMATS)
async def test_a_topic_takes_the_words_that_kafka_reads_as_versions(version: str, magic: int) -> None:
    async with running_node(as_version="2.8") as node, connected(node) as client:
        config = Topic.CreatableTopicConfig(name=FORMAT, value=version)
        topic = Topic(name="t", num_partitions=1, replication_factor=1, assignments=[], configs=[config])
        answer = await client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=1000), 5)
        assert not answer.topics[0].error_code, answer.topics[0].error_message
        assert stored_format(node) == magic


@pytest.mark.parametrize("version", ["", "2", "0.10", "0.10.9", "9.9", "0.10.2-IV9", "latest"])
async def test_what_kafka_reads_as_no_version_is_refused(version: str) -> None:
    async with running_node(as_version="2.8") as node, connected(node) as client:
        config = Topic.CreatableTopicConfig(name=FORMAT, value=version)
        topic = Topic(name="t", num_partitions=1, replication_factor=1, assignments=[], configs=[config])
        answer = await client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=1000), 5)
        assert answer.topics[0].error_code == Error.INVALID_CONFIG
        assert f"Version `{version}` is not a valid version" in answer.topics[0].error_message
        assert not node.image.topics


@pytest.mark.parametrize(
    ("as_version", "expected"), [("0.9", 0), ("0.10.2", 1), ("1.0", 1), ("2.8", 1), ("3.9", 2), (None, 2)]
)
@pytest.mark.setting("log.message.format.version")
async def test_the_brokers_setting_is_for_topics_without_one(as_version: str | None, expected: int) -> None:
    settings = {} if as_version == "0.9" else {"log_message_format_version": "0.10.2"}
    async with running_node(as_version=as_version, **settings) as node:
        node.create_topic("t")
        assert stored_format(node) == expected


@pytest.mark.parametrize("of_topic", [False, True])
@pytest.mark.parametrize(("as_version", "code"), [("2.8", 32), ("3.9", 32), ("4.0", 0), (None, 0)])
@pytest.mark.setting("log.message.timestamp.difference.max.ms", "message.timestamp.difference.max.ms")
@pytest.mark.setting("log.message.timestamp.difference.max.ms")
async def test_one_limit_for_timestamps_on_both_sides_was_there_before_4_0(
    as_version: str | None, code: int, of_topic: bool
) -> None:
    settings = {} if of_topic else {"log_message_timestamp_difference_max_ms": 1000}
    own = {"message.timestamp.difference.max.ms": "1000"} if of_topic and code else {}
    async with running_node(as_version=as_version, **settings) as node, connected(node) as client:
        node.create_topic("t", 1, own)
        answer = await client.ask(produce("t", batch(b"old")), 7)
        assert answer.responses[0].partition_responses[0].error_code == code


TRANSACTIONAL_APIS = (22, 24, 25, 26, 27, 28, 61, 65, 66)
UNSTABLE = (22, 6)  # is in classes since 4.1, and announced by no broker


@pytest.mark.parametrize("release", RELEASES)
def test_apis_of_transactions_are_announced_as_in_the_release(release: str) -> None:
    known, number = table("apis"), RELEASES.index(release)
    assert known["releaseLines"] == RELEASES
    expected = {
        api["key"]: (span["versions"][0], span["versions"][1] - ((api["key"], span["versions"][1]) == UNSTABLE))
        for api in known["apis"]
        for span in api["releases"]
        if api["key"] in TRANSACTIONAL_APIS and RELEASES.index(span["from"]) <= number <= RELEASES.index(span["to"])
    }
    announced = EmulatedRelease(release).announced
    assert {key: announced[key] for key in TRANSACTIONAL_APIS if key in announced} == expected


@pytest.mark.parametrize(
    ("release", "level"), [("0.11", 0), ("1.0", 0), ("2.8", 0), ("3.9", 0), ("4.0", 2), ("4.4", 2)]
)
async def test_transactions_v2_are_announced_since_4_0(release: str, level: int) -> None:
    async with running_node(as_version=release) as node:
        levels, _ = node.emulated.finalized_features(node.metadata)
        assert levels.get("transaction.version", 0) == level
        assert ("transaction.version" in node.emulated.supported_features()) == (level > 0)

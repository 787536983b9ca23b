"""A setting that is accepted has its effect: each that is honoured is looked at from outside by a test that says so.

Settings that a topic has or follows are probed one by one and together (test_settings_of_topics.py). Every other one
is named by the marker `setting` of a test that would fail if nothing came of it; what nobody can observe stands in a
list, with the reason.
"""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

from minibroker import Cluster
from minibroker.config.setting import HONOURED
from minibroker.config.tables import broker_settings, group_settings, topic_settings
from minibroker.errors import Error
from minibroker.log.memory_storage import MemoryStorage
from minibroker.protocol.messages.describe_cluster import DescribeClusterRequest
from minibroker.protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from minibroker.protocol.messages.find_coordinator import FindCoordinatorRequest
from minibroker.protocol.messages.offset_commit import OffsetCommitRequest
from tests.broker.running import running_node
from tests.broker.setting_probes import GROUP, PROBES, alter
from tests.client.scripted import TestClock
from tests.server.running import append, connected, fetch, running

TESTS = Path(__file__).parent.parent

# Honoured settings of which nothing can be seen but that a value that does not fit is refused (tests/config/).
UNSEEN = {
    "controller.listener.names": "a listener of that name is not served: brokers of a process talk without sockets",
    "controller.quorum.bootstrap.servers": "there is one controller, and this is it",
    "controller.quorum.voters": "the same",
    "metadata.log.dir": "it can only be the data directory",
    "process.roles": "a process is broker and controller",
    "security.inter.broker.protocol": "brokers of a process talk without sockets",
}


def marked_settings() -> dict[str, list[str]]:
    """Return the settings that tests say they look at, and which tests those are."""
    found: dict[str, list[str]] = {}
    for path in TESTS.rglob("test_*.py"):
        text = path.read_text(encoding="utf-8")
        if "mark.setting(" not in text:
            continue
        module = ".".join(path.relative_to(TESTS.parent).with_suffix("").parts)
        for node in ast.walk(ast.parse(text)):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            for decorator in node.decorator_list:
                if isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == "pytest.mark.setting":
                    assert node.name.startswith("test_"), f"{path.name}: {node.name} is no test"
                    for name in map(ast.literal_eval, decorator.args):
                        found.setdefault(name, []).append(f"{module}.{node.name}")
    return found


def test_every_honoured_setting_is_looked_at_from_outside() -> None:
    tables = {"broker": broker_settings(), "topic": topic_settings(), "group": group_settings()}
    honoured = {name for table in tables.values() for name, each in table.items() if each.treatment == HONOURED}
    probed = set(PROBES) | {synonym for name in PROBES for synonym in topic_settings()[name].synonyms}
    marked = marked_settings()
    assert honoured - probed - set(marked) == set(UNSEEN)
    assert set(marked) <= honoured, "a marker names what is no setting, or one that is not honoured"


# Who makes the metadata log and the controller: for a broker that is alone, and in a cluster.
ALONE = ("broker/metadata_standalone.py",)
IN_CLUSTER = ("cluster/controller_server.py", "broker/metadata_in_cluster.py")


def settings_read(*files: str) -> set[str]:
    """Return the settings that are looked up by their names: `config["its.name"]`."""
    trees = [ast.parse((TESTS.parent / "minibroker" / file).read_text(encoding="utf-8")) for file in files]
    return {
        node.slice.value
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.Subscript) and ast.unparse(node.value).split(".")[-1] == "config"
        if isinstance(node.slice, ast.Constant)
    }


def test_what_the_controller_reads_for_one_broker_it_reads_for_a_cluster() -> None:
    """A broker that is alone has its controller and metadata log from one file, brokers of a cluster from another."""
    alone = settings_read(*ALONE)
    assert "metadata.log.segment.bytes" in alone
    assert alone <= settings_read(*IN_CLUSTER)


# What starts brokers that read the settings which they are told.
STARTS = {
    "minibroker.Broker",
    "minibroker.Cluster",
    "minibroker.broker.broker.Node",
    "minibroker.client.Cluster",
    "tests.test_serve.serving",
}


@cache
def defined(module: str) -> tuple[dict[str, str], dict[str, ast.AST]]:
    """Return what a module imports, by its name there, and the functions and classes that it defines."""
    tree = ast.parse((TESTS.parent / f"{module.replace('.', '/')}.py").read_text(encoding="utf-8"))
    imports: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            above = f"{module.rpartition('.')[0]}." if node.level else ""
            imports |= {each.asname or each.name: f"{above}{node.module}.{each.name}" for each in node.names}
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    return imports, {node.name: node for node in ast.walk(tree) if isinstance(node, kinds)}


def reach(name: str, reached: set[str]) -> None:
    """Add what a function of the tests calls, its fixtures, and what these call."""
    if name in reached:
        return
    reached.add(name)
    module, _, attribute = name.rpartition(".")
    if not module.startswith("tests.") or not (TESTS.parent / f"{module.replace('.', '/')}.py").exists():
        return
    imports, definitions = defined(module)
    if attribute in imports:
        reach(imports[attribute], reached)
    elif attribute in definitions:
        for node in ast.walk(definitions[attribute]):
            used = node.func if isinstance(node, ast.Call) else node
            called = used.id if isinstance(used, ast.Name) and used is not node else getattr(node, "arg", None)
            if called in imports:
                reach(imports[called], reached)
            elif called in definitions:
                reach(f"{module}.{called}", reached)


def test_who_looks_at_a_setting_starts_a_broker() -> None:
    """What is given to a part of it alone would be seen there although no broker read it."""
    without = []
    for test in {test for found in marked_settings().values() for test in found}:
        reached: set[str] = set()
        reach(test, reached)
        if not reached & STARTS:
            without.append(test)
    assert not without


@pytest.mark.setting("broker.rack")
async def test_the_rack_is_told() -> None:
    async with running_node(**{"broker.rack": "a"}) as node, connected(node) as client:
        asked = DescribeClusterRequest(include_cluster_authorized_operations=False)
        assert [broker.rack for broker in (await client.ask(asked, 0)).brokers] == ["a"]


@pytest.mark.setting("fetch.max.bytes")
async def test_an_answer_to_fetch_is_as_large_as_fetch_max_bytes_lets_it() -> None:
    async with running_node(**{"fetch.max.bytes": 1024}) as node, connected(node) as client:
        node.create_topic("t")
        append(node, "t", bytes(900))
        append(node, "t", bytes(900))
        (answer,) = (await client.ask(fetch("t"), 12)).responses[0].partitions
        assert len(answer.records) <= 1024  # it may end within a batch, as Kafka's does


BOUNDED = ("session.timeout.ms", "heartbeat.interval.ms", "assignment.interval.ms")


@pytest.mark.parametrize("setting", BOUNDED)
@pytest.mark.setting(
    "group.consumer.min.session.timeout.ms",
    "group.consumer.min.heartbeat.interval.ms",
    "group.consumer.min.assignment.interval.ms",
    "group.consumer.max.session.timeout.ms",
    "group.consumer.max.heartbeat.interval.ms",
    "group.consumer.max.assignment.interval.ms",
)
async def test_a_group_stays_within_the_brokers_bounds(setting: str) -> None:
    low, high = {"session.timeout.ms": (100, 200), "heartbeat.interval.ms": (10, 20)}.get(setting, (30, 40))
    given = {f"group.consumer.min.{setting}": low, f"group.consumer.max.{setting}": high}
    given[f"group.consumer.{setting}"] = low
    if setting == "session.timeout.ms":
        given |= {"group.consumer.min.heartbeat.interval.ms": 1, "group.consumer.heartbeat.interval.ms": 1}
    async with running_node(**given) as node, connected(node) as client:
        for value, words in ((low, None), (high, None), (low - 1, "range"), (high + 1, "range")):
            refused = await alter(client, GROUP, "g", {f"consumer.{setting}": str(value)})
            assert (refused is None) == (words is None)
            assert (words or "") in (refused or "")


@pytest.mark.parametrize("of_topic", [False, True])
@pytest.mark.parametrize("is_on", [True, False])
@pytest.mark.setting("log.message.downconversion.enable", "message.downconversion.enable")
async def test_old_clients_get_their_format_unless_message_downconversion_enable_is_false(
    is_on: bool, of_topic: bool
) -> None:
    settings = {"log.message.downconversion.enable": is_on != of_topic}
    async with running_node(as_version="2.8", **settings) as node, connected(node) as client:
        node.create_topic("t", 1, {"message.downconversion.enable": str(is_on).lower()} if of_topic else {})
        append(node, "t", b"value")
        (answer,) = (await client.ask(fetch("t"), 3)).responses[0].partitions
        assert answer.error_code == (Error.NONE if is_on else Error.UNSUPPORTED_VERSION)


@pytest.mark.setting("max.incremental.fetch.session.cache.slots")
async def test_without_slots_there_is_no_fetch_session() -> None:
    for slots, has_session in ((0, False), (1, True)):
        settings = {"max.incremental.fetch.session.cache.slots": slots}
        async with running_node(**settings) as node, connected(node) as client:
            node.create_topic("t")
            asked = fetch("t")
            asked.session_epoch = 0
            assert bool((await client.ask(asked, 12)).session_id) == has_session


@pytest.mark.setting("offset.metadata.max.bytes")
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


@pytest.mark.setting("offsets.topic.num.partitions", "offsets.topic.compression.codec", "offsets.topic.segment.bytes")
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
        assert stored
        assert {batch.codec for batch in stored} == {1}


@pytest.mark.setting("max.request.partition.size.limit")
async def test_a_page_of_partitions_has_as_many_as_max_request_partition_size_limit_says() -> None:
    async with running_node(**{"max.request.partition.size.limit": 2}) as node, connected(node) as client:
        node.create_topic("t", 3)
        asked = DescribeTopicPartitionsRequest(topics=[DescribeTopicPartitionsRequest.TopicRequest(name="t")])
        answer = await client.ask(asked, 0)
        assert len(answer.topics[0].partitions) == 2
        assert (answer.next_cursor.topic_name, answer.next_cursor.partition_index) == ("t", 2)


@pytest.mark.parametrize("is_on", [True, False])
@pytest.mark.setting("auto.leader.rebalance.enable")
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
@pytest.mark.setting("unclean.leader.election.enable")
def test_who_lacks_something_leads_if_unclean_leader_election_enable_says_so(is_on: bool) -> None:
    with Cluster(2, topics=["t:1:2"], config={"unclean.leader.election.enable": is_on}) as cluster:
        cluster.wait_in_sync()
        leader = cluster.leader("t")
        (other,) = {1, 2} - {leader}
        cluster.kill(other)
        cluster.wait_isr("t", 0, [leader])
        cluster.kill(leader)
        cluster.start_broker(other)
        cluster.advance("10m")
        assert cluster.leader("t") == (other if is_on else -1)


@pytest.mark.parametrize("is_on", [True, False])
@pytest.mark.setting("controlled.shutdown.enable")
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
@pytest.mark.setting(
    "log.flush.offset.checkpoint.interval.ms",
    "log.flush.start.offset.checkpoint.interval.ms",
    "replica.high.watermark.checkpoint.interval.ms",
)
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

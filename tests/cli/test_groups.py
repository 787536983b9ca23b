"""`minibroker groups` against a broker, with members that join by hand; and beside Kafka's own tool."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from minibroker.client import Cluster
from minibroker.client.connection import error_of
from minibroker.client.coordinators import Coordinators, all_or_raise
from minibroker.client.groups import Groups
from minibroker.errors import KafkaError
from minibroker.groups.patterns import check
from minibroker.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from minibroker.protocol.messages.join_group import JoinGroupRequest
from minibroker.protocol.messages.offset_commit import OffsetCommitRequest
from minibroker.protocol.messages.sync_group import SyncGroupRequest
from minibroker.stored.consumer_protocol import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from tests.cli.running import Shell
from tests.interop.kafka import DUMPS, run

SECOND = 1_700_000_000  # a minute in 2023: 22:13:20
NEVER_MS = 60_000  # no member is heard of again, and none is thrown out before the tests are over
OFFSETS = ["GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "CONSUMER-ID", "HOST", "CLIENT-ID"]


@pytest.fixture(scope="module", autouse=True)
def _records(shell: Shell) -> None:
    """Five records in the first partition, one for each second from the first on; three in the next, then none."""
    shell.good("configs", "-t", "orders", "--alter", "retention.ms=-1")  # they are old
    for partition, count in ((0, 5), (1, 3)):
        lines = "".join(f'{{"payload":"x","ts":{SECOND + number}000}}\n' for number in range(1, count + 1))
        shell.good("produce", "-t", "orders", "-p", str(partition), "-J", stdin=lines.encode())


@pytest.fixture
def group(shell: Shell, request: pytest.FixtureRequest) -> str:
    """A group without members, which has read two records of the first partition and one of the next."""
    name = _name(request)
    asyncio.run(_commit(shell.address, name, {("orders", 0): 2, ("orders", 1): 1}))
    return name


def _name(request: pytest.FixtureRequest) -> str:
    return "".join(letter if letter.isalnum() else "-" for letter in request.node.name)


async def _commit(address: str, group: str, offsets: dict[tuple[str, int], int]) -> None:
    async with Cluster(address) as cluster:
        await Groups(cluster).alter_offsets(group, offsets)


@pytest.fixture
def classic(shell: Shell, request: pytest.FixtureRequest) -> str:
    """A group of the classic protocol with a static member, which has two partitions."""
    asyncio.run(_join(shell.address, f"{_name(request)}-classic", "consumer"))
    return f"{_name(request)}-classic"


async def _answered(cluster: Cluster, group: str, request: Any) -> Any:
    """Ask the coordinator of a group, which the first of all groups must wait for."""

    async def ask(node_id: int, groups: list[str]) -> dict[str, Any]:
        answer = await cluster.call(request, node_id)
        return {group: error_of(answer.error_code, group) if answer.error_code else answer for group in groups}

    return all_or_raise(*await Coordinators(cluster).ask([group], ask))[group]


async def _join(address: str, group: str, protocol_type: str) -> None:
    async with Cluster(address, client_id="till") as cluster:
        subscription = b"\0\0" + ConsumerProtocolSubscription(topics=["orders"]).encode(0)
        protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=subscription)
        joined = await _answered(
            cluster,
            group,
            JoinGroupRequest(
                group_id=group,
                session_timeout_ms=NEVER_MS,
                rebalance_timeout_ms=NEVER_MS,
                member_id="",
                group_instance_id="left",
                protocol_type=protocol_type,
                protocols=[protocol],
            ),
        )
        row = ConsumerProtocolAssignment.TopicPartition(topic="orders", partitions=[0, 2])
        assignment = b"\0\0" + ConsumerProtocolAssignment(assigned_partitions=[row]).encode(0)
        Row = SyncGroupRequest.SyncGroupRequestAssignment
        await _answered(
            cluster,
            group,
            SyncGroupRequest(
                group_id=group,
                generation_id=joined.generation_id,
                member_id=joined.member_id,
                group_instance_id="left",
                protocol_type=protocol_type,
                protocol_name="range",
                assignments=[Row(member_id=joined.member_id, assignment=assignment)],
            ),
        )


@pytest.fixture
def modern(shell: Shell, request: pytest.FixtureRequest) -> str:
    """A group of the consumer protocol with one member, which has everything."""
    asyncio.run(_beat(shell.address, f"{_name(request)}-modern"))
    return f"{_name(request)}-modern"


async def _beat(address: str, group: str) -> None:
    async with Cluster(address, client_id="till") as cluster:
        await _answered(
            cluster,
            group,
            ConsumerGroupHeartbeatRequest(
                group_id=group,
                member_id="AAAAAAAAAAAAAAAAAAAAAQ",
                member_epoch=0,
                rebalance_timeout_ms=NEVER_MS,
                subscribed_topic_names=["orders"],
                topic_partitions=[],
            ),
        )


def cells(lines: list[str]) -> list[list[str]]:
    """Return the words of a table, behind the empty line that stands before it."""
    assert lines[0] == ""
    return [line.split() for line in lines[1:]]


# List


def test_groups_are_listed(shell: Shell, group: str, classic: str) -> None:
    assert {group, classic} <= set(shell.good("groups").lines)
    assert shell.good("groups", "--list").lines == sorted(shell.good("groups").lines)


def test_groups_are_listed_by_state_and_type(shell: Shell, group: str, classic: str, modern: str) -> None:
    def listed(*words: str) -> dict[str, list[str]]:
        first, *rows = (line.split() for line in shell.good("groups", "--list", *words).lines)
        found = {row[0]: row[1:] for row in rows if row[0].startswith(group)}
        return {"GROUP": first[1:], **found}

    assert listed("--state") == {"GROUP": ["STATE"], classic: ["Stable"], group: ["Empty"], modern: ["Stable"]}
    assert listed("--type") == {"GROUP": ["TYPE"], classic: ["Classic"], group: ["Classic"], modern: ["Consumer"]}
    assert listed("--type", "--state", "empty,dead") == {"GROUP": ["TYPE", "STATE"], group: ["Classic", "Empty"]}
    assert listed("--type", "consumer") == {"GROUP": ["TYPE"], modern: ["Consumer"]}
    documents = {row.pop("group"): row for row in json.loads(shell.good("groups", "-J").text)}
    assert documents[modern] == {"type": "Consumer", "state": "Stable"}


def test_only_groups_of_consumers_are_listed_and_described(shell: Shell, request: pytest.FixtureRequest) -> None:
    workers = _name(request)
    asyncio.run(_join(shell.address, workers, "connect"))
    assert workers not in shell.good("groups").lines
    for words in (["--describe"], ["--reset-offsets", "--topic", "orders", "--to-latest", "--execute"]):
        ran = shell("groups", *words, "--group", workers)
        assert (ran.status, ran.output) == (1, b"")
        assert f"group '{workers}': it is no consumer group, but one of the protocol type 'connect'" in ran.errors


# Describe


def test_a_group_without_members_is_described(shell: Shell, group: str) -> None:
    ran = shell.good("groups", "--describe", "--group", group)
    assert cells(ran.lines) == [
        OFFSETS,
        [group, "orders", "0", "2", "5", "3", "-", "-", "-"],
        [group, "orders", "1", "1", "3", "2", "-", "-", "-"],
    ]
    assert f"Consumer group '{group}' has no active members." in ran.errors
    assert shell.good("groups", group).lines == ran.lines
    assert shell.good("groups", group, "--offsets").lines == ran.lines


def test_partitions_of_members_come_first(shell: Shell, classic: str) -> None:
    asyncio.run(_commit_as_member(shell, classic))
    first, *rows = cells(shell.good("groups", "--describe", "-g", classic).lines)
    member = rows[0][6]
    assert first == OFFSETS
    assert member.startswith("left-")
    assert rows == [
        [classic, "orders", "0", "4", "5", "1", member, "/127.0.0.1", "till"],
        [classic, "orders", "2", "-", "0", "-", member, "/127.0.0.1", "till"],
        [classic, "orders", "1", "3", "3", "0", "-", "-", "-"],
    ]


async def _commit_as_member(shell: Shell, group: str) -> None:
    """Commit for the only member of a classic group."""
    Topic = OffsetCommitRequest.OffsetCommitRequestTopic
    rows = [
        Topic.OffsetCommitRequestPartition(partition_index=index, committed_offset=offset, committed_metadata="")
        for index, offset in ((0, 4), (1, 3))
    ]
    async with Cluster(shell.address) as cluster:
        (member,) = (await Groups(cluster).describe_groups([group]))[group].members
        answer = await cluster.call(
            OffsetCommitRequest(
                group_id=group,
                generation_id_or_member_epoch=1,
                member_id=member.id,
                group_instance_id="left",
                topics=[Topic(name="orders", partitions=rows)],
            ),
            version=9,
        )
        assert not any(row.error_code for row in answer.topics[0].partitions)


def test_members_of_a_classic_group(shell: Shell, classic: str) -> None:
    columns, row = cells(shell.good("groups", "--describe", "-g", classic, "--members").lines)
    assert columns == ["GROUP", "CONSUMER-ID", "GROUP-INSTANCE-ID", "HOST", "CLIENT-ID", "#PARTITIONS"]
    assert row[2:] == ["left", "/127.0.0.1", "till", "2"]
    columns, row = cells(shell.good("groups", classic, "--members", "--verbose").lines)
    assert columns[6:] == ["CURRENT-EPOCH", "CURRENT-ASSIGNMENT", "TARGET-EPOCH", "TARGET-ASSIGNMENT"]
    assert row[6:] == ["-", "orders:0,2", "-", "-"]


def test_members_of_a_consumer_group(shell: Shell, modern: str) -> None:
    columns, row = cells(shell.good("groups", modern, "--members", "-v").lines)
    assert columns == [
        "GROUP", "CONSUMER-ID", "HOST", "CLIENT-ID", "#PARTITIONS",
        "CURRENT-EPOCH", "CURRENT-ASSIGNMENT", "TARGET-EPOCH", "TARGET-ASSIGNMENT",
    ]  # fmt: skip
    member, *rest = row[1:]
    epoch = rest[3]
    assert member == "AAAAAAAAAAAAAAAAAAAAAQ"
    assert int(epoch) > 0
    assert rest == ["/127.0.0.1", "till", "3", epoch, "orders:0,1,2", epoch, "orders:0,1,2"]


def test_states(shell: Shell, modern: str) -> None:
    asyncio.run(_beat(shell.address, f"{modern}-2"))
    names = ("--group", f"{modern}-2", "--group", modern)
    where = [shell.address, "(1)"]
    lines = shell.good("groups", "--describe", *names, "--state").lines
    assert cells(lines[:3]) == [
        ["GROUP", "COORDINATOR", "(ID)", "ASSIGNMENT-STRATEGY", "STATE", "#MEMBERS"],
        [modern, *where, "uniform", "Stable", "1"],
    ]
    assert cells(lines[3:])[1] == [f"{modern}-2", *where, "uniform", "Stable", "1"]
    columns, row = cells(shell.good("groups", modern, "--state", "-v").lines)
    assert columns[5:] == ["GROUP-EPOCH", "TARGET-ASSIGNMENT-EPOCH", "#MEMBERS"]
    assert row[5] == row[6]


def test_all_groups_are_described(shell: Shell, group: str, classic: str) -> None:
    told = shell.good("groups", "--describe", "--all-groups", "--state").text
    assert f"\n{group} " in told
    assert f"\n{classic} " in told


def test_a_description_as_json(shell: Shell, group: str, classic: str) -> None:
    asyncio.run(_commit_as_member(shell, classic))
    (found,) = json.loads(shell.good("groups", classic, "-J").text)
    (member,) = found["members"]
    assert (found["group"], found["type"], found["state"], found["assignor"], found["epoch"]) == (
        classic, "Classic", "Stable", "range", None,
    )  # fmt: skip
    assert (member["instance"], member["client"], member["epoch"], member["target"]) == ("left", "till", None, None)
    assert member["assignment"] == [{"topic": "orders", "partition": 0}, {"topic": "orders", "partition": 2}]
    assert [(row["partition"], row["offset"], row["end"], row["lag"], row["member"]) for row in found["offsets"]] == [
        (0, 4, 5, 1, member["member"]),
        (2, None, 0, None, member["member"]),
        (1, 3, 3, 0, None),
    ]
    (found,) = json.loads(shell.good("groups", classic, "--state", "-J").text)
    assert "offsets" not in found


def test_a_group_that_is_missing_hides_no_other(shell: Shell, group: str) -> None:
    ran = shell("groups", "--describe", "-g", "missing", "-g", group)
    assert ran.status == 1
    assert "group 'missing': there is none; minibroker groups --list" in ran.errors
    assert len(cells(ran.lines)) == 3


def test_offsets_of_a_topic_that_has_gone_are_no_failure(shell: Shell, group: str, topic: str) -> None:
    asyncio.run(_commit(shell.address, group, {(topic, 0): 0}))
    assert [group, topic, "0", "0", "0", "0", "-", "-", "-"] in cells(shell.good("groups", group).lines)
    shell.good("topics", "--delete", topic)
    rows = cells(shell.good("groups", group).lines)[1:]
    assert len(rows) == 2 or [group, topic, "0", "0", "-", "-", "-", "-", "-"] in rows


# Reset


@pytest.mark.parametrize(
    ("words", "offsets"),
    [
        ("--to-earliest --topic orders", {0: 0, 1: 0, 2: 0}),
        ("--to-earliest --all-topics", {0: 0, 1: 0}),
        ("--to-latest --topic orders", {0: 5, 1: 3, 2: 0}),
        ("--to-latest --topic orders:2,0", {0: 5, 2: 0}),
        ("--to-latest --topic orders:2 --topic orders:1", {1: 3, 2: 0}),
        ("--to-current --topic orders", {0: 2, 1: 1, 2: 0}),
        ("--to-offset 4 --topic orders", {0: 4, 1: 3, 2: 0}),
        ("--shift-by 1 --all-topics", {0: 3, 1: 2}),
        ("--shift-by -2 --all-topics", {0: 0, 1: 0}),
        ("--to-datetime 2023-11-14T22:13:23.000 --topic orders", {0: 2, 1: 2, 2: 0}),
        ("--to-datetime 2023-11-15T00:13:24.500+02:00 --topic orders", {0: 4, 1: 3, 2: 0}),
        ("--to-datetime 1700000002000 --topic orders:0", {0: 1}),
        ("--by-duration P100000D --topic orders", {0: 0, 1: 0, 2: 0}),
        ("--by-duration PT1H --topic orders", {0: 5, 1: 3, 2: 0}),
    ],
)
def test_a_reset_is_shown_then_done(shell: Shell, group: str, words: str, offsets: dict[int, int]) -> None:
    command = ("groups", "--reset-offsets", "--group", group, *words.split())
    before = shell.good("groups", group).lines
    shown = shell.good(*command, "--dry-run")
    table = [[group, "orders", str(partition), str(offset)] for partition, offset in offsets.items()]
    assert cells(shown.lines) == [["GROUP", "TOPIC", "PARTITION", "NEW-OFFSET"], *table]
    assert shell.good("groups", group).lines == before
    assert shell.good(*command, "--execute").lines == shown.lines
    after = {int(row[2]): int(row[3]) for row in cells(shell.good("groups", group).lines)[1:]}
    assert after == {0: 2, 1: 1} | offsets


def test_without_execute_nothing_happens_and_that_is_said(shell: Shell, group: str) -> None:
    command = ("groups", "--reset-offsets", "-g", group, "--topic", "orders", "--to-latest")
    warning = "WARN: No action will be performed as the --execute option is missing."
    ran = shell.good(*command)
    assert warning in ran.errors
    assert ran.lines == shell.good(*command, "--dry-run").lines
    assert warning not in shell.good(*command, "--dry-run").errors
    assert cells(shell.good("groups", group).lines)[1][3] == "2"


def test_what_cannot_be_had_is_replaced_by_the_nearest_and_that_is_said(shell: Shell, group: str) -> None:
    ran = shell.good("groups", "--reset-offsets", "-g", group, "--topic", "orders:0", "--to-offset", "9", "--dry-run")
    reason = "New offset (9) is higher than latest offset for topic partition orders-0. Value will be set to 5."
    assert reason in ran.errors


def test_a_group_comes_into_being_by_a_reset(shell: Shell, request: pytest.FixtureRequest) -> None:
    name = _name(request)
    shell.good("groups", "--reset-offsets", "-g", name, "--topic", "orders:0", "--to-offset", "3", "--execute")
    assert cells(shell.good("groups", name).lines)[1][:4] == [name, "orders", "0", "3"]


def test_what_was_exported_can_be_read_back(shell: Shell, group: str, tmp_path: Path) -> None:
    command = ("groups", "--reset-offsets", "-g", group)
    exported = shell.good(*command, "--all-topics", "--to-current", "--export", "--dry-run")
    assert exported.lines == ["orders,0,2", "orders,1,1"]
    file = tmp_path / "offsets.csv"
    file.write_bytes(exported.output)
    shell.good(*command, "--all-topics", "--to-latest", "--execute")
    assert [row[3] for row in cells(shell.good("groups", group).lines)[1:]] == ["5", "3"]
    shell.good(*command, "--from-file", str(file), "--execute")
    assert [row[3] for row in cells(shell.good("groups", group).lines)[1:]] == ["2", "1"]


def test_several_groups_in_one_file(shell: Shell, group: str, tmp_path: Path) -> None:
    other = f"{group}-2"
    command = ("groups", "--reset-offsets", "-g", group, "-g", other)
    exported = shell.good(*command, "--topic", "orders:1", "--to-current", "--export", "--dry-run")
    assert exported.lines == [f"{group},orders,1,1", f"{other},orders,1,3"]
    file = tmp_path / "offsets.csv"
    file.write_bytes(exported.output)
    ran = shell(*command, "-g", "third", "--from-file", str(file), "--execute")
    assert ran.status == 1
    assert "offsets.csv has nothing for group 'third'" in ran.errors
    assert [row[:4] for row in cells(ran.lines)[1:]] == [[group, "orders", "1", "1"], [other, "orders", "1", "3"]]


def test_a_reset_as_json(shell: Shell, group: str) -> None:
    words = ("--topic", "orders:1", "--to-latest", "--dry-run", "-J")
    found = json.loads(shell.good("groups", "--reset-offsets", "-g", group, *words).text)
    assert found == [{"group": group, "topic": "orders", "partition": 1, "offset": 3}]


@pytest.mark.parametrize("kind", ["classic", "modern"])
def test_a_group_with_members_is_left_alone(
    shell: Shell, group: str, kind: str, request: pytest.FixtureRequest
) -> None:
    busy: str = request.getfixturevalue(kind)
    words = ("--topic", "orders:0", "--to-latest", "--execute")
    ran = shell("groups", "--reset-offsets", "-g", busy, "-g", group, *words)
    assert ran.status == 1
    assert f"only be reset if the group '{busy}' is inactive, but the current state is Stable" in ran.errors
    assert cells(ran.lines)[1:] == [[group, "orders", "0", "5"]]
    assert [row[3] for row in cells(shell.good("groups", busy).lines)[1:]] == ["-"] * (2 if kind == "classic" else 3)


# Delete


def test_groups_are_deleted(shell: Shell, group: str) -> None:
    other = f"{group}-2"
    asyncio.run(_commit(shell.address, other, {("orders", 0): 2}))
    done = f"Deletion of requested consumer groups ('{group}', '{other}') was successful."
    assert shell.good("groups", "--delete", "--group", group, "--group", other).lines == [done]
    assert not {group, other} & set(shell.good("groups").lines)


def test_a_group_with_members_is_not_deleted(shell: Shell, group: str, classic: str) -> None:
    ran = shell("groups", "--delete", "-g", classic, "-g", "missing", "-g", group)
    assert ran.status == 1
    assert ran.lines == [f"These consumer groups were deleted successfully: '{group}'"]
    assert f"group '{classic}' could not be deleted: NON_EMPTY_GROUP" in ran.errors
    assert "group 'missing' could not be deleted: there is none" in ran.errors
    assert classic in shell.good("groups").lines


def test_offsets_are_deleted(shell: Shell, group: str) -> None:
    ran = shell.good("groups", "--delete-offsets", "--group", group, "--topic", "orders:1")
    assert ran.lines[0] == f"Request succeeded for deleting offsets from group {group}."
    assert cells(ran.lines[1:]) == [["TOPIC", "PARTITION", "STATUS"], ["orders", "1", "Successful"]]
    assert [row[2] for row in cells(shell.good("groups", group).lines)[1:]] == ["0"]
    deleted = json.loads(shell.good("groups", "--delete-offsets", "-g", group, "-t", "orders", "-J").text)
    assert deleted == [{"topic": "orders", "partition": number, "error": None} for number in range(3)]


def test_offsets_that_members_need_are_not_deleted(shell: Shell, classic: str) -> None:
    ran = shell("groups", "--delete-offsets", "--group", classic, "--topic", "orders:0")
    assert ran.status == 1
    assert "some offsets could not be deleted" in ran.errors
    assert cells(ran.lines)[1][:4] == ["orders", "0", "Error:", "GROUP_SUBSCRIBED_TO_TOPIC:"]


# What makes no sense


@pytest.mark.parametrize(
    ("words", "status", "reason"),
    [
        ("--describe", 2, "which group? --group NAME or --all-groups"),
        ("--list some", 2, "--list takes no group"),
        ("some --all-groups", 2, "not both"),
        ("--describe some --members --offsets", 2, "one of --offsets, --members and --state"),
        ("--describe --state some", 2, "which group?"),
        ("--list --state odd", 2, "--state odd: there are Assigning, CompletingRebalance, Dead, Empty"),
        ("--list --type share", 2, "--type share: there are Classic, Consumer"),
        ("--describe missing", 1, "group 'missing': there is none"),
        ("missing --to-earliest", 2, "--to-earliest belongs to --reset-offsets"),
        ("missing --shift-by 0", 2, "--shift-by belongs to --reset-offsets"),
        ("--reset-offsets --to-earliest --topic orders", 2, "which group?"),
        ("--reset-offsets some --to-earliest", 2, "which partitions? --topic NAME, or --all-topics"),
        ("--reset-offsets some --to-earliest --all-topics --topic orders", 2, "which partitions?"),
        ("--reset-offsets some --topic orders", 2, "where to? --to-earliest, --to-latest"),
        ("--reset-offsets some --topic orders --to-earliest --to-latest", 2, "not allowed with"),
        ("--reset-offsets some --topic orders --to-earliest --dry-run --execute", 2, "not allowed with"),
        ("--reset-offsets some --topic orders:x --to-earliest", 2, "say topic or topic:0,1,2"),
        ("--reset-offsets some --topic orders:9 --to-earliest", 1, "there is no partition orders-9"),
        ("--reset-offsets some --topic missing --to-earliest", 1, "there is no topic 'missing'"),
        ("--reset-offsets some --topic missing:0 --to-earliest", 1, "there is no partition missing-0"),
        ("--reset-offsets some --topic orders --to-datetime soon", 2, "--to-datetime soon: say 2024-05-01T12:00"),
        ("--reset-offsets some --topic orders --by-duration 1h", 2, "--by-duration 1h: say PnDTnHnMnS"),
        ("--reset-offsets some --topic orders --shift-by 1", 1, "cannot shift orders-0"),
        ("--reset-offsets some --from-file /does/not/exist", 1, "--from-file /does/not/exist: No such file"),
        ("--delete", 2, "which group?"),
        ("--delete some --topic orders", 2, "--delete-offsets is for a topic"),
        ("--delete missing", 1, "could not be deleted: there is none"),
        ("--delete-offsets some", 2, "--topic at least once"),
        ("--delete-offsets some other --topic orders", 2, "takes one --group"),
        ("--delete-offsets missing --topic orders", 1, "group 'missing': there is none"),
        ("--delete-offsets missing --topic gone", 1, "there is no topic 'gone'"),
    ],
)
def test_what_cannot_be_is_said(shell: Shell, words: str, status: int, reason: str) -> None:
    ran = shell("groups", *words.split())
    assert (ran.status, ran.output) == (status, b"")
    assert reason in ran.errors


def test_a_file_that_is_no_plan_is_refused(shell: Shell, group: str, tmp_path: Path) -> None:
    file = tmp_path / "offsets.csv"
    file.write_text("orders,0,1\norders,first,1\n")
    ran = shell("groups", "--reset-offsets", "-g", group, "--from-file", str(file), "--execute")
    assert (ran.status, ran.output) == (2, b"")
    assert "offsets.csv: line 2 is " in ran.errors
    assert cells(shell.good("groups", group).lines)[1][3] == "2"


PATTERNS = {  # some that Python's own expressions take and RE2 does not, and the other way round
    "a(b)+": True,
    "a(b": False,
    "a(?=b)": False,
    r"(a)\1": False,
    "a++": False,
    "a{1001}": False,
    r"a\Z": False,
    r"\p{L}+": True,
    "(?<x>a)": True,
    "(?P<x>a)": True,
}


@pytest.mark.parametrize(("pattern", "is_valid"), PATTERNS.items())
def test_patterns_are_checked_without_a_broker_as_a_broker_would(pattern: str, is_valid: bool) -> None:
    ran = Shell("127.0.0.1:1")("groups", "--validate-regex", pattern)
    said = "valid"
    try:
        check(pattern)
    except KafkaError as error:
        said = "invalid: " + error.message.partition(" is not a valid regular expression: ")[2].removesuffix(".")
    assert (ran.status, said == "valid") == ((0, True) if is_valid else (1, False))
    assert ran.text.strip() == f"The regular expression `{pattern}` is {said}."


# Kafka's own tool

TOOL = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"


@pytest.mark.interop
@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        "--list --state",
        "--list --type consumer",
        "--describe --group {empty} --verbose",
        "--describe --group {classic}",
        "--describe --group {classic} --members --verbose",
        "--describe --group {modern} --members --verbose",
        "--describe --group {modern} --state --verbose",
        "--reset-offsets --group {empty} --all-topics --shift-by 1 --execute",
        "--reset-offsets --group {empty} --topic orders:0,1 --to-datetime 2023-11-14T22:13:22.000 --dry-run",
        "--reset-offsets --group {empty} --topic orders --to-current --export --dry-run",
        "--delete-offsets --group {empty} --topic orders:1",
    ],
)
def test_kafkas_tool_prints_the_same(shell: Shell, tmp_path: Path, words: str) -> None:
    groups = {name: f"tool-{name}" for name in ("empty", "classic", "modern")}
    asyncio.run(_join(shell.address, groups["classic"], "consumer"))
    asyncio.run(_beat(shell.address, groups["modern"]))
    command = words.format(**groups).split()

    def printed(lines: list[str]) -> list[str]:
        return sorted(filter(None, map(str.rstrip, lines)))  # Kafka's tool keeps no order, and pads lines

    asyncio.run(_commit(shell.address, groups["empty"], {("orders", 0): 2, ("orders", 1): 1}))
    theirs = run(DUMPS[1], TOOL, "--bootstrap-server", shell.address, *command, cwd=tmp_path)
    asyncio.run(_commit(shell.address, groups["empty"], {("orders", 0): 2, ("orders", 1): 1}))
    assert theirs.stdout.strip()
    assert printed(shell.good("groups", *command).lines) == printed(theirs.stdout.splitlines())

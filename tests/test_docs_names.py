"""Whatever the pages name exists: metrics, settings, APIs and their versions, commands, files."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

from minibroker.cli import COMMANDS
from minibroker.config.tables import broker_settings, group_settings, other_settings, topic_settings
from minibroker.protocol.messages.find_coordinator import FindCoordinatorRequest
from minibroker.protocol.messages.offset_commit import OffsetCommitRequest
from minibroker.protocol.registry import APIS, request_class
from tests.broker.running import running_node
from tests.server.running import connected
from tests.test_house_rules import DOORS, MAY_IMPORT

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))]
CODE = re.compile(r"`([^`\n]+)`")


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@cache
def source() -> str:
    files = [*(ROOT / "minibroker").rglob("*.py"), *(ROOT / "bench").rglob("*.py")]
    return "\n".join(path.read_text(encoding="utf-8") for path in files)


def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


METRIC = re.compile(r"\b((?:minibroker|kafka_(?:consumergroup|topic|broker))_[a-z_]+[a-z])\b")
# What begins like a metric and is none: fixtures, folders.
NO_METRICS = {"minibroker_cluster", "minibroker_cluster_session", "minibroker_spark"}


async def test_every_metric_is_one() -> None:
    named = {name for page in PAGES for name in METRIC.findall(text_of(page))} - NO_METRICS
    async with running_node() as node, connected(node) as client:
        node.create_topic("t", configs={"cleanup.policy": "compact"})
        await client.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 4)
        Topic = OffsetCommitRequest.OffsetCommitRequestTopic
        row = Topic.OffsetCommitRequestPartition(partition_index=0, committed_offset=0, committed_metadata="")
        await client.ask(OffsetCommitRequest(group_id="g", topics=[Topic(name="t", partitions=[row])]), 8)
        async with connected(node) as scraper:
            scraper.send(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
            text = (await scraper.reader.read()).decode()
    shown = set(re.findall(r"^# TYPE (\S+)", text, re.MULTILINE))
    assert len(shown) > 20
    assert not {name for name in named if not any(each.startswith(name) for each in shown)}


SETTING = re.compile(r"^(?:-o )?([a-z][a-z0-9]*(?:\.[a-z0-9]+)+)(?:=.*)?$")
# Settings of clients and of Spark, variables of programs, parts of names that stand for several, files.
OTHERS = re.compile(
    r"^(spark|kafka|minibroker|tests|docs|bench|os|asyncio|re|sys|typing|node|broker|cluster|client|events|process|world|faults)\."
    r"|\.(py|md|log|index|timeindex|txnindex|snapshot|checkpoint|txt|json|jsonl|yml|properties|toml|zip|parquet|kafka|gz|metadata|reserved|deleted|cleaned|swap|html|jar|sh|csv|lock)$"
    r"|^(localhost|127|0|example|org|com|io|key|value|lake)\."
)


def known_settings() -> set[str]:
    return {*broker_settings(), *other_settings(), *topic_settings(), *group_settings()}


CLIENT_SETTINGS = {
    *("acks", "auto.offset.reset", "batch.size", "bootstrap.servers", "client.id", "client.rack", "enable.idempotence"),
    "exactly.once.source.support",  # of Connect
    *("enable.auto.commit", "fetch.max.wait.ms", "fetch.min.bytes", "group.id", "group.instance.id", "group.protocol"),
    *("isolation.level", "linger.ms", "max.in.flight.requests.per.connection", "max.partition.fetch.bytes"),
    *("max.poll.interval.ms", "max.poll.records", "max.request.size", "metadata.max.age.ms", "security.protocol"),
    *("request.timeout.ms", "session.timeout.ms", "heartbeat.interval.ms", "transactional.id", "retries"),
    *("delivery.timeout.ms", "partition.assignment.strategy", "allow.auto.create.topics", "socket.nagle.disable"),
    *(
        "fetch.wait.max.ms",
        "check.crcs",
        "sasl.mechanism",
        "reconnect.backoff.ms",
        "retry.backoff.ms",
        "queue.buffering.max.ms",
    ),
}
CLIENT_SETTINGS |= {"topic.metadata.refresh.fast.interval.ms", "exactly.once.source.support"}
FEATURES = {"metadata.version", "group.version", "share.version", "streams.version", "transaction.version"}
FEATURES |= {"kraft.version", "eligible.leader.replicas.version"}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_setting_is_one(page: Path) -> None:
    named = {match[1] for code in CODE.findall(text_of(page)) if (match := SETTING.match(code.strip()))}
    unknown = {name for name in named if not OTHERS.search(name)} - known_settings() - CLIENT_SETTINGS - FEATURES
    assert not {name for name in unknown if name not in source()}


API_VERSION = re.compile(rf"\b({'|'.join(sorted(APIS.values(), key=len, reverse=True))}) v(\d+)\b")
NUMBERS = {name: number for number, name in APIS.items()}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_version_of_an_api_is_one(page: Path) -> None:
    for name, version in API_VERSION.findall(text_of(page)):
        schema = request_class(NUMBERS[name]).schema
        assert schema.first_version <= int(version) <= schema.last_version, f"{name} v{version}"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_command_is_one(page: Path) -> None:
    commands = [code.split() for code in CODE.findall(text_of(page)) if code.startswith("minibroker ")]
    words = {words[1] for words in commands if len(words) > 1 and words[1][0].isalpha()}
    assert words <= {*COMMANDS, "help", "version"}


PATH = re.compile(r"^((?:minibroker|tests|docs|bench)/[A-Za-z0-9_./-]+)$")
MADE_BY_RUNS = ("tests/golden/sessions",)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_file_is_there(page: Path) -> None:
    named = {match[1] for code in CODE.findall(text_of(page)) if (match := PATH.match(code))}
    assert not {name for name in named if not (ROOT / name).exists() and not name.startswith(MADE_BY_RUNS)}


VARIABLE = re.compile(r"\b((?:MINIBROKER|KAFKA)_[A-Z_]+[A-Z])\b")


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_variable_is_read_by_something(page: Path) -> None:
    from minibroker.config.sources import name_of_variable

    files = [*(ROOT / "tests").rglob("*.py"), ROOT / "Makefile", *ROOT.glob("*.yml")]
    everything = source() + "\n".join(path.read_text(encoding="utf-8") for path in files)
    for variable in set(VARIABLE.findall(text_of(page))):
        setting = name_of_variable(variable)
        assert (setting in known_settings()) or variable in everything, variable


# The map of whoever comes

PICTURE_WIDTH = 38  # to the right of it is what a row is


def architecture() -> str:
    return text_of(ROOT / "docs" / "architecture.md")


def rows_of_the_picture() -> dict[str, int]:
    """Return the parts in the picture, and in which row each is."""
    picture = architecture().split("```\n")[1]
    names = [re.findall(r"\w+", line[:PICTURE_WIDTH].replace("(asyncio)", "")) for line in picture.splitlines()]
    return {name: row for row, found in enumerate(names) for name in found}


def test_every_part_is_in_the_picture_or_beside_it_and_in_the_map() -> None:
    beside = " ".join(architecture().split()).split("beside the picture:")[1].split(".")[0]
    shown = {*rows_of_the_picture(), *re.findall(r"`(\w+)`", beside)}
    assert shown == set(MAY_IMPORT) - {"__init__", "__main__"}
    table = architecture().split("## Map of the files")[1]
    parts = {
        part.name
        for part in (ROOT / "minibroker").iterdir()
        if part.suffix == ".py" or part.joinpath("__init__.py").exists()
    }
    assert not {part for part in parts - {"__main__.py"} if f"`minibroker/{part}" not in table}


def test_what_a_part_imports_stands_below_it_in_the_picture() -> None:
    row = rows_of_the_picture()
    arrows = [(part, other) for part, below in MAY_IMPORT.items() for other in below if {part, other} <= row.keys()]
    assert len(arrows) > 100
    assert not [arrow for arrow in arrows if row[arrow[0]] >= row[arrow[1]]]


def test_the_doors_name_their_keepers() -> None:
    table = architecture().split("Four doors")[1].split("Whoever owns")[0]
    assert not [keeper for door in DOORS.values() for keeper in door.keepers if f"`{keeper}`" not in table]

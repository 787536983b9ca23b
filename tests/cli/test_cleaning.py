"""`minibroker retention`, `compact` and `roll` against a broker."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from minibroker import Broker
from tests.cli.running import MINIBROKER, Shell


@pytest.fixture
def users(shell: Shell, topic: str) -> str:
    """A compacted topic with 30 records of three keys."""
    shell.good("configs", "-t", topic, "cleanup.policy=compact", "retention.ms=60000")
    lines = "".join(f"k{number % 3}:v{number}\n" for number in range(30))
    shell.good("produce", "-t", topic, "-K", ":", stdin=lines.encode())
    return topic


def test_a_topic_is_rolled_and_compacted(shell: Shell, users: str) -> None:
    said = shell.good("compact", "-t", users)
    assert said.lines == [f"{users}-0: nothing is compacted: everything is in the active segment: roll first"]
    assert shell.good("roll", "-t", users).lines == [f"{users}-0: a new segment begins at offset 30"]
    assert shell.good("roll", "-t", users).lines == [f"{users}-0: no new segment: the active segment is empty"]
    (line,) = shell.good("compact", "--topic", users, "--partition", "0").lines
    assert line.startswith(f"{users}-0: compacted up to offset 30: records 30 -> 3, bytes ")
    assert line.endswith(", segments 1 -> 1")
    assert shell.good("consume", "-t", users, "-e", "-q").lines == ["v27", "v28", "v29"]


def test_retention_says_what_went_and_what_it_keeps(shell: Shell, users: str) -> None:
    (line,) = shell.good("retention", "-t", users).lines
    assert (
        line
        == f"{users}-0: nothing is removed: cleanup.policy is compact: only what is below the log start offset goes"
    )
    shell.good("configs", "-t", users, "cleanup.policy=delete")
    (line,) = shell.good("retention", "-t", users).lines
    assert line == f"{users}-0: nothing is removed: every segment is within retention.ms=60000"
    shell.good("configs", "-t", users, "retention.bytes=0")
    (line,) = shell.good("retention", "-t", users).lines
    assert line.startswith(f"{users}-0: removed 1 segment (")
    assert line.endswith(" bytes), more than retention.bytes; it begins at offset 30 now")


def test_without_a_topic_all_are_meant_and_what_is_internal_is_quiet(shell: Shell, users: str) -> None:
    lines = shell.good("retention").lines
    assert len([line for line in lines if line.startswith("orders-")]) == 3
    assert any(line.startswith(f"{users}-0: nothing is removed") for line in lines)
    assert not any(line.startswith("__") for line in lines)


def test_json_has_every_field(shell: Shell, users: str) -> None:
    assert json.loads(shell.good("roll", "-t", users, "-J").text) == [
        {"broker": 1, "topic": users, "partition": 0, "is_rolled": True, "base_offset": 30, "reason": ""}
    ]


def test_what_cannot_be_is_refused_with_a_reason(shell: Shell) -> None:
    ran = shell("compact", "-t", "nobody")
    assert (ran.status, ran.errors) == (1, "minibroker compact: there is no topic 'nobody'\n")
    ran = shell("roll", "-t", "orders", "-p", "9")
    assert (ran.status, ran.errors) == (1, "minibroker roll: 'orders' has no partition 9\n")
    ran = shell("roll", "-p", "1")
    assert (ran.status, ran.errors) == (2, "minibroker roll: --partition 1 of which topic? Say --topic too\n")
    ran = shell("retention", "-b", "127.0.0.1:1")
    assert ran.status == 1
    assert "nobody answers at" in ran.errors


def test_a_copy_of_a_directory_is_compacted_as_the_page_says(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs/cleaning.md").read_text()
    (block,) = re.findall(r"^```\n(cp -r .*?)^```$", page, re.MULTILINE | re.DOTALL)
    copied, serve, *commands = (line.split() for line in block.splitlines())
    with Broker(data_dir=tmp_path / copied[2], topics=["prices:1:compact"]) as broker:
        lines = b"".join(b"k%d:v%d\n" % (number % 3, number) for number in range(30))
        Shell(broker.bootstrap_servers).good("produce", "-t", "prices", "-K", ":", stdin=lines)
    shutil.copytree(tmp_path / copied[2], tmp_path / copied[3])
    words = [*MINIBROKER, *serve[1:-1], "--port", "0", "--quiet"]
    with subprocess.Popen(words, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        shell = Shell(process.stdout.readline().strip())
        try:
            *_, (line,) = (shell.good(*command[1:]).lines for command in commands)
        finally:
            process.terminate()
    assert "records 30 -> 3" in line
    with Broker(data_dir=tmp_path / copied[3]) as broker:
        assert [record.offset for record in broker.records("prices")] == [27, 28, 29]

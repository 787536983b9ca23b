"""`consume --group`: partitions shared, offsets committed as far as records were written, a group that goes on."""

from __future__ import annotations

import asyncio
import signal
import subprocess

import pytest

from minibroker.client import Cluster
from minibroker.client.groups import Groups
from tests.cli.running import MINIBROKER, Shell

DEADLINE_S = 60  # only bounds a hang


def committed(shell: Shell, group: str) -> dict[tuple[str, int], int]:
    async def ask() -> dict[tuple[str, int], int]:
        async with Cluster(shell.address) as cluster:
            found = await Groups(cluster).fetch_offsets([group])
        return {key: value.offset for key, value in found[group].items()}

    return asyncio.run(ask())


def test_a_group_goes_on_behind_what_was_written(shell: Shell, topic: str) -> None:
    shell.good("produce", "-t", topic, stdin=b"1\n2\n3\n4\n5\n")
    assert shell.good("consume", topic, "--group", topic, "-n", "2", "-q").lines == ["1", "2"]
    assert committed(shell, topic) == {(topic, 0): 2}
    assert shell.good("consume", topic, "-G", topic, "-e", "-q").lines == ["3", "4", "5"]
    assert committed(shell, topic) == {(topic, 0): 5}
    ran = shell.good("consume", "-t", topic, "--from-beginning", "--group", topic, "-e")
    assert ran.lines == []
    assert f"assigned: {topic} [0]" in ran.errors


def test_who_is_done_has_left(shell: Shell, topic: str) -> None:
    shell.good("consume", topic, "--group", topic, "-e", "-q")
    assert shell.good("groups", "--describe", "--group", topic, "--state", "--json").text.count("Empty") == 1


def test_the_end_is_where_a_group_begins_if_that_is_said(shell: Shell, topic: str) -> None:
    shell.good("produce", "-t", topic, stdin=b"1\n2\n")
    assert shell.good("consume", topic, "--group", topic, "-o", "end", "-e", "-q").lines == []
    shell.good("produce", "-t", topic, stdin=b"3\n")
    assert shell.good("consume", topic, "--group", topic, "-o", "stored", "-e", "-q").lines == ["3"]


def test_nothing_committed_may_be_an_error(shell: Shell, topic: str) -> None:
    ran = shell("consume", topic, "--group", topic, "-X", "auto.offset.reset=error", "-e")
    assert ran.status == 1
    assert f"{topic} has committed nothing for {topic}-0" in ran.errors


@pytest.mark.parametrize("words", [["-p", "0"], ["-o", "3"], ["-o", "-1"], ["-o", "s@2024-01-01"], ["-o", "e@1"]])
def test_places_are_nothing_to_tell_a_group(shell: Shell, topic: str, words: list[str]) -> None:
    ran = shell("consume", topic, "--group", "g", *words)
    assert ran.status == 2
    assert "minibroker groups --reset-offsets" in ran.errors


@pytest.mark.slow
def test_two_share_and_one_takes_over_after_ctrl_c(shell: Shell) -> None:
    for number in range(30):
        shell.good("produce", "-t", "orders", "-p", str(number % 3), stdin=b"%d\n" % number)
    command = [*MINIBROKER, "consume", "-b", shell.address, "orders", "--group", "both"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as first:
        assert first.stdout
        assert first.stderr
        seen = [first.stdout.readline() for _ in range(30)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as second:
            assert second.stderr
            assert wait_for_line(second, "assigned: orders").count("[") in (1, 2)  # ids decide who gets one more
            second.send_signal(signal.SIGINT)
            left, _ = second.communicate(timeout=DEADLINE_S)
            assert (second.returncode, left) == (0, "")  # what the first had written was committed before
        wait_for_line(first, "assigned: orders [0], orders [1], orders [2]")
        first.send_signal(signal.SIGINT)
        first.communicate(timeout=DEADLINE_S)
    assert first.returncode == 0
    assert sorted(map(int, seen)) == list(range(30))
    assert committed(shell, "both") == {("orders", number): 10 for number in range(3)}
    assert shell.good("consume", "orders", "--group", "both", "-e", "-q").lines == []


def wait_for_line(process: subprocess.Popen[str], text: str) -> str:
    assert process.stderr
    for line in process.stderr:
        if text in line:
            return line
    raise AssertionError(f"it ended without {text!r}")

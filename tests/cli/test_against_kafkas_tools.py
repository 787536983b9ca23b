"""Kafka's own tools and ours ask the same broker, and print the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.running import Shell
from tests.interop.kafka import DUMPS, Release, run

pytestmark = [pytest.mark.interop, pytest.mark.slow]

CORE, TOOLS = DUMPS


def kafkas(release: Release, tool: str, shell: Shell, words: str, directory: Path) -> list[str]:
    done = run(release, tool, "--bootstrap-server", shell.address, *words.split(), cwd=directory)
    return [line for line in done.stdout.splitlines() if not line.startswith(("SLF4J", "Option --property"))]


@pytest.mark.parametrize(
    ("release", "tool", "command", "words"),
    [
        (TOOLS, "org.apache.kafka.tools.TopicCommand", "topics", "--describe --topic orders"),
        (TOOLS, "org.apache.kafka.tools.TopicCommand", "topics", "--list"),
        (
            TOOLS,
            "org.apache.kafka.tools.TopicCommand",
            "topics",
            "--describe --topics-with-overrides --exclude-internal",
        ),
        (TOOLS, "org.apache.kafka.tools.GetOffsetShell", "offsets", "--topic orders"),
        (TOOLS, "org.apache.kafka.tools.GetOffsetShell", "offsets", "--topic-partitions orders:1-3 --time -3"),
        (TOOLS, "org.apache.kafka.tools.TransactionsCommand", "transactions", "list"),
        (
            TOOLS,
            "org.apache.kafka.tools.TransactionsCommand",
            "transactions",
            "describe-producers --topic orders --partition 2",
        ),
        (
            TOOLS,
            "org.apache.kafka.tools.TransactionsCommand",
            "transactions",
            "find-hanging --topic orders --max-transaction-timeout 0",
        ),
        (CORE, "kafka.admin.ConfigCommand", "configs", "--describe --entity-type topics --entity-name orders"),
        (CORE, "kafka.admin.ConfigCommand", "configs", "--describe --entity-type brokers --entity-name 1 --all"),
        (CORE, "kafka.admin.ConfigCommand", "configs", "--describe --entity-type brokers --entity-default"),
        (
            TOOLS,
            "org.apache.kafka.tools.consumer.ConsoleConsumer",
            "consume",
            "--topic orders --partition 2 --offset earliest --max-messages 2 --timeout-ms 120000 "
            "--property print.key=true --property print.timestamp=true "
            "--property print.headers=true --property print.offset=true",
        ),
    ],
)
def test_the_same_is_printed(
    shell: Shell, tmp_path: Path, release: Release, tool: str, command: str, words: str
) -> None:
    if not shell.good("consume", "orders", "-eq").lines:
        shell.good("produce", "-t", "orders", "-K:", "-Z", "-H", "a=1", "-H", "b", stdin=b"k:v\nann:1\nbob:\n:x\n")
        shell.good("produce", "-t", "orders", "-p", "2", "--transactional-id", "a", stdin=b"paid\n")
        shell.good("configs", "-t", "orders", "segment.ms=600000")
    theirs = kafkas(release, tool, shell, words, tmp_path)
    assert theirs
    assert shell.good(command, *words.split()).lines == theirs

"""Foreign clients of many ages do the same script of work against a broker and read back what they wrote.

The broker is ours, started as a user starts it, one per test worker; MINIBROKER_TEST_BOOTSTRAP names another one
(a real Kafka, say), which is left running. A client whose toolchain or package the machine lacks is skipped with a
line that says so; MINIBROKER_TEST_CLIENTS_REQUIRED makes that a failure.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.clients import build
from tests.clients.matrix import CLIENTS, RECORDS_MIN, STEPS, Client, group_table, table, transaction_table

ROOT = Path(__file__).parent.parent.parent
START_SECONDS_MAX = 20
STOP_SECONDS_MAX = 10
SCRIPT_SECONDS_MAX = 90


class Broker(NamedTuple):
    bootstrap: str
    foreign_topic: str
    base_ms: int  # of the timestamps that scripts write: young enough for every retention


@pytest.fixture(scope="session")
def bootstrap() -> Iterator[str]:
    if given := os.environ.get("MINIBROKER_TEST_BOOTSTRAP"):
        yield given
        return
    command = [sys.executable, "-m", "minibroker", "serve", "--port", "0", "--memory"]
    with tempfile.TemporaryFile() as errors:
        broker = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=errors)
        try:
            yield first_line(broker, errors)
        finally:
            broker.send_signal(signal.SIGTERM)
            try:
                broker.communicate(timeout=STOP_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                broker.kill()
                broker.communicate()
                pytest.fail(f"the broker did not stop within {STOP_SECONDS_MAX} s of SIGTERM")
        assert broker.returncode in (0, -signal.SIGTERM), f"the broker ended with {broker.returncode}: {said(errors)}"


def first_line(broker: subprocess.Popen[bytes], errors: tempfile._TemporaryFileWrapper[bytes]) -> str:
    """Return the bootstrap address that a broker prints when it is ready."""
    assert broker.stdout
    with selectors.DefaultSelector() as selector:
        selector.register(broker.stdout, selectors.EVENT_READ)
        line = broker.stdout.readline().decode().strip() if selector.select(START_SECONDS_MAX) else ""
    assert line, f"the broker printed no address within {START_SECONDS_MAX} s: {said(errors)}"
    return line


def said(errors: tempfile._TemporaryFileWrapper[bytes]) -> str:
    errors.seek(0)
    return errors.read().decode(errors="replace")[-3000:]


@pytest.fixture(scope="session")
def broker(bootstrap: str) -> Broker:
    """A broker with a topic that one client wrote for all others to read."""
    base_ms = (int(time.time()) - 3600) * 1000
    found = Broker(bootstrap, f"foreign-{uuid.uuid4().hex[:8]}", base_ms)
    work(CLIENTS[0], ("write_foreign",), found)
    return found


def work(client: Client, steps: tuple[str, ...], broker: Broker) -> list[dict[str, object]]:
    """Run a client's script and return the JSON lines that it printed."""
    try:
        command = build.command_of(client)
    except build.Missing as missing:
        if os.environ.get("MINIBROKER_TEST_CLIENTS_REQUIRED"):
            raise
        pytest.skip(f"{client.id}: {missing}")
    except subprocess.CalledProcessError as error:
        pytest.fail(f"{client.id} does not build:\n{error.output[-3000:]}")
    prefix = f"{client.slug}-{uuid.uuid4().hex[:8]}"
    arguments = broker.bootstrap, prefix, str(broker.base_ms), ",".join(steps), broker.foreign_topic, client.variant
    try:
        done = build.run(command, *arguments, seconds_max=SCRIPT_SECONDS_MAX)
    except subprocess.TimeoutExpired as late:
        until_then = (late.stdout or b"").decode()  # bytes, though text was asked for
        pytest.fail(f"{client.id}: no end within {SCRIPT_SECONDS_MAX} s; until then:\n{until_then}")
    assert not done.returncode, f"{client.id}: {done.stderr[-3000:]}\nuntil then:\n{done.stdout}"
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.interop
@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.slug)
def test_a_client_reads_back_what_it_wrote(client: Client, broker: Broker) -> None:
    start, *done = work(client, client.steps, broker)
    assert str(start["version"]).startswith(client.version)
    assert [step["step"] for step in done] == list(client.steps)
    few = {step["step"]: step["records"] for step in done if step["records"] < RECORDS_MIN.get(step["step"], 0)}
    assert not few, "steps that compared fewer records than they should"


def test_every_step_is_done_by_some_client_in_every_language() -> None:
    for toolchain in ("python", "java", "go"):
        assert {step for client in CLIENTS if client.toolchain == toolchain for step in client.steps} == set(STEPS)


def test_steps_keep_their_order_because_later_ones_read_what_earlier_ones_wrote() -> None:
    for client in CLIENTS:
        assert list(client.steps) == [step for step in STEPS if step in client.steps]


def test_the_page_about_clients_shows_what_the_matrix_says() -> None:
    page = (ROOT / "docs/clients.md").read_text(encoding="utf-8")
    assert table() in page
    assert group_table() in page
    assert transaction_table() in page

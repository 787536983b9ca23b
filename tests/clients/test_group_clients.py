"""Foreign clients of many ages take part in consumer groups of a broker, and Kafka's own tool looks at them.

The broker is ours, one per test worker, with the shortest times for the consumer protocol; MINIBROKER_TEST_BOOTSTRAP
names another one (a real Kafka, say), which should have the same. Skips are those of test_clients.py.

The scripts wait much (a session timeout is six seconds) and compute little, so some run at a time; where several
workers run the tests, each is one of them.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from tests.clients import build
from tests.clients.matrix import CLIENTS, GROUP_CLIENTS, GROUP_STEPS, GROUP_TOOLS, TOOL_STEPS, Client
from tests.clients.test_clients import ROOT, SCRIPT_SECONDS_MAX, STOP_SECONDS_MAX, first_line, said

Lines = list[dict[str, object]]

AT_ONCE_MAX = 4
# The classic protocol's members set their own times; of the consumer protocol the broker does.
SETTINGS = {
    "group.consumer.assignment.interval.ms": "0",  # who arrives is given at once what is free, and nothing else
    "group.consumer.heartbeat.interval.ms": "500",
    "group.consumer.min.heartbeat.interval.ms": "500",
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.min.session.timeout.ms": "6000",
}
# How many records a step compares at least, so that an empty loop is noticed.
RECORDS_MIN = {
    **dict.fromkeys(("range", "roundrobin", "sticky", "cooperative", "uniform"), 60),
    "static": 20,
    "resume": 21,
    "seek": 15,
}


@pytest.fixture(scope="session")
def group_bootstrap() -> Iterator[str]:
    if given := os.environ.get("MINIBROKER_TEST_BOOTSTRAP"):
        yield given
        return
    options = [word for name, value in SETTINGS.items() for word in ("-o", f"{name}={value}")]
    command = [sys.executable, "-m", "minibroker", "serve", "--port", "0", "--memory", *options]
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


@pytest.fixture(scope="session")
def group_topic(group_bootstrap: str) -> str:
    """A topic with records that all scripts read."""
    topic = f"grouped-{uuid.uuid4().hex[:8]}"
    run_script(CLIENTS[0], build.command_of, "group_topic.py", group_bootstrap, topic)
    return topic


@pytest.fixture(scope="session")
def results(
    request: pytest.FixtureRequest, group_bootstrap: str, group_topic: str
) -> Iterator[Callable[[Client], Lines]]:
    """Start the scripts of all tests that were chosen, a few at a time, and return what each printed when asked."""
    chosen = [item.callspec.params["client"] for item in request.session.items if is_of_a_client(item)]
    with ThreadPoolExecutor(AT_ONCE_MAX) as pool:

        def begin(client: Client) -> Future[Lines]:
            return pool.submit(work, client, group_bootstrap, group_topic)

        begun: dict[str, Future[Lines]] = {}
        if "PYTEST_XDIST_WORKER" not in os.environ:  # a worker does not know which of them will be its own
            begun = {client.id: begin(client) for client in chosen}
        yield lambda client: (begun.get(client.id) or begin(client)).result()
        pool.shutdown(cancel_futures=True)


def is_of_a_client(item: pytest.Item) -> bool:
    return item.path.name == "test_group_clients.py" and "client" in getattr(item, "fixturenames", ())


def work(client: Client, bootstrap: str, topic: str) -> Lines:
    script = "group_tool.py" if client in GROUP_TOOLS else "group_script.py"
    prefix = f"{client.slug}-{uuid.uuid4().hex[:8]}"
    steps = ",".join(client.steps)
    printed = run_script(client, build.members_of, script, bootstrap, prefix, topic, steps, client.variant)
    return [json.loads(line) for line in printed.splitlines()]


def run_script(client: Client, program_of: Callable[[Client], build.Command], script: str, *arguments: str) -> str:
    """Run a script of python/ with the client's own program behind the arguments; return what it printed."""
    try:
        program = program_of(client)
    except build.Missing as missing:
        if os.environ.get("MINIBROKER_TEST_CLIENTS_REQUIRED"):
            raise
        pytest.skip(f"{client.id}: {missing}")
    except subprocess.CalledProcessError as error:
        pytest.fail(f"{client.id} does not build:\n{error.output[-3000:]}")
    command = program._replace(arguments=[sys.executable, str(build.HERE / "python" / script)])
    more = program.arguments if program_of is build.members_of else []
    try:
        done = build.run(command, *arguments, *more, seconds_max=SCRIPT_SECONDS_MAX)
    except subprocess.TimeoutExpired as late:
        until_then = (late.stdout or b"").decode()  # bytes, though text was asked for
        pytest.fail(f"{client.id}: no end within {SCRIPT_SECONDS_MAX} s; until then:\n{until_then}")
    assert not done.returncode, f"{client.id}: {done.stderr[-3000:]}\nuntil then:\n{done.stdout}"
    return done.stdout


@pytest.mark.interop
@pytest.mark.parametrize("client", GROUP_CLIENTS, ids=lambda client: client.slug)
def test_members_share_partitions_and_resume(client: Client, results: Callable[[Client], Lines]) -> None:
    start, *done = results(client)
    assert str(start["version"]).startswith(client.version)
    assert [step["step"] for step in done] == list(client.steps)
    few = {step["step"]: step["records"] for step in done if step["records"] < RECORDS_MIN.get(str(step["step"]), 0)}
    assert not few, "steps that compared fewer records than they should"


@pytest.mark.interop
@pytest.mark.parametrize("client", GROUP_TOOLS, ids=lambda client: client.slug)
def test_the_tool_of_kafka_shows_and_changes_groups(client: Client, results: Callable[[Client], Lines]) -> None:
    start, *done = results(client)
    assert start["version"] == client.version
    assert [step["step"] for step in done] == list(TOOL_STEPS)


def test_every_step_about_groups_is_done_by_clients_in_two_languages() -> None:
    for step in GROUP_STEPS:
        assert len({client.toolchain for client in GROUP_CLIENTS if step in client.steps}) >= 2, step


def test_steps_about_groups_are_named_in_their_order() -> None:
    for client in GROUP_CLIENTS:
        assert list(client.steps) == [step for step in GROUP_STEPS if step in client.steps]

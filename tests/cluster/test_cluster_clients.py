"""Clients of others go on while leaders are killed, paused and cut off in turns, a hundred times each.

The Java client and franz-go are processes of their own (clients/); without Java, Maven or Go they are skipped.
"""

from __future__ import annotations

import gc
import importlib
import os
import shutil
import socket
import subprocess
from pathlib import Path

import pytest

from tests.clients import build
from tests.clients.matrix import CLIENTS
from tests.cluster import python_clients
from tests.cluster.turmoil import DISTURBANCES, TOPIC, Process, turmoil

pytestmark = [
    pytest.mark.interop,
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    # kafka-python's sockets, as below, which were forgotten meanwhile.
    pytest.mark.filterwarnings("ignore:Exception ignored in. <socket:pytest.PytestUnraisableExceptionWarning"),
]

TIMES = 100
SOURCES = Path(__file__).parent / "clients"


def java_command(version: str) -> list[str]:
    """Return how the Java client is run: its jars are those of tests/clients."""
    client = next(each for each in CLIENTS if each.name == "java" and each.version == version)
    class_path = build.command_of(client).arguments[-2]
    classes, source = build.BUILT / f"turmoil-{version}", SOURCES / "Turmoil.java"
    with build.unless_made(classes, source.read_text(encoding="utf-8")) as making:
        if making:
            build.build(["javac", "-nowarn", "-cp", class_path, "-d", str(classes), str(source)])
    return [*build.JAVA, "-cp", f"{classes}{os.pathsep}{class_path}", "Turmoil"]


def go_command() -> list[str]:
    """Return how franz-go is run: the module is that of tests/clients."""
    build.needed("go")
    folder, module = build.BUILT / "turmoil-go", build.HERE / "go"
    sources = [module / "go.mod", module / "go.sum", SOURCES / "go/turmoil.go"]
    with build.unless_made(folder, *(path.read_text(encoding="utf-8") for path in sources)) as making:
        if making:
            for path in sources:
                shutil.copy(path, folder)
            build.fetch(["go", "mod", "download"], folder)
            build.build(["go", "build", "-o", "turmoil", "."], folder)
    return [str(folder / "turmoil")]


@pytest.mark.parametrize("name", ["java 4.4.0", "franz-go"])
def test_a_client_in_another_language_loses_and_doubles_nothing(name: str) -> None:
    try:
        command = go_command() if name == "franz-go" else java_command(name.removeprefix("java "))
    except build.Missing as missing:
        if os.environ.get("MINIBROKER_TEST_CLIENTS_REQUIRED"):
            raise
        pytest.skip(f"{name}: {missing}")
    except subprocess.CalledProcessError as error:
        pytest.fail(f"{name} does not build:\n{error.output[-3000:]}")

    def new_client(bootstrap: str) -> Process:
        return Process([*command, bootstrap, TOPIC])

    assert turmoil(new_client, TIMES).total() == TIMES


def close_refused() -> None:
    """Close sockets that never were connected: kafka-python leaves one behind for each connection that is refused."""
    for each in gc.get_objects():
        is_open = isinstance(each, socket.socket) and each.fileno() >= 0 and each.family is socket.AF_INET
        if is_open and each.getsockname()[0] == "0.0.0.0":
            each.close()


@pytest.mark.parametrize(
    ("module", "client"),
    [("kafka", "KafkaPython"), ("aiokafka", "Aiokafka"), ("confluent_kafka", "Confluent")],
    ids=["kafka-python", "aiokafka", "confluent-kafka"],
)
def test_a_client_loses_and_doubles_nothing_whatever_becomes_of_the_brokers(module: str, client: str) -> None:
    pytest.importorskip(module)
    importlib.import_module(module)
    struck = turmoil(getattr(python_clients, client), TIMES)
    close_refused()
    gc.collect()  # what a client has left behind is told of here, and not in some other test
    assert struck.total() == TIMES
    assert struck.keys() == {each.__name__ for each in DISTURBANCES}

"""Dockerfile and docker-compose.yml say what works: they are read, and their commands run, outside a container.

Only what a container has for itself is replaced: its ports by free ones, /data by a directory, names by addresses.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from minibroker.client import Cluster

ROOT = Path(__file__).parent.parent
HOST_PORT, CONTAINER_PORT = "9092", "29092"
SECONDS = 30


class Image(NamedTuple):
    """What the last stage of a Dockerfile says about running."""

    environment: dict[str, str]
    command: list[str]
    health: list[str]
    instructions: list[tuple[str, str]]


def read_image() -> Image:
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    lines = re.sub(r"\\\n\s*", "", re.sub(r"^#.*\n", "", text, flags=re.MULTILINE)).splitlines()
    instructions = [(name, rest) for name, _, rest in (line.partition(" ") for line in lines if line)]
    last_stage = max(number for number, (name, _) in enumerate(instructions) if name == "FROM")
    found = dict(instructions[last_stage:])
    environment = dict(rest.split("=", 1) for name, rest in instructions[last_stage:] if name == "ENV")
    health = json.loads(found["HEALTHCHECK"].partition("CMD ")[2])
    return Image(environment, json.loads(found["ENTRYPOINT"]) + json.loads(found["CMD"]), health, instructions)


def read_service() -> dict[str, object]:
    yaml = pytest.importorskip("yaml")
    document = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))
    assert {each.split(":")[0] for each in document["services"]["kafka"]["volumes"]} == set(document["volumes"])
    service: dict[str, object] = document["services"]["kafka"]
    return service


def free_ports(count: int) -> list[str]:
    holders = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [str(holder.getsockname()[1]) for holder in holders]
    for holder in holders:
        holder.close()
    return ports


class Running(NamedTuple):
    """A broker as the container would have it."""

    process: subprocess.Popen[str]
    environment: dict[str, str]
    address: str
    host_port: str
    container_port: str

    def check(self, command: list[str]) -> int:
        """Run a health check beside it; return its exit status."""
        environment = {**self.environment, "MINIBROKER_BOOTSTRAP": f"127.0.0.1:{self.host_port}"}
        return subprocess.run(outside(command), env=environment, timeout=SECONDS, check=False).returncode


def outside(command: list[str]) -> list[str]:
    assert command[0] == "minibroker"
    return [sys.executable, "-m", "minibroker", *command[1:]]


@contextmanager
def running(environment: dict[str, str], data: Path) -> Iterator[Running]:
    """Run the image's command with these variables of the container."""
    host_port, container_port = free_ports(2)

    def replaced(text: str) -> str:
        text = re.sub(rf":{CONTAINER_PORT}\b", f":{container_port}", text)
        return re.sub(rf":{HOST_PORT}\b", f":{host_port}", text).replace("/data", str(data))

    inherited = {name: value for name, value in os.environ.items() if not name.startswith("KAFKA_")}
    variables = {**inherited, **{name: replaced(value) for name, value in environment.items()}}
    process = subprocess.Popen(
        outside(read_image().command), env=variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout
    assert process.stderr
    with process, process.stdout, process.stderr:
        try:
            yield Running(process, variables, process.stdout.readline().strip(), host_port, container_port)
        finally:
            process.terminate()


def stop(broker: Running) -> tuple[int, str]:
    """Stop it as docker does; return exit status and what it complained about."""
    broker.process.send_signal(signal.SIGTERM)
    _, complaints = broker.process.communicate(timeout=SECONDS)
    return broker.process.returncode, complaints


async def told(address: str) -> tuple[str, int]:
    async with Cluster(address) as cluster:
        await cluster.metadata([])
        (node,) = cluster.nodes.values()
        return node.host, node.port


@pytest.mark.slow
async def test_the_image_serves_is_healthy_and_stops_clean(tmp_path: Path) -> None:
    image = read_image()
    with running(image.environment, tmp_path) as broker:
        assert broker.address == f"localhost:{broker.host_port}"
        assert await told(f"127.0.0.1:{broker.host_port}") == ("127.0.0.1", int(broker.host_port))
        assert broker.check(image.health) == 0
        status, complaints = stop(broker)
        assert status == 0
        assert "accepted" not in complaints
        assert "unknown" not in complaints
        assert broker.check(image.health) != 0
    assert (tmp_path / ".kafka_cleanshutdown").exists()


@pytest.mark.slow
async def test_the_compose_file_has_a_listener_for_the_host_and_one_for_containers(tmp_path: Path) -> None:
    service = read_service()
    environment, health = service["environment"], service["healthcheck"]
    assert isinstance(environment, dict)
    assert isinstance(health, dict)
    with running({**read_image().environment, **environment}, tmp_path) as broker:
        assert broker.address == f"localhost:{broker.host_port}"
        assert await told(f"127.0.0.1:{broker.host_port}") == ("localhost", int(broker.host_port))
        assert await told(f"127.0.0.1:{broker.container_port}") == ("kafka", int(broker.container_port))
        async with Cluster(f"127.0.0.1:{broker.host_port}") as cluster:
            topics = await cluster.metadata()
        assert {name: len(topic.partitions) for name, topic in topics.items()} == {"customers": 1, "orders": 3}
        kind, *command = health["test"]
        assert kind == "CMD"
        assert broker.check(command) == 0
        status, complaints = stop(broker)
        assert status == 0
        assert "unknown" not in complaints


def test_the_compose_file_publishes_the_hosts_listener_and_keeps_the_data() -> None:
    service = read_service()
    assert service["ports"] == [f"127.0.0.1:{HOST_PORT}:{HOST_PORT}"]
    assert service["volumes"] == ["data:/data"]
    assert service["build"] == "."


def test_the_image_runs_as_nobody_special_and_declares_its_volume() -> None:
    found = dict(read_image().instructions)
    assert found["USER"] not in ("root", "0")
    assert (found["VOLUME"], found["EXPOSE"]) == ("/data", HOST_PORT)
    assert read_image().environment["KAFKA_LOG_DIRS"] == "/data"


def test_all_that_the_image_copies_is_there_and_not_ignored() -> None:
    copied = [
        word
        for name, rest in read_image().instructions
        if name == "COPY"
        for word in rest.split()[:-1]
        if not word.startswith("--")
    ]
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    assert copied
    assert [name for name in copied if not (ROOT / name).exists() or f"!{name}" not in ignored] == []

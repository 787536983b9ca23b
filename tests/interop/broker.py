"""A real broker of Kafka on a directory of ours: broker and controller in one process, on loopback."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import socket
import subprocess
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Timer

import pytest

from tests.interop.kafka import HERE, KEPT

VERSION = "4.4.0"  # the newest in Maven Central
TIERED_VERSION = "4.3.1"  # the newest whose tests are in Maven Central
JAVA = ("java", "-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
LOGGING = """\
rootLogger.level=INFO
rootLogger.appenderRef.o.ref=o
appender.o.type=Console
appender.o.name=o
appender.o.layout.type=PatternLayout
appender.o.layout.pattern=%d %p %m (%c)%n
"""
READY = "Kafka Server started"
SECONDS_MAX = 60  # of a broker's life: one that hangs must not hang the tests


class Broker:
    """A running one."""

    def __init__(self, process: subprocess.Popen[str], port: int, said: deque[str]):
        self.process = process
        self.address = f"127.0.0.1:{port}"
        self.said = said  # the end of what it logged

    def wait_until_ready(self) -> None:
        """Return when it says that it has started."""
        assert self.process.stdout
        for line in self.process.stdout:
            self.said.append(line)
            if READY in line:
                return
        pytest.fail(f"Kafka did not start:\n{self.text[-4000:]}")

    def stop(self) -> None:
        """Stop in order, as SIGTERM asks for."""
        self.process.send_signal(signal.SIGTERM)
        self._read_to_end()
        assert self.process.wait() == 143, self.text

    def kill(self) -> None:
        self.process.kill()
        self._read_to_end()
        self.process.wait()

    def _read_to_end(self) -> None:
        assert self.process.stdout
        self.said.extend(self.process.stdout)

    @property
    def text(self) -> str:
        return "".join(self.said)


@contextmanager
def running(
    directory: Path,
    work: Path,
    *,
    node_id: int = 1,
    settings: str = "",
    jars: str = "",
    seconds_max: float = SECONDS_MAX,
) -> Iterator[Broker]:
    """Start a broker on a log directory, with these settings too; whoever did not stop it by the end has it killed.

    jars: those of another release.
    """
    port, controller_port = free_ports(2)
    properties = f"""\
process.roles=broker,controller
node.id={node_id}
controller.quorum.voters={node_id}@127.0.0.1:{controller_port}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}
controller.listener.names=CONTROLLER
log.dirs={directory}
offsets.topic.num.partitions=1
offsets.topic.replication.factor=1
group.initial.rebalance.delay.ms=0
broker.session.timeout.ms=1000
broker.heartbeat.interval.ms=200
{settings}"""
    with launched(properties, work, port, jars, seconds_max) as broker:
        broker.wait_until_ready()
        yield broker


@contextmanager
def launched(
    properties: str, work: Path, port: int, jars: str = "", seconds_max: float = SECONDS_MAX
) -> Iterator[Broker]:
    """Begin to start a process of Kafka with these settings; whoever did not stop it by the end has it killed."""
    jars = jars or class_path()
    work.mkdir(exist_ok=True)
    (work / "log4j2.properties").write_text(LOGGING)
    (work / "server.properties").write_text(properties)
    process = subprocess.Popen(
        [
            *JAVA,
            f"-Dlog4j2.configurationFile={work / 'log4j2.properties'}",
            *("-cp", jars, "kafka.Kafka", str(work / "server.properties")),
        ],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    broker = Broker(process, port, deque(maxlen=400))
    watchdog = Timer(seconds_max, process.kill)
    watchdog.start()
    try:
        yield broker
    finally:
        watchdog.cancel()
        if process.poll() is None:
            broker.kill()
        if process.stdout:
            process.stdout.close()


def class_path(*, is_tiered: bool = False) -> str:
    """Return the jars of a broker; skip the test where there is no Java, or no Maven to fetch them."""
    version, profile = (TIERED_VERSION, ("-Ptiered",)) if is_tiered else (VERSION, ())
    missing = [tool for tool in ("java", "mvn") if shutil.which(tool) is None]
    if missing:
        pytest.skip(f"needs {' and '.join(missing)}: a real Kafka starts on our directory")
    KEPT.mkdir(parents=True, exist_ok=True)
    kept = KEPT / f"{'tiered' if is_tiered else 'broker'}-{version}.classpath"
    with open(KEPT / "broker.lock", "w") as lock:  # several pytest workers
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (kept.exists() and all(map(os.path.exists, kept.read_text().split(os.pathsep)))):
            _ask_maven(kept, version, profile)
    return kept.read_text()


def _ask_maven(kept: Path, version: str, profile: tuple[str, ...]) -> None:
    goal = ("mvn", "--batch-mode", "--quiet", "--file", str(HERE / "broker.xml"), "dependency:build-classpath")
    settings = (f"-Dkafka.version={version}", f"-Dmdep.outputFile={kept}")
    asked = subprocess.run([*goal, *profile, *settings], capture_output=True, text=True)
    if asked.returncode:
        reason = next((line for line in asked.stdout.splitlines() if "ERROR" in line), asked.stderr)
        text = f"Maven cannot get kafka_2.13 {version}: {reason[:200]}"
        # Where nobody watches, a test that is skipped for ever would look like one that passes.
        pytest.fail(text) if os.environ.get("MINIBROKER_TEST_CLIENTS_REQUIRED") else pytest.skip(text)


def free_ports(count: int) -> list[int]:
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in held]
    for each in held:
        each.close()
    return ports

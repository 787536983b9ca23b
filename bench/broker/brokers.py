"""The brokers that are compared: how each is started, when it answers, what it uses, how it stops.

Each runs on loopback with a directory of its own and the settings it has when somebody just starts it, as one process
unless it is a cluster (bench/cluster) that takes several; Kafka with those of its config/server.properties and the JVM
options of its start script. What must be fetched or built is made once: Kafka's jars by Maven into the user's cache,
kfake by Go into build/bench.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from bench.broker.raw import Raw, Topics, fetch_frame, produce_frame
from minibroker.log.build import build_batch
from minibroker.log.records import Record
from tests.differential.kafka import fetch_jars

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
BUILT = ROOT / "build/bench"
KAFKA_VERSION = "4.4.0"
JAVA = (
    *("java", "-Xmx1G", "-Xms1G", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-XX:MaxInlineLevel=15"),
    *("-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent", "-Djava.awt.headless=true"),
)
KAFKA_SETTINGS = {
    "process.roles": "broker,controller",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
    "num.network.threads": "3",
    "num.io.threads": "8",
    "socket.send.buffer.bytes": "102400",
    "socket.receive.buffer.bytes": "102400",
    "num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
}
CLUSTER_ID = "AAECAwQFBgcICQoLDA0ODw"
LOGGING = "rootLogger.level=INFO\nrootLogger.appenderRef.o.ref=o\nappender.o.type=Console\nappender.o.name=o\n" \
          "appender.o.layout.type=PatternLayout\nappender.o.layout.pattern=[%d] %p %m (%c)%n\n"  # fmt: skip
MINIBROKER = (sys.executable, "-m", "minibroker", "serve", "--quiet")
# The same out of the compiled wheel; -P, or the checkout in which this runs would come first.
COMPILED = ("env", f"PYTHONPATH={BUILT / 'compiled'}", sys.executable, "-P")
# Where the environment forbids to write .pyc files, each start would compile again.
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
FIRST_TOPIC = "first"
START_SECONDS_MAX = 60.0
STOP_SECONDS_MAX = 30.0
POLL_SECONDS = 0.001


class Order(NamedTuple):
    """What a broker is started with."""

    ports: Sequence[int]  # one for each process
    directory: Path
    topics: Mapping[str, int]  # name -> partitions, for those who cannot be asked for one


def minibroker_disk(order: Order) -> list[list[str]]:
    return [[*MINIBROKER, "--port", str(order.ports[0]), "--data-dir", f"{order.directory}/data"]]


def minibroker_memory(order: Order) -> list[list[str]]:
    return [[*MINIBROKER, "--port", str(order.ports[0]), "--memory"]]


def compiled_disk(order: Order) -> list[list[str]]:
    return [[*COMPILED, *command[1:]] for command in minibroker_disk(order)]


def compiled_memory(order: Order) -> list[list[str]]:
    return [[*COMPILED, *command[1:]] for command in minibroker_memory(order)]


def compile_minibroker() -> None:
    """Build the compiled wheel, and unpack it; quick where nothing has changed."""
    wheels = BUILT / "wheels"
    shutil.rmtree(wheels, ignore_errors=True)
    pip = (sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "--no-deps")
    command = [*pip, "--wheel-dir", str(wheels), str(ROOT)]
    subprocess.run(command, check=True, env=ENVIRONMENT | {"MINIBROKER_COMPILED": "1"})
    (wheel,) = wheels.glob("*.whl")
    shutil.rmtree(BUILT / "compiled", ignore_errors=True)
    shutil.unpack_archive(wheel, BUILT / "compiled", "zip")


def kafka(order: Order, more: Mapping[str, str] = MappingProxyType({})) -> list[list[str]]:
    """Write the settings, these too, and format the directories, which is not part of a start."""
    controllers = [f"127.0.0.1:{free_port()}" for _ in order.ports]
    voters = ",".join(f"{node}@{address}" for node, address in enumerate(controllers, 1))
    return [
        kafka_node(
            order.directory / str(node), node, f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://{address}", voters, more
        )
        for node, (port, address) in enumerate(zip(order.ports, controllers), 1)
    ]


def kafka_node(directory: Path, node: int, listeners: str, voters: str, more: Mapping[str, str]) -> list[str]:
    directory.mkdir(parents=True, exist_ok=True)
    settings = {
        **KAFKA_SETTINGS,
        **more,
        "node.id": str(node),
        "controller.quorum.voters": voters,
        "listeners": listeners,
        "log.dirs": str(directory / "data"),
    }
    properties, logging = directory / "server.properties", directory / "log4j2.properties"
    properties.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    logging.write_text(LOGGING)
    java = [*JAVA, f"-Dlog4j2.configurationFile={logging}", "-cp", f"{fetch_jars(KAFKA_VERSION)}/*"]
    if not (directory / "data/meta.properties").exists():
        format_it = ["kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(properties)]
        subprocess.run([*java, *format_it], check=True, capture_output=True)
    return [*java, "kafka.Kafka", str(properties)]


def kfake_memory(order: Order) -> list[list[str]]:
    return [[str(BUILT / "kfake"), str(order.ports[0])]]


def kfake_disk(order: Order) -> list[list[str]]:
    return [[str(BUILT / "kfake"), str(order.ports[0]), f"{order.directory}/data"]]


def mock(order: Order) -> list[list[str]]:
    """Topics are made here: the mock has no CreateTopics. It takes a port of its own."""
    return [[sys.executable, str(HERE / "mock.py"), *(f"{name}:{count}" for name, count in order.topics.items())]]


def build_kfake() -> None:
    BUILT.mkdir(parents=True, exist_ok=True)
    subprocess.run(["go", "build", "-o", str(BUILT / "kfake"), "."], cwd=HERE / "kfake", check=True)


def fetch_kafka() -> None:
    fetch_jars(KAFKA_VERSION)


class Kind(NamedTuple):
    """How a broker, or a cluster of some, comes to be."""

    commands: Callable[[Order], list[list[str]]]
    tools: tuple[str, ...] = ()  # that it needs
    make: Callable[[], None] = lambda: None  # first of all
    brokers: int = 1
    processes: int = 1
    replicas: int = 1  # of each topic
    prints_address: bool = False  # as its first line; it may also be told something by lines


BROKERS = {
    "minibroker": Kind(minibroker_disk),
    "minibroker memory": Kind(minibroker_memory),
    "compiled": Kind(compiled_disk, ("cc",), compile_minibroker),
    "compiled memory": Kind(compiled_memory, ("cc",), compile_minibroker),
    "Kafka": Kind(kafka, ("java", "mvn"), fetch_kafka),
    "kfake": Kind(kfake_memory, ("go",), build_kfake),
    "kfake disk": Kind(kfake_disk, ("go",), build_kfake),
    "mock": Kind(mock, prints_address=True),
}


def lacks(kind: Kind) -> str:
    """Say what is missing for a broker; make what it needs otherwise."""
    missing = [tool for tool in kind.tools if shutil.which(tool) is None]
    if missing:
        return f"needs {' and '.join(missing)}"
    try:
        kind.make()
    except (subprocess.CalledProcessError, RuntimeError) as failure:
        return str(failure).splitlines()[0][:200]
    return ""


class Broker:
    """A running one, or a cluster. `started` says how long first answers took, in ms from the start of the process."""

    def __init__(self, name: str, kind: Kind, directory: Path, topics: Mapping[str, int]):
        self.name = name
        self.kind = kind
        directory.mkdir(parents=True)
        ports = [free_port() for _ in range(kind.processes)]
        commands = kind.commands(Order(ports, directory, {**topics, FIRST_TOPIC: 1}))
        self._log = directory / "log.txt"
        self._processes: list[subprocess.Popen[bytes]] = []
        start = time.perf_counter()
        with self._log.open("wb") as log:
            for command in commands:
                self._processes.append(
                    subprocess.Popen(
                        command,
                        cwd=ROOT,
                        env=ENVIRONMENT,
                        stdin=subprocess.PIPE if kind.prints_address else subprocess.DEVNULL,
                        stdout=subprocess.PIPE if kind.prints_address else log,
                        stderr=log,
                    )
                )
        self.address = ",".join(f"127.0.0.1:{port}" for port in ports)
        try:
            if kind.prints_address:
                self.address = self._line()
            for address in self.address.split(","):
                self._wait(lambda address=address: self._answers(address))  # type: ignore[misc]
            self.started = {"first_answer_ms": (time.perf_counter() - start) * 1e3}
            if kind.brokers > 1:
                self._wait(self._is_complete)
            self.create_topic(FIRST_TOPIC, 1)
            self.started["first_topic_ms"] = (time.perf_counter() - start) * 1e3
            self._one_record()
            self.started["first_record_ms"] = (time.perf_counter() - start) * 1e3
        except BaseException:
            self.stop()
            raise

    def create_topic(self, name: str, partitions: int) -> None:
        with Raw(self.address) as raw:
            Topics(raw).create(name, partitions, self.kind.replicas, self.kind.brokers)

    def delete_topic(self, name: str) -> None:
        with Raw(self.address) as raw:
            Topics(raw).delete(name)

    def cpu_seconds(self) -> float:
        """Return the CPU time of all its threads so far, to the nanosecond; /proc/PID/stat counts in 10 ms."""
        # The clock of a process, as clock_getcpuclockid names it.
        return sum(time.clock_gettime(~each.pid << 3 | 2) for each in self._processes)

    def memory_mb(self) -> dict[str, float]:
        """Return resident memory, and the part of it that is not the page cache's."""
        kib = {"VmRSS": 0, "RssAnon": 0}
        for each in self._processes:
            with open(f"/proc/{each.pid}/status") as status:
                found = dict(line.split(":", 1) for line in status)
            for key in kib:
                kib[key] += int(found[key].split()[0])
        return {"rss_mb": kib["VmRSS"] / 1024, "anonymous_mb": kib["RssAnon"] / 1024}

    def most_resident_mb(self) -> float:
        """Return the most resident memory that it has had so far."""
        kib = 0
        for each in self._processes:
            with open(f"/proc/{each.pid}/status") as status:
                kib += int(dict(line.split(":", 1) for line in status)["VmHWM"].split()[0])
        return kib / 1024

    def tell(self, words: str) -> str:
        """Say something to a process that listens, and return its answer."""
        stdin = self._processes[0].stdin
        assert stdin
        stdin.write(f"{words}\n".encode())
        stdin.flush()
        return self._line()

    def stop(self) -> None:
        for each in self._processes:
            each.terminate()
        for each in self._processes:
            try:
                each.wait(STOP_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                each.kill()
                each.wait()
            for pipe in (each.stdin, each.stdout):
                if pipe:
                    pipe.close()

    def _line(self) -> str:
        stdout = self._processes[0].stdout
        assert stdout
        return stdout.readline().decode().strip()

    def _answers(self, address: str) -> bool:
        try:
            with Raw(address) as raw:
                return bool(raw.ask("ApiVersionsRequest").error_code == 0)
        except OSError:
            return False

    def _is_complete(self) -> bool:
        """Return whether the first of a cluster sees all of it: only then is each a leader where it is to be one."""
        with Raw(self.address) as raw:
            return len(raw.ask("MetadataRequest", topics=[]).brokers) == self.kind.brokers

    def _one_record(self) -> None:
        batch = build_batch(2, [Record(None, b"hello", (), int(time.time() * 1000))])
        produce, fetch = produce_frame(FIRST_TOPIC, batch), fetch_frame(FIRST_TOPIC, 0, 1 << 20)
        with Raw(self.address) as raw:
            self._wait(lambda: raw.send(produce).responses[0].partition_responses[0].error_code == 0)
            self._wait(lambda: bool(raw.send(fetch).responses[0].partitions[0].records))

    def _wait(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + START_SECONDS_MAX
        while not condition():
            if any(each.poll() is not None for each in self._processes) or time.monotonic() > deadline:
                raise RuntimeError(f"{self.name} did not start:\n{self._log.read_text(errors='replace')[-2000:]}")
            time.sleep(POLL_SECONDS)


def free_port() -> int:
    """Return a port that was free a moment ago, for brokers that have to be told one."""
    with socket.create_server(("127.0.0.1", 0)) as opened:
        port: int = opened.getsockname()[1]
    return port

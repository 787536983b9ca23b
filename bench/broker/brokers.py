"""The brokers that are compared: how each is started, when it answers, what it uses, how it stops.

Each runs as one process on loopback with a directory of its own and the settings it has when somebody just starts it;
Kafka with those of its config/server.properties and the JVM options of its start script. What must be fetched or built
is made once: Kafka's jars by Maven into the user's cache, kfake by Go into build/bench.
"""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

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
    "node.id": "1",
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
FIRST_TOPIC = "first"
START_SECONDS_MAX = 60.0
STOP_SECONDS_MAX = 30.0
POLL_SECONDS = 0.001


def minibroker_disk(port: int, directory: Path, topics: Mapping[str, int]) -> list[str]:
    return [
        sys.executable,
        "-m",
        "minibroker",
        "serve",
        "--quiet",
        "--port",
        str(port),
        "--data-dir",
        f"{directory}/data",
    ]


def minibroker_memory(port: int, directory: Path, topics: Mapping[str, int]) -> list[str]:
    return [sys.executable, "-m", "minibroker", "serve", "--quiet", "--port", str(port), "--memory"]


def kafka(port: int, directory: Path, topics: Mapping[str, int]) -> list[str]:
    """Write the settings and format the directory, which is not part of a start."""
    controller_port = free_port()
    settings = {
        **KAFKA_SETTINGS,
        "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}",
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


def kfake_memory(port: int, directory: Path, topics: Mapping[str, int]) -> list[str]:
    return [str(BUILT / "kfake"), str(port)]


def kfake_disk(port: int, directory: Path, topics: Mapping[str, int]) -> list[str]:
    return [str(BUILT / "kfake"), str(port), f"{directory}/data"]


def mock(port: int, directory: Path, topics: Mapping[str, int]) -> list[str]:
    """Topics are made here: the mock has no CreateTopics. It takes a port of its own."""
    return [sys.executable, str(HERE / "mock.py"), *(f"{name}:{count}" for name, count in topics.items())]


def build_kfake() -> None:
    BUILT.mkdir(parents=True, exist_ok=True)
    subprocess.run(["go", "build", "-o", str(BUILT / "kfake"), "."], cwd=HERE / "kfake", check=True)


def fetch_kafka() -> None:
    fetch_jars(KAFKA_VERSION)


# Name -> its command line, the tools it needs, what must be made first.
BROKERS: dict[str, tuple[Callable[[int, Path, Mapping[str, int]], list[str]], tuple[str, ...], Callable[[], None]]] = {
    "minibroker": (minibroker_disk, (), lambda: None),
    "minibroker memory": (minibroker_memory, (), lambda: None),
    "Kafka": (kafka, ("java", "mvn"), fetch_kafka),
    "kfake": (kfake_memory, ("go",), build_kfake),
    "kfake disk": (kfake_disk, ("go",), build_kfake),
    "mock": (mock, (), lambda: None),
}


def lacks(name: str) -> str:
    """Say what is missing for a broker; make what it needs otherwise."""
    _command, tools, make = BROKERS[name]
    missing = [tool for tool in tools if shutil.which(tool) is None]
    if missing:
        return f"needs {' and '.join(missing)}"
    try:
        make()
    except (subprocess.CalledProcessError, RuntimeError) as failure:
        return str(failure).splitlines()[0][:200]
    return ""


class Broker:
    """A running one. `started` says how long the first answers took, in ms from the start of the process."""

    def __init__(self, name: str, directory: Path, topics: Mapping[str, int]):
        self.name = name
        directory.mkdir(parents=True)
        port = free_port()
        command = BROKERS[name][0](port, directory, {**topics, FIRST_TOPIC: 1})
        self._log = directory / "log.txt"
        start = time.perf_counter()
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                command,
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE if name == "mock" else log,
                stderr=log,
            )
        self.pid = self._process.pid
        self.address = f"127.0.0.1:{port}"
        try:
            if self._process.stdout:
                self.address = self._process.stdout.readline().decode().strip()
            self._wait(self._answers)
            self.started = {"first_answer_ms": (time.perf_counter() - start) * 1e3}
            self.create_topic(FIRST_TOPIC, 1)
            self._one_record()
            self.started["first_record_ms"] = (time.perf_counter() - start) * 1e3
        except BaseException:
            self.stop()
            raise

    def create_topic(self, name: str, partitions: int) -> None:
        with Raw(self.address) as raw:
            Topics(raw).create(name, partitions)

    def delete_topic(self, name: str) -> None:
        with Raw(self.address) as raw:
            Topics(raw).delete(name)

    def cpu_seconds(self) -> float:
        """Return the CPU time of all its threads so far, to the nanosecond; /proc/PID/stat counts in 10 ms."""
        return time.clock_gettime(~self.pid << 3 | 2)  # the clock of a process, as clock_getcpuclockid names it

    def memory_mb(self) -> dict[str, float]:
        """Return resident memory, and the part of it that is not the page cache's."""
        with open(f"/proc/{self.pid}/status") as status:
            found = dict(line.split(":", 1) for line in status)
        kib = {key: int(found[key].split()[0]) for key in ("VmRSS", "RssAnon")}
        return {"rss_mb": kib["VmRSS"] / 1024, "anonymous_mb": kib["RssAnon"] / 1024}

    def stop(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdout:
            self._process.stdout.close()

    def _answers(self) -> bool:
        try:
            with Raw(self.address) as raw:
                return bool(raw.ask("ApiVersionsRequest").error_code == 0)
        except OSError:
            return False

    def _one_record(self) -> None:
        batch = build_batch(2, [Record(None, b"hello", (), int(time.time() * 1000))])
        produce, fetch = produce_frame(FIRST_TOPIC, batch), fetch_frame(FIRST_TOPIC, 0, 1 << 20)
        with Raw(self.address) as raw:
            self._wait(lambda: raw.send(produce).responses[0].partition_responses[0].error_code == 0)
            self._wait(lambda: bool(raw.send(fetch).responses[0].partitions[0].records))

    def _wait(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + START_SECONDS_MAX
        while not condition():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{self.name} did not start:\n{self._log.read_text(errors='replace')[-2000:]}")
            time.sleep(POLL_SECONDS)


def free_port() -> int:
    """Return a port that was free a moment ago, for brokers that have to be told one."""
    with socket.create_server(("127.0.0.1", 0)) as opened:
        port: int = opened.getsockname()[1]
    return port

"""Brings up a real Kafka: one node, KRaft, from the jars that Maven Central serves. Needs java 17 and mvn.

The jars of a release are fetched once, into a cache beside other caches of the user (KAFKA_JARS_CACHE names another
place). A small heap and the first compiler tier only: it is asked few things, and should start fast.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

START_SECONDS_MAX = 90.0
FETCH_SECONDS_MAX = 600.0
CLUSTER_ID = "AAECAwQFBgcICQoLDA0ODw"
JAVA = ["java", "-Xmx300m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto", "-Djava.awt.headless=true"]

# What a single node needs in order to work at all; both sides of a comparison are started with SETTINGS.
SETTINGS = {
    "node.id": "1",
    "group.min.session.timeout.ms": "200",  # so that one can be seen to end
    "group.consumer.min.session.timeout.ms": "200",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "100",
    "group.consumer.assignment.interval.ms": "0",  # since 4.4: each assignment is made at once
}
SINGLE_NODE = {
    "process.roles": "broker,controller",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",  # as ours
    "group.consumer.assignor.offload.enable": "false",  # since 4.4: the answer holds the assignment
    "log.cleaner.enable": "false",  # nothing may be rewritten behind the back of a comparison
}


def missing_tools() -> str:
    """Name the programs that are needed and not there."""
    return " and ".join(tool for tool in ("java", "mvn") if shutil.which(tool) is None)


class Kafka:
    """A broker of a release in a directory; a context manager that stops it."""

    def __init__(
        self,
        version: str,
        directory: Path,
        settings: dict[str, str] | None = None,
        *,
        features: tuple[str, ...] = (),
    ):
        """features: other levels than those that the release begins with, as NAME=LEVEL."""
        self.version = version
        self.features = features
        self.directory = directory
        self.data = directory / "data"
        self._process: subprocess.Popen[bytes] | None = None
        port, controller_port = _free_ports(2)
        self.address = f"127.0.0.1:{port}"
        self.settings = {
            **SETTINGS,
            **SINGLE_NODE,
            "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
            "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
            "log.dirs": str(self.data),
            **(settings or {}),
        }

    def __enter__(self) -> Kafka:
        jars = fetch_jars(self.version)
        self.directory.mkdir(parents=True, exist_ok=True)
        properties = self.directory / "server.properties"
        properties.write_text("".join(f"{name}={value}\n" for name, value in self.settings.items()), "utf-8")
        logging = self.directory / "log4j2.properties"
        logging.write_text("rootLogger.level=ERROR\nrootLogger.appenderRef.o.ref=o\nappender.o.type=Console\n"
                           "appender.o.name=o\nappender.o.layout.type=PatternLayout\n", "utf-8")  # fmt: skip
        java = [*JAVA, f"-Dlog4j2.configurationFile={logging}", "-cp", f"{jars}/*"]
        if not (self.data / "meta.properties").exists():
            format_it = ["kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(properties)]
            format_it += [word for each in self.features for word in ("--feature", each)]
            subprocess.run([*java, *format_it], check=True, capture_output=True, timeout=START_SECONDS_MAX)
        self._log = (self.directory / "log.txt").open("wb")
        self._process = subprocess.Popen(
            [*java, "kafka.Kafka", str(properties)], stdin=subprocess.DEVNULL, stdout=self._log, stderr=self._log
        )
        try:
            self._wait_for_port()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.kill()  # its files are of no use to anybody, and an orderly stop takes seconds
            self._ended()

    def stop(self) -> None:
        """Stop in order, for somebody who goes on with its files."""
        assert self._process is not None
        self._process.terminate()
        self._ended()

    def _ended(self) -> None:
        assert self._process is not None
        self._process.wait()
        self._log.close()
        self._process = None

    def _wait_for_port(self) -> None:
        deadline = time.monotonic() + START_SECONDS_MAX
        host, port = self.address.split(":")
        while time.monotonic() < deadline:
            assert self._process is not None
            try:  # an exit wakes this up, otherwise it is time to try the port again
                self._process.wait(0.05)
                raise RuntimeError(f"Kafka {self.version} did not start:\n{self._log_tail()}")
            except subprocess.TimeoutExpired:
                pass
            try:
                socket.create_connection((host, int(port)), timeout=1).close()
                return
            except OSError:
                continue
        raise TimeoutError(f"Kafka {self.version} has no open port after {START_SECONDS_MAX} s:\n{self._log_tail()}")

    def _log_tail(self) -> str:
        return (self.directory / "log.txt").read_text("utf-8", "replace")[-3000:]


def fetch_jars(version: str) -> Path:
    """Return the directory with the jars of a release, filled at the first call."""
    cache = os.environ.get("KAFKA_JARS_CACHE") or Path.home() / ".cache" / "kafka-jars"
    target = Path(cache) / version
    build, complete = target / "build", target / ".complete"
    if complete.exists():
        return target / "jars"
    build.mkdir(parents=True, exist_ok=True)
    with open(target / "lock", "w") as lock:  # several pytest workers, and whoever else tests here
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not complete.exists():
            (build / "pom.xml").write_text(_pom(version), "utf-8")
            copy = ["mvn", "-q", "-B", "dependency:copy-dependencies", "-DincludeScope=runtime"]
            copy.append(f"-DoutputDirectory={target / 'jars'}")
            done = subprocess.run(copy, cwd=build, capture_output=True, timeout=FETCH_SECONDS_MAX)
            if done.returncode:
                raise RuntimeError(f"mvn cannot fetch Kafka {version}:\n{done.stdout.decode()[-3000:]}")
            complete.touch()
    return target / "jars"


def _pom(version: str) -> str:
    # 4.4.0 names a kafka-tools-api that Maven Central does not have; the broker does without in every release.
    kafka = (
        f"<dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>{version}</version>"
        "<exclusions><exclusion><groupId>org.apache.kafka</groupId><artifactId>kafka-tools-api</artifactId>"
        "</exclusion></exclusions></dependency>"
    )
    log4j = "".join(
        "<dependency><groupId>org.apache.logging.log4j</groupId>"
        f"<artifactId>{name}</artifactId><version>2.25.4</version></dependency>"
        for name in ("log4j-slf4j-impl", "log4j-core", "log4j-api")
    )
    return (
        "<project><modelVersion>4.0.0</modelVersion><groupId>local</groupId><artifactId>kafka-jars</artifactId>"
        f"<version>1</version><dependencies>{kafka}{log4j if version >= '4' else ''}</dependencies></project>"
    )


def _free_ports(count: int) -> list[int]:
    """Return ports that were free a moment ago: Kafka needs to be told its controller's before it starts."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [opened.getsockname()[1] for opened in sockets]
    for opened in sockets:
        opened.close()
    return ports


if __name__ == "__main__":  # python -m tests.differential.kafka VERSION DIRECTORY: run until the input ends
    with Kafka(sys.argv[1], Path(sys.argv[2])) as kafka:
        print(kafka.address, flush=True)
        sys.stdin.read()

"""Kafka's controller, to be asked what it would write: its own classes in a JVM, without a quorum or a network."""

from __future__ import annotations

import subprocess
from contextlib import suppress
from typing import Any

import pytest

from minibroker.metadata.records import write_record
from tests.interop.broker import class_path
from tests.interop.kafka import HERE, KEPT

SOURCE = HERE / "KafkaController.java"
CLASSES = KEPT / "controller"
MAIN = "org.apache.kafka.controller.KafkaController"
JAVA = ("java", "-Xmx200m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


class KafkaController:
    """One JVM; `begin` makes a new cluster in it."""

    def __init__(self) -> None:
        jars = class_path()
        compiled = CLASSES / f"{MAIN.replace('.', '/')}.class"
        if not compiled.exists() or compiled.stat().st_mtime < SOURCE.stat().st_mtime:
            CLASSES.mkdir(parents=True, exist_ok=True)
            made = subprocess.run(
                ["javac", "-nowarn", "-cp", jars, "-d", str(CLASSES), str(SOURCE)], capture_output=True, text=True
            )
            if made.returncode:
                pytest.fail(made.stderr)
        self.process = subprocess.Popen(
            [*JAVA, "-cp", f"{CLASSES}:{jars}", MAIN],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def close(self) -> None:
        assert self.process.stdin
        assert self.process.stdout
        with suppress(BrokenPipeError):
            self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()

    def begin(self, cluster_id: str, session_timeout_ms: int) -> None:
        self._say(f"begin {cluster_id} {session_timeout_ms}")

    def replay(self, record: Any, metadata_version: int) -> None:
        self._say(f"replay 0 {write_record(record, metadata_version).hex()}")

    def ask(self, operation: str, version: int = 0, request: Any = None) -> tuple[list[bytes], bytes, str]:
        """Return the records that it writes, the response, and the error if it threw one."""
        said = self._say(f"{operation} {version} {'' if request is None else request.encode(version).hex()}")
        if said.startswith("!"):
            return [], b"", said[1:]
        records, _, response = said.partition("|")
        return [bytes.fromhex(each) for each in records.split(",") if each], bytes.fromhex(response), ""

    def _say(self, line: str) -> str:
        assert self.process.stdin
        assert self.process.stdout
        print(line, file=self.process.stdin, flush=True)
        answer = self.process.stdout.readline()
        assert answer, "Kafka's controller has gone"
        return answer.rstrip("\n")

"""Spark, and its Kafka connector: where they come from, and a session of it in a process of its own.

PySpark (470 MB unpacked) is fetched once, into build/interop/ as the other foreign programs, so that the environment of
the tests need not hold it; the connector is Maven's. Version: the newest whose connector has all of its parts.
"""

from __future__ import annotations

import fcntl
import json
import os
import selectors
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.interop.kafka import HERE, KEPT

VERSION = "4.0.0"
FETCH_SECONDS_MAX = 300
ANSWER_SECONDS_MAX = 60

Row = tuple[int, int, str | None, str | None]  # partition, offset, key, value


class SparkFailed(Exception):
    """A query ended with an error; the text is Spark's."""


class Spark:
    """A session that runs; topics are read with it, one query at a time."""

    def __init__(self, process: subprocess.Popen[str]):
        self._process = process
        self.version = str(self._answer()["version"])

    def batch(self, address: str, topic: str, **options: object) -> list[Row]:
        """Read a topic with one query; SparkFailed says what Spark says."""
        return self._ask({"how": "batch", "options": _options(address, topic, options)})

    def stream(self, address: str, topic: str, checkpoint: Path, **options: object) -> list[Row]:
        """Read what there is from a checkpoint on in micro-batches, and leave the checkpoint behind it."""
        asked = {"how": "stream", "options": _options(address, topic, options), "checkpoint": str(checkpoint)}
        return self._ask(asked)

    def _ask(self, asked: dict[str, object]) -> list[Row]:
        assert self._process.stdin
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        answer = self._answer()
        if "error" in answer:
            raise SparkFailed(answer["error"])
        return [tuple(row) for row in answer["records"]]  # type: ignore[attr-defined]

    def _answer(self) -> dict[str, object]:
        assert self._process.stdout
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            if not selector.select(ANSWER_SECONDS_MAX):
                self._process.kill()
                raise TimeoutError(f"Spark did not answer within {ANSWER_SECONDS_MAX} s")
        line = self._process.stdout.readline()
        assert line, f"Spark has ended with {self._process.wait()}"
        answer: dict[str, object] = json.loads(line)
        return answer


def _options(address: str, topic: str, options: dict[str, object]) -> dict[str, str]:
    """Spark's names; an underscore stands for a dot, and an offset for that of partition 0."""
    told = {name.replace("_", "."): _word(topic, value) for name, value in options.items()}
    return {"kafka.bootstrap.servers": address, "subscribe": topic, "startingOffsets": "earliest"} | told


def _word(topic: str, value: object) -> str:
    return str(value) if isinstance(value, str) else json.dumps({topic: {"0": value}})


@contextmanager
def session(work: Path) -> Iterator[Spark]:
    """Start Spark; skip the test where it, Java or Maven cannot be had."""
    missing = [tool for tool in ("java", "mvn") if shutil.which(tool) is None]
    if missing:
        pytest.skip(f"needs {' and '.join(missing)}: Spark reads what has been cleaned")
    pyspark, jars = pyspark_folder(), class_path()
    environment = {**os.environ, "PYTHONPATH": str(pyspark), "PYTHONWARNINGS": "ignore"}
    environment |= {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
    with open(work / "spark.txt", "w") as said:
        process = subprocess.Popen(
            [sys.executable, str(HERE / "spark_worker.py"), jars],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=said,
            env=environment,
            cwd=work,
            text=True,
        )
    assert process.stdin and process.stdout
    try:
        yield Spark(process)
        process.stdin.close()
        assert process.wait(ANSWER_SECONDS_MAX) == 0, (work / "spark.txt").read_text()[-3000:]
    finally:
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()


def pyspark_folder() -> Path:
    """Return where PySpark is, which is fetched if it has not been."""
    KEPT.mkdir(parents=True, exist_ok=True)
    folder = KEPT / f"pyspark-{VERSION}"
    stamp = folder / ".whole"
    with open(KEPT / "spark.lock", "w") as lock:  # several pytest workers
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not stamp.exists():
            shutil.rmtree(folder, ignore_errors=True)
            pip = (sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
            _fetch("pip", "pyspark", (*pip, "--target", str(folder), f"pyspark=={VERSION}"))
            stamp.touch()
    return folder


def class_path() -> str:
    """Return the jars of the connector."""
    kept = KEPT / f"spark-connector-{VERSION}.classpath"
    with open(KEPT / "spark.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (kept.exists() and all(map(os.path.exists, kept.read_text().split(os.pathsep)))):
            goal = ("mvn", "--batch-mode", "--quiet", "--file", str(HERE / "spark.xml"), "dependency:build-classpath")
            settings = (f"-Dspark.version={VERSION}", "-DincludeScope=runtime", f"-Dmdep.outputFile={kept}")
            _fetch("Maven", "Spark's connector", (*goal, *settings))
    return kept.read_text()


def _fetch(who: str, what: str, command: tuple[str, ...]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=FETCH_SECONDS_MAX)
    except subprocess.TimeoutExpired:
        text = f"{who} cannot get {what} {VERSION} within {FETCH_SECONDS_MAX} s"
    else:
        if not done.returncode:
            return
        lines = (done.stdout + done.stderr).splitlines()
        reason = next((line for line in lines if "error" in line.lower()), f"exit status {done.returncode}")
        text = f"{who} cannot get {what} {VERSION}: {reason[:200]}"
    # Where nobody watches, a test that is skipped for ever would look like one that passes.
    pytest.fail(text) if os.environ.get("MINIBROKER_TEST_CLIENTS_REQUIRED") else pytest.skip(text)

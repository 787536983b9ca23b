"""A session of Spark in a process of its own, with our data source and Spark's Kafka connector in it."""

from __future__ import annotations

import json
import os
import selectors
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.interop.spark import SparkFailed, class_path, pyspark_folder

ROOT = Path(__file__).parents[2]
ANSWER_SECONDS_MAX = 600  # machines are busy now and then
CONNECTOR = "kafka"

SparkRow = list[Any]  # as the columns are


class Session:
    """One that runs; one query at a time. Where it has ended, the next query starts another."""

    def __init__(self, start: Callable[[], subprocess.Popen[str]]):
        self._start = start
        self._begin()
        self.columns: list[list[str]] = []  # of the last query: names and types
        self.tasks = 0

    def _begin(self) -> None:
        self.process = self._start()
        self.version = str(self._answer()["version"])

    def rows(
        self, source: str, *, schema: str = "", where: str = "", group_by: str = "", **options: object
    ) -> list[SparkRow]:
        """Ask one query; an underscore in the name of an option stands for a dot. SparkFailed says what Spark says."""
        told = {name.replace("_", "."): str(value) for name, value in options.items()}
        answer = self._ask({"format": source, "options": told, "schema": schema, "where": where, "group_by": group_by})
        self.columns, self.tasks = answer["columns"], answer["tasks"]
        rows: list[SparkRow] = answer["rows"]
        return rows

    def call(self, what: str, **arguments: object) -> Any:
        """Let a function of ours work in the session: `module:function`, with the session and what is given."""
        return self._ask({"call": what, "arguments": arguments})["returned"]

    def _ask(self, asked: dict[str, Any]) -> dict[str, Any]:
        if self.process.poll() is not None:
            self._begin()
        assert self.process.stdin
        self.process.stdin.write(json.dumps(asked) + "\n")
        self.process.stdin.flush()
        answer = self._answer()
        if "error" in answer:
            raise SparkFailed(answer["error"])
        return answer

    def _answer(self) -> dict[str, Any]:
        assert self.process.stdout
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            if not selector.select(ANSWER_SECONDS_MAX):
                kill(descendants(self.process.pid))
                self.process.wait()
                raise TimeoutError(f"Spark did not answer within {ANSWER_SECONDS_MAX} s")
        line = self.process.stdout.readline()
        assert line, f"Spark has ended with {self.process.wait()}"
        answer: dict[str, Any] = json.loads(line)
        return answer


@contextmanager
def program(module: str, *words: str, said: Path, pyspark: Path) -> Iterator[subprocess.Popen[str]]:
    """Run a module of the tests beside a PySpark; in the end it is killed, with all that it has started.

    said: the file behind which its errors go.
    """
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(pyspark), str(ROOT)]), "PYTHONWARNINGS": "ignore"}
    environment |= {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
    with said.open("a") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", module, *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            env=environment,
            cwd=ROOT,
            text=True,
        )
    assert process.stdin
    assert process.stdout
    try:
        yield process
    finally:
        if process.poll() is None:
            kill(descendants(process.pid))
        process.wait()
        process.stdin.close()
        process.stdout.close()


def descendants(pid: int) -> list[int]:
    """Return a process and all that it has started: the driver, the JVM, Python's daemons, their workers."""
    found = [pid]
    for each in found:
        for children in Path(f"/proc/{each}/task").glob("*/children"):
            try:
                found += map(int, children.read_text().split())
            except OSError:
                continue
    return found


def kill(processes: list[int]) -> None:
    for each in processes:
        try:
            os.kill(each, signal.SIGKILL)
        except ProcessLookupError:
            continue


@contextmanager
def started(
    work: Path, *, pyspark: Path | None = None, jars: str | None = None, settings: dict[str, str] | None = None
) -> Iterator[Session]:
    """Start Spark; skip the test where it, Java or Maven cannot be had. jars: in place of the connector's."""
    missing = [tool for tool in ("java", "mvn") if shutil.which(tool) is None]
    if missing:
        pytest.skip(f"needs {' and '.join(missing)}: Spark reads through our data source")
    folder = pyspark or pyspark_folder()
    jars = jars if jars is not None else "" if pyspark else class_path()
    said = work / "spark.txt"
    with ExitStack() as programs:

        def start() -> subprocess.Popen[str]:
            words = "tests.spark.worker", jars, json.dumps(settings or {})
            return programs.enter_context(program(*words, said=said, pyspark=folder))

        session = Session(start)
        yield session
        process = session.process
        if process.poll() is None:  # else the test that it ended in has failed
            assert process.stdin
            process.stdin.close()
            assert process.wait(ANSWER_SECONDS_MAX) == 0, said.read_text()[-3000:]

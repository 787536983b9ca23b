"""Spark, and its Kafka connector: where they come from. A session is in tests/spark/session.py.

PySpark (470 MB unpacked) is fetched once, into build/interop/ as the other foreign programs, so that the environment of
the tests need not hold it; the connector is Maven's. Version: the newest whose connector has all of its parts.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.interop.kafka import HERE, KEPT

VERSION = "4.0.0"
LAKES_VERSION = "4.1.4"  # the newest for which there are both Delta Lake and Iceberg
S3_VERSION = "5.2.5"  # of moto
FETCH_SECONDS_MAX = 300


class SparkFailed(Exception):
    """A query ended with an error; the text is Spark's."""


def pyspark_folder(version: str = VERSION) -> Path:
    """Return where PySpark is, which is fetched if it has not been."""
    return _folder("pyspark", version)


def s3_folder() -> Path:
    """Return where a server of S3 is, the module moto.server."""
    return _folder("moto", S3_VERSION, "[server]")


def _folder(package: str, version: str, extra: str = "") -> Path:
    KEPT.mkdir(parents=True, exist_ok=True)
    folder = KEPT / f"{package}-{version}"
    stamp = folder / ".whole"
    with open(KEPT / "spark.lock", "w") as lock:  # several pytest workers
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not stamp.exists():
            shutil.rmtree(folder, ignore_errors=True)
            pip = (sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
            _fetch("pip", package, (*pip, "--target", str(folder), f"{package}{extra}=={version}"))
            stamp.touch()
    return folder


def class_path() -> str:
    """Return the jars of the connector."""
    return _class_path("Spark's connector", f"spark-connector-{VERSION}", "spark.xml", f"-Dspark.version={VERSION}")


def lakes_class_path() -> str:
    """Return the jars of Delta Lake and Iceberg."""
    minor = LAKES_VERSION.rpartition(".")[0]
    return _class_path("Delta and Iceberg", f"spark-lakes-{LAKES_VERSION}", "lakes.xml", f"-Dspark.minor={minor}")


def _class_path(what: str, name: str, pom: str, version: str) -> str:
    kept = KEPT / f"{name}.classpath"
    with open(KEPT / "spark.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (kept.exists() and all(map(os.path.exists, kept.read_text().split(os.pathsep)))):
            goal = ("mvn", "--batch-mode", "--quiet", "--file", str(HERE / pom), "dependency:build-classpath")
            settings = (version, "-DincludeScope=runtime", f"-Dmdep.outputFile={kept}")
            _fetch("Maven", what, (*goal, *settings))
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

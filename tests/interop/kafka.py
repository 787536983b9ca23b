"""Kafka's own classes, from Maven Central: which releases, where their jars are, and how to run something in them.

Maven is asked once per release; the class path is kept in build/interop/ until a jar of it is gone.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest

HERE = Path(__file__).parent
KEPT = HERE.parent.parent / "build/interop"
# One small heap, no second compiler: a test's JVM lives for seconds.
JAVA = ("java", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


class Release(NamedTuple):
    artifact: str
    version: str
    dump_class: str = ""
    words: str = ""  # --release of our dump that has the same words


# 4.4.0 has no kafka-tools in Maven Central; what prints logs is that of 4.3.1.
DUMPS = (
    Release("kafka_2.13", "3.9.2", "kafka.tools.DumpLogSegments", "3.9"),
    Release("kafka-tools", "4.3.1", "org.apache.kafka.tools.DumpLogSegments", "4.4"),
)
STORAGE = Release("kafka-storage", "4.4.0")


def class_path(release: Release) -> str:
    """Return the jars of a release; skip the test where there is no Java, or no Maven to fetch them."""
    missing = [tool for tool in ("java", "javac", "mvn") if shutil.which(tool) is None]
    if missing:
        pytest.skip(f"needs {' and '.join(missing)}: Kafka's own classes read our logs")
    KEPT.mkdir(parents=True, exist_ok=True)
    kept = KEPT / f"{release.artifact}-{release.version}.classpath"
    with open(KEPT / "lock", "w") as lock:  # several pytest workers
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (kept.exists() and all(map(os.path.exists, kept.read_text().split(os.pathsep)))):
            _ask_maven(release, kept)
    return kept.read_text()


def _ask_maven(release: Release, kept: Path) -> None:
    asked = subprocess.run(
        [
            *("mvn", "--batch-mode", "--quiet", "--file", str(HERE / "pom.xml"), "dependency:build-classpath"),
            *(f"-Dkafka.artifact={release.artifact}", f"-Dkafka.version={release.version}"),
            f"-Dmdep.outputFile={kept}",
        ],
        capture_output=True,
        text=True,
    )
    if asked.returncode:
        reason = next((line for line in asked.stdout.splitlines() if "ERROR" in line), asked.stderr)
        text = f"Maven cannot get {release.artifact} {release.version}: {reason[:200]}"
        # Where nobody watches, a test that is skipped for ever would look like one that passes.
        pytest.fail(text) if os.environ.get("MINIBROKER_TEST_CLIENTS_REQUIRED") else pytest.skip(text)


def run(release: Release, *arguments: str, cwd: Path, given: str = "") -> subprocess.CompletedProcess[str]:
    """Run a class, or a source file, in a JVM with the jars of a release; given: its standard input."""
    java = [*JAVA, "-cp", class_path(release), *arguments]
    return subprocess.run(java, capture_output=True, text=True, cwd=cwd, input=given)

"""Kafka's cleaner in a JVM, told by lines to clean a log: KafkaCleaner.java, with the classes of a release."""

from __future__ import annotations

import fcntl
import shutil
import subprocess
from pathlib import Path

from bench.broker.brokers import BUILT, JAVA, ROOT
from bench.cleaning.logs import DIRECTORY, NOW_MS, SEGMENT_BYTES
from tests.differential.kafka import fetch_jars

RELEASES = ("3.9.2", "4.4.0")
SOURCES = (Path(__file__).parent / "KafkaCleaner.java", ROOT / "tests/interop/CleanLogs.java")


def missing() -> str:
    """Name the programs that are needed and not there."""
    return " and ".join(tool for tool in ("java", "javac", "mvn") if shutil.which(tool) is None)


class KafkaCleaner:
    """A JVM as Kafka's start script makes it, that cleans what it is told; a context manager that ends it."""

    def __init__(self, release: str):
        jars, classes = f"{fetch_jars(release)}/*", compiled(release)
        self._process = subprocess.Popen(
            [*JAVA, "-cp", f"{classes}:{jars}", "KafkaCleaner"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def __enter__(self) -> KafkaCleaner:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def clean(self, root: Path, map_bytes: int) -> dict[str, float]:
        """Do one pass; return its seconds, the CPU seconds of the JVM meanwhile, and where it got to."""
        given = ("cleanup.policy=compact", f"segment.bytes={SEGMENT_BYTES}")
        assert self._process.stdin
        assert self._process.stdout
        print(root, DIRECTORY, NOW_MS, map_bytes, *given, sep="\t", file=self._process.stdin, flush=True)
        answer = self._process.stdout.readline().split("\t")
        if len(answer) != 3:
            raise RuntimeError(f"Kafka's cleaner ended with {self._process.wait()}")
        took, cpu, end = map(int, answer)
        return {"seconds": took / 1e9, "cpu_seconds": cpu / 1e9, "end": end}


def compiled(release: str) -> Path:
    """Compile the sources against the classes of a release, unless that has been done."""
    classes = BUILT / f"cleaner-{release}"
    classes.mkdir(parents=True, exist_ok=True)
    with open(f"{classes}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = classes / "KafkaCleaner.class"
        if not done.exists() or done.stat().st_mtime < max(source.stat().st_mtime for source in SOURCES):
            javac = ["javac", "-nowarn", "-cp", f"{fetch_jars(release)}/*", "-d", str(classes), *map(str, SOURCES)]
            subprocess.run(javac, check=True, capture_output=True)
    return classes

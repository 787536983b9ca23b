"""Kafka's log cleaner, to be asked for one pass at a time: its own classes in a JVM, without a broker around them."""

from __future__ import annotations

import subprocess
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import pytest

from minibroker.log.settings import LogSettings

from .kafka import HERE, JAVA, KEPT, Release, class_path

SOURCE = HERE / "CleanLogs.java"
RELEASES = (Release("kafka_2.13", "3.9.2"), Release("kafka-storage", "4.4.0"))


class Pass(NamedTuple):
    """What Kafka says of a pass."""

    first_dirty: int
    end: int  # first offset that may not be cleaned
    clean_bytes: int
    dirty_bytes: int
    needs_now: bool
    end_offset: int  # the first dirty offset from now on


class KafkaCleaner:
    """One JVM."""

    def __init__(self, release: Release):
        self.release = release
        jars = class_path(release)
        classes = KEPT / f"cleaner-{release.version}"
        compiled = classes / f"{SOURCE.stem}.class"
        if not compiled.exists() or compiled.stat().st_mtime < SOURCE.stat().st_mtime:
            classes.mkdir(parents=True, exist_ok=True)
            made = subprocess.run(
                ["javac", "-nowarn", "-cp", jars, "-d", str(classes), str(SOURCE)], capture_output=True, text=True
            )
            if made.returncode:
                pytest.fail(made.stderr)
        self.process = subprocess.Popen(
            [*JAVA, "-cp", f"{classes}:{jars}", SOURCE.stem],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    @property
    def is_scala(self) -> bool:
        """Whether it is one of the releases that keep v0 and v1 as they are."""
        return self.release.version.startswith("3.")

    def close(self) -> None:
        assert self.process.stdin
        assert self.process.stdout
        with suppress(BrokenPipeError):
            self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()

    def clean(
        self,
        root: Path,
        name: str,
        settings: LogSettings,
        *,
        first_dirty_offset: int | None,
        now_ms: int,
        keys_max: int,
        high_watermark: int,
    ) -> Pass | str | None:
        """Clean a log if it is dirty enough; None: it is not; a text: what went wrong."""
        topic, _, partition = name.rpartition("-")
        rows = [] if first_dirty_offset is None else [f"{topic} {partition} {first_dirty_offset}"]
        (root / "cleaner-offset-checkpoint").write_text("\n".join(["0", str(len(rows)), *rows, ""]))
        fields = {
            "high.watermark": high_watermark,
            "cleanup.policy": "compact,delete" if settings.delete else "compact",
            "segment.bytes" if self.is_scala else "internal.segment.bytes": settings.segment_bytes,
            "segment.index.bytes": settings.segment_index_bytes,
            "index.interval.bytes": settings.index_interval_bytes,
            "delete.retention.ms": settings.delete_retention_ms,
            "min.compaction.lag.ms": settings.min_compaction_lag_ms,
            "max.compaction.lag.ms": settings.max_compaction_lag_ms,
            "min.cleanable.dirty.ratio": settings.min_cleanable_dirty_ratio,
        }
        told = "\t".join(
            [str(root), name, str(now_ms), str(keys_max), *(f"{key}={value}" for key, value in fields.items())]
        )
        assert self.process.stdin
        assert self.process.stdout
        print(told, file=self.process.stdin, flush=True)
        kind, *rest = self.process.stdout.readline().rstrip("\n").split("\t")
        assert kind, "Kafka's cleaner has gone"
        if kind == "failed":
            return rest[0]
        if kind == "clean":
            return None
        first_dirty, end, clean_bytes, dirty_bytes, needs_now, end_offset = rest
        return Pass(
            int(first_dirty), int(end), int(clean_bytes), int(dirty_bytes), needs_now == "true", int(end_offset)
        )

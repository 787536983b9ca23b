"""Brokers of ours that serve what others have written: Kafka, brokers of long ago, and chance."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from minibroker import Broker
from minibroker.log.directory import split_name
from tests.interop.random_logs import RandomLog
from tests.spark.logs import golden_directory

RANDOM_TOPICS = 12


def served(root: Path, **settings: Any) -> Broker:
    """Return a broker whose records are old, and shall stay."""
    return Broker(data_dir=root, log_retention_ms=-1, **settings)


def adopt(root: Path, logs: dict[str, Path]) -> None:
    """Have a broker's directory with logs that it has not written: topics are made, then their files exchanged."""
    with served(root) as broker:
        for name in logs:
            topic, _ = split_name(name) or ("", 0)
            broker.create_topic(topic, retention_ms=-1)
    for name, directory in logs.items():
        for path in (root / name).iterdir():
            if path.name != "partition.metadata":
                path.unlink()
        for path in directory.iterdir():
            if path.name != "partition.metadata":
                shutil.copy2(path, root / name / path.name)


def random_directory(work: Path, count: int) -> Path:
    """Return a broker's directory of topics that are dirty in every way."""
    logs = {}
    for seed in range(count):
        (work / f"{seed}").mkdir()
        log = RandomLog(work / f"{seed}", seed)
        for _ in range(2):
            log.grow()
            log.open()
        # While a transaction is open, a broker that has begun anew does not say what the last stable offset is.
        for producer in log.producers:
            if producer.is_open:
                log.log.append_as_follower(log.marker(log.log.log_end_offset, producer), now_ms=log.now_ms)
        log.log.close()
        logs[f"random{seed}-0"] = log.path
    adopt(work / "root", logs)
    return work / "root"


def directory(name: str, work: Path) -> Path:
    """Return a broker's directory: a golden one, or random topics."""
    root = work / "root"
    if name.startswith("kraft"):
        return golden_directory(root, name)
    if name.startswith("zk"):
        # No broker of today opens what ZooKeeper's wrote, but for the logs themselves.
        golden = golden_directory(work / "golden", name)
        found = [path for path in golden.iterdir() if path.is_dir() and not path.name.startswith("__")]
        adopt(root, {path.name: path for path in found if path.name.endswith("-0")})
        return root
    return random_directory(work, RANDOM_TOPICS)

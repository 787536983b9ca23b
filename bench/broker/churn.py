"""Mixed load under churn for as long as one wants: do memory, handles and tasks stay flat?

A client does again and again what leaves something behind if anything does: connections that are closed or reset,
topics that come and go, members that join and time out, producers that are never heard of again, segments that roll and
are deleted, commits of groups, fetches that are abandoned. Some times a minute it notes what the broker has: resident
memory, the part of it that is not page cache, file descriptors, tasks of the loop.

    python -m bench.broker.churn [--minutes 60] [--pause 0.0]      make bench-churn ARGS='--minutes 10'

It prints a row for each interval, and at the end how much each figure has grown from its first quarter to its last.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bench.broker.brokers import ENVIRONMENT, ROOT
from bench.broker.load import batch
from bench.broker.raw import VERSIONS, Raw, Topics, encoded, fetch_frame, produce_frame
from minibroker.protocol import message

VERSIONS.update(
    FindCoordinatorRequest=2, InitProducerIdRequest=1, JoinGroupRequest=3, OffsetCommitRequest=7, FetchRequest=11
)
KEPT, GOES = "kept", "goes"
ROWS = 60
SETTINGS = {
    "log.segment.bytes": "1048576",
    "log.retention.bytes": "4194304",
    "log.retention.check.interval.ms": "5000",
    "log.segment.delete.delay.ms": "1000",
    "offsets.retention.check.interval.ms": "10000",
    "producer.id.expiration.ms": "60000",
    "producer.id.expiration.check.interval.ms": "10000",
    "transactional.id.expiration.ms": "60000",
}


def serve(directory: str) -> None:
    """Be the broker, and answer each line of standard input with what there is."""
    from minibroker import Broker

    with Broker(topics=[f"{KEPT}:2"], data_dir=directory, config=SETTINGS) as broker:
        print(broker.bootstrap_servers, flush=True)
        for _ in sys.stdin:
            loop: Any = broker._loop
            print(json.dumps({"tasks": len(asyncio.all_tasks(loop))}), flush=True)


class Watched:
    """The broker as a process that is looked at."""

    def __init__(self, directory: Path):
        self._log = (directory / "log.txt").open("wb")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "bench.broker.churn", "--serve", str(directory / "data")],
            cwd=ROOT,
            env=ENVIRONMENT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )
        self.address = self._line()

    def look(self) -> dict[str, float]:
        assert self.process.stdin
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        found: dict[str, float] = json.loads(self._line())
        status = dict(
            line.split(":", 1)
            for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
            if ":" in line
        )
        found["rss_mb"] = int(status["VmRSS"].split()[0]) / 1024
        found["anonymous_mb"] = int(status["RssAnon"].split()[0]) / 1024
        found["handles"] = len(os.listdir(f"/proc/{self.process.pid}/fd"))
        return found

    def stop(self) -> None:
        assert self.process.stdin
        self.process.stdin.close()
        self.process.wait(60)
        self._log.close()

    def _line(self) -> str:
        assert self.process.stdout
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"the broker has gone: status {self.process.wait()}")
        return line.strip()


def joins(group: str) -> bytes:
    protocol: Any = message("JoinGroupRequest").JoinGroupRequestProtocol  # type: ignore[attr-defined]
    return encoded(
        "JoinGroupRequest",
        group_id=group,
        session_timeout_ms=6_000,
        rebalance_timeout_ms=6_000,
        member_id="",
        protocol_type="consumer",
        protocols=[protocol(name="range", metadata=b"")],
    )


def commits(group: str, offset: int) -> bytes:
    topic: Any = message("OffsetCommitRequest").OffsetCommitRequestTopic  # type: ignore[attr-defined]
    partition = topic.OffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata="")
    topics = [topic(name=KEPT, partitions=[partition])]
    return encoded("OffsetCommitRequest", group_id=group, generation_id_or_member_epoch=-1, member_id="", topics=topics)


def churn(address: str, number: int) -> None:
    """One round of it all."""
    with Raw(address) as raw:
        topics = Topics(raw)
        for size, count in ((100, 1), (1000, 100), (100, 1000)):
            raw.round_trips(produce_frame(KEPT, batch(size, count)), 5)
        ((start, end), *_) = topics.ends(KEPT, 2)
        raw.send(fetch_frame(KEPT, max(start, end - 1000), 1 << 20))
        raw.send(encoded("InitProducerIdRequest", transactional_id=None, transaction_timeout_ms=60_000))
        group = f"group-{number % 50}"
        if raw.ask("FindCoordinatorRequest", key=group, key_type=0).error_code == 0:
            raw.round_trips(commits(group, number), 5)
            if number % 5 == 0:
                raw.send(joins(f"joined-{number % 50}"))  # it is never heard of again
        if number % 10 == 0:
            name = f"{GOES}-{number}"
            topics.create(name, 3)
            raw.round_trips(produce_frame(name, batch(100, 10)), 1)
            topics.delete(name)
    with Raw(address) as raw:  # asks for what is not there yet, and does not wait for it
        raw._socket.sendall(fetch_frame(KEPT, end + 100, 1 << 20))
    with Raw(address) as raw:  # half a request
        raw._socket.sendall(produce_frame(KEPT, batch(100, 10))[:50])


def measure(minutes: float, pause: float) -> None:
    directory = Path(tempfile.mkdtemp(prefix="bench-churn-"))
    rows: list[dict[str, float]] = []
    broker = Watched(directory)
    try:
        began, number = time.monotonic(), 0
        seconds = minutes * 60
        while (elapsed := time.monotonic() - began) < seconds:
            churn(broker.address, number)
            number += 1
            if elapsed >= len(rows) * seconds / ROWS:
                rows.append({"seconds": round(elapsed), "rounds": number, **broker.look()})
                print(", ".join(f"{name} {value:,.6g}" for name, value in rows[-1].items()), flush=True)
            time.sleep(pause)
    finally:
        broker.stop()
        shutil.rmtree(directory, ignore_errors=True)
    quarter = max(len(rows) // 4, 1)
    for name in ("rss_mb", "anonymous_mb", "handles", "tasks"):
        second, last = (
            statistics.median(row[name] for row in part) for part in (rows[quarter : 2 * quarter], rows[-quarter:])
        )
        print(f"{name}: second quarter {second:,.6g}, last quarter {last:,.6g} (medians)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--pause", type=float, default=0.0, help="seconds between rounds")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(options.serve)
    else:
        measure(options.minutes, options.pause)


if __name__ == "__main__":
    main()

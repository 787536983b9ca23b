"""Our broker in memory beside our broker on a disk, in one run: is memory ever slower, and what does it take?

Each round of a load takes all of them in turn and begins with another one; figures are medians over the rounds. What
counts is CPU time of the broker's process: no figure is a wall time. Other working trees may be put beside this one,
to see what a change does: `--tree before=PATH`. "most resident" is of brokers of their own that had nothing else to do.

    python -m bench.broker.memory [--rounds N] [--only 'fetch'] [--tree NAME=PATH]...
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from bench.broker.brokers import MINIBROKER, Broker, Kind, Order
from bench.broker.load import batch, check_stored
from bench.broker.raw import Raw, Topics, fetch_frame, produce_frame
from bench.broker.rounds import Figures, Rounds

# Of a batch: how many records of how many bytes, and how many batches are sent in a round.
LOADS = {"1 MiB": (1024, 970, 192), "16 KiB": (1024, 15, 3000), "1 record": (100, 1, 12_000)}
LARGE = 1_000_000  # bytes: a batch from here on is measured by the GB, and sent alone
IN_FLIGHT = 16  # requests of others
PARTITIONS = 2000
SEGMENT_BATCHES = 900  # of 1 MiB: most of a segment
# What a round has written goes at once, so that the next one finds pages that this machine has touched before: where
# free memory goes back to a host, a fresh page costs several times as much, on a disk and in memory.
SETTINGS = ("-o", "log.segment.delete.delay.ms=0")


def kind(tree: Path, *where: str) -> Kind:
    """Return how a broker of a working tree is started."""

    def commands(order: Order) -> list[list[str]]:
        there = [word.replace("DIRECTORY", str(order.directory)) for word in where]
        return [
            [
                "env",
                "-C",
                str(tree),
                f"PYTHONPATH={tree}",
                *MINIBROKER,
                "--port",
                str(order.ports[0]),
                *SETTINGS,
                *there,
            ]
        ]

    return Kind(commands)


class Comparison(Rounds):
    """One run."""

    def __init__(self, kinds: dict[str, Kind], rounds: int, only: str, directory: Path):
        super().__init__("memory", rounds, only)
        self.kinds = kinds
        self.directory = directory
        self.topics = 0

    def run(self) -> None:
        try:
            self.begin("loads")
            for name in LOADS:
                frame = produce_frame("warm", batch(*LOADS[name][:2]))
                self.each_alone(f"warm up {name}", lambda broker: sent(broker, "warm", [frame], 200, 1, 0))  # noqa: B023
            for name, load in LOADS.items():
                self.measure(f"produce {name}", lambda broker: self.produce(broker, *load))  # noqa: B023
                self.fetch(name, *load)
            self.stop()
            self.begin("size")
            self.measure_once("idle", lambda broker: broker.memory_mb())
            self.measure_once(f"{PARTITIONS} partitions", idle_partitions)
            self.measure_once(f"{PARTITIONS} partitions of a record", used_partitions)
            self.stop()
            self.begin("full")
            self.measure_once(f"{SEGMENT_BATCHES} batches of 1 MiB", filled)
        finally:
            self.stop()
            self.close()

    def begin(self, what: str) -> None:
        for place, (name, made) in enumerate(self.kinds.items()):
            self.brokers.append(Broker(name, made, self.directory / f"{what}-{place}", {}))

    def measure_once(self, what: str, load: Callable[[Broker], Figures]) -> None:
        if self.only in what:
            self.each_alone(what, load)

    def produce(self, broker: Broker, record_bytes: int, records: int, count: int) -> Figures:
        """Append to a topic of its own."""
        self.topics += 1
        topic = f"topic-{self.topics}"
        broker.create_topic(topic, 1)
        data = batch(record_bytes, records)
        figures = sent(broker, topic, [produce_frame(topic, data)], count, in_flight_of(data), len(data))
        with Raw(broker.address) as raw:
            check_stored(raw, topic, 0, count * records)
            Topics(raw).delete(topic)
        return figures

    def fetch(self, name: str, record_bytes: int, records: int, count: int) -> None:
        """Read a topic, batch by batch."""
        topic = f"fetched-{name.replace(' ', '-')}"
        data = batch(record_bytes, records)
        count = min(count, 1000)
        frames = [fetch_frame(topic, number * records, len(data)) for number in range(count)]
        if self.only in f"fetch {name}":
            for broker in self.brokers:
                broker.create_topic(topic, 1)
                sent(broker, topic, [produce_frame(topic, data)], count, 1, 0)
        rounds = LOADS[name][2] // count
        self.measure(
            f"fetch {name}", lambda broker: sent(broker, topic, frames, count * rounds, in_flight_of(data), len(data))
        )


def in_flight_of(data: bytes) -> int:
    return 1 if len(data) > LARGE else IN_FLIGHT


def sent(broker: Broker, topic: str, frames: Sequence[bytes], count: int, in_flight: int, batch_bytes: int) -> Figures:
    """Send frames in turn, so many in all; say what each batch took of the broker's CPU."""
    if topic == "warm":
        broker.create_topic(topic, 1)
    with Raw(broker.address) as raw:
        raw.ask("ApiVersionsRequest")
        cpu = broker.cpu_seconds()
        raw.send_all(frames, count, in_flight)
        cpu = broker.cpu_seconds() - cpu
    if batch_bytes > LARGE:
        return {"cpu_s_per_gb": cpu / (count * batch_bytes) * 1e9}
    return {"cpu_us": cpu / count * 1e6}


def idle_partitions(broker: Broker) -> Figures:
    broker.create_topic("many", PARTITIONS)
    return broker.memory_mb()


def used_partitions(broker: Broker) -> Figures:
    frame = produce_frame("many", batch(100, 1))
    place = frame.index(b"many") + len("many") + 4  # behind the name a count, then the partition
    with Raw(broker.address) as raw:
        for partition in range(PARTITIONS):
            raw.send(frame[:place] + partition.to_bytes(4, "big") + frame[place + 4 :])
        check_stored(raw, "many", 0, 1)
    return broker.memory_mb()


def filled(broker: Broker) -> Figures:
    broker.create_topic("full", 1)
    sent(broker, "full", [produce_frame("full", batch(*LOADS["1 MiB"][:2]))], SEGMENT_BATCHES, 1, 0)
    return {**broker.memory_mb(), "most_resident_mb": broker.most_resident_mb()}


def table(comparison: Comparison) -> str:
    """Return a row for each figure, a column for each broker."""
    found: dict[tuple[str, str], dict[str, list[float]]] = {}
    for row in comparison.rows:
        for figure, value in row["figures"].items():
            found.setdefault((row["what"], figure), {}).setdefault(row["broker"], []).append(value)
    names = list(comparison.kinds)
    lines = [f"| load | figure | {' | '.join(names)} |", "|---|---|" + "---:|" * len(names)]
    for (what, figure), by_name in found.items():
        if not what.startswith("warm"):
            cells = [f"{statistics.median(by_name[name]):,.3g}" if name in by_name else "–" for name in names]
            lines.append(f"| {what} | {figure} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default="", help="loads whose name has this in it")
    parser.add_argument("--tree", action="append", default=[], metavar="NAME=PATH", help="another one, beside this")
    arguments = parser.parse_args()
    trees = {"": Path(__file__).resolve().parent.parent.parent}
    trees |= {f", {name}": Path(path) for name, _, path in (each.partition("=") for each in arguments.tree)}
    kinds = {}
    for name, tree in trees.items():
        kinds[f"disk{name}"] = kind(tree, "--data-dir", "DIRECTORY/data")
        kinds[f"memory{name}"] = kind(tree, "--memory")
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR")) as directory:
        comparison = Comparison(kinds, arguments.rounds, arguments.only, Path(directory))
        comparison.run()
    print(table(comparison))
    print(comparison.said(quick=False))


if __name__ == "__main__":
    main()

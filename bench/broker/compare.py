"""Us beside real Kafka, franz-go's kfake and librdkafka's mock: the same loads in one run, interleaved.

All brokers run at the same time and only one is loaded at a time: each round of a load takes them in turn, so that a
busy moment of the machine hits all of them, and each round begins with another one. Figures are medians over the
rounds, ratios the medians of the ratios within each round. It prints and never fails: whether a mark is reached is
for the reader of the table.
Every measurement is one line of JSON in build/bench, what has been done so far goes to stderr, the table to stdout.

    python -m bench.broker.compare [--quick] [--rounds N] [--brokers minibroker,Kafka] [--only fetch]
    python -m bench.broker.table FILE...     the table of runs before
"""

from __future__ import annotations

import argparse
import itertools
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from bench.broker import load as loads
from bench.broker.brokers import BROKERS, Broker, lacks
from bench.broker.load import Load
from bench.broker.rounds import Figures, Rounds
from bench.broker.table import KAFKA, table

QUICK_BROKERS = ("minibroker", "minibroker memory", "compiled", "compiled memory", "Kafka", "kfake", "mock")
WARM_UP = Load(100, 1, "none", "all")
KAFKA_WARM_UPS = 5
SMALL, LARGE = "small", "large"  # topics
LARGE_BATCHES = 64


class Plan(NamedTuple):
    """How much is measured."""

    loads: list[Load]
    records: dict[int, int]  # how many, by their size
    warm_up_records: int
    round_trips: int
    seconds: float  # of loads that have no end of their own


QUICK = Plan(
    [Load(100, 1, "none", "all"), Load(1024, 1, "none", "all")], {100: 200_000, 1024: 50_000}, 300_000, 1000, 0.5
)
FULL = Plan(
    [Load(*each) for each in itertools.product((100, 1024), (1, 3), ("none", "lz4"), ("1", "all"))],
    {100: 1_000_000, 1024: 200_000},
    500_000,
    5000,
    2.0,
)


class Comparison(Rounds):
    """One run of all the loads."""

    def __init__(self, names: list[str], plan: Plan, rounds: int, only: str, directory: Path):
        super().__init__("brokers", rounds, only)
        self.names, self.plan, self.directory = names, plan, directory
        self.topics = {each.topic: each.partitions for each in [*plan.loads, WARM_UP]} | {SMALL: 1, LARGE: 1}

    def run(self) -> None:
        try:
            self.start()
            self.each_alone("warm up", self.warm_up)
            for each in self.plan.loads:
                self.librdkafka(each)
            self.small_requests()
            self.large_fetches()
            self.each_alone("after load", lambda broker: broker.memory_mb())
        finally:
            self.stop()
            self.close()

    def start(self) -> None:
        """Start each broker once a round; those of the last round stay."""
        for number in range(self.rounds):
            self.stop()
            for place, name in enumerate(self.names):
                broker = Broker(name, BROKERS[name], self.directory / f"{place}-{number}", self.topics)
                self.brokers.append(broker)
                self.note("start", name, number, broker.started)
        time.sleep(2)  # what a broker still does after its first answers is no idling
        self.each_alone("idle", lambda broker: broker.memory_mb())

    def warm_up(self, broker: Broker) -> Figures:
        """Do everything once; Kafka more often, as its JVM compiles what has run for a while."""
        broker.create_topic(WARM_UP.topic, WARM_UP.partitions)
        broker.create_topic(SMALL, 1)
        for _ in range(KAFKA_WARM_UPS if broker.name == KAFKA else 1):
            figures = loads.produce(broker, WARM_UP, self.plan.warm_up_records)
            loads.fetch(broker, WARM_UP, self.plan.warm_up_records)
            loads.pipelined(broker, SMALL, self.plan.seconds)
            loads.commits(broker, SMALL, self.plan.seconds)
            loads.round_trips(broker, SMALL, self.plan.round_trips)
        broker.delete_topic(WARM_UP.topic)
        return figures

    def librdkafka(self, each: Load) -> None:
        count = self.plan.records[each.record_bytes]
        for broker in self.brokers:
            broker.create_topic(each.topic, each.partitions)
        self.measure(f"produce {each}", lambda broker: loads.produce(broker, each, count))
        if each.acks == "all":  # how they came there is all the same to a consumer
            words = str(each).removesuffix(", acks all")
            self.measure(f"fetch {words}", lambda broker: loads.fetch(broker, each, count))
        for broker in self.brokers:
            broker.delete_topic(each.topic)

    def small_requests(self) -> None:
        count, seconds = self.plan.round_trips, self.plan.seconds
        self.measure("round trip, 1 x 100 B", lambda broker: loads.round_trips(broker, SMALL, count))
        self.measure("pipelined, 1 x 100 B, 64 in flight", lambda broker: loads.pipelined(broker, SMALL, seconds))
        self.measure("commits, 64 in flight", lambda broker: loads.commits(broker, SMALL, seconds))

    def large_fetches(self) -> None:
        for broker in self.brokers:
            broker.create_topic(LARGE, 1)
            loads.fill_large(broker, LARGE, LARGE_BATCHES)
        seconds = self.plan.seconds
        self.measure("1 MiB fetches, 1 in flight", lambda broker: loads.large_fetches(broker, LARGE, seconds, 1))
        self.measure("1 MiB fetches, 4 in flight", lambda broker: loads.large_fetches(broker, LARGE, seconds, 4))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="two loads and small counts: under two minutes")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--brokers", help=f"some of: {', '.join(BROKERS)}; the first is started first")
    parser.add_argument("--only", default="", help="loads whose name has this in it")
    arguments = parser.parse_args()
    names = arguments.brokers.split(",") if arguments.brokers else list(QUICK_BROKERS if arguments.quick else BROKERS)
    for name in list(names):
        if reason := lacks(BROKERS[name]):
            print(f"{name} is left out: {reason}", file=sys.stderr)
            names.remove(name)

    directory = Path(tempfile.mkdtemp(prefix="bench-broker-"))
    plan = QUICK if arguments.quick else FULL
    comparison = Comparison(names, plan, arguments.rounds, arguments.only, directory)
    try:
        comparison.run()
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    print(table(comparison.rows), comparison.said(arguments.quick), sep="\n\n")


if __name__ == "__main__":
    main()

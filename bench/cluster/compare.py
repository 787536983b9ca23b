"""Three replicas beside one, and beside a real Kafka of three brokers: the same loads in one run, interleaved.

    loads        produce with acks=all and fetch through librdkafka, single requests over a plain socket to the leader;
                 how long a record takes to a consumer that waits for it, with librdkafka's own settings
    start        from the start of the process until all brokers answer, and until a record is acknowledged
    partitions   10,000 replicas: how long they take to make, what they hold, what they cost while nothing happens
    events       produce while nobody watches, and while somebody in the process is told of one kind or of everything
    inside       from an append to the high watermark without sockets (inside.py)

How it is measured is as in bench/broker: all run at once, one is loaded at a time, medians over rounds, ratios the
medians of those within each round. It prints and never fails.
Every measurement is one line of JSON in build/bench, what has been done so far goes to stderr, the tables to stdout.

    python -m bench.cluster.compare [--quick] [--rounds N] [--parts loads,events]
    python -m bench.cluster.tables FILE...     the tables of runs before
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from bench.broker import load as loads
from bench.broker.brokers import Broker, lacks
from bench.broker.load import Load
from bench.broker.raw import Raw, Topics
from bench.broker.rounds import Figures, Rounds, in_turn
from bench.cluster import inside
from bench.cluster.kinds import (
    BROKERS,
    EVERYTHING,
    KAFKA,
    KINDS,
    NOBODY,
    ONE,
    ONE_KIND,
    ONE_MEMORY,
    THREE,
    THREE_MEMORY,
    UNREPLICATED,
    watched,
)
from bench.cluster.tables import tables

PARTS = ("start", "loads", "partitions", "events", "inside")
LOADS = [Load(100, 1, "none", "all"), Load(1024, 1, "none", "all")]
WARM_UP = Load(100, 1, "lz4", "all")
KAFKA_WARM_UPS = 3
SMALL, MANY = "small", "many"  # topics
SETTLE_SECONDS = 3.0
# Records of 100 bytes: alone, as Kafka's batch.size of 16 KiB takes, and nearly as many as librdkafka puts into 1 MiB.
EVENT_BATCHES = {"1 x 100 B": 1, "150 x 100 B": 150, "1,000 x 100 B": 1000, "9,000 x 100 B": 9000}


class Plan(NamedTuple):
    """How much is measured."""

    rounds: int
    starts: int  # of each
    records: dict[int, int]  # how many, by their size
    warm_up_records: int
    round_trips: int
    deliveries: int  # to a consumer, one by one
    seconds: float  # of loads that have no end of their own
    partitions: int  # of three replicas each
    idle_seconds: float
    event_rounds: int
    appends: int  # inside


QUICK = Plan(3, 1, {100: 200_000, 1024: 40_000}, 100_000, 500, 150, 0.4, 667, 5.0, 5, 1000)
FULL = Plan(5, 3, {100: 500_000, 1024: 100_000}, 200_000, 1500, 400, 0.7, 3334, 10.0, 5, 1500)


class Clusters(Rounds):
    """One run."""

    def __init__(self, plan: Plan, directory: Path, with_kafka: bool):
        super().__init__("cluster", plan.rounds, "")
        self.plan, self.directory = plan, directory
        self.with_kafka = with_kafka
        self._made = 0

    def names(self, *wanted: str) -> list[str]:
        return [name for name in wanted if name != KAFKA or self.with_kafka]

    def begin(self, name: str) -> Broker:
        self._made += 1
        return Broker(name, KINDS[name], self.directory / str(self._made), {})

    # Start

    def start(self) -> None:
        """Each as often as planned, and alone: Kafka's three take both cores."""
        names = self.names(ONE, ONE_MEMORY, THREE, THREE_MEMORY, KAFKA)
        for number in range(self.plan.starts):
            for name in in_turn(names, number):
                broker = self.begin(name)
                time.sleep(1)  # what it still does after its first answers
                self.note("start", name, number, broker.started | broker.memory_mb())
                broker.stop()

    # Loads

    def loads(self) -> None:
        for name in self.names(ONE, ONE_MEMORY, UNREPLICATED, THREE, THREE_MEMORY, KAFKA):
            self.brokers.append(self.begin(name))
        self.each_alone("warm up", self.warm_up)
        for each in LOADS:
            count = self.plan.records[each.record_bytes]
            for broker in self.brokers:
                broker.create_topic(each.topic, 1)
            self.measure(f"produce {each.size}", lambda broker: loads.produce(broker, each, count))  # noqa: B023
            self.measure(f"fetch {each.size}", lambda broker: loads.fetch(broker, each, count))  # noqa: B023
            for broker in self.brokers:
                broker.delete_topic(each.topic)
        self.measure("round trip, 1 x 100 B", self.round_trips)
        self.measure("pipelined, 1 x 100 B, 64 in flight", self.pipelined)
        self.measure("delivery, 1 x 100 B", lambda broker: loads.deliveries(broker, SMALL, self.plan.deliveries))
        self.each_alone("after load", lambda broker: broker.memory_mb())

    def warm_up(self, broker: Broker) -> Figures:
        """Do everything once; Kafka more often, as its JVMs compile what has run for a while."""
        broker.create_topic(WARM_UP.topic, 1)
        broker.create_topic(SMALL, 1)
        for _ in range(KAFKA_WARM_UPS if broker.name == KAFKA else 1):
            figures = loads.produce(broker, WARM_UP, self.plan.warm_up_records)
            loads.fetch(broker, WARM_UP, self.plan.warm_up_records)
            loads.pipelined(broker, SMALL, self.plan.seconds)
            loads.round_trips(broker, SMALL, self.plan.round_trips)
            loads.deliveries(broker, SMALL, self.plan.deliveries)
        broker.delete_topic(WARM_UP.topic)
        return figures

    # Partitions

    def partitions(self) -> None:
        for name in self.names(THREE, THREE_MEMORY, KAFKA):
            broker = self.begin(name)
            self.attempt(f"{self.plan.partitions * BROKERS:,} replicas", broker, 0, self.many_partitions)
            broker.stop()

    def many_partitions(self, broker: Broker) -> Figures:
        time.sleep(SETTLE_SECONDS)
        before = broker.memory_mb()["rss_mb"]
        idle = self.idle_percent(broker)
        cpu, start = broker.cpu_seconds(), time.perf_counter()
        broker.create_topic(MANY, self.plan.partitions)
        for address in broker.address.split(",")[1:]:
            with Raw(address) as raw:
                Topics(raw).wait(MANY, self.plan.partitions)
        made = time.perf_counter() - start
        time.sleep(SETTLE_SECONDS)
        after = broker.memory_mb()["rss_mb"]
        cpu = broker.cpu_seconds() - cpu
        return {
            "create_s": made,
            "create_cpu_s": cpu,
            "before_mb": before,
            "after_mb": after,
            "before_percent": idle,
            "idle_percent": self.idle_percent(broker),
        }

    def idle_percent(self, broker: Broker) -> float:
        """Return how much of a core it takes while nobody asks for anything."""
        cpu, start = broker.cpu_seconds(), time.perf_counter()
        time.sleep(self.plan.idle_seconds)
        return (broker.cpu_seconds() - cpu) / (time.perf_counter() - start) * 100

    # Events

    def events(self) -> None:
        for words, brokers in (("one broker", 1), (f"{BROKERS} brokers, RF {BROKERS}", BROKERS)):
            self._made += 1
            broker = Broker(words, watched(brokers), self.directory / str(self._made), {})
            try:
                for each, records in EVENT_BATCHES.items():
                    self.watch(f"produce {each}, {words}", broker, lambda broker: self.produced(broker, records))  # noqa: B023
            finally:
                broker.stop()

    def watch(self, what: str, broker: Broker, load: Callable[[Broker], Figures]) -> None:
        """Do a load while nobody watches and while somebody does, in turn."""
        load(broker)
        for number in range(self.plan.event_rounds):
            for state in in_turn((NOBODY, ONE_KIND, EVERYTHING), number):
                if state != NOBODY:
                    broker.tell("watch" if state == EVERYTHING else "watch leader")
                figures = load(broker)
                if state != NOBODY:
                    figures["events"] = float(broker.tell("rest")) / figures["requests"]
                self.note(what, state, number, figures)

    def produced(self, broker: Broker, records: int) -> Figures:
        """Produce batches of one length, so that there are as many whoever watches, to a topic that is gone then."""
        broker.create_topic(SMALL, 1)
        figures = loads.batches(broker, SMALL, records, self.plan.seconds)
        broker.delete_topic(SMALL)
        return figures

    def pipelined(self, broker: Broker) -> Figures:
        return loads.pipelined(broker, SMALL, self.plan.seconds)

    def round_trips(self, broker: Broker) -> Figures:
        return loads.round_trips(broker, SMALL, self.plan.round_trips)

    # Inside

    def inside(self) -> None:
        for number in range(self.plan.rounds):
            for records, words in ((1, "1 x 100 B"), (1000, "1000 x 100 B")):
                for what in ("by events", "unobserved", "looks"):
                    figures = inside.measure(what, records, self.plan.appends)
                    self.note(f"append of {words} to high watermark, {what}", "inside", number, figures)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small counts: about four minutes")
    parser.add_argument("--rounds", type=int, help="of everything but the starts")
    parser.add_argument("--parts", default=",".join(PARTS), help=f"some of {', '.join(PARTS)}")
    arguments = parser.parse_args()
    plan = QUICK if arguments.quick else FULL
    if arguments.rounds:
        plan = plan._replace(rounds=arguments.rounds, event_rounds=arguments.rounds)
    if reason := lacks(KINDS[KAFKA]):
        print(f"{KAFKA} is left out: {reason}", file=sys.stderr)

    directory = Path(tempfile.mkdtemp(prefix="bench-cluster-"))
    clusters = Clusters(plan, directory, with_kafka=not reason)
    try:
        for part in arguments.parts.split(","):
            try:
                getattr(clusters, part)()
            except Exception as failure:
                print(f"{part}: {type(failure).__name__}: {failure}", file=sys.stderr)
            finally:
                clusters.stop()
    finally:
        clusters.close()
        shutil.rmtree(directory, ignore_errors=True)
    print(tables(clusters.rows), clusters.said(arguments.quick), sep="\n\n")


if __name__ == "__main__":
    main()

"""Groups beside a real Kafka's: the same clients and requests in one run, interleaved.

    first record   from the construction of a new consumer in a new group until it has its first record
    heartbeats     many groups of three members, each member every 3 s: CPU, and what a group takes
    commits        one offset a request

Kafka twice: as its own settings are, and with group.initial.rebalance.delay.ms=0, as the broker here has it by default.
How it is measured is as in bench/broker. It prints and never fails.

    python -m bench.groups.compare [--quick] [--only commits]
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

from bench.broker.brokers import BROKERS, Broker, Kind, Order, kafka, lacks
from bench.broker.rounds import Rounds
from bench.groups import load

NO_DELAY = "Kafka, delay 0"
CLIENTS = {
    "kafka-python": load.kafka_python,
    "confluent-kafka": load.confluent,
    "confluent-kafka, consumer protocol": load.confluent_consumer_protocol,
}


def kafka_without_delay(order: Order) -> list[list[str]]:
    return kafka(order, {"group.initial.rebalance.delay.ms": "0"})


KINDS = {
    "minibroker": BROKERS["minibroker"],
    "minibroker memory": BROKERS["minibroker memory"],
    "Kafka": BROKERS["Kafka"],
    NO_DELAY: Kind(kafka_without_delay, BROKERS["Kafka"].tools, BROKERS["Kafka"].make),
}


def table(rows: list[dict[str, Any]], names: list[str]) -> str:
    """Return the medians, and ours over Kafka's."""
    found: dict[tuple[str, str], dict[str, list[float]]] = {}
    for row in rows:
        for figure, value in row["figures"].items():
            found.setdefault((row["what"], figure), {}).setdefault(row["broker"], []).append(value)
    lines = [f"| load | figure | {' | '.join(names)} | ours to {NO_DELAY} |", f"|---|---|{'---:|' * (len(names) + 1)}"]
    for (what, figure), by_name in found.items():
        medians = {name: statistics.median(by_name[name]) if name in by_name else None for name in names}
        ours, other = medians.get("minibroker"), medians.get(NO_DELAY)
        ratio = f"{ours / other:.2f}" if ours is not None and other else "–"
        cells = " | ".join("–" if medians[name] is None else f"{medians[name]:,.4g}" for name in names)
        lines.append(f"| {what} | {figure} | {cells} | {ratio} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small counts: about a minute")
    parser.add_argument("--only", default="", help="a part of a load's name")
    arguments = parser.parse_args()
    rounds, consumers, groups, seconds = (2, 3, 100, 2.0) if arguments.quick else (5, 5, load.GROUPS, 9.0)
    names = []
    for name, kind in KINDS.items():
        if reason := lacks(kind):
            print(f"{name} is left out: {reason}", file=sys.stderr)
        else:
            names.append(name)
    directory = Path(tempfile.mkdtemp(prefix="bench-groups-"))
    run = Rounds("groups", rounds, arguments.only)
    try:
        for name in names:
            run.brokers.append(Broker(name, KINDS[name], directory / str(len(run.brokers)), {}))
        run.each_alone("ready", load.prepare)
        for client, consume in CLIENTS.items():
            run.measure(
                f"first record, {client}",
                partial(load.first_records, consume=consume, rounds=consumers),
            )
        run.measure("commits", partial(load.commits, seconds=min(seconds, 3.0)))
        if arguments.only in (many := f"{groups:,} groups of {load.MEMBERS}"):
            # With Kafka's own settings each group takes three seconds to come together, one after the other.
            run.brokers = [broker for broker in run.brokers if broker.name != "Kafka" or broker.stop()]
            run.each_alone(many, partial(load.heartbeats, groups=groups, seconds=seconds))
    finally:
        run.stop()
        run.close()
        shutil.rmtree(directory, ignore_errors=True)
    print(table(run.rows, names), run.said(arguments.quick), sep="\n\n")


if __name__ == "__main__":
    main()

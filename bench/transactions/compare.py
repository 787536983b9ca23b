"""Transactions beside a real Kafka's: the same clients in one run, interleaved; one replica of each, and three.

Of one record each and of a hundred, by one producer and by sixteen at once, classic and v2 (load.py). It is measured as
in bench/broker is: medians over rounds, ratios the medians of those within each round. It prints and never fails.

    python -m bench.transactions.compare [--quick] [--rounds N] [--factors 'RF 1'] [--only 'v2, 1 producer']
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

from bench.broker.brokers import BROKERS as SINGLE
from bench.broker.brokers import Broker, Kind, Order, fetch_kafka, kafka, lacks
from bench.broker.rounds import Figures, Rounds
from bench.cluster.kinds import BROKERS, on_disk
from bench.transactions import load

OURS, KAFKA = "minibroker", "Kafka"
MANY = 16
RECORDS = {1: "1 record", 100: "100 records"}
KAFKA_WARM_UPS = 5
REPLICATED = {
    "transaction.state.log.replication.factor": str(BROKERS),
    "offsets.topic.replication.factor": str(BROKERS),
    "transaction.state.log.min.isr": "2",
}


def three_kafkas(order: Order) -> list[list[str]]:
    return kafka(order, REPLICATED)


KINDS = {
    "RF 1": {OURS: SINGLE["minibroker"], KAFKA: SINGLE["Kafka"]},
    "RF 3": {
        OURS: Kind(on_disk, brokers=BROKERS, replicas=BROKERS, prints_address=True),
        KAFKA: Kind(three_kafkas, ("java", "mvn"), fetch_kafka, brokers=BROKERS, processes=BROKERS, replicas=BROKERS),
    },
}


def table(rows: list[dict[str, Any]]) -> str:
    """Return the medians, and the medians of the ratios within the rounds."""
    found: dict[tuple[str, str], dict[str, dict[int, float]]] = {}
    for row in rows:
        for figure, value in row["figures"].items():
            found.setdefault((row["what"], figure), {}).setdefault(row["broker"], {})[row["round"]] = value
    lines = [f"| load | figure | {OURS} | {KAFKA} | to {KAFKA} |", "|---|---|---:|---:|---:|"]
    for (what, figure), by_name in found.items():
        ours, others = by_name.get(OURS, {}), by_name.get(KAFKA, {})
        ratios = [value / others[number] for number, value in ours.items() if others.get(number)]
        cells = [f"{statistics.median(each.values()):,.4g}" if each else "–" for each in (ours, others)]
        lines.append(f"| {what} | {figure} | {' | '.join(cells)} | {_ratio(ratios)} |")
    return "\n".join(lines)


def _ratio(ratios: list[float]) -> str:
    return f"{statistics.median(ratios):.2f}" if ratios else "–"


def warm_up(broker: Broker, seconds: float) -> Figures:
    """Do everything once; Kafka more often, as its JVM compiles what has run for a while."""
    figures: Figures = {}
    for _ in range(KAFKA_WARM_UPS if broker.name == KAFKA else 1):
        for is_v2 in (False, True):
            figures = load.raw(broker, MANY, 1, seconds, is_v2=is_v2)
    return figures


def measure(run: Rounds, factor: str, seconds: float) -> None:
    run.each_alone(f"{factor}, warm up", partial(warm_up, seconds=seconds))
    for records, words in RECORDS.items():
        for is_v2, protocol in ((False, "classic"), (True, "v2")):
            for producers in (1, MANY):
                run.measure(
                    f"{factor}, {protocol}, {producers} producer{'s' * (producers > 1)}, {words}",
                    partial(load.raw, producers=producers, records=records, seconds=seconds, is_v2=is_v2),
                )
        run.measure(f"{factor}, librdkafka, {words}", partial(load.librdkafka, records=records, seconds=seconds))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="three rounds of a second: about four minutes")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--seconds", type=float, help="of each load")
    parser.add_argument("--only", default="", help="a part of a load's name")
    parser.add_argument("--factors", default=",".join(KINDS), help=f"some of {', '.join(KINDS)}")
    arguments = parser.parse_args()
    rounds, seconds = (3, 1.0) if arguments.quick else (5, 3.0)
    rounds, seconds = arguments.rounds or rounds, arguments.seconds or seconds
    directory = Path(tempfile.mkdtemp(prefix="bench-transactions-"))
    run = Rounds("transactions", rounds, arguments.only)
    try:
        for factor, kinds in KINDS.items():
            if factor not in arguments.factors.split(","):
                continue
            for name, kind in kinds.items():
                if reason := lacks(kind):
                    print(f"{name} is left out: {reason}", file=sys.stderr)
                else:
                    run.brokers.append(Broker(name, kind, directory / factor / name, {}))
            measure(run, factor, seconds)
            run.stop()
    finally:
        run.stop()
        run.close()
        shutil.rmtree(directory, ignore_errors=True)
    print(table([row for row in run.rows if "warm up" not in row["what"]]), run.said(arguments.quick), sep="\n\n")


if __name__ == "__main__":
    main()

"""Our data source beside Spark's own Kafka connector: the same session, the same topic, the same queries, in turn.

    read      a topic of two million records of 200 bytes, out of our broker (`--broker Kafka`: out of Kafka's): the
              connector as it is and with larger fetches (tuned), our wire mode, and our path
              mode, which reads the broker's directory. count; aggregate (rows, bytes and newest time of each
              partition); by key (64 groups by a hash of it); Parquet (all columns are written). "Named": with a schema
              of the columns that the query needs, which the connector cannot be told
    write     as many records to a topic: the connector's sink and ours
    bulk load as many records into a new directory; "nowhere" is what making the rows costs, without any writing
    memory    a topic of 4 GB on local[2] with 1 GB for the JVM: the most memory of the JVM and of a Python worker

All share one session, so the JVM is as warm for one as for the others: each does everything some times before it is
measured. CPU is that of the JVM and all Python workers, planning included; the broker's is shown beside it. The answers
of a query must be the same. Rounds take all in turn; figures are medians over the rounds, ratios the medians of
the ratios within each round.

    python -m bench.spark.compare [--quick] [--rounds N] [--only 'read none, aggregate'] [--broker Kafka]
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.broker.brokers import BROKERS, Broker
from bench.broker.rounds import Figures, Run, busy_seconds, in_turn
from bench.spark.memory import memory
from bench.spark.sessions import JVM, WORKERS, Session
from bench.spark.topics import produce

CONNECTOR, TUNED, WIRE, PATH, NOWHERE = "connector", "connector, tuned", "wire", "path", "nowhere"
# As much at a time as ours takes, instead of 500 records a poll and 1 MiB of a partition.
TUNING = {"kafka.max.poll.records": "20000", "kafka.max.partition.fetch.bytes": str(8 << 20)}
OURS, KAFKA = "minibroker", "Kafka"
DATA = {OURS: "data", KAFKA: "1/data"}  # where a broker keeps its logs
NAMED = ", named"
MARKS = {  # what we ask of ourselves: rows a second over the connector's
    ("count", PATH): 2.0,
    ("aggregate", PATH): 2.0,
    ("by key", PATH): 2.0,
    ("count", WIRE): 1.5,
    ("aggregate", WIRE): 1.5,
    ("by key", WIRE): 1.5,
    ("Parquet", PATH): 1.0,
    ("Parquet", WIRE): 1.0,
}
NEEDED = {  # columns, for queries that do not need all
    "count": "offset long",
    "aggregate": "partition int, value binary, timestamp timestamp",
    "by key": "key binary, offset long",
}
READS = [("none", query) for query in ("count", "aggregate", "by key", "Parquet")]
READS += [("lz4", query) for query in ("aggregate", "Parquet")]
WARM_UPS = 2
Step = Callable[[], dict[str, Any]]


class Queries(Run):
    """The measurements of one run: a broker, a session, and what is asked of them."""

    def __init__(self, work: Path, records: int, rounds: int, only: str, warm_ups: int, broker_name: str):
        super().__init__("spark", rounds)
        self.work, self.records, self.only = work, records, only
        self.warm_ups, self.broker_name = warm_ups, broker_name
        self.broker = Broker(broker_name, BROKERS[broker_name], work / "broker", {})
        self.session: Session | None = None

    def stop(self) -> None:
        if self.session is not None:
            self.session.stop()
        self.session = None
        self.broker.stop()
        self.close()

    def wants(self, what: str) -> bool:
        return self.only in what

    def measure(self, what: str, steps: dict[str, Step], records: int) -> None:
        """Do each step some times unmeasured, then once in each round."""
        for step in steps.values():
            for _ in range(self.warm_ups):
                step()
        for number in range(self.rounds):
            answers = []
            for name in in_turn(list(steps), number):
                figures, answer, others = self._measured(steps[name], records)
                self.note(what, name, number, figures, others=others)
                answers.append(answer)
            if any(each != answers[0] for each in answers):
                raise AssertionError(f"{what}: the answers differ: {answers}")

    def _measured(self, step: Step, records: int) -> tuple[Figures, Any, float]:
        assert self.session
        began, busy = time.perf_counter(), busy_seconds()
        before, of_broker, own = self.session.cpu_seconds(), self.broker.cpu_seconds(), time.process_time()
        done = step()
        after, of_broker = self.session.cpu_seconds(), self.broker.cpu_seconds() - of_broker
        used = {kind: after[kind] - before[kind] for kind in after}
        others = busy_seconds() - busy - sum(used.values()) - of_broker - (time.process_time() - own)
        figures = {
            "rows_s": records / done["seconds"],
            "rows_cpu_s": records / (used[JVM] + used[WORKERS]),
            "seconds": done["seconds"],
            "jvm_cpu_s": used[JVM],
            "workers_cpu_s": used[WORKERS],
            "broker_cpu_s": of_broker,
        }
        return figures, done["answer"], round(others / (time.perf_counter() - began), 2)


def reads(run: Queries, wanted: list[tuple[str, str]]) -> None:
    session, address = run.session, run.broker.address
    assert session
    sources = {
        CONNECTOR: ("kafka", {"kafka.bootstrap.servers": address}),
        TUNED: ("kafka", {"kafka.bootstrap.servers": address, **TUNING}),
        WIRE: ("minibroker", {"kafka.bootstrap.servers": address}),
        # The broker notes high watermarks every few seconds only.
        PATH: ("minibroker", {"path": f"{run.work}/broker/{DATA[run.broker_name]}", "endOfLog": "logEnd"}),
    }
    made = {codec: produce(address, f"events-{codec}", codec, run.records) for codec in {codec for codec, _ in wanted}}
    for codec, query in wanted:

        def step(
            source: str, options: dict[str, str], columns: str = "", codec: str = codec, query: str = query
        ) -> Step:
            told = {"subscribe": f"events-{codec}", **options}
            given = {"query": query, "source": source, "options": told, "columns": columns}
            return lambda: session.call("queries:ask", **given, folder=f"{run.work}/parquet")

        steps = {name: step(*each) for name, each in sources.items()}
        if columns := NEEDED.get(query):
            steps |= {f"{name}{NAMED}": step(*sources[name], columns) for name in (WIRE, PATH)}
        run.measure(f"read {codec}, {query}", steps, made[codec])


def writes(run: Queries, codec: str) -> None:
    session, address = run.session, run.broker.address
    assert session

    def step(sink: str) -> Step:
        def write() -> dict[str, Any]:
            run.broker.create_topic("written", 4)
            told = {"kafka.bootstrap.servers": address, "topic": "written", "kafka.compression.type": codec}
            done = session.call(
                "queries:write", sink=sink, options=told, records=run.records, folder=f"{run.work}/none"
            )
            run.broker.delete_topic("written")
            return done  # type: ignore[no-any-return]

        return write

    run.measure(f"write {codec}", {CONNECTOR: step("kafka"), WIRE: step("minibroker")}, run.records)


def loads(run: Queries, codec: str) -> None:
    session = run.session
    assert session

    def step(sink: str, **options: str) -> Step:
        folder = f"{run.work}/loaded"
        told = {"path": folder, **options} if options else {}
        return lambda: session.call("queries:write", sink=sink, options=told, records=run.records, folder=folder)

    load = step("minibroker", topic="loaded", partitions="4", codec=codec)
    run.measure(f"bulk load {codec}", {NOWHERE: step("noop"), PATH: load}, run.records)
    shutil.rmtree(run.work / "loaded", ignore_errors=True)


def table(rows: list[dict[str, Any]]) -> str:
    """Return the medians, and ours over the connector's: by time, and by CPU time; bold where a mark is missed."""
    lines = [
        "| | | rows/s | rows a CPU s | CPU s: JVM | Python | broker | to the connector | by CPU |",
        "|---|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    found: dict[str, dict[str, dict[int, Figures]]] = {}
    for row in rows:
        found.setdefault(row["what"], {}).setdefault(row["broker"], {})[row["round"]] = row["figures"]
    for what, by_name in found.items():
        for name, by_round in by_name.items():
            cells = [what, name, *(_median(by_round, key, ",.0f") for key in ("rows_s", "rows_cpu_s"))]
            cells += [_median(by_round, key, ".2f") for key in ("jvm_cpu_s", "workers_cpu_s", "broker_cpu_s")]
            other = by_name.get(CONNECTOR)
            mark = MARKS.get((what.partition(", ")[2], name.removesuffix(NAMED)))
            for key in ("rows_s", "rows_cpu_s"):
                cells.append(_ratio(by_round, other, key, mark) if other and name != CONNECTOR else "")
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _median(by_round: dict[int, Figures], key: str, shown: str) -> str:
    return format(statistics.median(figures[key] for figures in by_round.values()), shown)


def _ratio(ours: dict[int, Figures], theirs: dict[int, Figures], key: str, mark: float | None) -> str:
    value = statistics.median(ours[number][key] / theirs[number][key] for number in ours)
    shown = f"{value:.2f}"
    return shown if mark is None else f"{shown if value >= mark else f'**{shown}**'} (≥ {mark:g})"


def memory_table(rows: list[dict[str, Any]]) -> str:
    lines = ["| | | rows/s | JVM MB | Python worker MB | workers |", "|---|---|---:|---:|---:|---:|"]
    for row in rows:
        figures = row["figures"]
        cells = [format(figures[key], ",.0f") for key in ("rows_s", "jvm_mb", "worker_mb", "workers")]
        lines.append(f"| {row['what']} | {row['name']} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="two rounds, and a topic of 1 GB for memory")
    parser.add_argument("--rounds", type=int, default=0, help="how often each is measured (3)")
    parser.add_argument("--warm-ups", type=int, default=WARM_UPS, help=f"how often each is done before ({WARM_UPS})")
    parser.add_argument("--broker", choices=(OURS, KAFKA), default=OURS, help="out of which the topics are read")
    parser.add_argument("--records", type=int, default=2_000_000, help="of each topic")
    parser.add_argument("--only", default="", help="a part of what a measurement is called")
    arguments = parser.parse_args()
    rounds = arguments.rounds or (2 if arguments.quick else 3)
    work = Path(tempfile.mkdtemp(prefix="bench-spark-", dir=os.environ.get("BENCH_DIRECTORY")))
    run = Queries(work, arguments.records, rounds, arguments.only, arguments.warm_ups, arguments.broker)
    try:
        wanted = [(codec, query) for codec, query in READS if run.wants(f"read {codec}, {query}")]
        written = [codec for codec in ("none", "lz4") if run.wants(f"write {codec}")]
        loaded = [codec for codec in ("none", "lz4") if run.wants(f"bulk load {codec}")]
        if wanted or written or loaded:
            run.session = Session(work / "spark.txt")
            reads(run, wanted)
            for codec in written:
                writes(run, codec)
            for codec in loaded:
                loads(run, codec)
            run.session.stop()
            run.session = None
        if run.wants("memory"):
            memory(run.broker, work, 1 << 30 if arguments.quick else 4 << 30, run.note)
    finally:
        run.stop()
        shutil.rmtree(work, ignore_errors=True)
    remembered = [row for row in run.rows if row["what"].startswith("memory")]
    if compared := [row for row in run.rows if row not in remembered]:
        print(table(compared), end="\n\n")
    if remembered:
        print(memory_table(remembered), end="\n\n")
    print(run.said(arguments.quick))


if __name__ == "__main__":
    main()

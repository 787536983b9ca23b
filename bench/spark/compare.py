"""Our data source beside Spark's own Kafka connector: the same session, the same topic, the same queries, in turn.

    read      two million records of 200 bytes, of Kafka's broker and ours: by the connector as it is and with larger
              fetches (tuned), by our wire mode, and by our path mode, which reads the broker's directory. count;
              aggregate (rows, bytes and newest time of each partition); by key (64 groups by a hash of it); Parquet
              (all columns, by Spark). "Named": with a schema of what the query needs, which the connector has not
    jobs      export: to Parquet, beside connector and Spark's writer; slice: one key in a hundred, to files; import:
              what was exported, to a topic
    write     as many records to a topic: the connector's sink, as it is and with larger batches, and ours
    bulk load as many records into a new directory; "nowhere" is what making the rows costs, without any writing
    memory    a topic of 4 GB on local[2] with 1 GB for the JVM: the most memory of the JVM and of a Python worker

All share one session. Each does everything unmeasured until the CPU seconds of a round have twice not become less,
six times at most: so long a JVM compiles. CPU is that of the JVM and of all Python, workers, planning and driver; the
broker's is shown beside it. The answers of a query must be the same. Rounds take all in turn; figures are medians over
the rounds, ratios those to the tuned connector, the medians of the ratios within each round.

    python -m bench.spark.compare [--quick] [--rounds N] [--broker Kafka] [--only 'Kafka, read none, aggregate']
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
from bench.spark.sessions import DRIVER, JVM, WORKERS, Session
from bench.spark.topics import produce

CONNECTOR, TUNED, WIRE, PATH, NOWHERE = "connector", "connector, tuned", "wire", "path", "nowhere"
# As much at a time as ours takes, instead of 500 records a poll, 1 MiB of a partition, and batches of 16 KiB.
TUNING = {"kafka.max.poll.records": "20000", "kafka.max.partition.fetch.bytes": str(8 << 20)}
TUNING_OF_WRITES = {"kafka.batch.size": str(1 << 20), "kafka.linger.ms": "20"}
OURS, KAFKA = "minibroker", "Kafka"
DATA = {KAFKA: "1/data", OURS: "data"}  # where a broker keeps its logs
NAMED = ", named"
QUERIES = ("count", "aggregate", "by key", "Parquet")
NEEDED = {  # columns, for queries that do not need all
    "count": "offset long",
    "aggregate": "partition int, value binary, timestamp timestamp",
    "by key": "key binary, offset long",
}
READS = [*(("none", query) for query in QUERIES), ("lz4", "aggregate"), ("lz4", "Parquet")]
JOBS = ("export", "slice", "import")
SLICE = ["--sample", "0.01", "--to-files"]
CODECS = ("none", "lz4")
# What we ask of ourselves, out of Kafka: rows a second over the tuned connector's, and rows of a CPU second.
TIME_MARKS = {(query, name): mark for query in QUERIES[:3] for name, mark in ((PATH, 2.0), (WIRE, 1.5))}
CPU_MARK, CPU_MARK_OF_EXPORT = 1.0, 1.5
WARM_UPS_MAX, WARM_AFTER, LESS = 6, 2, 0.97
Step = Callable[[], dict[str, Any]]


class Queries(Run):
    """The measurements of one run: brokers, a session, and what is asked of them."""

    def __init__(self, work: Path, records: int, rounds: int, only: str):
        super().__init__("spark", rounds)
        self.work, self.records, self.only = work, records, only
        self.brokers: dict[str, Broker] = {}
        self.session: Session | None = None

    def stop(self) -> None:
        if self.session is not None:
            self.session.stop()
        for broker in self.brokers.values():
            broker.stop()
        self.close()

    def call(self, what: str, **arguments: Any) -> Any:
        if self.session is None:
            self.session = Session(self.work / "spark.txt")
        return self.session.call(what, **arguments)

    def broker(self, name: str) -> Broker:
        """Return a broker, which is started when it is first needed."""
        if name not in self.brokers:
            self.brokers[name] = Broker(name, BROKERS[name], self.work / name, {})
        return self.brokers[name]

    def measure(self, what: str, steps: dict[str, Step], records: int, broker: Broker | None = None) -> None:
        """Do each step until it is warm, then once in each round."""
        for name, step in steps.items():
            self._warm(f"{what}, {name}", step, broker)
        for number in range(self.rounds):
            answers = []
            for name in in_turn(list(steps), number):
                figures, answer, others = self._measured(steps[name], records, broker)
                self.note(what, name, number, figures, others=others)
                answers.append(answer)
            if any(each != answers[0] for each in answers):
                raise AssertionError(f"{what}: the answers differ: {answers}")

    def _warm(self, what: str, step: Step, broker: Broker | None) -> None:
        least, in_vain = float("inf"), 0
        for _ in range(WARM_UPS_MAX):
            figures, _, _ = self._measured(step, 1, broker)
            used = figures["jvm_cpu_s"] + figures["python_cpu_s"]
            in_vain = 0 if used < LESS * least else in_vain + 1
            least = min(least, used)
            if in_vain == WARM_AFTER:
                return

    def _measured(self, step: Step, records: int, broker: Broker | None) -> tuple[Figures, Any, float]:
        def used_so_far() -> tuple[dict[str, float], float]:
            return self.session.cpu_seconds() if self.session else {}, broker.cpu_seconds() if broker else 0.0

        began, busy, own = time.perf_counter(), busy_seconds(), time.process_time()
        before, of_broker = used_so_far()
        done = step()
        after, of_broker_after = used_so_far()
        of_broker = of_broker_after - of_broker
        used = {kind: after[kind] - before.get(kind, 0.0) for kind in after}
        others = busy_seconds() - busy - sum(used.values()) - of_broker - (time.process_time() - own)
        figures = {
            "rows_s": records / done["seconds"],
            "rows_cpu_s": records / sum(used.values()),
            "seconds": done["seconds"],
            "jvm_cpu_s": used[JVM],
            "python_cpu_s": used[WORKERS] + used[DRIVER],
            "broker_cpu_s": of_broker,
        }
        return figures, done["answer"], round(others / (time.perf_counter() - began), 2)


def reads(run: Queries, name: str) -> None:
    """Ask all queries of a broker's topics, and export one of them."""
    wanted = [(codec, query) for codec, query in READS if run.only in f"{name}, read {codec}, {query}"]
    jobs = [job for job in JOBS if run.only in f"{name}, {job} none"]
    made = {}
    for codec in sorted({codec for codec, _ in wanted} | {"none" for _ in jobs}):
        made[codec] = produce(run.broker(name).address, f"events-{codec}", codec, run.records)
    if not made:
        return
    broker, folder, lake = run.broker(name), f"{run.work}/parquet", f"{run.work}/{name}-lake"
    sources = {
        CONNECTOR: ("kafka", {"kafka.bootstrap.servers": broker.address}),
        TUNED: ("kafka", {"kafka.bootstrap.servers": broker.address, **TUNING}),
        WIRE: ("minibroker", {"kafka.bootstrap.servers": broker.address}),
        # A broker notes high watermarks every few seconds only.
        PATH: ("minibroker", {"path": f"{run.work}/{name}/{DATA[name]}", "endOfLog": "logEnd"}),
    }

    def step(who: str, codec: str, query: str, columns: str = "") -> Step:
        source, options = sources[who]
        told = {"subscribe": f"events-{codec}", **options}
        given = {"query": query, "source": source, "options": told, "columns": columns}
        return lambda: run.call("queries:ask", folder=folder, **given)

    for codec, query in wanted:
        steps = {who: step(who, codec, query) for who in sources}
        if columns := NEEDED.get(query):
            steps |= {f"{who}{NAMED}": step(who, codec, query, columns) for who in (WIRE, PATH)}
        run.measure(f"{name}, read {codec}, {query}", steps, made[codec], broker)

    def job(words: list[str], more: list[str]) -> Step:
        return lambda: run.call("queries:job", words=[*words, *more], folder=folder)

    where = {
        WIRE: ["--bootstrap-server", broker.address, "-t", "events-none"],
        PATH: ["--path", sources[PATH][1]["path"], "--option", "endOfLog=logEnd", "-t", "events-none"],
    }
    for word in jobs:
        steps = {who: step(who, "none", "Parquet") for who in (CONNECTOR, TUNED)} if word == "export" else {}
        if word == "import":
            job(["export", *where[WIRE]], [lake])()
            words = [word, f"{lake}/topic=events-none", "-t", "written", "--partition-column", "partition"]
            steps = {WIRE: into_new_topic(broker, job(words, ["--to-bootstrap-server", broker.address]))}
        for who in where if word != "import" else ():
            steps[who] = job([word, *where[who]], [folder] if word == "export" else [*SLICE, folder])
        run.measure(f"{name}, {word} none", steps, made["none"], broker)


def into_new_topic(broker: Broker, write: Step) -> Step:
    def step() -> dict[str, Any]:
        broker.create_topic("written", 4)
        done = write()
        broker.delete_topic("written")
        return done

    return step


def writes(run: Queries, name: str, codec: str) -> None:
    broker = run.broker(name)
    given = {"records": run.records, "folder": f"{run.work}/none"}

    def step(sink: str, more: dict[str, str]) -> Step:
        told = {"kafka.bootstrap.servers": broker.address, "topic": "written", "kafka.compression.type": codec, **more}
        return into_new_topic(broker, lambda: run.call("queries:write", sink=sink, options=told, **given))

    steps = {CONNECTOR: step("kafka", {}), TUNED: step("kafka", TUNING_OF_WRITES), WIRE: step("minibroker", {})}
    run.measure(f"{name}, write {codec}", steps, run.records, broker)


def loads(run: Queries, codec: str) -> None:
    folder = f"{run.work}/loaded"

    def step(sink: str, **options: str) -> Step:
        told = {"path": folder, **options} if options else {}
        return lambda: run.call("queries:write", sink=sink, options=told, records=run.records, folder=folder)

    load = step("minibroker", topic="loaded", partitions="4", codec=codec)
    run.measure(f"bulk load {codec}", {NOWHERE: step("noop"), PATH: load}, run.records)
    shutil.rmtree(folder, ignore_errors=True)


def table(rows: list[dict[str, Any]]) -> str:
    """Return the medians, and ratios to the tuned connector: by time, and by CPU time; bold where a mark is missed."""
    lines = [
        "| | | rows/s | rows a CPU s | CPU s: JVM | Python | broker | to tuned | by CPU |",
        "|---|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    found: dict[str, dict[str, dict[int, Figures]]] = {}
    for row in rows:
        found.setdefault(row["what"], {}).setdefault(row["broker"], {})[row["round"]] = row["figures"]
    for what, by_name in found.items():
        for name, by_round in by_name.items():
            cells = [what, name, *(_median(by_round, key, ",.0f") for key in ("rows_s", "rows_cpu_s"))]
            cells += [_median(by_round, key, ".2f") for key in ("jvm_cpu_s", "python_cpu_s", "broker_cpu_s")]
            other = by_name.get(TUNED)
            for key, mark in zip(("rows_s", "rows_cpu_s"), marks(what, name), strict=True):
                cells.append(_ratio(by_round, other, key, mark) if other and name != TUNED else "")
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def marks(what: str, name: str) -> tuple[float | None, float | None]:
    """Return what is asked of a row, by time and by CPU time."""
    if not what.startswith(KAFKA) or name == CONNECTOR:
        return None, None
    by_time = TIME_MARKS.get((what.split(", ")[-1], name.removesuffix(NAMED)))
    return by_time, CPU_MARK_OF_EXPORT if ", export" in what else CPU_MARK


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
        lines.append(f"| {row['what']} | {row['broker']} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="two rounds, and a topic of 1 GB for memory")
    parser.add_argument("--rounds", type=int, default=0, help="how often each is measured (3)")
    parser.add_argument("--broker", choices=(KAFKA, OURS), help="only with this one")
    parser.add_argument("--records", type=int, default=2_000_000, help="of each topic")
    parser.add_argument("--only", default="", help="a part of what a measurement is called")
    arguments = parser.parse_args()
    work = Path(tempfile.mkdtemp(prefix="bench-spark-", dir=os.environ.get("BENCH_DIRECTORY")))
    run = Queries(work, arguments.records, arguments.rounds or (2 if arguments.quick else 3), arguments.only)
    try:
        for name in [arguments.broker] if arguments.broker else [KAFKA, OURS]:
            reads(run, name)
            for codec in CODECS:
                if run.only in f"{name}, write {codec}":
                    writes(run, name, codec)
        for codec in CODECS:
            if run.only in f"bulk load {codec}":
                loads(run, codec)
        if run.only in "memory":
            memory(run.broker(OURS), work, work / OURS / DATA[OURS], 1 << 30 if arguments.quick else 4 << 30, run.note)
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

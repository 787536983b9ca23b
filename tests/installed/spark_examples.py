"""Runs every example about Spark of README and docs, where minibroker is installed and nothing else is set.

    python spark_examples.py plain ROOT MINIBROKER [HOST:PORT]     a session that somebody makes without asking us
    python spark_examples.py brokers ROOT MINIBROKER [HOST:PORT]   what speaks to a broker, on all pages
    python spark_examples.py pipelines ROOT MINIBROKER [HOST:PORT] docs/spark-pipelines.md from its head to its end
    python spark_examples.py jobs ROOT MINIBROKER [HOST:PORT]      the page of jobs, and every command

ROOT: where the pages are. MINIBROKER: the program, which is called once as such; other commands run in the session.
HOST:PORT: of a broker with nothing in it, of ours without. What an example needs is made here: topics, log directories,
files. Addresses become the broker's, numbers of records small, samples large. Left out is what needs what this machine
lacks; LEFT_OUT says what.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from minibroker import Broker
from minibroker.client import Admin, Cluster, Producer
from minibroker.client.descriptions import NewTopic

DAY_MS = 1_700_000_000_000
RECORDS = 400
JARS = "MINIBROKER_TEST_JARS"  # what Spark would fetch by spark.jars.packages
LEFT_OUT = {
    "spark://": "needs a cluster: spark_cluster.py",
    "spark-submit": "needs a cluster: spark_cluster.py",
    ".remote(": "needs a server of Spark Connect: spark_cluster.py",
    ") -> LoadResult: ...": "is a signature",
}
PY = re.compile(r"^```(?:py|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
COMMANDS = re.compile(r"^minibroker (spark (?:[^\\\n]|\\\n)*)", re.MULTILINE)
STEPS = re.compile(rf"{PY.pattern}|^minibroker ((?:[^\\\n]|\\\n)*)", re.MULTILINE | re.DOTALL)


def fill(address: str, partitions: int = 2) -> None:
    """Write to the topics of the examples, which are made if they are not there. Their records are old, and stay."""
    keep = {"retention.ms": "-1"}
    compact = {"cleanup.policy": "compact"}  # no cleaner touches what is in the newest segment
    topics = [NewTopic("orders", partitions, 1, keep), NewTopic("customers", 1, 1, keep)]
    topics += [NewTopic("prices", 1, 1, compact)]

    async def send() -> None:
        async with Cluster(address) as cluster, Producer(cluster) as producer:
            there = await Admin(cluster).describe_topics()
            await Admin(cluster).create_topics([topic for topic in topics if topic.name not in there])
            for number in range(RECORDS):
                customer = {"id": number % 40, "email": f"c{number % 40}@example.org"}
                order = {"id": number, "customer": customer, "email": customer["email"], "price": number / 7}
                key, time = b"%d" % (number % 40), DAY_MS + number * 60_000
                await producer.send("orders", json.dumps(order).encode(), key=key, timestamp=time)
                await producer.send("customers", json.dumps(customer).encode(), key=key, timestamp=time)
                await producer.send("prices", b"%d" % number, key=key, timestamp=time)

    asyncio.run(send())


@contextmanager
def filled_broker(path: str | None = None, partitions: int = 2) -> Iterator[str]:
    """Start a broker of ours with the topics of the examples; yield its address."""
    with Broker(data_dir=path) as broker:
        fill(broker.bootstrap_servers, partitions)
        yield broker.bootstrap_servers


failed: list[str] = []  # commands, of which the others are tried all the same


class Examples:
    """The pages, and the broker that they mean."""

    def __init__(self, root: Path, address: str):
        self.root = root
        self.address = address

    def text(self, page: str) -> str:
        text = (self.root / page).read_text(encoding="utf-8")
        text = re.sub(r"(localhost|kafka|127\.0\.0\.1):9092", self.address, text)
        return re.sub(r"records=1e\d", "records=5e3", text.replace("--sample 0.01", "--sample 0.5"))

    def blocks(self, page: str) -> list[str]:
        return [block for block in PY.findall(self.text(page)) if not is_left_out(block)]

    def commands(self, page: str) -> list[list[str]]:
        found = [command.replace("\\\n", " ") for command in COMMANDS.findall(self.text(page))]
        return [shlex.split(command)[1:] for command in found if not is_left_out(command)]


def is_left_out(text: str) -> bool:
    return any(each in text for each in LEFT_OUT)


def execute(page: str, block: str, names: dict[str, Any]) -> None:
    exec(compile(block, page, "exec"), names)
    print(f"ran {page}: {block.strip().splitlines()[0]}", flush=True)


def plain(examples: Examples) -> None:
    """Run the session of the second example, then the first one's query, without and with filters handed down."""
    ours, session, schema, _ = examples.blocks("docs/spark.md")
    names: dict[str, Any] = {}
    execute("docs/spark.md", session, names)
    query = ours[ours.index("orders = (") :]
    execute("docs/spark.md", query, names)
    orders = names["orders"]
    assert orders.count() == RECORDS, orders.count()
    assert orders.where("offset >= 5 and partition = 0").count() == orders.where("partition = 0").count() - 5
    names["spark"].conf.set("spark.sql.python.filterPushdown.enabled", "true")
    execute("docs/spark.md", query, names)
    younger = names["orders"].where(f"offset >= 5 and timestamp >= timestamp_millis({DAY_MS + 60_000 * 100})")
    assert 0 < younger.count() < RECORDS
    execute("docs/spark.md", schema, names)


def brokers(examples: Examples, minibroker: str) -> None:
    """Run streams and writes, and the commands that name a broker."""
    names: dict[str, Any] = {"__name__": "example"}
    ours, *_ = examples.blocks("docs/spark.md")
    execute("docs/spark.md", ours, names)
    spark = names["spark"]

    # Streams: what there is, and what it has written.
    query, lag = examples.blocks("docs/spark-streams.md")
    execute("docs/spark-streams.md", query, names)
    names["query"].processAllAvailable()
    fill(examples.address)  # the stream begins at the latest
    names["query"].processAllAvailable()
    execute("docs/spark-streams.md", lag, names)
    names["query"].stop()
    assert spark.read.parquet("lake/orders").count() == RECORDS
    shutil.rmtree("lake")

    # Writing: in batches, streams, foreachBatch, and into directories.
    execute("docs/spark.md", ours[ours.index("orders = (") :], names)  # a frame keeps the offsets of its first action
    names["orders"] = names["orders"].select("key", "value")
    spark.createDataFrame([("k", "{}")], "key string, value string").write.json("incoming")  # JSON, as slice masks it
    names["orders_of_a_stream"] = spark.readStream.schema("key string, value string").json("incoming")
    names["frame"] = two_rows(spark)
    for block in examples.blocks("docs/spark-writing.md"):
        execute("docs/spark-writing.md", block, names)
        if "query" in block:
            names["query"].processAllAvailable()
            names["query"].stop()
    names["save"](names["frame"], 0)
    topic = spark.read.format("minibroker").option("kafka.bootstrap.servers", examples.address)
    written = topic.option("subscribe", "orders").load().count()
    assert written == 2 * 2 * RECORDS + 1 + 2, written
    shutil.rmtree("data")

    # README: from brokers to a directory, and on from there.
    commands = examples.commands("README.md")
    run_command(commands[0])
    run_program(minibroker, ["spark", *commands[1]])
    for command in commands[2:]:
        run_command(command)
    write_lines()
    for command in examples.commands("docs/spark-jobs.md"):
        if examples.address in command:
            run_command(command)


def two_rows(spark: Any) -> Any:
    return spark.createDataFrame([("k", "{}"), ("l", "{}")], "key string, value string")


def pipelines(examples: Examples, minibroker: str) -> None:
    """Run a page in its order; a command that wants jars is a program of its own, if they are here (JARS)."""
    page, names = "docs/spark-pipelines.md", {"__name__": "example"}
    execute(page, examples.blocks("docs/spark.md")[0], names)
    for block, command in STEPS.findall(examples.text(page)):
        words = shlex.split(command.replace("\\\n", " "))
        if not words:
            if "def test_" not in block:
                execute(page, block, names)
        elif words[0] != "spark":
            run_program(minibroker, words)
        elif "spark.jars.packages" not in command:
            run_command(words[1:])
        elif jars := os.environ.get(JARS):
            words = [re.sub("spark.jars.packages=.*", f"spark.driver.extraClassPath={jars}", word) for word in words]
            run_program(minibroker, [*words, "--quiet"])
        else:
            print(f"left out: minibroker {command}", flush=True)
    if JARS in os.environ:
        assert names["rows"]("orders").exceptAll(names["rows"]("from-table")).isEmpty()
    Path("test_fixtures.py").write_text("\n".join(each for each in examples.blocks(page) if "def test_" in each))
    done = subprocess.run([sys.executable, "-m", "pytest", "-q", "test_fixtures.py"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    print(f"ran {page}: {done.stdout.splitlines()[-1]}", flush=True)


def write_lines() -> None:
    lines = [{"id": number, "at": f"2026-01-31T12:00:{number:02}Z"} for number in range(30)]
    Path("orders.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))


def jobs(examples: Examples) -> None:
    """Run the page of jobs, on directories as brokers leave them."""
    from minibroker.spark.session import open_session

    spark = open_session()
    names: dict[str, Any] = {"__name__": "example", "spark": spark, "frame": two_rows(spark)}
    with filled_broker("data", 6):  # as many partitions as the page says
        pass
    for copy in ("disk1", "broker-1/data", "broker-2/data", "broker-3/data"):
        shutil.copytree("data", copy)
    with Broker(data_dir="disk2", topics=["others"]):
        pass
    write_lines()
    execute("docs/spark.md", examples.blocks("docs/spark.md")[3], names)
    for block in examples.blocks("docs/spark-jobs.md"):
        execute("docs/spark-jobs.md", block, names)
    shutil.rmtree("lake")
    for command in examples.commands("docs/spark-jobs.md"):
        run_command(command)


def run_command(words: list[str]) -> None:
    """Run a job as its command does, in the session that is there."""
    from minibroker.spark.jobs.command import main

    if "--to" in words:
        shutil.rmtree(words[words.index("--to") + 1], ignore_errors=True)
    try:
        status: object = main([*words, "--quiet"])
    except Exception as error:
        status = repr(error)
    told = f"minibroker spark {shlex.join(words)}"
    print(f"ran {told}" if status == 0 else f"failed {told}: {status}", flush=True)
    if status != 0:
        failed.append(told)


def run_program(minibroker: str, words: list[str]) -> None:
    done = subprocess.run([minibroker, *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout, done.stderr
    print(f"ran {minibroker} {shlex.join(words)}", flush=True)


def main(mode: str, root: str, minibroker: str, address: str = "") -> None:
    assert "PYSPARK_PYTHON" not in os.environ
    with nullcontext(address) if address else filled_broker() as servers:
        if address:
            fill(address)
        examples = Examples(Path(root), servers)
        if mode == "plain":
            plain(examples)
        elif mode == "brokers":
            brokers(examples, minibroker)
        elif mode == "pipelines":
            pipelines(examples, minibroker)
        else:
            jobs(examples)
        assert not failed, "\n".join(failed)


if __name__ == "__main__":
    main(*sys.argv[1:])

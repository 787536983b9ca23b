"""Spark's standalone master and two workers, whose Python has no minibroker: what docs/spark-cluster.md says.

python spark_cluster.py NEWEST MACHINE BARE    folders of programs: ours, the workers', and one that lacks packages
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark

sys.path.insert(0, str(Path(__file__).parent))
from spark_examples import RECORDS, fill, new_broker

HOME = Path(pyspark.__file__).parent
START_SECONDS_MAX = 120
QUERY = """
import sys
from pyspark.sql import SparkSession
from minibroker.spark.source import MinibrokerSource

spark = SparkSession.builder.getOrCreate()  # or .getOrCreate() under spark-submit
spark.dataSource.register(MinibrokerSource)
orders = spark.read.format("minibroker").option("kafka.bootstrap.servers", sys.argv[1]).option("subscribe", "orders")
print("rows:", orders.option("minPartitions", 4).load().count())
"""


def line_in(path: Path, pattern: str, count: int = 1) -> str:
    """Return what a pattern finds in a log, once it is there so often."""
    deadline = time.monotonic() + START_SECONDS_MAX
    while len(found := re.findall(pattern, path.read_text())) < count:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{path.name} has no {pattern}: {path.read_text()[-2000:]}")
        time.sleep(0.1)
    return str(found[0])


@contextmanager
def cluster(work: Path) -> Iterator[str]:
    """Start a master and two workers; yield the master's address."""
    started: list[subprocess.Popen[bytes]] = []

    def start(name: str, *words: str) -> Path:
        program = (HOME / "bin/spark-class", f"org.apache.spark.deploy.{name.partition('-')[0]}")
        with open(work / f"{name}.txt", "wb") as log:
            environment = os.environ | {"SPARK_HOME": str(HOME), "SPARK_LOCAL_IP": "127.0.0.1"}
            environment |= {"SPARK_DAEMON_MEMORY": "256m"}
            command = [*map(str, program), "--host", "127.0.0.1", "--webui-port", "0", *words]
            started.append(subprocess.Popen(command, stdout=log, stderr=log, env=environment, cwd=work))
        return work / f"{name}.txt"

    try:
        master = start("master.Master", "--port", "0")
        address = line_in(master, r"Starting Spark master at (spark://\S+)")
        for number in (1, 2):
            # What a worker may give away; executors take a fraction of it.
            start(f"worker.Worker-{number}", "--cores", "1", "--memory", "2g", "--work-dir", str(work), address)
        line_in(master, "Registering worker", 2)
        yield address
    finally:
        for process in started:
            process.terminate()
        for process in started:
            process.wait()


def run(*command: str | Path, python: Path, status: int = 0) -> str:
    environment = os.environ | {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": str(python / "python")}
    environment |= {"PYSPARK_DRIVER_PYTHON": sys.executable}
    words = [str(word) for word in command]
    done = subprocess.run(words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert done.returncode == status, f"{words}: status {done.returncode}, not {status}\n{done.stdout[-5000:]}"
    print(f"ran {' '.join([Path(words[0]).name, *words[1:]])}", flush=True)
    return done.stdout


def main(newest: Path, machine: Path, bare: Path) -> None:
    work = Path.cwd()
    minibroker, submit = newest / "minibroker", HOME / "bin/spark-submit"
    (work / "query.py").write_text(QUERY)
    with new_broker() as broker, cluster(work) as master:
        fill(broker)
        servers = broker.bootstrap_servers
        run(minibroker, "spark", "--package", "minibroker.zip", python=machine)
        zipped = ("--master", master, "--py-files", "minibroker.zip")
        said = run(submit, *zipped, "query.py", servers, python=machine)
        assert f"rows: {RECORDS}" in said, said[-3000:]
        export = (
            minibroker,
            "spark",
            "export",
            "--quiet",
            "--bootstrap-server",
            servers,
            "-t",
            "orders",
            work / "lake",
        )
        said = run(*export, *zipped, python=machine)
        assert re.search(rf"^records +{RECORDS}$", said, re.MULTILINE), said[-3000:]
        # What is not there is one sentence, before anything is read.
        for more, python, reason in [
            ((), machine, f"has no minibroker in {machine}/python: add --py-files"),
            (("--py-files", "minibroker.zip"), bare, f"has no google-crc32c in {bare}/python: install it there"),
        ]:
            said = run(*export, "--master", master, *more, python=python, status=2)
            assert reason in said, said[-3000:]
            assert "Traceback" not in said, said[-3000:]


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))

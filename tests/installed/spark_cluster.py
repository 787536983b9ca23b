"""Spark's standalone master and two workers, whose Python has no minibroker, and Spark Connect: docs/spark-cluster.md.

python spark_cluster.py NEWEST MACHINE BARE    folders of programs: ours, the workers', and one that lacks packages
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyspark

sys.path.insert(0, str(Path(__file__).parent))
from spark_examples import PY, RECORDS, execute, filled_broker

HOME = Path(pyspark.__file__).parent
ROOT = Path(__file__).parents[2]
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


Start = Callable[..., Path]


@contextmanager
def programs(work: Path) -> Iterator[Start]:
    """Yield what starts a class of Spark and returns its log; stop all of them in the end."""
    started: list[subprocess.Popen[bytes]] = []

    def start(name: str, *words: str | Path) -> Path:
        said = work / f"{name.rpartition('.')[2]}-{len(started)}.txt"
        with open(said, "wb") as log:
            environment = os.environ | {"SPARK_HOME": str(HOME), "SPARK_LOCAL_IP": "127.0.0.1"}
            environment |= {"SPARK_DAEMON_MEMORY": "512m", "PYSPARK_PYTHON": sys.executable}
            command = [HOME / "bin/spark-class", f"org.apache.spark.{name}", *words]
            started.append(subprocess.Popen(command, stdout=log, stderr=log, env=environment, cwd=work))
        return said

    try:
        yield start
    finally:
        for process in started:
            process.terminate()
        for process in started:
            process.wait()


def cluster(start: Start, work: Path) -> str:
    """Start a master and two workers; return the master's address."""
    here = ("--host", "127.0.0.1", "--webui-port", "0")
    master = start("deploy.master.Master", *here, "--port", "0")
    address = line_in(master, r"Starting Spark master at (spark://\S+)")
    for _ in range(2):
        # What a worker may give away; executors take a fraction of it.
        start("deploy.worker.Worker", *here, "--cores", "1", "--memory", "2g", "--work-dir", work, address)
    line_in(master, "Registering worker", 2)
    return address


def connect(start: Start) -> str:
    """Start a server of Spark Connect on this machine, whose Python has minibroker; return its address."""
    settings = ("spark.connect.grpc.binding.port=0", "spark.connect.grpc.binding.address=127.0.0.1")
    told = [word for setting in settings for word in ("--conf", setting)]
    server = "org.apache.spark.sql.connect.service.SparkConnectServer"
    said = start("deploy.SparkSubmit", "--class", server, "--master", "local[2]", *told, "spark-internal")
    return line_in(said, r"Spark Connect server started at: \S*?:(\d+)")


def run(*command: str | Path, python: Path, status: int = 0, path: str = "") -> str:
    environment = os.environ | {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": str(python / "python")}
    environment |= {"PYTHONPATH": path} if path else {}
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
    with filled_broker() as servers, programs(work) as start:
        master = cluster(start, work)
        run(minibroker, "spark", "--package", "minibroker.zip", python=machine)
        zipped = ("--master", master, "--py-files", "minibroker.zip")
        said = run(submit, *zipped, "query.py", servers, python=machine)
        assert f"rows: {RECORDS}" in said, said[-3000:]
        export = ("export", "--quiet", "--bootstrap-server", servers, "-t", "orders")
        for command, path in [
            ((minibroker, "spark", *export, work / "lake", *zipped), ""),
            # As the page says: Spark does not hand the zip to the Python that plans streams.
            ((submit, *zipped, ROOT / "minibroker/spark/submit.py", *export, work / "submitted"), "minibroker.zip"),
        ]:
            said = run(*command, python=machine, path=path)
            assert re.search(rf"^records +{RECORDS}$", said, re.MULTILINE), said[-3000:]
        # What is not there is one sentence, before anything is read.
        for more, python, reason in [
            ((), machine, f"has no minibroker in {machine}/python: add --py-files"),
            (("--py-files", "minibroker.zip"), bare, f"has no google-crc32c in {bare}/python: install it there"),
        ]:
            said = run(minibroker, "spark", *export, work / "none", "--master", master, *more, python=python, status=2)
            assert reason in said, said[-3000:]
            assert "Traceback" not in said, said[-3000:]
    with programs(work) as start:
        port = connect(start)
        with filled_broker("data") as servers:
            read_remotely(port, servers)
        work_remotely(port, minibroker, newest)


def read_remotely(port: str, servers: str) -> None:
    (block,) = PY.findall((ROOT / "docs/spark-cluster.md").read_text(encoding="utf-8"))
    names: dict[str, Any] = {}
    execute("docs/spark-cluster.md", block.replace("head:15002", f"127.0.0.1:{port}"), names)
    orders = names["spark"].read.format("minibroker").option("kafka.bootstrap.servers", servers)
    assert orders.option("subscribe", "orders").load().count() == RECORDS
    names["spark"].stop()


def work_remotely(port: str, minibroker: Path, python: Path) -> None:
    """Let jobs work that the page says can."""
    directory = ("--quiet", "--master", f"sc://127.0.0.1:{port}", "--path", Path.cwd() / "data")
    for name, *words in (
        ("export", "-t", "orders", "remote-lake"),
        ("profile", "-t", "orders"),
        ("codecs", "-t", "orders", "--seconds", "0.02"),
        ("verify",),
    ):
        run(minibroker, "spark", name, *directory, *words, python=python)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))

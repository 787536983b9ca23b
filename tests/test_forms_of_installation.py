"""The package in a zip, and compiled without its sources: brokers start, lessons and frames are read."""

from __future__ import annotations

import compileall
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import minibroker
from minibroker.spark.packing import write_package

PROGRAM = """
import sys
sys.path.insert(0, sys.argv[1])
import minibroker
assert minibroker.__file__.startswith(sys.argv[1]), minibroker.__file__
from minibroker import Broker, Cluster
from minibroker.cli import main
with Broker(topics=["orders:3"]) as broker:
    print(broker.topics())
with Cluster(brokers=1, topics=["orders"]) as cluster:
    print(cluster.wait_leader("orders"))
assert main(["lesson"]) == 0
assert main(["explain", "0012000000000001ffff"]) == 0
"""


def in_a_zip(folder: Path) -> Path:
    write_package(str(folder / "minibroker.zip"))
    return folder / "minibroker.zip"


def without_sources(folder: Path) -> Path:
    package = folder / "minibroker"
    shutil.copytree(Path(minibroker.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    assert compileall.compile_dir(package, quiet=1, legacy=True)
    for source in package.rglob("*.py"):
        source.unlink()
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("place", [in_a_zip, without_sources])
def test_brokers_start_wherever_the_package_lies(place: Callable[[Path], Path], tmp_path: Path) -> None:
    command = [sys.executable, "-c", PROGRAM, str(place(tmp_path))]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("{'orders': 3}\n1\n")
    assert "client_id           null" in done.stdout

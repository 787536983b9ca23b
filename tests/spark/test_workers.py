"""What Spark's Python workers remember between tasks, and what they must not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

# An archive is made, a module of it imported, and the archive made anew.
CHANGED = """\
import importlib.util, sys, zipfile
from minibroker.spark.workers import remember_archives

def make(*names):
    with zipfile.ZipFile(sys.argv[1], "w") as archive:
        for name in names:
            archive.writestr(f"{name}.py", "")

make("first_one", "second_one")
sys.path.insert(0, sys.argv[1])
import first_one
remember_archives()
import second_one
make("another_one")
importlib.invalidate_caches()
print(importlib.util.find_spec("another_one") is not None)
"""
FROZEN = (
    "import gc; from minibroker.spark.workers import settle; settle(); settle(); print(gc.get_freeze_count() > 1000)"
)


def told(program: str, *arguments: str) -> bool:
    done = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return {"True\n": True, "False\n": False}[done.stdout]


@pytest.mark.parametrize("name", ["pyspark.zip", "py4j-0.10.9.9-src.zip", "spark-core_2.13-4.0.0.jar"])
def test_archives_of_spark_are_not_read_anew(name: str, tmp_path: Path) -> None:
    assert not told(CHANGED, str(tmp_path / name))


def test_archives_of_others_are(tmp_path: Path) -> None:
    assert told(CHANGED, str(tmp_path / "mine.zip"))


def test_what_a_worker_has_imported_is_looked_at_by_no_collection_of_garbage() -> None:
    assert told(FROZEN)

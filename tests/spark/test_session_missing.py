"""Where PySpark is not there, or too old, jobs say so in a sentence."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = "from minibroker.spark.source import MinibrokerSource"
JOB = "import sys; from minibroker.spark.jobs.command import main; sys.exit(main(sys.argv[1:]))"


@pytest.mark.parametrize("words", [["export", "--path", "data", "lake"], ["verify", "--path", "a"]])
@pytest.mark.parametrize(
    ("version", "said"), [(None, "pyspark is not installed"), ("3.5.6", "PySpark 3.5.6 is too old")]
)
def test_a_pyspark_that_will_not_do_is_named(words: list[str], version: str | None, said: str, tmp_path: Path) -> None:
    fake_pyspark(tmp_path, version)
    done = run(JOB, *words, packages=tmp_path)
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr, done.stderr
    assert said in done.stderr
    assert "pip install 'minibroker[spark]'" in done.stderr


def test_the_source_names_a_pyspark_that_is_too_old(tmp_path: Path) -> None:
    fake_pyspark(tmp_path, "3.5.6")
    said = run(SOURCE, packages=tmp_path).stderr.splitlines()[-1]
    assert "PySpark 3.5.6 is too old: sources in Python came with 4.0" in said


def fake_pyspark(folder: Path, version: str | None) -> None:
    package = folder / "pyspark"
    if version is not None:
        (package / "sql").mkdir(parents=True)
        (package / "__init__.py").write_text(f"__version__ = {version!r}\n")
        (package / "sql/__init__.py").write_text("class SparkSession: ...\nclass DataFrame: ...\n")
    else:
        package.mkdir()
        (package / "__init__.py").write_text(
            "raise ModuleNotFoundError(\"No module named 'pyspark'\", name='pyspark')\n"
        )


def run(program: str, *words: str, packages: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(packages), os.environ.get("PYTHONPATH", "")])}
    return subprocess.run([sys.executable, "-c", program, *words], env=environment, capture_output=True, text=True)

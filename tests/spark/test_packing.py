"""The zip for workers of a cluster holds the whole package, and a Python that lacks something says what."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from minibroker.spark import packing, workers
from minibroker.spark.jobs.command import main
from minibroker.spark.option_values import OptionError

READS = """
import sys
sys.path.insert(0, sys.argv[1])
from minibroker.log.build import build_batch
from minibroker.log.records import Record
from minibroker.spark.columns.batches import find_units
import minibroker
assert minibroker.__file__.startswith(sys.argv[1]), minibroker.__file__
batch = build_batch(2, [Record(None, b"x")] * 3)
print(find_units(memoryview(batch), 0, len(batch), 9, True)[0].counts)
"""


def test_the_package_runs_out_of_its_zip(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = str(tmp_path / "minibroker.zip")
    assert main(["--package", target]) == 0
    assert f"--py-files {target}" in capsys.readouterr().out
    done = subprocess.run([sys.executable, "-c", READS, target], capture_output=True, text=True, cwd=tmp_path)
    assert done.stdout == "[3]\n", done.stderr
    packing.write_package(str(tmp_path / "again.zip"))
    assert (tmp_path / "again.zip").read_bytes() == Path(target).read_bytes()


def test_a_wheel_is_refused_as_spark_would_not_hand_it_over(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"Spark hands only \.zip to its workers"):
        packing.write_package(str(tmp_path / "minibroker.whl"))


def test_a_python_without_a_package_says_which_and_where(monkeypatch: pytest.MonkeyPatch) -> None:
    workers.check_packages.cache_clear()
    workers.check_packages()
    workers.check_packages.cache_clear()
    monkeypatch.setitem(workers.NEEDED, "no_such_module", "no-such-package")
    with pytest.raises(workers.PackageMissing, match=f"no-such-package cannot be imported by {sys.executable} on "):
        workers.check_packages()
    with pytest.raises(workers.PackageMissing, match="no-such-package"), workers.naming_packages():
        raise ModuleNotFoundError("No module named 'no_such_module.part'", name="no_such_module.part")
    with pytest.raises(ModuleNotFoundError, match="another"), workers.naming_packages():
        raise ModuleNotFoundError("No module named 'another'", name="another")

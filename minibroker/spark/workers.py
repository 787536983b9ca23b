"""Python workers of Spark without the clean-up that takes longer than a short task.

Before each task, and each time a query is planned, Spark lets importlib forget what it knows of folders and archives.
Python 3.11 and 3.12 then read the directory of each archive anew, once for each package of it that is in use: that is
PySpark's own archive a dozen times, and Spark's jar with 5,000 classes and no module, a quarter of a second in all.
After each task Spark's daemon collects garbage, and looks at every object of numpy, pyarrow and pandas for it.
What must hold: nothing that can be imported is lost. Only Spark's own archives, which do not change while it runs, are
remembered; those of the user's (`--py-files`) are not touched.
A machine that lacks a package says which, and what helps, when the query is planned or its first task begins.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from zipimport import zipimporter

# Module -> package. Codecs are needed only where records are compressed so.
NEEDED = {"numpy": "numpy", "pyarrow": "pyarrow", "google_crc32c": "google-crc32c"}
CODECS = {"lz4": "lz4", "snappy": "python-snappy", "zstandard": "zstandard"}

OF_SPARK = ("pyspark.zip", "py4j-", "spark-core_")  # how the names of its archives begin


class SparkMissing(ImportError):
    """PySpark or what our source needs is not installed, or PySpark is too old; the text says what helps."""

    def __init__(self, error: ImportError):
        if (error.name or "").startswith("pyspark."):
            from pyspark import __version__ as version  # pyright: ignore

            text = f"PySpark {version} is too old: sources in Python came with 4.0. What is newer takes"
        else:
            text = f"{error.name} is not installed, which the jobs of Spark need:"
        super().__init__(f"{text} pip install 'minibroker[spark]'", name=error.name)


class PackageMissing(Exception):
    """This Python, of a worker or where queries are planned, lacks packages; the text says which and what helps."""

    def __init__(self, packages: list[str]):
        from platform import node

        super().__init__(
            f"{', '.join(packages)} cannot be imported by {sys.executable} on {node()}: install "
            "minibroker[spark] for that Python on each machine, or set PYSPARK_PYTHON to one that has it "
            "(docs/spark-cluster.md)"
        )


@cache
def check_packages() -> None:
    """Raise PackageMissing unless this Python can read and write records."""
    missing = [package for module, package in NEEDED.items() if find_spec(module) is None]
    if missing:
        raise PackageMissing(missing)


@contextmanager
def naming_packages() -> Iterator[None]:
    """Raise PackageMissing for a codec whose package is not there."""
    try:
        yield
    except ModuleNotFoundError as error:
        package = {**NEEDED, **CODECS}.get((error.name or "").partition(".")[0])
        if package is None:
            raise
        raise PackageMissing([package]) from error


def prepare() -> None:
    """Make a process ready to plan a query."""
    check_packages()
    remember_archives()


def remember_archives() -> None:
    """Let this process keep what it knows of Spark's own archives."""
    for finder in sys.path_importer_cache.values():
        if isinstance(finder, zipimporter) and finder.archive.rpartition("/")[2].startswith(OF_SPARK):
            vars(finder)["invalidate_caches"] = _keep


def _keep() -> None:
    """Stand for invalidate_caches."""


def settle() -> None:
    """Make a worker ready for many tasks; what it has imported at the first of them is never garbage."""
    prepare()
    if not gc.get_freeze_count():
        gc.freeze()

"""minibroker on the machines of a cluster: a zip that Spark hands to its workers, and a check of what they have.

    minibroker spark --package minibroker.zip

What must hold: the zip is the package as it is installed here, the same bytes each time. Spark hands .zip, .egg and
.jar to workers and never .whl; what is not Python (numpy, pyarrow, google-crc32c, codecs) cannot be imported from a
zip, so workers must have it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from minibroker.spark.option_values import OptionError
from minibroker.spark.workers import CODECS, NEEDED

ENDING = ".zip"
TIME = (1980, 1, 1, 0, 0, 0)  # when zip's time begins


def write_package(target: str) -> str:
    """Write the zip; return what to do with it."""
    from importlib.machinery import EXTENSION_SUFFIXES
    from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

    if not target.endswith(ENDING):
        raise OptionError(f"--package {target}: Spark hands only {ENDING} to its workers, not even .whl: call it so")
    root = Path(__file__).parents[1]
    with ZipFile(target, "w") as file:
        for path in sorted(root.rglob("*")):
            # What is compiled cannot be loaded from a zip.
            if path.is_file() and "__pycache__" not in path.parts and not path.name.endswith(tuple(EXTENSION_SUFFIXES)):
                name = ZipInfo(f"minibroker/{path.relative_to(root).as_posix()}", TIME)
                file.writestr(name, path.read_bytes(), ZIP_DEFLATED)
    needed = ", ".join([*NEEDED.values(), *CODECS.values()])
    return (
        f"{target} is minibroker for workers. They need a Python with {needed}; PYSPARK_PYTHON says which.\n\n"
        f"  spark-submit --master spark://HOST:7077 --py-files {target} query.py\n"
        f"  minibroker spark export --master spark://HOST:7077 --py-files {target} ..."
    )


def check_workers(spark: Any) -> None:
    """Raise OptionError if a worker of a cluster lacks our code, or what it needs.

    Some tasks look around where they run: what they find is no proof of machines that come later.
    """
    names = ["minibroker", *NEEDED]

    def look(_: int) -> tuple[str, str, list[str]]:  # handed over as it is, as there may be no minibroker
        import platform
        import sys
        from importlib.util import find_spec

        return platform.node(), sys.executable, [name for name in names if find_spec(name) is None]

    try:
        context = spark.sparkContext
    except Exception:
        return  # Spark Connect: the server's machines are its own matter
    if context.master.startswith("local"):
        return
    count = context.defaultParallelism
    look.__module__ = "__main__"
    for host, python, missing in context.parallelize(range(count), count).map(look).collect():
        if "minibroker" in missing:
            raise OptionError(
                f"the worker on {host} has no minibroker in {python}: add --py-files with what "
                "`minibroker spark --package minibroker.zip` writes, or install minibroker[spark] there"
            )
        if missing:
            packages = ", ".join(NEEDED[name] for name in missing)
            raise OptionError(
                f"the worker on {host} has no {packages} in {python}: install it there, or set PYSPARK_PYTHON to a "
                "Python that has it"
            )

"""Python workers of Spark: what would take longer than a short task does, and is in vain.

Before each task, and each time a query is planned, Spark lets importlib forget what it knows of folders and archives.
Python 3.11 and 3.12 then read the directory of each archive anew, once for each package of it that is in use: that is
PySpark's own archive a dozen times, and Spark's jar with 5,000 classes and no module, a quarter of a second in all.
After each task Spark's daemon collects garbage, and looks at every object of numpy, pyarrow and pandas for it.
What must hold: nothing that can be imported is lost. Only Spark's own archives, which do not change while it runs, are
remembered; those of the user's (`--py-files`) are not touched.
"""

from __future__ import annotations

import gc
import sys
from zipimport import zipimporter

OF_SPARK = ("pyspark.zip", "py4j-", "spark-core_")  # how the names of its archives begin


def remember_archives() -> None:
    """Let this process keep what it knows of Spark's own archives."""
    for finder in sys.path_importer_cache.values():
        if isinstance(finder, zipimporter) and finder.archive.rpartition("/")[2].startswith(OF_SPARK):
            vars(finder)["invalidate_caches"] = _keep


def _keep() -> None:
    """Stand for invalidate_caches."""


def settle() -> None:
    """Make a worker ready for many tasks; what it has imported at the first of them is never garbage."""
    remember_archives()
    if not gc.get_freeze_count():
        gc.freeze()

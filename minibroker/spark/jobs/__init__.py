"""Jobs on Spark, for topics and log directories.

Each is a module with a function that people call (`export(spark, ...)`), and for `minibroker spark NAME` and
spark-submit DESCRIPTION, perhaps EPILOG, `add_arguments(parser)` and `run(spark, options, progress)`, which returns a
Summary. What a job found is in its summary, so that people, scripts (`--json`) and tests see the same.
"""

from __future__ import annotations

from types import ModuleType

# Job -> what it does. In the order in which people meet them.
JOBS = {
    "export": "write topics to Parquet, Delta or Iceberg, each record once, as far as there are new ones",
    "import": "write files, or records made up by a rule, to topics or log directories",
    "load": "the same as import",
    "profile": "say what topics hold: records, bytes, batches, keys, times, producers; with a report in HTML",
    "codecs": "compare compression types and levels on your own records",
    "verify": "check log directories: checksums, offsets, indexes, epochs, replicas",
    "rewrite": "write log directories in another record format or compression",
    "convert": "the same as rewrite",
    "slice": "take a sampled, masked, shifted part of topics, as a fixture for tests",
}
# What was a job once -> what does it now.
GONE = {
    "compact": "the broker's own cleaner does it: copy the directory, `minibroker serve --data-dir COPY`, then "
    "`minibroker roll` and `minibroker compact`",
}
MODULES = {
    "import": "loading",
    "load": "loading",
    "convert": "rewrite",
}  # where a job's name cannot be that of its module


def job_module(name: str) -> ModuleType:
    from importlib import import_module

    return import_module(f"minibroker.spark.jobs.{MODULES.get(name, name)}")

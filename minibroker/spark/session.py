"""The session of Spark that jobs work in: the one that is there, or a new one, with our data source in it.

Under spark-submit and in notebooks a session is there already, with a master and memory that somebody has chosen; on a
laptop there is none, and `local[*]` is what is meant.
"""

from __future__ import annotations

import os

from minibroker.spark.java import use_java

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession  # pyright: ignore

DEFAULTS = {
    "spark.app.name": "minibroker",
    "spark.ui.showConsoleProgress": "false",  # jobs draw their own
    "spark.sql.session.timeZone": "UTC",  # dates of records must not depend on whose laptop it is
    "spark.sql.python.filterPushdown.enabled": "true",  # from 4.1 on
}
LOCAL = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1", "spark.ui.enabled": "false"}


class SparkMissing(Exception):
    """PySpark or what our source needs is not installed; the text says what helps."""

    def __init__(self, error: ImportError):
        super().__init__(
            f"{error.name} is not installed, which the jobs of Spark need: pip install 'minibroker[spark]'"
        )


def open_session(
    master: str | None = None, settings: Mapping[str, str] | None = None, *, memory: str | None = None
) -> SparkSession:
    """Return a session; raise SparkMissing or JavaMissing where there cannot be one."""
    try:
        import numpy
        import pyarrow
        from pyspark.sql import SparkSession  # pyright: ignore
    except ImportError as error:
        raise SparkMissing(error) from None
    del numpy, pyarrow
    told = dict(settings or {})
    is_remote = "SPARK_REMOTE" in os.environ or "spark.remote" in told or (master or "").startswith("sc://")
    session = SparkSession.getActiveSession()
    if session is None:
        if not is_remote:
            use_java()
        builder = SparkSession.builder
        if is_remote:
            if master is not None:
                builder = builder.remote(master)
        else:
            chosen = master or os.environ.get("SPARK_MASTER") or told.get("spark.master")
            if chosen is None and "PYSPARK_GATEWAY_PORT" not in os.environ:  # spark-submit says it for itself
                chosen = "local[*]"
            told = {**DEFAULTS, **(LOCAL if (chosen or "").startswith("local") else {}), **told}
            if chosen is not None:
                builder = builder.master(chosen)
            if memory is not None:
                told["spark.driver.memory"] = memory
        for name, value in told.items():
            builder = builder.config(name, value)
        session = builder.getOrCreate()
    from minibroker.spark.source import MinibrokerSource

    session.dataSource.register(MinibrokerSource)
    return session

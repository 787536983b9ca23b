"""The session of Spark that jobs work in: the one that is there, or a new one, with our data source in it.

    spark = open_session()

Under spark-submit and in notebooks a session is there already, with a master and memory that somebody has chosen; on a
laptop there is none, and `local[*]` is what is meant. Workers of a laptop are this Python, with what is installed for
it, whether or not its environment is activated: Spark itself would start the python3 of the PATH.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Any

from minibroker.spark.java import use_java
from minibroker.spark.workers import SparkMissing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pyspark.sql import SparkSession  # pyright: ignore

DEFAULTS = {
    "spark.app.name": "minibroker",
    "spark.ui.showConsoleProgress": "false",  # jobs draw their own
    "spark.sql.session.timeZone": "UTC",  # dates of records must not depend on whose laptop it is
    "spark.sql.python.filterPushdown.enabled": "true",  # from 4.1 on
}
LOCAL = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1", "spark.ui.enabled": "false"}


def open_session(
    master: str | None = None, settings: Mapping[str, str] | None = None, *, memory: str | None = None
) -> SparkSession:
    """Return a session; raise SparkMissing or JavaMissing where there cannot be one."""
    try:
        import numpy
        import pyarrow
        import pyspark.sql.datasource  # pyright: ignore
        from pyspark.sql import SparkSession  # pyright: ignore
    except ImportError as error:
        raise SparkMissing(error) from None
    del numpy, pyarrow, pyspark
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
            is_local = (chosen or "").startswith("local")
            told = {**DEFAULTS, **(LOCAL if is_local else {}), **told}
            if is_local:
                os.environ.setdefault("PYSPARK_PYTHON", told.get("spark.pyspark.python", sys.executable))
            if chosen is not None:
                builder = builder.master(chosen)
            _let_streams_find(told.get("spark.submit.pyFiles", ""))
            if memory is not None:
                told["spark.driver.memory"] = memory
        for name, value in told.items():
            builder = builder.config(name, value)
        session = builder.getOrCreate()
    use_source(session)
    return session


def _let_streams_find(files: str) -> None:
    """Put --py-files on the path of the driver's programs: Spark hands them to all but the one that plans streams."""
    found = [os.path.abspath(each) for each in files.split(",") if each and "://" not in each]
    before = os.environ.get("PYTHONPATH")
    if found:
        os.environ["PYTHONPATH"] = os.pathsep.join([*found, *([before] if before else ())])


def use_source(session: Any) -> None:
    """Let a session know our data source, unless it does."""
    from minibroker.spark.source import NAME, MinibrokerSource

    try:
        is_known = session._jsparkSession.sessionState().dataSourceManager().dataSourceExists(NAME)
    except Exception:  # Spark Connect: only the server could say
        is_known = False
    if not is_known:
        session.dataSource.register(MinibrokerSource)

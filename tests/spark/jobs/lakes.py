"""What the tests of `export` let happen in the session."""

from __future__ import annotations

import json
from typing import Any

from minibroker.spark.jobs.export import export


def exported(
    spark: Any,
    *,
    target: str,
    path: str = "",
    servers: str = "",
    topic: str = "orders",
    mode: str = "fail",
    ending: str = "latest",
    **told: Any,
) -> Any:
    """Export; return the summary, or what was wrong."""
    options = {"subscribe": topic, "mode": mode} | ({"path": path} if path else {"kafka.bootstrap.servers": servers})
    options |= {} if ending == "latest" else {"endingOffsets": ending}
    try:
        return json.loads(export(spark, options, target, **told).as_json())
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}


def rows(spark: Any, *, target: str, columns: str = "topic,partition,offset", table_format: str = "parquet") -> Any:
    """Return what somebody sees who knows nothing of us."""
    frame = spark.table(target) if table_format == "iceberg" else spark.read.format(table_format).load(target)
    return [
        list(row) for row in frame.selectExpr(*columns.split(",")).orderBy("topic", "partition", "offset").collect()
    ]


def columns(spark: Any, *, target: str) -> Any:
    return spark.read.parquet(target).dtypes

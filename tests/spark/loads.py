"""Loads in Spark's session: what tests call there."""

from __future__ import annotations

from typing import Any


def frame_of(spark: Any, count: int, *, tasks: int = 2, columns: dict[str, str] | None = None) -> Any:
    """Return rows made by SQL from their number, `id`."""
    told = {"key": "cast(id % 50 as string)", "value": "concat('v', id)", **(columns or {})}
    frame = spark.range(0, count, 1, tasks)
    return frame.selectExpr(*(f"{sql} as {name}" for name, sql in told.items()))


def load_rows(
    spark: Any, path: str, count: int, tasks: int = 2, columns: dict[str, str] | None = None, **arguments: Any
) -> dict[str, Any]:
    """Load so many rows; return what was added."""
    from minibroker.spark.load import load

    done = load(frame_of(spark, count, tasks=tasks, columns=columns), path, **arguments)
    return {
        "partitions": [list(each) for each in done.partitions],
        "left": done.left,
        "records": done.records,
        "size_bytes": done.size_bytes,
        "segments": done.segments,
    }


def write_rows(
    spark: Any,
    path: str,
    count: int,
    tasks: int = 2,
    columns: dict[str, str] | None = None,
    mode: str = "append",
    **options: Any,
) -> None:
    """Do the same through Spark's own way to write."""
    told = {name.replace("__", "."): str(value) for name, value in options.items()}
    frame = frame_of(spark, count, tasks=tasks, columns=columns)
    frame.write.format("minibroker").options(**told).option("path", path).mode(mode).save()

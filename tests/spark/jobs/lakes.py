"""What the tests of `export` let happen in the session."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from minibroker.spark.folders import HadoopFolder, open_folder, walk
from minibroker.spark.jobs.export import export
from tests.spark.jobs.dying_folder import DyingFolder, Killed


def exported(
    spark: Any,
    *,
    target: str,
    path: str = "",
    servers: str = "",
    topic: str = "orders",
    mode: str = "fail",
    **told: Any,
) -> Any:
    """Export; return the summary, or what was wrong."""
    options = {"subscribe": topic, "mode": mode} | ({"path": path} if path else {"kafka.bootstrap.servers": servers})
    try:
        return json.loads(export(spark, options, target, **told).as_json())
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}


def rows(spark: Any, *, target: str, columns: str = "topic,partition,offset") -> Any:
    """Return what somebody sees who knows nothing of manifests."""
    frame = spark.read.parquet(target)
    return [
        list(row) for row in frame.selectExpr(*columns.split(",")).orderBy("topic", "partition", "offset").collect()
    ]


def columns(spark: Any, *, target: str) -> Any:
    return spark.read.parquet(target).dtypes


def killed_at(spark: Any, *, path: str, target: str, changes: int, after: bool) -> Any:
    """Export and compact, killed at some change to the folder; then again. Return whether it was, and the rows."""
    shutil.rmtree(target, ignore_errors=True)
    options = {"path": path, "subscribe": "orders"}
    export(spark, options, target, offsets_max=6)
    was_killed = False
    try:
        export(
            spark, options, target, compact=True, folder=DyingFolder(open_folder(target, spark), changes, after=after)
        )
    except Killed:
        was_killed = True
    seen = spark.read.parquet(target).select("partition", "offset").count()
    export(spark, options, target, compact=True)
    found = [list(row) for row in spark.read.parquet(target).select("partition", "offset").collect()]
    left = [entry.name for entry in walk(open_folder(target, spark)) if "_staging" in entry.name]
    return [was_killed, seen, sorted(found), left]


def hadoop_folder(spark: Any, *, place: str) -> Any:
    """Do all that a folder can, through Hadoop."""
    folder = HadoopFolder(spark, f"file://{place}")
    told: list[Any] = [folder.exists(), folder.list()]
    folder.write("a/b", b"1")
    folder.write("a/b", b"23")
    told += [folder.read("a/b"), folder.write_new("a/b", b"4"), folder.write_new("a/c", bytes(range(256)))]
    told += [folder.list("a"), folder.move("a/b", "x/y/b"), folder.move("a/b", "x")]
    told += [len(folder.read("a/c")), [entry.name for entry in walk(folder)]]
    folder.remove("x")
    folder.remove("x")
    try:
        folder.read("x/y/b")
    except Exception as error:
        told.append(f"{type(error).__name__}: {error}".replace(place, "PLACE"))
    try:
        open_folder("nowhere://a/b", spark)
    except Exception as error:
        told.append(f"{type(error).__name__}: {error}")
    return [*told, Path(place, "a/c").read_bytes()[:3], type(open_folder(place, spark)).__name__]

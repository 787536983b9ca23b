"""Exports into tables of Delta Lake or Iceberg, which know of commits themselves.

A run writes what it is about to do into a version of the manifest, appends to the table under that version's name, and
makes the next version. One that was killed in between is done again by the next run with the same ranges.
What must hold: what the table has already under that name is not appended again. Delta looks for it itself
(`txnAppId`, `txnVersion`); Iceberg keeps it as a property of the snapshot, and is asked.
Not here: Parquet (export_files.py).
"""

from __future__ import annotations

from typing import Any

from minibroker.spark.option_values import OptionError

PARQUET, DELTA, ICEBERG = FORMATS = ("parquet", "delta", "iceberg")
APPLICATION = "minibroker-export"
CLASSES = {DELTA: "io.delta.sql.DeltaSparkSessionExtension", ICEBERG: "org.apache.iceberg.spark.source.IcebergSource"}
ADVICE = {
    DELTA: "--conf spark.jars.packages=io.delta:delta-spark_2.13:4.0.0 "
    "--conf spark.sql.extensions=io.delta.sql.DeltaSparkSessionExtension "
    "--conf spark.sql.catalog.spark_catalog=org.apache.spark.sql.delta.catalog.DeltaCatalog",
    ICEBERG: "--conf spark.jars.packages=org.apache.iceberg:iceberg-spark-runtime-4.0_2.13:1.10.0 "
    "--conf spark.sql.catalog.lake=org.apache.iceberg.spark.SparkCatalog "
    "--conf spark.sql.catalog.lake.type=hadoop --conf spark.sql.catalog.lake.warehouse=DIR",
}


def check_there(spark: Any, table_format: str) -> None:
    """Raise OptionError unless the session can write such tables."""
    try:
        loader = spark.sparkContext._jvm.java.lang.Thread.currentThread().getContextClassLoader()
    except Exception:  # Spark Connect: the server knows, and will say
        return
    try:
        loader.loadClass(CLASSES[table_format])
    except Exception:
        raise OptionError(
            f"--format {table_format}: this session has no {table_format.capitalize()}; add {ADVICE[table_format]}"
        ) from None


def append(frame: Any, table_format: str, target: str, version: int, place: str) -> None:
    """Append rows to a table, unless those of that version of the manifest at `place` are there."""
    if table_format == DELTA:
        writer = frame.write.format(DELTA).mode("append").partitionBy("topic", "date")
        writer = writer.option("txnAppId", f"{APPLICATION} {place}").option("txnVersion", version)
        writer.save(target)
        return
    spark = frame.sparkSession
    mark = f"{place} {version}"
    is_there = spark.catalog.tableExists(target)
    if is_there:
        snapshots = spark.table(f"{target}.snapshots")
        if snapshots.where(snapshots["summary"][APPLICATION] == mark).count():
            return
    writer = frame.sortWithinPartitions("topic", "date").writeTo(target)
    writer = writer.using(ICEBERG).option(f"snapshot-property.{APPLICATION}", mark)
    if is_there:
        writer.append()
    else:
        writer.partitionedBy(frame.topic, frame.date).create()

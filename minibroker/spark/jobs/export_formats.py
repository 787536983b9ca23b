"""The words of an export: formats and values, and what a session must have for tables. Light: `--help` needs it."""

from __future__ import annotations

from typing import Any

from minibroker.spark.option_values import OptionError

BINARY, STRING, JSON = VALUES = ("binary", "string", "json")
CHECKPOINT = "_checkpoint"  # in the target, unless somebody says otherwise
PARQUET, DELTA, ICEBERG = FORMATS = ("parquet", "delta", "iceberg")
CLASSES = {DELTA: "io.delta.sql.DeltaSparkSessionExtension", ICEBERG: "org.apache.iceberg.spark.source.IcebergSource"}
# {}: the version of Spark, as 4.1
ADVICE = {
    DELTA: "--conf spark.jars.packages=io.delta:delta-spark_{}_2.13:4.3.1 "
    "--conf spark.sql.extensions=io.delta.sql.DeltaSparkSessionExtension "
    "--conf spark.sql.catalog.spark_catalog=org.apache.spark.sql.delta.catalog.DeltaCatalog",
    ICEBERG: "--conf spark.jars.packages=org.apache.iceberg:iceberg-spark-runtime-{}_2.13:1.12.0 "
    "--conf spark.sql.extensions=org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions "
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
        advice = ADVICE[table_format].format(spark.version.rpartition(".")[0])
        raise OptionError(
            f"--format {table_format}: this session has no {table_format.capitalize()}; add {advice}"
        ) from None

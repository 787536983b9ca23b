"""The words of an export: formats and values, and what a session must have for tables. Light: `--help` needs it."""

from __future__ import annotations

from typing import Any

from minibroker.spark.option_values import OptionError

BINARY, STRING, JSON = VALUES = ("binary", "string", "json")
CHECKPOINT = "_checkpoint"  # in the target, unless somebody says otherwise
PARQUET, DELTA, ICEBERG = FORMATS = ("parquet", "delta", "iceberg")
CLASSES = {DELTA: "io.delta.sql.DeltaSparkSessionExtension", ICEBERG: "org.apache.iceberg.spark.source.IcebergSource"}
# Releases of Spark that the versions below are made for.
MADE_FOR = {DELTA: ("4.0", "4.1"), ICEBERG: ("4.1",)}
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
        release, made_for = spark.version.rpartition(".")[0], MADE_FOR[table_format]
        advice = f"add {ADVICE[table_format].format(release if release in made_for else made_for[-1])}"
        if release not in made_for:
            older = f"pip install 'pyspark=={made_for[-1]}.*'"
            advice = f"for Spark {release} there was none when this was written: {older}, and {advice}"
        name = table_format.capitalize()
        raise OptionError(f"--format {table_format}: this session has no {name}; {advice}") from None

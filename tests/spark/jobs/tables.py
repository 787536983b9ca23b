"""Settings of a session for Delta Lake and Iceberg, whose tables lie below one folder."""

from __future__ import annotations

EXTENSIONS = (
    "io.delta.sql.DeltaSparkSessionExtension",
    "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
)


def settings(warehouse: str) -> dict[str, str]:
    return {
        "spark.sql.extensions": ",".join(EXTENSIONS),
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.lake.type": "hadoop",
        "spark.sql.catalog.lake.warehouse": warehouse,
        "spark.driver.memory": "1g",
        "spark.databricks.delta.snapshotPartitions": "1",  # 50 tasks for each look at a table
    }

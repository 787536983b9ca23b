"""Superseded records of logs: keys and offsets of all records, shuffled by key, a bit for each superseded one.

    segments -> keys and offsets -> by log and digest of the key: the last offset -> bits by offset

A record is superseded if its key comes again in the part of the log that is dirty. Keys are compared by their MD5 sums,
128 bits, as Kafka's cleaner compares them.
Memory: Spark's, which goes to its disks if need be; the driver holds a bit for each offset.
Not here: reading segments (compact_keys.py).
"""

from __future__ import annotations

import base64
import pickle
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition  # pyright: ignore

from minibroker.spark.jobs.compact_keys import Keys, keys_of
from minibroker.spark.jobs.compact_segments import BUCKET_BITS

NAME = "minibroker-keys"
# What has no key has been seen to be superseded. Each gets a name of its own, or all would come together.
FOUND = f"""
    SELECT log, offset >> {BUCKET_BITS} AS bucket,
           bitmap_construct_agg(offset & {(1 << BUCKET_BITS) - 1}) AS bits
    FROM (SELECT log, offset, key IS NULL AS is_known,
                 max(CASE WHEN tells THEN offset END) OVER (PARTITION BY log, name) AS last
          FROM (SELECT *, coalesce(unhex(md5(key)), unhex(hex(offset))) AS name FROM {{frame}}))
    WHERE is_known OR offset < last
    GROUP BY log, bucket
"""


class KeySource(DataSource):
    """Keys as a table."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> str:
        return "log int, key binary, offset long, tells boolean"

    def reader(self, schema: Any) -> KeyReader:
        del schema
        return KeyReader(pickle.loads(base64.b64decode(self.options["works"])))


class KeyReader(DataSourceReader):
    """Reads a segment in each task."""

    def __init__(self, works: list[Keys]):
        self.works = works

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(work) for work in self.works]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        yield from keys_of(partition.value)


def find_superseded(spark: Any, works: Sequence[Keys]) -> dict[int, dict[int, bytes]]:
    """Return the bits of each log by 32,768 offsets."""
    found: dict[int, dict[int, bytes]] = {}
    if works:
        spark.dataSource.register(KeySource)
        told = base64.b64encode(pickle.dumps(list(works))).decode()
        frame = spark.read.format(NAME).option("works", told).load()
        for log, bucket, bits in spark.sql(FOUND, frame=frame).collect():
            found.setdefault(log, {})[bucket] = bytes(bits)
    return found

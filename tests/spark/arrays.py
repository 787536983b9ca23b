"""What a function over batches of Arrow gets of rows with and without arrays, in the session of the tests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from minibroker.spark.arrow_map import map_in_arrow, with_arrays

HEADERS = "ARRAY<STRUCT<key: STRING, value: BINARY>>"
ONE = "array(named_struct('key', 'a', 'value', cast('1' as binary)))"


def seen(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield pa.RecordBatch.from_pydict({"row": [str(row) for row in batch.to_pylist()]})


def texts(spark: Any) -> list[str]:
    """Return what comes of a row without headers, and of one with."""
    rows = spark.range(0, 2, 1, 1).selectExpr("id", f"cast(if(id = 0, null, {ONE}) as {HEADERS}) as headers")
    return [row[0] for row in map_in_arrow(rows, seen, "row STRING").collect()]


def keeps_others(spark: Any) -> bool:
    rows = spark.range(0, 2)
    return with_arrays(rows) is rows

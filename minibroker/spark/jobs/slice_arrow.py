"""Masking of record batches.

What must hold: columns that are not masked are handed on as they are.
Not here: what a mask does (slice_masking.py).
"""

from __future__ import annotations

import pyarrow as pa

from minibroker.spark.columns.rows_of_query import ROWS
from minibroker.spark.jobs.slice_masking import Masker

MASKED = ROWS.append(pa.field("met", pa.int64()))


def masked(batch: pa.RecordBatch, masker: Masker) -> pa.RecordBatch:
    """Return the batch masked, and a column with bits for the masks that met something."""
    columns = {name: batch.column(name) for name in ROWS.names}
    keys, values, headers, mets = [], [], [], []
    texts = (columns[name].to_pylist() for name in ("topic", "key", "value", "headers"))
    for topic, key, value, given in zip(*texts, strict=True):
        pairs = None if given is None else [(each["key"], each["value"]) for each in given]
        key, value, kept, met = masker.masked(topic, key, value, pairs)
        keys.append(key)
        values.append(value)
        headers.append(None if kept is None else [{"key": name, "value": data} for name, data in kept])
        mets.append(met)
    for name, made in (("key", keys), ("value", values), ("headers", headers)):
        columns[name] = pa.array(made, ROWS.field(name).type)
    arrays = [columns[name].cast(ROWS.field(name).type) for name in ROWS.names]
    return pa.RecordBatch.from_arrays([*arrays, pa.array(mets, pa.int64())], schema=MASKED)

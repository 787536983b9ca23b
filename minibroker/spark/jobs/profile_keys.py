"""The keys of a profile: how often each is there, counted in Arrow where all of a key have come together.

    facts -> (topic, key) -> counts of a task -> (topic) -> rows of its partitions, of itself, of its most frequent keys

What must hold: keys are counted, not estimated. From where they are counted nothing goes on but what is shown.
Not here: facts (profile_counting.py), tables that follow from these rows (profile_tables.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute

from minibroker.spark.arrow_map import map_in_arrow
from minibroker.spark.workers import settle

pc: Any = pyarrow.compute  # its functions are made when it is imported
KEYS_SHOWN = 10
KEY_BYTES_SHOWN = 256
RECORDS_OF_TASK, BYTES_OF_TASK = 1_000_000, 64 << 20
COLUMNS = {
    "topic": pa.string(),
    "partition": pa.int32(),  # none: of the topic
    "key": pa.binary(),  # none: of all keys
    "records": pa.int64(),
    "distinct_keys": pa.int64(),
    "in_several": pa.int64(),
}
ROWS = pa.schema(list(COLUMNS.items()))
ROWS_SCHEMA = "topic string, partition int, key binary, records bigint, distinct_keys bigint, in_several bigint"
SUMS = ("records", "distinct_keys", "in_several")


def key_rows(facts: Any, records: int, key_bytes: int) -> Any:
    """Return the frame of what there is to say of keys."""
    count = max(1, -(-records // RECORDS_OF_TASK), -(-key_bytes // BYTES_OF_TASK))
    keys = facts.where("key is not null").select("topic", "partition", "key", "records")
    counted = map_in_arrow(keys.repartition(count, "topic", "key"), _told(_counted), ROWS_SCHEMA)
    if count == 1:
        return counted
    return map_in_arrow(counted.repartition(min(count, 200), "topic"), _told(_joined), ROWS_SCHEMA)


def _told(made: Callable[[pa.Table], list[pa.Table]]) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def told(chunks: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        settle()
        if batches := list(chunks):
            for rows in made(pa.Table.from_batches(batches)):
                absent = {name: pa.nulls(len(rows), kind) for name, kind in COLUMNS.items()}
                yield from pa.table(absent | dict(zip(rows.column_names, rows.columns))).cast(ROWS).to_batches()

    return told


def _counted(rows: pa.Table) -> list[pa.Table]:
    """Return what rows of topic, partition, key and records come to."""
    counts = _sums(rows, ["topic", "partition", "key"], ["records"])
    keys = counts.append_column("places", pa.repeat(1, len(counts)))
    keys = _sums(keys, ["topic", "key"], ["records", "places"])
    counts = counts.append_column("distinct_keys", pa.repeat(1, len(counts)))
    of_topics = keys.append_column("distinct_keys", pa.repeat(1, len(keys)))
    of_topics = of_topics.append_column("in_several", pc.greater(keys["places"], 1).cast(pa.int64()))
    return [
        _sums(counts, ["topic", "partition"], ["records", "distinct_keys"]),
        _sums(of_topics, ["topic"], list(SUMS)),
        _most_frequent(keys),
    ]


def _joined(rows: pa.Table) -> list[pa.Table]:
    """Put together what tasks have counted; no key is in the rows of two."""
    sums = rows.filter(rows["key"].is_null())
    return [_sums(sums, ["topic", "partition"], list(SUMS)), _most_frequent(rows.filter(rows["key"].is_valid()))]


def _sums(rows: pa.Table, names: list[str], summed: list[str]) -> pa.Table:
    # Text is slow to group by.
    topics = rows["topic"].combine_chunks().dictionary_encode()
    coded = rows.set_column(rows.column_names.index("topic"), "topic", topics.indices)
    found = coded.group_by(names).aggregate([(name, "sum") for name in summed])
    columns = {name: found[name] for name in names} | {name: found[f"{name}_sum"] for name in summed}
    return pa.table(columns | {"topic": pa.chunked_array([topics.dictionary.take(columns["topic"].combine_chunks())])})


def _most_frequent(keys: pa.Table) -> pa.Table:
    """Return a few keys of each topic."""
    codes = keys["topic"].combine_chunks().dictionary_encode().indices.to_numpy()
    order = np.argsort(codes, kind="stable")
    ends = np.cumsum(np.bincount(codes))
    keys = keys.select(["topic", "key", "records"]).take(pa.array(order))
    by = [("records", "descending"), ("key", "ascending")]
    each = [keys.slice(begin, end - begin) for begin, end in zip([0, *ends[:-1]], ends, strict=True)]
    shown = [mine.take(pc.select_k_unstable(mine, k=KEYS_SHOWN, sort_keys=by)) for mine in each]
    found = pa.concat_tables([keys.slice(0, 0), *shown])
    return found.set_column(1, "key", pc.binary_slice(found["key"], 0, KEY_BYTES_SHOWN))

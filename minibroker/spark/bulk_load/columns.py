"""Columns of a bulk load: which ones there must be, and a batch of Arrow as keys, values and the rest.

Columns are those of Spark's Kafka sink, and `timestamp`:

    value      binary, string       must be there
    key        binary, string
    topic      string               must be there if no option names the topic
    partition  int                  null: the key decides, as in Kafka's clients
    headers    array of key and value
    timestamp  timestamp, long      the time of the record, ms since 1970 if it is a long; null: the time of the load

Other columns are not looked at, as there.
Not here: who puts rows into batches (segments.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa

from minibroker.spark.columns.varints import Int64s
from minibroker.spark.option_values import OptionError
from minibroker.spark.sink.rows import as_binary, times_of

BYTES = ("binary", "string")
COLUMNS: dict[str, tuple[str, ...]] = {  # name -> types, as Spark names them
    "value": BYTES,
    "key": BYTES,
    "topic": ("string",),
    "partition": ("int", "smallint", "tinyint", "bigint"),
    "headers": ("array<struct<key:string,value:binary>>",),
    "timestamp": ("timestamp", "bigint"),
}


def check_columns(fields: Iterable[tuple[str, str]], topic: str | None) -> list[str]:
    """Return which columns are used; raise OptionError for what is missing, or of another type.

    fields: name and type of each column, as Spark says them.
    """
    used = []
    for name, kind in fields:
        lower = name.lower()
        if lower not in COLUMNS or (lower == "topic" and topic is not None):
            continue
        if kind not in COLUMNS[lower]:
            raise OptionError(f"column {name} is {kind}: it must be {' or '.join(COLUMNS[lower])}")
        used.append(name)
    lower_names = [name.lower() for name in used]
    if "value" not in lower_names:
        raise OptionError("there is no column value: name what is to be the content of records so")
    if topic is None and "topic" not in lower_names:
        raise OptionError("there is no column topic: add one, or set the option topic")
    if len(set(lower_names)) < len(used):
        raise OptionError("a column comes twice")
    return used


class Rows:
    """Some rows, as arrays; columns that are not there are None."""

    def __init__(self, whole: pa.RecordBatch):
        self._whole = whole
        found = {name.lower(): whole.column(name) for name in whole.schema.names if name.lower() in COLUMNS}
        self.values = as_binary(found["value"])
        self.keys = as_binary(found["key"]) if "key" in found else None
        self.topics = found.get("topic")
        self.partitions = found.get("partition")
        self.headers = found.get("headers")
        self._timestamps = found.get("timestamp")

    def __len__(self) -> int:
        return len(self.values)

    def by_topic(self) -> Iterator[tuple[str | None, Rows]]:
        """Yield each topic and its rows."""
        assert self.topics is not None
        encoded = self.topics.dictionary_encode()
        names = encoded.dictionary.to_pylist()
        if len(names) == 1 and not encoded.null_count:
            yield names[0], self
            return
        codes = np.asarray(encoded.indices.fill_null(len(names)))
        order = np.argsort(codes, kind="stable")
        whole = self._whole.take(pa.array(order))
        begin = 0
        for name, count in zip([*names, None], np.bincount(codes, minlength=len(names) + 1).tolist(), strict=True):
            if count:
                yield name, Rows(whole.slice(begin, count))
            begin += count

    def timestamps(self, now_ms: int) -> Int64s:
        """Return ms since 1970; `now_ms` where there is none."""
        return times_of(self._timestamps, len(self), now_ms)

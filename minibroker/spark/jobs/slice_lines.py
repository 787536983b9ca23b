"""Records as lines of JSON: what `minibroker consume -J` and kcat -J write, and `minibroker produce -J` reads.

    {"topic":"orders","partition":0,"offset":7,"tstype":"create","ts":1700000000000,"headers":["h","x"],"key":"17",
     "payload":"{\\"id\\":17}"}

Bytes that are no UTF-8 are {"base64": "..."}, so nothing is lost.
Not here: the same for the command line (minibroker/cli/record_format.py), which Spark must not need.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Iterator
from json import JSONEncoder, dumps, loads
from typing import Any

import pyarrow as pa

from minibroker.spark.columns.rows_of_query import ROWS
from minibroker.spark.option_values import OptionError

TIMESTAMP_TYPES = {0: "create", 1: "logappend"}
LINES = pa.schema([("topic", pa.string()), ("partition", pa.int32()), ("offset", pa.int64()), ("line", pa.string())])
LINES_DDL = "topic STRING, partition INT, offset BIGINT, line STRING"
RECORDS_DDL = (  # ROWS, as Spark is told of them
    "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP, timestampType INT, "
    "headers ARRAY<STRUCT<key: STRING, value: BINARY>>"
)
_encode = JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def as_lines(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Turn records into lines."""
    for batch in batches:
        columns = batch.to_pydict() | {"timestamp": batch.column("timestamp").cast(pa.int64()).to_pylist()}
        lines = [
            line_of(dict(zip(columns, row, strict=True))) for row in zip(*columns.values(), strict=True)
        ]  # a row is what it says of each column
        yield pa.RecordBatch.from_arrays(
            [batch.column(name) for name in LINES.names[:3]] + [pa.array(lines, pa.string())], schema=LINES
        )


def line_of(row: dict[str, Any]) -> str:
    document: dict[str, Any] = {name: row[name] for name in ("topic", "partition", "offset")}
    document["tstype"] = TIMESTAMP_TYPES.get(row["timestampType"], "unknown")
    if row["timestampType"] in TIMESTAMP_TYPES:
        document["ts"] = row["timestamp"] // 1000
    if row["headers"]:
        document["headers"] = [item for each in row["headers"] for item in (each["key"], _shown(each["value"]))]
    return _encode({**document, "key": _shown(row["key"]), "payload": _shown(row["value"])})


def _shown(data: bytes | None) -> str | dict[str, str] | None:
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": b64encode(data).decode()}


def as_records(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Turn lines into records."""
    for batch in batches:
        rows = [record_of(line) for line in batch.column(0).to_pylist() if line.strip()]
        columns = [pa.array([row[name] for row in rows], ROWS.field(name).type) for name in ROWS.names]
        yield pa.RecordBatch.from_arrays(columns, schema=ROWS)


def record_of(line: str) -> dict[str, Any]:
    try:
        document = loads(line)
        flat = document.get("headers") or []
        time_ms = document.get("ts")
        return {
            "key": _bytes(document.get("key")),
            "value": _bytes(document.get("payload")),
            "topic": document.get("topic"),
            "partition": document.get("partition"),
            "offset": document.get("offset"),
            "timestamp": None if time_ms is None else time_ms * 1000,
            "timestampType": 1 if document.get("tstype") == "logappend" else 0,
            "headers": [
                {"key": str(name), "value": _bytes(value)} for name, value in zip(flat[::2], flat[1::2], strict=True)
            ]
            or None,
        }
    except (ValueError, TypeError, AttributeError, KeyError) as error:
        raise OptionError(f"{line[:60]!r} is no record in JSON: {error}") from None


def _bytes(value: Any) -> bytes | None:
    if value is None:
        return None
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, dict) and "base64" in value:
        return b64decode(value["base64"])
    return dumps(value).encode()  # a document within, as people write it

"""Records as lines of JSON: what `minibroker consume -J`, kcat -J and `minibroker spark slice` write.

    {"topic":"orders","partition":0,"offset":7,"tstype":"create","ts":1700000000000,"headers":["h","x"],"key":"17",
     "payload":"{\\"id\\":17}"}

What must hold: nothing is lost: bytes that are no UTF-8 are {"base64": "..."}.
Not here: where lines come from and go to (cli/input.py, cli/record_format.py, spark/jobs).
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from json import JSONEncoder, dumps, loads

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    Header = tuple[str, bytes | None]

TIMESTAMP_TYPES = {0: "create", 1: "logappend"}
_encode = JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def line_of(
    topic: str,
    partition: int,
    offset: int,
    key: bytes | None,
    value: bytes | None,
    headers: Sequence[Header],
    timestamp: int,
    timestamp_type: int,
    *,
    broker: int | None = None,
) -> str:
    """Write a record; timestamp: in ms."""
    kind = TIMESTAMP_TYPES.get(timestamp_type)
    document: dict[str, Any] = {"topic": topic, "partition": partition, "offset": offset, "tstype": kind or "unknown"}
    if kind:
        document["ts"] = timestamp
    if broker is not None:
        document["broker"] = broker
    if headers:
        document["headers"] = [item for name, data in headers for item in (name, _shown(data))]
    return _encode({**document, "key": _shown(key), "payload": _shown(value)})


def read_line(line: str | bytes) -> dict[str, Any]:
    """Read a record: all that the line has, with bytes as `key`, `payload` and in `headers`, which are pairs.

    Raises ValueError if it is none.
    """
    try:
        document: dict[str, Any] = loads(line)
        flat = document.get("headers") or []
        headers = [(str(name), _bytes(value)) for name, value in zip(flat[::2], flat[1::2], strict=True)]
        contents = {name: _bytes(document.get(name)) for name in ("key", "payload")}
        if type(document.get("ts")) not in (int, type(None)):
            raise ValueError(f"ts is {document['ts']!r}, no milliseconds")
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"{line[:60]!r} is no record in JSON: {error}") from None
    return {**document, **contents, "headers": headers}


def _shown(data: bytes | None) -> str | dict[str, str] | None:
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": b64encode(data).decode()}


def _bytes(value: Any) -> bytes | None:
    if value is None:
        return None
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, dict) and "base64" in value:
        return b64decode(value["base64"], validate=True)
    return dumps(value).encode()  # a document within, as people write it

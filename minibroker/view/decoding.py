"""Bytes of records as people read them: what they can be taken for, and why nothing that was tried before fits.

    shown(b'{"id": 7}', 4096)      {"as": "json", "text": '{"id": 7}', "size_bytes": 9, "not": {"registry": ..}}

In this order: messages of internal topics by their own schemas, the wire format of schema registries, JSON, text,
numbers, hex. What must hold: at most so many characters are shown as is wanted, and `size_bytes` is always all of it.
"""

from __future__ import annotations

import json
from base64 import b64encode

from minibroker.errors import ProtocolError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any, Final

    from minibroker.log.records import Record

PREVIEW_CHARS: Final = 4096
WHOLE_CHARS: Final = 1 << 20
HEX: Final = "hex"
BASE64: Final = "base64"
JSON_BYTES_MAX: Final = 64 * 1024  # of what is taken for JSON, or for a message of an internal topic
TEXT_BYTES_MAX: Final = 1 << 20  # that are looked at
JSON_BYTES_PER_US: Final = 40  # about how fast that goes
TEXT_BYTES_PER_US: Final = 500
CONTROLS: Final = bytes(each for each in range(32) if each not in b"\t\n\r")
REGISTRY_BYTES: Final = 5  # in front of a message: 0 and the number of its schema
NUMBERS: Final = (4, 8)
DECODER_OF: Final[Mapping[str, str]] = {
    "__consumer_offsets": "offsets",
    "__transaction_state": "transaction-log",
    "__share_group_state": "share-group-state",
    "__cluster_metadata": "cluster-metadata",
}
NO_TEXT: Final = ("Error at", "Unknown record type")  # how a decoder begins that has failed


class NotJson(ValueError):
    """Bytes that are no JSON; the text says why."""


def loads(data: bytes) -> Any:
    """Read JSON as others do: Python takes more for it."""
    if len(data) > JSON_BYTES_MAX:
        raise NotJson(f"has more than {JSON_BYTES_MAX:,} bytes, and so it is not tried")
    try:
        return json.loads(data.decode(), parse_constant=_refuse)
    except UnicodeDecodeError:
        raise NotJson("no UTF-8") from None
    except RecursionError:
        raise NotJson("nested too deeply") from None
    except ValueError as failure:
        raise NotJson(str(failure)) from None


def _refuse(word: str) -> Any:
    raise NotJson(f"{word} is no JSON")


def decode_us(size_bytes: int) -> int:
    """Return how long about it takes to show so many bytes."""
    return 10 + min(size_bytes, JSON_BYTES_MAX) // JSON_BYTES_PER_US + size_bytes // TEXT_BYTES_PER_US


def shown(
    data: bytes | None,
    chars_max: int = PREVIEW_CHARS,
    internal: tuple[str | None, str] = (None, ""),
    encoding: str = HEX,
) -> dict[str, Any] | None:
    """Return a key, a value, or the value of a header as JSON has it; null stays null.

    internal: its text by the schemas of internal topics, or why there is none. encoding: of bytes that are no text.
    """
    if data is None:
        return None
    found, why, rest = _taken(data, internal)
    found["size_bytes"] = len(data)
    text = found.get("text")
    if text is not None and (len(text) > chars_max or (found["as"] == "text" and len(data) > TEXT_BYTES_MAX)):
        found |= {"text": text[:chars_max], "is_cut": True}
    if rest is not None:
        head = rest[: chars_max // 2 if encoding == HEX else chars_max // 4 * 3]
        found[encoding] = head.hex() if encoding == HEX else b64encode(head).decode()
        if len(head) < len(rest):
            found["is_cut"] = True
    if why:
        found["not"] = why
    return found


def _taken(data: bytes, internal: tuple[str | None, str]) -> tuple[dict[str, Any], dict[str, str], bytes | None]:
    """Return what bytes are taken for, why not for what has been tried before, and of what the bytes are shown."""
    text, failure = internal
    if text is not None:
        return {"as": "internal", "text": text}, {}, None
    why = {"internal": failure} if failure else {}
    schema_id = int.from_bytes(data[1:REGISTRY_BYTES], "big")
    if len(data) > REGISTRY_BYTES and not data[0] and schema_id:
        return _of_registry(data, schema_id, why)
    starts = bool(data) and not data[0]
    why["registry"] = "there is no schema 0" if starts else "does not begin with 0 and the number of a schema"
    try:
        loads(data)
    except NotJson as reason:
        why["json"] = str(reason)
    else:
        return {"as": "json", "text": data.decode()}, why, None
    try:
        return {"as": "text", "text": _text(data)}, why, None
    except NotText as reason:
        why["text"] = str(reason)
    if len(data) in NUMBERS:
        return {"as": "number", "text": str(int.from_bytes(data, "big", signed=True))}, why, data
    why["number"] = f"has {len(data):,} bytes, and not 4 or 8"
    return {"as": "bytes"}, why, data


class NotText(ValueError):
    """Bytes that are no text; it says why."""


def _text(data: bytes) -> str:
    head = data[:TEXT_BYTES_MAX]
    if len(head.translate(None, CONTROLS)) < len(head):
        raise NotText("has control characters")
    try:
        return head.decode()
    except UnicodeDecodeError as failure:
        if len(head) < len(data) and failure.start >= len(head) - 3:  # a character that goes on behind the cut
            return head[: failure.start].decode()
        raise NotText(f"byte {failure.start:,} is no UTF-8") from None


def _of_registry(
    data: bytes, schema_id: int, why: dict[str, str]
) -> tuple[dict[str, Any], dict[str, str], bytes | None]:
    """Take a message behind the number of its schema: JSON of a JSON Schema is read, all else needs the schema."""
    found: dict[str, Any] = {"as": "registry", "schema_id": schema_id}
    if len(data) in NUMBERS:
        found["number"] = int.from_bytes(data, "big", signed=True)  # it may as well be one
    body = data[REGISTRY_BYTES:]
    try:
        loads(body)
    except NotJson:
        return found, why, body
    return found | {"text": body.decode()}, why, None


class InternalTopic:
    """Records of one of Kafka's own topics, by our declarations."""

    def __init__(self, topic: str):
        from minibroker.tools.dump.decoders import DECODERS

        name = DECODER_OF.get(topic)
        self._decode: Callable[[Record, str], tuple[str | None, str | None]] | None = (
            None if name is None else DECODERS[name]
        )

    def texts(self, record: Record) -> tuple[tuple[str | None, str], tuple[str | None, str]]:
        """Return what key and value say, each a text, or none and why."""
        size_bytes = len(record.key or b"") + len(record.value or b"")
        if self._decode is None:
            return (None, ""), (None, "")
        if size_bytes > JSON_BYTES_MAX:
            failure = f"has more than {JSON_BYTES_MAX:,} bytes, and so it is not tried"
            return (None, failure), (None, failure)
        try:
            key, value = self._decode(record, "4.4")
        except ProtocolError as error:
            return (None, str(error)), (None, str(error))
        return _or_why(key), _or_why(value)


def _or_why(text: str | None) -> tuple[str | None, str]:
    return (None, text or "") if text is None or text.startswith(NO_TEXT) else (text, "")

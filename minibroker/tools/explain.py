"""Explanation of bytes, field by field: frames, messages, batches, indexes, snapshots, checkpoints.

Everything comes from the declarations that the codecs are made of, by way of schema/walk.py. The parts of one buffer
lie side by side and cover it; what was compressed is explained as a buffer of its own, named in `inside`.
An explanation never raises for broken bytes: it goes as far as they make sense and ends with the error.
"""

from __future__ import annotations

from typing import Any
from zlib import crc32

from minibroker.errors import (
    InvalidLength,
    InvalidMagic,
    InvalidValue,
    ProtocolError,
    Truncated,
    UnknownMessage,
    UnsupportedVersion,
)
from minibroker.log.batches import crc32c
from minibroker.log.compression import CODEC_NAMES, NONE, decompress
from minibroker.log.files import CHECKPOINT_COLUMNS, COLUMN_COMMENTS, OffsetIndexEntry, TimeIndexEntry
from minibroker.log.formats import (
    CODEC_MASK,
    MAGIC_POSITION,
    PREFIX_BYTES,
    BatchHeader,
    MessageV0,
    MessageV1,
    RecordV2,
)
from minibroker.protocol.framing import identify
from minibroker.protocol.headers import RequestHeader, ResponseHeader
from minibroker.protocol.registry import message, response_class
from minibroker.schema.comments import field_comment
from minibroker.schema.message import Message
from minibroker.schema.plan import message_plan, plan
from minibroker.schema.types import StructMeta
from minibroker.schema.walk import Leaf, Walker

UNPACKED_BYTES_MAX = 16 << 20  # of one compressed batch: every field of it becomes an object here
CRC_FROM = (16, 16, 21)  # by magic: the checksum covers what follows it


class Part:
    """One field with its bytes."""

    __slots__ = ("comment", "data", "end", "inside", "path", "start", "type", "value")

    def __init__(self, leaf: Leaf, data: bytes, inside: str):
        self.path = leaf.path
        self.type = leaf.type
        self.value = leaf.value
        self.start = leaf.start
        self.end = leaf.end  # exclusive
        self.data = data
        self.inside = inside  # "" for the bytes as given, else which unpacked bytes `start` and `end` count in
        self.comment = field_comment(leaf.owner, leaf.name)

    def to_dict(self) -> dict[str, Any]:
        """Return the part for JSON."""
        value = self.value.hex() if isinstance(self.value, bytes) else self.value
        found = {"path": self.path, "type": self.type, "value": value, "from": self.start, "to": self.end}
        found |= {"hex": self.data.hex(), "comment": self.comment}
        return found | ({"inside": self.inside} if self.inside else {})


class Explanation:
    """Parts in the order of the bytes, and the error that ended them, if one did."""

    def __init__(self, data: bytes, inside: str = ""):
        self.data = data
        self.inside = inside
        self.parts: list[Part] = []
        self.error: ProtocolError | None = None

    def walk(self, struct: Any, position: int, path: str, end: int | None = None) -> tuple[dict[str, Any], int]:
        """Explain one struct; return its direct fields by name, and the position behind it."""
        walker = Walker(self.data, [])
        if end is not None:
            walker.end = end  # without a copy: a file holds thousands of batches
        try:
            position = walker.struct(struct, position, path)
        finally:
            leaves = walker.leaves or []
            for leaf in leaves:
                self.add(leaf)
        return {leaf.path.removeprefix(path + "."): leaf.value for leaf in leaves}, position

    def add(self, leaf: Leaf) -> None:
        if leaf.type.startswith("Records") and leaf.value:
            _batches(self, leaf.start, leaf.end, leaf.path)
        else:
            self.parts.append(Part(leaf, self.data[leaf.start : leaf.end], self.inside))

    def note(self, path: str, type: str, value: Any, start: int, end: int, owner: Any = None, name: str = "") -> None:
        """Add a part that no declaration covers."""
        self.parts.append(Part(Leaf(path, type, value, start, end, owner, name), self.data[start:end], self.inside))

    def unpacked(self, data: bytes, path: str) -> Explanation:
        """Return the explanation of bytes that stood compressed in these; its parts become parts of this one."""
        inner = Explanation(data, f"{path}, unpacked")
        inner.parts = self.parts
        return inner

    def refuse_rest(self, position: int, path: str) -> None:
        if position < len(self.data):
            raise InvalidLength(f"{len(self.data) - position} bytes follow", position, path)


def explain(data: bytes, kind: str = "", api: str = "", version: int | None = None) -> Explanation:
    """Explain bytes of a kind, or of the kind that they look like.

    kind: request, response (needs `api` and `version`), batch, index, timeindex, txnindex, snapshot, the name of a
    checkpoint file, or the name of a message (needs `version`).
    """
    found = Explanation(bytes(data))
    try:
        kind = kind or guess(found.data)
        if kind in KINDS:
            KINDS[kind](found)
        elif kind in CHECKPOINT_COLUMNS:
            _checkpoint(found, kind)
        elif kind == "response":
            _response(found, api, _needed(version, kind))
        else:
            cls = message(kind)
            only = cls.schema.first_version == cls.schema.last_version
            _message(found, cls, cls.schema.first_version if version is None and only else _needed(version, kind), 0)
    except ProtocolError as error:
        found.error = error
    return found


def guess(data: bytes) -> str:
    """Return "batch" or "request", or raise when the bytes look like neither."""
    if len(data) > MAGIC_POSITION and data[MAGIC_POSITION] <= 2:
        size = int.from_bytes(data[8:12], "big", signed=True)
        if 14 <= size <= len(data) - PREFIX_BYTES:
            return "batch"
    for start in (4, 0):
        try:
            identify(data[start:])
        except (UnknownMessage, UnsupportedVersion, InvalidLength):
            continue
        if start == 0 or int.from_bytes(data[:4], "big") == len(data) - 4:
            return "request"
    raise UnknownMessage("looks like neither a request nor a batch: say what it is with --as", 0, "bytes")


def file_kind(name: str) -> str:
    """Return the kind of a file of a log directory by its name, or nothing."""
    suffixes = {".log": "batch", ".checkpoint": "batch"} | {f".{kind}": kind for kind in KINDS}
    by_suffix = [kind for suffix, kind in suffixes.items() if name.endswith(suffix)]
    return by_suffix[0] if by_suffix else name if name in CHECKPOINT_COLUMNS else ""


def _needed(version: int | None, kind: str) -> int:
    if version is None:
        raise UnsupportedVersion("the bytes do not say which version they are: give --version", 0, kind)
    return version


def _frame_length(found: Explanation) -> int:
    """Explain the length in front of a frame if there is one; return where the header starts."""
    if len(found.data) >= 4 and int.from_bytes(found.data[:4], "big") == len(found.data) - 4:
        found.note("frame.length", "Int32", len(found.data) - 4, 0, 4)
        return 4
    return 0


def _request(found: Explanation) -> None:
    start = _frame_length(found)
    version, cls, header_version = identify(found.data[start:])
    _, position = found.walk(message_plan(RequestHeader, header_version), start, "RequestHeader")
    _message(found, cls, version, position)


def _response(found: Explanation, api: str, version: int) -> None:
    if not api:
        raise UnknownMessage("a response does not say what it answers: give --api", 0, "response")
    by_name = message(api.removesuffix("Response").removesuffix("Request") + "Response") if not api.isdigit() else None
    cls: Any = by_name or response_class(int(api))
    header = message_plan(ResponseHeader, cls.header_version(cls.schema.check(cls, version)))
    _, position = found.walk(header, _frame_length(found), "ResponseHeader")
    _message(found, cls, version, position)


def _message(found: Explanation, cls: type[Message], version: int, position: int) -> None:
    cls.schema.check(cls, version)
    _, position = found.walk(message_plan(cls, version), position, cls.__name__)
    found.refuse_rest(position, cls.__name__)


def _all_batches(found: Explanation) -> None:
    _batches(found, 0, len(found.data), "")


def _batches(found: Explanation, position: int, end: int, path: str, depth: int = 0) -> None:
    index = 0
    while position < end:
        if found.data[position + 8 : position + 12] == bytes(4) and not any(found.data[position:end]):
            found.note(f"{path}.padding".lstrip("."), "zeros", f"{end - position} bytes", position, end)
            return
        here = f"{path}.batch[{index}]".lstrip(".")
        position = _batch(found, position, end, here, depth)
        index += 1


def _judge_crc(found: Explanation, path: str, computed: int) -> None:
    """Say behind a stored checksum whether it is right: a wrong one is no reason to stop explaining."""
    part = next(part for part in reversed(found.parts) if part.path == f"{path}.crc")
    verdict = "right" if part.value == computed else f"WRONG: the bytes give {computed}"
    part.comment = f"{verdict}; {part.comment}"


def _batch(found: Explanation, position: int, end: int, path: str, depth: int) -> int:
    """Explain one batch or message; return the position behind it."""
    if end - position <= MAGIC_POSITION:
        raise Truncated(f"{end - position} bytes are too few for a batch", position, path)
    magic = found.data[position + MAGIC_POSITION]
    if magic > 2:
        raise InvalidMagic(f"{magic} is not 0, 1 or 2", position + MAGIC_POSITION, f"{path}.magic")
    stop = position + PREFIX_BYTES + int.from_bytes(found.data[position + 8 : position + 12], "big", signed=True)
    if stop <= position + MAGIC_POSITION:
        raise InvalidLength(f"says that it ends at byte {stop}, before its magic", position + 8, path)
    if stop > end:
        raise Truncated(f"says that it ends at byte {stop}, there are {end}", position + 8, path)
    if magic < 2:
        fields, after = found.walk(plan(MessageV1 if magic else MessageV0, 0, False), position, path, stop)
        if after != stop:
            raise InvalidLength(f"ends at byte {after}, its length says {stop}", position + 8, path)
        _judge_crc(found, path, crc32(found.data[position + CRC_FROM[magic] : stop]))
        codec = fields["attributes"] & CODEC_MASK
        if codec != NONE and fields["value"] is not None:
            inner = found.unpacked(bytes(decompress(codec, fields["value"], UNPACKED_BYTES_MAX, magic=magic)), path)
            if depth == 0:
                _batches(inner, 0, len(inner.data), f"{path}.value", depth + 1)
        return stop
    start = position
    fields, position = found.walk(plan(BatchHeader, 0, False), position, path, stop)
    _judge_crc(found, path, crc32c(found.data[start + CRC_FROM[2] : stop]))
    codec, records, here = fields["attributes"] & CODEC_MASK, found, 0
    if codec == NONE or position == stop:  # an empty batch may name a codec
        here, last = position, stop
    else:
        name = CODEC_NAMES[codec] if codec < len(CODEC_NAMES) else f"codec {codec}"
        found.note(f"{path}.records", f"records, {name}", f"{stop - position} bytes", position, stop)
        unpacked = decompress(codec, found.data[position:stop], UNPACKED_BYTES_MAX)
        records = found.unpacked(bytes(unpacked), f"{path}.records")
        last = len(unpacked)
    for index in range(max(0, fields["count"])):
        _, here = records.walk(plan(RecordV2, 0, False), here, f"{path}.records[{index}]", last)
    if here != last:
        raise InvalidLength(f"{last - here} bytes follow the last record", here, f"{path}.records")
    return stop


def _entries(found: Explanation, entry: StructMeta) -> None:
    """Explain an index: entries of one size, then perhaps the zeros of a preallocated file."""
    layout, position, index = plan(entry, 0, False), 0, 0
    while position < len(found.data):
        if index and not any(found.data[position:]):
            rest = len(found.data) - position
            found.note("preallocated", "zeros", f"{rest} bytes", position, len(found.data))
            return
        _, position = found.walk(layout, position, f"entry[{index}]")
        index += 1


def _offset_index(found: Explanation) -> None:
    _entries(found, OffsetIndexEntry)


def _time_index(found: Explanation) -> None:
    _entries(found, TimeIndexEntry)


def _versioned(found: Explanation, cls: type[Message], position: int, path: str) -> int:
    """Explain a message behind an int16 with its version, as in side files."""
    if len(found.data) - position < 2:
        raise Truncated("needs 2 bytes for the version", position, path)
    version = int.from_bytes(found.data[position : position + 2], "big", signed=True)
    found.note(f"{path}.version", "Int16", version, position, position + 2)
    cls.schema.check(cls, version)
    return found.walk(message_plan(cls, version), position + 2, path)[1]


def _transaction_index(found: Explanation) -> None:
    position = index = 0
    while position < len(found.data):
        position = _versioned(found, message("AbortedTxn"), position, f"entry[{index}]")
        index += 1


def _snapshot(found: Explanation) -> None:
    found.refuse_rest(_versioned(found, message("ProducerSnapshot"), 0, "ProducerSnapshot"), "ProducerSnapshot")


def _is_number(text: str) -> bool:
    digits = text.removeprefix("-")
    return digits.isascii() and digits.isdigit() and len(digits) < 20


def _checkpoint(found: Explanation, name: str) -> None:
    """Explain a text file: version, number of lines, lines of columns."""
    columns, position, entries = CHECKPOINT_COLUMNS[name], 0, None
    for number, line in enumerate(found.data.split(b"\n")):
        names = ("version",) if number == 0 else ("entries",) if number == 1 else columns
        here = name if number < 2 else f"{name}[{number - 2}]"
        # A topic holds no space, so the words of a line are its columns.
        words = line.split(b" ") if line or position < len(found.data) else []
        if words and len(words) != len(names):
            raise InvalidLength(f"{len(words)} words instead of {len(names)}: {' '.join(names)}", position, here)
        for column, word in zip(names, words):
            end = position + len(word) + (1 if position + len(word) < len(found.data) else 0)
            value = word.decode("utf-8", "replace")
            if column != "topic" and not _is_number(value):
                raise InvalidValue(f"{value!r} is not a number", position, f"{here}.{column}")
            found.note(f"{here}.{column}", "text", value if column == "topic" else int(value), position, end)
            found.parts[-1].comment = COLUMN_COMMENTS.get(column, "")
            if column == "entries":
                entries = int(value)
            position = end
        if not line and number - 2 != entries and position >= len(found.data):
            raise InvalidLength(f"{number - 2} lines, the head says {entries}", position, name)


KINDS = {
    "request": _request,
    "batch": _all_batches,
    "index": _offset_index,
    "timeindex": _time_index,
    "txnindex": _transaction_index,
    "snapshot": _snapshot,
}

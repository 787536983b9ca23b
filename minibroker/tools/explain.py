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
from minibroker.in_pieces import finish
from minibroker.log.batches import crc32c
from minibroker.log.compression import CODEC_NAMES, NONE, decompress_in_pieces
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
from minibroker.schema.varint import read_uvarint
from minibroker.schema.walk import Leaf, Walker
from minibroker.tools.field_words import CRC_FROM, attribute_words, set_by_broker, varint_steps

TYPE_CHECKING = False
if TYPE_CHECKING:
    from minibroker.in_pieces import InPieces

UNPACKED_BYTES_MAX = 16 << 20  # of one compressed batch: every field of it becomes an object here
CRC_BYTES_PER_US = 1000
FIELD_US = 4
HEADERS_MAX = 200  # of a record, where not all is explained
PASSED_PIECE = 1000  # records that are passed over, a quarter of a microsecond each
NOT_SHOWN = "not shown"  # the type of a part that stands for many
VARINTS = ("Varint", "Varlong", "SizeVarint")  # types of which one is all there is


class Part:
    """One field with its bytes."""

    __slots__ = (
        "comment",
        "covers",
        "data",
        "end",
        "inside",
        "meaning",
        "name",
        "path",
        "set_by",
        "start",
        "type",
        "value",
    )

    def __init__(self, leaf: Leaf, data: bytes, inside: str):
        self.path = leaf.path
        self.type = leaf.type
        self.value = leaf.value
        self.start = leaf.start
        self.end = leaf.end  # exclusive
        self.data = data
        self.inside = inside  # "" for the bytes as given, else which unpacked bytes `start` and `end` count in
        self.name = _name_of(leaf)  # its path within the struct that it is a field of
        is_varint = leaf.type in VARINTS or leaf.type.startswith(("size of Varint", "VarintArray"))
        self.meaning = varint_steps(data) if is_varint else ""  # of the value, for people
        self.set_by = ""  # "broker": the leader writes it when it appends
        self.covers: tuple[int, int] | None = None  # of a checksum: from where to where, exclusive
        self.comment = field_comment(leaf.owner, leaf.name)
        if leaf.type.startswith("size of"):
            self.comment = f"length of the {leaf.name}; -1 stands for null"

    @property
    def struct(self) -> str:
        """The path of the struct that it is a field of."""
        return self.path[: -len(self.name)].rstrip(".")

    def to_dict(self) -> dict[str, Any]:
        """Return the part for JSON."""
        value = self.value.hex() if isinstance(self.value, bytes) else self.value
        found = {"path": self.path, "type": self.type, "value": value, "from": self.start, "to": self.end}
        found |= {"hex": self.data.hex(), "comment": self.comment}
        more = {"meaning": self.meaning, "set_by": self.set_by, "covers": self.covers, "inside": self.inside}
        return found | {name: each for name, each in more.items() if each}


def _name_of(leaf: Leaf) -> str:
    """Return the path of a field within its struct: key.size of a[0].b.key.size."""
    if leaf.name:
        _, dot, rest = leaf.path.rpartition(f".{leaf.name}")
        if dot:
            return leaf.name + rest
    return leaf.path.rpartition(".")[2]


class Explanation:
    """Parts in the order of the bytes, and the error that ended them, if one did."""

    def __init__(self, data: bytes, inside: str = ""):
        self.data = data
        self.inside = inside
        self.parts: list[Part] = []
        self.records: range | None = None  # of a batch, those that are explained; None: all
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
            finish(_batches(self, leaf.start, leaf.end, leaf.path))
        else:
            self.parts.append(Part(leaf, self.data[leaf.start : leaf.end], self.inside))

    def note(self, path: str, type: str, value: Any, start: int, end: int, owner: Any = None, name: str = "") -> None:
        """Add a part that no declaration covers."""
        self.parts.append(Part(Leaf(path, type, value, start, end, owner, name), self.data[start:end], self.inside))

    def unpacked(self, data: bytes, path: str) -> Explanation:
        """Return the explanation of bytes that stood compressed in these; its parts become parts of this one."""
        inner = Explanation(data, f"{path}, unpacked")
        inner.parts, inner.records = self.parts, self.records
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


def explain_batch_in_pieces(
    data: bytes, records: range | None = None, unpacked_bytes_max: int = UNPACKED_BYTES_MAX
) -> InPieces[Explanation]:
    """Explain batches in pieces. records: of each, those that are explained."""
    found = Explanation(bytes(data))
    found.records = records
    try:
        yield from _batches(found, 0, len(found.data), "", unpacked_bytes_max=unpacked_bytes_max)
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
    finish(_batches(found, 0, len(found.data), ""))


def _batches(
    found: Explanation,
    position: int,
    end: int,
    path: str,
    depth: int = 0,
    unpacked_bytes_max: int = UNPACKED_BYTES_MAX,
) -> InPieces[None]:
    index = 0
    while position < end:
        if found.data[position + 8 : position + 12] == bytes(4) and not any(found.data[position:end]):
            found.note(f"{path}.padding".lstrip("."), "zeros", f"{end - position} bytes", position, end)
            return
        if depth and found.records is not None and index not in found.records:
            stop = found.records.start if index < found.records.start else None
            position, index = yield from _pass_messages(found, position, end, path, index, stop)
            continue
        here = f"{path}.batch[{index}]".lstrip(".")
        position = yield from _batch(found, position, end, here, depth, unpacked_bytes_max)
        index += 1


def _pass_messages(
    found: Explanation, position: int, end: int, path: str, index: int, stop: int | None
) -> InPieces[tuple[int, int]]:
    """Pass over messages of a wrapper up to one of them, or to the end; return where, and which comes there."""
    begin, first = position, index
    while position < end and index != stop:
        if end - position < PREFIX_BYTES:
            raise Truncated(f"{end - position} bytes are too few for a message", position, path)
        size_bytes = int.from_bytes(found.data[position + 8 : position + 12], "big", signed=True)
        if not 0 <= size_bytes <= end - position - PREFIX_BYTES:
            raise InvalidLength(f"says that it has {size_bytes} bytes", position + 8, path)
        position += PREFIX_BYTES + size_bytes
        index += 1
        if not index % PASSED_PIECE:
            yield PASSED_PIECE // 4
    found.note(f"{path}.batch[{first}..{index - 1}]", NOT_SHOWN, f"{index - first} messages", begin, position)
    return position, index


def _header_count(data: bytes, position: int, last: int) -> int:
    """Return how many headers a record of v2 says that it has; 0 if it is broken."""
    try:
        _, position = read_uvarint(data, position)
        _, position = read_uvarint(data, position + 1, 10)  # behind the attributes, the time
        _, position = read_uvarint(data, position)
        for _ in range(2):  # key and value; -1 is null
            number, position = read_uvarint(data, position)
            position += 0 if number & 1 else number >> 1
        return read_uvarint(data, position)[0] >> 1 if position < last else 0
    except (ValueError, IndexError):
        return 0


def _pass_records(found: Explanation, position: int, last: int, path: str, first: int, stop: int) -> InPieces[int]:
    """Pass over records of v2 by their sizes; return where the next one begins."""
    begin = position
    for index in range(first, stop):
        try:
            number, after = read_uvarint(found.data, position)
        except (ValueError, IndexError):
            number, after = 1, position
        size_bytes = number >> 1
        if number & 1 or size_bytes > last - after:
            raise InvalidLength(f"record {index} cannot be passed over", position, path)
        position = after + size_bytes
        if not index % PASSED_PIECE:
            yield PASSED_PIECE // 4
    if stop > first:
        found.note(f"{path}.records[{first}..{stop - 1}]", NOT_SHOWN, f"{stop - first} records", begin, position)
    return position


def _comment_on(
    found: Explanation, parts: list[Part], magic: int, start: int, stop: int, *, is_within: bool = False
) -> None:
    """Say of the fields of a header which bits are set, what the checksum covers, and what the broker writes."""
    by_name = {part.name: part for part in parts}
    attributes = by_name["attributes"].value
    by_name["attributes"].meaning = attribute_words(magic, attributes)
    crc, covered = by_name["crc"], found.data[start + CRC_FROM[magic] : stop]
    computed = crc32c(covered) if magic == 2 else crc32(covered)
    # A wrong one is no reason to stop explaining.
    crc.meaning = "right" if crc.value == computed else f"WRONG: the bytes give {computed}"
    crc.covers = (start + CRC_FROM[magic], stop)
    is_wrapper = magic < 2 and attributes & CODEC_MASK != NONE
    for part in parts:
        if set_by_broker(magic, part.name, attributes, is_wrapper=is_wrapper, is_within=is_within):
            part.set_by = "broker"


def _batch(
    found: Explanation, position: int, end: int, path: str, depth: int, unpacked_bytes_max: int
) -> InPieces[int]:
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
    known = len(found.parts)
    if magic < 2:
        fields, after = found.walk(plan(MessageV1 if magic else MessageV0, 0, False), position, path, stop)
        if after != stop:
            raise InvalidLength(f"ends at byte {after}, its length says {stop}", position + 8, path)
        _comment_on(found, found.parts[known:], magic, position, stop, is_within=depth > 0)
        yield FIELD_US * (len(found.parts) - known) + (stop - position) // CRC_BYTES_PER_US
        codec = fields["attributes"] & CODEC_MASK
        if codec != NONE and fields["value"] is not None:
            unpacked = yield from decompress_in_pieces(codec, fields["value"], unpacked_bytes_max, magic=magic)
            inner = found.unpacked(bytes(unpacked), path)
            if depth == 0:
                yield from _batches(inner, 0, len(inner.data), f"{path}.value", depth + 1)
        return stop
    start = position
    fields, position = found.walk(plan(BatchHeader, 0, False), position, path, stop)
    _comment_on(found, found.parts[known:], 2, start, stop)
    yield FIELD_US * (len(found.parts) - known) + (stop - start) // CRC_BYTES_PER_US
    codec, records, here = fields["attributes"] & CODEC_MASK, found, 0
    if codec == NONE or position == stop:  # an empty batch may name a codec
        here, last = position, stop
    else:
        name = CODEC_NAMES[codec] if codec < len(CODEC_NAMES) else f"codec {codec}"
        found.note(f"{path}.records", f"records, {name}", f"{stop - position} bytes", position, stop)
        unpacked = yield from decompress_in_pieces(codec, found.data[position:stop], unpacked_bytes_max)
        records = found.unpacked(bytes(unpacked), f"{path}.records")
        last = len(unpacked)
    count = max(0, fields["count"])
    wanted = range(count) if found.records is None else range(count)[found.records.start : found.records.stop]
    here = yield from _pass_records(records, here, last, path, 0, wanted.start)
    for index in wanted:
        known = len(found.parts)
        if found.records is not None and (count_of := _header_count(records.data, here, last)) > HEADERS_MAX:
            note = f"{path}.records[{index}] with its {count_of:,} headers"
            here = yield from _pass_records(records, here, last, path, index, index + 1)
            found.parts[-1].comment = note
            continue
        _, here = records.walk(plan(RecordV2, 0, False), here, f"{path}.records[{index}]", last)
        yield FIELD_US * (len(found.parts) - known)
    here = yield from _pass_records(records, here, last, path, wanted.stop, count)
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

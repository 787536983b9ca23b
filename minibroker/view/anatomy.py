"""The log of one replica, taken apart: segments with their indexes, and single batches byte by byte.

Work is a generator that yields how many microseconds it has taken. What must hold: sizes are bounded, whatever lies in
the log; files that were closed are closed again; and broken bytes are shown, up to where they make sense.
"""

from __future__ import annotations

from minibroker.errors import KafkaError, ProtocolError
from minibroker.log.batches import find_batch
from minibroker.log.compression import CODEC_NAMES, NONE
from minibroker.log.formats import MAGIC_POSITION, PREFIX_BYTES
from minibroker.log.record_walks import HEADER_NS
from minibroker.schema.varint import read_uvarint
from minibroker.tools.appended import NotKnown, as_sent, compare_in_pieces
from minibroker.tools.explain import explain_batch_in_pieces
from minibroker.tools.format_sizes import FORMATS, format_sizes
from minibroker.tools.lookup import lookup_offset_in_pieces, lookup_time_in_pieces

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Generator
    from typing import Any, Final, TypeAlias, TypeVar

    from minibroker.log.batches import Batch
    from minibroker.log.index import OffsetIndex, TimeIndex
    from minibroker.log.partition_log import PartitionLog
    from minibroker.log.records import Record
    from minibroker.log.segment import Segment
    from minibroker.replication.replica import Replica
    from minibroker.tools.explain import Part

    Made = TypeVar("Made")
    Work: TypeAlias = Generator[int, None, Made]

SEGMENTS_MAX: Final = 500  # that are told of, the newest
EPOCHS_MAX: Final = 500
ENTRIES_MAX: Final = 500  # of an index, evenly
SEGMENT_US: Final = 150
BATCH_BYTES_MAX: Final = 4 << 20  # of one that is explained
HEX_BYTES_MAX: Final = 64 * 1024
FIELD_BYTES_MAX: Final = 256  # of a key or a value, that are shown
UNPACKED_BYTES_MAX: Final = 16 << 20
FIELD_US: Final = 8
COMPARED_BYTES_MAX: Final = 64 * 1024  # of what is compared with what was sent, unpacked
COMPARED_RECORDS_MAX: Final = 100
COMPARED_HEADERS_MAX: Final = 500
FORMAT_US: Final = 1500


def log_anatomy(replica: Replica, clean_offset: int) -> Work[dict[str, Any]]:
    """Return what a log consists of."""
    log = replica.log
    segments, epochs = list(log.segments), log.epochs.entries
    rows = []
    for number, segment in enumerate(segments[-SEGMENTS_MAX:], max(len(segments) - SEGMENTS_MAX, 0)):
        end = segments[number + 1].base_offset if number + 1 < len(segments) else log.log_end_offset
        rows.append(_segment_row(segment, end, is_active=number == len(segments) - 1))
        yield SEGMENT_US
    return {
        "topic": replica.topic,
        "partition": replica.partition,
        "broker": replica.node_id,
        "leader": replica.leader_id,
        "leader_epoch": replica.leader_epoch,
        "directory": log.directory,
        "start_offset": log.log_start_offset,
        "last_stable_offset": log.last_stable_offset(replica.high_watermark),
        "high_watermark": replica.high_watermark,
        "end_offset": log.log_end_offset,
        "recovery_point": log.recovery_point,
        "clean_offset": clean_offset,
        "size_bytes": log.size_bytes,
        "segments": rows,
        "epochs": [{"epoch": entry.epoch, "start_offset": entry.start_offset} for entry in epochs[-EPOCHS_MAX:]],
        "open_transactions": [
            {"first_offset": offset, "producer_id": producer}
            for offset, producer in list(log.producers.open_transactions.items())[:EPOCHS_MAX]
        ],
        "left_out": {
            name: count
            for name, count in (
                ("segments", len(segments) - SEGMENTS_MAX),
                ("epochs", len(epochs) - EPOCHS_MAX),
                ("open_transactions", len(log.producers.open_transactions) - EPOCHS_MAX),
            )
            if count > 0
        },
    }


def _segment_row(segment: Segment, end_offset: int, *, is_active: bool) -> dict[str, Any]:
    was_open = segment.open_files()
    try:
        row: dict[str, Any] = {
            "base_offset": segment.base_offset,
            "end_offset": end_offset,
            "size_bytes": segment.size_bytes,
            "is_active": is_active,
            "latest_timestamp": segment.latest[0],
            "index_entries": segment.offset_index.count,
            "timeindex_entries": segment.time_index.count,
            "txnindex_entries": segment.transaction_index.count,
        }
    except (KafkaError, ProtocolError) as error:
        row = {"base_offset": segment.base_offset, "end_offset": end_offset} | {"error": str(error)}
    segment.close(was_open)
    return row


def index_entries(segment: Segment) -> Work[dict[str, Any]]:
    """Return entries of the sparse indexes of a segment: all, or each so many."""
    was_open = segment.open_files()
    try:
        offsets, step = _every(segment.offset_index)
        yield 2 * len(offsets)
        times, time_step = _every(segment.time_index)
        yield 2 * len(times)
    finally:
        segment.close(was_open)
    base = segment.base_offset
    return {
        "index": [{"offset": base + relative, "position": position} for relative, position in offsets],
        "index_step": step,  # each so many of them is shown
        "timeindex": [{"timestamp": stamp, "offset": base + relative} for stamp, relative in times],
        "timeindex_step": time_step,
    }


def _every(index: OffsetIndex | TimeIndex) -> tuple[list[tuple[int, ...]], int]:
    step = max(-(-index.count // ENTRIES_MAX), 1)
    return index.every(step), step


def lookup(log: PartitionLog, *, offset: int = -1, time_ms: int = -1) -> Work[list[dict[str, Any]]]:
    """Return the steps by which an offset, or a time, is found."""
    work = lookup_time_in_pieces(log, time_ms) if offset < 0 else lookup_offset_in_pieces(log, offset)
    steps = yield from work
    return [step.to_dict() for step in steps]


# Bytes


class TooLarge(ValueError):
    """A batch that is not explained; the text says how large it is."""


def batch_bytes(segment: Segment, position: int) -> bytes:
    """Return the batch that begins there, or what lies there instead of one, up to HEX_BYTES_MAX."""
    left = segment.size_bytes - position
    head = bytes(segment.view(position, min(left, PREFIX_BYTES)))
    size_bytes = PREFIX_BYTES + int.from_bytes(head[8:12], "big", signed=True)
    if not MAGIC_POSITION < size_bytes <= left:
        size_bytes = min(left, HEX_BYTES_MAX)
    if size_bytes > BATCH_BYTES_MAX:
        raise TooLarge(f"the batch has {size_bytes:,} bytes, and up to {BATCH_BYTES_MAX:,} are explained")
    return bytes(segment.view(position, size_bytes))


def index_in(data: bytes, offset: int) -> int:
    """Return which record of a batch has an offset, if it has one for each offset; 0 if nobody knows that."""
    try:
        batch = find_batch(memoryview(data), 0, len(data))
    except ProtocolError:
        return 0
    if batch is None or batch.magic < 2 or batch.header_count != batch.last_offset - batch.header_offset + 1:
        return 0
    return max(offset - batch.header_offset, 0)


def explained(data: bytes, records: range) -> Work[dict[str, Any]]:
    """Return the bytes of a batch, and its fields; of its records some."""
    found = yield from explain_batch_in_pieces(data, records, UNPACKED_BYTES_MAX)
    fields = []
    for part in found.parts:
        fields.append(field_row(part))
        yield FIELD_US
    shown: dict[str, Any] = {"size_bytes": len(data), "hex": data[:HEX_BYTES_MAX].hex(), "fields": fields}
    if len(data) > HEX_BYTES_MAX:
        shown["hex_left_out"] = len(data) - HEX_BYTES_MAX
    if found.error:
        shown["error"] = str(found.error)
    return shown


def field_row(part: Part) -> dict[str, Any]:
    """Return a field for JSON, cut if it is long."""
    data = part.data
    if len(data) <= FIELD_BYTES_MAX:
        return part.to_dict()
    value = part.value
    if isinstance(value, bytes | bytearray | memoryview):
        value = bytes(value[:FIELD_BYTES_MAX])
    elif isinstance(value, str):
        value = value[:FIELD_BYTES_MAX]
    part.value, part.data = value, data[:FIELD_BYTES_MAX]
    return part.to_dict() | {"is_cut": True}


class Beside:
    """What can be said of a batch beyond its bytes: what its producer sent, and how large it is in each format."""

    def __init__(self, data: bytes):
        self._data = data
        self.records: list[Record] = []
        self.codec = NONE
        self.why = ""  # there is nothing to be said

    def read(self) -> Work[None]:
        """Read the records, if they are not too many."""
        batch = self._batch()
        if batch is None:
            return
        count = headers = 0
        try:
            pieces = yield from batch.pieces(COMPARED_BYTES_MAX, with_headers=True)
            while records := (yield from pieces.read()):
                count += len(records)
                for record in records:
                    if record.headers:
                        headers += read_uvarint(record.headers, 0)[0] >> 1
                if count > COMPARED_RECORDS_MAX or headers > COMPARED_HEADERS_MAX:
                    self.why = (
                        f"it has more than {COMPARED_RECORDS_MAX} records, or {COMPARED_HEADERS_MAX} headers in them"
                    )
                    return
            yield headers * HEADER_NS // 1000
            self.records = list(batch.records(COMPARED_BYTES_MAX))
        except ProtocolError as error:
            self.why = str(error)
        self.codec = batch.codec

    def _batch(self) -> Batch | None:
        data = self._data
        if len(data) > COMPARED_BYTES_MAX:
            self.why = f"it has more than {COMPARED_BYTES_MAX:,} bytes"
            return None
        try:
            batch = find_batch(memoryview(data), 0, len(data))
        except ProtocolError as error:
            self.why = str(error)
            return None
        if batch is None or batch.is_control:
            self.why = "it is no whole batch" if batch is None else "it is a marker, and no producer sent it"
            return None
        if not batch.crc_is_valid():
            self.why = "its checksum is wrong"
            return None
        return batch

    def sent(self) -> Work[dict[str, Any]]:
        """Return what the producer sent, compared with what is stored."""
        if self.why:
            return {"why": self.why}
        try:
            data = as_sent(self._data)
            yield FORMAT_US
            found = yield from compare_in_pieces(data, self._data)
        except (NotKnown, ProtocolError) as reason:
            return {"why": str(reason)}
        answer = found.to_dict()
        for change in answer["changed"]:
            for side in ("sent", "stored"):
                if change[side]:
                    change[side]["hex"] = change[side]["hex"][: 2 * FIELD_BYTES_MAX]
                    if isinstance(change[side]["value"], str):
                        change[side]["value"] = change[side]["value"][: 2 * FIELD_BYTES_MAX]
        return answer | {"hex": data[:HEX_BYTES_MAX].hex()}

    def formats(self) -> Work[list[dict[str, Any]]]:
        """Return how many bytes the records take in each format, as they are and by their codec."""
        rows: list[dict[str, Any]] = []
        for codec in dict.fromkeys((NONE, self.codec)):
            for magic in FORMATS if not self.why else ():
                for each in format_sizes(self.records, codec, formats=(magic,)):
                    rows.append(each.to_dict() | {"codec": CODEC_NAMES[codec]})
                yield FORMAT_US
        return rows

    def in_format(self, magic: int) -> bytes:
        """Return the records in another format, not compressed."""
        return format_sizes(self.records, formats=(magic,))[0].data

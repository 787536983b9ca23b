"""Records of a replica as rows, for people: from an offset on, or the newest; as consumers see them.

    walk = Walk(replica, 0, committed_only=False)
    while (found := (yield from walk.next())) is not None:      a whole batch
        while (records := (yield from walk.read())): ...        its records, some at a time

Work is a generator that yields how many microseconds it has taken, so that others have their turn. What must hold: in
between a log may grow, be cut, be cleaned or be deleted, so nothing is kept of it but a copy of the piece at hand, and
the next piece is looked up by its offset, as Fetch does. A batch that is damaged is told and passed over, if it can be.
"""

from __future__ import annotations

from collections import deque
from json import JSONEncoder

from minibroker.errors import KafkaError, ProtocolError
from minibroker.log.aborted import Aborted
from minibroker.log.batches import Batch, batches
from minibroker.log.compression import CODEC_NAMES
from minibroker.log.formats import ABORT, APPEND_TIME, COMMIT, CREATE_TIME
from minibroker.log.index import FIRST, LAST, PRODUCER_ID
from minibroker.log.reading import read
from minibroker.log.record_walks import behind_headers
from minibroker.log.records import DECOMPRESSED_BYTES_MAX, control_type
from minibroker.replication.replica import READ_COMMITTED, READ_UNCOMMITTED
from minibroker.schema.varint import read_uvarint
from minibroker.tools.dump.decoders import control_text
from minibroker.view.decoding import HEX, PREVIEW_CHARS, WHOLE_CHARS, InternalTopic, decode_us, shown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator
    from typing import Any, Final, TypeAlias, TypeVar

    from minibroker.log.message_sets import MessagePieces
    from minibroker.log.records import Record, RecordPieces
    from minibroker.log.segment import Slice
    from minibroker.replication.replica import Replica

    Made = TypeVar("Made")
    Work: TypeAlias = Generator[int, None, Made]

CHUNK_BYTES: Final = 64 * 1024  # read at once, or one batch
CHUNK_US: Final = 60
BATCH_BYTES_MAX: Final = 16 << 20  # of one that is looked into
BATCH_US: Final = 8
PASSED_US: Final = 3
BYTES_PER_US: Final = 1000  # to copy them and take their checksum
ROW_US: Final = 40
HEADER_US: Final = 5
ENCODED_BYTES_PER_US: Final = 300
encode: Final = JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode
GAPS_MAX: Final = 100
DAMAGED_MAX: Final = 20
HEADERS_MAX: Final = 50  # of a record, that are shown in a list
HEADER_CHARS: Final = 256
WHOLE_HEADERS_MAX: Final = 200
ANSWER_BYTES_MAX: Final = 1 << 20  # of all rows together; of one that is wanted whole, whatever it has
TIME_TYPES: Final = {CREATE_TIME: "create", APPEND_TIME: "append"}
OUTCOMES: Final = {COMMIT: "commit", ABORT: "abort"}
COMMITTED, ABORTED, OPEN = "committed", "aborted", "open"


class FoundBatch:
    """A batch, and where it lies."""

    __slots__ = ("batch", "position", "segment", "state")

    def __init__(self, batch: Batch, segment: int, position: int, state: str):
        self.batch = batch  # in a buffer of its own
        self.segment = segment  # base offset of it
        self.position = position  # in the segment
        self.state = state  # of its transaction; empty: it belongs to none

    def face(self) -> dict[str, Any]:
        """Return what is told of it with each of its records."""
        batch = self.batch
        face: dict[str, Any] = {
            "base_offset": None if batch.is_wrapper else batch.header_offset,  # of v0 and v1 it lies within
            "last_offset": batch.last_offset,
            "format": batch.magic,
            "codec": CODEC_NAMES[batch.codec] if batch.codec < len(CODEC_NAMES) else f"codec {batch.codec}",
            "size_bytes": batch.size_bytes,
            "segment": self.segment,
            "position": self.position,
        }
        if batch.magic == 2:
            face |= {"records": batch.header_count, "leader_epoch": batch.partition_leader_epoch}
            if batch.producer_id >= 0:
                face |= {
                    "producer_id": batch.producer_id,
                    "producer_epoch": batch.producer_epoch,
                    "base_sequence": batch.base_sequence,
                }
        if self.state:
            face["transaction"] = self.state
        if batch.is_control:
            face["is_control"] = True
        return face


class Walk:
    """Through the batches of a replica, from an offset on."""

    def __init__(
        self, replica: Replica, start: int, *, end: int | None = None, committed_only: bool = False, checks: bool = True
    ):
        """end: no record at or behind it is wanted. checks: whether checksums are looked at."""
        self.replica = replica
        self.position = self.start = start  # of what comes next
        self.end = end
        self.bytes = 0  # that have been read
        self.record_count = 0
        self.gaps: list[tuple[int, int]] = []
        self.damaged: list[dict[str, Any]] = []
        self.failure = ""  # why it cannot go on
        self.aborted_count = 0  # records of aborted transactions that were passed over
        self.lost_count = 0  # offsets that were deleted before they could be read
        self.needed: Callable[[bytes], bool] | None = None  # says of bytes whether a wanted record may be in them
        self._is_needed = True  # the chunk at hand, of which only what is compressed is looked at otherwise
        self._level = READ_COMMITTED if committed_only else READ_UNCOMMITTED
        self._checks = checks
        self._from = start
        self._read_at = -1  # where the last chunk began
        self._batches: Iterator[Batch] = iter(())
        self._segment = self._chunk_position = 0
        self._found: FoundBatch | None = None
        self._pieces: RecordPieces | MessagePieces | None = None

    @property
    def readable_end(self) -> int:
        return self.replica.readable_end(self._level)

    def next(self) -> Work[FoundBatch | None]:
        """Return the next whole batch; None: there is none, or no more can be read."""
        self._pieces = self._found = None
        while True:
            try:
                batch = next(self._batches, None)
                if batch is None:
                    if not (yield from self._read_chunk()):
                        return None
                    continue
            except (KafkaError, ProtocolError) as error:
                self.failure = str(error)
                return None
            self._from, self.position = self.position, max(batch.next_offset, self.position + 1)
            if batch.magic == 2:
                self._note_gap(self._from, batch.header_offset)
                self._from = max(self._from, batch.header_offset)
            self.bytes += batch.size_bytes
            if not self._is_needed and not batch.codec:
                self.record_count += batch.header_count
                yield PASSED_US
                continue
            yield BATCH_US
            found = FoundBatch(batch, self._segment, self._chunk_position + batch.position, "")
            if batch.is_transactional and not batch.is_control:
                try:
                    found.state = yield from self._state_of(batch)
                except KafkaError as error:
                    self.failure = str(error)
                    return None
                if found.state == ABORTED and self._level == READ_COMMITTED:
                    self.aborted_count += batch.header_count
                    continue
            if self._checks:
                yield batch.size_bytes // BYTES_PER_US
                if not batch.crc_is_valid():
                    self._note_damage(found, "the checksum is not that of the bytes")
                    continue
            self._found = found
            return found

    def _read_chunk(self) -> Work[bool]:
        limit = self.readable_end
        if self.position == self._read_at:
            self.failure = f"what lies at {self.position} is no whole batch"
            return False
        self._read_at = self.position
        log = self.replica.log
        if self.position < log.log_start_offset:
            self.lost_count += log.log_start_offset - self.position
            self._note_gap(self.position, log.log_start_offset)
            self.position = log.log_start_offset
        if self.position >= limit or (self.end is not None and self.position >= self.end):
            return False
        slice_ = read(log, self.position, CHUNK_BYTES, limit_offset=limit)
        if slice_ is None:
            self._note_gap(self.position, limit)
            self.position = limit
            return False
        if slice_.size_bytes > BATCH_BYTES_MAX:
            self._pass_over_large(slice_)
            return True
        chunk = bytes(slice_.view())
        self._segment, self._chunk_position = slice_.segment.base_offset, slice_.position
        self._batches = batches(chunk)
        yield CHUNK_US + len(chunk) // BYTES_PER_US
        if self.needed is not None:
            self._is_needed = self.needed(chunk)
            yield len(chunk) // BYTES_PER_US
        return True

    def _pass_over_large(self, slice_: Slice) -> None:
        """Go on behind a batch that nobody can look into without holding up all others."""
        place = slice_.segment.find(self.position)
        assert place is not None
        where = {"segment": slice_.segment.base_offset, "position": slice_.position}
        if len(self.damaged) < DAMAGED_MAX:
            error = f"the batch has {slice_.size_bytes:,} bytes, and up to {BATCH_BYTES_MAX:,} are looked into"
            self.damaged.append({"offset": self.position, "last_offset": place.last_offset, **where, "error": error})
        self.position = place.last_offset + 1

    def _state_of(self, batch: Batch) -> Work[str]:
        """Return what has become of the transaction that a batch belongs to; it belongs to one."""
        log, offset = self.replica.log, batch.header_offset
        producer = log.producers.producers.get(batch.producer_id)
        first_open = None if producer is None else producer.transaction_first_offset
        if first_open is not None and offset >= first_open:
            return OPEN
        for rows in Aborted(log, offset, batch.next_offset).in_pieces():
            yield len(rows) + 1
            if any(row[PRODUCER_ID] == batch.producer_id and row[FIRST] <= offset <= row[LAST] for row in rows):
                return ABORTED
        return COMMITTED

    def read(self) -> Work[list[Record]]:
        """Return the next records of the batch; none if there are no more, or the rest is damaged."""
        while (found := self._found) is not None:
            try:
                if self._pieces is None:
                    self._pieces = yield from found.batch.pieces(DECOMPRESSED_BYTES_MAX, with_headers=True)
                records = yield from self._pieces.read()
            except (KafkaError, ProtocolError) as error:
                self._note_damage(found, str(error))
                self._found = None
                return []
            if not records:
                self._note_gap(self._from, found.batch.next_offset)
                return []
            end = self.end
            wanted = [each for each in records if each.offset >= self._from and (end is None or each.offset < end)]
            for record in wanted:
                self._note_gap(self._from, record.offset)
                self._from = record.offset + 1
            self.record_count += len(wanted)
            if wanted or (end is not None and records[0].offset >= end):
                return wanted
        return []

    def unpacked(self) -> Work[bytes]:
        """Return what the records of the batch lie in, unpacked; nothing if that is not known as a whole."""
        found = self._found
        if found is None or found.batch.magic < 2:
            return b""
        try:
            self._pieces = yield from found.batch.pieces(DECOMPRESSED_BYTES_MAX, with_headers=True)
        except (KafkaError, ProtocolError) as error:
            self._note_damage(found, str(error))
            self._found = None
            return b""
        return self._pieces.data

    def pass_over(self) -> None:
        """Go on behind the batch, whose records nobody needs."""
        if self._found is not None:
            self.record_count += self._found.batch.header_count
        self._found = None

    def _note_gap(self, start: int, end: int) -> None:
        """Note that from an offset to another there is nothing."""
        if start >= end:
            return
        if self.gaps and self.gaps[-1][1] == start:
            self.gaps[-1] = (self.gaps[-1][0], end)
        elif len(self.gaps) < GAPS_MAX:
            self.gaps.append((start, end))

    def _note_damage(self, found: FoundBatch, why: str) -> None:
        if len(self.damaged) < DAMAGED_MAX:
            place = {"segment": found.segment, "position": found.position}
            ends = {"last_offset": found.batch.last_offset}
            self.damaged.append({"offset": self._from} | ends | place | {"error": why})


class Wanted:
    """What of records is wanted, and how much."""

    __slots__ = ("answer_bytes_max", "bytes_max", "committed_only", "encoding", "is_whole", "limit", "with_markers")

    def __init__(
        self,
        limit: int = 50,
        bytes_max: int = 1 << 20,
        *,
        committed_only: bool = False,
        with_markers: bool = True,
        is_whole: bool = False,
        encoding: str = HEX,
    ):
        self.answer_bytes_max = ANSWER_BYTES_MAX  # of rows
        self.limit = limit  # records
        self.bytes_max = bytes_max  # of a log that are read for it
        self.committed_only = committed_only
        self.with_markers = with_markers  # those of transactions, too
        self.is_whole = is_whole  # not only how keys and values begin
        self.encoding = encoding  # of bytes that are no text


class RowMaker:
    """Rows of the records of one partition."""

    def __init__(self, topic: str, partition: int, wanted: Wanted):
        self._partition = partition
        self._wanted = wanted
        self._internal = InternalTopic(topic)
        self._face: tuple[FoundBatch, dict[str, Any]] | None = None

    def row(self, found: FoundBatch, record: Record) -> Work[str]:
        """Return a record as JSON."""
        if self._face is None or self._face[0] is not found:
            self._face = found, found.face()
        size_bytes = len(record.key or b"") + len(record.value or b"")
        yield ROW_US
        wanted = self._wanted
        chars_max = WHOLE_CHARS if wanted.is_whole else PREVIEW_CHARS
        row: dict[str, Any] = {
            "partition": self._partition,
            "offset": record.offset,
            "timestamp": record.timestamp,
            "timestamp_type": TIME_TYPES.get(found.batch.timestamp_type),
            "size_bytes": size_bytes,
        }
        if found.batch.is_control:
            row |= _marker(record)
        else:
            of_key, of_value = self._internal.texts(record)
            row["key"] = shown(record.key, chars_max, of_key, wanted.encoding)
            yield decode_us(len(record.key or b""))
            row["value"] = shown(record.value, chars_max, of_value, wanted.encoding)
            yield decode_us(len(record.value or b""))
            names, left_out, more_bytes = headers_of(record, WHOLE_HEADERS_MAX if wanted.is_whole else HEADERS_MAX)
            chars_max = PREVIEW_CHARS if wanted.is_whole else HEADER_CHARS
            headers = row["headers"] = []
            for name, each in names:
                value = shown(each, chars_max, encoding=wanted.encoding)
                headers.append({"name": name[:chars_max], "value": value})
                yield HEADER_US + decode_us(len(each or b""))
            row["size_bytes"] += more_bytes
            if left_out:
                row["headers_left_out"] = left_out
        row["batch"] = self._face[1]
        text = encode(row)
        yield len(text) // ENCODED_BYTES_PER_US
        return text


def _marker(record: Record) -> dict[str, Any]:
    try:
        outcome = OUTCOMES.get(control_type(record), "other")
        text = control_text(record, "4.4").strip()
    except ProtocolError as error:
        outcome, text = "other", str(error)
    return {"control": outcome, "text": text}


def headers_of(record: Record, count_max: int) -> tuple[list[tuple[str, bytes | None]], int, int]:
    """Return headers, how many more there are, and how many bytes all of them take; they have stayed bytes."""
    headers: Any = record.headers
    if not headers:
        return [], 0, 0
    number, position = read_uvarint(headers, 0)
    count = number >> 1
    found: list[tuple[str, bytes | None]] = []
    behind_headers(headers, position, len(headers), min(count, count_max) << 1, found)
    return found, max(count - count_max, 0), len(headers)


class PartitionRead:
    """What was read of one partition: rows as JSON, and where it began and ended."""

    def __init__(self, replica: Replica, wanted: Wanted):
        self.replica = replica
        self.rows: list[tuple[int, int, str]] = []  # time, offset and JSON of each
        self.size_bytes = 0  # of the rows
        self.ended = ""  # why there are no more
        self.start = self.next_offset = 0
        self.marker_count = 0
        self.walks: list[Walk] = []
        self._wanted = wanted
        self._maker = RowMaker(replica.topic, replica.partition, wanted)

    def forward(self, start: int) -> Work[None]:
        """Read from an offset on."""
        wanted = self._wanted
        walk = self._walk(max(start, self.replica.log.log_start_offset))
        self.start = self.next_offset = walk.position
        while not self.ended and (found := (yield from walk.next())) is not None:
            while not self.ended and (records := (yield from walk.read())):
                for record in records:
                    if self._is_wanted(found) and not (yield from self._add(found, record)):
                        break
                    self.next_offset = record.offset + 1
                    if len(self.rows) >= wanted.limit:
                        self.ended = "limit"
                        break
            if not self.ended:
                self.next_offset = walk.position
                if walk.bytes >= wanted.bytes_max:
                    self.ended = "max_bytes"
        if not self.ended:
            self.next_offset = max(walk.position, self.next_offset)
            self.ended = "damaged" if walk.failure else "end"

    def newest(self, count: int, floor: int = 0, end: int | None = None) -> Work[None]:
        """Read the last records, up to so many; offsets need not have one each, so it may take a longer look back.

        floor: none before it is wanted.
        """
        wanted = self._wanted
        floor = max(floor, self.replica.log.log_start_offset)
        upper = self.next_offset = self._walk(floor).readable_end if end is None else end
        self.walks.clear()
        width, spent_bytes = count, 0
        kept: deque[tuple[FoundBatch, Record]] = deque()
        while upper > floor and len(kept) < count and not self.ended:
            lower = max(upper - width, floor)
            walk = self._walk(lower, end=upper)
            some: deque[tuple[FoundBatch, Record]] = deque(maxlen=count - len(kept))
            is_too_much = False
            while not is_too_much and (found := (yield from walk.next())) is not None:
                while records := (yield from walk.read()):
                    some.extend((found, record) for record in records if self._is_wanted(found))
                is_too_much = width > 1 and walk.bytes >= wanted.bytes_max and walk.position < upper
            spent_bytes += walk.bytes
            if is_too_much:  # what is nearest the end counts, so it is tried with less
                width = max(width // 8, 1)
                self.walks.pop()
                continue
            if walk.failure:
                self.ended = "damaged"
            kept.extendleft(reversed(some))
            upper, width = lower, width * 2
            if spent_bytes >= wanted.bytes_max and len(kept) < count and upper > floor:
                self.ended = "max_bytes"
        self.start = kept[0][1].offset if kept else upper
        for found, record in reversed(kept):
            if not (yield from self._add(found, record)):
                break
        self.ended = self.ended or ("limit" if len(kept) >= count else "start")

    def _walk(self, start: int, end: int | None = None) -> Walk:
        walk = Walk(self.replica, start, end=end, committed_only=self._wanted.committed_only)
        self.walks.append(walk)
        return walk

    def _is_wanted(self, found: FoundBatch) -> bool:
        if found.batch.is_control and not self._wanted.with_markers:
            self.marker_count += 1
            return False
        return True

    def _add(self, found: FoundBatch, record: Record) -> Work[bool]:
        """Add a row; False: there is no room for it."""
        row = yield from self._maker.row(found, record)
        if self.rows and self.size_bytes + len(row) > self._wanted.answer_bytes_max:
            self.ended = "answer"
            return False
        self.size_bytes += len(row)
        self.rows.append((record.timestamp, record.offset, row))
        return True

    def face(self) -> dict[str, Any]:
        """Return what is told of the partition."""
        replica, log = self.replica, self.replica.log
        walks = sorted(self.walks, key=lambda walk: walk.start)
        left_out = {
            "aborted": sum(walk.aborted_count for walk in walks),
            "markers": self.marker_count,
        }
        face: dict[str, Any] = {
            "partition": replica.partition,
            "broker": replica.node_id,
            "leader": replica.leader_id,
            "start_offset": log.log_start_offset,
            "last_stable_offset": log.last_stable_offset(replica.high_watermark),
            "high_watermark": replica.high_watermark,
            "end_offset": log.log_end_offset,
            "from": self.start,
            "next_offset": self.next_offset,
            "ended": self.ended,
            "read_bytes": sum(walk.bytes for walk in walks),
            "gaps": [list(gap) for walk in walks for gap in walk.gaps][:GAPS_MAX],
            "damaged": [each for walk in walks for each in walk.damaged][:DAMAGED_MAX],
            "left_out": {name: count for name, count in left_out.items() if count},
        }
        failures = [walk.failure for walk in walks if walk.failure]
        return face | ({"error": failures[0]} if failures else {})

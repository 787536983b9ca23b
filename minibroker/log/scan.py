"""Scanning: what a leader must know of the records of a v2 batch, without making anything of them.

Where the fields of a record begin only the record says: a step of Python for each (record_walks.py). But records of one
batch are often of one size, and then so are their fields: every field of such a run is a column of bytes at one
distance from each other, and a slice with a step takes it out of all records at once. Where minibroker is compiled a
plain loop takes the place of such runs (plain_records.py).

What must hold: both ways see the same, and refuse what the reader of records refuses (records.py): a size that is not
that of the fields, a field that goes on beyond its record, more or fewer records than the header says. Nothing is
believed before it is compared with what is there, so neither time nor memory depends on what a count claims.
A megabyte can hold 105,000 records, or one with 350,000 headers: it is gone through in units (in_pieces.py), which
are a run or some steps, and where a record has many headers, some of those.
Not here: which records are taken (validate.py).
"""

from __future__ import annotations

from struct import unpack
from types import FunctionType

from minibroker.errors import InvalidRecord, InvalidRecordCount
from minibroker.in_pieces import finish
from minibroker.log.formats import RECORD_BYTES_MIN
from minibroker.log.record_walks import AT_ONCE, HEADER_NS, HEADERS_MAX, ManyHeaders, make_walk, pass_many_headers
from minibroker.schema.varint import read_uvarint

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Final

    from minibroker.in_pieces import InPieces
    from minibroker.log.plain_records import Part

    # Smallest and largest timestamp delta (0 without records), whether a key is null, whether offsets are in order
    Scanned = tuple[int, int, bool, bool]

RUN_RECORDS_MIN: Final = 8  # fewer are faster one by one
RUN_GROWTH: Final = 32  # times as many records as were taken last may be looked at for a run: none of them may be one
RUN_BYTES_MAX: Final = 1 << 17  # of the fields that are compared, in all records of a run
STEPS: Final = 64  # one by one, before a run is looked for again
# About how long it takes to begin a unit, and for each record, or header of a run, in it.
UNIT_NS: Final = 5_000
RUN_RECORD_NS: Final = 60
RUN_HEADER_NS: Final = 20
STEP_NS: Final = 600
SIZES_PIECE: Final = 1024
SIZES_PIECE_US: Final = 400
DELTA_MIN: Final = -(1 << 63)
DELTA_MAX: Final = (1 << 63) - 1


def scan(data: bytes, count: int, start: int = 0, *, in_order: bool = False) -> Scanned:
    """Go through `count` records from `start` to the end; raise InvalidRecord or InvalidRecordCount at what is none.

    in_order: stop where the offset deltas are not 0, 1, 2, .. any more. Such records are refused whatever follows, and
    a small batch may unpack to millions of them.
    """
    if count <= STEPS:
        return scan_few(data, count, start)
    return finish(scan_in_pieces(data, count, start, in_order=in_order))


def scan_few(data: bytes, count: int, start: int = 0) -> Scanned:
    """Go through a unit of records, or less."""
    _check_count(data, count, start)
    unit, part = find_unit(data, start, 0, count)
    if part is None or unit < count:
        part = (_step or _make_step())(data, start, 0, count, AT_ONCE)
    position, _, smallest, largest, keyless, consecutive = part
    if position != len(data):
        raise _wrong_end(data, count, start, position)
    return (smallest, largest, keyless, consecutive) if count else (0, 0, False, True)


def scan_in_pieces(data: bytes, count: int, start: int = 0, *, in_order: bool = False) -> InPieces[Scanned]:
    """Return what `scan` does, and raise as it does."""
    _check_count(data, count, start)
    smallest, largest, keyless, consecutive = DELTA_MAX, DELTA_MIN, False, True
    position, index, looked_at = start, 0, count
    step = _step or _make_step()
    while index < count:
        unit, part = find_unit(data, position, index, min(count - index, looked_at))
        if part is not None:
            yield (UNIT_NS + RUN_RECORD_NS * unit + RUN_HEADER_NS * part[1]) // 1000
        else:
            unit = min(STEPS, count - index)
            try:
                part = step(data, position, index, index + unit, 0)
            except ManyHeaders as many:
                unit = many.index - index  # those before it; if there are none, it alone
                headers_end = 0
                if not unit:
                    unit, headers_end = 1, (yield from pass_many_headers(data, many))
                part = step(data, position, index, index + unit, headers_end)
            yield (UNIT_NS + STEP_NS * unit + HEADER_NS * part[1]) // 1000
        index += unit
        looked_at = RUN_GROWTH * unit
        position, _, low, high, some_keyless, are_consecutive = part
        smallest, largest = min(smallest, low), max(largest, high)
        keyless = keyless or some_keyless
        consecutive = consecutive and are_consecutive
        if in_order and not consecutive and count > STEPS:
            return smallest, largest, keyless, False
    if position != len(data):
        raise _wrong_end(data, count, start, position)
    return (smallest, largest, keyless, consecutive) if count else (0, 0, False, True)


def _check_count(data: bytes, count: int, start: int) -> None:
    if not 0 <= count * RECORD_BYTES_MIN <= len(data) - start:
        reason = f"{count} records cannot be in {len(data) - start} bytes"
        raise InvalidRecordCount(reason, 0, "BatchHeader.count")


def _wrong_end(data: bytes, count: int, start: int, position: int) -> InvalidRecordCount:
    reason = f"{count} records take {position - start} of {len(data) - start} bytes"
    return InvalidRecordCount(reason, 0, "BatchHeader.count")


def check_sizes_in_pieces(data: bytes, count: int, size_bytes_max: int) -> InPieces[None]:
    """Raise InvalidRecord at a record that is larger than that, its own size not counted."""
    position = 0
    try:
        for index in range(count):
            size, behind = read_uvarint(data, position)
            if not size & 1:
                check_size(size >> 1, size_bytes_max, position, f"RecordV2[{index}].size")
            position = behind + (size >> 1)
            if index % SIZES_PIECE == SIZES_PIECE - 1:
                yield SIZES_PIECE_US
    except (IndexError, ValueError):
        pass  # it is no record: whoever reads it says so


def check_size(size_bytes: int, size_bytes_max: int, position: int = 0, path: str = "MessageV1.size") -> None:
    """Raise InvalidRecord if a record that came compressed is larger than a topic allows."""
    if size_bytes > size_bytes_max:
        reason = f"{size_bytes} bytes are more than max.decompressed.message.bytes allows, {size_bytes_max}"
        raise InvalidRecord(reason, position, path)


def _make_step() -> Callable[..., Part]:
    """Return the walk over one record after another."""
    global _step
    _step = make_walk(
        "timestamp_delta offset_delta key_size",
        before="""\
nearest = nearest_back = 1 << 64
farthest = farthest_back = -1
keyless, consecutive, due = False, True, index + index""",
        each="""\
if timestamp_delta & 1:
    if timestamp_delta > farthest_back: farthest_back = timestamp_delta
    if timestamp_delta < nearest_back: nearest_back = timestamp_delta
else:
    if timestamp_delta > farthest: farthest = timestamp_delta
    if timestamp_delta < nearest: nearest = timestamp_delta
if offset_delta != due: consecutive = False
due += 2
if key_size & 1: keyless = True""",
        result="""pos, headers, \
nearest >> 1 if farthest_back < 0 else -(farthest_back >> 1) - 1, \
-(nearest_back >> 1) - 1 if farthest < 0 else farthest >> 1, keyless, consecutive""",
    )
    return _step


_step: Callable[..., Part] | None = None


# Runs


def find_run(data: bytes, start: int, index: int, count_max: int) -> tuple[int, Part | None]:
    """Return how many records are a run that begins with the one at `start`, and what they are; None: there is none."""
    end = len(data)
    if count_max < RUN_RECORDS_MIN:
        return 0, None
    try:
        first = data[start]
        size, position = _small(data, start)
        stride = position - start + (size >> 1)
        # A look at the next sizes: mostly they differ, and that must not cost much.
        if data[start + stride] != first or data[start + 3 * stride] != first or first & 1:
            return 0, None
        timestamp_at = position + 1
        _, offset_at = _small(data, timestamp_at)
        _, key_at = _small(data, offset_at)
        same = [*range(start, timestamp_at - 1)]  # fields that have to be the same in each record
        key, position = _sized(data, key_at, same)
        _, position = _sized(data, position, same)
        headers, behind = _small(data, position)
        same += range(position, behind)
        position = behind
        if headers & 1 or headers >> 1 > HEADERS_MAX:
            return 0, None
        for _ in range(headers >> 1):
            size, position = _sized(data, position, same)
            if size & 1 or position > start + stride:
                return 0, None
            _, position = _sized(data, position, same)
    except (IndexError, ValueError):
        return 0, None
    if position != start + stride:
        return 0, None
    count = min(count_max, (end - start) // stride, PAGE - index % PAGE, RUN_BYTES_MAX // len(same))
    stop = start + count * stride
    for each in same:
        column = data[each:stop:stride]
        rest = column.lstrip(column[:1])
        if rest:
            count = len(column) - len(rest)
            stop = start + count * stride
    # In how many bytes deltas travel has to be the same, too.
    for begin, behind in ((timestamp_at, offset_at), (offset_at, key_at)):
        for each in range(begin, behind):
            column = data[each:stop:stride]
            rest = column.lstrip(LAST if each + 1 == behind else MORE)
            if rest:
                count = len(column) - len(rest)
                stop = start + count * stride
    if count < RUN_RECORDS_MIN:
        return 0, None
    smallest, largest = _extremes(data, timestamp_at, offset_at, stop, stride)
    consecutive = _are_consecutive([data[each:stop:stride] for each in range(offset_at, key_at)], index, count)
    return count, (stop, count * (headers >> 1), smallest, largest, key & 1 == 1, consecutive)


def _are_consecutive(columns: list[bytes], index: int, count: int) -> bool:
    """Whether columns of one to three bytes are the offset deltas from `index` on; they are all of one page."""
    page, begin = divmod(index, PAGE)
    end = begin + count
    if len(columns) == 1:
        return page == 0 and columns[0] == FIRST[begin:end]
    if columns[0] != MORE_FIRST[begin:end] or columns[1] != SECOND[len(columns) - 2][begin:end]:
        return False
    return page == 0 if len(columns) == 2 else page < 128 and columns[2] == bytes((page,)) * count


def _sized(data: bytes, position: int, same: list[int]) -> tuple[int, int]:
    """Read the size of a key or value, and note where it stands; return it and where the bytes end."""
    size, behind = _small(data, position)
    same += range(position, behind)
    return size, behind if size & 1 else behind + (size >> 1)


def _small(data: bytes, position: int) -> tuple[int, int]:
    """Read a number of at most three bytes; ValueError if it has more."""
    number = data[position]
    if number < 128:
        return number, position + 1
    second = data[position + 1]
    if second < 128:
        return number + ((second - 1) << 7), position + 2
    third = data[position + 2]
    if third > 127:
        raise ValueError
    return number + ((second - 129) << 7) + (third << 14), position + 3


def _extremes(data: bytes, begin: int, behind: int, stop: int, stride: int) -> tuple[int, int]:
    """Return the smallest and the largest of the numbers in a column; each takes one to three bytes."""
    low = data[begin:stop:stride]
    if behind - begin == 1:
        numbers: list[int] | tuple[int, ...] = list(low)
    else:
        # As little-endian numbers of 8 bits a byte they have the order of those that they stand for.
        mixed = bytearray(4 * len(low))
        for each in range(begin, behind):
            mixed[each - begin :: 4] = data[each:stop:stride]
        numbers = unpack(f"<{len(low)}I", mixed)
    if low.translate(None, EVEN):  # an odd number is negative, and the larger the farther from 0
        odd = [number for number in numbers if number & 1]
        even = [number for number in numbers if not number & 1]
        found = [extreme for each in (odd, even) if each for extreme in (min(each), max(each))]
    else:
        found = [min(numbers), max(numbers)]
    if behind - begin > 1:
        found = [number & 127 | (number >> 8 & 127) << 7 | number >> 16 << 14 for number in found]
    deltas = [number >> 1 ^ -(number & 1) for number in found]
    return min(deltas), max(deltas)


LAST: Final = bytes(range(128))  # bytes that end a varint
MORE: Final = bytes(range(128, 256))  # and those that others follow
EVEN: Final = bytes(range(0, 256, 2))
# Offset deltas 0, 1, 2, .. as they travel: first bytes, and second ones, that end the number or go on. They come again
# after PAGE of them, which is as far as two bytes reach; of one byte there are only 64.
PAGE: Final = 8192
FIRST: Final = bytes(range(0, 128, 2)) + b"\xff" * (PAGE - 64)
MORE_FIRST: Final = bytes(range(128, 256, 2)) * 128
SECOND: Final = tuple(b"".join(bytes((high + more,)) * 64 for high in range(128)) for more in (0, 128))

# What finds many plain records at once: the columns of a run, or where this module is compiled, a loop.
find_unit = find_run
if not isinstance(find_run, FunctionType):
    from minibroker.log.plain_records import find_plain

    find_unit = find_plain

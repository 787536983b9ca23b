"""Scanning: what a leader must know of the records of a v2 batch, without making anything of them.

    size | attributes | timestamp delta | offset delta | key size, key | value size, value | header count, headers

All of them but the second are varints, so where fields begin only the record says: a step of Python for each. But
records of one batch are often of one size, and then so are their fields: every field of such a run is a column of
bytes at one distance from each other, and a slice with a step takes it out of all records at once.

What must hold: both ways see the same, and refuse what the reader of records refuses (records.py): a size that is not
that of the fields, a field that goes on beyond its record, more or fewer records than the header says. Nothing is
believed before it is compared with what is there, so neither time nor memory depends on what a count claims.
Not here: which records are taken (validate_records.py).
"""

from __future__ import annotations

from struct import unpack

from minibroker.errors import InvalidRecord, InvalidRecordCount
from minibroker.log.formats import RECORD_BYTES_MIN
from minibroker.schema.varint import read_uvarint

TYPE_CHECKING = False
if TYPE_CHECKING:
    # Smallest and largest timestamp delta (0 without records), whether a key is null, whether offsets are in order
    Scanned = tuple[int, int, bool, bool]
    # Where some records end, and the same of them.
    Part = tuple[int, int, int, bool, bool]

RUN_RECORDS_MIN = 8  # fewer are faster one by one
STEPS = 32  # one by one, before a run is looked for again
NUMBER_MAX = 1 << 64  # larger than any
DELTA_MIN, DELTA_MAX = -(1 << 63), (1 << 63) - 1


def scan(data: bytes, count: int, start: int = 0, *, in_order: bool = False) -> Scanned:
    """Go through `count` records from `start` to the end; raise InvalidRecord or InvalidRecordCount at what is none.

    in_order: stop where the offset deltas are not 0, 1, 2, .. any more. Such records are refused whatever follows, and
    a small batch may unpack to millions of them.
    """
    end = len(data)
    if not 0 <= count * RECORD_BYTES_MIN <= end - start:
        raise InvalidRecordCount(f"{count} records cannot be in {end - start} bytes", 0, "BatchHeader.count")
    if count < RUN_RECORDS_MIN:
        position, smallest, largest, keyless, consecutive = _step(data, start, 0, count)
    else:
        smallest, largest, keyless, consecutive = DELTA_MAX, DELTA_MIN, False, True
        position, index = start, 0
        while index < count:
            run_count, part = _find_run(data, position, index, count - index)
            if part is None:
                run_count = min(STEPS, count - index)
                part = _step(data, position, index, index + run_count)
            index += run_count
            position, low, high, some_keyless, are_consecutive = part
            smallest, largest = min(smallest, low), max(largest, high)
            keyless = keyless or some_keyless
            consecutive = consecutive and are_consecutive
            if in_order and not consecutive:
                return smallest, largest, keyless, False
    if position != end:
        reason = f"{count} records take {position - start} of {end - start} bytes"
        raise InvalidRecordCount(reason, 0, "BatchHeader.count")
    return (smallest, largest, keyless, consecutive) if count else (0, 0, False, True)


def check_sizes(data: bytes, count: int, size_bytes_max: int) -> None:
    """Raise InvalidRecord at a record that is larger than that, its own size not counted."""
    position = 0
    try:
        for index in range(count):
            size, behind = read_uvarint(data, position)
            if not size & 1:
                check_size(size >> 1, size_bytes_max, position, f"RecordV2[{index}].size")
            position = behind + (size >> 1)
    except (IndexError, ValueError):
        pass  # it is no record: whoever reads it says so


def check_size(size_bytes: int, size_bytes_max: int, position: int = 0, path: str = "MessageV1.size") -> None:
    """Raise InvalidRecord if a record that came compressed is larger than a topic allows."""
    if size_bytes > size_bytes_max:
        reason = f"{size_bytes} bytes are more than max.decompressed.message.bytes allows, {size_bytes_max}"
        raise InvalidRecord(reason, position, path)


# One by one


def _step(data: bytes, position: int, index: int, end: int) -> Part:
    """Take the records from one index up to another."""
    nearest = nearest_back = NUMBER_MAX
    farthest = farthest_back = -1
    keyless, consecutive = False, True
    begun = index
    try:
        # Zigzag: a number is twice what it says, an odd one is negative, the larger the farther from 0. A call for each
        # would double the time, so most of them are read here.
        for index in range(begun, end):
            number = data[position]
            position += 1
            if number > 127:
                second = data[position]
                if second < 128:
                    number += (second - 1) << 7
                    position += 1
                else:
                    number, position = read_uvarint(data, position - 1)
            if number & 1:
                raise ValueError(f"size {-(number >> 1) - 1} is negative")
            stop = position + (number >> 1)
            # Attributes: no bit is in use, Kafka does not look at them either.
            number = data[position + 1]
            position += 2
            if number > 127:
                second = data[position]
                if second < 128:
                    number += (second - 1) << 7
                    position += 1
                elif (third := data[position + 1]) < 128:
                    number += ((second - 129) << 7) + (third << 14)
                    position += 2
                else:
                    number, position = read_uvarint(data, position - 1, 10)
            if number & 1:
                if number > farthest_back:
                    farthest_back = number
                if number < nearest_back:
                    nearest_back = number
            else:
                if number > farthest:
                    farthest = number
                if number < nearest:
                    nearest = number
            number = data[position]
            position += 1
            if number > 127:
                second = data[position]
                if second < 128:
                    number += (second - 1) << 7
                    position += 1
                elif (third := data[position + 1]) < 128:
                    number += ((second - 129) << 7) + (third << 14)
                    position += 2
                else:
                    number, position = read_uvarint(data, position - 1)
            if number != index + index:
                consecutive = False
            number = data[position]
            position += 1
            if number > 127:
                second = data[position]
                if second < 128:
                    number += (second - 1) << 7
                    position += 1
                else:
                    number, position = read_uvarint(data, position - 1)
            if number & 1:
                keyless = True
            else:
                position += number >> 1
            number = data[position]
            position += 1
            if number > 127:
                second = data[position]
                if second < 128:
                    number += (second - 1) << 7
                    position += 1
                else:
                    number, position = read_uvarint(data, position - 1)
            if not number & 1:
                position += number >> 1
            number = data[position]
            position += 1
            if number:
                position = _behind_headers(data, position - 1, stop)
            if position != stop:
                raise ValueError(f"its fields end at byte {position}, its size says {stop}")
    except IndexError:
        raise InvalidRecord("goes on beyond the end", position, f"RecordV2[{index}]") from None
    except ValueError as error:
        raise InvalidRecord(str(error), position, f"RecordV2[{index}]") from None
    smallest = nearest >> 1 if farthest_back < 0 else -(farthest_back >> 1) - 1
    largest = -(nearest_back >> 1) - 1 if farthest < 0 else farthest >> 1
    return position, smallest, largest, keyless, consecutive


def _behind_headers(data: bytes, position: int, stop: int) -> int:
    """Return where the headers end that begin with their count at `position`."""
    count, position = read_uvarint(data, position)
    if count & 1 or count >> 1 > stop - position:
        raise ValueError(f"{count >> 1} headers cannot be in {stop - position} bytes")
    for _ in range(count >> 1):
        size = data[position]
        position += 1
        if size > 127:
            size, position = read_uvarint(data, position - 1)
        if size & 1:
            raise ValueError("the key of a header is null")
        position += size >> 1
        size = data[position]
        position += 1
        if size > 127:
            size, position = read_uvarint(data, position - 1)
        if not size & 1:
            position += size >> 1
        if position > stop:
            raise ValueError(f"its headers go on beyond byte {stop}")
    return position


# Runs


def _find_run(data: bytes, start: int, index: int, count_max: int) -> tuple[int, Part | None]:
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
        count, behind = _small(data, position)
        same += range(position, behind)
        position = behind
        for _ in range(count >> 1):
            size, position = _sized(data, position, same)
            if size & 1 or position > start + stride:
                return 0, None
            _, position = _sized(data, position, same)
    except (IndexError, ValueError):
        return 0, None
    if position != start + stride or count & 1:
        return 0, None
    count = min(count_max, (end - start) // stride, PAGE - index % PAGE)
    for each in same:
        count = _leading(data[each : start + count * stride : stride], data[each : each + 1])
    # In how many bytes deltas travel has to be the same, too.
    for begin, behind in ((timestamp_at, offset_at), (offset_at, key_at)):
        for each in range(begin, behind):
            count = _leading(data[each : start + count * stride : stride], LAST if each + 1 == behind else MORE)
    if count < RUN_RECORDS_MIN:
        return 0, None
    stop = start + count * stride
    smallest, largest = _extremes(data, timestamp_at, offset_at, stop, stride)
    consecutive = _are_consecutive([data[each:stop:stride] for each in range(offset_at, key_at)], index, count)
    return count, (stop, smallest, largest, key & 1 == 1, consecutive)


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


def _leading(column: bytes, allowed: bytes) -> int:
    """Return how many bytes of a column, from its first on, are among the allowed ones."""
    return len(column) - len(column.lstrip(allowed))


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


LAST, MORE = bytes(range(128)), bytes(range(128, 256))  # bytes that end a varint, and those that others follow
EVEN = bytes(range(0, 256, 2))
# Offset deltas 0, 1, 2, .. as they travel: first bytes, and second ones, that end the number or go on. They come again
# after PAGE of them, which is as far as two bytes reach; of one byte there are only 64.
PAGE = 8192
FIRST = bytes(range(0, 128, 2)) + b"\xff" * (PAGE - 64)
MORE_FIRST = bytes(range(128, 256, 2)) * 128
SECOND = tuple(b"".join(bytes((high + more,)) * 64 for high in range(128)) for more in (0, 128))

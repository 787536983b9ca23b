"""Plain records of a v2 batch, looked at one after the other: the loop that scan.py goes by when it is compiled.

It says the same as `scan.find_run`, the columns of which are faster in Python, but of records of any size, and in a
twentieth of the time. The numbers are those of the machine (`i64`).
What is not plain, or no record, it leaves to the walk of record_walks.py, which says what is wrong with it.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

    from mypy_extensions import i64

    # Where some records end, how many headers they have, smallest and largest timestamp delta, whether a key is null,
    # whether offsets are in order.
    Part = tuple[int, int, int, int, bool, bool]

INT32_BYTES_MAX: Final = 5
UINT32_MAX: Final = 0xFFFFFFFF
DELTA_BYTES_MAX: Final = 8  # a longer one may leave the numbers of the machine
HEADERS_MAX: Final = 63  # of a record
UNIT_HEADERS_MAX: Final = 10_000  # of all that are looked at without a pause
UNIT_RECORDS_MAX: Final = 10_000
NOT_PLAIN: Final = -1


def find_plain(data: bytes, start: i64, index: i64, count_max: i64) -> tuple[int, Part | None]:
    """Return how many records from the one at `start` are plain, and what they are; None: the first one is not."""
    end: i64 = len(data)
    position: i64 = start
    first: i64 = index
    last: i64 = index + min(count_max, UNIT_RECORDS_MAX)
    headers: i64 = 0
    smallest: i64 = 0
    largest: i64 = 0
    keyless = False
    consecutive = True
    try:
        while index < last and headers < UNIT_HEADERS_MAX:
            size, at = _number(data, position, INT32_BYTES_MAX)
            stop = at + (size >> 1)
            if size & 1 or stop > end:  # NOT_PLAIN is odd
                break
            timestamp, at = _number(data, at + 1, DELTA_BYTES_MAX)
            offset, at = _number(data, at, INT32_BYTES_MAX)
            key, at = _number(data, at, INT32_BYTES_MAX)
            if not key & 1:
                at += key >> 1
            value, at = _number(data, at, INT32_BYTES_MAX)
            if not value & 1:
                at += value >> 1
            if timestamp == NOT_PLAIN or offset == NOT_PLAIN or key == NOT_PLAIN or value == NOT_PLAIN:
                break
            count: i64 = data[at]
            at += 1
            if count:
                if count & 1 or count >> 1 > HEADERS_MAX:
                    break
                at = _behind_headers(data, at, count >> 1)
                headers += count >> 1
            if at != stop:
                break
            delta = timestamp >> 1 ^ -(timestamp & 1)
            if index == first:
                smallest = largest = delta
            elif delta < smallest:
                smallest = delta
            elif delta > largest:
                largest = delta
            if key & 1:
                keyless = True
            if offset != index + index:
                consecutive = False
            index += 1
            position = stop
    except IndexError:
        pass  # it goes on behind the end
    if index == first:
        return 0, None
    return index - first, (position, headers, smallest, largest, keyless, consecutive)


def _number(data: bytes, at: i64, bytes_max: i64) -> tuple[i64, i64]:
    """Return a number as it travels, zigzag, and where it ends; NOT_PLAIN if it has more bytes, or bits."""
    number: i64 = data[at]
    at += 1
    if number < 128:
        return number, at
    number &= 127
    shift: i64 = 7
    while shift < 7 * bytes_max:
        byte: i64 = data[at]
        at += 1
        number |= (byte & 127) << shift
        if byte < 128:
            if bytes_max == INT32_BYTES_MAX and number > UINT32_MAX:
                break
            return number, at
        shift += 7
    return NOT_PLAIN, at


def _behind_headers(data: bytes, at: i64, count: i64) -> i64:
    """Return where headers end; NOT_PLAIN if they are none."""
    while count:
        key, at = _number(data, at, INT32_BYTES_MAX)
        if key & 1:
            return NOT_PLAIN
        value, at = _number(data, at + (key >> 1), INT32_BYTES_MAX)
        if value == NOT_PLAIN:
            return NOT_PLAIN
        if not value & 1:
            at += value >> 1
        count -= 1
    return at

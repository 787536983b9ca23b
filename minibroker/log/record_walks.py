"""Walks over the records of v2 batches: loops made of the declaration of RecordV2, each for the fields that it needs.

    size | attributes | timestamp delta | offset delta | key size, key | value size, value | header count, headers

All of them but the second are varints, so where fields begin only the record says: a step of Python for each. A call
for each number would double the time, so a walk has them written out, for one byte, for two, and a call for more.
In what is done with a record, a number stands as it travels: zigzag, twice what it says, odd if it is negative. Key and
value are bytes or None, `key_size` and `value_size` the numbers before them; `stop` is where the record ends, `index`
its number, `count` how many headers it has, from `headers_at` on.

What must hold: a walk refuses what is no record with InvalidRecord: a size that is not that of the fields, a field that
goes on beyond its record. One that is `trusting` is for what lies in a log, and has been checked on its way there: it
goes no farther than to the last field that is needed.
A megabyte can hold one record with 350,000 headers. Others cannot wait for that: at one with more than HEADERS_MAX a
walk raises ManyHeaders. Then `pass_many_headers` goes through them in pieces, and the walk is told where they end.
"""

from __future__ import annotations

from minibroker.errors import InvalidRecord, ProtocolError
from minibroker.log.formats import RecordV2
from minibroker.schema.plan import FIXED, VARINTS, message_plan, plan
from minibroker.schema.source import Source
from minibroker.schema.varint import read_uvarint
from minibroker.schema.walk import Walker

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from minibroker.in_pieces import InPieces

HEADERS_MAX = 63  # of a record that others wait for: their count takes one byte
HEADERS_PIECE = 3000
HEADER_NS = 170  # about how long it takes to pass one
DESCRIBED_BYTES_MAX = 8192  # from a broken record to the end: others wait while it is said which field is at fault
AT_ONCE = -1  # in the place of where headers end: go through them, however many


class ManyHeaders(Exception):
    """A record has more headers than the others can wait for."""

    def __init__(self, index: int, position: int, stop: int):
        self.index = index  # of the record
        self.position = position  # of the count of headers
        self.stop = stop  # where the record ends


def make_walk(
    fields: str,
    each: str,
    *,
    parameters: str = "",
    before: str = "",
    result: str = "pos",
    if_headers: str = "headers += count",
    trusting: bool = False,
    at_places: bool = False,
    scope: dict[str, Any] | None = None,
) -> Callable[..., Any]:
    """Return f(buf, pos, index, end, headers_end, parameters): the walk over the records from `index` to `end`.

    fields: those that are needed. before, each, if_headers, result: what to do before the first record, with each, with
        each that has headers, and what to return. at_places: the records are those at the positions that `places` has
        from `index` to `end`, and not one after another; `at` is where one begins.
    """
    source = Source(f"walk over {fields}")
    source.names |= {"invalid": _invalid, "pass_headers": pass_headers} | (scope or {})
    line = source.line
    line(f"def walk(buf, pos, index, end, headers_end, {parameters}):")
    with source:
        for statement in before.splitlines():
            line(statement)
        line("headers = 0")
        line("try:")
        with source:
            line("for at in places[index:end]:" if at_places else "for index in range(index, end):")
            with source:
                line("pos = at" if at_places else "at = pos")
                _write_fields(source, set(fields.split()), if_headers, trusting=trusting)
                for statement in each.splitlines():
                    line(statement)
                if trusting:
                    line("pos = stop")
        line("except (IndexError, ValueError) as error:")
        line("    raise invalid(error, buf, at, pos, index) from None")
        line(f"return {result}")
    return source.function("walk")


def _write_fields(source: Source, left: set[str], if_headers: str, *, trusting: bool) -> None:
    """Write the statements that read the fields which are left to be found, and pass over the others."""
    line, passed = source.line, 0  # bytes of fixed width that the next number lies behind

    def number(name: str, bytes_max: int) -> None:
        nonlocal passed
        line(f"{name} = buf[pos + {passed}]; pos += {1 + passed}" if passed else f"{name} = buf[pos]; pos += 1")
        passed = 0
        line(f"if {name} > 127:")
        with source:
            line("byte = buf[pos]")
            line(f"if byte < 128: {name} += (byte - 1) << 7; pos += 1")
            line(f"else: {name}, pos = read_uvarint(buf, pos - 1, {bytes_max})")

    for field in plan(RecordV2, 0, False).fields:
        name, kind = field.name, field.type.name
        is_needed = name in left
        left.discard(name)
        if kind in FIXED:
            passed += FIXED[kind][1]
        elif kind == "SizeVarint":
            number(name, VARINTS[kind])
            line(f"if {name} & 1: raise ValueError(f'size {{-({name} >> 1) - 1}} is negative')")
            line(f"stop = pos + ({name} >> 1)")
        elif kind in VARINTS and trusting and not is_needed:
            line(f"pos += {passed}")
            passed = 0
            line("while buf[pos] > 127: pos += 1")
            line("pos += 1")
        elif kind in VARINTS:
            number(name, VARINTS[kind])
        elif kind == "VarintBytes":
            size = f"{name}_size"
            number(size, VARINTS["Varint"])
            left.discard(size)
            if trusting and not left and not is_needed:
                return
            if is_needed:
                line(f"if {size} & 1: {name} = None")
                line(f"else: {name} = buf[pos : pos + ({size} >> 1)]; pos += {size} >> 1")
            else:
                line(f"if not {size} & 1: pos += {size} >> 1")
        else:
            line("headers_at = pos; count = buf[pos]; pos += 1")
            line("if count:")
            with source:
                line("pos, count = pass_headers(buf, pos, count, stop, index, headers_end)")
                line(if_headers)
        if trusting and not left:
            return
    line("if pos != stop: raise ValueError(f'its fields end at byte {pos}, its size says {stop}')")


def pass_headers(data: bytes, position: int, number: int, stop: int, index: int, headers_end: int) -> tuple[int, int]:
    """Return where the headers of a record end whose count begins with a number, and how many were gone through."""
    if headers_end > 0:
        return headers_end, 0
    if number > 127:
        if headers_end != AT_ONCE:
            raise ManyHeaders(index, position - 1, stop)
        number, position = read_uvarint(data, position - 1)
    return behind_headers(data, position, stop, number), number >> 1


def pass_many_headers(data: bytes, many: ManyHeaders) -> InPieces[int]:
    """Return where the headers of the record end."""
    try:
        number, position = read_uvarint(data, many.position)
        while number:
            piece = min(number, 2 * HEADERS_PIECE)
            position = behind_headers(data, position, many.stop, piece)
            number -= piece
            yield HEADER_NS * piece // 2000
    except (IndexError, ValueError) as error:
        raise _invalid(error, data, None, many.position + 1, many.index) from None
    return position


def behind_headers(
    data: bytes, position: int, stop: int, number: int, found: list[tuple[str, bytes | None]] | None = None
) -> int:
    """Return where headers end; number: how many there are, as it travels; found: takes them."""
    if stop < position:
        raise ValueError("its headers begin behind its end")
    if number & 1:
        raise ValueError(f"{-(number >> 1) - 1} headers")
    if number >> 1 > stop - position:
        raise ValueError(f"{number >> 1} headers cannot be in {stop - position} bytes")
    add = None if found is None else found.append
    for _ in range(number >> 1):
        key_size = data[position]
        position += 1
        if key_size > 127:
            key_size, position = read_uvarint(data, position - 1)
        if key_size & 1:
            raise ValueError("the key of a header is null")
        key_at = position
        key_end = position = key_at + (key_size >> 1)
        size = data[position]
        position += 1
        if size > 127:
            size, position = read_uvarint(data, position - 1)
        value_at = position
        if not size & 1:
            position += size >> 1
        if add:  # what is no text becomes U+FFFD, as in Kafka
            key = str(data[key_at:key_end], "utf-8", "replace") if key_size else ""
            add((key, None if size & 1 else data[value_at:position]))
    if position > stop:
        raise ValueError(f"its headers go on beyond byte {stop}")
    return position


def _invalid(error: Exception, data: bytes, begin: int | None, position: int, index: int) -> InvalidRecord:
    """Return what is wrong with a record, which begins at `begin`: said by the slow walk, if it is not too long."""
    path = f"RecordV2[{index}]"
    if begin is not None and len(data) - begin <= DESCRIBED_BYTES_MAX:
        try:
            Walker(data, None).struct(message_plan(RecordV2, 0), begin, path)
        except ProtocolError as found:
            return InvalidRecord(found.reason, found.position, found.path)
    reason = "goes on beyond the end" if isinstance(error, IndexError) else str(error)
    return InvalidRecord(reason, min(position, len(data)), path)

"""Fields of bytes as lines: place, bytes, name, value, and what it means; below it, once, what such a field is for.

    batch[0]
         0-8      00 00 00 00 00 00 00 02  base_offset             2
                  Int64, set by the broker: offset of the first record when the
                  batch was written, kept if compaction removes that record

What must hold: no line is longer than the terminal is wide, or 80 columns where there is none.
"""

from __future__ import annotations

import sys
from textwrap import wrap

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from minibroker.tools.appended import Comparison
    from minibroker.tools.explain import Explanation, Part

WIDTH = 80
WIDTH_MIN = 60
PLACE_WIDTH = 15
BYTES_SHOWN = 8  # of one field: no number has more
BEGINNING_SHOWN = 6  # of a field that is longer
HEX_WIDTH = 3 * BYTES_SHOWN
NAME_WIDTH_MIN = 12
INDENT = " " * PLACE_WIDTH  # of what stands below a field
DIM, PATH, VALUE, ERROR, PLAIN = "\x1b[2m", "\x1b[36m", "\x1b[1m", "\x1b[31m", "\x1b[0m"


def print_fields(found: Explanation, colors: bool, start: int = 0, commented: set[str] | None = None) -> None:
    """Print the fields; the bytes begin at `start` of their file. commented: what needs no comment any more."""
    for line in field_lines(found, colors, start, set() if commented is None else commented, output_width()):
        print(line)


def output_width() -> int:
    if not sys.stdout.isatty():
        return WIDTH
    from shutil import get_terminal_size

    return max(get_terminal_size().columns, WIDTH_MIN)


def field_lines(found: Explanation, colors: bool, start: int, commented: set[str], width: int) -> Iterator[str]:
    """Yield the lines of an explanation, a heading for each struct."""

    def paint(color: str, text: str) -> str:
        return f"{color}{text}{PLAIN}" if colors and text else text

    inside, struct, name_width = "", "", NAME_WIDTH_MIN
    for part in found.parts:
        if part.inside != inside:
            inside = part.inside
            yield paint(DIM, f"-- {inside or 'the bytes again'}")
        if part.struct != struct:
            struct = part.struct
            name_width = max(NAME_WIDTH_MIN, *(len(each.name) for each in found.parts if each.struct == struct))
            if struct:
                yield paint(PATH, struct)
        first = 0 if part.inside else start
        place = f"{first + part.start:>6}-{first + part.end:<6} "[:PLACE_WIDTH].ljust(PLACE_WIDTH)
        name = f"{part.name:<{min(name_width, width // 3)}} "
        room = width - PLACE_WIDTH - HEX_WIDTH - len(name)
        value, meaning = _shown(part.value, room), part.meaning
        line = f"{paint(DIM, place)}{_hex(part):<{HEX_WIDTH}}{paint(PATH, name)}{paint(VALUE, value)}"
        if meaning and len(value) + 2 + len(meaning) <= room:
            line, meaning = f"{line}{' = ' if part.name == 'attributes' else '  '}{meaning}", ""
        yield line.rstrip()
        for each in _comments(part, meaning, first, commented, width):
            yield paint(DIM, each)
    if found.error:
        error = f"{type(found.error).__name__}: {found.error}"
        yield from (paint(ERROR, line) for line in wrap(error, width, break_on_hyphens=False))


def _comments(part: Part, meaning: str, first: int, commented: set[str], width: int) -> list[str]:
    """Return the lines below a field: what there was no room for, and what it is for unless that was said before."""
    words = [meaning] if meaning else []
    if part.covers:
        words.append(f"covers bytes {first + part.covers[0]}-{first + part.covers[1]}")
    kind = f"{part.type} {part.name.partition('[')[0]} {part.comment} {part.set_by}"
    if kind not in commented:
        commented.add(kind)
        writer = f", set by the {part.set_by}" if part.set_by else ""
        words.append(f"{part.type}{writer}{': ' if part.comment else ''}{part.comment}")
    return wrap("; ".join(words), width, initial_indent=INDENT, subsequent_indent=INDENT, break_on_hyphens=False)


def _hex(part: Part) -> str:
    if len(part.data) <= BYTES_SHOWN:
        return part.data.hex(" ")
    return f"{part.data[:BEGINNING_SHOWN].hex(' ')} +{len(part.data) - BEGINNING_SHOWN}"


def _shown(value: Any, room: int) -> str:
    if value is None:
        return "null"
    if isinstance(value, bytes):
        short = value[: max(room, 8)]
        while len(shown := repr(short)[1:] + ("..." if len(short) < len(value) else "")) > room and len(short) > 4:
            short = short[:-1]
        return shown
    shown = repr(value) if isinstance(value, str) and not value.isprintable() else str(value)
    return shown if len(shown) <= room else shown[: room - 3] + "..."


def comparison_lines(found: Comparison, colors: bool, width: int, start: int = 0, number: int = 0) -> Iterator[str]:
    """Yield what was sent beside what was stored, field by field; `start`, `number`: where it is in a file."""
    yield from wrap(found.sentence, width, break_on_hyphens=False)
    for change in found.changed:
        path = change.path.replace("batch[0]", f"batch[{number}]", 1)
        yield f"{PATH}{path}{PLAIN}" if colors else path
        for title, part, first in (("sent", change.sent, 0), ("stored", change.stored, start)):
            if part is None:
                yield f"  {title:<7}-"
                continue
            first = 0 if part.inside else first
            place = f"{first + part.start}-{first + part.end}"
            line = f"  {title:<7}{place:<14} {_hex(part):<{HEX_WIDTH}}"
            value = _shown(part.value, width - len(line))
            meaning = f" = {part.meaning}" if part.name == "attributes" else ""
            line += value + (meaning if len(line) + len(value) + len(meaning) <= width else "")
            yield line.rstrip()

"""Every field of a file with its bytes, batch by batch, so that a file of any size can be looked at.

The explanations are those of explain.py; here they are cut into pieces that fit into memory and numbered through.
"""

from __future__ import annotations

from collections.abc import Iterator

from minibroker.log.index import OFFSET_ENTRY, TIME_ENTRY
from minibroker.tools.dump.batches import NEWEST, batch_line, file_batches, is_valid
from minibroker.tools.explain import Explanation, explain, file_kind

ENTRIES_AT_ONCE = 512  # of an index
BROKEN_BYTES_SHOWN = 64  # of what is no batch
ENTRY_BYTES = {"index": OFFSET_ENTRY.size, "timeindex": TIME_ENTRY.size}


class Piece:
    """Some bytes of a file, explained."""

    __slots__ = ("explanation", "position", "title")

    def __init__(self, title: str, explanation: Explanation, position: int):
        self.title = title  # the line above the fields; may be empty
        self.explanation = explanation
        self.position = position  # what to add to the places in the explanation


def pieces(path: str, view: memoryview) -> Iterator[Piece]:
    """Yield the explanations of a file in the order of its bytes; raise where no further batch can be found."""
    name = path[path.rfind("/") + 1 :]
    kind = file_kind(name)
    if kind == "batch":
        yield from _batches(name, view)
    elif kind in ENTRY_BYTES:
        yield from _entries(view, kind)
    else:
        yield Piece("", explain(bytes(view), kind), 0)


def _batches(name: str, view: memoryview) -> Iterator[Piece]:
    position = 0
    for number, batch in enumerate(file_batches(view, name)):
        found = explain(bytes(batch.view), "batch")
        for part in found.parts:
            part.path = part.path.replace("batch[0]", f"batch[{number}]", 1)
            part.inside = part.inside.replace("batch[0]", f"batch[{number}]", 1)
        yield Piece(batch_line(batch, NEWEST, is_valid(batch)), found, batch.position)
        position = batch.end_position
    if position < len(view):
        yield Piece("", explain(bytes(view[position : position + BROKEN_BYTES_SHOWN]), "batch"), position)


def _entries(view: memoryview, kind: str) -> Iterator[Piece]:
    step = ENTRIES_AT_ONCE * ENTRY_BYTES[kind]
    for position in range(0, len(view), step):
        chunk = bytes(view[position : position + step])
        if position and not any(chunk):
            continue  # preallocated
        found = explain(chunk, kind)
        for part in found.parts:
            before, bracket, rest = part.path.partition("[")
            number, _, field = rest.partition("]")
            if bracket:
                part.path = f"{before}[{int(number) + position // ENTRY_BYTES[kind]}]{field}"
        yield Piece("", found, position)

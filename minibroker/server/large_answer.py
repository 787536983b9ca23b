"""An answer of many bytes, or one with parts of files: sent in pieces, as there is room for them.

What it has of files is read as it is sent: a piece when the transport has room for it, a few in one turn of the loop.
So a client that does not read costs a piece or two, whatever it has asked for.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Protocol

    class Stored(Protocol):
        """Bytes that are read when they are to be sent."""

        def __len__(self) -> int: ...

        def read(self, start: int, size_bytes: int) -> memoryview:
            """Return a piece; StorageError if it is not there any more."""
            ...

    Chunk = bytes | bytearray | memoryview
    AnyChunk = Chunk | Stored

JOIN_BYTES = 64 * 1024  # small answers leave in one piece
PIECE_BYTES = 1024 * 1024  # of large ones: read and written at once
TURN_BYTES = 1024 * 1024  # of them in one turn of the loop
LARGE_BYTES = PIECE_BYTES + JOIN_BYTES  # from here on: a piece and what stands around it leave together
PLAIN = {bytes, bytearray, memoryview}


def pieces_of(chunks: Sequence[AnyChunk]) -> Iterator[list[Chunk]]:
    """Yield what is written at once; what is to be read is read then."""
    piece: list[Chunk] = []
    left_bytes = PIECE_BYTES
    for chunk in chunks:
        position, end = 0, len(chunk)
        while position < end:
            size_bytes = min(end - position, left_bytes)
            if type(chunk) not in PLAIN:
                piece.append(chunk.read(position, size_bytes))  # type: ignore[union-attr]
            elif size_bytes == end:
                piece.append(chunk)  # type: ignore[arg-type]
            else:
                piece.append(memoryview(chunk)[position : position + size_bytes])  # type: ignore[arg-type]
            position += size_bytes
            left_bytes -= size_bytes
            if not left_bytes:
                yield piece
                piece, left_bytes = [], PIECE_BYTES
    if piece:
        yield piece


def read_whole(chunk: AnyChunk) -> Chunk:
    """Return all bytes of a chunk of an answer."""
    return chunk if type(chunk) in PLAIN else chunk.read(0, len(chunk))  # type: ignore[union-attr, return-value]

"""How many elements a request may have, all its arrays and tagged fields together.

An element takes a byte on the wire, and some hundred as an object, as part of an answer and on its way out; so bytes
alone bound neither memory nor time. What real clients send has four bytes for each element at least: numbers of
partitions are int32, names are longer. Small requests are free. Decoders count down from the bound (compile.py).

Kafka: has no such limit, and takes 400 MB for a request of one megabyte.
"""

from __future__ import annotations

from minibroker.errors import InvalidLength

ELEMENTS_FREE = 1_000
BYTES_PER_ELEMENT = 4
ELEMENTS_MAX = 50_000  # fewer where a message says so
PIECE = 256  # elements of a large message between two moments at which others may come in
NUMBERS_BITS = 6  # 1 << 6 numbers of an array take as long as an element of another kind


def too_many(position: int, size_bytes: int, most: int) -> None:
    """Refuse a request; the slow walk that finds other errors would take longer than what this is to spare."""
    bound = min(ELEMENTS_FREE + size_bytes // BYTES_PER_ELEMENT, most)
    raise InvalidLength(f"more than {bound} elements in {size_bytes} bytes are not taken", position, "request")

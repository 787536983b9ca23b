"""A table of very many keys: key -> offset, 24 bytes for each of its slots, and no objects.

    slot   hash of a zero byte and the key (int64) | hash of the key (int64) | offset + 1 (int64), 0 if the slot is free

Python's hash of bytes is SipHash with a secret that each process draws anew: two of them are a digest of 128 bits, for
a tenth of what hashlib takes. A key is looked for from the slot that its first hash says on, in steps that its second
hash says. `can_be_trusted` is false where Python has other hashes: no such table there.
Why not a dictionary: it has three objects to touch for each key, far from each other, and each of them has left the
processor's caches when there are many. Measured with 880,000 keys: 1.2 to 1.7 µs for a key, here 1.0, for a thousand
keys 0.2 and 0.8. And it is doubled in one go, 240 ms for two million slots.
What must hold: nothing that can be seen from outside depends on what the hashes are; only order in here does.
Kafka: has the same table, with MD5 sums; it is as large as it may become from the beginning.
Not here: when it has to grow (offset_map.py).
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import compress
from sys import hash_info

from minibroker.cleaner.keys import MapKey

SLOT_BYTES = 25.5  # an array that grows takes a sixteenth more
PIECE_SLOTS, PIECE_US = 512, 100  # looked at in one go, and about how long that takes

can_be_trusted = hash_info.width == 64 and hash_info.algorithm.startswith("siphash")


class KeyTable:
    """Has room for fewer keys than it has slots: whoever puts into it has to see to that."""

    def __init__(self, slots_max: int):
        self.slots = prime_below(slots_max)  # more than there are steps
        self._cells = array("q")

    @property
    def used_bytes(self) -> int:
        return int(self.slots * SLOT_BYTES) + 256

    def clear(self) -> Iterator[int]:
        """Make all slots free, before anything else; yield after each piece, as to touch new memory takes its time."""
        missing_bytes = self.slots * 24
        while missing_bytes:
            self._cells.frombytes(_ZEROS[:missing_bytes])
            missing_bytes -= min(len(_ZEROS), missing_bytes)
            yield PIECE_US

    def put(self, keys: Sequence[MapKey], offsets: Iterable[int]) -> int:
        """Note the offsets of keys; return how many of them were not there."""
        return self._put(*_digests(keys), offsets)

    def _put(self, firsts: Iterable[int], seconds: Iterable[int], offsets: Iterable[int]) -> int:
        cells, slots, end = self._cells, self.slots, self.slots * 3
        new = 0
        for first, second, offset in zip(firsts, seconds, offsets, strict=True):
            at = first % slots * 3
            while cells[at] != first or cells[at + 1] != second:
                if not cells[at + 2]:
                    cells[at] = first
                    cells[at + 1] = second
                    new += 1
                    break
                at = (at + second % _STEPS * 3 + 3) % end
            cells[at + 2] = offset + 1
        return new

    def offsets(self, keys: Sequence[MapKey]) -> list[int]:
        """Return the offset of each key, -1 if it is not there."""
        cells, slots, end = self._cells, self.slots, self.slots * 3
        found: list[int] = []
        add = found.append
        firsts, seconds = _digests(keys)
        for first, second in zip(firsts, seconds, strict=True):
            at = first % slots * 3
            while (cells[at] != first or cells[at + 1] != second) and cells[at + 2]:
                at = (at + second % _STEPS * 3 + 3) % end
            add(cells[at + 2] - 1)
        return found

    def all_offsets(self) -> Iterator[list[int]]:
        """Yield the offsets of all keys, in pieces."""
        for start in range(0, self.slots * 3, PIECE_SLOTS * 3):
            yield [end - 1 for end in self._cells[start + 2 : start + PIECE_SLOTS * 3 : 3] if end]

    def move(self, other: KeyTable) -> Iterator[int]:
        """Put all that is in here into another table, which has none of it; yield after each piece."""
        for start in range(0, self.slots * 3, PIECE_SLOTS * 3):
            piece = self._cells[start : start + PIECE_SLOTS * 3]
            ends = piece[2::3]
            firsts, seconds = (compress(piece[column::3], ends) for column in (0, 1))
            other._put(firsts, seconds, [end - 1 for end in ends if end])
            yield PIECE_US


def _digests(keys: Sequence[MapKey]) -> tuple[Iterable[int], Iterable[int]]:
    """Return two numbers of 64 bits for each key."""
    try:
        return list(map(hash, map(_with_zero, keys))), map(hash, keys)  # type: ignore[arg-type]
    except TypeError:  # there are numbers among them, in the place of long keys
        both = [_halves(key) if isinstance(key, int) else (hash(_with_zero(key)), hash(key)) for key in keys]
        return [first for first, _ in both], [second for _, second in both]


def _halves(digest: int) -> tuple[int, int]:
    """Return the two halves of a number of 128 bits, as they fit into cells; of none, something."""
    first, second = divmod(digest, 1 << 64)
    return max(first - (1 << 63), -(1 << 63)), second - (1 << 63)


def prime_below(number: int) -> int:
    """Return the largest prime number that is not above; steps of any size then come to every slot."""
    while any(number % divisor == 0 for divisor in range(2, int(number**0.5) + 1)):
        number -= 1
    return number


_STEPS = 13
_ZEROS = bytes(128 * 1024)
_with_zero = b"\0".__add__

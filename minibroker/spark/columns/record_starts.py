"""Record boundaries of many batches at once: the one part of reading that must go record by record.

A run is a stretch of records from one place to another: the records of a batch, or the messages within a wrapper. All
runs take a step together, from each record to the next. A long run is cut into several: somewhere in its middle a
record is looked for that seems to begin there and to be followed by others, and is believed only if the run before
ends exactly there. As a run leads from its true beginning, that proves it. Where it fails the run is walked again,
alone.

What must hold: the places found are those that hopping from the run's beginning finds, and the last hop ends at the
run's end; a run for which that cannot be is reported, never guessed. Each step is at least as long as the shortest
record, so it ends.
Not here: what is in a record (rows.py).
"""

from __future__ import annotations

from functools import cache
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from minibroker.log.formats import MESSAGE_BYTES_MIN, PREFIX_BYTES, RECORD_BYTES_MIN
from minibroker.schema.varint import read_uvarint
from minibroker.spark.columns.varints import SIZE_BITS, SIZE_MASK, Bools, BufferView, Int64s, short_varints, varints

STEPS = 16  # between looks at which runs have ended
NARROW = 48  # so few runs are quicker one by one: a step of all takes as long as so many single ones
RUN_RECORDS = 128  # a run of more than twice as many is cut
WINDOW_RECORDS = 1.5  # how many records long the stretch is in which a beginning is looked for
WINDOW_BYTES_MAX = 16 * 1024

RECORD_SIZE_MIN = RECORD_BYTES_MIN - 1  # what follows the size


class RecordStarts:
    """The places found, run by run, how many are in each run, and which runs are broken: of those none counts."""

    __slots__ = ("broken", "counts", "places")

    def __init__(self, places: Int64s, counts: Int64s, broken: Bools):
        self.places = places
        self.counts = counts
        self.broken = broken


def find_starts(
    buffer: BufferView, magic: int, begins: Int64s, ends: Int64s, counts: Int64s | None = None
) -> RecordStarts:
    """Find where records of format `magic` begin in runs, which must be in order and may be empty.

    counts: how many are promised, if that is known; it only helps to cut well.
    """
    step = _Hops(buffer, magic)
    filled = np.flatnonzero(begins < ends)
    run_begins, run_ends = begins[filled], ends[filled]
    cut_begins, cut_ends = run_begins, run_ends
    if magic == 2 and counts is not None:
        cuts = _likely_starts(buffer, run_begins, run_ends, counts[filled])
        if cuts.size:
            cut_begins = np.sort(np.concatenate([run_begins, cuts]))
            cut_ends = np.empty_like(cut_begins)
            cut_ends[:-1] = cut_begins[1:]
            # The last cut of a run ends where the run does, the others where the next one begins.
            cut_ends[np.searchsorted(cut_begins, run_ends) - 1] = run_ends
    places = step.walk(cut_begins, cut_ends)
    matches = _ends_match(step, places, cut_begins, cut_ends)
    broken = np.zeros(len(begins), np.bool_)
    if not matches.all():
        kept = np.ones(len(places), np.bool_)
        again: list[int] = []
        for run in np.unique(np.searchsorted(run_begins, cut_begins[~matches], "right") - 1).tolist():
            begin, end = int(run_begins[run]), int(run_ends[run])
            low, high = np.searchsorted(places, [begin, end])
            kept[low:high] = False
            alone = step.alone(begin, end)
            broken[filled[run]] = alone is None
            again += alone or ()
        places = np.sort(np.concatenate([places[kept], np.array(again, np.int64)]))
    found = np.searchsorted(places, ends) - np.searchsorted(places, begins)
    return RecordStarts(places, found, broken)


def _ends_match(step: _Hops, places: Int64s, begins: Int64s, ends: Int64s) -> Bools:
    """Return which runs, none of them empty, end exactly where their last record does."""
    if not len(begins):
        return np.empty(0, np.bool_)
    final = places[np.searchsorted(places, ends) - 1]
    return np.asarray((final >= begins) & (final + step.hops(final) == ends))


class _Hops:
    """How to get from a record to the next."""

    __slots__ = ("buffer", "magic", "sizes", "table")

    def __init__(self, buffer: BufferView, magic: int):
        self.buffer = buffer
        self.magic = magic
        self.table = _hop_table()
        self.sizes: NDArray[np.int32] = buffer.numbers(">i4")

    def hops(self, places: Int64s) -> Int64s:
        """Return how long the record at each place is, 0 if there is none."""
        if self.magic == 2:
            found = self.table[self.buffer.pairs_at(places)].astype(np.int64)
            if not found.all():
                unknown = np.flatnonzero(found == 0)
                at = places[unknown]
                wrong = np.zeros(len(at), np.bool_)
                sizes, behind = varints(self.buffer, at, "SizeVarint", wrong)
                found[unknown] = np.where(wrong | (sizes < RECORD_SIZE_MIN), 0, behind - at + sizes)
            return found
        size_at = places + 8
        fits = size_at + 4 <= self.buffer.size
        sizes = self.sizes[np.minimum(size_at, len(self.sizes) - 1)].astype(np.int64) + PREFIX_BYTES
        return np.asarray(np.where(fits & (sizes >= MESSAGE_BYTES_MIN[self.magic]), sizes, 0), np.int64)

    def walk(self, begins: Int64s, ends: Int64s) -> Int64s:
        """Take all runs to their ends, or as far as there are records; return the places met, in order."""
        found: list[Int64s] = []
        places = begins
        by_itself: list[tuple[int, int]] = []
        if self.magic == 2 and places.size > NARROW and ends[-1] >= len(self.buffer.pairs):
            # A look ahead of two bytes would run over the end of the buffer there, so the last run is walked alone.
            by_itself.append((int(places[-1]), int(ends[-1])))
            places, ends = places[:-1], ends[:-1]
        looks_closely = self.magic != 2  # whether sizes come that are not in the table
        was_stuck = False
        while places.size > NARROW:
            block = np.empty((STEPS + 1, len(places)), np.int64)
            block[0] = places
            pairs, table = self.buffer.pairs, self.table
            if looks_closely:
                for before, after in pairwise(block):
                    np.minimum(before + self.hops(before), ends, out=after)
            else:
                for before, after in pairwise(block):
                    # One that has arrived waits at its end.
                    np.minimum(before + table[pairs[before]], ends, out=after)
            places, block = block[-1], block[:-1]
            found.append(block[block < ends])
            is_stuck = (places == block[-1]) & (places < ends)
            if is_stuck.any():
                was_stuck = looks_closely = True
                # With a hop of 0 there is no record, and the run is given up: its end will not match.
                places = np.where(is_stuck & (self.hops(places) == 0), ends, places)
            is_open = places < ends
            if not is_open.all():
                places, ends = places[is_open], ends[is_open]
        for place, end in [*zip(places.tolist(), ends.tolist()), *by_itself]:
            alone = self.alone(place, end)
            # The end of a run that cannot be walked is looked at in any case.
            found.append(np.array(alone if alone is not None else [place], np.int64))
        if not found:
            return np.empty(0, np.int64)
        met = np.concatenate(found)
        met.sort()
        return np.unique(met) if was_stuck else met

    def alone(self, place: int, end: int) -> list[int] | None:
        """Walk one run; return the places met, None if that does not lead to its end."""
        found: list[int] = []
        memory = memoryview(self.buffer.memory)
        if self.magic == 2:
            try:
                while place < end:
                    found.append(place)
                    size, behind = memory[place], place + 1
                    if size > 127:
                        size, behind = read_uvarint(memory, place)
                    if size & 1 or size >> 1 < RECORD_SIZE_MIN:
                        return None
                    place = behind + (size >> 1)
            except (IndexError, ValueError):
                return None
        else:
            shortest = MESSAGE_BYTES_MIN[self.magic]
            while place < end:
                found.append(place)
                size = int.from_bytes(memory[place + 8 : place + 12], "big", signed=True) + PREFIX_BYTES
                if size < shortest:
                    return None
                place += size
        return found if place == end else None


@cache
def _hop_table() -> NDArray[np.int32]:
    """Return for every two bytes how long the record is that begins with them; 0: not to be said, or there is none."""
    entries = short_varints()
    sizes = entries >> SIZE_BITS
    width = entries & SIZE_MASK
    return np.asarray(np.where((width > 0) & (sizes >= RECORD_SIZE_MIN), width + sizes, 0), np.int32)


def _likely_starts(buffer: BufferView, begins: Int64s, ends: Int64s, counts: Int64s) -> Int64s:
    """Return places within long runs where v2 records seem to begin, in order."""
    long = np.flatnonzero((counts > 2 * RUN_RECORDS) & (ends - begins >= counts * RECORD_BYTES_MIN))
    if not long.size:
        return np.empty(0, np.int64)
    pieces = counts[long] // RUN_RECORDS
    if pieces.sum() <= NARROW:
        return np.empty(0, np.int64)
    lengths = ends[long] - begins[long]
    mean_bytes = int(lengths.sum() // counts[long].sum()) + 1
    window_bytes = min(int(WINDOW_RECORDS * mean_bytes) + 16, WINDOW_BYTES_MAX, buffer.size)
    # Number the cuts of each run 1, 2, ... pieces - 1.
    run = np.repeat(np.arange(len(long)), pieces - 1)
    number = np.arange(len(run)) - np.repeat(np.cumsum(pieces - 1) - (pieces - 1), pieces - 1) + 1
    targets = begins[long][run] + lengths[run] * number // pieces[run]
    targets = np.minimum(targets, buffer.size - window_bytes)
    windows = buffer.at(f"V{window_bytes}", targets).view(np.uint8).reshape(len(targets), window_bytes)
    # Behind the size are attributes, of which none is in use, and the last byte of a size that is not 0 is not 0.
    size_end = windows[:, :-1]
    which, at = np.divmod(np.flatnonzero((windows[:, 1:] == 0) & (size_end > 0) & (size_end < 0x80)), window_bytes - 1)
    size_end_at = targets[which] + at
    which = np.concatenate([which] * 3)
    places = np.concatenate([size_end_at - further for further in (0, 1, 2)])
    begin, end = begins[long][run[which]], ends[long][run[which]]
    candidates = np.flatnonzero((places > begin) & (places < end))
    following, before = _first_fields(buffer, places[candidates], end[candidates])
    for _ in range(2):
        seems = following >= 0
        candidates, following, before = candidates[seems], following[seems], before[seems]
        arrived = following == end[candidates]
        next_, delta = _first_fields(buffer, following, end[candidates])
        following = np.where(arrived, following, np.where(delta > before, next_, -1))
        before = delta
    candidates = candidates[following >= 0]
    # The first in each window.
    candidates = candidates[np.lexsort((places[candidates], which[candidates]))]
    _, first = np.unique(which[candidates], return_index=True)
    return np.unique(places[candidates[first]])


def _first_fields(buffer: BufferView, places: Int64s, ends: Int64s) -> tuple[Int64s, Int64s]:
    """Return the place behind each record, -1 if none can begin there, and its offset delta."""
    following, deltas = np.full(len(places), -1, np.int64), np.zeros(len(places), np.int64)
    wrong = np.zeros(len(places), np.bool_)
    sizes, at = varints(buffer, places, "SizeVarint", wrong)
    behind = at + sizes
    wrong |= (sizes < RECORD_SIZE_MIN) | (behind > ends)
    # Most are out by now.
    left = np.flatnonzero(~wrong)
    left = left[buffer.bytes_at(at[left]) == 0]
    at, behind, wrong = at[left], behind[left], wrong[left]
    _, at = varints(buffer, at + 1, "Varlong", wrong)
    deltas[left], at = varints(buffer, at, "Varint", wrong)
    for _ in ("key", "value"):
        sizes, at = varints(buffer, at, "Varint", wrong)
        at = at + np.maximum(sizes, 0)
    # Without headers, nothing comes behind their count.
    wrong |= (at >= behind) | ((buffer.bytes_at(at) == 0) & (at + 1 != behind))
    following[left] = np.where(wrong | (deltas[left] < 0), -1, behind)
    return following, deltas

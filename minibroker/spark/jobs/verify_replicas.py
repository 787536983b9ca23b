"""Comparison of replicas: the logs of a follower beside those of the leader, byte for byte.

    the leader's segments in pieces  ->  each task finds the same offsets in the follower's  ->  the first difference

Compared is what both promise: from the later of both log starts up to the lower high watermark. Where a replica has
been compacted its batches are its own, so comparing begins where neither has been cleaned. Segments may begin
elsewhere: a replica rolls when its own are full.
What must hold: of a partition the first batch that differs is named, with what both have there.
Not here: whether a log is in order by itself (verify.py); of a batch that cannot be found it is only said where.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from typing import Any

from minibroker.errors import ProtocolError, StorageError
from minibroker.log.checkpoints import CLEANER_OFFSETS, read_leader_epochs, read_offsets
from minibroker.log.read_only_segment import ReadOnlySegment
from minibroker.log.read_only_storage import ReadOnlyStorage
from minibroker.log.segment import Place
from minibroker.spark.files.directories import PartitionFiles, find_partitions, topics_in
from minibroker.spark.jobs.arguments import TopicFilter
from minibroker.spark.jobs.progress import Progress
from minibroker.spark.jobs.summary import Summary, Table
from minibroker.spark.jobs.tasks import run_tasks
from minibroker.tools.verify.segment_piece import borders

PlacedBatch = tuple[ReadOnlySegment, Place]


class Side:
    """Where the log of a replica lies: base offset, suffix and length of each segment, and where the log ends."""

    def __init__(self, files: PartitionFiles):
        self.root = files.root.path
        self.directory = files.directory
        self.parts = [(part.base_offset, part.suffix, part.size_bytes) for part in files.parts]

    def from_offset(self, offset: int) -> Generator[PlacedBatch, None, None]:
        """Yield the batches from the one that ends at an offset or behind it on."""
        storage = ReadOnlyStorage(self.root)
        for number, (base, suffix, size_bytes) in enumerate(self.parts):
            if number + 1 < len(self.parts) and self.parts[number + 1][0] <= offset:
                continue
            segment = ReadOnlySegment(storage, self.directory, base, suffix=suffix)
            segment.size_bytes = min(segment.size_bytes, size_bytes)
            try:
                place = segment.find(offset)
                if place is not None:
                    for each in segment.hop(place.position):
                        yield segment, each
            finally:
                segment.close()


class Pair:
    """A piece of a leader's log that a task compares."""

    def __init__(self, leader: Side, follower: Side, first_offset: int, end_offset: int):
        self.leader = leader
        self.follower = follower
        self.first_offset = first_offset
        self.end_offset = end_offset


class PairResult:
    """What a task has seen."""

    def __init__(self) -> None:
        self.batches = self.size_bytes = 0
        self.offset: int | None = None  # of the first difference
        self.reason = ""


def compare(
    spark: Any,
    leaders: Sequence[str],
    followers: Sequence[str],
    *,
    wanted: TopicFilter | None = None,
    piece_bytes: int = 128 * 1024 * 1024,
    progress: Progress | None = None,
) -> Summary:
    """Compare the logs of followers with those of a leader."""
    wanted, progress = wanted or TopicFilter(), progress or Progress(is_wanted=False)
    mine = find_partitions(list(leaders), wanted)
    wanted.check_found(topics_in(list(leaders)))
    pairs: list[tuple[Replicas, Pair]] = []
    found: list[Replicas] = []
    notes: list[str] = []
    for path in followers:
        others = find_partitions([path], wanted)
        shared = [key for key in mine if key in others]
        if len(shared) < len(mine):
            notes.append(f"{len(mine) - len(shared)} of {len(mine)} logs are not in {path}")
        for key in shared:
            replicas = Replicas(path, mine[key], others[key])
            found.append(replicas)
            pairs += [(replicas, pair) for pair in replicas.pairs(piece_bytes)]
    with progress.step(f"comparing {len(found):,} logs"):
        for (replicas, _), compared in zip(pairs, run_tasks(spark, look, [pair for _, pair in pairs]), strict=True):
            replicas.take(compared)
    columns = ("log", "follower", "from", "up to", "batches", "bytes", "differs at")
    rows = [each.row() for each in found]
    figures = {
        "logs compared": len(found),
        "batches": sum(each.batches for each in found),
        "bytes": sum(each.size_bytes for each in found),
        "logs that differ": sum(bool(each.problems) for each in found),
    }
    problems = [problem for each in found for problem in each.problems]
    return Summary("verify", figures, [Table("replicas", columns, rows)], problems, notes)


class Replicas:
    """A log of the leader and that of a follower."""

    def __init__(self, path: str, leader: PartitionFiles, follower: PartitionFiles):
        self.path = path
        self.leader = leader
        self.follower = follower
        self.first_offset = max(leader.start_offset, follower.start_offset, _cleaned(leader), _cleaned(follower))
        self.end_offset = min(_end(leader), _end(follower))
        self.batches = self.size_bytes = 0
        self.offset: int | None = None
        self.problems: list[str] = list(self._epoch_problems())

    def _epoch_problems(self) -> Iterator[str]:
        """Compare where leaders began, within what both have."""
        starts = []
        for files in (self.leader, self.follower):
            try:
                entries = read_leader_epochs(files.storage, files.directory).entries
            except ProtocolError as error:
                yield f"{files} in {files.root.path}: {error}"
                return
            starts.append({epoch: start for epoch, start in entries if self.first_offset < start < self.end_offset})
        mine, others = starts
        for epoch in sorted({*mine, *others}):
            if mine.get(epoch) != others.get(epoch):
                ours, theirs = (each.get(epoch, "no offset") for each in starts)
                yield (
                    f"{self.leader}: epoch {epoch} begins at {ours} in {self.leader.root.path}, "
                    f"at {theirs} in {self.follower.root.path}"
                )

    def pairs(self, piece_bytes: int) -> Iterator[Pair]:
        """Yield what tasks are to compare."""
        if self.first_offset >= self.end_offset:
            return
        cuts = [self.first_offset]
        taken_bytes = 0
        for index in range(self.leader.index_of(self.first_offset), len(self.leader.parts)):
            part = self.leader.parts[index]
            for offset, size_bytes in self._cuts(index, piece_bytes):
                if cuts[-1] < offset < self.end_offset and taken_bytes >= piece_bytes:
                    cuts.append(offset)
                    taken_bytes = 0
                taken_bytes += size_bytes
            if part.base_offset >= self.end_offset:
                break
        leader, follower = Side(self.leader), Side(self.follower)
        for first, end in zip(cuts, [*cuts[1:], self.end_offset], strict=True):
            yield Pair(leader, follower, first, end)

    def _cuts(self, index: int, piece_bytes: int) -> Iterator[tuple[int, int]]:
        """Yield offsets at which a segment may be cut, and how many bytes follow up to the next."""
        part = self.leader.parts[index]
        count = max(-(-part.size_bytes // piece_bytes), 1)
        offsets = [part.base_offset]
        if count > 1:
            segment = self.leader.segment(index)
            try:
                named = {position: offset for offset, position in segment.offset_index.entries()}
                # An entry names the last offset of the batch at its position, so what follows it begins behind.
                offsets += [named[position] + 1 for position in borders(segment, count)[1:-1]]
            finally:
                segment.close()
        yield from ((offset, part.size_bytes // len(offsets)) for offset in offsets)

    def take(self, compared: PairResult) -> None:
        self.batches += compared.batches
        self.size_bytes += compared.size_bytes
        if compared.offset is not None and (self.offset is None or compared.offset < self.offset):
            self.offset = compared.offset
            self.problems = [*self._epoch_problems(), f"{self.leader} differs from offset {compared.reason}"]

    def row(self) -> tuple[str, str, int, int, int, int, int | None]:
        end = max(self.end_offset, self.first_offset)
        return str(self.leader), self.path, self.first_offset, end, self.batches, self.size_bytes, self.offset


def _cleaned(files: PartitionFiles) -> int:
    """Return up to where a log has been compacted."""
    try:
        return read_offsets(files.storage, CLEANER_OFFSETS).get((files.topic, files.partition), 0)
    except ProtocolError:
        return 0


def _end(files: PartitionFiles) -> int:
    """Return up to where a replica promises its records, or has them."""
    return files.end_offset if files.high_watermark is None else min(files.high_watermark, files.end_offset)


def look(pair: Pair) -> PairResult:
    """Compare the batches of both sides between two offsets: what a task does."""
    found = PairResult()
    mine, others = pair.leader.from_offset(pair.first_offset), pair.follower.from_offset(pair.first_offset)
    offset = pair.first_offset
    while offset < pair.end_offset:
        ours, theirs = _next(mine, pair.end_offset), _next(others, pair.end_offset)
        if isinstance(ours, str) or isinstance(theirs, str):
            found.offset = offset
            found.reason = f"{offset} on: {_told(pair.leader, ours)}, {_told(pair.follower, theirs)}"
            break
        if ours is None and theirs is None:
            break
        if ours is None or theirs is None or _bytes(ours) != _bytes(theirs):
            found.offset = min(each[1].base_offset for each in (ours, theirs) if each is not None)
            found.reason = f"{found.offset} on: {_told(pair.leader, ours)}, {_told(pair.follower, theirs)}"
            break
        found.batches += 1
        found.size_bytes += ours[1].size_bytes
        offset = ours[1].last_offset + 1
    mine.close()
    others.close()
    return found


def _next(batches: Iterator[PlacedBatch], end_offset: int) -> PlacedBatch | str | None:
    """Return the next batch before the end, None if there is none, or what hides it."""
    try:
        found = next(batches, None)
    except (ProtocolError, StorageError) as error:
        return str(error)
    return None if found is None or found[1].last_offset >= end_offset else found


def _bytes(found: PlacedBatch) -> memoryview:
    segment, place = found
    return segment.view(place.position, place.size_bytes)


def _told(side: Side, found: PlacedBatch | str | None) -> str:
    """Say what a side has at a place."""
    where = f"{side.root}/{side.directory}"
    if found is None:
        return f"{where} has nothing there"
    if isinstance(found, str):
        return f"{where} cannot be read there, {found}"
    segment, place = found
    batch = segment.batch_at(place)
    return (
        f"{side.root}/{segment.path} has {place.base_offset} to {place.last_offset} of epoch "
        f"{batch.partition_leader_epoch} at byte {place.position}"
    )

"""`minibroker dump --compare` as text: what cleaning has done to a partition, segment by segment.

    compact-0: segments 2 -> 4, cleaned up to 34
    00000000000000000012.log
      12..13: 98 -> 0 bytes; gone: 2 superseded
      20..20: 1 batch as it was, 78 bytes
      21..21: 74 -> 79 bytes; delete horizon 2026-11-23T22:35:26.087Z
      10 records -> 2; 604 -> 157 bytes; gone: 8 superseded

What must hold: lines come as the log is read, so what a segment comes to stands behind its batches; of a partition that
cleaning has not touched there is one line only. At most a few lines per segment are held back, for that.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator

from minibroker.log.batches import Batch
from minibroker.log.compression import CODEC_NAMES
from minibroker.log.formats import ABORT
from minibroker.log.records import Record
from minibroker.tools.dump.batches import NEWEST, base_offset_of
from minibroker.tools.dump.changes import Change, Side, changes
from minibroker.tools.dump.decoders import control_text, text_of
from minibroker.tools.dump.reasons import MARKER, RETENTION, SUPERSEDED, Reason, marker_of

PROBLEMS_MAX = 20  # named on standard error, of one partition


class Totals:
    """What a segment, a partition or all of them come to."""

    def __init__(self) -> None:
        self.records_before = 0
        self.records_left = 0
        self.records_new = 0
        self.bytes_before = 0
        self.bytes_left = 0
        self.bytes_new = 0
        self.gone: Counter[str] = Counter()

    def add(self, change: Change) -> None:
        if change.batch is None:
            self.records_new += change.records_left
            self.bytes_new += change.bytes_left
            return
        self.records_before += change.records_before
        self.records_left += change.records_left
        self.bytes_before += change.bytes_before
        self.bytes_left += change.bytes_left
        self.gone.update(_reasons(change))

    def include(self, other: Totals) -> None:
        self.gone.update(other.gone)
        for name in ("records_before", "records_left", "records_new", "bytes_before", "bytes_left", "bytes_new"):
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def __str__(self) -> str:
        words = []
        if self.bytes_before or not self.bytes_new:
            words.append(f"{_counted(self.records_before, 'record')} -> {self.records_left}")
            words.append(f"{self.bytes_before} -> {self.bytes_left} bytes")
        if self.gone:
            words.append(_gone(self.gone))
        if self.bytes_new:
            words.append(f"new: {_counted(self.records_new, 'record')}, {self.bytes_new} bytes")
        return "; ".join(words)


class Comparison:
    """One partition before and after; `totals` and `complaints` are complete when the last line has been taken."""

    def __init__(self, name: str, before: Side, after: Side, cleaned_end: int | None = None):
        self.name = name
        self.before = before
        self.after = after
        self.cleaned_end = cleaned_end
        self.totals = Totals()
        self.problem_count = 0
        self.problems: list[str] = []  # the first of them

    def lines(self, *, deep: bool = False, contents: bool = False) -> Iterator[str]:
        """Yield what the dump's options ask for: `deep` every record that has gone, `contents` with key and value."""
        held: list[str] | None = [self._title()]
        for line, is_news in self._lines(deep or contents, contents):
            if held is None:
                yield line
                continue
            held.append(line)
            if is_news:
                yield from held
                held = None
        yield f"{self.name}: {self.totals}"
        for side in (self.before, self.after):
            self._complain(list(side.unreadable()))
        if not self.after.paths:
            self._complain(["the partition is not there any more"])

    def _title(self) -> str:
        cleaned = f", cleaned up to {self.cleaned_end}" if self.cleaned_end is not None else ""
        return f"{self.name}: segments {len(self.before.paths)} -> {len(self.after.paths)}{cleaned}"

    def _lines(self, deep: bool, contents: bool) -> Iterator[tuple[str, bool]]:
        """Yield lines, each with whether it tells of more than what has stayed or was appended."""
        segment = _Segment("")
        for change in changes(self.before, self.after, self.cleaned_end):
            name = _name(change.path)
            if name != segment.name:
                yield from self._end(segment)
                segment = _Segment(name)
                yield name, False
            yield from segment.add(change)
            self.totals.add(change)
            for problem in change.problems:
                yield f"  ! {problem}", True
            self._complain(change.problems)
            for record, reason in change.gone if deep else ():
                assert change.batch
                yield _record_line(change.batch, record, reason, contents), True
        yield from self._end(segment)

    def _complain(self, problems: list[str]) -> None:
        self.problem_count += len(problems)
        self.problems += problems[: PROBLEMS_MAX - len(self.problems)]

    def complaints(self) -> Iterator[str]:
        """Yield what is wrong, for standard error."""
        yield from (f"{self.name}: {problem}" for problem in self.problems)
        if self.problem_count > len(self.problems):
            yield f"{self.name}: and {self.problem_count - len(self.problems)} more"

    def _end(self, segment: _Segment) -> Iterator[tuple[str, bool]]:
        """Yield the end of what is said of a segment."""
        if not segment.name:
            return
        yield from segment.end()
        names = {_name(path) for path in self.after.paths}
        where = ""
        if segment.name not in names:
            bases = [base_offset_of(path) for path in self.after.paths]
            at = bisect_right(bases, base_offset_of(segment.name)) - 1
            where = f"; merged into {_name(self.after.paths[at])}" if at >= 0 else "; deleted"
        yield f"  {segment.totals}{where}", bool(where)


class _Segment:
    """What is said of one segment; runs of batches that fared alike are one line."""

    def __init__(self, name: str):
        self.name = name
        self.totals = Totals()
        self._run = Counter[str]()
        self._kind = ""
        self._first = self._last = 0
        self._newest = -1

    def add(self, change: Change) -> Iterator[tuple[str, bool]]:
        self.totals.add(change)
        kind = _kind_of_run(change)
        if kind != self._kind:
            yield from self.end()
        batch = change.batch or change.left[0].batch
        if not kind:
            yield f"  {batch.base_offset}..{batch.last_offset}: {_what_became(change)}", True
            return
        if not self._kind:
            self._kind, self._first, self._newest = kind, batch.base_offset, -1
        self._last = batch.last_offset
        self._newest = max(self._newest, batch.max_timestamp)
        self._run.update(batches=1, size_bytes=batch.size_bytes)

    def end(self) -> Iterator[tuple[str, bool]]:
        """Yield the line of the run that ends here, if there is one."""
        if not self._kind:
            return
        kind, count = self._kind, self._run["batches"]
        number = 0 if count == 1 else 1
        what = f"{count} {_RUNS[kind][number]}, {self._run['size_bytes']} bytes"
        if kind == RETENTION and self._newest >= 0:
            what += f", newest record {_moment(self._newest)}"
        yield f"  {self._first}..{self._last}: {what}", kind == RETENTION
        self._kind = ""
        self._run.clear()


_RUNS = {  # kind: in singular, in plural
    "as before": ("batch as it was", "batches as they were"),
    "new": ("new batch", "new batches"),
    "older": ("batch of which there was nothing to compare", "batches of which there was nothing to compare"),
    RETENTION: ("batch gone with its segment", "batches gone with their segment"),
}


def _kind_of_run(change: Change) -> str:
    """Return the kind of run that a batch belongs to; empty: it has a line of its own."""
    if change.batch is None:
        return "older" if change.is_older else "new"
    if change.reason is not None:
        return change.reason.kind
    return "as before" if change.is_untouched else ""


def _reasons(change: Change) -> Counter[str]:
    """Return how many records of a batch have gone for which reason."""
    if change.reason is not None:
        return Counter({change.reason.kind: change.records_before})
    return Counter(reason.kind for _, reason in change.gone)


def _what_became(change: Change) -> str:
    """Return the words for a batch that is not what it was."""
    batch = change.batch
    assert batch
    words = [f"{batch.size_bytes} -> {change.bytes_left} bytes"]
    marker = marker_of(batch)
    if marker is not None:
        words.append(f"{'ABORT' if marker == ABORT else 'COMMIT'} of producer {batch.producer_id}")
    if change.gone:
        words.append(_gone(_reasons(change)))
    for _, left in change.left:
        words += _what_changed(batch, left)
        if not change.records_left:
            why = f"the sequence of producer {left.producer_id}" if left.producer_id >= 0 else "its offsets"
            words.append(f"kept empty for {why}")
    if change.left and len(words) == 1:
        words.append("written anew")
    return "; ".join(words)


def _what_changed(batch: Batch, left: Batch) -> Iterator[str]:
    """Yield what is different in the header."""
    if left.delete_horizon is not None and left.delete_horizon != batch.delete_horizon:
        yield f"delete horizon {_moment(left.delete_horizon)}"
    if left.magic != batch.magic:
        yield f"format v{batch.magic} -> v{left.magic}"
    if left.codec != batch.codec:
        yield f"codec {_codec(batch)} -> {_codec(left)}"


def _codec(batch: Batch) -> str:
    return CODEC_NAMES[batch.codec] if batch.codec < len(CODEC_NAMES) else str(batch.codec)


def _record_line(batch: Batch, record: Record, reason: Reason, contents: bool) -> str:
    line = f"  | offset: {record.offset} {reason.kind}"
    if reason.kind == SUPERSEDED:
        line += f" by {reason.offset}"
    if reason.words:
        line += f", {reason.words}"
    if batch.is_control:
        return line + control_text(record, NEWEST)
    if contents:
        key, value = text_of(record)
        line += f" key: {key}" if key is not None else ""
        line += f" payload: {value}" if value is not None else ""
    return line


def _gone(reasons: Counter[str]) -> str:
    parts = [f"{count} {kind}{'s' if kind == MARKER and count > 1 else ''}" for kind, count in reasons.items()]
    return f"gone: {', '.join(parts)}"


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def _moment(ms: int) -> str:
    """Return a time as people read it; beyond the years that a calendar has, the number."""
    from datetime import datetime, timedelta

    try:
        return f"{(datetime(1970, 1, 1) + timedelta(milliseconds=ms)).isoformat(timespec='milliseconds')}Z"
    except OverflowError:
        return str(ms)


def _name(path: str) -> str:
    return path[path.rfind("/") + 1 :]

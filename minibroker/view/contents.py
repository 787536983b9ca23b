"""Records of short logs as text, where transactions end, and where compaction has left gaps: for lanes of replicas.

What must hold: of a log that is looked at again only what has come since is read, and never more than its last
SHORT_LOG_BYTES_MAX, in whole segments; of a longer segment nothing.
"""

from __future__ import annotations

from minibroker.log.batches import batches
from minibroker.log.formats import ABORT, COMMIT
from minibroker.log.reading import read
from minibroker.log.records import control_type

TYPE_CHECKING = False
if TYPE_CHECKING:
    from minibroker.log.partition_log import PartitionLog
    from minibroker.log.records import Record
    from minibroker.log.segment import Segment

SHORT_LOG_BYTES_MAX = 16_384  # so much of the end of a log is looked into
TEXT_MAX = 20  # characters of a record, in a row
MARKERS = {COMMIT: "commit", ABORT: "abort"}


class Contents:
    """What was read of one log, from an offset to another."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}  # offset -> record_text; strings, for JSON has no others
        self.markers: dict[str, str] = {}  # offset -> commit or abort
        self.gaps: list[tuple[int, int]] = []  # from an offset to another there are no records
        self._start = self._end = 0
        self._segments: list[Segment] = []
        self._epochs: list[tuple[int, int]] = []

    def look(self, log: PartitionLog) -> int:
        """Read what has come since, or all of it if the log is another one now; return how many offsets that were."""
        start = _look_from(log)
        segments = list(log.segments)
        epochs = [(entry.epoch, entry.start_offset) for entry in log.epochs.entries]
        more = epochs[len(self._epochs) :]
        is_longer = (
            log.log_end_offset >= self._end
            and segments[: len(self._segments)] == self._segments
            and epochs[: len(self._epochs)] == self._epochs
            and all(start_offset >= self._end for _, start_offset in more)
        )
        if not is_longer or start != self._start:
            self.__init__()  # type: ignore[misc]
            self._start = self._end = start
        count = log.log_end_offset - self._end
        if count:
            self._read(log, self._end)
        self._segments, self._epochs, self._end = segments, epochs, log.log_end_offset
        return count

    def _read(self, log: PartitionLog, position: int) -> None:
        start = position
        while slice_ := read(log, position, SHORT_LOG_BYTES_MAX, limit_offset=log.log_end_offset):
            for batch in batches(slice_.view()):
                for record in batch.records():
                    if record.offset < start:
                        continue
                    self._note_gap(position, record.offset)
                    position = record.offset + 1
                    if not batch.is_control:
                        self.texts[str(record.offset)] = record_text(record, with_key=log.settings.compact)
                    elif (outcome := MARKERS.get(control_type(record))) is not None:
                        self.markers[str(record.offset)] = outcome
                self._note_gap(position, batch.next_offset)
                position = batch.next_offset
        self._note_gap(position, log.log_end_offset)

    def _note_gap(self, start: int, end: int) -> None:
        """Add a gap, to the one before it if they touch; nothing is none."""
        if start < end and self.gaps and self.gaps[-1][1] == start:
            self.gaps[-1] = (self.gaps[-1][0], end)
        elif start < end:
            self.gaps.append((start, end))

    def row(self) -> list[object]:
        texts = {offset: text[:TEXT_MAX] for offset, text in self.texts.items()}
        return [texts, dict(self.markers), [list(gap) for gap in self.gaps]]


def _look_from(log: PartitionLog) -> int:
    """Return the offset from which on a log is looked into."""
    offset, room_bytes = log.log_end_offset, SHORT_LOG_BYTES_MAX
    for segment in reversed(log.segments):
        room_bytes -= segment.size_bytes
        if room_bytes < 0:
            break
        offset = segment.base_offset
    return max(offset, log.log_start_offset)


def record_text(record: Record, *, with_key: bool = True) -> str:
    """Return a record as people write it: its value, key=value, or -key for a tombstone."""
    value = (record.value or b"").decode(errors="replace")
    if record.key is None or not with_key:
        return value
    key = record.key.decode(errors="replace")
    return f"-{key}" if record.value is None else f"{key}={value}"

"""What verification finds in a piece of a segment: problems, and what must be known to put pieces together.

All of it can go to another process. Who fills it in: segment_piece.py; who joins pieces to a log: verify.py.
"""

from __future__ import annotations

from minibroker.log.index import NO_TIMESTAMP

TYPE_CHECKING = False
if TYPE_CHECKING:
    from minibroker.log.batches import Batch
    from minibroker.log.records import Record

NOTHING = -1


class Problem:
    """Something that is not as it should be."""

    __slots__ = ("path", "place", "reason")

    def __init__(self, path: str, place: str, reason: str):
        self.path = path
        self.place = place
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.path}: {self.place}: {self.reason}" if self.place else f"{self.path}: {self.reason}"


class Told:
    """A batch of a producer, as far as `ProducerStates` wants to know it."""

    __slots__ = (
        "base_sequence",
        "control",
        "first_offset",
        "gap_end",
        "is_control",
        "is_first",
        "is_transactional",
        "last_offset",
        "last_sequence",
        "max_timestamp",
        "position",
        "producer_epoch",
        "producer_id",
    )

    def __init__(self, batch: Batch, gap_end: int, *, is_first: bool, control: Record | None):
        self.producer_id = batch.producer_id
        self.producer_epoch = batch.producer_epoch
        self.base_sequence = batch.base_sequence
        self.last_sequence = batch.last_sequence
        self.first_offset = batch.base_offset
        self.last_offset = batch.last_offset
        self.max_timestamp = batch.max_timestamp
        self.is_transactional = batch.is_transactional
        self.is_control = batch.is_control
        self.control = control
        self.position = batch.position
        self.gap_end = gap_end  # where in the piece the last gap before the batch ends
        self.is_first = is_first  # nothing in the piece says what was due here


class Piece:
    """What has been found in some bytes of a segment. It can go to another process."""

    def __init__(self, base_offset: int, start: int, end: int):
        self.base_offset = base_offset  # of the segment
        self.start = start
        self.end = end
        self.problems: list[Problem] = []  # of batches
        self.index_problems: list[Problem] = []
        self.is_doubtful = False
        self.batches = self.records = 0
        self.first: tuple[int, int] | None = None  # offset and position of the first batch
        self.next_offset = NOTHING  # behind the last batch
        self.gap_end = NOTHING  # the first offset behind the last gap between batches
        self.first_epoch: tuple[int, int] | None = None  # of the first batch that has one, and where that lies
        self.last_epoch = NOTHING
        self.told: list[Told] = []  # in the order of their offsets
        self.newest = NO_TIMESTAMP
        # If the segment was cut: how many entries of its indexes were found right, and the first time among them.
        self.offset_entries = self.time_entries = 0
        self.first_noted: int | None = None

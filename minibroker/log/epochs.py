"""Leader epochs of a partition: which leader wrote from which offset on.

Each entry says that the leader of an epoch began at an offset; its reign ends where the next entry begins, the last
one's at the end of the log. Replicas compare these lists to find out where their logs part (KIP-101, KIP-279), so a
wrong answer here makes a follower keep records that its leader never had.

What must hold: both columns strictly rise. `assign` sees to it by dropping what contradicts the new entry: the newest
leader is right.
Not here: the text of the file (checkpoints.py), asking other replicas.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import NamedTuple

    class EpochEntry(NamedTuple):
        """Where a leader began."""

        epoch: int
        start_offset: int
else:
    # As in records.py: importing typing costs more than this module.
    from collections import namedtuple

    EpochEntry = namedtuple("EpochEntry", "epoch start_offset")

UNDEFINED_EPOCH = -1
UNDEFINED_OFFSET = -1


class LeaderEpochs:
    """The epochs of one log, oldest first. Methods that may change something return whether they did."""

    def __init__(self, entries: Iterable[tuple[int, int]] = ()):
        self._epochs: list[int] = []
        self._starts: list[int] = []  # as long as _epochs
        self.latest_epoch: int | None = None  # of the newest leader known here; each append asks
        for epoch, start_offset in entries:
            self.assign(epoch, start_offset)

    def __repr__(self) -> str:
        return f"LeaderEpochs({self.entries})"

    def __len__(self) -> int:
        return len(self._epochs)

    @property
    def entries(self) -> list[EpochEntry]:
        """Every epoch and its start offset."""
        return list(map(EpochEntry, self._epochs, self._starts))

    @property
    def earliest(self) -> EpochEntry | None:
        return EpochEntry(self._epochs[0], self._starts[0]) if self._epochs else None

    @property
    def latest(self) -> EpochEntry | None:
        return EpochEntry(self._epochs[-1], self._starts[-1]) if self._epochs else None

    def assign(self, epoch: int, start_offset: int) -> bool:
        """Note that the leader of `epoch` writes from `start_offset` on.

        The epoch keeps its first offset: called for each batch, this does nothing but for the first one.
        """
        assert epoch >= 0, epoch
        assert start_offset >= 0, start_offset
        epochs, starts = self._epochs, self._starts
        if epochs and epoch == epochs[-1] and start_offset >= starts[-1]:
            return False
        while epochs and (epochs[-1] >= epoch or starts[-1] >= start_offset):
            epochs.pop()
            starts.pop()
        epochs.append(epoch)
        starts.append(start_offset)
        self.latest_epoch = epoch
        return True

    def end_offset_for(self, requested_epoch: int, log_end_offset: int) -> tuple[int, int]:
        """Return the largest epoch up to the one requested, and where it ended.

        -1 and -1: nothing is known, the follower falls back to its high watermark. That is so for a later epoch than
        the latest, too. Of an epoch before the earliest only the end is known: where the earliest begins.
        """
        epochs = self._epochs
        if requested_epoch == UNDEFINED_EPOCH or not epochs or requested_epoch > epochs[-1]:
            return UNDEFINED_EPOCH, UNDEFINED_OFFSET
        later = bisect_right(epochs, requested_epoch)
        if later == len(epochs):
            return requested_epoch, log_end_offset
        return (epochs[later - 1] if later else requested_epoch), self._starts[later]

    def epoch_for_offset(self, offset: int) -> int | None:
        """Return the epoch of the leader that wrote this offset; None before the earliest."""
        after = bisect_right(self._starts, offset)
        return self._epochs[after - 1] if after else None

    def previous_epoch(self, epoch: int) -> int | None:
        """Return the largest epoch below this one."""
        index = bisect_left(self._epochs, epoch)
        return self._epochs[index - 1] if index else None

    def truncate_from_end(self, end_offset: int) -> bool:
        """Forget epochs that began at `end_offset` or later: the log has been cut there."""
        kept = bisect_left(self._starts, end_offset)
        if end_offset < 0 or kept == len(self._starts):
            return False
        del self._epochs[kept:], self._starts[kept:]
        self.latest_epoch = self._epochs[-1] if kept else None
        return True

    def truncate_from_start(self, start_offset: int) -> bool:
        """Forget epochs that ended before `start_offset`; the one of that offset now begins there."""
        upto = bisect_right(self._starts, start_offset)
        if not upto or (upto == 1 and self._starts[0] == start_offset):
            return False
        del self._epochs[: upto - 1], self._starts[: upto - 1]
        self._starts[0] = start_offset
        return True

    def clear(self) -> bool:
        """Forget all of them: the log starts over, or holds a batch without an epoch."""
        had_some = bool(self._epochs)
        self._epochs.clear()
        self._starts.clear()
        self.latest_epoch = None
        return had_some

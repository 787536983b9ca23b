"""Partitioner: the partition of a record, the same as with Kafka's Java client.

With a key: by its hash (log/murmur2.py). Without: partitions in turn, one batch each, so that batches are filled
(KIP-480); Java chooses at random, here nothing is left to chance.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence


class Sticky:
    """Partitions for records of one topic that have no key: stays with one while its batch is filling."""

    def __init__(self) -> None:
        self._place = -1

    def choose(self, partitions: Sequence[int], is_filling: Callable[[int], bool]) -> int:
        """Return one of the partitions, which are those of the topic at this moment."""
        if not 0 <= self._place < len(partitions) or not is_filling(partitions[self._place]):
            self._place = (self._place + 1) % len(partitions)
        return partitions[self._place]

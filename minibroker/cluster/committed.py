"""Which records an election loses: those that were committed and that the new leader does not have.

A leader that is gone cannot be asked how far its high watermark was, and the checkpoint on its disk is some seconds
old; so what each broker knew is kept when it ends. Nobody else could tell the range: the new leader never knew, and
whoever comes back has only his checkpoint.
What must hold: an offset is told as lost once, and only if it was below the high watermark of some replica.
Kafka: does not say what an unclean election has lost. Not here: what a leader commits that does not yet know that
another one was elected uncleanly.
"""

from __future__ import annotations

from typing import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from minibroker.cluster.nodes import Nodes
    from minibroker.log.epochs import EpochEntry
    from minibroker.replication.replica import Replica

Key = tuple[bytes, int]  # of a topic that was made again nothing is known


class KnownEnd(NamedTuple):
    """How far a replica knew that its log was committed, and in which epochs it was written."""

    high_watermark: int
    leader_epoch: int
    epochs: list[EpochEntry]


class Committed:
    """What brokers knew of high watermarks when they ended."""

    def __init__(self, cluster: Nodes):
        self.cluster = cluster
        self._kept: dict[Key, KnownEnd] = {}
        self._told: dict[Key, int] = {}  # the leader epoch that has lost what was committed in those before it

    def keep(self, broker: int) -> None:
        """Remember what a broker knows: it is about to end."""
        topics = self.cluster.controller.image.topics_by_id
        for key in [key for key in self._kept if key[0] not in topics]:
            del self._kept[key]
            self._told.pop(key, None)
        for replica in self.cluster.nodes[broker].replicas.values():
            key = (bytes(replica.topic_id), replica.partition)
            kept = self._kept.get(key)
            if kept is None or kept.high_watermark < replica.high_watermark or self._is_told(key, kept):
                self._kept[key] = _known(replica)

    def find_lost(self, topic_id: bytes, partition: int, leader: int, leader_epoch: int) -> tuple[int, int] | None:
        """Return the first offset that an election has lost, and the end of them; None: nothing, as far as one knows.

        To be asked before the new leader has heard of it.
        """
        key = (topic_id, partition)
        name = self.cluster.controller.image.topics_by_id[topic_id].name
        elected = self.cluster.replica(name, partition, leader)
        if elected is None:
            return None
        replicas = [self.cluster.replica(name, partition, broker) for broker in self.cluster.broker_ids]
        found = [_known(each) for each in replicas if each is not None]
        if key in self._kept:
            found.append(self._kept[key])
        known = max((each for each in found if not self._is_told(key, each)), default=None)
        if known is None:
            return None
        start = _common_end(elected, known)
        if start >= known.high_watermark:
            return None
        self._told[key] = leader_epoch
        return start, known.high_watermark

    def _is_told(self, key: Key, known: KnownEnd) -> bool:
        return known.leader_epoch < self._told.get(key, 0)


def _known(replica: Replica) -> KnownEnd:
    return KnownEnd(replica.high_watermark, replica.leader_epoch, replica.log.epochs.entries)


def _common_end(elected: Replica, known: KnownEnd) -> int:
    """Return up to where a log has the same records as one that was committed up to a high watermark."""
    log = elected.log
    if not len(log.epochs) or not known.epochs:
        return log.log_end_offset
    own = _ends(log.epochs.entries, log.log_end_offset)
    other = _ends(known.epochs, known.high_watermark)
    common = own.keys() & other.keys()
    return min(own[max(common)], other[max(common)]) if common else log.log_start_offset


def _ends(epochs: list[EpochEntry], end_offset: int) -> dict[int, int]:
    """Return where each epoch ends, of those that begin before a log does."""
    entries = [each for each in epochs if each.start_offset < end_offset] or epochs[:1]
    starts = [*(each.start_offset for each in entries[1:]), end_offset]
    return {each.epoch: start for each, start in zip(entries, starts, strict=True)}

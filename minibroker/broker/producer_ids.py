"""Ids for producers: nobody had one before. The controller gives them out in blocks."""

from __future__ import annotations

from minibroker.broker.metadata_standalone import StandaloneMetadata

TYPE_CHECKING = False
if TYPE_CHECKING:
    from minibroker.broker.metadata_in_cluster import ClusterMetadata


class ProducerIds:
    """The ids that one broker has to give."""

    def __init__(self, metadata: StandaloneMetadata | ClusterMetadata):
        self.metadata = metadata
        self._next = self._end = 0

    def next(self) -> int | None:
        """Return an id that nobody had before; None: the controller has to be asked for more (`later`)."""
        if self._next < self._end:
            self._next += 1
            return self._next - 1
        metadata = self.metadata
        if isinstance(metadata, StandaloneMetadata):
            self._take(*metadata.allocate_producer_ids())
            return self.next()
        return None

    async def later(self) -> int:
        """Return an id from a block that the controller of the cluster is asked for."""
        metadata = self.metadata
        while (found := self.next()) is None:
            assert not isinstance(metadata, StandaloneMetadata)
            self._take(*await metadata.allocate_producer_ids())
        return found

    def _take(self, first: int, count: int) -> None:
        self._next, self._end = first, first + count

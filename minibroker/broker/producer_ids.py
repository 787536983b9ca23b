"""Ids for producers: nobody had one before. The controller gives them out in blocks."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from minibroker.broker.metadata_standalone import StandaloneMetadata

TYPE_CHECKING = False
if TYPE_CHECKING:
    from minibroker.broker.metadata_in_cluster import ClusterMetadata


class ProducerIds:
    """The ids that one broker has to give."""

    def __init__(self, metadata: StandaloneMetadata | ClusterMetadata):
        self.metadata = metadata
        self._ids: Iterator[int] = iter(())  # of all blocks that were given to it
        self._given_back: list[int] = []

    def next(self) -> int | None:
        """Return an id that nobody had before; None: the controller has to be asked for more (`later`)."""
        if self._given_back:
            return self._given_back.pop()
        found = next(self._ids, None)
        metadata = self.metadata
        if found is None and isinstance(metadata, StandaloneMetadata):
            self._take(*metadata.allocate_producer_ids())
            return self.next()
        return found

    async def later(self) -> int:
        """Return an id from a block that the controller of the cluster is asked for."""
        metadata = self.metadata
        while (found := self.next()) is None:
            assert not isinstance(metadata, StandaloneMetadata)
            self._take(*await metadata.allocate_producer_ids())
        return found

    def give_back(self, producer_id: int) -> None:
        """Take back an id that nobody was given after all."""
        self._given_back.append(producer_id)

    def _take(self, first: int, count: int) -> None:
        self._ids = chain(self._ids, range(first, first + count))  # several may have asked at the same time

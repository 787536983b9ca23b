"""What groups need to know of the cluster's topics."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Protocol

    class Topic(Protocol):
        """One topic."""

        @property
        def name(self) -> str: ...
        @property
        def topic_id(self) -> bytes: ...
        @property
        def racks(self) -> Sequence[Sequence[str]]:
            """For each partition the racks of its replicas, as far as they are known: its length is their count."""
            ...

    class Topics(Protocol):
        """All topics, as the metadata have them at one moment."""

        @property
        def version(self) -> int:
            """Of the metadata: rises with each change."""
            ...

        @property
        def last_created_version(self) -> int:
            """The version with which a topic last came to be; of the first metadata, if none has since."""
            ...

        def find(self, name: str) -> Topic | None: ...
        def find_id(self, topic_id: bytes) -> Topic | None: ...
        def names(self) -> Iterable[str]: ...

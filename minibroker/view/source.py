"""What a broker, or a cluster of them, has to have for somebody to look at it."""

from __future__ import annotations

from typing import Protocol

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from minibroker.events import EventStream
    from minibroker.metadata.image import MetadataImage
    from minibroker.replication.replica import Replica
    from minibroker.taught import SeenLesson

    Rows = Mapping[str, object]  # what JSON has, by key


class ViewSource(Protocol):
    """One broker that is its own controller, or a cluster."""

    events: EventStream
    lesson: SeenLesson | None  # that is played on it

    @property
    def image(self) -> MetadataImage:
        """What is decided."""
        ...

    @property
    def is_stepped(self) -> bool:
        """Whether somebody steps through it: then each move is shown by itself."""
        ...

    def new_boot(self) -> str:
        """Return a name for the tables that are begun now: no others have it."""
        ...

    def new_token(self) -> str:
        """Return a word that nobody guesses."""
        ...

    @property
    def serving(self) -> object:
        """Who answers for groups and transactions; when this is another value, others may be seen."""
        ...

    def now_ms(self) -> int: ...

    def steady_ms(self) -> int: ...

    def small_tables(self) -> Mapping[str, Rows]:
        """Return the tables that are looked through for each frame: their rows are few."""
        ...

    def replicas(self, topic: str, partition: int, brokers: Iterable[int]) -> list[Replica | None]:
        """Return the replicas of a partition, in this order; None: the broker does not run, or has none."""
        ...

    def clean_offset(self, replica: Replica) -> int:
        """Return up to where its log has been compacted; -1: never."""
        ...

    def min_in_sync(self, topic: str) -> int: ...

    # What coordinators have

    def group_ids(self) -> Iterable[str]: ...

    def group_row(self, group: str) -> list[object] | None: ...

    def group_view(self, group: str) -> Iterator[int | dict[str, object]]:
        """Yield how long it takes, in microseconds, and in the end all that is known of a group."""
        ...

    def transaction_ids(self) -> Iterable[str]: ...

    def transaction_row(self, id: str) -> list[object] | None: ...

    # Who is connected

    def client_rows(self) -> Iterator[tuple[str, list[object]]]:
        """Yield each client by its address."""
        ...

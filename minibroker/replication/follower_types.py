"""What a follower must know of a replica and of an answer, whoever says it: types only, nothing runs here.

In a module of its own: mypyc cannot compile a module that has a class inside `if TYPE_CHECKING`.
"""

from __future__ import annotations

from typing import Any, Protocol

from minibroker.events import EventStream
from minibroker.log.partition_log import PartitionLog
from minibroker.log.segment import Segment
from minibroker.log.storage_types import Chunk


class RoleReplica(Protocol):
    """A replica as its role sees it, leader or follower: replica.py."""

    node_id: int
    log: PartitionLog
    events: EventStream
    replicas: tuple[int, ...]
    high_watermark: int

    @property
    def role(self) -> object: ...
    @property
    def place(self) -> dict[str, Any]: ...
    @property
    def min_in_sync_effective(self) -> int: ...
    def check_epoch(self, current_epoch: int) -> None: ...
    def advance(self, steady_ms: int, size_bytes: int = 0) -> None: ...
    def take_high_watermark(self, offset: int, size_bytes: int) -> None: ...
    def log_start_moved(self, why: str) -> None: ...
    def truncated(self) -> None: ...
    def tell_appended(self, active: Segment, first_offset: int, size_bytes: int, origin: str) -> None: ...
    def tell(self, size_bytes: int) -> None: ...


class EpochEnd(Protocol):
    """Up to where a leader's log has an epoch; epoch -1: nothing diverges."""

    @property
    def epoch(self) -> int: ...
    @property
    def end_offset(self) -> int: ...


class FetchedPartition(Protocol):
    """What a follower reads in an answer; FetchResponse's PartitionData has all of it."""

    @property
    def error_code(self) -> int: ...
    @property
    def high_watermark(self) -> int: ...
    @property
    def log_start_offset(self) -> int: ...
    @property
    def diverging_epoch(self) -> EpochEnd: ...
    @property
    def records(self) -> Chunk | None: ...

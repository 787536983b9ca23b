"""What the producers of a log must know of a batch, whoever says it: types only, nothing runs here.

In a module of its own: mypyc cannot compile a module that has a class inside `if TYPE_CHECKING`.
"""

from __future__ import annotations

from typing import Protocol

from minibroker.log.records import Record


class BatchInfo(Protocol):
    """What must be known of a v2 batch that is to be appended; `AcceptedBatch` of the validator says it."""

    producer_id: int
    producer_epoch: int
    base_sequence: int
    last_sequence: int
    first_offset: int
    last_offset: int
    max_timestamp: int
    is_transactional: bool
    is_control: bool
    control: Record | None  # the record of a control batch

"""Events of a replica's high watermark, last stable offset and markers, for as long as somebody watches."""

from __future__ import annotations

from minibroker.event_kinds import HighWatermark, LastStableOffset, TransactionMarker
from minibroker.log.batches import batches
from minibroker.log.formats import COMMIT
from minibroker.log.records import control_type

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from minibroker.events import EventStream
    from minibroker.log.partition_log import PartitionLog
    from minibroker.log.storage import Chunk


def move_high_watermark(
    events: EventStream, place: dict[str, Any], log: PartitionLog, previous: int, offset: int, why: str
) -> None:
    """Let the log know of a high watermark that has moved, and watchers of what came of it."""
    stable_before = log.last_stable_offset(previous)
    log.on_high_watermark_updated(offset)
    if "high_watermark" in events.wanted:
        events.emit(HighWatermark(**place, previous=previous, offset=offset, why=why))
    stable = log.last_stable_offset(offset)
    # Where no transaction is, or was, it is the high watermark, and there is nothing more to say.
    if stable != stable_before and (stable_before, stable) != (previous, offset):
        why = (
            "the next open transaction begins there" if stable < offset else "no transaction is open below it any more"
        )
        events.emit(LastStableOffset(**place, previous=stable_before, offset=stable, why=why))


def tell_marker(events: EventStream, place: dict[str, Any], data: Chunk, offset: int) -> None:
    """Let watchers know of the marker that a coordinator's batch is, if it is one.

    It is told between its append and what that moves: the last stable offset rises because of it.
    """
    (batch,) = batches(data)
    if batch.is_control:
        (record,) = batch.records()
        outcome = "commit" if control_type(record) == COMMIT else "abort"
        events.emit(
            TransactionMarker(
                **place,
                producer_id=batch.producer_id,
                producer_epoch=batch.producer_epoch,
                outcome=outcome,
                offset=offset,
            )
        )

"""Batches of this broker's own: built for the place where they go, and looked at by nobody before they are written.

What coordinators write down comes from no stranger: every record has a key and the time of now, offsets and leader
epoch are those of the log. So nothing has to be checked but their size, and nothing changed.
What must hold: the bytes are those that `validate_in_place` would make of the same records.
"""

from __future__ import annotations

from minibroker.log.batches import find_batch
from minibroker.log.build import SMALL_VARINTS, pack_batch, varlong
from minibroker.log.compression import NONE
from minibroker.log.formats import CREATE_TIME
from minibroker.log.validate import AcceptedBatch, Validated, too_large

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Final

    from minibroker.log.settings import ValidationSettings

NO_PRODUCER: Final = (-1, -1, -1)  # id, epoch, sequence


def own_batch(
    records: Sequence[tuple[bytes, bytes | None]],
    settings: ValidationSettings,
    next_offset: int,
    leader_epoch: int,
    now_ms: int,
) -> Validated | None:
    """Return the batch of some keys and values; KafkaError if it is too large. None: its topic has others."""
    if settings.message_format != 2 or settings.codec not in (None, NONE) or settings.timestamp_type != CREATE_TIME:
        return None
    parts: list[bytes] = []
    for delta, (key, value) in enumerate(records):
        sized_value = b"\1" if value is None else _size(len(value)) + value
        body = b"".join((b"\0\0", _size(delta), _size(len(key)), key, sized_value, b"\0"))  # no headers
        parts += _size(len(body)), body
    count = len(records)
    header = (NONE, count - 1, now_ms, now_ms, *NO_PRODUCER, count)
    data = pack_batch(next_offset, leader_epoch, header, b"".join(parts))
    if len(data) > settings.max_message_bytes:
        raise too_large(len(data), settings.max_message_bytes)
    batch = find_batch(memoryview(data), 0, len(data))
    assert batch is not None
    only = AcceptedBatch(batch, next_offset)
    return Validated([data], [only], now_ms, only.last_offset)


def _size(size: int) -> bytes:
    return SMALL_VARINTS[size] if size < len(SMALL_VARINTS) else varlong(size)

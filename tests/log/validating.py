"""What a leader appends for the bytes that a producer sent, as PartitionLog has them checked, without a log."""

from __future__ import annotations

from minibroker.in_pieces import finish
from minibroker.log.append_conversion import look, place
from minibroker.log.settings import ValidationSettings
from minibroker.log.validate import CLIENT, Allowance, Validated, validate_in_place


def validate(
    data: bytes | bytearray | memoryview,
    settings: ValidationSettings,
    *,
    next_offset: int,
    leader_epoch: int,
    now_ms: int,
    partition: str,
    origin: str = CLIENT,
    allowance: Allowance | None = None,
) -> Validated:
    done = validate_in_place(data, settings, next_offset, leader_epoch, now_ms, partition, origin, allowance)
    if done is not None:
        return done
    work = look(data, settings, now_ms, partition, leader_epoch, origin, allowance)
    looked = finish(work) if allowance is None else allowance.finish(work)
    return place(looked, next_offset=next_offset, leader_epoch=leader_epoch, now_ms=now_ms)

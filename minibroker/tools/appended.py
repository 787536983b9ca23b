"""What a producer sent beside what the broker stored: which bytes changed, and whether the checksum was made again.

    stored = append(sent, next_offset=11, leader_epoch=3)       what a leader makes of it
    as_sent(stored)                                             what it was, as far as the stored bytes still tell
    found = compare(sent, stored)
    found.changed             [FieldChange("batch[0].base_offset", 0, 11, ...), ...]
    found.sentence            "5 of 76 bytes changed, in base_offset and partition_leader_epoch; the CRC stands ..."

What must hold: `append` goes the leader's own way (log/validate.py, log/append_conversion.py), so this shows what the
broker does and not what somebody believes that it does.
"""

from __future__ import annotations

from typing import NamedTuple

from minibroker.errors import InvalidRecord
from minibroker.in_pieces import finish
from minibroker.log.append_conversion import look, place
from minibroker.log.batches import Batch, batches
from minibroker.log.build import build_batch
from minibroker.log.formats import (
    APPEND_TIME,
    APPEND_TIME_BIT,
    ATTRIBUTES_POSITION,
    CREATE_TIME,
    MAGIC_POSITION,
)
from minibroker.log.records import Record
from minibroker.log.settings import UNLIMITED_MS, ValidationSettings
from minibroker.tools.explain import Explanation, Part, explain, explain_batch_in_pieces

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Final

    from minibroker.in_pieces import InPieces

NO_LEADER_EPOCH: Final = -1  # what producers write there
CRC_STANDS: Final = "the CRC stands, for it covers only what lies behind"


class NotKnown(ValueError):
    """What the producer sent can no longer be told from what is stored."""


class LeaderCopy(NamedTuple):
    """What a leader appends."""

    data: bytes
    in_place: bool  # the bytes that came, with some fields written over


def append(
    sent: bytes,
    *,
    next_offset: int = 0,
    leader_epoch: int = 0,
    now_ms: int = 0,
    message_format: int = 2,
    compression_type: str = "producer",
    append_time: bool = False,
    max_message_bytes: int = 1_048_588,
) -> LeaderCopy:
    """Return what a leader appends for what a producer sent, or raise the KafkaError that it answers.

    message_format, compression_type, append_time, max_message_bytes: the topic's.
    now_ms: when, if that is the time of the records.
    """
    settings = ValidationSettings(
        message_format=message_format,
        compression_type=compression_type,
        timestamp_type=APPEND_TIME if append_time else CREATE_TIME,
        timestamp_after_max_ms=UNLIMITED_MS,
        max_message_bytes=max_message_bytes,
    )
    looked = finish(look(bytes(sent), settings, now_ms, "these-0"))
    placed = place(looked, next_offset=next_offset, leader_epoch=leader_epoch, now_ms=now_ms)
    return LeaderCopy(b"".join(placed.chunks), placed.in_place)


def sent_records(data: bytes) -> bytes:
    """Return the records of a produce request, with or without its length in front, or the batch that the bytes are."""
    found = explain(data)
    if found.error:
        raise found.error
    size = next((part for part in found.parts if part.type == "size of Records"), None)
    if size is not None:
        return data[size.end : size.end + size.value]
    if not found.parts[0].path.startswith("batch"):
        raise InvalidRecord("holds no records", 0, found.parts[0].path)
    return data


def as_sent(stored: bytes) -> bytes:
    """Return one batch as its producer sent it: counted from 0, without the leader's epoch and time.

    What v0 has packed is packed anew, by our own codecs.
    """
    (batch,) = batches(bytearray(stored), strict=True)
    if batch.is_control:
        raise NotKnown("it is a marker, and no producer sent it")
    if batch.magic < 2 and not batch.is_wrapper:
        if batch.timestamp_type == APPEND_TIME:
            raise NotKnown("the broker has written its own time over the producer's")
        batch.set_last_offset(0)
        return bytes(batch.view)
    records = list(batch.records())
    if batch.magic == 2 and records[0].offset != batch.base_offset:
        raise NotKnown("compaction has taken records out of it")
    if batch.magic == 0:
        return build_batch(0, [record._replace(offset=at) for at, record in enumerate(records)], codec=batch.codec)
    if not records or len(records) != batch.last_offset - records[0].offset + 1 or batch.delete_horizon is not None:
        raise NotKnown("compaction has taken records out of it")
    if batch.timestamp_type == APPEND_TIME:
        times = [record.timestamp for record in _created(batch)]
        batch.set_max_timestamp(CREATE_TIME, max(times))
    batch.set_last_offset(len(records) - 1)
    batch.set_leader_epoch(NO_LEADER_EPOCH)
    return bytes(batch.view)


def _created(batch: Batch) -> list[Record]:
    """Return the records with the times of their producer, which batches of v2 and wrappers of v1 keep within."""
    copy = bytearray(batch.view)
    copy[ATTRIBUTES_POSITION if batch.magic == 2 else MAGIC_POSITION + 1] &= ~APPEND_TIME_BIT
    (plain,) = batches(copy)
    return list(plain.records())


class FieldChange(NamedTuple):
    """One field that is not as it was sent."""

    path: str
    sent: Part | None  # None: it was not there
    stored: Part | None

    def to_dict(self) -> dict[str, Any]:
        """Return the change for JSON."""
        return {"path": self.path} | {
            name: part and {key: part.to_dict()[key] for key in ("value", "from", "to", "hex")}
            for name, part in (("sent", self.sent), ("stored", self.stored))
        }


class Comparison:
    """Bytes before and after."""

    def __init__(self, sent: Explanation, stored: Explanation):
        self.sent_bytes, self.stored_bytes = len(sent.data), len(stored.data)
        self.magic = _value(stored, "magic")
        self.is_same_format = _value(sent, "magic") == self.magic
        self.is_in_place = self.is_same_format and _packed(sent) == _packed(stored)
        self.changed = _changes(sent, stored) if self.is_same_format else []
        self.bytes_changed = (
            sum(before != after for before, after in zip(sent.data, stored.data)) if self.is_in_place else 0
        )
        self.crc_made_again: bool = _value(sent, "crc") != _value(stored, "crc")

    @property
    def sentence(self) -> str:
        """What has happened, for people."""
        if not self.is_same_format or not self.is_in_place:
            return (
                f"written anew as v{self.magic}: {self.sent_bytes} bytes became {self.stored_bytes}; "
                f"the CRC was made again"
            )
        if not self.changed:
            return f"none of {self.stored_bytes} bytes changed"
        names = list(dict.fromkeys(change.path.rpartition(".")[2] for change in self.changed))
        listed = " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
        crc = "the CRC was made again" if self.crc_made_again else CRC_STANDS
        return f"{self.bytes_changed} of {self.stored_bytes} bytes changed, in {listed}; {crc}"

    def to_dict(self) -> dict[str, Any]:
        """Return the comparison for JSON."""
        return {
            "sent_bytes": self.sent_bytes,
            "stored_bytes": self.stored_bytes,
            "in_place": self.is_in_place,
            "bytes_changed": self.bytes_changed,
            "crc_made_again": self.crc_made_again,
            "changed": [change.to_dict() for change in self.changed],
            "summary": self.sentence,
        }


def compare(sent: bytes, stored: bytes) -> Comparison:
    """Compare what was sent with what was stored, both one batch or one message set; raise what is wrong with them."""
    return finish(compare_in_pieces(sent, stored))


def compare_in_pieces(sent: bytes, stored: bytes) -> InPieces[Comparison]:
    """Do so in pieces, so that others may have their turn."""
    before = yield from explain_batch_in_pieces(sent)
    after = yield from explain_batch_in_pieces(stored)
    for each in (before, after):
        if each.error:
            raise each.error
    yield len(before.parts) + len(after.parts)
    return Comparison(before, after)


def _value(found: Explanation, name: str) -> Any:
    return next(part.value for part in found.parts if part.name == name)


def _packed(found: Explanation) -> list[tuple[str, bytes]]:
    """Return what no leader changes that leaves a batch where it is: all behind the header that is not unpacked."""
    names = ("key.size", "key", "value.size", "value", "records")
    return [(part.path, part.data) for part in found.parts if not part.inside and part.name in names]


def _changes(sent: Explanation, stored: Explanation) -> list[FieldChange]:
    before = {part.path: part for part in sent.parts}
    after = {part.path: part for part in stored.parts}
    return [
        FieldChange(path, before.get(path), after.get(path))
        for path in dict.fromkeys([*before, *after])
        if path not in before or path not in after or before[path].data != after[path].data
    ]

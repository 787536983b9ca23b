"""What validation is given, and what it gives back: a topic's settings, and batches that may be appended.

Not here: what is done with them (validate.py).
"""

from __future__ import annotations

from minibroker.log.compression import CODEC_NAMES, NONE
from minibroker.log.formats import CODEC_MASK, CONTROL_BIT, CREATE_TIME, TRANSACTIONAL_BIT
from minibroker.log.records import DECOMPRESSED_BYTES_MAX

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import TypeVar

    from minibroker.in_pieces import InPieces
    from minibroker.log.batches import Batch
    from minibroker.log.records import Record
    from minibroker.log.storage import Chunk

    Made = TypeVar("Made")

PRODUCER = "producer"  # compression.type: keep the codec that the producer chose
UNCOMPRESSED = "uncompressed"

UNLIMITED_MS = (1 << 63) - 1
RECORD_BYTES_MAX = 2_147_483_639  # max.decompressed.message.bytes, as Kafka has it


class ValidationSettings:
    """What the topic wants, by Kafka's names; defaults are those of 4.x."""

    __slots__ = (
        "codec",
        "compacted",
        "level",
        "max_decompressed_message_bytes",
        "max_message_bytes",
        "message_format",
        "refuse_append_time",
        "timestamp_after_max_ms",
        "timestamp_before_max_ms",
        "timestamp_type",
    )

    def __init__(
        self,
        *,
        message_format: int = 2,
        compression_type: str | None = PRODUCER,
        level: int | None = None,
        timestamp_type: int = CREATE_TIME,
        timestamp_before_max_ms: int = UNLIMITED_MS,
        timestamp_after_max_ms: int = 3_600_000,
        compacted: bool = False,
        max_message_bytes: int = 1_048_588,
        max_decompressed_message_bytes: int = RECORD_BYTES_MAX,
        refuse_append_time: bool = False,
    ):
        assert message_format in (0, 1, 2), message_format
        self.message_format = message_format  # message.format.version up to 3.x
        self.codec = None  # to store with; None: the producer's
        if compression_type not in (None, PRODUCER):
            self.codec = NONE if compression_type == UNCOMPRESSED else CODEC_NAMES.index(compression_type)
        self.level = level  # of that codec; None is Kafka's default
        self.timestamp_type = timestamp_type  # CREATE_TIME or APPEND_TIME
        self.timestamp_before_max_ms = timestamp_before_max_ms
        # Kafka: unlimited up to 3.9, an hour since 4.0 (KIP-937).
        self.timestamp_after_max_ms = timestamp_after_max_ms
        self.compacted = compacted  # every record needs a key
        self.refuse_append_time = refuse_append_time  # of a producer, whatever the topic has: the rule before 3.0
        self.max_message_bytes = max_message_bytes  # of a batch, its 12 bytes of offset and size included
        self.max_decompressed_message_bytes = max_decompressed_message_bytes  # of one record in a compressed batch

    def keeps(self, batch: Batch) -> bool:
        """Whether a v2 batch has the topic's format and codec, so that its records stay as they are."""
        return self.message_format == 2 and (self.codec is None or self.codec == batch.attributes & CODEC_MASK)


class LongValidation(Exception):
    """To look at a batch takes longer than others can wait: it has to be done in pieces. Nothing has changed."""


class Allowance:
    """What the batches of one request may cost from now on."""

    __slots__ = ("left_bytes", "left_us")

    def __init__(self, left_bytes: int = DECOMPRESSED_BYTES_MAX, left_us: int = 0):
        self.left_bytes = left_bytes  # that compressed ones may unpack to
        self.left_us = left_us  # for what is done at once

    @property
    def limit_bytes(self) -> int:
        """How many bytes the next one may unpack to."""
        return max(min(self.left_bytes, DECOMPRESSED_BYTES_MAX), 0)

    def finish(self, work: InPieces[Made]) -> Made:
        """Do all of it now; raise LongValidation if that takes longer than may be."""
        left_bytes = self.left_bytes
        try:
            while self.left_us >= 0:
                self.left_us -= next(work)
        except StopIteration as end:
            made: Made = end.value
            return made
        self.left_bytes = left_bytes  # it begins once more
        raise LongValidation


class AcceptedBatch:
    """What indexes and producer state must know of a batch that goes into the log. Holds no bytes of it."""

    __slots__ = (
        "base_sequence",
        "control",
        "first_offset",
        "is_control",
        "is_transactional",
        "last_offset",
        "last_sequence",
        "leader_epoch",
        "magic",
        "max_timestamp",
        "producer_epoch",
        "producer_id",
        "size_bytes",
    )

    def __init__(self, batch: Batch, first_offset: int):
        self.first_offset = first_offset
        self.last_offset = batch.last_offset
        self.max_timestamp = batch.max_timestamp
        self.size_bytes = batch.size_bytes
        self.magic = batch.magic
        self.leader_epoch = batch.partition_leader_epoch  # -1 below v2
        self.producer_id = batch.producer_id  # -1 for none, as in all that follow
        self.producer_epoch = batch.producer_epoch
        self.base_sequence = batch.base_sequence
        self.last_sequence = batch.last_sequence if batch.base_sequence >= 0 else -1
        has_bits = batch.magic == 2
        self.is_transactional = has_bits and batch.attributes & TRANSACTIONAL_BIT != 0
        self.is_control = has_bits and batch.attributes & CONTROL_BIT != 0
        self.control: Record | None = None  # the first record of a control batch: a marker's type and coordinator epoch
        if self.is_control:
            self.control = next(batch.records(), None)


class Validated:
    """Bytes that may be appended, and what they are. Without any whole batch: no chunks, and every number -1."""

    __slots__ = (
        "append_time",
        "batches",
        "chunks",
        "first_offset",
        "in_place",
        "last_offset",
        "max_timestamp",
        "max_timestamp_offset",
        "size_bytes",
    )

    def __init__(
        self,
        chunks: Sequence[Chunk],
        accepted: list[AcceptedBatch],
        max_timestamp: int = -1,
        max_timestamp_offset: int = -1,
        append_time: int = -1,
        in_place: bool = True,
    ):
        self.chunks = chunks  # to be written one after another; views of what came in are as short-lived as that
        self.batches = accepted
        self.first_offset = accepted[0].first_offset if accepted else -1
        self.last_offset = accepted[-1].last_offset if accepted else -1
        self.max_timestamp = max_timestamp  # -1: no record has one
        self.max_timestamp_offset = max_timestamp_offset  # last offset of the batch with it, as time indexes have it
        self.append_time = append_time  # what clients are told; -1 unless the topic has append time
        self.size_bytes = accepted[0].size_bytes if len(accepted) == 1 else sum(batch.size_bytes for batch in accepted)
        self.in_place = in_place

"""Settings of one partition's log: Kafka's names with underscores, Kafka's defaults.

Times are milliseconds, sizes bytes. A log looks at its settings each time that it needs one, so putting another
object in their place takes effect at once.
"""

from __future__ import annotations

from minibroker.log.compression import CODEC_NAMES, NONE
from minibroker.log.formats import CREATE_TIME

DAY_MS = 24 * 60 * 60 * 1000
FOREVER = (1 << 63) - 1
PRODUCER = "producer"  # compression.type: keep the codec that the producer chose
UNCOMPRESSED = "uncompressed"

UNLIMITED_MS = (1 << 63) - 1
RECORD_BYTES_MAX = 2_147_483_639  # max.decompressed.message.bytes, as Kafka has it


class ValidationSettings:
    """What the topic wants of produced batches, by Kafka's names; defaults are those of 4.x."""

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


class LogSettings:
    """What a topic's configuration says about its logs."""

    def __init__(
        self,
        *,
        segment_bytes: int = 1 << 30,
        segment_ms: int = 7 * DAY_MS,
        segment_jitter_ms: int = 0,
        segment_index_bytes: int = 10 << 20,
        index_interval_bytes: int = 4096,
        flush_messages: int = FOREVER,
        flush_ms: int = FOREVER,
        retention_ms: int = 7 * DAY_MS,  # -1: records never become too old
        retention_bytes: int = -1,  # -1: there are never too many
        file_delete_delay_ms: int = 60_000,
        compact: bool = False,  # cleanup.policy has compact in it
        delete: bool = True,  # and delete
        min_compaction_lag_ms: int = 0,
        max_compaction_lag_ms: int = FOREVER,
        min_cleanable_dirty_ratio: float = 0.5,
        delete_retention_ms: int = DAY_MS,
        producer_id_expiration_ms: int = DAY_MS,
        transaction_partition_verification_enable: bool = False,
        validation: ValidationSettings | None = None,
    ):
        self.segment_bytes = segment_bytes
        self.segment_ms = segment_ms
        self.segment_jitter_ms = segment_jitter_ms
        self.segment_index_bytes = segment_index_bytes
        self.index_interval_bytes = index_interval_bytes
        self.flush_messages = flush_messages
        self.flush_ms = flush_ms
        self.retention_ms = retention_ms
        self.retention_bytes = retention_bytes
        self.file_delete_delay_ms = file_delete_delay_ms
        self.compact = compact
        self.delete = delete
        self.min_compaction_lag_ms = min_compaction_lag_ms
        self.max_compaction_lag_ms = max_compaction_lag_ms
        self.min_cleanable_dirty_ratio = min_cleanable_dirty_ratio
        self.delete_retention_ms = delete_retention_ms
        self.producer_id_expiration_ms = producer_id_expiration_ms
        # Kafka's default is that of brokers; without one nobody confirms transactions.
        self.transaction_partition_verification_enable = transaction_partition_verification_enable
        self.validation = validation or ValidationSettings(compacted=compact)
        # How old the first record of the active segment may become; compaction waits for the end of a segment.
        self.segment_age_max_ms = min(segment_ms, max_compaction_lag_ms) if compact else segment_ms

    @property
    def only_compacts(self) -> bool:
        return self.compact and not self.delete

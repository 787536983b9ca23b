"""Settings of one partition's log: Kafka's names with underscores, Kafka's defaults.

Times are milliseconds, sizes bytes. A log looks at its settings each time that it needs one, so putting another
object in their place takes effect at once.
"""

from __future__ import annotations

from minibroker.log.validation import ValidationSettings

DAY_MS = 24 * 60 * 60 * 1000
FOREVER = (1 << 63) - 1


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
        self.validation = validation or ValidationSettings(compacted=compact)

    @property
    def only_compacts(self) -> bool:
        return self.compact and not self.delete

    @property
    def segment_age_max_ms(self) -> int:
        """How old the first record of the active segment may become; compaction waits for the end of a segment."""
        return min(self.segment_ms, self.max_compaction_lag_ms) if self.compact else self.segment_ms

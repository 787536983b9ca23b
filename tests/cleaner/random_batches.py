"""Random batches of all formats and codecs, and something to compact them by: for our filter, a model, and Kafka's."""

from __future__ import annotations

from random import Random

from minibroker.cleaner.batch_filter import BatchFilter, Filtered
from minibroker.cleaner.offset_map import OffsetMap
from minibroker.cleaner.transactions import Transactions
from minibroker.in_pieces import finish
from minibroker.log.batches import Batch, batches
from minibroker.log.build import build_batch
from minibroker.log.compression import GZIP, LZ4, NONE, SNAPPY, ZSTD
from minibroker.log.formats import ABORT, APPEND_TIME, COMMIT, CREATE_TIME, LEADER_CHANGE
from minibroker.log.records import Record
from minibroker.stored.producers import AbortedTxn

NOW_MS = 1_600_000_100_000
RETENTION_MS = 60_000
KEYS = (b"", b"a", b"b", b"c", b"\0", b"k" * 47, b"k" * 48, b"k" * 48 + b"x", b"long" * 30)


class Told(Transactions):
    """Remembers what it said of each batch."""

    def __init__(self) -> None:
        super().__init__()
        self.verdicts: list[bool] = []

    def see(self, batch: Batch) -> bool:
        may_go = super().see(batch)
        self.verdicts.append(may_go)
        return may_go


class Case:
    """Batches that follow each other in a log, and all that decides what is kept of them."""

    def __init__(self, random: Random):
        self.random = random
        self.offset = random.choice([0, 7, 100_000, 1 << 33])  # of the next batch
        self.aborted: list[AbortedTxn] = []
        self.data = b"".join(self._some_batches() for _ in range(random.randint(1, 4)))
        self.keeps_old_tombstones = random.random() < 0.7
        self.batches = list(batches(self.data, strict=True))
        self.uncleanable_offset = random.choice([-1, random.choice(self.batches).next_offset])
        self.producers = {
            batch.producer_id: random.choice([(batch.last_offset, 0), (3, 0), (-1, batch.producer_epoch), (-1, 99)])
            for batch in self.batches
            if batch.producer_id >= 0
        }
        self.end_offset = random.choice([self.offset, self.offset + 5, random.choice(self.batches).last_offset])
        self.latest = self._latest()

    def filtered(self, *, upgrades: bool) -> tuple[list[Filtered], list[bool]]:
        """Return what our filter leaves of each batch, and which of them were told to go."""
        offsets = OffsetMap(1 << 20)
        for key, offset in self.latest.items():
            assert offsets.put(key, offset)
        offsets.cover(self.end_offset)
        transactions = Told()
        transactions.add_aborted(self.aborted)
        cleaner = BatchFilter(
            offsets,
            transactions,
            now_ms=NOW_MS,
            delete_retention_ms=RETENTION_MS,
            producers=self.producers,
            uncleanable_offset=self.uncleanable_offset,
            upgrades=upgrades,
        )
        cleaner.keeps_old_tombstones = self.keeps_old_tombstones
        return [finish(cleaner.filter(batch)) for batch in self.batches], transactions.verdicts

    # Making

    def _some_batches(self) -> bytes:
        random = self.random
        magic = random.choice([0, 1, 2, 2, 2, 2])
        codec = random.choice([NONE, NONE, NONE, GZIP, SNAPPY, LZ4, ZSTD if magic == 2 else NONE])
        count = random.choice([1, 1, 2, 3, 8, 20]) if random.random() < 0.9 else random.choice([129, 300])
        timestamp_type = random.choice([CREATE_TIME, CREATE_TIME, APPEND_TIME])
        max_timestamp = NOW_MS - random.randint(0, 9999) if timestamp_type == APPEND_TIME else None
        if magic < 2:
            records = self._records(count)
            self.offset = records[-1].offset + 1
            return build_batch(magic, records, codec=codec, timestamp_type=timestamp_type, max_timestamp=max_timestamp)
        return self._batch(count, codec, timestamp_type, max_timestamp)

    def _batch(self, count: int, codec: int, timestamp_type: int, max_timestamp: int | None) -> bytes:
        random = self.random
        base_offset = self.offset
        is_control = random.random() < 0.2
        is_transactional = is_control or random.random() < 0.3
        if random.random() < 0.1:
            records = []
            max_timestamp = NOW_MS - 5
        elif is_control:
            kind = random.choice([ABORT, COMMIT, COMMIT, LEADER_CHANGE])
            records = [Record(bytes((0, 0, 0, kind)), bytes(6), (), NOW_MS - 1, base_offset)]
        else:
            records = self._records(count)
        last_offset = max([base_offset, *(record.offset for record in records)]) + random.choice([0, 0, 0, 2, 90])
        self.offset = last_offset + 1
        producer_id = random.choice([1, 2]) if is_transactional else random.choice([-1, -1, 3])
        if is_transactional and random.random() < 0.5:
            first_offset = max(base_offset - random.choice([0, 30]), 0)
            self.aborted.append(
                AbortedTxn(
                    producer_id=producer_id,
                    first_offset=first_offset,
                    last_offset=last_offset,
                    last_stable_offset=last_offset,
                )
            )
        return build_batch(
            2,
            records,
            codec=codec if records else NONE,
            base_offset=base_offset,
            last_offset=last_offset,
            timestamp_type=timestamp_type,
            max_timestamp=max_timestamp,
            delete_horizon=random.choice([None, None, None, NOW_MS - 1, NOW_MS, NOW_MS + 1]) if records else None,
            partition_leader_epoch=random.choice([-1, 0, 7]),
            producer_id=producer_id,
            producer_epoch=-1 if producer_id < 0 else random.choice([0, 5]),
            base_sequence=-1 if producer_id < 0 or is_control else random.choice([0, 77, 0x7FFFFFFF]),
            transactional=is_transactional,
            control=is_control,
        )

    def _records(self, count: int) -> list[Record]:
        random = self.random
        time = NOW_MS - random.randint(0, 100_000)
        step = random.choice([(0, 0), (0, 3), (-50, 50), (-9000, 9000), (-5_000_000, 5_000_000)])
        value_bytes = random.choice([0, 5, 5, 70, 70, 9000 // count, 20_000 // count])
        gaps = random.choice([[0], [0], [0, 0, 1], [0, 70, 9000]])
        keyless, tombstones = random.choice([0, 0, 0.1, 1]), random.choice([0, 0.1, 0.5])
        records = []
        for _ in range(count):
            self.offset += random.choice(gaps)
            records.append(
                Record(
                    None if random.random() < keyless else random.choice(KEYS),
                    None
                    if random.random() < tombstones
                    else random.randbytes(4) * (random.randint(0, value_bytes) // 4),
                    (("trace", b"id"), ("", None)) if random.random() < 0.2 else (),
                    -1 if random.random() < 0.05 else time,
                    self.offset,
                )
            )
            self.offset += 1
            time += random.randint(*step)
        return records

    def _latest(self) -> dict[bytes, int]:
        random = self.random
        found: dict[bytes, int] = {}
        for batch in self.batches:
            if not batch.is_control:
                for record in batch.records():
                    if record.key is not None and record.offset < self.end_offset:
                        found[record.key] = record.offset
        for key in list(found):
            chance = random.random()
            if chance < 0.2:
                del found[key]
            elif chance < 0.4:
                found[key] = random.randrange(self.end_offset)
        return found

"""What a leader takes of producers beside a log of Kafka's own: batches and markers by chance, right and wrong ones.

tests/golden/ProducerSteps.java made the steps with Kafka's UnifiedLog. What is compared after each: whether it was
taken, where it went, the last stable offset, and all that is known of each producer.
"""

from __future__ import annotations

from typing import Any

from minibroker.errors import KafkaError
from minibroker.log.build import build_batch, build_transaction_marker
from minibroker.log.memory_storage import MemoryStorage
from minibroker.log.partition_log import PartitionLog
from minibroker.log.producers import Verification
from minibroker.log.records import Record
from minibroker.log.recovery import open_log
from minibroker.log.settings import LogSettings
from minibroker.log.validate import COORDINATOR
from tests.goldens import producer_steps

Step = dict[str, Any]


class Partition:
    """A log, and the high watermark that a step says."""

    log: PartitionLog
    guards: list[Verification]
    high_watermark: int

    def play(self, step: Step) -> object:
        """Return what comes of a step."""
        try:
            return getattr(self, step["op"])(step)
        except KafkaError as error:
            return error.code.name

    def walk(self, step: Step) -> None:
        settings = LogSettings(transaction_partition_verification_enable=step["verifies"])
        self.log = open_log(MemoryStorage(lambda: 2000), "t-0", settings, was_clean=True)
        self.guards, self.high_watermark = [], 0

    def append(self, data: bytes, **more: Any) -> list[int]:
        appended = self.log.append_as_leader(bytearray(data), leader_epoch=0, now_ms=2000, **more)
        return [appended.first_offset, appended.last_offset]

    def batch(self, step: Step) -> list[int]:
        producer_id, epoch = step["producer"]
        data = build_batch(
            2,
            [Record(b"k", b"v", (), 1000 + index) for index in range(step["count"])],
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=step["sequence"],
            transactional=step["txn"],
        )
        return self.append(data, verification=None if step["guard"] is None else self.guards[step["guard"]])

    def verify(self, step: Step) -> int | None:
        producer_id, epoch = step["producer"]
        found = self.log.producers.start_verification(
            producer_id, epoch, step["sequence"], now_ms=2000, supports_epoch_bump=step["bumps"]
        )
        if found is None:
            return None
        for index, guard in enumerate(self.guards):
            if guard is found:
                return index
        self.guards.append(found)
        return len(self.guards) - 1

    def marker(self, step: Step) -> list[int]:
        producer_id, epoch = step["producer"]
        data = build_transaction_marker(
            commit=step["commit"],
            offset=0,
            timestamp=5000,
            producer_id=producer_id,
            producer_epoch=epoch,
            coordinator_epoch=step["by"],
        )
        return self.append(data, origin=COORDINATOR, transaction_version=step["version"])

    def advance(self, step: Step) -> None:
        self.high_watermark = step["to"]
        self.log.on_high_watermark_updated(self.high_watermark)

    def delete(self, step: Step) -> None:
        self.log.advance_log_start(step["to"])

    def states(self) -> list[list[Any]]:
        found = []
        for producer_id, producer in sorted(self.log.producers.producers.items()):
            batches = [[batch.last_sequence, batch.last_offset, batch.offset_delta] for batch in producer.batches]
            first = producer.transaction_first_offset
            about = producer_id, producer.epoch, producer.coordinator_epoch, producer.last_timestamp
            found.append([*about, -1 if first is None else first, batches])
        return found


def check(partition: Partition, step: Step) -> None:
    assert partition.play(step) == step["result"]
    assert partition.log.log_end_offset == step["end"]
    # Kafka looks at where the log begins when it next looks at its transactions.
    stable = max(step["stable"], partition.log.log_start_offset)
    assert partition.log.last_stable_offset(partition.high_watermark) == stable
    assert partition.states() == step["after"]


def test_every_batch_and_marker_is_taken_as_kafka_takes_it() -> None:
    partition = Partition()
    for number, step in enumerate(producer_steps()):
        try:
            check(partition, step)
        except AssertionError as error:
            error.add_note(f"step {number}: {step}")
            raise

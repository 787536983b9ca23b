"""Kafka's own UnifiedLog takes, answers and refuses what ours does, of random batches, markers and verifications."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random

import pytest

from minibroker.errors import Error, KafkaError
from minibroker.log.aborted import aborted_between
from minibroker.log.build import build_batch, build_transaction_marker
from minibroker.log.memory_storage import MemoryStorage
from minibroker.log.partition_log import PartitionLog
from minibroker.log.producers import EPOCH_MAX, Verification
from minibroker.log.records import Record
from minibroker.log.recovery import open_log
from minibroker.log.settings import FOREVER, LogSettings, ValidationSettings
from minibroker.log.validate import CLIENT, COORDINATOR

from . import kafka

pytestmark = [pytest.mark.interop, pytest.mark.slow]

LOGS = 400
COMMANDS = 80  # for each log
EXPIRATION_MS = 1000
SEQUENCES = 2**31  # as many there are before they begin anew
PRODUCER_IDS = (7, 8, 9)
AGAIN = " again"  # what is appended has been before; Kafka's answer does not say so
EXPECTED = (
    *("append", f"append{AGAIN}", "high_watermark", "start", "truncate", "roll", "expire", "reopen", "verify"),
    f"append refused {int(Error.OUT_OF_ORDER_SEQUENCE_NUMBER)}",
    f"append refused {int(Error.INVALID_PRODUCER_EPOCH)}",
    f"append refused {int(Error.INVALID_TXN_STATE)}",
    f"append refused {int(Error.TRANSACTION_COORDINATOR_FENCED)}",
    f"verify refused {int(Error.INVALID_PRODUCER_EPOCH)}",
)


class Log:
    """Ours, and the commands that it was given, as PlayLog.java reads them."""

    def __init__(self, directory: Path, chance: Random):
        self.chance = chance
        # A log that is cut at its end is so once, loses nothing at its beginning, is not closed, and no producer of it
        # expires: when Kafka makes the state anew it forgets those of records below the beginning and those that have
        # expired since the snapshot, and it has other snapshots then.
        self.is_cut = chance.random() < 0.5
        self.storage = MemoryStorage(lambda: 0)
        self.now_ms = 1_000_000
        self.settings = LogSettings(
            producer_id_expiration_ms=EXPIRATION_MS,
            transaction_partition_verification_enable=chance.random() < 0.6,
            validation=ValidationSettings(timestamp_after_max_ms=FOREVER),
        )
        self.log = self.opened()
        self.high_watermark = 0
        self.verifications: list[Verification] = []
        # By producer id: the last verification, and the batches that were sent, as (epoch, sequence, count).
        self.last_verification: dict[int, int] = {}
        self.sent: dict[int, list[tuple[int, int, int]]] = {}
        verifies = str(self.settings.transaction_partition_verification_enable).lower()
        self.lines = [f"open {directory}/t-0 {self.now_ms} {verifies}"]
        self.answers = [self.answered("done")]

    def opened(self, start: int = 0) -> PartitionLog:
        return open_log(self.storage, "t-0", self.settings, was_clean=True, now_ms=self.now_ms, log_start_offset=start)

    def step(self) -> None:
        self.now_ms += self.chance.choice([0, 1, 1, 5, 5, 5 if self.is_cut else 300])
        names = ["append"] * 10 + ["marker"] * 4 + ["verify"] * 4 + ["high_watermark"] * 4
        name = self.chance.choice([*names, "roll", "expire", *(["truncate"] if self.is_cut else ["start", "reopen"])])
        self.lines.append("")
        try:
            outcome = getattr(self, f"_{name}")() or "done"
        except KafkaError as refused:
            outcome = f"refused {int(refused.code)}"
        self.answers.append(self.answered(outcome))

    def answered(self, outcome: str) -> str:
        log = self.log
        producers = " ".join(
            f"{producer_id}:{each.epoch}:{each.last_sequence}:{each.last_timestamp}:{each.coordinator_epoch}:"
            f"{-1 if each.transaction_first_offset is None else each.transaction_first_offset}"
            for producer_id, each in sorted(log.producers.producers.items())
        )
        aborted = aborted_between(log, log.log_start_offset, log.log_end_offset)
        offsets = f"{log.log_end_offset} {self.high_watermark} {log.last_stable_offset(self.high_watermark)}"
        entries = " ".join(f"{entry.producer_id}:{entry.first_offset}" for entry in aborted)
        return f"{outcome} | {offsets} | {producers} | {entries}"

    # Commands

    def epoch_of(self, producer_id: int) -> int:
        known = self.log.producers.producers.get(producer_id)
        epoch = known.epoch if known else self.chance.choice([0, 0, 0, EPOCH_MAX - 1])
        return max(min(epoch + self.chance.choice([0, 0, 0, 0, 0, 1, -1]), EPOCH_MAX), 0)

    def sequence_of(self, producer_id: int, epoch: int) -> tuple[int, int]:
        """Return a sequence number and how many records."""
        count, sent = self.chance.randint(1, 3), self.sent.setdefault(producer_id, [])
        known = self.log.producers.producers.get(producer_id)
        following = (known.last_sequence + 1) % SEQUENCES if known and known.epoch == epoch else 0
        kind = self.chance.choice(["next"] * 6 + ["again"] * 3 + ["zero", "near the end", "gap"])
        if kind == "again" and sent:
            return self.chance.choice(sent[-7:])[1:]
        return {"zero": 0, "near the end": SEQUENCES - 2, "gap": (following + 2) % SEQUENCES}.get(
            kind, following
        ), count

    def _append(self) -> str:
        producer_id = self.chance.choice(PRODUCER_IDS)
        epoch = self.epoch_of(producer_id)
        sequence, count = self.sequence_of(producer_id, epoch)
        data = build_batch(
            2,
            [Record(b"k", b"v", (), self.now_ms)] * count,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            transactional=self.chance.random() < 0.7,
        )
        self.sent[producer_id].append((epoch, sequence, count))
        verification = self.last_verification.get(producer_id)
        if self.verifications and self.chance.random() < 0.15:
            verification = self.chance.choice([None, self.chance.randrange(len(self.verifications))])
        return self.appended(data, CLIENT, verification, -1)

    def _marker(self) -> str:
        producer_id = self.chance.choice(PRODUCER_IDS)
        data = build_transaction_marker(
            offset=0,
            commit=self.chance.random() < 0.5,
            timestamp=self.now_ms,
            producer_id=producer_id,
            producer_epoch=self.epoch_of(producer_id),
            coordinator_epoch=self.chance.choice([1, 1, 1, 2, 0]),
        )
        return self.appended(data, COORDINATOR, None, self.chance.choice([0, 1, 2, 2, 2]))

    def appended(self, data: bytes, origin: str, verification: int | None, version: int) -> str:
        number = "-" if verification is None else verification
        self.lines[-1] = f"append {origin.upper()} {self.now_ms} {number} {version} {data.hex()}"
        done = self.log.append_as_leader(
            bytearray(data),
            leader_epoch=0,
            now_ms=self.now_ms,
            origin=origin,
            verification=None if verification is None else self.verifications[verification],
            transaction_version=version,
        )
        return f"appended {done.first_offset} {done.last_offset}{AGAIN if done.is_duplicate else ''}"

    def _verify(self) -> str:
        producer_id = self.chance.choice(PRODUCER_IDS)
        epoch = self.epoch_of(producer_id)
        sequence, _ = self.sequence_of(producer_id, epoch)
        is_v2 = self.chance.random() < 0.5
        self.lines[-1] = f"verify {self.now_ms} {producer_id} {epoch} {sequence} {str(is_v2).lower()}"
        made = self.log.producers.start_verification(
            producer_id, epoch, sequence, self.now_ms, supports_epoch_bump=is_v2
        )
        if made is None:
            return "verification -"
        if not any(made is each for each in self.verifications):
            self.verifications.append(made)
        number = next(number for number, each in enumerate(self.verifications) if each is made)
        self.last_verification[producer_id] = number
        return f"verification {number}"

    def _high_watermark(self) -> None:
        self.raise_to(self.chance.randint(self.high_watermark, self.log.log_end_offset))
        self.lines[-1] = f"high_watermark {self.high_watermark}"

    def raise_to(self, offset: int) -> None:
        """Set the high watermark as Replica does."""
        self.high_watermark = offset
        self.log.on_high_watermark_updated(offset)

    def boundary(self, start: int, end: int) -> int:
        """Return an offset at which a batch begins, if there is one."""
        begins = [batch.base_offset for segment in self.log.segments for batch in segment.batches(0)]
        return self.chance.choice([start, *(offset for offset in begins if start <= offset <= end)])

    def _start(self) -> None:
        offset = self.boundary(self.log.log_start_offset, min(self.high_watermark, self.log.log_end_offset - 1))
        self.lines[-1] = f"start {offset}"
        self.log.advance_log_start(offset)
        self.log.on_high_watermark_updated(offset)

    def _truncate(self) -> None:
        if self.log.cuts:
            return self._expire()
        offset = self.boundary(self.log.log_start_offset, self.log.log_end_offset)
        self.lines[-1] = f"truncate {self.now_ms} {offset}"
        self.log.truncate_to(offset)
        self.raise_to(min(self.high_watermark, self.log.log_end_offset))

    def _roll(self) -> None:
        if not self.log.active.size_bytes:
            return self._expire()  # Kafka has a roll of nothing, and fails at the next batch
        self.lines[-1] = "roll"
        self.log.roll(now_ms=self.now_ms)

    def _expire(self) -> None:
        self.lines[-1] = f"expire {self.now_ms}"
        self.log.producers.expire(self.now_ms, EXPIRATION_MS)

    def _reopen(self) -> None:
        self.lines[-1] = f"reopen {self.now_ms}"
        start = self.log.log_start_offset
        self.log.close()
        self.log = self.opened(start)
        self.raise_to(self.high_watermark)


def test_random_producers_are_judged_as_kafka_does(tmp_path: Path) -> None:
    logs = []
    for seed in range(LOGS):
        (tmp_path / str(seed) / "t-0").mkdir(parents=True)
        log = Log(tmp_path / str(seed), Random(seed))
        for _ in range(COMMANDS):
            log.step()
        logs.append(log)
    commands = "".join(f"{line}\n" for log in logs for line in log.lines)
    told = kafka.run(kafka.STORAGE, str(kafka.HERE / "PlayLog.java"), cwd=tmp_path, given=commands)
    assert told.returncode == 0, told.stderr
    theirs = iter(told.stdout.splitlines())
    seen: Counter[str] = Counter()
    for seed, log in enumerate(logs):
        for number, ours in enumerate(log.answers):
            assert ours.replace(AGAIN, "") == next(theirs), (seed, log.lines[: number + 1])
            kind = log.lines[number].split()[0]
            outcome = ours.split(" | ")[0]
            seen[kind + (f" {outcome}" if "refused" in outcome else AGAIN if AGAIN in outcome else "")] += 1
    for kind in EXPECTED:
        assert seen[kind] > LOGS / 10, (kind, seen)

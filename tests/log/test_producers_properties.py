"""Producer state against a model that keeps every batch in a list and looks through all of it for each answer."""

from __future__ import annotations

from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minibroker.errors import Error, KafkaError
from minibroker.log.batches import batches
from minibroker.log.build import build_batch, build_transaction_marker
from minibroker.log.producers import ProducerStates
from minibroker.log.records import Record
from minibroker.log.validate import CLIENT, COORDINATOR

SEQUENCES = 2**31  # as many there are before they begin anew
EXPIRATION_MS = 50


class Row(NamedTuple):
    """A batch or, with `aborts` set, a marker."""

    producer_id: int
    epoch: int
    first_sequence: int
    count: int
    is_transactional: bool
    timestamp: int
    first_offset: int
    aborts: bool | None = None
    coordinator_epoch: int = -1

    @property
    def last_offset(self) -> int:
        return self.first_offset + self.count - 1

    @property
    def last_sequence(self) -> int:
        return (self.first_sequence + self.count - 1) % SEQUENCES

    def encoded(self) -> bytes:
        if self.aborts is not None:
            return build_transaction_marker(
                commit=not self.aborts,
                offset=self.first_offset,
                timestamp=self.timestamp,
                producer_id=self.producer_id,
                producer_epoch=self.epoch,
                coordinator_epoch=self.coordinator_epoch,
            )
        return build_batch(
            2,
            [Record(b"k", b"v", (), self.timestamp)] * self.count,
            base_offset=self.first_offset,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=self.first_sequence,
            transactional=self.is_transactional,
        )


class Model:
    """Everything that was appended."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.high_watermark = 0

    @property
    def end_offset(self) -> int:
        return self.rows[-1].last_offset + 1 if self.rows else 0

    def of(self, producer_id: int) -> list[Row]:
        return [row for row in self.rows if row.producer_id == producer_id]

    def epoch(self, producer_id: int) -> int:
        return self.of(producer_id)[-1].epoch

    def last_batches(self, producer_id: int) -> list[Row]:
        """The last five of the current epoch; epochs only rise here, so none of it stands before another one."""
        epoch = self.epoch(producer_id)
        return [row for row in self.of(producer_id) if row.aborts is None and row.epoch == epoch][-5:]

    def transactions(self) -> list[tuple[int, int, Row | None]]:
        """Producer, first offset and marker of each transaction."""
        found = []
        for producer_id in {row.producer_id for row in self.rows}:
            first = None
            for row in self.of(producer_id):
                if row.aborts is not None:
                    if first is not None:
                        found.append((producer_id, first, row))
                    first = None
                elif row.is_transactional and first is None:
                    first = row.first_offset
            if first is not None:
                found.append((producer_id, first, None))
        return found

    def open_since(self, producer_id: int) -> int | None:
        return next((first for who, first, marker in self.transactions() if who == producer_id and not marker), None)

    def verdict(self, row: Row) -> Row | Error | None:
        """The earlier row it repeats, why it is refused, or None."""
        if not self.of(row.producer_id):
            return None
        last = self.last_batches(row.producer_id)
        epoch = self.epoch(row.producer_id)
        if row.aborts is not None:
            if row.epoch < epoch:
                return Error.INVALID_PRODUCER_EPOCH
            markers = [each.coordinator_epoch for each in self.of(row.producer_id) if each.aborts is not None]
            return Error.TRANSACTION_COORDINATOR_FENCED if markers and row.coordinator_epoch < markers[-1] else None
        for old in last:
            if (old.epoch, old.first_sequence, old.count) == (row.epoch, row.first_sequence, row.count):
                return old
        if row.epoch < epoch:
            return Error.INVALID_PRODUCER_EPOCH
        expected = (last[-1].last_sequence + 1) % SEQUENCES if last and row.epoch == epoch else 0
        if row.first_sequence != expected:
            return Error.OUT_OF_ORDER_SEQUENCE_NUMBER
        if self.open_since(row.producer_id) is not None and not row.is_transactional:
            return Error.INVALID_TXN_STATE
        return None

    def last_stable_offset(self) -> int:
        unstable = [
            first
            for _, first, marker in self.transactions()
            if marker is None or marker.last_offset >= self.high_watermark
        ]
        return min([*unstable, self.high_watermark])


def stored_verdict(states: ProducerStates, data: bytes, origin: str) -> tuple[int, int, int] | Error | None:
    try:
        stored = states.check(next(batches(data)), origin)
    except KafkaError as refused:
        return refused.code
    return stored and (stored.first_offset, stored.last_offset, stored.timestamp)


steps = st.fixed_dictionaries(
    {
        "producer_id": st.sampled_from([1, 2, 3]),
        "epoch_rise": st.sampled_from([0, 0, 0, 0, 1, -1]),
        # Mostly the next one; else one of the last again, or any.
        "sequence": st.sampled_from(["next", "next", "next", "next", "again", "zero", "near the end", "gap"]),
        "back": st.integers(1, 7),
        "count": st.integers(1, 3),
        "is_transactional": st.booleans(),
        "aborts": st.sampled_from([None, None, None, True, False]),
        "coordinator_epoch": st.sampled_from([1, 1, 1, 2, 0]),
        "replicated": st.integers(0, 6),
        "elapsed_ms": st.integers(0, 5),
    }
)


def row_of(model: Model, step: dict[str, object], now_ms: int) -> Row:
    """Return the batch that a step means for what stands in the log."""
    producer_id = int(str(step["producer_id"]))
    known = bool(model.of(producer_id))
    last = model.last_batches(producer_id) if known else []
    epoch = max((model.epoch(producer_id) if known else 0) + int(str(step["epoch_rise"])), 0)
    count = int(str(step["count"]))
    sequence = (last[-1].last_sequence + 1) % SEQUENCES if last else 0
    if known and epoch != model.epoch(producer_id):
        sequence = 0
    match step["sequence"]:
        case "again" if len(last) >= (back := int(str(step["back"]))):
            sequence, count = last[-back].first_sequence, last[-back].count
        case "zero":
            sequence = 0
        case "near the end":
            sequence = SEQUENCES - 2
        case "gap":
            sequence = (sequence + 2) % SEQUENCES
    row = Row(producer_id, epoch, sequence, count, bool(step["is_transactional"]), now_ms, model.end_offset)
    if step["aborts"] is None:
        return row
    return row._replace(
        first_sequence=-1,
        count=1,
        is_transactional=True,
        aborts=bool(step["aborts"]),
        coordinator_epoch=int(str(step["coordinator_epoch"])),
    )


@pytest.mark.slow
@settings(derandomize=True, max_examples=200, deadline=None)
@given(st.lists(steps, min_size=8, max_size=40))
def test_producers_agree_with_a_model_that_keeps_everything(script: list[dict[str, object]]) -> None:
    model, states = Model(), ProducerStates()
    now_ms = 1000
    for step in script:
        now_ms += int(str(step["elapsed_ms"]))
        row = row_of(model, step, now_ms)
        data = row.encoded()
        expected = model.verdict(row)
        found = stored_verdict(states, data, CLIENT if row.aborts is None else COORDINATOR)
        if isinstance(expected, Row):
            assert found == (expected.first_offset, expected.last_offset, expected.timestamp)
        else:
            assert found == expected
        if expected is None:
            began = model.open_since(row.producer_id)
            model.rows.append(row)
            entry = states.apply(next(batches(data)))
            still_open = [first for _, first, marker in model.transactions() if marker is None]
            assert (entry is not None) == (row.aborts is True and began is not None)
            if entry is not None:
                shown = (entry.producer_id, entry.first_offset, entry.last_offset, entry.last_stable_offset)
                assert shown == (row.producer_id, began, row.first_offset, min([*still_open, row.first_offset + 1]))
        model.high_watermark = min(model.high_watermark + int(str(step["replicated"])), model.end_offset)
        states.on_high_watermark_updated(model.high_watermark)
        assert states.last_stable_offset(model.high_watermark) == model.last_stable_offset()


@pytest.mark.slow
@settings(derandomize=True, max_examples=200, deadline=None)
@given(st.lists(steps, min_size=8, max_size=40), st.integers(0, 40), st.booleans())
def test_a_snapshot_and_a_replay_give_what_a_full_replay_gives(
    script: list[dict[str, object]], cut: int, expires: bool
) -> None:
    model, full = Model(), ProducerStates()
    snapshot, after_it = full.snapshot_bytes(), 0
    for number, step in enumerate(script):
        row = row_of(model, step, 1000 + 10 * number)
        if model.verdict(row) is None:
            model.rows.append(row)
            full.apply(next(batches(row.encoded())))
        if number == cut:
            if expires:
                full.expire(1000 + 10 * number, EXPIRATION_MS)
                open_now = {who for who, _, marker in model.transactions() if marker is None}
                recent = {
                    each.producer_id for each in model.rows if each.timestamp > 1000 + 10 * number - EXPIRATION_MS
                }
                assert set(full.producers) == open_now | recent
                # Who has been forgotten is new to the leader; the model knows no such thing.
                return
            snapshot, after_it = full.snapshot_bytes(), len(model.rows)
    replayed = ProducerStates()
    replayed.load_snapshot(snapshot)
    for row in model.rows[after_it:]:
        replayed.apply(next(batches(row.encoded())))
    assert replayed.snapshot_bytes() == full.snapshot_bytes()
    everything = ProducerStates()
    for row in model.rows:
        everything.apply(next(batches(row.encoded())))
    assert everything.snapshot_bytes() == full.snapshot_bytes()
    for states in (replayed, everything, full):
        states.on_high_watermark_updated(model.end_offset)
        model.high_watermark = model.end_offset
        assert states.last_stable_offset(model.end_offset) == model.last_stable_offset()

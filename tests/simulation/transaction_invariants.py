"""What must always hold of transactions, checked on the logs of a cluster while it runs.

The names are those of the project's invariants. Everything is computed anew from what is committed in the logs, batch
by batch, and compared with what brokers believe:

    T1  sequence numbers follow each other, of each producer and epoch in each partition
    T2  a lower producer epoch never stands behind a higher one
    T3  the last stable offset is where the oldest transaction without committed marker begins, or the high watermark,
        and a leader's never falls. As in Kafka, a replica counts markers that it has read a snapshot behind, and those
        that have once been committed on it, though its high watermark is lower now
    T5  all partitions of a transaction have the same outcome
    T6  a transaction has exactly one marker in each of its partitions, with the outcome that was decided and after all
        its data; a marker that no open transaction waits for repeats one that is there, or there was nothing to end
    T7  aborted transactions, as fetches are told of them, are those of the log; so are producers and their epochs
    T8  after a Prepare record comes its completion and nothing else, and not before every marker is committed
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable

from minibroker.cluster.cluster import Cluster
from minibroker.events import Event
from minibroker.groups import OFFSETS_TOPIC
from minibroker.log.aborted import aborted_between
from minibroker.log.batches import Batch
from minibroker.log.producers import read_marker
from minibroker.replication.replica import Replica
from minibroker.transactions import TRANSACTION_STATE_TOPIC
from minibroker.transactions.metadata import EPOCH_BUMP, TransactionMetadata
from minibroker.transactions.records import decode
from minibroker.transactions.states import (
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    EVENTS,
    EXPIRE,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    State,
)

from .invariants import Invariants, Key, Seen, Violation

COMMIT, ABORT = "commit", "abort"
PREPARED = {PREPARE_COMMIT: COMMIT, PREPARE_ABORT: ABORT}
COMPLETION = {PREPARE_COMMIT: COMPLETE_COMMIT, PREPARE_ABORT: COMPLETE_ABORT}
EDGES = {edge for event, edges in EVENTS.items() if event != EXPIRE for edge in edges.items()}


class OpenTransaction:
    """One that has begun in a partition."""

    def __init__(self, epoch: int, first_offset: int):
        self.epoch = epoch
        self.first_offset = first_offset
        self.transactions: set[int] = set()  # of clients, as the values of records say


class PartitionModel:
    """What the committed part of one log says of transactions."""

    def __init__(self, key: Key):
        self.key = key
        self.end = 0
        self.open: dict[int, OpenTransaction] = {}  # by producer id
        self.epochs: dict[int, int] = {}
        self.sequences: dict[int, int] = {}  # the next one
        self.ends: list[int] = [0]  # offsets at which batches end, and there
        self.stable: list[int] = [0]  # the last stable offset, if the high watermark were there
        self.aborted: set[tuple[int, int, int]] = set()  # producer id, first offset, offset of the marker
        self.last_outcome: dict[tuple[int, int], str] = {}  # by producer id and epoch of the last marker
        self.markers = self.repeated = 0

    def __str__(self) -> str:
        return f"{self.key[0]}-{self.key[1]}"

    def stable_at(self, high_watermark: int) -> int:
        """Return what the last stable offset has to be."""
        return min(self.stable[bisect_right(self.ends, high_watermark) - 1], high_watermark)

    def move(self, end: int) -> None:
        self.end = end
        self.ends.append(end)
        self.stable.append(min((each.first_offset for each in self.open.values()), default=end))


class TransactionInvariants(Invariants):
    """The checks of one cluster."""

    def __init__(self, cluster: Cluster, transaction_of: Callable[[int], int]):
        """transaction_of: says which transaction of a client a value belongs to."""
        self.models: dict[Key, PartitionModel] = {}
        self.ids: dict[str, TransactionMetadata] = {}  # as the committed records say
        self.outcomes: dict[int, tuple[str, str]] = {}  # of the transactions of clients, and where it was seen first
        self.decided: dict[tuple[int, int], list[tuple[str, TransactionMetadata]]] = {}  # by producer id and epoch
        self.committed = self.aborted = 0
        self._transaction_of = transaction_of
        # Up to where a replica has read its producers from the disk when it was opened, or cut off.
        self._read_ends: dict[tuple[Key, int], tuple[Replica, int]] = {}
        self._stable: dict[tuple[Key, int], tuple[object, int]] = {}  # role and last stable offset
        super().__init__(cluster)

    def model(self, key: Key) -> PartitionModel:
        if key not in self.models:
            self.models[key] = PartitionModel(key)
        return self.models[key]

    # Events

    def _hear(self, event: Event) -> None:
        super()._hear(event)
        if event.kind == "append" and event.origin == "coordinator" and event.topic == TRANSACTION_STATE_TOPIC:  # type: ignore[attr-defined]
            self._check_appended(event)

    def _check_log(self, key: Key, replica: Replica, event: Event) -> None:
        place = (key, replica.node_id)
        if event.kind == "truncate":
            self._read_ends[place] = (replica, event.to_offset)  # type: ignore[attr-defined]
        elif place not in self._read_ends or self._read_ends[place][0] is not replica:
            end = event.first_offset if event.kind == "append" else replica.log.log_end_offset  # type: ignore[attr-defined]
            self._read_ends[place] = (replica, end)
        super()._check_log(key, replica, event)
        if key[0] == TRANSACTION_STATE_TOPIC or event.kind not in ("high_watermark", "append"):
            return
        model, high_watermark = self.model(key), replica.high_watermark
        stable, read_end = replica.log.last_stable_offset(high_watermark), self._read_ends[place][1]
        self._read_ends[place] = (replica, max(read_end, high_watermark))
        role, before = self._stable.get(place, (None, 0))
        if replica.is_leader and role is replica.role and stable < before:
            raise Violation("T3", f"{model} on {replica.node_id}: LSO fell from {before} to {stable}")
        self._stable[place] = (replica.role, stable)
        lowest = model.stable_at(high_watermark)
        highest = lowest
        if read_end > high_watermark:
            highest = high_watermark if read_end > model.end else min(model.stable_at(read_end), high_watermark)
        if not lowest <= stable <= highest:
            expected = f"{lowest} to {highest}" if highest > lowest else f"{lowest}"
            raise Violation("T3", f"{model} on {replica.node_id}: LSO is {stable}, not {expected}, HW {high_watermark}")

    def _compare(self, key: Key, replica: Replica, seen: Seen, *, may_grow: bool) -> None:
        super()._compare(key, replica, seen, may_grow=may_grow)
        truth, model = self.truth.get(key), self.model(key)
        if truth and truth[-1][1] > model.end:
            with self.whole(replica):
                for batch in batches_between(replica, model.end, truth[-1][1]):
                    if key[0] == TRANSACTION_STATE_TOPIC:
                        self._take_states(batch)
                    else:
                        self._take(model, batch)
                    model.move(batch.last_offset + 1)

    # Data

    def _take(self, model: PartitionModel, batch: Batch) -> None:
        """Take a committed batch of a partition."""
        producer_id, epoch = batch.producer_id, batch.producer_epoch
        if producer_id < 0:
            return
        where = f"{model} at {batch.base_offset}: producer {producer_id} epoch {epoch}"
        known = model.epochs.get(producer_id, -1)
        if epoch < known:
            raise Violation("T2", f"{where}, behind epoch {known}")
        if epoch > known:
            model.epochs[producer_id] = epoch
            model.sequences.pop(producer_id, None)
        if batch.is_control:
            self._take_marker(model, batch, where)
            return
        if model.key[0] != OFFSETS_TOPIC:  # there a coordinator writes, and batches have no order of their own
            expected = model.sequences.get(producer_id, 0)
            if batch.base_sequence != expected:
                raise Violation("T1", f"{where}: sequence {batch.base_sequence} instead of {expected}")
            model.sequences[producer_id] = batch.last_sequence + 1
        if not batch.is_transactional:
            return
        transaction = model.open.get(producer_id)
        if transaction is None:
            transaction = model.open[producer_id] = OpenTransaction(epoch, batch.base_offset)
        if model.key[0] != OFFSETS_TOPIC:
            for record in batch.records():
                transaction.transactions.add(self._transaction_of(int(record.value or b"")))

    def _take_marker(self, model: PartitionModel, batch: Batch, where: str) -> None:
        marker = read_marker(batch)
        assert marker is not None
        outcome = ABORT if marker.is_abort else COMMIT
        model.markers += 1
        place = (batch.producer_id, batch.producer_epoch)
        decisions = self.decided.get(place, [])
        if not decisions or decisions[-1][0] != outcome or model.key not in decisions[-1][1].partitions:
            told = [(each, [*metadata.partitions]) for each, metadata in decisions[-1:]]
            raise Violation("T6", f"{where}: a marker of {outcome}, decided was {told}")
        transaction = model.open.pop(batch.producer_id, None)
        if transaction is None:
            model.repeated += 1
            if model.last_outcome.get(place, outcome) != outcome and decisions[-1][1].client_version >= EPOCH_BUMP:
                raise Violation("T6", f"{where}: {outcome}, and before {model.last_outcome[place]}")
        elif marker.is_abort:
            model.aborted.add((batch.producer_id, transaction.first_offset, batch.base_offset))
        model.last_outcome[place] = outcome
        for each in transaction.transactions if transaction is not None else ():
            before, other = self.outcomes.setdefault(each, (outcome, where))
            if before != outcome:
                raise Violation(
                    "T5", f"transaction {each} is one of {before} at {other}, and one of {outcome} at {where}"
                )

    # Decisions

    def _take_states(self, batch: Batch) -> None:
        """Take committed records of the coordinator."""
        for record in batch.records():
            decoded = decode(record.key, record.value)
            assert decoded is not None
            name, after = decoded
            before = self.ids.get(name)
            if after is None:
                del self.ids[name]
                continue
            self._check_step(name, before, after)
            self.ids[name] = after
            if after.state in PREPARED:
                self._decide(name, after)

    def _check_step(self, name: str, before: TransactionMetadata | None, after: TransactionMetadata) -> None:
        if before is None:
            return
        self.checks += 1
        step = f"{name}: {before.state} (producer {before.producer}) and then {after.state} ({after.producer})"
        if before.state in COMPLETION:
            if after.state is not COMPLETION[before.state]:
                raise Violation("T8", step)
        elif (before.state, after.state) not in EDGES:
            raise Violation("T8", step)
        if after.producer_id == before.producer_id and after.producer_epoch < before.producer_epoch:
            raise Violation("T2", step)

    def _decide(self, name: str, metadata: TransactionMetadata) -> None:
        outcome = PREPARED[metadata.state]
        decisions = self.decided.setdefault((metadata.producer_id, metadata.producer_epoch), [])
        if metadata.client_version >= EPOCH_BUMP and decisions:
            raise Violation("T8", f"{name}: {metadata.producer} has ended as {decisions} and as {outcome}")
        decisions.append((outcome, metadata))
        if outcome == COMMIT:
            self.committed += 1
        else:
            self.aborted += 1

    def _check_appended(self, event: Event) -> None:
        """A completion is written when every marker is committed (T8)."""
        replica = self.cluster.replica(event.topic, event.partition, event.broker)  # type: ignore[attr-defined]
        if replica is None or not replica.is_leader:
            return
        for batch in batches_between(replica, event.first_offset, event.last_offset + 1):  # type: ignore[attr-defined]
            for record in batch.records():
                decoded = decode(record.key, record.value)
                if decoded is None or decoded[1] is None or decoded[1].state not in COMPLETION.values():
                    continue
                self._check_complete(decoded[0], decoded[1].state, event.topic, event.partition)  # type: ignore[attr-defined]

    def _check_complete(self, name: str, state: State, topic: str, partition: int) -> None:
        prepared = self.ids.get(name)
        if prepared is None or COMPLETION.get(prepared.state) is not state:
            return  # a coordinator that has been deposed: its record never counts
        for place in prepared.partitions:
            model = self.model(place)
            transaction = model.open.get(prepared.producer_id)
            if transaction is not None or (prepared.producer_id, prepared.producer_epoch) not in model.last_outcome:
                raise Violation("T8", f"{name} is to be {state}, and {model} has no marker of {prepared.producer}")

    # The end

    def check_over(self) -> None:
        """Nothing is open, and what brokers know of producers and aborted transactions is what the logs say."""
        for name, metadata in self.ids.items():
            if metadata.state in PREPARED:
                raise Violation("R12", f"{name} is still {metadata.state}")
        for key, model in self.models.items():
            if model.open:
                raise Violation("T6", f"{model}: no marker has come for {sorted(model.open)}")
            if key[0] == TRANSACTION_STATE_TOPIC:
                continue
            for broker in self.cluster.partition(*key).replicas:
                replica = self.cluster.replica(*key, broker)
                assert replica is not None
                self._check_known(model, replica)

    def _check_known(self, model: PartitionModel, replica: Replica) -> None:
        log, where = replica.log, f"{model} on {replica.node_id}"
        entries = aborted_between(log, 0, log.log_end_offset)
        told = {(entry.producer_id, entry.first_offset, entry.last_offset) for entry in entries}
        if told != model.aborted or len(told) != len(entries):
            raise Violation("T7", f"{where}: aborted are {sorted(told ^ model.aborted)} in only one of log and index")
        known = {producer_id: producer.epoch for producer_id, producer in log.producers.producers.items()}
        if known != model.epochs:
            raise Violation("T7", f"{where}: epochs are {known}, and by the log {model.epochs}")


def batches_between(replica: Replica, start: int, end: int) -> list[Batch]:
    """Return the batches of a log between two offsets."""
    log, found = replica.log, []
    for index in range(log.segment_of(start), len(log.segments)):
        segment = log.segments[index]
        place = segment.find(start)
        for batch in segment.batches(0 if place is None else place.position):
            if batch.base_offset >= end:
                return found
            if batch.last_offset >= start:
                found.append(batch)
    return found

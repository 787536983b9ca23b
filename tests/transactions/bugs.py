"""Bugs of transactions that simulated runs must find (tests/planting.py says what a bug is).

tests/simulation/test_transaction_runs.py has their budgets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any
from unittest.mock import patch

from minibroker.broker.handlers import txn_markers
from minibroker.coordinator.log import CoordinatorLog, Write
from minibroker.errors import Error
from minibroker.groups.offsets import Offsets, Stored
from minibroker.groups.offsets_partition import OffsetsPartition
from minibroker.log.aborted import Aborted
from minibroker.log.index import FIRST, TransactionIndex
from minibroker.log.producers import ProducerStates
from minibroker.replication.replica import Replica
from minibroker.transactions.markers import EndedTransaction, MarkerSender
from minibroker.transactions.metadata import ProducerIdAndEpoch, TopicPartition, TransactionMetadata
from minibroker.transactions.partition import TransactionStatePartition
from minibroker.transactions.shard import TransactionShard, Transition
from minibroker.transactions.states import ONGOING, PREPARE_COMMIT
from minibroker.transactions.verification import TransactionVerifier

replay, end_transaction = TransactionShard.replay, TransactionShard.end_transaction
with_raised_epoch, prepared = TransactionMetadata.with_raised_epoch, TransactionMetadata.prepared
marker, send = EndedTransaction.marker, MarkerSender.send
append = CoordinatorLog._append
append_offset, end_offsets, take_record = Offsets.append, Offsets.end_transaction, OffsetsPartition.take_record
append_marker, lead = txn_markers._append, Replica.lead
verify = TransactionVerifier.verify


# What is decided


def forget_preparation(led: TransactionShard, name: str, metadata: TransactionMetadata | None) -> None:
    """A coordinator that takes over goes on where partitions were added."""
    if metadata is not None and metadata.state is PREPARE_COMMIT:
        metadata = metadata._replace(state=ONGOING)
    replay(led, name, metadata)


def confirm_at_once(log: CoordinatorLog, writes: list[Write]) -> None:
    """Tell producers, and let it count, before any other replica has the record."""
    append(log, writes)
    for write in writes if isinstance(log._owner, TransactionStatePartition) else ():
        log._in_flight.remove(write)
        log._answer(write, Error.NONE)
        log._owner.committed(write)


def end_whatever_is_open(led: TransactionShard, name: str, producer: ProducerIdAndEpoch, **named: Any) -> Any:
    """Take a request to end a transaction for one to end that which is open now."""
    found = led.ids.get(name)
    if found is not None and found.metadata.producer_id == producer.producer_id and found.metadata.state is ONGOING:
        producer = found.metadata.producer
    return end_transaction(led, name, producer, **named)


# Who is fenced


def raise_no_epoch(metadata: TransactionMetadata, *given: Any, **named: Any) -> TransactionMetadata:
    to = with_raised_epoch(metadata, *given, **named)
    return to._replace(producer_epoch=max(metadata.producer_epoch, 0))


def end_in_the_same_epoch(metadata: TransactionMetadata, **named: Any) -> TransactionMetadata:
    return prepared(metadata, **named)._replace(producer_epoch=metadata.producer_epoch)


async def verify_none(verifier: TransactionVerifier, *given: Any, **named: Any) -> dict[TopicPartition, Error]:
    """Ask the coordinator, and do not listen."""
    return dict.fromkeys(await verify(verifier, *given, **named), Error.NONE)


# Markers


def mark_one_partition(sender: MarkerSender, led: TransactionStatePartition, completion: Transition) -> None:
    partitions = tuple(completion.of.metadata.partitions)
    found = completion.of
    found.metadata = found.metadata._replace(partitions=dict.fromkeys(partitions[:1]))
    send(sender, led, completion)


def mark_as_committed(ended: EndedTransaction, places: Iterable[TopicPartition]) -> Any:
    made = marker(ended, places)
    made.transaction_result = True
    return made


def wait_for_no_replica(*given: Any) -> list[Any]:
    append_marker(*given)
    return []


def leave_out_groups(sender: MarkerSender, led: TransactionStatePartition, completion: Transition) -> None:
    """Write markers of data only."""
    found = completion.of
    places = {place: None for place in found.metadata.partitions if not place[0].startswith("__")}
    found.metadata = found.metadata._replace(partitions=places)
    send(sender, led, completion)


# Offsets of groups


def take_as_plain(led: OffsetsPartition, *given: Any) -> None:
    """Let every offset count that is read, whatever transaction it belongs to."""
    offsets = led.shard.offsets
    with patch.object(offsets, "append", lambda key, value, producer_id=-1: append_offset(offsets, key, value)):
        take_record(led, *given)


def show_pending(offsets: Offsets, key: Any, value: Any, producer_id: int = -1) -> Any:
    """Let an offset count as soon as it is written."""
    mark = append_offset(offsets, key, value, producer_id)
    if mark is None:
        offsets.committed.setdefault(key.group, {})[key.topic, key.partition] = Stored(value, 0)
    return mark


def commit_all_offsets(offsets: Offsets, producer_id: int, *, commit: bool) -> Any:
    return end_offsets(offsets, producer_id, commit=True)


# What readers are told


def lead_without_transactions(replica: Replica, *given: Any, **named: Any) -> Any:
    """Forget what is open when leading begins."""
    was_leader = replica.is_leader
    result = lead(replica, *given, **named)
    if not was_leader:
        replica.log.producers.open_transactions.clear()
    return result


def first_open_offset(producers: ProducerStates) -> int | None:
    return next(iter(producers.open_transactions), None)


def begun_between(pieces: Callable[..., Any]) -> Callable[..., Any]:
    """Tell of those only that begin in what was read."""
    return lambda self: ([row for row in rows if row[FIRST] >= self._start_offset] for rows in pieces(self))


def read_to_high_watermark(replica: Replica, isolation_level: int) -> int:
    return replica.high_watermark


BUGS: dict[str, list[tuple[object, str, object]]] = {
    "aborted-before-are-not-told": [(Aborted, "pieces", begun_between(Aborted.pieces))],
    "aborted-lost-in-truncation": [(TransactionIndex, "truncate_to", lambda index, offset: index.replace(b""))],
    "answered-before-decided": [(CoordinatorLog, "_append", confirm_at_once)],
    "complete-before-marked": [(txn_markers, "_append", wait_for_no_replica)],
    "end-applies-to-the-next": [(TransactionShard, "end_transaction", end_whatever_is_open)],
    "end-raises-no-epoch": [(TransactionMetadata, "prepared", end_in_the_same_epoch)],
    "every-marker-commits": [(EndedTransaction, "marker", mark_as_committed)],
    "fence-raises-no-epoch": [(TransactionMetadata, "with_raised_epoch", raise_no_epoch)],
    "lso-ignores-lost-markers": [(ProducerStates, "first_unstable_offset", property(first_open_offset))],
    "new-leader-forgets-open": [(Replica, "lead", lead_without_transactions)],
    "offsets-have-no-marker": [(MarkerSender, "send", leave_out_groups)],
    "offsets-of-aborted-count": [(Offsets, "end_transaction", commit_all_offsets)],
    "one-marker-is-enough": [(MarkerSender, "send", mark_one_partition)],
    "pending-offsets-are-plain-when-loaded": [(OffsetsPartition, "take_record", take_as_plain)],
    "pending-offsets-show": [(Offsets, "append", show_pending)],
    "preparation-is-forgotten": [(TransactionShard, "replay", forget_preparation)],
    "reads-to-high-watermark": [(Replica, "readable_end", read_to_high_watermark)],
    "verification-is-not-heeded": [(TransactionVerifier, "verify", verify_none)],
}

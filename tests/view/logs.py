"""Logs of all kinds for those who look into them: formats, codecs, transactions, gaps, damage."""

from __future__ import annotations

from collections.abc import Iterable

from minibroker.broker.broker import Node
from minibroker.log.build import build_batch, build_transaction_marker
from minibroker.log.records import Record
from minibroker.replication.replica import Replica

START_MS = 1_700_000_000_000


def records(start: int, *values: bytes | None, key: bytes | None = None) -> list[Record]:
    """Records that follow each other, a millisecond apart."""
    return [Record(key, value, (), START_MS + start + at, start + at) for at, value in enumerate(values)]


def plant(node: Node, topic: str, *data: bytes, partition: int = 0) -> Replica:
    """Append batches as they are, with the offsets that they have."""
    replica = node.replicas[topic, partition]
    for each in data:
        replica.log.append_as_follower(each, now_ms=START_MS)
    replica.advance(node.clock.steady_ms())
    return replica


def transaction(
    start: int, producer_id: int, values: Iterable[bytes], *, commit: bool | None, epoch: int = -1
) -> list[bytes]:
    """Return the batches of a transaction: its records, and its marker; None: it has not ended."""
    rows = records(start, *values)
    producer = {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": 0}
    found = [build_batch(2, rows, **producer, transactional=True, partition_leader_epoch=epoch)]
    if commit is not None:
        found.append(
            build_transaction_marker(
                commit=commit,
                offset=start + len(rows),
                timestamp=START_MS + start + len(rows),
                producer_id=producer_id,
                producer_epoch=0,
                coordinator_epoch=0,
            )
        )
    return found


def flip(node: Node, replica: Replica, position: int, segment: int = 0) -> None:
    """Change a byte of a segment behind the broker's back."""
    found = replica.log.segments[segment]
    file = found.storage.open(found.path)
    file.write_at(position, bytes([file.read_at(position, 1)[0] ^ 0xFF]))

"""Files with the state of the metadata log at an offset: `<end offset>-<epoch>.checkpoint`, and bootstrap.checkpoint.

    header                  control batch, one record: when the newest record was appended that the state contains
    [kraft.version, voters] control batch, only where voters stand in the log (KIP-853)
    records                 v2 batches, offsets from 1 on: as many as it takes
    footer                  control batch: without it the file was never finished

What must hold: a file of that name is whole, for it gets its name at the end. One that is not all the same, or whose
checksums are wrong, raises ProtocolError and is as good as absent.
"""

from __future__ import annotations

from minibroker.errors import InvalidRecord, ProtocolError
from minibroker.log.batches import batches
from minibroker.log.build import build_batch
from minibroker.log.checkpoints import read_file, write_file
from minibroker.log.formats import KRAFT_VERSION, KRAFT_VOTERS, SNAPSHOT_FOOTER, SNAPSHOT_HEADER
from minibroker.log.records import Record, control_type
from minibroker.metadata.records import read_record, write_record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from minibroker.log.storage import Storage
    from minibroker.metadata.records import UnknownRecord
    from minibroker.stored.kinds import MetadataRecord

SUFFIX = ".checkpoint"
BATCH_RECORDS_MAX = 1024
Control = tuple[bytes, bytes]  # key and value of a control record


class Snapshot:
    """What a file holds."""

    def __init__(self) -> None:
        self.timestamp = 0  # of the newest record that it covers
        self.records: list[MetadataRecord | UnknownRecord] = []
        self.voters: list[Control] = []  # kraft.version and voters


def snapshot_name(end_offset: int, epoch: int) -> str:
    return f"{end_offset:020}-{epoch:010}{SUFFIX}"


def find_snapshots(storage: Storage, directory: str) -> list[tuple[int, int]]:
    """Return end offset and epoch of each snapshot, the newest first."""
    found = []
    for name in storage.list(directory):
        end_offset, dash, epoch = name.removesuffix(SUFFIX).partition("-")
        if dash and len(end_offset) == 20 and (end_offset + epoch).isdigit() and name.endswith(SUFFIX):
            found.append((int(end_offset), int(epoch)))
    return sorted(found, reverse=True)


def read_snapshot(storage: Storage, path: str) -> Snapshot:
    """Read a file from header to footer."""
    return parse_snapshot(read_file(storage, path), path)


def parse_snapshot(data: bytes, path: str = "") -> Snapshot:
    """Read the bytes of a file from header to footer; what is wrong names the file."""
    try:
        return _parse(data, path)
    except ProtocolError as error:
        if path and not error.path.startswith(path):
            error.path = f"{path}: {error.path}"
        raise


def _parse(data: bytes, path: str) -> Snapshot:
    found, ended = Snapshot(), False
    started = False
    for record, is_control in _records(data):
        if ended:
            raise InvalidRecord("records behind the footer", 0, path)
        kind = control_type(record) if is_control else None
        if not started and kind != SNAPSHOT_HEADER:
            raise InvalidRecord("does not begin with a header", 0, path)
        started = True
        if kind == SNAPSHOT_HEADER:
            from minibroker.stored.control import SnapshotHeaderRecord

            found.timestamp = SnapshotHeaderRecord.decode(bytes(record.value or b""), 0).last_contained_log_timestamp
        elif kind == SNAPSHOT_FOOTER:
            ended = True
        elif kind in (KRAFT_VERSION, KRAFT_VOTERS):
            found.voters.append((bytes(record.key or b""), bytes(record.value or b"")))
        elif kind is None:
            found.records.append(read_record(bytes(record.value or b"")))
    if not ended:
        raise InvalidRecord("ends without a footer", 0, path)
    return found


def _records(data: bytes) -> Iterator[tuple[Record, bool]]:
    for batch in batches(data, strict=True):
        for record in batch.records(check_crc=True):
            yield record, batch.is_control


def read_newest(storage: Storage, directory: str) -> tuple[int, int, Snapshot] | None:
    """Return end offset, epoch and content of the newest snapshot that is whole. What a new log begins with, at
    offset 0, is none."""
    for end_offset, epoch in find_snapshots(storage, directory):
        if end_offset:
            try:
                return end_offset, epoch, read_snapshot(storage, f"{directory}/{snapshot_name(end_offset, epoch)}")
            except ProtocolError:
                continue
    return None


def write_snapshot(
    storage: Storage,
    path: str,
    records: Iterable[MetadataRecord],
    *,
    metadata_version: int,
    epoch: int = 0,
    timestamp: int = 0,
    voters: Sequence[Control] = (),
    now_ms: int,
) -> int:
    """Write the file; return how many records it has."""
    from minibroker.stored.control import SnapshotFooterRecord, SnapshotHeaderRecord

    header = SnapshotHeaderRecord(version=0, last_contained_log_timestamp=timestamp).encode(0)
    controls = [(control_key(SNAPSHOT_HEADER), header), *voters]
    parts = [control_batch(controls, offset=0, epoch=epoch, now_ms=now_ms)]
    offset = first = len(controls)
    rows: list[Record] = []
    for record in records:
        rows.append(Record(None, write_record(record, metadata_version), (), now_ms, offset))
        offset += 1
        if len(rows) == BATCH_RECORDS_MAX:
            parts.append(build_batch(2, rows, partition_leader_epoch=epoch))
            rows = []
    if rows:
        parts.append(build_batch(2, rows, partition_leader_epoch=epoch))
    footer = (control_key(SNAPSHOT_FOOTER), SnapshotFooterRecord(version=0).encode(0))
    parts.append(control_batch([footer], offset=offset, epoch=epoch, now_ms=now_ms))
    write_file(storage, path, b"".join(parts))
    return offset - first


def control_key(kind: int) -> bytes:
    """Return the key of a control record: version 0 and its kind."""
    return b"\0\0" + kind.to_bytes(2, "big")


def control_batch(controls: Sequence[Control], *, offset: int, epoch: int, now_ms: int) -> bytes:
    rows = [Record(key, value, (), now_ms, offset + index) for index, (key, value) in enumerate(controls)]
    return build_batch(2, rows, partition_leader_epoch=epoch, control=True)

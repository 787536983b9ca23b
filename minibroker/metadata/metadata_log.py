"""The metadata log as its only voter leads it: __cluster_metadata-0, a log like any other, and its snapshots.

    <segments>                       batches of metadata records; the first batch of each start says who leads
    <end offset>-<epoch>.checkpoint  the state up to an offset (snapshot.py)
    quorum-state                     the epoch, kept so that no two starts share one
    flushed-end-offset               up to where the log is on the disk (damage.py)

What must hold: an epoch has one leader, and a later start a later epoch; a record counts, and the image has it, once
`append` has returned; everything that has returned survives whatever the log survives.
Kafka's names for the settings: metadata.log.segment.bytes and its like; snapshots are due by records here, by bytes
and hours there. Segments that a snapshot covers stay.
"""

from __future__ import annotations

from contextlib import contextmanager

from minibroker.errors import InvalidRecord
from minibroker.in_pieces import PIECE_US, finish
from minibroker.log.checkpoints import (
    INT32_MAX,
    read_file,
    read_topic_id,
    write_file,
    write_topic_id,
)
from minibroker.log.formats import KRAFT_VERSION, KRAFT_VOTERS, LEADER_CHANGE
from minibroker.log.records import Record, control_type
from minibroker.log.recovery import open_log
from minibroker.log.settings import LogSettings, ValidationSettings
from minibroker.log.validate import RAFT_LEADER
from minibroker.metadata.bootstrap import FIRST_SNAPSHOT, METADATA_DIRECTORY, bootstrap_records
from minibroker.metadata.damage import (
    REPAIR_BEGUN,
    DamagedMetadata,
    FlushedEnd,
    begin_repair,
    check_log,
    cut_log,
    end_repair,
    read_repair,
)
from minibroker.metadata.image import MetadataImage
from minibroker.metadata.records import read_record, write_record
from minibroker.metadata.snapshot import (
    control_batch,
    control_key,
    find_snapshots,
    read_newest,
    read_snapshot,
    snapshot_name,
    write_snapshot,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from minibroker.in_pieces import InPieces
    from minibroker.log.partition_log import PartitionLog
    from minibroker.log.storage import Storage
    from minibroker.metadata.damage import Repair
    from minibroker.metadata.rescue import Rescue
    from minibroker.metadata.snapshot import Control
    from minibroker.stored.kinds import MetadataRecord

QUORUM_STATE = f"{METADATA_DIRECTORY}/quorum-state"
TOPIC_ID = bytes(15) + b"\1"  # the same in every cluster
BATCH_BYTES_MAX = 8 << 20
BATCH_RECORDS_MAX = 10_000
PIECE_RECORDS, PREPARED_US = 200, 3  # so many are encoded between two moments at which others may come in
SNAPSHOT_RECORDS = 10_000
SNAPSHOTS_KEPT = 2
SEGMENT_BYTES = 1 << 30


class Prepared(list["MetadataRecord"]):
    """Records, and the batches that they are written as in a metadata.version."""

    def __init__(self, records: Iterable[MetadataRecord]):
        super().__init__(records)
        self.metadata_version = -1
        self.batches: list[tuple[bytes, int]] = []  # and how many records are in each


class MetadataLog:
    """Load it, lead it, append to it; `image` is what it says."""

    def __init__(
        self,
        storage: Storage,
        *,
        node_id: int,
        fsync: bool = True,
        snapshot_records: int = SNAPSHOT_RECORDS,
        segment_bytes: int = SEGMENT_BYTES,
        settings: LogSettings | None = None,
    ):
        """fsync: each append is on the disk when it returns, as with Kafka. segment_bytes: a segment begins anew."""
        self.storage = storage
        self.node_id = node_id
        self.fsync = fsync
        self.snapshot_records = snapshot_records  # at least so many come between two snapshots
        self.settings = settings or LogSettings(
            segment_bytes=segment_bytes, validation=ValidationSettings(max_message_bytes=BATCH_BYTES_MAX)
        )
        self.image = MetadataImage()
        self.is_together = False  # changes that belong together are being made
        self.epoch = -1  # in which this node leads; -1: it does not yet
        self._log: PartitionLog | None = None
        self._flushed_end = FlushedEnd(storage)
        self._quorum_version = 0  # of quorum-state; 1: voters stand in the log
        self._quorum_epoch = 0
        self._voters: list[Control] = []
        self._since_snapshot = self._snapshot_size = 0
        self.rescue: Rescue | None = None  # what could be read behind damage that was given up
        self._rescued: list[MetadataRecord] = []

    @property
    def log(self) -> PartitionLog:
        assert self._log is not None, "load() comes first"
        return self._log

    @property
    def log_end_offset(self) -> int:
        return self.log.log_end_offset

    # Loading

    def load(
        self,
        *,
        now_ms: int,
        was_clean: bool = False,
        repairs: bool = False,
        is_missing: bool = False,
        say: Callable[[str], object] = lambda line: None,
    ) -> MetadataImage:
        """Read snapshot and log; return the state, which goes on changing with each append.

        was_clean: the directory was left in order, so nothing can be torn. repairs: what is damaged is given up;
        otherwise it raises DamagedMetadata, and everything is left as it was; `lead` and `end_repair` end it.
        is_missing: there should be a log. say: told what people should know.
        """
        repair = self._repair(was_clean=was_clean, repairs=repairs, is_missing=is_missing, say=say)
        self._read_quorum_state()
        log = open_log(
            self.storage, METADATA_DIRECTORY, self.settings, was_clean=was_clean, contiguous=True, now_ms=now_ms
        )
        self._log = log
        if not log.log_end_offset:
            self.storage.sync_directory("")  # or a loss of power would take the directory, and all that is synced in it
        if log.recovery.reason:
            say(f"{log.recovery.cut_bytes} bytes cut off after a crash: {log.recovery.reason}")
        if read_topic_id(self.storage, METADATA_DIRECTORY) is None:
            write_topic_id(self.storage, METADATA_DIRECTORY, TOPIC_ID)
        start_offset = self._load_snapshot(now_ms)
        for segment in log.segments[log.segment_of(start_offset) :]:
            for batch in segment.batches():
                if batch.last_offset >= start_offset:
                    self._take(batch.records(), batch.is_control, start_offset)
                    self.image.epoch = batch.partition_leader_epoch
        if repair is not None:
            from minibroker.metadata.rescue import Rescue

            self.rescue = Rescue(self.storage, repair)
            self._rescued = self.rescue.records(self.image, start_offset)
            if self._rescued:
                say(f"{len(self._rescued)} records behind the damage could be read, and count")
        return self.image

    def _repair(
        self, *, was_clean: bool, repairs: bool, is_missing: bool, say: Callable[[str], object]
    ) -> Repair | None:
        """Begin the repair of a log that is damaged, or once more one that was broken off."""
        repair = read_repair(self.storage)
        if repair is not None and not repairs:
            raise DamagedMetadata(REPAIR_BEGUN, 0, "a repair has begun and not ended")
        if repair is None:
            try:
                check_log(self.storage, was_clean=was_clean)
                if not (is_missing and repairs):
                    return None
                repair = begin_repair(self.storage, DamagedMetadata(METADATA_DIRECTORY, 0, "it is missing"))
            except DamagedMetadata as damage:
                if not repairs:
                    raise
                repair = begin_repair(self.storage, damage)
                where = f"{damage.path} is cut at byte {damage.position}"
                say(f"{where}: {damage.reason}; what was there is in {repair.kept}")
        cut_log(self.storage, repair)
        return repair

    def end_repair(self) -> None:
        """Whatever could be put back is in the log."""
        if self.rescue is not None:
            end_repair(self.storage)

    def _load_snapshot(self, now_ms: int) -> int:
        """Take over the newest snapshot; return where the log goes on from it."""
        log, newest = self.log, read_newest(self.storage, METADATA_DIRECTORY)
        if newest is None:
            self._load_first_voters()
            if log.log_start_offset:
                raise InvalidRecord(
                    f"the log begins at offset {log.log_start_offset}, and no snapshot holds what came before",
                    0,
                    METADATA_DIRECTORY,
                )
            return 0
        end_offset, epoch, snapshot = newest
        if end_offset < log.log_start_offset:
            raise InvalidRecord(
                f"the newest snapshot ends at {end_offset}, the log begins at {log.log_start_offset}",
                0,
                METADATA_DIRECTORY,
            )
        if end_offset > log.log_end_offset:
            # A snapshot only holds what was committed, so the log is the one that is behind: Kafka starts it anew too.
            log.truncate_fully_and_start_at(end_offset, now_ms=now_ms)
        for record in snapshot.records:
            self.image.apply(record)
        self._voters = snapshot.voters
        self._snapshot_size = len(snapshot.records)
        self.image.offset, self.image.epoch, self.image.timestamp = end_offset - 1, epoch, snapshot.timestamp
        return end_offset

    def _load_first_voters(self) -> None:
        """Note the voters that a directory was formatted with, if they stand in files at all (KIP-853)."""
        if self.storage.exists(FIRST_SNAPSHOT):
            self._voters = read_snapshot(self.storage, FIRST_SNAPSHOT).voters
            if self._voters:
                self._quorum_version = 1

    def _take(self, records: Iterable[Record], is_control: bool, start_offset: int = 0) -> None:
        for record in records:
            if record.offset < start_offset:
                continue
            value = bytes(record.value or b"")
            if not is_control:
                self.image.apply(read_record(value))
            elif (kind := control_type(record)) in (KRAFT_VERSION, KRAFT_VOTERS):
                key = bytes(record.key or b"")
                self._voters = [voter for voter in self._voters if voter[0] != control_key(kind)] + [(key, value)]
            self.image.offset, self.image.timestamp = record.offset, record.timestamp
            self._since_snapshot += 1

    # Leading

    def lead(self, *, now_ms: int, min_insync_replicas: int = 1) -> None:
        """Begin a new epoch with this node as leader, and put in order what the last leader left half done.

        A new log gets the records that the directory was formatted with. min_insync_replicas: its value for the
        cluster, which is written down where replicas may be eligible leaders (KIP-966).
        """
        from minibroker.stored.cluster import AbortTransactionRecord

        latest = self.log.epochs.latest
        self.epoch = max(self._quorum_epoch, self.image.epoch, latest.epoch if latest else 0) + 1
        self._write_quorum_state()
        change = (control_key(LEADER_CHANGE), self._leader_change())
        batch = control_batch([change], offset=self.log_end_offset, epoch=self.epoch, now_ms=now_ms)
        self._append(batch, now_ms)
        self.image.offset, self.image.epoch = self.log_end_offset - 1, self.epoch
        if self.image.in_transaction:
            self.append([AbortTransactionRecord(reason="the leader that began it has gone")], now_ms=now_ms)
        if not self.image.metadata_version:
            self._bootstrap(now_ms, min_insync_replicas)
        else:
            self._flush(now_ms)
        with self.together(lambda: now_ms):
            for record in self._rescued:  # one by one: what follows a feature's level is written in its way
                self.append([record], now_ms=now_ms)

    def _leader_change(self) -> bytes:
        from minibroker.stored.control import LeaderChangeMessage

        # Kafka up to 4.4 writes and reads this version only, also where voters have directory ids.
        me = LeaderChangeMessage.Voter(voter_id=self.node_id)
        return LeaderChangeMessage(version=0, leader_id=self.node_id, voters=[me], granting_voters=[me]).encode(0)

    def _bootstrap(self, now_ms: int, min_insync_replicas: int) -> None:
        from minibroker.metadata.features import ELR_VERSION, METADATA_VERSION, MIGRATION, MIGRATION_END
        from minibroker.stored.cluster import (
            BeginTransactionRecord,
            EndTransactionRecord,
            FeatureLevelRecord,
            ZkMigrationStateRecord,
        )
        from minibroker.stored.topics import ConfigRecord

        records = bootstrap_records(self.storage)
        features = {record.name: record.feature_level for record in records if isinstance(record, FeatureLevelRecord)}
        if MIGRATION <= features.get(METADATA_VERSION, 0) < MIGRATION_END:
            records.append(ZkMigrationStateRecord(zk_migration_state=0))  # born without ZooKeeper
        if ELR_VERSION in features:
            value = str(min_insync_replicas)
            records.append(ConfigRecord(resource_type=4, resource_name="", name="min.insync.replicas", value=value))
        begin = BeginTransactionRecord(name="Bootstrap records")
        self.append([begin, *records, EndTransactionRecord()], now_ms=now_ms)

    def append(self, records: Sequence[MetadataRecord], *, now_ms: int) -> int:
        """Write the records and let them take effect; return the offset of the first.

        Together they are one batch, so all of them or none, up to 10,000 records or 8 MiB.
        """
        assert self.epoch >= 0, "lead() comes first"
        first_offset = self.log_end_offset
        if isinstance(records, Prepared) and records.metadata_version == self.image.metadata_version:
            prepared = records
        else:
            prepared = finish(self.prepare(records, now_ms=now_ms))
        taken = 0
        for batch, count in prepared.batches:
            self._append(batch, now_ms)
            for record in prepared[taken : taken + count]:
                self.image.apply(record)
            taken += count
            self.image.offset, self.image.epoch, self.image.timestamp = self.log_end_offset - 1, self.epoch, now_ms
            self._since_snapshot += count
        if not self.is_together:
            self._flush(now_ms)
        if self._since_snapshot >= max(self.snapshot_records, self._snapshot_size) and not self.image.in_transaction:
            self.write_snapshot(now_ms=now_ms)
        return first_offset

    def prepare(self, records: Sequence[MetadataRecord], *, now_ms: int) -> InPieces[Prepared]:
        """Return many records with their batches, so that it takes little to append them; offsets come with that."""
        from minibroker.log.build import build_batch

        prepared = Prepared(records)
        prepared.metadata_version = version = self.image.metadata_version
        rows: list[Record] = []
        size_bytes = 0
        for index, record in enumerate(records, 1):
            value = write_record(record, version)
            if rows and (size_bytes + len(value) > BATCH_BYTES_MAX // 2 or len(rows) == BATCH_RECORDS_MAX):
                prepared.batches.append((build_batch(2, rows, partition_leader_epoch=self.epoch), len(rows)))
                rows, size_bytes = [], 0
            size_bytes += len(value)
            rows.append(Record(None, value, (), now_ms, len(rows)))
            if not index % PIECE_RECORDS:
                yield PIECE_RECORDS * PREPARED_US
        if rows:
            if len(rows) > PIECE_RECORDS:
                yield PIECE_US  # building takes a microsecond each, in one piece
            prepared.batches.append((build_batch(2, rows, partition_leader_epoch=self.epoch), len(rows)))
            if len(rows) > PIECE_RECORDS:
                yield len(rows)
        return prepared

    def _append(self, batch: bytes, now_ms: int) -> None:
        self.log.append_as_leader(bytearray(batch), leader_epoch=self.epoch, now_ms=now_ms, origin=RAFT_LEADER)

    def write_snapshot(self, *, now_ms: int) -> None:
        """Write down the state, so that the next start need not read the log from its beginning."""
        assert not self.image.in_transaction, "half a change is no state"
        self.log.flush(now_ms=now_ms)  # a snapshot must not know more than the log does after a crash
        end_offset, epoch = self.image.offset + 1, self.image.epoch
        self._snapshot_size = write_snapshot(
            self.storage,
            f"{METADATA_DIRECTORY}/{snapshot_name(end_offset, epoch)}",
            self.image.records(),
            metadata_version=self.image.metadata_version,
            epoch=epoch,
            timestamp=self.image.timestamp,
            voters=self._voters,
            now_ms=now_ms,
        )
        self._since_snapshot = 0
        for old in find_snapshots(self.storage, METADATA_DIRECTORY)[SNAPSHOTS_KEPT:]:
            if old[0]:  # what the log began with stays
                self.storage.remove(f"{METADATA_DIRECTORY}/{snapshot_name(*old)}")

    @contextmanager
    def together(self, now_ms: Callable[[], int]) -> Iterator[None]:
        """Let changes reach the disk together, when all of them are made; nobody may be told of one before."""
        assert not self.is_together
        self.is_together = True
        try:
            yield
        finally:
            self.is_together = False
            self._flush(now_ms())

    def _flush(self, now_ms: int) -> None:
        """Return when all of it is on the disk, and note that."""
        if self.fsync:
            self.log.flush(now_ms=now_ms)
            self._flushed_end.note(self.log_end_offset)

    def close(self) -> None:
        """Flush and close the log."""
        self._flushed_end.close()
        self.log.close()

    def release(self) -> None:
        """Close the files, whatever is in them."""
        self._flushed_end.close()
        if self._log is not None:
            self._log.release()

    # quorum-state

    def _read_quorum_state(self) -> None:
        data = read_file(self.storage, QUORUM_STATE)
        if not data:
            return
        import json

        try:
            found = json.loads(data)
            epoch, version = found["leaderEpoch"], found["data_version"]
            if not (type(epoch) is int and -1 <= epoch <= INT32_MAX and version in (0, 1)):
                raise ValueError
        except (ValueError, KeyError, TypeError, RecursionError):
            # Made again below from the log, which knows every epoch that counted.
            return
        self._quorum_epoch, self._quorum_version = epoch, version

    def _write_quorum_state(self) -> None:
        if self._quorum_version:
            text = (
                f'{{"leaderId":{self.node_id},"leaderEpoch":{self.epoch},"votedId":-1,'
                '"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA","data_version":1}'
            )
        else:
            text = (
                f'{{"clusterId":"","leaderId":{self.node_id},"leaderEpoch":{self.epoch},"votedId":-1,'
                f'"appliedOffset":0,"currentVoters":[{{"voterId":{self.node_id}}}],"data_version":0}}'
            )
        write_file(self.storage, QUORUM_STATE, text.encode())

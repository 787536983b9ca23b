"""The metadata log as brokers fetch it from the controller: batches from an offset on, or a snapshot first.

A fetch that finds nothing new waits for the next change. Where the log begins later than a broker wants to read, as
Kafka leaves it once a snapshot covers its beginning, the answer names the snapshot, and the broker fetches that.
"""

from __future__ import annotations

from minibroker.errors import Error, KafkaError
from minibroker.log.checkpoints import read_file
from minibroker.log.reading import read
from minibroker.metadata.bootstrap import METADATA_DIRECTORY
from minibroker.metadata.snapshot import find_snapshots, snapshot_name
from minibroker.protocol.messages.fetch import FetchResponse
from minibroker.protocol.messages.fetch_snapshot import FetchSnapshotResponse

TYPE_CHECKING = False
if TYPE_CHECKING:
    from minibroker.metadata.metadata_log import MetadataLog
    from minibroker.protocol.messages.fetch import FetchRequest
    from minibroker.protocol.messages.fetch_snapshot import FetchSnapshotRequest

FETCH_BYTES_MAX = 1 << 20
Topic = FetchResponse.FetchableTopicResponse
Answer = Topic.PartitionData
SnapshotTopic = FetchSnapshotResponse.TopicSnapshot
Piece = SnapshotTopic.PartitionSnapshot


def fetch(metadata_log: MetadataLog, request: FetchRequest) -> FetchResponse | None:
    """Return what there is of the log from an offset on, None if there is nothing yet."""
    asked = request.topics[0].partitions[0]
    log = metadata_log.log
    end_offset = log.log_end_offset
    answer = Answer(partition_index=0, error_code=Error.NONE, high_watermark=end_offset, records=None)
    snapshots = find_snapshots(metadata_log.storage, METADATA_DIRECTORY) if asked.fetch_offset == 0 else []
    try:
        if log.log_start_offset > 0 and asked.fetch_offset < log.log_start_offset and snapshots:
            answer.snapshot_id = Answer.SnapshotId(end_offset=snapshots[0][0], epoch=snapshots[0][1])
        else:
            found = read(log, asked.fetch_offset, FETCH_BYTES_MAX, limit_offset=end_offset)
            if found is None:
                return None
            answer.records = found.view()
    except KafkaError as error:
        answer.error_code = error.code
    return FetchResponse(responses=[Topic(topic_id=request.topics[0].topic_id, partitions=[answer])])


def fetch_snapshot(metadata_log: MetadataLog, request: FetchSnapshotRequest) -> FetchSnapshotResponse:
    """Return a piece of a snapshot's file."""
    asked = request.topics[0].partitions[0]
    wanted = asked.snapshot_id
    data = read_file(metadata_log.storage, f"{METADATA_DIRECTORY}/{snapshot_name(wanted.end_offset, wanted.epoch)}")
    error = Error.SNAPSHOT_NOT_FOUND if not data else Error.NONE
    if data and not 0 <= asked.position < len(data):
        error = Error.POSITION_OUT_OF_RANGE
    piece = Piece(
        index=0,
        error_code=error,
        snapshot_id=Piece.SnapshotId(end_offset=wanted.end_offset, epoch=wanted.epoch),
        size=len(data),
        position=asked.position,
        unaligned_records=b"" if error else data[asked.position : asked.position + FETCH_BYTES_MAX],
    )
    topics = [SnapshotTopic(name=request.topics[0].name, partitions=[piece])]
    return FetchSnapshotResponse(throttle_time_ms=0, error_code=Error.NONE, topics=topics)

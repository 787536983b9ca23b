"""Records of a replica, read where it is."""

from __future__ import annotations

from minibroker.embedded.engine import Record
from minibroker.log.batches import batches
from minibroker.log.reading import read

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from minibroker.replication.replica import Replica

READ_BYTES = 1024 * 1024


def records_of(replica: Replica) -> Iterator[Record]:
    """Yield what a consumer would get of a partition, from its beginning."""
    offset = replica.log.log_start_offset
    while found := read(replica.log, offset, READ_BYTES, limit_offset=replica.high_watermark):
        begun = offset
        for batch in batches(found.view()):
            if not batch.is_control:
                for record in batch.records():
                    if record.offset >= begun:
                        yield Record(
                            replica.partition, record.offset, record.key, record.value, record.headers, record.timestamp
                        )
            offset = batch.last_offset + 1
        if offset == begun:  # the rest is a piece of a batch
            return

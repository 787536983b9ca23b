"""Delivery state of share groups (KIP-932): records of __share_group_state.

A share-partition is one partition as one share group sees it. Its leader sends changes to the share coordinator
(WriteShareGroupState), which appends a small update or, now and then, a snapshot of everything; a new leader asks
for the state, and a new coordinator reads the last snapshot and the updates behind it. Older records are deleted.
"""

from __future__ import annotations

from minibroker.schema.message import Struct
from minibroker.schema.types import Array, Int8, Int16, Int32, Int64, String, Uuid, since
from minibroker.stored.kinds import CoordinatorKey, CoordinatorValue


class ShareSnapshotKey(CoordinatorKey, type=0, versions="0"):
    """Names a share-partition: its whole state. Without a value the state is deleted."""

    group_id: String
    topic_id: Uuid
    partition: Int32


class ShareSnapshotValue(CoordinatorValue, type=0, versions="0", flexible="0+"):
    """The whole state of a share-partition at one moment."""

    snapshot_epoch: Int32  # one larger at each snapshot
    state_epoch: Int32  # given when the state is set up; a writer with a smaller one is refused
    leader_epoch: Int32  # of the partition leader that wrote the state; a writer with a smaller one is refused
    start_offset: Int64  # everything below is done with; -1: not begun yet
    # records from start_offset on that are done with, to compute the lag; -1: not known (KIP-1226)
    delivery_complete_count: Int32 = since("0+", default=-1, tag=0)
    create_timestamp: Int64  # when the state was set up, ms since 1970
    write_timestamp: Int64  # when this snapshot was written, ms since 1970
    # ranges from start_offset on in ascending order; offsets in none of them are available
    state_batches: Array[StateBatch]

    class StateBatch(Struct):
        first_offset: Int64
        last_offset: Int64  # inclusive
        delivery_state: Int8  # 0: available, 2: acknowledged, 4: archived; what is being processed counts as available
        delivery_count: Int16  # how often the records have been handed out; at the group's limit they are archived


class ShareUpdateKey(CoordinatorKey, type=1, versions="0"):
    """Names a share-partition: a change of its state."""

    group_id: String
    topic_id: Uuid
    partition: Int32


class ShareUpdateValue(CoordinatorValue, type=1, versions="0", flexible="0+"):
    """What has changed in a share-partition since the snapshot or update before."""

    snapshot_epoch: Int32  # of the snapshot that it builds on
    leader_epoch: Int32  # of the partition leader that wrote the state; a writer with a smaller one is refused
    start_offset: Int64  # everything below is done with; -1: no change
    # records from start_offset on that are done with, to compute the lag; -1: not known (KIP-1226)
    delivery_complete_count: Int32 = since("0+", default=-1, tag=0)
    state_batches: Array[StateBatch]  # ranges whose state has changed; they overlay what was known

    class StateBatch(Struct):
        first_offset: Int64
        last_offset: Int64  # inclusive
        delivery_state: Int8  # 0: available, 2: acknowledged, 4: archived; what is being processed counts as available
        delivery_count: Int16  # how often the records have been handed out; at the group's limit they are archived

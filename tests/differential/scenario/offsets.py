"""Offsets by time and by epoch, and records deleted from the front."""

from __future__ import annotations

from minibroker.protocol.messages.delete_records import DeleteRecordsRequest
from minibroker.protocol.messages.fetch import FetchRequest
from minibroker.protocol.messages.list_offsets import ListOffsetsRequest
from minibroker.protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from tests.differential.play import Play
from tests.differential.scenario.build import NOW_MS, fetch, fetch_topic

Topic = ListOffsetsRequest.ListOffsetsTopic
Partition = Topic.ListOffsetsPartition
EpochTopic = OffsetForLeaderEpochRequest.OffsetForLeaderTopic
EpochPartition = EpochTopic.OffsetForLeaderPartition
TrimTopic = DeleteRecordsRequest.DeleteRecordsTopic
TrimPartition = TrimTopic.DeleteRecordsPartition

SPECIAL = (-1, -2, -3, -4, -5, -6, -7, -100)
BY_TIME = (0, NOW_MS - 1, NOW_MS, NOW_MS + 1, NOW_MS + 4500, NOW_MS + 7000, NOW_MS + 53_000, NOW_MS + 10 * 86_400_000)


def list_offsets(play: Play) -> None:
    """Look up every special time and some real ones, in topics of every kind."""
    for version in play.versions(ListOffsetsRequest):

        def request(*topics: Topic, isolation: int = 0, replica: int = -1) -> ListOffsetsRequest:
            return ListOffsetsRequest(
                replica_id=replica, isolation_level=isolation, topics=list(topics), timeout_ms=1000
            )

        def topic(name: str, *times: int, partition: int = 0, epoch: int = -1, most: int = 10) -> Topic:
            return Topic(name=name, partitions=[
                Partition(partition_index=partition, timestamp=time, current_leader_epoch=epoch, max_num_offsets=most)
                for time in times
            ])  # fmt: skip

        for name in ("plain", "times", "empty", "formats", "to-gzip", "compacted", "bad-batches"):
            for at in SPECIAL:
                play.ask(f"time {at} in {name}", request(topic(name, at)), version)
            for at in BY_TIME:
                if version == 0:
                    continue  # it would look at the times of files
                play.ask(f"time now{at - NOW_MS:+} in {name}", request(topic(name, at)), version)
        for step, asked in [
            ("latest, committed only", request(topic("plain", -1), isolation=1)),
            ("latest for a tool", request(topic("plain", -1), replica=-2)),
            ("latest for a follower", request(topic("plain", -1), replica=7)),
            ("several topics", request(topic("two", -1, partition=1), topic("plain", -2))),
            ("a partition twice", request(topic("plain", -1, -2))),
            ("unknown topic", request(topic("no-such-topic", -1))),
            ("unknown partition", request(topic("two", -1, partition=9))),
            ("partition -1", request(topic("two", -1, partition=-1))),
            ("the epoch", request(topic("plain", -1, epoch=0))),
            ("an epoch to come", request(topic("plain", -1, epoch=9))),
            ("no offsets", request(topic("plain", -1, most=0))),
            ("one offset", request(topic("plain", -1, most=1))),
            ("nothing", request()),
            ("greatest time of an append time topic", request(topic("append-time", -2))),
        ]:
            play.ask(f"offsets: {step}", asked, version)


def ask_for_epochs(play: Play) -> None:
    """Ask where epochs end."""
    for version in play.versions(OffsetForLeaderEpochRequest):
        for step, name, partition, current, epoch in [
            ("the first", "plain", 0, -1, 0),
            ("one to come", "plain", 0, -1, 50),
            ("-1", "plain", 0, -1, -1),
            ("-2", "plain", 0, -1, -2),
            ("the first of an empty log", "empty", 0, -1, 0),
            ("by the right leader", "plain", 0, 0, 0),
            ("by a leader to come", "plain", 0, 9, 0),
            ("of an unknown topic", "no-such-topic", 0, -1, 0),
            ("of an unknown partition", "two", 9, -1, 0),
        ]:
            asked = EpochPartition(partition=partition, current_leader_epoch=current, leader_epoch=epoch)
            for replica in (-1, -2):
                request = OffsetForLeaderEpochRequest(
                    replica_id=replica, topics=[EpochTopic(topic=name, partitions=[asked])]
                )
                play.ask(f"epoch: {step}, as {replica}", request, version)
        several = [
            EpochTopic(topic=name, partitions=[EpochPartition(partition=0, leader_epoch=epoch) for epoch in (0, 3)])
            for name in ("two", "plain")
        ]
        play.ask("epoch: several", OffsetForLeaderEpochRequest(replica_id=-2, topics=several), version)
        play.ask("epoch: nothing", OffsetForLeaderEpochRequest(replica_id=-2, topics=[]), version)


def delete_records(play: Play) -> None:
    """Move the start of logs, then look from before, at and behind it."""

    def trim(*rows: tuple[str, int, int]) -> DeleteRecordsRequest:
        return DeleteRecordsRequest(timeout_ms=5000, topics=[
            TrimTopic(name=name, partitions=[TrimPartition(partition_index=partition, offset=offset)])
            for name, partition, offset in rows
        ])  # fmt: skip

    for version in play.versions(DeleteRecordsRequest):
        for step, rows in [
            ("some", [("trimmed", 0, 4 + version * 3)]),
            ("the same", [("trimmed", 0, 4 + version * 3)]),
            ("fewer", [("trimmed", 0, 1)]),
            ("past the end", [("trimmed", 0, 100_000)]),
            ("-2", [("trimmed", 0, -2)]),
            ("of an unknown topic", [("no-such-topic", 0, 1)]),
            ("of an unknown partition", [("trimmed", 7, 1)]),
            ("of a compacted topic", [("compacted", 0, 1)]),
            ("of an empty topic", [("empty", 0, -1)]),
            ("of several", [("plain", 0, 1), ("no-such-topic", 0, 1), ("two", 0, 1)]),
            ("of none", []),
        ]:
            play.ask(f"delete records: {step}", trim(*rows), version)
        _look(play, 4 + version * 3)
    play.ask("delete records: all", trim(("trimmed", 0, -1)))
    _look(play, 0)


def _look(play: Play, start: int) -> None:
    version = play.newest(FetchRequest)
    for offset in (start - 1, start, start + 1):
        one = fetch(fetch_topic("trimmed", (0, offset), ids=play.ids))
        play.ask(f"fetch at {offset} after a trim to {start}", one, version)
    for at in (-2, -1, -3, -4, NOW_MS):
        partition = Partition(partition_index=0, timestamp=at)
        topic = Topic(name="trimmed", partitions=[partition])
        request = ListOffsetsRequest(replica_id=-1, topics=[topic], timeout_ms=1000)
        play.ask(f"time {at if at < 0 else 'of the first'} after a trim to {start}", request)
    asked = EpochPartition(partition=0, leader_epoch=0)
    epochs = OffsetForLeaderEpochRequest(replica_id=-2, topics=[EpochTopic(topic="trimmed", partitions=[asked])])
    play.ask(f"epoch after a trim to {start}", epochs)

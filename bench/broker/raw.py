"""A client of one socket that sends bytes made beforehand, so that what is measured is the broker and not the client.

What must hold: a frame is encoded once, answers are counted by their lengths and not decoded, and one system call may
send and receive many. Whoever measures asks the broker afterwards whether everything arrived.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Sequence
from struct import Struct as Layout
from typing import Any, NamedTuple

from minibroker.protocol import message
from minibroker.protocol.framing import decode_response, encode_request

# Versions that every broker here serves and that name topics by name; the newest such.
VERSIONS = {
    "ApiVersionsRequest": 0,
    "CreateTopicsRequest": 4,
    "DeleteTopicsRequest": 3,
    "FetchRequest": 11,
    "FindCoordinatorRequest": 3,
    "HeartbeatRequest": 3,
    "JoinGroupRequest": 3,
    "ListOffsetsRequest": 5,
    "MetadataRequest": 8,
    "OffsetCommitRequest": 7,
    "OffsetFetchRequest": 5,
    "ProduceRequest": 7,
    "SyncGroupRequest": 2,
}
LENGTH = Layout(">i")
API_AND_VERSION = Layout(">hh")
TIMEOUT_SECONDS = 30.0
BUFFER_BYTES = 4 << 20
POLL_SECONDS = 0.002
EARLIEST, LATEST = -2, -1  # instead of a timestamp
TOPIC_EXISTS = 36


class Run(NamedTuple):
    """What came of sending for a while."""

    requests: int
    seconds: float
    received_bytes: int


class Raw:
    """One connection, to the first of the addresses."""

    def __init__(self, addresses: str):
        host, _, port = addresses.split(",")[0].rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=TIMEOUT_SECONDS)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._view = memoryview(bytearray(BUFFER_BYTES))

    def close(self) -> None:
        self._socket.close()

    def __enter__(self) -> Raw:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def ask(self, name: str, **fields: Any) -> Any:
        """Send a request and return its answer."""
        return self.send(encoded(name, **fields))

    def send(self, frame: bytes) -> Any:
        """Send a frame and return its answer."""
        self._socket.sendall(frame)
        api, version = API_AND_VERSION.unpack_from(frame, LENGTH.size)
        return decode_response(bytes(self._frame()), api, version)[1]

    def round_trips(self, frame: bytes, count: int) -> list[float]:
        """Send a request, wait for its answer, again and again; return how long each took, in seconds."""
        took = []
        for _ in range(count):
            start = time.perf_counter()
            self._socket.sendall(frame)
            self._frame()
            took.append(time.perf_counter() - start)
        return took

    def send_all(self, frames: Sequence[bytes], count: int, in_flight: int) -> None:
        """Send the frames in turn, so many in all; that many at once, and then wait for all of their answers."""
        for first in range(0, count, in_flight):
            turn = [frames[number % len(frames)] for number in range(first, min(first + in_flight, count))]
            self._socket.sendall(b"".join(turn))
            for _ in turn:
                self._frame()

    def pipeline(self, frames: Sequence[bytes], in_flight: int, seconds: float) -> Run:
        """Keep that many requests under way for a while: the frames in turn, each answer makes room for one more."""
        count = len(frames)
        row = list(frames) * (2 + in_flight // count)  # so that no slice of it goes over the end
        turn = sent = begun = done = received_bytes = 0
        kept = 0  # bytes at the front of the buffer that are the beginning of a length
        following = 0  # where the next length begins, from the front of the buffer; may be far behind its end
        start = time.perf_counter()
        end = start + seconds
        while True:
            if time.perf_counter() < end:
                free = in_flight - (sent - done)
                self._socket.sendall(b"".join(row[turn : turn + free]))
                sent += free
                turn = (turn + free) % count
            elif sent == done:
                return Run(done, time.perf_counter() - start, received_bytes)
            received = self._socket.recv_into(self._view[kept:])
            if not received:
                raise ConnectionError("closed by the broker")
            received_bytes += received
            filled = kept + received
            while following + LENGTH.size <= filled:
                following += LENGTH.size + LENGTH.unpack_from(self._view, following)[0]
                begun += 1
            done = begun - (following > filled)
            kept = max(filled - following, 0)
            self._view[:kept] = bytes(self._view[filled - kept : filled])
            following = max(following - filled, 0)

    def _frame(self) -> memoryview:
        self._fill(0, LENGTH.size)
        size: int = LENGTH.unpack_from(self._view)[0]
        self._fill(0, size)
        return self._view[:size]

    def _fill(self, start: int, end: int) -> None:
        while start < end:
            size = self._socket.recv_into(self._view[start:end])
            if not size:
                raise ConnectionError("closed by the broker")
            start += size


def encoded(name: str, **fields: Any) -> bytes:
    """Return a request as a frame, with its length."""
    request: Any = message(name)(**fields)
    return b"".join(encode_request(request, VERSIONS[name], 0, client_id="bench"))


def produce_frame(topic: str, batch: bytes) -> bytes:
    """Ask for one batch to be appended to partition 0, with acks=all."""
    data: Any = message("ProduceRequest").TopicProduceData  # type: ignore[attr-defined]
    partition = data.PartitionProduceData(index=0, records=batch)
    return encoded(
        "ProduceRequest", acks=-1, timeout_ms=30_000, topic_data=[data(name=topic, partition_data=[partition])]
    )


def fetch_frame(topic: str, offset: int, bytes_max: int) -> bytes:
    """Ask for what is at an offset of partition 0."""
    data: Any = message("FetchRequest").FetchTopic  # type: ignore[attr-defined]
    partition = data.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=bytes_max)
    topics = [data(topic=topic, partitions=[partition])]
    return encoded("FetchRequest", max_wait_ms=500, min_bytes=1, max_bytes=bytes_max, topics=topics)


def commit_frame(topic: str, group: str, offset: int) -> bytes:
    """Ask for an offset of partition 0 to be committed for a group that nobody is in."""
    asked: Any = message("OffsetCommitRequest").OffsetCommitRequestTopic  # type: ignore[attr-defined]
    partition = asked.OffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata="")
    return encoded("OffsetCommitRequest", group_id=group, topics=[asked(name=topic, partitions=[partition])])


def wait_for_coordinator(raw: Raw, topic: str, group: str) -> None:
    """Wait until this broker takes the offsets of a group: for the first one a topic has to be made."""
    frame = commit_frame(topic, group, 0)
    Topics.retry(group, lambda: raw.ask("FindCoordinatorRequest", key=group, key_type=0).error_code)
    Topics.retry(group, lambda: raw.send(frame).topics[0].partitions[0].error_code)


def committed(raw: Raw, topic: str, group: str) -> int:
    """Return the offset of partition 0 that a group has committed."""
    asked: Any = message("OffsetFetchRequest").OffsetFetchRequestTopic  # type: ignore[attr-defined]
    answer = raw.ask("OffsetFetchRequest", group_id=group, topics=[asked(name=topic, partition_indexes=[0])])
    offset: int = answer.topics[0].partitions[0].committed_offset
    return offset


class Topics:
    """What a load needs of a broker besides the load: topics, and where their records begin and end."""

    def __init__(self, raw: Raw):
        self._raw = raw
        supported = {each.api_key for each in raw.ask("ApiVersionsRequest").api_keys}
        self.may_create = message("CreateTopicsRequest").api in supported  # type: ignore[attr-defined]

    def create(self, name: str, partitions: int, replicas: int = 1, brokers: int = 1) -> None:
        """Make a topic, where the broker knows how, and wait until each of its partitions has a leader.

        Of a cluster the brokers 1, 2, ... lead in turn, so the first one has partition 0.
        """
        if self.may_create:
            request: Any = message("CreateTopicsRequest")
            topic = request.CreatableTopic(
                name=name, num_partitions=partitions, replication_factor=1, assignments=[], configs=[]
            )
            if brokers > 1:
                topic.num_partitions = topic.replication_factor = -1
                topic.assignments = [
                    request.CreatableTopic.CreatableReplicaAssignment(
                        partition_index=each, broker_ids=[(each + turn) % brokers + 1 for turn in range(replicas)]
                    )
                    for each in range(partitions)
                ]
            self.retry(
                f"topic {name}", lambda: self._raw.ask("CreateTopicsRequest", topics=[topic]).topics[0].error_code
            )
        self.wait(name, partitions)

    def wait(self, name: str, partitions: int) -> None:
        """Wait until this broker knows a leader for each partition."""
        asked = message("MetadataRequest").MetadataRequestTopic(name=name)  # type: ignore[attr-defined]

        def leaderless() -> int:
            found = self._raw.ask("MetadataRequest", topics=[asked], allow_auto_topic_creation=False).topics[0]
            errors = [found.error_code, *(each.error_code for each in found.partitions)]
            if not any(errors) and len(found.partitions) != partitions:
                raise RuntimeError(f"topic {name} has {len(found.partitions)} partitions instead of {partitions}")
            return next(filter(None, errors), 0)

        self.retry(f"topic {name}", leaderless)

    def delete(self, name: str) -> None:
        if self.may_create:
            self._raw.ask("DeleteTopicsRequest", topic_names=[name], timeout_ms=30_000)

    def ends(self, name: str, partitions: int) -> list[tuple[int, int]]:
        """Return the first offset of each partition and the one after the last."""
        return list(zip(self._offsets(name, partitions, EARLIEST), self._offsets(name, partitions, LATEST)))

    def _offsets(self, name: str, partitions: int, timestamp: int) -> list[int]:
        data: Any = message("ListOffsetsRequest").ListOffsetsTopic  # type: ignore[attr-defined]
        asked = [data.ListOffsetsPartition(partition_index=each, timestamp=timestamp) for each in range(partitions)]
        answer = self._raw.ask("ListOffsetsRequest", replica_id=-1, topics=[data(name=name, partitions=asked)])
        found = sorted(answer.topics[0].partitions, key=lambda each: each.partition_index)
        if any(each.error_code for each in found):
            raise RuntimeError(f"offsets of {name}: errors {[each.error_code for each in found]}")
        return [each.offset for each in found]

    @staticmethod
    def retry(what: str, attempt: Callable[[], int]) -> None:
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while (error := attempt()) not in (0, TOPIC_EXISTS):
            if time.monotonic() > deadline:
                raise RuntimeError(f"{what}: error {error}")
            time.sleep(POLL_SECONDS)

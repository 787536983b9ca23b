"""A cluster as a client sees it: who there is, who leads what, and a connection to each.

What is known of topics is kept and asked for anew when a broker says that it is out of date. `retrying` is the one
place that has patience: it repeats what failed for a passing reason, a bounded number of times, with pauses that grow.
What it repeats asks once, by `ask_metadata` and `by_leader`: patience within patience would be multiplied.
What must hold: a connection has one opener, however many ask for it; `close` leaves no socket and no task.
Brokers answer a connection in order, so whoever waits long at a broker asks for a connection of its own (`lane`).
Not here: what calls mean (producer.py, consumer.py, admin.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from minibroker.client.connection import (
    CALL_TIMEOUT_MS,
    AsyncCloseable,
    CallTimeout,
    Connection,
    ConnectionLost,
    error_of,
)
from minibroker.errors import Error, KafkaError, error_name
from minibroker.protocol.framing import FRAME_BYTES_MAX
from minibroker.protocol.headers import Request
from minibroker.protocol.messages.metadata import MetadataRequest, MetadataResponse
from minibroker.schema.types import NO_ID

TYPE_CHECKING = False
if TYPE_CHECKING:
    from minibroker.client.security import Security
    from minibroker.clock import Clock

T = TypeVar("T")
Address = tuple[str, int]
TopicPartition = tuple[str, int]

NO_NODE = -1
RETRY_PAUSE_MS_MAX = 1_000


class Node(NamedTuple):
    """A broker, at the address that it wants to be reached by."""

    id: int
    host: str
    port: int
    rack: str | None


class Partition(NamedTuple):
    """A partition, as the last metadata had it."""

    id: int
    leader_id: int  # -1: none
    leader_epoch: int  # -1: the broker is too old to tell
    replica_ids: tuple[int, ...]  # the first is the preferred leader
    in_sync_ids: tuple[int, ...]
    offline_ids: tuple[int, ...]
    error: int


class Topic(NamedTuple):
    """A topic, as the last metadata had it."""

    name: str
    id: bytes  # 16 zeros: the broker is too old to tell
    is_internal: bool
    partitions: dict[int, Partition]  # by id, rising
    error: int


class Cluster(AsyncCloseable):
    """An async context manager; `bootstrap` is "host:port,host:port" or a list of such, or of pairs."""

    def __init__(
        self,
        bootstrap: str | Sequence[str | Address],
        *,
        client_id: str | None = "minibroker",
        clock: Clock | None = None,
        timeout_ms: int = CALL_TIMEOUT_MS,
        retry_count: int = 10,
        retry_pause_ms: int = 20,
        frame_bytes_max: int = FRAME_BYTES_MAX,
        ask_versions: bool = True,
        max_versions: Mapping[str, int] | None = None,
        security: Security | None = None,
    ):
        if clock is None:
            from minibroker.clock import LoopClock

            clock = LoopClock()
        self.clock = clock
        self.timeout_ms = timeout_ms  # of one call
        self.retry_count = retry_count
        self.retry_pause_ms = retry_pause_ms  # before the first repetition; doubled for each further one
        self.cluster_id: str | None = None
        self.controller_id = NO_NODE
        self.nodes: dict[int, Node] = {}
        self.topics: dict[str, Topic] = {}
        self._bootstrap = _addresses(bootstrap)
        self._client_id = client_id
        self._frame_bytes_max = frame_bytes_max
        self._ask_versions = ask_versions
        self._max_versions = max_versions
        self._security = security  # of every connection; None: neither TLS nor SASL
        # By lane and address. A task while it is being opened: everybody awaits the same one.
        self._connections: dict[tuple[object, Address], asyncio.Task[Connection]] = {}
        self._finding: dict[tuple[str, bool], asyncio.Task[Topic]] = {}  # topics that are being asked for
        self._closed = False

    async def close(self) -> None:
        """Close every connection; calls under way get a ConnectionLost."""
        self._closed = True
        finding = list(self._finding.values())
        for task in finding:
            task.cancel()
        await asyncio.gather(*finding, return_exceptions=True)
        await self._close_those(list(self._connections))

    # Calls

    async def call(
        self,
        request: Request,
        node_id: int | None = None,
        *,
        version: int | None = None,
        lane: object = None,
        timeout_ms: int | None = None,
    ) -> Any:
        """Ask one broker, any if none is named, once. A broker that does not answer in time loses its connection."""
        connection = await self.connection(node_id, lane)
        try:
            return await connection.call(request, version, timeout_ms=timeout_ms or self.timeout_ms)
        except CallTimeout:
            await connection.close()  # the next answer would have to wait for this one
            raise

    async def retrying(self, attempt: Callable[[], Awaitable[T]], topics: Iterable[str] = ()) -> T:
        """Await what `attempt` makes; after a passing failure pause and do so again, forgetting what is known of
        `topics`, a bounded number of times."""
        pause_ms = self.retry_pause_ms
        for left in range(self.retry_count, -1, -1):
            try:
                return await attempt()
            except KafkaError as error:
                if not error.code.retriable or not left or self._closed:
                    raise
            self.forget(*topics)
            await self.clock.sleep(pause_ms)
            pause_ms = min(pause_ms * 2, RETRY_PAUSE_MS_MAX)
        raise AssertionError("the last attempt returns or raises")

    # Metadata

    async def metadata(self, topics: Iterable[str] | None = None, *, create: bool = False) -> dict[str, Topic]:
        """Ask what there is now, of all topics if none are named; a topic with an error is among the answer.

        create: let the broker create topics that do not exist; below version 4 it always may.
        """
        names = None if topics is None else list(topics)
        return await self.retrying(lambda: self.ask_metadata(names, create=create))

    async def ask_metadata(self, topics: list[str] | None = None, *, create: bool = False) -> dict[str, Topic]:
        """Ask as `metadata` does, but once: for what `retrying` repeats."""
        connection = await self.connection()
        version = connection.version_of(MetadataRequest)
        Row = MetadataRequest.MetadataRequestTopic
        rows = None if topics is None else [Row(name=name) for name in topics]
        if version == 0 and rows is None:
            rows = []
        request = MetadataRequest(topics=rows, allow_auto_topic_creation=create or version < 4)
        try:
            answer: MetadataResponse = await connection.call(request, version, timeout_ms=self.timeout_ms)
        except CallTimeout:
            await connection.close()
            raise
        if answer.error_code:
            raise error_of(answer.error_code, f"metadata from {connection.address}: {error_name(answer.error_code)}")
        self._learn_nodes(answer)
        found = {topic.name: topic for topic in map(_topic, answer.topics)}
        for name, topic in found.items():
            if topic.error:
                self.topics.pop(name, None)
            else:
                self.topics[name] = topic
        if topics is None:
            self.topics = {name: topic for name, topic in self.topics.items() if name in found}
            return found
        missing = Error.UNKNOWN_TOPIC_OR_PARTITION
        return {name: found.get(name) or Topic(name, NO_ID, False, {}, missing) for name in topics}

    async def topic(self, name: str, *, create: bool = False) -> Topic:
        """Return what is known of a topic, asking first if nothing is; wait for it if it is being created."""
        found = self.topics.get(name)
        if found is not None:
            return found
        key = (name, create)
        task = self._finding.get(key)
        if task is None:
            work = self.retrying(lambda: self._find_topic(name, create))
            task = self._finding[key] = asyncio.get_running_loop().create_task(work)
            task.add_done_callback(_look_at_failure)
            task.add_done_callback(lambda _: self._finding.pop(key, None))
        return await asyncio.shield(task)  # one of several who wait may be cancelled

    async def leader_of(self, topic: str, partition: int, *, create: bool = False) -> Partition:
        """Return a partition that has a leader, asking first if nothing is known, or raise."""
        return await self.retrying(lambda: self._find_leader(topic, partition, create), [topic])

    async def by_leader(self, partitions: Iterable[TopicPartition]) -> dict[int, list[TopicPartition]]:
        """Sort partitions by the brokers that lead them, asking once where nothing is known, or raise.

        For what `retrying` repeats, which is to forget their topics.
        """
        found: dict[int, list[TopicPartition]] = {}
        for topic, partition in partitions:
            leader = (await self._find_leader(topic, partition)).leader_id
            found.setdefault(leader, []).append((topic, partition))
        return found

    def forget(self, *topics: str) -> None:
        """Ask anew before these topics are used again."""
        for topic in topics:
            self.topics.pop(topic, None)

    # Connections

    async def connection(self, node_id: int | None = None, lane: object = None) -> Connection:
        """Return the connection to a broker, to any one if none is named. Each `lane` has its own."""
        if node_id is not None:
            if node_id not in self.nodes:
                await self.ask_metadata([])
            node = self.nodes.get(node_id)
            if node is None:
                raise KafkaError(Error.LEADER_NOT_AVAILABLE, f"broker {node_id} is not in the cluster")
            return await self._connect(lane, (node.host, node.port))
        addresses = [*((node.host, node.port) for node in self.nodes.values()), *self._bootstrap]
        for address in addresses:
            if self._usable(self._connections.get((lane, address))):
                return await self._connect(lane, address)
        failures = []
        for address in dict.fromkeys(addresses):
            try:
                return await self._connect(lane, address)
            except (ConnectionLost, CallTimeout) as failure:
                failures.append(failure.message)
        raise ConnectionLost("; ".join(failures))

    async def close_lane(self, lane: object) -> None:
        """Close the connections of one lane."""
        await self._close_those([key for key in self._connections if key[0] is lane])

    async def _connect(self, lane: object, address: Address) -> Connection:
        if self._closed:
            raise ConnectionLost("the cluster was closed by this side")
        key = (lane, address)
        task = self._connections.get(key)
        if not self._usable(task):
            task = self._connections[key] = asyncio.get_running_loop().create_task(self._open(*address))
            task.add_done_callback(_look_at_failure)
        assert task is not None
        return await asyncio.shield(task)  # one of several who wait may be cancelled

    async def _open(self, host: str, port: int) -> Connection:
        return await Connection.open(
            host,
            port,
            client_id=self._client_id,
            clock=self.clock,
            timeout_ms=self.timeout_ms,
            frame_bytes_max=self._frame_bytes_max,
            ask_versions=self._ask_versions,
            max_versions=self._max_versions,
            security=self._security,
        )

    @staticmethod
    def _usable(task: asyncio.Task[Connection] | None) -> bool:
        if task is None:
            return False
        return not task.done() or (not task.cancelled() and not task.exception() and not task.result().closed)

    async def _close_those(self, keys: Iterable[tuple[object, Address]]) -> None:
        tasks = [self._connections.pop(key) for key in keys]
        for task in tasks:
            task.cancel()
        for opened in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(opened, Connection):
                await opened.close()

    # Asking

    async def _find_topic(self, name: str, create: bool) -> Topic:
        topic = (await self.ask_metadata([name], create=create))[name]
        if topic.error:
            raise error_of(topic.error, name)
        return topic

    async def _find_leader(self, topic: str, partition: int, create: bool = False) -> Partition:
        known = self.topics.get(topic) or await self._find_topic(topic, create)
        found = known.partitions.get(partition)
        if found is None:
            reason = f"{topic}-{partition}: the topic has {len(known.partitions)} partitions"
            raise KafkaError(Error.UNKNOWN_TOPIC_OR_PARTITION, reason)
        if found.leader_id == NO_NODE:
            raise KafkaError(Error.LEADER_NOT_AVAILABLE, f"{topic}-{partition}")
        return found

    def _learn_nodes(self, answer: MetadataResponse) -> None:
        # A broker that has just started may not know any; what we knew is then better than nothing.
        if answer.brokers:
            self.nodes = {row.node_id: Node(row.node_id, row.host, row.port, row.rack) for row in answer.brokers}
        self.cluster_id = answer.cluster_id
        self.controller_id = answer.controller_id


def _topic(row: MetadataResponse.MetadataResponseTopic) -> Topic:
    partitions = {
        partition.partition_index: Partition(
            partition.partition_index,
            partition.leader_id,
            partition.leader_epoch,
            tuple(partition.replica_nodes),
            tuple(partition.isr_nodes),
            tuple(partition.offline_replicas),
            partition.error_code,
        )
        for partition in sorted(row.partitions, key=lambda partition: partition.partition_index)
    }
    return Topic(row.name or "", row.topic_id, row.is_internal, partitions, row.error_code)


def _addresses(bootstrap: str | Sequence[str | Address]) -> list[Address]:
    found: list[Address] = []
    for item in bootstrap.split(",") if isinstance(bootstrap, str) else bootstrap:
        if isinstance(item, str):
            host, _, port = item.strip().rpartition(":")
            if not host or not port.isdigit():
                raise ValueError(f"{item!r} is not host:port")
            found.append((host.strip("[]"), int(port)))
        else:
            found.append(item)
    if not found:
        raise ValueError("no bootstrap server is given")
    return found


def _look_at_failure(task: asyncio.Task[Any]) -> None:
    if not task.cancelled():
        task.exception()  # everybody who waited has had it; asyncio need not report it once more

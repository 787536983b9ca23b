"""A broker in the loop that runs: it is asked directly, without a socket in between."""

from __future__ import annotations

import asyncio
import logging
import os
from random import SystemRandom

from minibroker.broker.broker import Node
from minibroker.clock import LoopClock
from minibroker.clock.steered import SteeredClock
from minibroker.config import BrokerConfig
from minibroker.config.listeners import address
from minibroker.config.sources import setting_texts
from minibroker.embedded.arguments import steered
from minibroker.embedded.engine import ANSWER_MS, START_FAILURES, TIMEOUT_S, BrokerError, Engine, Refused, too_few
from minibroker.embedded.reading import records_of
from minibroker.errors import Error, KafkaError
from minibroker.log.memory_storage import MemoryStorage
from minibroker.log.storage import OsStorage
from minibroker.reporter import Reporter

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from minibroker.clock import Clock
    from minibroker.embedded.engine import Record, Start
    from minibroker.log.storage import Storage
    from minibroker.replication.replica import Replica


class LogReporter(Reporter):
    """Lines for people go into the program's log, where pytest shows them with the test that failed."""

    def say(self, line: str) -> None:
        logging.getLogger("minibroker").warning(line)


def new_storage(data_dir: str | None, clock: Clock) -> Storage:
    """Return where a broker keeps its logs: a directory, or memory."""
    return MemoryStorage(clock.now_ms) if data_dir is None else OsStorage(os.path.abspath(data_dir))


async def ask(node: Node, method: str, path: str, body: Mapping[str, Any] | None) -> Any:
    """Return what HTTP would answer; FaultError or Refused say why not."""
    from minibroker.broker import http_verbs

    try:
        return await http_verbs.call(node, method, path, body)
    except http_verbs.Refused as refusal:
        raise Refused(str(refusal), int(refusal.status.partition(" ")[0])) from None


class InProcess(Engine):
    """A Node of this process."""

    def __init__(self, start: Start, storage: Storage, clock: Clock):
        self._storage = storage
        self._topics = start.topics
        self._clock = clock
        self._patience = LoopClock()  # of who waits: the broker's clock may stand
        self._node = Node(
            BrokerConfig(start.settings),
            storage,
            clock=clock,
            chance=SystemRandom(),
            log_dir=os.path.abspath(start.data_dir) if start.data_dir else "memory",
            cluster_id=start.cluster_id,
            as_version=start.as_version,
            reporter=LogReporter(),
        )

    async def start(self) -> None:
        node = self._node
        if isinstance(self._clock, SteeredClock):
            self._clock.attach()
        try:
            await node.start()
        except START_FAILURES as failure:
            raise BrokerError(str(failure)) from failure
        for name, partitions, configs, _ in self._topics:
            try:
                if name not in node.image.topics:
                    node.create_topic(name, partitions, configs)
            except KafkaError as failure:
                await node.stop()
                raise BrokerError(f"topic {name}: {failure.message}") from failure
        self.bootstrap_servers = node.bootstrap_servers
        self.listeners = ",".join(f"{each.listener_name}://{address(each.host, each.port)}" for each in node.servers)

    async def stop(self) -> None:
        await self._node.stop()

    def abandon(self) -> None:
        self._storage.unlock()

    def handles(self) -> list[int]:
        return [handle for server in self._node.servers for handle in server.handles()]

    def steered_clock(self) -> SteeredClock:
        return steered(self._clock)

    async def ask(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, *, timeout_ms: float = ANSWER_MS
    ) -> Any:
        return await ask(self._node, method, path, body)

    async def create_topic(self, /, name: str, partitions: int | None = None, **configs: object) -> None:
        self._node.create_topic(name, -1 if partitions is None else partitions, setting_texts(configs))

    async def delete_topic(self, name: str) -> None:
        self._node.change(self._node.controller.delete_topic(name=name))

    async def topics(self) -> dict[str, int]:
        return {name: len(topic.partitions) for name, topic in sorted(self._node.image.topics.items())}

    async def records(self, topic: str) -> list[Record]:
        if topic not in self._node.image.topics:
            raise KafkaError(Error.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {topic!r}")
        return self._read(topic)

    async def wait_records(self, topic: str, count: int, timeout: float = TIMEOUT_S) -> list[Record]:
        timeout_ms = round(timeout * 1000)
        deadline_ms = self._patience.now_ms() + timeout_ms
        while True:
            found = self._read(topic)
            if len(found) >= count:
                return found
            # There may be markers of transactions among what comes, so it is counted again then.
            end = self._end(topic) + count - len(found)
            if not await self._changed(topic, end, deadline_ms - self._patience.now_ms()):
                raise too_few(topic, len(found), count, timeout_ms, self._node.image.topics)

    async def _changed(self, topic: str, end: int, timeout_ms: int) -> bool:
        """Wait until a topic holds so many offsets, or is made, deleted or enlarged; return whether it was."""
        done: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        replicas = self._replicas(topic)

        def settle(is_changed: bool) -> None:
            if not done.done():
                done.set_result(is_changed)

        def appended(_added_bytes: int) -> None:
            if self._end(topic) >= end:
                settle(True)

        def altered() -> None:
            if self._replicas(topic) != replicas:
                settle(True)

        timer = self._patience.after(max(timeout_ms, 0), lambda: settle(False))
        for replica in replicas:
            replica.waiters[appended] = None
        self._node.watchers[altered] = None
        try:
            return await done
        finally:
            timer.cancel()
            del self._node.watchers[altered]
            for replica in replicas:
                replica.waiters.pop(appended, None)

    def _replicas(self, topic: str) -> list[Replica]:
        found = self._node.image.topics.get(topic)
        return [] if found is None else [self._node.replicas[topic, partition.id] for partition in found.partitions]

    def _end(self, topic: str) -> int:
        return sum(replica.high_watermark for replica in self._replicas(topic))

    def _read(self, topic: str) -> list[Record]:
        return [record for replica in self._replicas(topic) for record in records_of(replica)]

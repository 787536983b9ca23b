"""A broker in the loop that runs: it is asked directly, without a socket in between."""

from __future__ import annotations

import logging
import os
from random import SystemRandom

from minibroker.broker.broker import Node
from minibroker.clock.steered import SteeredClock
from minibroker.config import BrokerConfig
from minibroker.config.listeners import address
from minibroker.config.sources import setting_texts
from minibroker.embedded.arguments import steered
from minibroker.embedded.engine import ANSWER_MS, START_FAILURES, TIMEOUT_S, BrokerError, Engine, HttpRefusal
from minibroker.embedded.reading import ends_of, last_of, records_of, wait_for_records
from minibroker.errors import Error, KafkaError
from minibroker.log.memory_storage import MemoryStorage
from minibroker.log.storage import OsStorage
from minibroker.reporter import Reporter
from minibroker.traffic.ring import Ring

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from minibroker.clock import Clock
    from minibroker.embedded.engine import Start
    from minibroker.embedded.record import Record
    from minibroker.embedded.snapshot import Seed
    from minibroker.log.storage import Storage
    from minibroker.replication.replica import Replica
    from minibroker.traffic.lines import RequestRow


class LogReporter(Reporter):
    """Lines for people go into the program's log, where pytest shows them with the test that failed."""

    def say(self, line: str) -> None:
        logging.getLogger("minibroker").warning(line)


def new_storage(data_dir: str | None, clock: Clock) -> Storage:
    """Return where a broker keeps its logs: a directory, or memory."""
    return MemoryStorage(clock.now_ms) if data_dir is None else OsStorage(os.path.abspath(data_dir))


async def ask(node: Node, method: str, path: str, body: Mapping[str, Any] | None) -> Any:
    """Return what HTTP would answer; FaultError or HttpRefusal say why not."""
    from minibroker.broker import http_calls, http_verbs

    try:
        return await http_verbs.call(node, method, path, body)
    except http_calls.Refused as refusal:
        raise HttpRefusal(str(refusal), int(refusal.status.partition(" ")[0])) from None


class InProcess(Engine):
    """A Node of this process."""

    def __init__(self, start: Start, storage: Storage, clock: Clock, seed: Seed | None = None):
        """seed: what is in the storage when the broker starts for the first time."""
        self._storage = storage
        self._seed = seed
        self._topics = start.topics
        self._clock = clock
        self._node = Node(
            BrokerConfig(start.settings),
            storage,
            clock=clock,
            chance=SystemRandom(),
            log_dir=os.path.abspath(start.data_dir) if start.data_dir else "memory",
            cluster_id=start.cluster_id,
            as_version=start.as_version,
            reporter=LogReporter(),
            users=start.users,
        )
        self._ring = Ring(self._node.topic_name)
        self._node.tap = self._ring.over

    @property
    def bootstrap_servers(self) -> str:
        return self._node.bootstrap_servers

    async def start(self) -> None:
        node = self._node
        if isinstance(self._clock, SteeredClock):
            self._clock.attach()
        try:
            if self._seed is not None:
                await self._seed.sow(self._storage)
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
        self.listeners = ",".join(f"{each.listener_name}://{address(each.host, each.port)}" for each in node.servers)

    async def stop(self) -> None:
        await self._node.stop()

    async def snapshot(self) -> Storage:
        from minibroker.embedded.snapshot import copy_of

        return await copy_of(self._node)

    @property
    def cluster_id(self) -> str:
        return self._node.cluster_id

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
        return [record for replica in self._known(topic) for record in records_of(replica)]

    async def ends(self, topic: str) -> dict[int, tuple[int, int]]:
        return ends_of(self._known(topic))

    async def last_records(self, topic: str, count: int = 1) -> list[Record]:
        return last_of(self._known(topic), count)

    async def wait_records(self, topic: str, count: int, timeout: float = TIMEOUT_S) -> list[Record]:
        node = self._node
        return await wait_for_records(
            node.events, lambda: self._replicas(topic), topic, count, timeout, lambda: node.image.topics
        )

    async def requests(self, count: int | None = None) -> list[RequestRow]:
        return self._ring.rows(count)

    def _known(self, topic: str) -> list[Replica]:
        if topic not in self._node.image.topics:
            raise KafkaError(Error.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {topic!r}")
        return self._replicas(topic)

    def _replicas(self, topic: str) -> list[Replica]:
        found, replicas = self._node.image.topics.get(topic), self._node.replicas
        opened = [] if found is None else [replicas.get((topic, partition.id)) for partition in found.partitions]
        return [replica for replica in opened if replica is not None]

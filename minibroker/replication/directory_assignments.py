"""What a broker of a cluster tells the controller of logs that it cannot open, and of those that it can again.

What must hold: the controller is told again until the metadata say so. So no partition waits for a leader that has not
got it, and a broker that starts leads nothing before the controller knows what it lacks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from minibroker.metadata.features import DIRECTORIES
from minibroker.metadata.image import LOST_DIRECTORY, Partition, Topic
from minibroker.parts import Parts
from minibroker.protocol.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest
from minibroker.replication.network import CONTROLLER, Network, NetworkError
from minibroker.reporter import Unexpected

Key = tuple[bytes, int]  # topic id and partition
DirectoryData = AssignReplicasToDirsRequest.DirectoryData
TopicData = DirectoryData.TopicData
RETRY_MS = 100


class DirectoryAssignments:
    """One for the life of a broker in a cluster."""

    def __init__(self, parts: Parts, unopened: Mapping[tuple[str, int], object], network: Network):
        self.parts = parts
        self.unopened = unopened
        self.network = network
        self._open: dict[Key, None] = {}  # of which the metadata say something else than is so
        self._task: asyncio.Task[None] | None = None
        self._has_stopped = False
        self._unexpected = Unexpected(parts.reporter, f"directories {parts.node_id}")

    @property
    def is_possible(self) -> bool:
        """Whether the metadata can say where replicas are."""
        return self.parts.image.metadata_version >= DIRECTORIES

    def tried(self, topic: Topic, partition: Partition) -> None:
        """Compare with the metadata what has become of an attempt to open a log."""
        if self.is_possible and self._told(topic, partition) != self._actual(topic, partition):
            self._open[topic.id, partition.id] = None
            if not self._has_stopped and (self._task is None or self._task.done()):
                task = self._send()
                self._task = asyncio.get_running_loop().create_task(task, name=f"directories {self.parts.node_id}")

    async def told(self) -> None:
        """Return when the controller knows of all."""
        if self._task is not None:
            await self._task

    def stop(self) -> None:
        self._has_stopped = True
        if self._task is not None:
            self._task.cancel()

    def _told(self, topic: Topic, partition: Partition) -> bytes:
        return partition.directories[partition.replicas.index(self.parts.node_id)]

    def _actual(self, topic: Topic, partition: Partition) -> bytes:
        is_lost = (topic.name, partition.id) in self.unopened
        return LOST_DIRECTORY if is_lost else self.parts.directory_id

    async def _send(self) -> None:
        while directories := self._differing():
            request = AssignReplicasToDirsRequest(
                broker_id=self.parts.node_id,
                broker_epoch=self.parts.metadata.broker_epoch,
                directories=[
                    DirectoryData(
                        id=directory,
                        topics=[
                            TopicData(
                                topic_id=topic_id,
                                partitions=[TopicData.PartitionData(partition_index=each) for each in numbers],
                            )
                            for topic_id, numbers in topics.items()
                        ],
                    )
                    for directory, topics in directories.items()
                ],
            )
            try:
                await self.network.call(self.parts.node_id, CONTROLLER, request)
            except NetworkError:
                pass
            except Exception as error:  # ours: nobody else would tell
                self._unexpected.tell(error)
            await self.parts.clock.sleep(RETRY_MS)  # the metadata follow the answer

    def _differing(self) -> dict[bytes, dict[bytes, list[int]]]:
        """Return what the metadata have still to say: directory, topic id, partitions."""
        found: dict[bytes, dict[bytes, list[int]]] = {}
        for topic_id, number in list(self._open):
            topic = self.parts.image.topics_by_id.get(topic_id)
            partition = None if topic is None or number >= len(topic.partitions) else topic.partitions[number]
            if topic is None or partition is None or self.parts.node_id not in partition.replicas:
                del self._open[topic_id, number]
                continue
            actual = self._actual(topic, partition)
            if self._told(topic, partition) == actual:
                del self._open[topic_id, number]
            else:
                found.setdefault(actual, {}).setdefault(topic_id, []).append(number)
        return found

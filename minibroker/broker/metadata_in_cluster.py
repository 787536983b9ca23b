"""The metadata of a broker that belongs to a cluster: it registers, tells that it lives, and reads what was decided.

    join    register with the controller, read the metadata up to there
    enter   say by heartbeats that it has caught up, until it is unfenced: from then on it may lead
    leave   ask to stop; the leaders move first

The metadata log is fetched from the controller as followers fetch a partition; each broker has its own image, which may
be older than another's. What clients wish is handed on to the controller.
What must hold: the image and what this broker does about it change together, batch by batch, in the order of the log.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from minibroker.clock import Pause
from minibroker.controller.brokers import SECURITY_PROTOCOLS
from minibroker.errors import Error, KafkaError, StorageError, error_name
from minibroker.event_kinds import Metadata
from minibroker.log.batches import Batch, batches
from minibroker.log.meta_properties import MetaProperties, write_meta_properties
from minibroker.metadata.bootstrap import METADATA_TOPIC, random_id
from minibroker.metadata.features import supported
from minibroker.metadata.image import MetadataImage
from minibroker.metadata.metadata_log import TOPIC_ID
from minibroker.metadata.records import read_record
from minibroker.metadata.snapshot import parse_snapshot
from minibroker.protocol.headers import Request
from minibroker.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest
from minibroker.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from minibroker.protocol.messages.broker_registration import BrokerRegistrationRequest
from minibroker.protocol.messages.create_topics import CreateTopicsRequest
from minibroker.protocol.messages.fetch import FetchRequest, FetchResponse
from minibroker.protocol.messages.fetch_snapshot import FetchSnapshotRequest
from minibroker.replication.network import CONTROLLER, Network, NetworkError
from minibroker.replication.replica_set import AT_ONCE_MAX, Partitions
from minibroker.reporter import Unexpected

TopicSetting = CreateTopicsRequest.CreatableTopic.CreatableTopicConfig

FETCH_VERSION = 17
FETCH_WAIT_MS = 500
CALL_TIMEOUT_MS = 2_000  # Kafka's controller.quorum.request.timeout.ms
FETCH_BYTES_MAX = 8 << 20
RETRY_MS = 100
NO_EPOCH = -1
STOP_TRIES = 3
RECORDS_AT_ONCE_MAX = 200  # then others have their turn


class ClusterMetadata:
    """One for the life of a broker."""

    def __init__(
        self,
        partitions: Partitions,
        follow: Callable[..., None],
        endpoints: Callable[[], list[tuple[str, str, int, str]]],
        network: Network,
    ):
        """follow: does what records say; endpoints: where the broker listens."""
        from minibroker.replication.manager import Replication

        self.partitions = partitions
        parts = self.parts = partitions.parts
        self.follow = follow
        self.endpoints = endpoints
        self.network = network
        self.image = MetadataImage()
        self.broker_epoch = NO_EPOCH
        self.replication = Replication(parts, network, partitions.replicas, partitions.unopened)
        self._is_open = False  # the partitions follow the metadata
        self._tasks: list[asyncio.Task[None]] = []
        self._living: list[asyncio.Task[None]] = []  # those that send heartbeats
        self._waiting: list[tuple[Callable[[], bool], asyncio.Future[None]]] = []
        self._rest = Pause(parts.clock)  # between two heartbeats
        self._stopping_seen: set[int] = set()
        self._unexpected = Unexpected(parts.reporter, f"heartbeats and metadata {parts.node_id}")

    def format(self, cluster_id: str) -> MetaProperties:
        """Make an empty directory this broker's; the metadata log is the controller's."""
        meta = MetaProperties(self.parts.node_id, cluster_id, random_id(self.parts.chance))
        write_meta_properties(self.parts.storage, meta, self.parts.clock.now_ms())
        return meta

    def may_have_feature(self, name: str, level: int) -> bool:
        """Return whether a feature is as high; the controller raises one when somebody asks it to."""
        return self.image.features.get(name, 0) >= level

    def need_feature(self, name: str, level: int) -> None:
        """Nothing is raised from here."""

    # The broker's life

    async def load(self) -> None:
        """There is nothing on this disk."""

    async def join(self) -> None:
        """Return when the controller knows this broker, and this broker all that was decided before."""
        self.network.attach(self.parts.node_id, self.replication.answer)
        await self._register()
        self._begin(self._fetch_metadata(), "metadata")
        await self.reached(self.broker_epoch)

    async def enter(self) -> None:
        """Return when this broker may lead; what is decided from now on is followed."""
        self._is_open = True
        await self.partitions.open_all()
        self.replication.start()
        await self.replication.directories.told()  # before this broker may lead
        while await self._is_fenced():
            await self.parts.clock.sleep(RETRY_MS)
        self._living.append(self._begin(self._live(), "heartbeats"))
        me = self.parts.node_id
        await self._until(lambda: me in self.image.brokers and not self.image.brokers[me].fenced)

    async def _is_fenced(self) -> bool:
        try:
            return (await self._beat()).is_fenced
        except NetworkError:
            return True

    async def leave(self) -> None:
        """Return when this broker leads nothing, and everybody knows; or when there is no controller to ask."""
        for task in self._living:  # one more heartbeat of those, and it would be taken for one that starts again
            task.cancel()
        for _ in range(STOP_TRIES if self.parts.config["controlled.shutdown.enable"] else 0):
            try:
                while not (await self._beat(want_shut_down=True)).should_shut_down:
                    pass  # the controller keeps the answer until there is something to say
                break
            except NetworkError:
                await self.parts.clock.sleep(RETRY_MS)

    def close(self) -> None:
        """Take part in nothing any more."""
        self.release()

    def release(self) -> None:
        for task in self._tasks:
            task.cancel()
        self.network.detach(self.parts.node_id)

    def _begin(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work, name=f"{name} {self.parts.node_id}")
        self._tasks.append(task)
        task.add_done_callback(_raise_failure)
        return task

    # Registration and heartbeats

    async def _register(self) -> None:
        parts = self.parts
        # Kafka: takes what a broker has for whole that stopped in order, also if somebody has removed a log since.
        clean_epoch = None if parts.directory.has_lost_logs else parts.directory.clean_epoch
        request = BrokerRegistrationRequest(
            broker_id=parts.node_id,
            cluster_id=parts.cluster_id,
            incarnation_id=random_id(parts.chance),
            listeners=[
                BrokerRegistrationRequest.Listener(
                    name=name, host=host, port=port, security_protocol=SECURITY_PROTOCOLS.index(protocol)
                )
                for name, host, port, protocol in self.endpoints()
            ],
            features=[
                BrokerRegistrationRequest.Feature(
                    name=name, min_supported_version=lowest, max_supported_version=highest
                )
                for name, (lowest, highest) in supported(parts.emulated.release).items()
            ],
            rack=parts.config["broker.rack"],
            log_dirs=[parts.directory_id],
            previous_broker_epoch=NO_EPOCH if clean_epoch is None else clean_epoch,
        )
        while True:
            try:
                answer = await self._ask(request)
            except NetworkError:
                await parts.clock.sleep(RETRY_MS)
                continue
            if answer.error_code == Error.NONE:
                self.broker_epoch = answer.broker_epoch
                return
            if answer.error_code != Error.DUPLICATE_BROKER_REGISTRATION:
                raise KafkaError(Error(answer.error_code), f"the controller refuses broker {parts.node_id}")
            await parts.clock.sleep(RETRY_MS)  # until the session of its former life has expired

    async def _beat(self, *, want_shut_down: bool = False) -> BrokerHeartbeatResponse:
        request = BrokerHeartbeatRequest(
            broker_id=self.parts.node_id,
            broker_epoch=self.broker_epoch,
            current_metadata_offset=self.image.offset,
            want_fence=False,
            want_shut_down=want_shut_down,
        )
        answer: BrokerHeartbeatResponse = await self._ask(request)
        if answer.error_code != Error.NONE:
            raise NetworkError(f"heartbeat refused: {Error(answer.error_code).name}", Error(answer.error_code))
        return answer

    async def _live(self) -> None:
        """Say that this broker lives, again and again."""
        while True:
            await self._rest.sleep(self.parts.config["broker.heartbeat.interval.ms"])
            try:
                await self._beat()
            except NetworkError:
                continue
            except Exception as error:  # ours: a broker without heartbeats would be fenced
                self._unexpected.tell(error)

    # The metadata

    async def _fetch_metadata(self) -> None:
        while True:
            partition = FetchRequest.FetchTopic.FetchPartition(
                partition=0,
                fetch_offset=self.image.offset + 1,
                last_fetched_epoch=self.image.epoch,
                partition_max_bytes=FETCH_BYTES_MAX,
            )
            request = FetchRequest(
                replica_state=FetchRequest.ReplicaState(replica_id=self.parts.node_id),
                max_wait_ms=FETCH_WAIT_MS,
                min_bytes=1,
                topics=[FetchRequest.FetchTopic(topic_id=TOPIC_ID, partitions=[partition])],
            )
            try:
                answer: FetchResponse = await self._ask(request, FETCH_VERSION)
            except NetworkError:
                await self.parts.clock.sleep(RETRY_MS)
                continue
            found = answer.responses[0].partitions[0] if answer.responses else None
            if found is None:
                continue
            if found.records:
                try:
                    await self._take(found.records)
                except StorageError as failure:  # a partition could not be made
                    self.parts.disk_failed(failure)
                    return
            elif found.snapshot_id.end_offset >= 0 and self.image.offset < 0:
                await self._fetch_snapshot(found.snapshot_id.end_offset, found.snapshot_id.epoch)
            elif found.error_code != Error.NONE:
                name = Error(found.error_code).name
                self.parts.reporter.say(f"broker {self.parts.node_id} cannot read the metadata: {name}")
                await self.parts.clock.sleep(FETCH_WAIT_MS)

    async def _fetch_snapshot(self, end_offset: int, epoch: int) -> None:
        """Begin with what a snapshot says: the log does not go back to its beginning."""
        data = b""
        while True:
            partition = FetchSnapshotRequest.TopicSnapshot.PartitionSnapshot(
                partition=0,
                current_leader_epoch=-1,
                snapshot_id=FetchSnapshotRequest.TopicSnapshot.PartitionSnapshot.SnapshotId(
                    end_offset=end_offset, epoch=epoch
                ),
                position=len(data),
            )
            topics = [FetchSnapshotRequest.TopicSnapshot(name=METADATA_TOPIC, partitions=[partition])]
            try:
                answer = await self._ask(FetchSnapshotRequest(replica_id=self.parts.node_id, topics=topics))
            except NetworkError:
                await self.parts.clock.sleep(RETRY_MS)
                continue
            piece = answer.topics[0].partitions[0]
            if piece.error_code != Error.NONE:
                return  # there is a newer one: the next fetch says which
            data += piece.unaligned_records
            if len(data) >= piece.size:
                break
        for record in parse_snapshot(data).records:
            self.image.apply(record)
        self.image.offset, self.image.epoch = end_offset - 1, epoch

    async def _take(self, data: Any) -> None:
        """Take in what the controller decided, batch by batch, and with many others in between.

        An error of ours at one record, or at what follows from a batch, is said, and the others are taken: a broker
        that hears of nothing more would be worse.
        """
        image, count = self.image, 0
        for batch in batches(data):
            if batch.last_offset <= image.offset:
                continue
            found = [] if batch.is_control else self._applied(batch)
            image.offset, image.epoch = batch.last_offset, batch.partition_leader_epoch
            count += len(found)
            if self._is_open:
                try:
                    self.follow(found, at_once=count <= AT_ONCE_MAX)
                except StorageError:
                    raise
                except Exception as error:
                    self._unexpected.tell(error)
            if self._waiting:
                self._wake()  # the next batch may undo what somebody waits for
            if count > RECORDS_AT_ONCE_MAX:
                count = AT_ONCE_MAX + 1
                self.parts.directory.sync_names()
                await self.parts.shares.turn()
        self.parts.directory.sync_names()
        if self.parts.events.observed:
            self.parts.events.emit(Metadata(broker=self.parts.node_id, offset=image.offset))
        # Who stops waits until everybody has heard of it, so it is told at once and not with the next heartbeat.
        stopping = {broker_id for broker_id, each in image.brokers.items() if each.in_controlled_shutdown}
        if stopping - self._stopping_seen:
            self._rest.wake()
        self._stopping_seen = stopping

    def _applied(self, batch: Batch) -> list[Any]:
        """Put the records of a batch into the image; return them."""
        found = []
        for row in batch.records():
            try:
                record = read_record(bytes(row.value or b""))
                self.image.apply(record)
            except Exception as error:
                self._unexpected.tell(error)
            else:
                found.append(record)
        return found

    def _wake(self) -> None:
        """Tell those who wait that the metadata are as they want them."""
        still = []
        for condition, done in self._waiting:
            if not done.done():
                if condition():
                    done.set_result(None)
                else:
                    still.append((condition, done))
        self._waiting = still

    async def _until(self, condition: Callable[[], bool]) -> None:
        """Return when the metadata here say so."""
        if not condition():
            done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append((condition, done))
            await done

    async def reached(self, offset: int) -> None:
        """Return when the metadata here go up to an offset."""
        await self._until(lambda: self.image.offset >= offset)

    # What clients wish

    async def _ask(self, request: Request, version: int | None = None) -> Any:
        return await self.network.call(self.parts.node_id, CONTROLLER, request, version, timeout_ms=CALL_TIMEOUT_MS)

    async def forward(self, request: Request, version: int) -> Any:
        """Have the controller fulfil a wish of a client; NetworkError if it does not answer."""
        return await self.network.call(self.parts.node_id, CONTROLLER, request, version)

    async def create_topics(
        self, plans: Mapping[str, tuple[int, int, Mapping[str, str]]], client: tuple[str, str | None] | None
    ) -> None:
        """Make topics, and return when they are known here, or cannot be made; -1 is the brokers' default.

        client: the user and client id that they count for.
        """
        config = self.parts.config
        request = CreateTopicsRequest(
            topics=[
                CreateTopicsRequest.CreatableTopic(
                    name=name,
                    num_partitions=config["num.partitions"] if partitions < 0 else partitions,
                    replication_factor=config["default.replication.factor"] if factor < 0 else factor,
                    assignments=[],
                    configs=[TopicSetting(name=key, value=value) for key, value in configs.items()],
                )
                for name, (partitions, factor, configs) in plans.items()
            ],
            timeout_ms=CALL_TIMEOUT_MS,
        )
        request.client = client
        try:
            answer = await self._ask(request)
        except NetworkError:
            return
        made = [each.name for each in answer.topics if each.error_code in (Error.NONE, Error.TOPIC_ALREADY_EXISTS)]
        await self._until(lambda: all(name in self.image.topics for name in made))

    async def allocate_producer_ids(self) -> tuple[int, int]:
        """Return the first of a block of producer ids that nobody had before, and how many they are.

        Clients are told nothing that concerns brokers only (STALE_BROKER_EPOCH): to ask again is right for all of it.
        """
        request = AllocateProducerIdsRequest(broker_id=self.parts.node_id, broker_epoch=self.broker_epoch)
        try:
            answer = await self._ask(request)
        except NetworkError as failure:
            raise KafkaError(Error.COORDINATOR_LOAD_IN_PROGRESS, str(failure)) from failure
        if answer.error_code != Error.NONE:
            raise KafkaError(Error.COORDINATOR_LOAD_IN_PROGRESS, f"no producer ids: {error_name(answer.error_code)}")
        return answer.producer_id_start, answer.producer_id_len


def _raise_failure(task: asyncio.Task[None]) -> None:
    """Let the loop hear of a task that failed: nobody awaits it."""
    if not task.cancelled() and task.exception() is not None:
        task.get_loop().call_exception_handler({"message": f"{task.get_name()} failed", "exception": task.exception()})

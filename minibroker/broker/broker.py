"""The life of one broker: its directory, its listeners, and who answers the requests that come in there.

    start   lock and read the directory, get the metadata, open every partition, listen
    stop    close every socket, flush and close every log, leave the clean mark
    kill    as kill -9: nothing is closed in order
    pause   as SIGSTOP: nothing moves until `resume`

Not here: what handlers ask of it (broker_parts.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from minibroker.broker.broker_calls import BrokerToBroker
from minibroker.broker.broker_parts import BrokerParts
from minibroker.broker.dispatch import Dispatcher
from minibroker.config.listeners import advertised_listeners, client_listeners
from minibroker.config.start import check_start
from minibroker.errors import StorageError
from minibroker.faults.faults import Faults
from minibroker.log.checkpoints import format_id
from minibroker.log.partition_log import FlushPlan
from minibroker.metadata.bootstrap import check_directory, random_id
from minibroker.server.server import Limits, Server
from minibroker.transactions.service import Transactions

TYPE_CHECKING = False
if TYPE_CHECKING:
    from minibroker.faults.toxics import Toxics
    from minibroker.log.storage import Storage


class Node(BrokerParts):
    """A broker that can be started and stopped."""

    @cached_property
    def dispatcher(self) -> Dispatcher:
        return Dispatcher(self)

    @cached_property
    def calls(self) -> BrokerToBroker:
        return BrokerToBroker(self, self.network)

    @cached_property
    def transactions(self) -> Transactions:
        return Transactions(self, self.replicas, self.calls, self.producer_ids)

    @cached_property
    def faults(self) -> Faults:
        faults = Faults(
            broker=self.node_id,
            chance=self.chance,
            served=self.served,
            switch=self._switch_faults,
            new_toxics=self._new_toxics,
        )
        faults.events = self.events
        return faults

    async def start(self) -> None:
        """Return when requests are answered; a start that fails leaves nothing open."""
        check_start(self.config)
        self.storage.make_directory("")
        self.storage.lock()
        try:
            await self._start()
        except BaseException:
            await self._give_up()
            raise

    async def _start(self) -> None:
        if self.replication is not None:
            self.replication.answer_call = self.calls.answer
        meta = check_directory(self.storage, node_id=self.node_id, cluster_id=self.cluster_id or None)
        self.directory.read()
        if meta is None:
            meta = self.metadata.format(self.cluster_id or format_id(random_id(self.chance)))
        self.cluster_id = meta.cluster_id or ""
        self.directory_id = meta.directory_id or random_id(self.chance)
        await self.metadata.load()
        self._take_dynamic_configs()
        await self._bind()
        self.directory.begin()  # not before the metadata have been read: what is refused stays as it was left
        await self.metadata.join()
        self._take_dynamic_configs()  # a member of a cluster has them from now on, a new log begins with some
        self.partitions.set_strays_aside()
        for topic in self.image.topics.values():
            self.partitions.take(topic, at_once=False)
        await self.metadata.enter()
        self.is_ready = True
        self.groups.start()
        self.transactions.start()
        for server in self.servers:
            await server.listen()
        self.scheduler.start()

    async def _give_up(self) -> None:
        """Let go of what a start had taken; the directory is as after a crash."""
        self.partitions.give_up()
        if self.replication is not None:
            self.replication.stop()
        for server in self.servers:
            await server.stop()
        self._release()

    def _release(self) -> None:
        for log in self.directory.logs.values():
            log.release()
        self.metadata.release()
        self.storage.unlock()

    async def stop(self) -> None:
        """Return when every socket is closed, every log flushed, and the directory marked clean.

        Whatever fails on the way, the rest is done, and nothing is left open; without a mark of a clean stop the next
        start is as after a crash.
        """
        self.is_ready = False
        self.scheduler.stop()
        left = False
        try:
            if self.replication is None:
                self.groups.stop()
                self.transactions.stop()
                await self._close_servers()
                left = await self._leave()
            else:  # the leaders move first, while clients can still be told where they are
                left = await self._leave()
                self.groups.stop()
                self.transactions.stop()
                self.replication.stop()
                await self._close_servers()
        finally:
            try:
                reason = self._close_logs(left)
            finally:
                self.replicas.clear()
                self.storage.unlock()
        if reason:
            self.reporter.say(f"{reason}: the next start is as after a crash")

    async def _leave(self) -> bool:
        """Write down that this broker stops in order; return whether that could be written."""
        try:
            await self.metadata.leave()
        except StorageError as failure:
            self.disk_failed(failure)
            return False
        return True

    def _close_logs(self, left: bool) -> str:
        """Flush and close everything, and set the clean mark, which says that all is on the disk; or return why not."""
        self.scheduler.finish()
        try:
            self.partitions.finish_removing()
            self.metadata.close()
        except StorageError as failure:
            self.disk_failed(failure)
            self.metadata.release()
            left = False
        # What could not be opened has not been looked at since it was left as after a crash.
        unknown = (
            [] if self.directory.was_clean else [f"{topic}-{number}" for topic, number in self.partitions.unopened]
        )
        is_written = self.directory.close(
            {key: replica.high_watermark for key, replica in self.replicas.items()},
            broker_epoch=self.metadata.broker_epoch,
            may_be_clean=left and not unknown,
            carry_out=self._carry_out,
        )
        if not left or not is_written:
            return "a disk refused what was to be written in the end"
        more = f" and {len(unknown) - 1} more" if unknown[1:] else ""
        return f"{unknown[0]}{more} could not be opened" if unknown else ""

    def _carry_out(self, storage: Storage, plans: Sequence[FlushPlan]) -> Sequence[StorageError | None]:
        """Sync what the logs have written in the end."""
        from minibroker.broker.flushing import carry_out_in_threads

        return carry_out_in_threads(self.config["num.recovery.threads.per.data.dir"], storage, plans)

    async def _close_servers(self) -> None:
        for server in self.servers:
            await server.stop()

    async def kill(self) -> None:
        """End here and now, as after kill -9: what has been written is there, nothing else is put in order."""
        self.is_ready = False
        self.scheduler.stop()
        self.groups.stop()
        self.transactions.stop()
        self.partitions.give_up()
        self.clock.end()
        if self.replication is not None:
            self.replication.stop()
        for server in self.servers:
            server.abort()
        self._release()
        self.replicas.clear()
        await self._close_servers()

    @property
    def is_held(self) -> bool:
        return self.clock.is_paused

    def pause(self) -> None:
        """Stand still, as after SIGSTOP: clients see a machine that hangs."""
        self.clock.pause()
        for server in self.servers:
            server.pause()

    def resume(self) -> None:
        """Go on where it stood."""
        self.clock.resume()
        for server in self.servers:
            server.resume()

    async def _bind(self) -> None:
        limits = Limits(
            frame_bytes_max=self.config["socket.request.max.bytes"],
            idle_ms=self.config["connections.max.idle.ms"],
            backlog=self.config["socket.listen.backlog.size"],
            receive_buffer_bytes=self.config["socket.receive.buffer.bytes"],
            send_buffer_bytes=self.config["socket.send.buffer.bytes"],
        )
        self._advertised = advertised_listeners(self.config)
        for listener in client_listeners(self.config):
            self._protocols[listener.name] = listener.protocol
            server = Server(self.dispatcher, self.clock, limits, listener.name, self.reporter, self.quotas)
            await server.bind(listener.host, listener.port)
            self.servers.append(server)

    def _switch_faults(self, is_on: bool) -> None:
        """Ask the rules for faults before each request, or no more."""
        from minibroker.broker.inject_faults import Injection

        self.dispatcher.injection = Injection(self.dispatcher).strike if is_on else None

    def _new_toxics(self) -> Toxics:
        from minibroker.faults.toxics import Toxics

        return Toxics(self.servers, self.clock, self.chance)

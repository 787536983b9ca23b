"""A leader asks the controller to change the ISR: one AlterPartition request at a time, for all partitions together.

What must hold: a proposal counts until the controller or the metadata have answered it (replication/leader.py); what
came to nothing because nobody answered is sent again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from minibroker.errors import Error
from minibroker.parts import Parts
from minibroker.protocol.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from minibroker.replication.leader import LeaderState, Proposal
from minibroker.replication.network import CONTROLLER, Network, NetworkError
from minibroker.replication.replica import Replica
from minibroker.reporter import Unexpected

TYPE_CHECKING = False
if TYPE_CHECKING:
    from minibroker.clock import Timer

Key = tuple[bytes, int]
Pending = tuple[Replica, LeaderState, Proposal]
Topic = AlterPartitionRequest.TopicData
Partition = Topic.PartitionData
VERSION = 3
RETRY_MS = 50  # as Kafka's


class IsrUpdates:
    """The proposals of one broker, and the look at who lags."""

    def __init__(self, parts: Parts, replicas: Mapping[tuple[str, int], Replica], network: Network):
        self.parts = parts
        self.replicas = replicas
        self.network = network
        self._pending: dict[Key, Pending] = {}
        self._task: asyncio.Task[None] | None = None
        self._timer: Timer | None = None
        self._has_stopped = False
        self._unexpected = Unexpected(parts.reporter, f"isr {parts.node_id}")

    def start(self) -> None:
        lag_ms_max = self.parts.config["replica.lag.time.max.ms"]
        self._timer = self.parts.clock.after(lag_ms_max / 2, self._check_lag)

    def stop(self) -> None:
        self._has_stopped = True
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            self._task.cancel()

    def propose(self, replica: Replica, proposal: Proposal) -> None:
        if self._has_stopped:
            return  # a fetch that came while the broker stops
        self._pending[replica.topic_id, replica.partition] = (replica, replica.as_leader(), proposal)
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._send(), name=f"isr {self.parts.node_id}")

    def _check_lag(self) -> None:
        steady_ms = self.parts.clock.steady_ms()
        for replica in list(self.replicas.values()):
            role = replica.role
            if isinstance(role, LeaderState) and (proposal := role.check_lag(steady_ms)) is not None:
                self.propose(replica, proposal)
        self.start()

    async def _send(self) -> None:
        while self._pending:
            sent, self._pending = self._pending, {}
            request = self._request(sent)
            try:
                answer = await self.network.call(self.parts.node_id, CONTROLLER, request, VERSION)
            except NetworkError:
                answer = AlterPartitionResponse(throttle_time_ms=0, error_code=Error.NETWORK_EXCEPTION, topics=[])
            try:
                is_left = self._take(sent, answer)
            except Exception as error:  # ours: a proposal that nobody sends again would be waited for without end
                self._unexpected.tell(error)
                self._pending = {**sent, **self._pending}
                is_left = True
            if is_left:
                await self.parts.clock.sleep(RETRY_MS)

    def _request(self, sent: dict[Key, Pending]) -> AlterPartitionRequest:
        topics: dict[bytes, list[Partition]] = {}
        for (topic_id, number), (_, _, proposal) in sent.items():
            asked = Partition(
                partition_index=number,
                leader_epoch=proposal.leader_epoch,
                new_isr_with_epochs=[
                    Partition.BrokerState(broker_id=broker_id, broker_epoch=epoch)
                    for broker_id, epoch in zip(proposal.in_sync, proposal.broker_epochs)
                ],
                leader_recovery_state=0,
                partition_epoch=proposal.partition_epoch,
            )
            asked.why = proposal.why  # type: ignore[misc]
            topics.setdefault(topic_id, []).append(asked)
        return AlterPartitionRequest(
            broker_id=self.parts.node_id,
            broker_epoch=self.parts.metadata.broker_epoch,
            topics=[Topic(topic_id=topic_id, partitions=each) for topic_id, each in topics.items()],
        )

    def _take(self, sent: dict[Key, Pending], answer: AlterPartitionResponse) -> bool:
        """Hand on what was answered; return whether something has to be sent again."""
        steady_ms = self.parts.clock.steady_ms()
        found = {
            (bytes(topic.topic_id), each.partition_index): each for topic in answer.topics for each in topic.partitions
        }
        is_left = False
        for key, (replica, role, proposal) in sent.items():
            each = found.get(key)
            if replica.role is not role:
                continue
            if each is None or answer.error_code != Error.NONE:
                again = role.alter_answered(
                    proposal, answer.error_code or Error.UNKNOWN_SERVER_ERROR, steady_ms=steady_ms
                )
            else:
                again = role.alter_answered(
                    proposal,
                    each.error_code,
                    steady_ms=steady_ms,
                    leader_epoch=each.leader_epoch,
                    partition_epoch=each.partition_epoch,
                    in_sync=each.isr,
                )
            if again is not None:
                self._pending.setdefault(key, (replica, role, again))
                is_left = True
        return is_left

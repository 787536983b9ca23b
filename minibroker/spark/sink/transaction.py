"""Transaction of one write: its records become visible together, and with them the number of the micro-batch.

    begin    InitProducerId: fences whoever had the transactional id, and ends what that left open
             OffsetFetch: the number of the last batch that was committed; if it is this one, all is done
    add      AddPartitionsToTxn, before the first batch to each partition
    commit   TxnOffsetCommit: the number of this batch, then EndTxn

The number is an offset of the group that is called like the transactional id. Offsets belong to partitions, so it is
committed for one of each topic that is written, and the highest counts. Its metadata say how the batch was planned: the
same number with another plan is no repetition, and would be lost.
What must hold: records and number are in one transaction, so each of them is there if and only if the other one is.
Not here: batches (sender.py), how rows come to the driver (spool.py). docs/adr/0014 says why it is made so.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from minibroker.client.accumulator import ProducerId
from minibroker.client.cluster import Cluster, TopicPartition
from minibroker.client.groups import CommittedOffset, Groups
from minibroker.client.transaction_calls import TransactionCalls
from minibroker.errors import KafkaError

PLANNED = " planned as "  # in the metadata of the number


class LaterBatch(Exception):
    """The topics have a later batch of the query than the one that is to be written, or another one of its number."""


class WriteTransaction:
    """Made by the driver, once for each write."""

    def __init__(
        self, transactional_id: str, batch: int | None, timeout_ms: int, *, topic: str | None = None, plan: str = ""
    ):
        """batch: the number of a micro-batch; None: the write has none, and is never repeated.

        topic: to which all rows go; None: rows say it. plan: tells this batch from another one of its number; empty:
        nobody knows.
        """
        self.transactional_id = transactional_id
        self.producer: ProducerId | None = None  # known from `begin` on
        self._batch = batch
        self._topic = topic
        self._plan = plan
        self._timeout_ms = timeout_ms
        self._calls: TransactionCalls | None = None
        self._partitions: set[TopicPartition] = set()

    @property
    def produce_version_max(self) -> int | None:
        assert self._calls
        return self._calls.produce_version_max

    async def begin(self, cluster: Cluster) -> bool:
        """Return whether there is something to do: not if the batch has been committed."""
        self._calls = TransactionCalls(cluster, self.transactional_id, timeout_ms=self._timeout_ms)
        self.producer = await self._calls.init_producer()
        if self._batch is None:
            return True
        # Behind InitProducerId, which returns when nothing is pending, and after which no other driver can commit.
        committed = (await Groups(cluster).fetch_offsets([self.transactional_id], stable=True))[self.transactional_id]
        # A copy of a checkpoint that writes elsewhere has written nothing there, whatever the other one has.
        numbers = [each for (topic, _), each in committed.items() if self._topic in (None, topic)]
        last, metadata = max(((each.offset, each.metadata or "") for each in numbers), default=(-1, ""))
        planned = metadata.partition(PLANNED)[2]
        if last > self._batch:
            raise self._refused(f"a later one, {last}, has been written")
        if last == self._batch and "" not in (planned, self._plan) and planned != self._plan:
            raise self._refused("one of this number with other rows has been written")
        return last < self._batch

    def _refused(self, why: str) -> LaterBatch:
        return LaterBatch(
            f"batch {self._batch}: {why} with transactional id {self.transactional_id}: the checkpoint is older than "
            "what is in the topics, or another query uses a copy of it. With exactlyOnce false it is written "
            "nevertheless; with another transactionalIdPrefix it begins anew"
        )

    async def add(self, partitions: Iterable[TopicPartition]) -> None:
        """Make partitions part of the transaction before something is written to them."""
        assert self._calls
        assert self.producer
        new = set(partitions) - self._partitions
        await self._calls.add_partitions(self.producer, sorted(new))
        self._partitions |= new

    async def commit(self) -> None:
        assert self._calls
        assert self.producer
        if not self._calls.has_begun:  # there were no rows
            return
        if self._batch is not None:
            metadata = f"batch {self._batch}{PLANNED}{self._plan}" if self._plan else f"batch {self._batch}"
            number = CommittedOffset(self._batch, metadata)
            firsts = {topic: (topic, index) for topic, index in sorted(self._partitions, reverse=True)}
            await self._calls.commit_offsets(
                self.producer, self.transactional_id, dict.fromkeys(firsts.values(), number)
            )
        await self._calls.end(self.producer, commit=True)

    async def abort_if_open(self) -> None:
        """Have readers wait no longer. If this fails, the next InitProducerId does it, or the coordinator."""
        if self._calls and self._calls.has_begun:
            assert self.producer
            with suppress(KafkaError):
                await self._calls.end(self.producer, commit=False)

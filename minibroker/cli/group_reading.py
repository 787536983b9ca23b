"""Reading as a member of a group: what the coordinator gives, from where the group goes on; printed means committed.

What must hold: only what has been written out is committed, so whatever ends the command, the group goes on with the
first record that nobody has seen; what a member that was killed had written since its last commit is written again.
"""

from __future__ import annotations

from minibroker.cli.connect import Refused
from minibroker.cli.status import FAILED
from minibroker.client.groups import Groups
from minibroker.client.membership import OUTDATED, Membership
from minibroker.errors import KafkaError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from minibroker.client.cluster import Cluster, TopicPartition
    from minibroker.client.consumer import Consumer
    from minibroker.client.fetching import ConsumedRecord

COMMIT_MS = 5_000  # between two commits while there is more to read: auto.commit.interval.ms


class GroupReading:
    """A consumer that reads for a group."""

    def __init__(
        self, cluster: Cluster, consumer: Consumer, member: Membership, policy: str, say: Callable[[str], object]
    ):
        """policy: where to begin where nothing is committed, "earliest", "latest" or "error". say: to the user."""
        self._consumer = consumer
        self._member = member
        self._policy = policy
        self._say = say
        self._groups = Groups(cluster)
        self._clock = cluster.clock
        self._printed: dict[TopicPartition, int] = {}  # where each partition goes on
        self._committed: dict[TopicPartition, int] = {}
        self._commit_at_ms = 0

    async def keep_up(self, wait_ms: int) -> None:
        """Join if that is to be done, and wait a while if there is nothing to read."""
        self._member.check()
        if self._member.must_join:
            await self.commit()
            partitions = await self._member.join()
            await self._assign(partitions)
        elif not self._consumer.assignment():
            await self._member.wait(wait_ms)

    async def printed(self, unprinted: Iterable[ConsumedRecord], is_idle: bool) -> None:
        """Take note of what has been written out, all that was fetched but this; commit it now and then."""
        self._printed = {key: self._consumer.position(*key) for key in self._consumer.assignment()}
        for record in unprinted:
            key = (record.topic, record.partition)
            self._printed[key] = min(self._printed[key], record.offset)
        if is_idle or self._clock.now_ms() >= self._commit_at_ms:
            await self.commit()

    async def commit(self) -> None:
        """Commit what has been written out since the last time."""
        self._commit_at_ms = self._clock.now_ms() + COMMIT_MS
        offsets = {key: offset for key, offset in self._printed.items() if self._committed.get(key) != offset}
        if not offsets:
            return
        try:
            await self._member.commit(offsets)
        except KafkaError as error:
            if not {each.code for each in getattr(error, "errors", {0: error}).values()} <= OUTDATED:
                raise
            self._say(f"% {self._member.group} has gone on without this member: some records will be read again")
            self._printed = {}
        else:
            self._committed |= offsets

    async def _assign(self, partitions: list[TopicPartition]) -> None:
        found = await self._groups.fetch_offsets([self._member.group], partitions, stable=False) if partitions else {}
        offsets = {key: committed.offset for key, committed in found.get(self._member.group, {}).items()}
        if self._policy == "error" and (missing := [key for key in partitions if key not in offsets]):
            topic, partition = missing[0]
            reason = f"{self._member.group} has committed nothing for {topic}-{partition}; -o beginning or end"
            raise Refused(reason, FAILED)
        await self._consumer.assign([(*key, offsets.get(key, self._policy)) for key in partitions])
        self._committed, self._printed = offsets, {}
        given = ", ".join(f"{topic} [{partition}]" for topic, partition in partitions) or "nothing"
        self._say(f"% Group {self._member.group} rebalanced (memberid {self._member.id}): assigned: {given}")

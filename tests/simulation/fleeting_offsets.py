"""Offsets that go again: of a topic that is deleted and made anew, and those of which a commit says when they expire.

A stranger commits for a group without members and looks what is there; of one, somebody deletes and makes the topic.
G3 for these: nothing is gone before its time, an acknowledged commit is not followed by an older one, and an offset of
the topic before is none of the one that has its name now. In the end, when all is well, all has expired.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any

from minibroker.cluster.nodes import NoSuchBroker
from minibroker.errors import Error, KafkaError
from minibroker.protocol.messages.offset_commit import OffsetCommitRequest
from minibroker.protocol.messages.offset_fetch import OffsetFetchRequest

from .group_members import LAST_WITH_NAMES, Caller, _check
from .invariants import Violation
from .registers import NOTHING

if TYPE_CHECKING:
    from minibroker.broker.broker import Node

    from .group_run import Run

TOPIC = "passing"  # is deleted and made anew
LASTING = "lasting"
LAST_WITH_RETENTION = 4  # of OffsetCommit: says how long the offset is to be kept
RETENTION_MS, CHECK_MS = 5000, 1000
SLACK_S = 0.1


class Attempt:
    """A commit."""

    def __init__(self, start: float, is_of_last: bool):
        self.start = start
        self.is_of_last = is_of_last  # the coordinator knew the topic that had the name then
        self.end = inf  # nobody was told that it counts


class FleetingOffsets(Caller):
    """The stranger, and what it may find."""

    def __init__(self, run: Run, topic: str):
        name = f"of-{topic}"
        super().__init__(run.world, run.invariants, run.cluster.bootstrap_servers, name, name)
        self.run = run
        self.topic = topic
        self.expires = topic == LASTING  # such a commit does not say of which topic of the name it is
        self.attempts: list[Attempt] = []
        self.deleted = -inf  # when the topic was last deleted, or that was tried
        self.gone = -inf  # when it was

    @property
    def is_in_time(self) -> bool:
        """Whether the clocks of all brokers say the same, so that an offset is kept as long as was asked."""
        return not any(node.clock.skew_ms for node in self.run.cluster.nodes.values()) and not self.run.was_skewed

    # What is done

    async def go(self) -> None:
        while not self.run.is_over:
            try:
                await (self.commit_one() if self.chance.random() < 0.5 else self.look())
            except KafkaError as error:
                self.world.trace.add(f"{self}: {error}")
            await self.world.clock.sleep(self.chance.choice([300, 3000]) * self.chance.random())

    async def make_anew(self) -> None:
        """Delete the topic and make it again, now and then."""
        cluster = self.run.cluster
        while not self.run.is_quiet:
            await self.world.clock.sleep(self.chance.uniform(0, 15_000))
            for change in (self._delete, lambda: cluster.create_topic(TOPIC, 1)):
                try:
                    change()
                except (KafkaError, NoSuchBroker) as error:  # there is no controller, or it is done already
                    self.world.trace.add(f"-- {TOPIC}: {error}")
                await self.world.clock.sleep(self.chance.choice([0, 500]) * self.chance.random())

    def _delete(self) -> None:
        self.deleted = self.now
        self.run.cluster.delete_topic(TOPIC)
        self.gone = self.now

    async def commit_one(self) -> None:
        led = self.invariants.coordinator(self.group)
        attempt = Attempt(self.now, led is not None and self._knows_last(led.parts))
        self.attempts.append(attempt)
        Topic = OffsetCommitRequest.OffsetCommitRequestTopic
        row = Topic.OffsetCommitRequestPartition(
            partition_index=0, committed_offset=len(self.attempts) - 1, committed_metadata=""
        )
        request = OffsetCommitRequest(group_id=self.group, topics=[Topic(name=self.topic, partitions=[row])])
        if self.expires:
            request.retention_time_ms = RETENTION_MS
        answer = await self.ask(request, version=LAST_WITH_RETENTION if self.expires else LAST_WITH_NAMES)
        code = answer.topics[0].partitions[0].error_code
        if code == Error.NONE:
            attempt.end = self.now
        self.note(code)
        _check(code)

    async def look(self) -> None:
        led, began, attempts = self.invariants.coordinator(self.group), self.now, len(self.attempts)
        is_new = led is not None and self._knows_last(led.parts)
        deleted = self.deleted
        found = await self._fetch()
        if led is None or self.invariants.coordinator(self.group) is not led or led.parts.node_id != self.asked:
            return  # somebody who need not know that there is another coordinator
        if self.deleted != deleted:
            return
        self.invariants.checks += 1
        done = [number for number in range(attempts) if self.attempts[number].end < began]
        last = done[-1] if done else None
        if found == NOTHING:
            if last is None:
                return
            attempt = self.attempts[last]
            age_s = self.now - attempt.start
            has_expired = self.expires and (not self.is_in_time or age_s > RETENTION_MS / 1000 - SLACK_S)
            if attempt.is_of_last and attempt.start > self.deleted and not has_expired:
                raise Violation("G3", f"offset {last}, committed {age_s:.3f} s ago, is gone")
            return
        attempt = self.attempts[found]
        if last is not None and found < last and attempt.end < self.attempts[last].start:
            raise Violation("G3", f"found {found}, after {last} had been committed")
        if is_new and attempt.end < self.gone:
            raise Violation("G3", f"found {found}, committed of a topic that was deleted at {self.gone:.6f}")

    def _knows_last(self, node: Node) -> bool:
        """Whether a broker knows the topic that has the name by now."""
        last, known = (image.topics.get(TOPIC) for image in (self.run.cluster.controller.image, node.image))
        return last is not None and known is not None and last.id == known.id

    async def _fetch(self) -> int:
        Group: Any = OffsetFetchRequest.OffsetFetchRequestGroup
        wanted = [Group.OffsetFetchRequestTopics(name=self.topic, partition_indexes=[0])]
        request = OffsetFetchRequest(groups=[Group(group_id=self.group, topics=wanted)])
        answer = await self.ask(request, version=LAST_WITH_NAMES)
        found = answer.groups[0]
        self.note(found.error_code)
        _check(found.error_code)
        row = found.topics[0].partitions[0]
        _check(row.error_code)
        return int(row.committed_offset)

    async def end(self) -> None:
        """All is well by now: what was committed has expired."""
        if not self.expires:
            await self.client.close()
            return
        await self.world.clock.sleep(RETENTION_MS + 3 * CHECK_MS)
        for left in range(20, -1, -1):
            try:
                found = await self._fetch()
                break
            except KafkaError:
                if not left:
                    raise
                await self.world.clock.sleep(500)
        if found != NOTHING and self.is_in_time:
            raise Violation("G3", f"offset {found} has not expired")
        await self.client.close()

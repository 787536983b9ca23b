"""View of consumer groups for HTTP, Python and lessons: members, assignments, committed offsets, lag; and waits.

    seen = SeenGroups(events, lambda: {node.node_id: node}, lambda: node.image)
    seen.group("readers").partitions[0].lag_to_hw
    await seen.wait_group("readers", members=2, timeout_ms=5000)

Of each group the broker is asked that coordinates it, of each partition the replica that leads. Nothing asks again and
again: events say when to look, and patience is measured by the machine's clock, since the cluster's may be frozen.
What must hold: looking changes nothing. What cannot be known is None.
"""

from __future__ import annotations

from minibroker.clock import LoopClock
from minibroker.coordinator.hashing import partition_of
from minibroker.errors import Error, KafkaError, ProtocolError
from minibroker.groups import OFFSETS_TOPIC
from minibroker.groups.classic import ClassicGroup
from minibroker.groups.consumer_protocol import CONSUMER, read_assignment, read_subscription
from minibroker.groups.describe import described
from minibroker.groups.target import default_assignor
from minibroker.groups.view_rows import GroupMember, GroupPartition, GroupRow, GroupView

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from typing import Any

    from minibroker.broker.broker_parts import BrokerParts
    from minibroker.events import EventStream
    from minibroker.groups.classic_members import Member as ClassicMember
    from minibroker.groups.consumer import ConsumerGroup
    from minibroker.groups.offsets_partition import OffsetsPartition
    from minibroker.metadata.image import MetadataImage, Partition
    from minibroker.replication.replica import Replica

    Place = tuple[str, int]  # topic and partition

EMPTY, STABLE, DEAD = "Empty", "Stable", "Dead"
STATES = (EMPTY, "PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling", STABLE, DEAD)
# After these it is worth looking again: another broker may coordinate, or has read what there is.
MOVED = ("leader", "epoch", "metadata", "broker")
TIMEOUT_MS = 10_000
GROUP_KINDS, COMMIT_KINDS = ("group", *MOVED), ("commit", "group", *MOVED)


def check_state(state: str | None) -> None:
    if state is not None and state not in STATES:
        raise ValueError(f"{state!r} is no state of a group: there are {', '.join(STATES)}")


class SeenGroups:
    """The groups of the brokers of one cluster, or of one broker."""

    def __init__(
        self, events: EventStream, nodes: Callable[[], Mapping[int, BrokerParts]], image: Callable[[], MetadataImage]
    ):
        """nodes: by id; who does not run is left out of account. image: what is decided."""
        self._events = events
        self._nodes = nodes
        self._image = image

    # Looking

    def groups(self) -> list[GroupRow]:
        """Return all groups, by name."""
        return sorted(
            GroupRow(
                group.group_id,
                group.kind.capitalize(),
                group.protocol_type or "",
                group.state.name,
                len(group.member_ids),
                led.parts.node_id,
            )
            for led in self._led()
            for group in led.shard.shown()
        )

    def ids(self) -> Iterator[str]:
        """Yield the names of all groups."""
        return (group.group_id for led in self._led() for group in led.shard.shown())

    def row(self, group_id: str) -> list[object] | None:
        """Return what a list of groups shows of one, None if there is none, or nobody can tell."""
        led = self._led_of(group_id)
        group = None if led is None else led.shard.find_shown(group_id)
        if led is None or group is None:
            return None
        epoch, _ = _epoch_and_assignor(led, group)
        head = [group.kind.capitalize(), group.protocol_type or "", group.state.name, epoch]
        return [*head, len(group.member_ids), led.parts.node_id]

    def group(self, group_id: str) -> GroupView:
        """Return a group; KafkaError if there is none, or nobody can tell."""
        led = self._find(group_id)
        group = led.shard.find_shown(group_id)
        if group is None:
            raise _no_group(group_id)
        members = _classic_members(group) if isinstance(group, ClassicGroup) else _consumer_members(led, group)
        owners: dict[Place, GroupMember] = {place: member for member in members for place in member.assignment}
        committed = dict.fromkeys(led.shard.offsets.places(group_id))
        rows = []
        for place in sorted({*owners, *committed}):
            owner = owners.get(place)
            position = None if owner is None else self._position(place, owner)
            offset = self.committed(group_id, *place)
            rows.append(self._partition(place, owner, position, offset))
        epoch, assignor = _epoch_and_assignor(led, group)
        return GroupView(
            group_id,
            group.kind.capitalize(),
            group.protocol_type or "",
            group.state.name,
            epoch,
            assignor,
            led.parts.node_id,
            members,
            rows,
        )

    def committed(self, group_id: str, topic: str, partition: int = 0) -> int | None:
        """Return what a group has committed, None if nothing."""
        found = self._find(group_id).shard.offsets.find(group_id, topic, partition)
        return None if found is None else found.offset

    def coordinator(self, group_id: str) -> int:
        """Return the broker that coordinates a group, or would; -1 if none is ready to."""
        try:
            return self._find(group_id).parts.node_id
        except KafkaError:
            return -1

    def _led(self) -> Iterator[OffsetsPartition]:
        """Yield the partitions of the topic that some broker coordinates, and is to coordinate."""
        topic = self._image().topics.get(OFFSETS_TOPIC)
        for partition in topic.partitions if topic is not None else ():
            if (led := self._led_at(partition)) is not None:
                yield led

    def _led_at(self, partition: Partition) -> OffsetsPartition | None:
        node = self._nodes().get(partition.leader)
        if node is None or not node.is_ready or OFFSETS_TOPIC not in node.image.topics:
            return None
        led = node.groups.coordinator.led.get(partition.id)
        return None if led is None or led.is_loading else led

    def _led_of(self, group_id: str) -> OffsetsPartition | None:
        """Return the partition that a group falls on, if some broker coordinates it."""
        topic = self._image().topics.get(OFFSETS_TOPIC)
        if topic is None:
            return None
        return self._led_at(topic.partitions[partition_of(group_id, len(topic.partitions))])

    def _find(self, group_id: str) -> OffsetsPartition:
        topic = self._image().topics.get(OFFSETS_TOPIC)
        if topic is None:
            raise _no_group(group_id)
        led = self._led_of(group_id)
        if led is not None:
            led.check(group_id)  # its last rows may not be safe yet
            return led
        number = partition_of(group_id, len(topic.partitions))
        leader = topic.partitions[number].leader
        who = "nobody leads" if leader < 0 else f"broker {leader} has not read"
        raise KafkaError(
            Error.COORDINATOR_NOT_AVAILABLE, f"nobody knows of group {group_id!r}: {who} {OFFSETS_TOPIC}-{number}"
        )

    def _partition(
        self, place: Place, owner: GroupMember | None, position: int | None, offset: int | None
    ) -> GroupPartition:
        member = None if owner is None else owner.id
        replica = self._leader(*place)
        if replica is None:
            return GroupPartition(*place, member, position, offset, *[None] * 7)
        log, high_watermark = replica.log, replica.high_watermark
        ends = (log.last_stable_offset(high_watermark), high_watermark, log.log_end_offset)
        lags = [None if offset is None else max(end - offset, 0) for end in ends]
        return GroupPartition(*place, member, position, offset, log.log_start_offset, *ends, *lags)

    def _leader(self, topic: str, partition: int) -> Replica | None:
        found = self._image().topics.get(topic)
        if found is None or partition >= len(found.partitions):
            return None
        node = self._nodes().get(found.partitions[partition].leader)
        replica = None if node is None else node.replicas.get((topic, partition))
        return replica if replica is not None and replica.is_leader else None

    def _position(self, place: Place, member: GroupMember) -> int | None:
        """Return what a member's client fetches now, or has last.

        Fetch requests do not say which member they are of. So it has to be the only client of this name and address
        that reads the partition; of clients that share a name, and of those that have not asked yet, nothing is known.
        """
        topic = self._image().topics.get(place[0])
        keys = [(place[0], topic_id, place[1]) for topic_id in (bytes(16), topic.id if topic is not None else b"")]
        keys.append(("", keys[1][1], place[1]))
        found = []
        for node in self._nodes().values():
            for server in node.servers:
                for connection in server.connections:
                    last = getattr(connection, "last_fetch", None)  # who came by HTTP has none
                    if last is None or (last[0] or "", f"/{connection.remote_address[0]}") != member[2:4]:
                        continue
                    found += [last[1][key].fetch_offset for key in keys if key in last[1]]
        return found[0] if len(found) == 1 else None

    # Waiting

    async def wait_group(
        self, group: str, members: int | None = None, state: str | None = None, *, timeout_ms: float = TIMEOUT_MS
    ) -> GroupView:
        """Return a group as soon as it has so many members and a state; TimeoutError says how it is instead.

        By default it is to be stable with any members, or empty for members=0. Dead: there is none, or no more.
        """
        check_state(state)
        wanted = state or (EMPTY if members == 0 else STABLE)

        def has_it() -> bool:
            try:
                found = self._find(group).shard.find_shown(group)
            except KafkaError as error:
                return wanted == DEAD and error.code == Error.GROUP_ID_NOT_FOUND
            if found is None:
                return wanted == DEAD
            return found.state.name == wanted and members in (None, len(found.member_ids))

        def told() -> str:
            count = "" if members is None else f" with {_members(members)}"
            return f"group {group!r} {self._said(group)}, and not {wanted}{count}"

        clock = LoopClock()
        deadline_ms = clock.steady_ms() + timeout_ms
        while True:
            await self._until(has_it, GROUP_KINDS, deadline_ms - clock.steady_ms(), timeout_ms, told)
            if not has_it():  # it was so for a moment, and has gone on
                continue
            try:
                return self.group(group)
            except KafkaError:
                return GroupView(group, "", "", DEAD, -1, "", -1, [], [])

    async def wait_committed(
        self, group: str, topic: str, partition: int = 0, offset: int | None = None, *, timeout_ms: float = TIMEOUT_MS
    ) -> int:
        """Return what a group has committed as soon as it is so far, by default as soon as there is anything."""

        def found() -> int | None:
            try:
                return self.committed(group, topic, partition)
            except KafkaError:
                return None

        last: int | None = None

        def has_it() -> bool:
            nonlocal last
            last = found()
            return last is not None and (offset is None or last >= offset)

        def told() -> str:
            what = "nothing" if last is None else f"offset {last}"
            wanted = "" if offset is None else f", and not {offset}"
            return f"group {group!r} has committed {what} of {topic}-{partition}{wanted}; it {self._said(group)}"

        await self._until(has_it, COMMIT_KINDS, timeout_ms, timeout_ms, told)
        assert last is not None
        return last

    async def _until(
        self,
        condition: Callable[[], bool],
        kinds: Iterable[str],
        left_ms: float,
        timeout_ms: float,
        told: Callable[[], str],
    ) -> None:
        try:
            await self._events.wait_until(condition, kinds, timeout_ms=max(left_ms, 0))
        except TimeoutError:
            raise TimeoutError(f"not within {timeout_ms / 1000:g} s: {told()}") from None

    def _said(self, group_id: str) -> str:
        """Return how a group is, in words that follow its name."""
        try:
            found = self._find(group_id).shard.find(group_id)
        except KafkaError as error:
            return "does not exist" if error.code == Error.GROUP_ID_NOT_FOUND else f"is not known: {error.message}"
        if found is None:
            return "does not exist"
        return f"is {found.state.name} with {_members(len(found.member_ids))}"


def _no_group(group_id: str) -> KafkaError:
    return KafkaError(Error.GROUP_ID_NOT_FOUND, f"there is no group {group_id!r}")


def _members(count: int) -> str:
    return f"{count} member{'' if count == 1 else 's'}" if count else "no members"


def _epoch_and_assignor(led: OffsetsPartition, group: ClassicGroup | ConsumerGroup) -> tuple[int, str]:
    if isinstance(group, ClassicGroup):
        return group.generation, group.protocol or ""
    default = default_assignor(led.settings_of(group.group_id))
    return group.state.epoch, group.state.assignor(default)


def _classic_members(group: ClassicGroup) -> list[GroupMember]:
    is_known = group.state.name == STABLE and group.protocol_type == CONSUMER
    return [
        GroupMember(
            member.id,
            member.instance_id,
            member.client_id,
            member.client_host,
            group.generation,
            _assigned(member.assignment) if is_known else [],
            None,
            _believed(group, member),
        )
        for member in group.members
    ]


def _believed(group: ClassicGroup, member: ClassicMember) -> list[Place]:
    """Return what a member reads: it goes on until it joins again, and some do until they are given something else."""
    if group.protocol_type != CONSUMER:
        return []
    has_joined = member.joining is not None or member.id in group.members.unsynced or member.syncing is not None
    if not has_joined and member.assignment:
        return _assigned(member.assignment)
    subscription = read_subscription(member.protocols[0][1]) if member.protocols else None
    if subscription is None:
        return []
    return sorted((topic.topic, number) for topic in subscription.owned_partitions for number in topic.partitions)


def _assigned(data: bytes) -> list[Place]:
    """Return what a leader has given to a member; nothing if it said that in a way that is not known here."""
    try:
        topics = read_assignment(data).assigned_partitions
    except ProtocolError:
        return []
    return sorted((topic.topic, number) for topic in topics for number in topic.partitions)


def _consumer_members(led: OffsetsPartition, group: ConsumerGroup) -> list[GroupMember]:
    members = described(group, led.topics, led.settings_of(group.group_id)).members
    return [
        GroupMember(
            member.member_id,
            member.instance_id,
            member.client_id,
            member.client_host,
            member.member_epoch,
            _places(member.assignment),
            _places(member.target_assignment),
            _places(member.assignment),
        )
        for member in members
    ]


def _places(assignment: Any) -> list[Place]:
    return sorted((topic.topic_name, number) for topic in assignment.topic_partitions for number in topic.partitions)

"""Members of a classic group, and the answers that they wait for."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

from minibroker.errors import Error, KafkaError
from minibroker.protocol.messages.join_group import JoinGroupResponse
from minibroker.protocol.messages.sync_group import SyncGroupResponse
from minibroker.stored.group_offsets import GroupMetadataValue

JoinReply = Callable[[JoinGroupResponse], None]
SyncReply = Callable[[SyncGroupResponse], None]
Protocols = list[tuple[str, bytes]]  # what a member can do, the best first, and what it says for each


def join_refused(error: Error, member_id: str) -> JoinGroupResponse:
    return JoinGroupResponse(error_code=error, protocol_name=None, leader="", member_id=member_id, members=[])


def sync_refused(error: Error) -> SyncGroupResponse:
    return SyncGroupResponse(error_code=error, assignment=b"")


class Member:
    """One member."""

    __slots__ = (
        "assignment",
        "client_host",
        "client_id",
        "due_ms",
        "id",
        "instance_id",
        "is_new",
        "joining",
        "protocol_type",
        "protocols",
        "rebalance_timeout_ms",
        "session_timeout_ms",
        "syncing",
    )

    def __init__(
        self,
        member_id: str,
        instance_id: str | None,
        *,
        client_id: str,
        client_host: str,
        session_timeout_ms: int,
        rebalance_timeout_ms: int,
        protocol_type: str,
        protocols: Protocols,
    ):
        self.id = member_id
        self.instance_id = instance_id  # group.instance.id: it keeps its place while it restarts
        self.client_id = client_id
        self.client_host = client_host
        self.session_timeout_ms = session_timeout_ms
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.protocol_type = protocol_type
        self.protocols = protocols
        self.assignment = b""
        self.is_new = False  # it was never answered, so it may not know its id
        self.due_ms = 0  # when its session ends
        self.joining: JoinReply | None = None  # it waits to be told the generation
        self.syncing: SyncReply | None = None  # it waits for its assignment

    @property
    def name(self) -> str:
        """What people know it by, which others may be called too: its id has a random end."""
        return self.instance_id or self.client_id or self.id

    @property
    def is_waiting(self) -> bool:
        """Whether it waits for the others, and so is alive; one that was never answered may be gone."""
        return not self.is_new and (self.joining is not None or self.syncing is not None)

    def refuse(self, error: Error) -> None:
        """Tell it, if it waits for anything."""
        joining, syncing = self.joining, self.syncing
        self.joining = self.syncing = None
        if joining is not None:
            joining(join_refused(error, self.id))
        if syncing is not None:
            syncing(sync_refused(error))

    def metadata(self, protocol: str | None) -> bytes:
        return next((metadata for name, metadata in self.protocols if name == protocol), b"")

    def stored(self, protocol: str | None, assignment: bytes) -> GroupMetadataValue.MemberMetadata:
        return GroupMetadataValue.MemberMetadata(
            member_id=self.id,
            group_instance_id=self.instance_id,
            client_id=self.client_id,
            client_host=self.client_host,
            rebalance_timeout=self.rebalance_timeout_ms,
            session_timeout=self.session_timeout_ms,
            subscription=self.metadata(protocol),
            assignment=assignment,
        )

    @classmethod
    def from_stored(cls, value: GroupMetadataValue.MemberMetadata, protocol: str) -> Member:
        known = value.rebalance_timeout
        member = cls(
            value.member_id,
            value.group_instance_id,
            client_id=value.client_id,
            client_host=value.client_host,
            session_timeout_ms=value.session_timeout,
            rebalance_timeout_ms=value.session_timeout if known < 0 else known,
            protocol_type="",
            protocols=[(protocol, bytes(value.subscription))],
        )
        member.assignment = bytes(value.assignment)
        return member


class Members:
    """Those who are in, those who are about to be, and who leads them."""

    def __init__(self) -> None:
        self.leader: str | None = None
        self.pending: dict[str, int] = {}  # ids that were given out and have not joined yet, and until when they may
        self.unsynced: dict[str, None] = {}  # who has joined the generation and has not asked for its assignment
        self.joining_count = 0  # of those who wait to be told the generation
        self._by_id: dict[str, Member] = {}
        self._by_instance: dict[str, str] = {}
        self._speakers: dict[str, int] = {}  # by protocol how many members have it

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[Member]:
        return iter(self._by_id.values())

    def __contains__(self, member_id: str) -> bool:
        return member_id in self._by_id

    @property
    def ids(self) -> Collection[str]:
        return self._by_id.keys()

    def get(self, member_id: str) -> Member | None:
        return self._by_id.get(member_id)

    def of_instance(self, instance_id: str) -> Member | None:
        member_id = self._by_instance.get(instance_id)
        return None if member_id is None else self._by_id[member_id]

    def check(self, member_id: str, instance_id: str | None) -> Member:
        """Return a member; raise if there is none, or another one has taken its place."""
        if instance_id is not None:
            current = self._by_instance.get(instance_id)
            if current is not None and current != member_id:
                raise KafkaError(Error.FENCED_INSTANCE_ID, f"{instance_id} is {current} by now")
            if current is None:
                raise KafkaError(Error.UNKNOWN_MEMBER_ID, f"no member is called {instance_id}")
        member = self._by_id.get(member_id)
        if member is None:
            raise KafkaError(Error.UNKNOWN_MEMBER_ID, f"there is no member {member_id!r}")
        return member

    # Who is in

    def add(self, member: Member) -> None:
        self.pending.pop(member.id, None)
        self._by_id[member.id] = member
        self._count_protocols(member, 1)
        if member.joining is not None:
            self.joining_count += 1
        if member.instance_id is not None:
            self._by_instance[member.instance_id] = member.id
        if self.leader is None:
            self.leader = member.id

    def remove(self, member_id: str) -> Member:
        member = self._by_id.pop(member_id)
        self._count_protocols(member, -1)
        if member.joining is not None:
            self.joining_count -= 1
        self.unsynced.pop(member_id, None)
        if member.instance_id is not None and self._by_instance.get(member.instance_id) == member_id:
            del self._by_instance[member.instance_id]
        if self.leader == member_id:
            self.leader = next(iter(self._by_id), None)
        return member

    def replace(self, old: Member, new: Member) -> None:
        """Let a static member have the place of its former self; who still waits for an answer as that is fenced."""
        new.client_id, new.client_host, new.assignment = old.client_id, old.client_host, old.assignment
        was_leader = self.leader == old.id
        self.remove(old.id)
        old.refuse(Error.FENCED_INSTANCE_ID)
        self.add(new)
        if was_leader:
            self.leader = new.id

    def wait_for_join(self, member: Member, reply: JoinReply) -> None:
        """Let a member wait to be told the generation; whom it asked before nobody listens to."""
        before, member.joining = member.joining, reply
        if before is None:
            self.joining_count += 1
        else:
            before(join_refused(Error.UNKNOWN_MEMBER_ID, member.id))

    def take_reply(self, member: Member) -> JoinReply | None:
        """Return whom to tell that a member is in, if it waits for that; it does no more."""
        reply, member.joining = member.joining, None
        if reply is not None:
            self.joining_count -= 1
        return reply

    def change_protocols(self, member: Member, protocols: Protocols) -> None:
        self._count_protocols(member, -1)
        member.protocols = protocols
        self._count_protocols(member, 1)

    def _count_protocols(self, member: Member, by: int) -> None:
        for name in {name for name, _ in member.protocols}:
            count = self._speakers.get(name, 0) + by
            if count:
                self._speakers[name] = count
            else:
                del self._speakers[name]

    # What they have in common

    @property
    def have_all_joined(self) -> bool:
        return not self.pending and self.joining_count == len(self)

    @property
    def rebalance_timeout_ms(self) -> int:
        """How long everybody may take to join."""
        return max((each.rebalance_timeout_ms for each in self), default=0)

    def elect(self) -> bool:
        """Have a leader that has joined, the same one if possible; False if nobody has."""
        if self.leader is None or self._by_id[self.leader].joining is None:
            joined = next((each.id for each in self if each.joining is not None), None)
            if joined is None:
                return False
            self.leader = joined
        return True

    def have_all(self, protocol: str) -> bool:
        """Whether all members have a protocol; False if there are none."""
        return self._speakers.get(protocol, 0) == len(self) > 0

    def choose_protocol(self) -> str | None:
        """Return the one that most members want of those that all have; each votes for the first it can."""
        votes: dict[str, int] = {}
        for each in self:
            choice = next((name for name, _ in each.protocols if self.have_all(name)), None)
            if choice is not None:
                votes[choice] = votes.get(choice, 0) + 1
        return max(votes, key=lambda name: votes[name], default=None)

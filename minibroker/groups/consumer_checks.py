"""What a consumer group refuses, with the words that Kafka has for it."""

from __future__ import annotations

from minibroker.errors import Error, KafkaError
from minibroker.groups.consumer_member import JOINING, LEAVING, LEFT_FOR_A_WHILE, UNKNOWN_TIMEOUT, has_all

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from minibroker.groups.consumer_member import Member, Owned
    from minibroker.groups.consumer_state import ConsumerState
    from minibroker.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest

    CheckPartition = Callable[[str, bytes, int], None]  # name and id of the topic, partition: raises if refused

MEMBER_MAKES_ITS_ID_SINCE = 1
COMMIT_WITH_MEMBER_EPOCH_SINCE = 9
SPACES = "".join(map(chr, range(0x21)))  # what Java's trim() takes away


def check_heartbeat(request: ConsumerGroupHeartbeatRequest, version: int, assignors: Sequence[str]) -> None:
    """Refuse a request that contradicts itself."""
    epoch = request.member_epoch
    if version >= MEMBER_MAKES_ITS_ID_SINCE or epoch > JOINING or epoch == LEAVING:
        _check_not_empty(request.member_id, "MemberId")
    _check_not_empty(request.group_id, "GroupId")
    _check_not_empty(request.instance_id, "InstanceId")
    _check_not_empty(request.rack_id, "RackId")
    if epoch == JOINING:
        if request.rebalance_timeout_ms == UNKNOWN_TIMEOUT:
            raise KafkaError(Error.INVALID_REQUEST, "RebalanceTimeoutMs must be provided in first request.")
        if request.topic_partitions is None or request.topic_partitions:
            raise KafkaError(Error.INVALID_REQUEST, "TopicPartitions must be empty when (re-)joining.")
        if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
            words = "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining."
            raise KafkaError(Error.INVALID_REQUEST, words)
    elif epoch == LEFT_FOR_A_WHILE:
        if request.instance_id is None:
            raise KafkaError(Error.INVALID_REQUEST, "InstanceId can't be null.")
    elif epoch < LEFT_FOR_A_WHILE:
        raise KafkaError(Error.INVALID_REQUEST, "MemberEpoch is invalid.")
    if request.server_assignor is not None and request.server_assignor not in assignors:
        words = f"ServerAssignor {request.server_assignor} is not supported. "
        raise KafkaError(Error.UNSUPPORTED_ASSIGNOR, f"{words}Supported assignors: {', '.join(assignors)}.")


def _check_not_empty(text: str | None, name: str) -> None:
    if text is not None and not text.strip(SPACES):
        raise KafkaError(Error.INVALID_REQUEST, f"{name} can't be empty.")


def check_room(state: ConsumerState, member_id: str, instance_id: str | None, members_max: int) -> None:
    """Refuse one member too many; who takes the place of a static member needs no room."""
    if instance_id in state.static or len(state.members) < members_max or member_id in state.members:
        return
    words = f"The consumer group has reached its maximum capacity of {members_max} members."
    raise KafkaError(Error.GROUP_MAX_SIZE_REACHED, words)


def get_member(state: ConsumerState, member_id: str) -> Member:
    member = state.members.get(member_id)
    if member is None:
        words = f"Member {member_id} is not a member of group {state.group_id}."
        raise KafkaError(Error.UNKNOWN_MEMBER_ID, words)
    return member


def get_static_member(state: ConsumerState, instance_id: str, member_id: str) -> Member:
    """Return the member of an instance; raise if somebody else has taken its place."""
    member = state.static_member(instance_id)
    if member is None:
        raise KafkaError(Error.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
    check_not_replaced(member, instance_id, member_id)
    return member


def check_not_replaced(member: Member, instance_id: str, member_id: str) -> None:
    if member.member_id != member_id:
        words = f"Static member {member_id} with instance id {instance_id} was fenced by member {member.member_id}."
        raise KafkaError(Error.FENCED_INSTANCE_ID, words)


def check_released(member: Member, instance_id: str, member_id: str) -> None:
    """Refuse to take the place of a static member that has not left."""
    if member.epoch != LEFT_FOR_A_WHILE:
        words = f"Static member {member_id} with instance id {instance_id} cannot join the group because the instance "
        raise KafkaError(Error.UNRELEASED_INSTANCE_ID, f"{words}id is owned by {member.member_id} member.")


def check_epoch(member: Member, epoch: int, owned: Owned | None) -> None:
    """Refuse an epoch the member is not at.

    The one before is taken too if the member owns no more than it was given then: the last answer may be lost.
    """
    if epoch in (JOINING, member.epoch):
        return
    which = "greater" if epoch > member.epoch else "smaller"
    is_repeat = epoch < member.epoch and epoch == member.previous_epoch
    if is_repeat and owned is not None and has_all(member.held, owned):
        return
    words = f"The consumer group member has a {which} member epoch ({epoch}) than the one known by the group "
    words += f"coordinator ({member.epoch}). The member must abandon all its partitions and rejoin."
    raise KafkaError(Error.FENCED_MEMBER_EPOCH, words)


# Offsets


def check_commit(
    state: ConsumerState, member_id: str, instance_id: str | None, epoch: int, *, is_transactional: bool, version: int
) -> CheckPartition | None:
    """Refuse a commit, or return what each of its partitions must pass; None: nothing.

    An older epoch than the member's will do for what the member already had then and still has (KIP-1251).
    """
    if epoch < 0 and not state.members:
        return None
    if is_transactional and epoch == -1 and not member_id and instance_id is None:
        return None
    member = get_member(state, member_id)
    if not is_transactional and member.classic is None and version < COMMIT_WITH_MEMBER_EPOCH_SINCE:
        words = "OffsetCommit version 9 or above must be used by members using the consumer group protocol"
        raise KafkaError(Error.UNSUPPORTED_VERSION, words)
    if epoch == member.epoch:
        return None
    code, what = _by_protocol(member)
    if epoch > member.epoch:
        raise KafkaError(code, f"Received {what} {epoch} is newer than current member epoch {member.epoch}.")

    def check_partition(topic: str, topic_id: bytes, partition: int) -> None:
        given = member.held.get(topic_id, {}).get(partition)
        if given is None:
            given = member.to_revoke.get(topic_id, {}).get(partition)
        if given is None:
            words = f"Partition {topic}-{partition} is not assigned or pending revocation for member."
            raise KafkaError(code, words)
        if epoch < given:
            words = f"Received {what} {epoch} is older than assignment epoch {given} for partition {topic}-{partition}."
            raise KafkaError(code, words)

    return check_partition


def check_fetch(state: ConsumerState, member_id: str | None, epoch: int) -> None:
    """Refuse to show offsets to a member that is not at this epoch; who names no member may see them."""
    if member_id is None and epoch < 0:
        return
    member = get_member(state, member_id or "")
    if epoch != member.epoch:
        code, what = _by_protocol(member)
        raise KafkaError(code, f"The received {what} {epoch} does not match the expected member epoch {member.epoch}.")


def _by_protocol(member: Member) -> tuple[Error, str]:
    if member.classic is not None:
        return Error.ILLEGAL_GENERATION, "generation id"
    return Error.STALE_MEMBER_EPOCH, "member epoch"

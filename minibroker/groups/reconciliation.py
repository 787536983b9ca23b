"""The next step of a member towards its target assignment (KIP-848).

    STABLE ---- a newer target ----> to give up anything? -- yes --> UNREVOKED: the old epoch, less partitions
                                        |                                |
                                        no  <--- it owns them no more ---+
                                        v
                            all free that it is to get? -- no --> UNRELEASED: the new epoch, the rest comes later
                                        |                                |
                                        yes <--- released by others -----+
                                        v
                                     STABLE: the new epoch

What must hold: a partition goes to a member only when no other member has it or has still to confirm that it gave it
up; a member's epoch rises only when it owns nothing that the target takes away.
Not here: what the target is (target.py).
"""

from __future__ import annotations

from minibroker.errors import Error, KafkaError
from minibroker.groups.consumer_member import STABLE, UNKNOWN, UNRELEASED, UNREVOKED, has_any

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from minibroker.groups.consumer_member import Held, Member, Owned

    Target = Mapping[bytes, Collection[int]]
    IsOwned = Callable[[bytes, int], bool]


class Step:
    """What a member's step depends on."""

    __slots__ = ("is_owned", "owned", "subscribed", "target", "target_epoch", "wants_any")

    def __init__(
        self,
        target_epoch: int,
        target: Target,
        *,
        subscribed: Collection[bytes],
        wants_any: bool,
        is_owned: IsOwned,
        owned: Owned | None,
    ):
        self.target_epoch = target_epoch
        self.target = target
        self.subscribed = subscribed  # ids of the topics that the member wants and that exist
        self.wants_any = wants_any  # whether it wants topics at all, though they may not exist
        self.is_owned = is_owned  # whether somebody has a partition, or has still to give it up
        self.owned = owned  # what the member says it owns; None: it did not say, so it may own all

    def of(self, member: Member, has_subscription_changed: bool) -> Member:
        """Return the member after the step, the same one if there is nothing to do."""
        state = member.state
        if state == UNKNOWN:
            # A later release wrote a state that this one does not know. It starts from nothing.
            if self.owned is None or list(self.owned):
                words = "The consumer group member is in a unknown state. "
                raise KafkaError(
                    Error.FENCED_MEMBER_EPOCH, words + "The member must abandon all its partitions and rejoin."
                )
            return self._towards_target(member, self.target_epoch)
        waits = state == UNREVOKED and self._owns(member.to_revoke)
        if waits or (state == STABLE and member.epoch == self.target_epoch):
            return self._without_unwanted(member) if has_subscription_changed else member
        return self._towards_target(member, member.epoch)

    def _owns(self, held: Held) -> bool:
        return self.owned is None or has_any(held, self.owned)

    def _without_unwanted(self, member: Member) -> Member:
        """Take away at once what the member no longer wants: it need not wait for a new target."""
        unwanted = {topic_id: parts for topic_id, parts in member.held.items() if topic_id not in self.subscribed}
        if not unwanted and (self.wants_any or member.to_revoke):
            return member
        held = {topic_id: parts for topic_id, parts in member.held.items() if topic_id not in unwanted}
        to_revoke = dict(member.to_revoke)
        for topic_id, parts in unwanted.items():
            to_revoke[topic_id] = {**to_revoke.get(topic_id, {}), **parts}
        if to_revoke and self._owns(to_revoke):
            return _moved(member, member.epoch, UNREVOKED, held, to_revoke)
        return _moved(member, member.epoch, member.state, held, member.to_revoke)

    def _towards_target(self, member: Member, epoch: int) -> Member:
        """Revoke first; then take what is free. epoch: that the member keeps while it revokes."""
        held: dict[bytes, dict[int, int]] = {}
        to_revoke: dict[bytes, dict[int, int]] = {}
        to_get: dict[bytes, set[int]] = {}
        is_complete = True
        for topic_id in dict.fromkeys([*self.target, *member.held]):
            target = set(self.target.get(topic_id, ())) if topic_id in self.subscribed else set()
            parts = member.held.get(topic_id, {})
            kept = {partition: since for partition, since in parts.items() if partition in target}
            lost = {partition: since for partition, since in parts.items() if partition not in target}
            missing = target - kept.keys()
            mine = member.to_revoke.get(topic_id, {})
            free = {partition for partition in missing if partition in mine or not self.is_owned(topic_id, partition)}
            is_complete = is_complete and free == missing
            for place, found in ((held, kept), (to_revoke, lost)):
                if found:
                    place[topic_id] = found
            if free:
                to_get[topic_id] = free
        if to_revoke and self._owns(to_revoke):
            return _moved(member, epoch, UNREVOKED, held, to_revoke)
        for topic_id, free in to_get.items():
            held.setdefault(topic_id, {}).update(dict.fromkeys(free, self.target_epoch))
        return _moved(member, self.target_epoch, STABLE if is_complete else UNRELEASED, held, {})


def _moved(member: Member, epoch: int, state: int, held: Held, to_revoke: Held) -> Member:
    return member._replace(epoch=epoch, previous_epoch=member.epoch, state=state, held=held, to_revoke=to_revoke)

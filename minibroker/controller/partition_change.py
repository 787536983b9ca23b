"""What becomes of one partition: its replicas, who is in sync, who is eligible, who leads. One record, or none.

    change = PartitionChange(controller, topic, partition)
    change.isr = [2, 3]               what the caller wants
    record = change.record()          what follows from it: the leader, the eligible ones, the end of a reassignment

Every change of a partition goes through here: brokers that come and go, AlterPartition, elections, reassignments.
The rules are those of Kafka's PartitionChangeBuilder, in its order, for each looks at what the one before has decided.

What must hold afterwards: the leader is in the ISR or there is none; the ISR is a part of the replicas, the ELR has
nobody of the ISR (but may have one that is a replica no more, as with Kafka, and that never leads); a new leader, also
nobody, is a new leader epoch; every change is a new partition epoch.
Not here: whether the wish may be fulfilled at all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from minibroker.controller.controller import Controller
from minibroker.controller.placement import default_directory, is_active
from minibroker.metadata.features import DIRECTORIES, ISR_SHRINKS_SILENTLY
from minibroker.metadata.image import (
    LOST_DIRECTORY,
    NO_LEADER,
    NO_LEADER_CHANGE,
    UNASSIGNED_DIRECTORY,
    UNSPECIFIED_DIRECTORY,
    MetadataImage,
    Partition,
    Topic,
)
from minibroker.stored.kinds import MetadataRecord

# Who may lead. All three keep a leader that is fine, but for PREFERRED, which gives way to the first replica.
PREFERRED = "preferred"
ONLINE = "online"  # the first replica that is alive and in sync, or eligible when nobody is in sync
UNCLEAN = "unclean"  # as a last resort any that is alive, with what it has
RECOVERED, RECOVERING = 0, 1  # leader recovery state


class PartitionChange:
    """A wish for a partition; the attributes begin as what is there now, and may be set before `record`."""

    def __init__(
        self,
        controller: Controller,
        topic: Topic,
        before: Partition,
        *,
        election: str | None = None,
        is_alive: Callable[[int], bool] | None = None,
        lossy: int | None = None,
    ):
        """election: by default what the topic allows.

        is_alive: who counts as alive, if not every active broker. lossy: has lost records, is not eligible.
        """
        self.controller = controller
        self.topic = topic
        self.before = before
        self.election = election or (UNCLEAN if controller.elects_uncleanly(topic) else ONLINE)
        self.lossy = lossy
        self.isr = before.isr
        self.replicas = before.replicas
        self.adding = before.adding
        self.removing = before.removing
        self.recovery_state = before.leader_recovery_state
        self.directories = dict(zip(before.replicas, before.directories))  # of each replica
        self.why = ""  # of this partition alone, if whoever writes the record has no better reason for all of them
        self._elr = before.elr
        self._is_alive = is_alive or (lambda broker: is_active(controller.image, broker))

    def record(self) -> MetadataRecord | None:
        """Return the record, None if nothing changes."""
        from minibroker.stored.topics import PartitionChangeRecord

        self._complete_reassignment()
        self._find_eligible()
        changes = self._led()
        self._take_members(changes)
        self._take_last_leader(changes)
        self._take_assignment(changes)
        if self.recovery_state != self.before.leader_recovery_state:
            changes["leader_recovery_state"] = self.recovery_state
        if not changes:
            return None
        changes.setdefault("leader", NO_LEADER_CHANGE)
        record = PartitionChangeRecord(partition_id=self.before.id, topic_id=self.topic.id, **changes)  # type: ignore[arg-type]
        if self.why:
            record.why = self.why  # type: ignore[misc]
        return record

    # What follows, in this order

    def _complete_reassignment(self) -> None:
        """Let the old replicas go once the new ones are in sync.

        A replica that stays may lag, for it did before; but where there are fewer replicas than before, none may.
        Kafka: in 3.9 all that stay had to be in sync, so a broker that was down stopped every move.
        """
        if not self.adding and not self.removing:
            return
        isr = [broker for broker in self.isr if broker not in self.removing]
        replicas = [broker for broker in self.replicas if broker not in self.removing]
        awaited = {*self.adding, *(replicas if len(self.adding) < len(self.removing) else ())}
        if isr and replicas and awaited <= set(isr):
            self.isr, self.replicas = isr, replicas
            self.adding, self.removing = [], []
            done = f"the move to brokers {','.join(map(str, replicas))} is complete"
            self.why = f"{self.why}; with that {done}" if self.why else done

    def _find_eligible(self) -> None:
        """Remember who leaves an ISR that is too small: it has every record that was committed (KIP-966)."""
        if not self.controller.has_elr:
            return
        if len(self.isr) >= self.controller.min_in_sync(self.topic):
            self._elr = []
        else:
            candidates = {*self._elr, *self.before.isr}
            self._elr = [broker for broker in sorted(candidates) if broker not in self.isr and broker != self.lossy]

    def _led(self) -> dict[str, object]:
        changes: dict[str, object] = {}
        leader, is_unclean = self._elect()
        if leader != self.before.leader:
            changes["leader"] = leader
            if leader in self._elr:
                self.isr = [leader]
                self._elr = [broker for broker in self._elr if broker != leader]
            if is_unclean:
                changes["isr"] = [leader]
                if self.before.leader_recovery_state != RECOVERING:
                    changes["leader_recovery_state"] = RECOVERING
        elif not set(self.before.replicas) <= set(self.replicas):
            changes["leader"] = self.before.leader  # a new epoch: replicas that have been dropped are to notice
        return changes

    def _take_members(self, changes: dict[str, object]) -> None:
        has_elr = self.controller.has_elr
        if "isr" in changes or not has_elr:
            self._elr = []
        if self._elr != self.before.elr:
            changes["eligible_leader_replicas"] = self._elr
        # Only where replicas can be eligible without being in sync does nobody stay in sync.
        if "isr" not in changes and self.isr != self.before.isr and (self.isr or has_elr):
            changes["isr"] = self.isr
        if (
            self.controller.image.metadata_version < ISR_SHRINKS_SILENTLY
            and "leader" not in changes
            and "isr" in changes
            and not set(self.before.isr) <= set(self.isr)
        ):
            changes["leader"] = self.before.leader  # KAFKA-15021: brokers before 3.6 must be told by a new epoch

    def _take_last_leader(self, changes: dict[str, object]) -> None:
        """Remember who led last when nobody is left, for it may be the only one that has everything."""
        if not self.controller.has_elr:
            return
        leader = changes.get("leader", NO_LEADER_CHANGE)
        if leader == NO_LEADER and not self.before.last_known_elr:
            changes["last_known_elr"] = [self.before.leader]
        elif leader not in (NO_LEADER, NO_LEADER_CHANGE) and self.before.last_known_elr:
            changes["last_known_elr"] = []

    def _take_assignment(self, changes: dict[str, object]) -> None:
        before, image = self.before, self.controller.image
        if image.metadata_version >= DIRECTORIES:
            known = self.directories
            directories = [
                known[broker] if broker in known else default_directory(image, broker) for broker in self.replicas
            ]
            if directories != before.directories:
                changes["directories"] = directories
        for name, value, old in (
            ("replicas", self.replicas, before.replicas),
            ("removing_replicas", self.removing, before.removing),
            ("adding_replicas", self.adding, before.adding),
        ):
            if value != old:
                changes[name] = value

    # Elections

    def _elect(self) -> tuple[int, bool]:
        """Return who leads, and whether records that were committed may be lost by it."""
        first = [self.before.leader, *self.replicas]
        if self.election == PREFERRED:
            first = [self.replicas[0], *first]
        for broker in first:
            if broker in (self.isr or self._elr) and self._may_lead(broker):
                return broker, False
        # Kafka: waits also for an eligible one that is a replica no more, for ever.
        is_anyone_left = self.isr or any(broker in self.replicas for broker in self._elr)
        if self.controller.has_elr and not is_anyone_left and len(self.before.last_known_elr) == 1:
            # Better the one that led last, with what it has kept, than nobody.
            last = self.before.last_known_elr[0]
            if self._may_lead(last):
                return last, True
        if self.election == UNCLEAN:
            for broker in self.replicas:
                if self._may_lead(broker):
                    return broker, True
        return NO_LEADER, False

    def _may_lead(self, broker: int) -> bool:
        # Kafka: fails with UNKNOWN_SERVER_ERROR where the last leader is a replica no more, and unfences nobody.
        if broker not in self.controller.image.brokers or broker not in self.directories:
            return False
        return self._is_alive(broker) and is_online(self.controller.image, broker, self.directories[broker])


def is_online(image: MetadataImage, broker: int, directory: bytes) -> bool:
    """Return whether a log directory of a broker works, as far as is known."""
    if directory in (UNSPECIFIED_DIRECTORY, UNASSIGNED_DIRECTORY):
        return True
    working = image.brokers[broker].log_dirs
    return directory != LOST_DIRECTORY and (not working or directory in working)


def changes_of(
    controller: Controller,
    concerned: Iterable[tuple[Topic, Partition]],
    *,
    gone: int | None = None,
    back: int | None = None,
    lossy: int | None = None,
) -> list[MetadataRecord]:
    """Return what changes in partitions when a broker goes, comes back, or turns out to have lost records."""

    def is_alive(broker: int) -> bool:
        return broker not in (gone, lossy) and (broker == back or is_active(controller.image, broker))

    records = []
    for topic, partition in concerned:
        change = PartitionChange(controller, topic, partition, is_alive=is_alive, lossy=lossy)
        change.isr = [broker for broker in partition.isr if broker not in (gone, lossy)]
        record = change.record()
        if record is not None:
            records.append(record)
    return records


def partitions_where(image: MetadataImage, concerns: Callable[[Partition], bool]) -> list[tuple[Topic, Partition]]:
    return [(topic, each) for topic in image.topics.values() for each in topic.partitions if concerns(each)]

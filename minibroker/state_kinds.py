"""Kinds of events that say what else has changed of the state of a cluster: replicas, settings, members, coordinators.

With those of event_kinds.py every change of what view/feed.py keeps rows of has an event. Nobody imports this but that
module, which hands them on.
"""

from __future__ import annotations

from minibroker.events import Event, PartitionEvent


def brokers_text(ids: tuple[int, ...]) -> str:
    return ",".join(map(str, ids)) or "nobody"


class Replicas(
    PartitionEvent,
    kind="replicas",
):
    """The replicas of a partition, their order, or who of them may be elected without being in sync; `broker` leads."""

    before: tuple[int, ...]
    after: tuple[int, ...]  # the first is the preferred leader
    adding: tuple[int, ...]
    removing: tuple[int, ...]
    eligible: tuple[int, ...]  # the ELR (KIP-966)
    partition_epoch: int
    why: str

    @property
    def line(self) -> str:
        more = [f" {name}={brokers_text(ids)}" for name, ids in self._parts() if ids]
        change = f"{brokers_text(self.before)}->{brokers_text(self.after)}"
        return f"replicas {self.topic}-{self.partition} {change}{''.join(more)}"

    def _parts(self) -> tuple[tuple[str, tuple[int, ...]], ...]:
        return (("adding", self.adding), ("removing", self.removing), ("eligible", self.eligible))

    @property
    def sentence(self) -> str:
        moved = "" if self.before == self.after else f" and no longer {brokers_text(self.before)}"
        more = [f"{brokers_text(ids)} {'is' if len(ids) == 1 else 'are'} {what}" for what, ids in self._said() if ids]
        return (
            f"Partition {self.topic}-{self.partition} is to have its replicas on {brokers_text(self.after)}{moved}"
            f"{''.join(f'; {each}' for each in more)}, because {self.why}."
        )

    def _said(self) -> tuple[tuple[str, tuple[int, ...]], ...]:
        eligible = "not in sync and may be elected all the same"
        return (("being added", self.adding), ("being removed", self.removing), (eligible, self.eligible))


class Config(
    Event,
    kind="config",
    line="config {e.resource} {e.name} {e.key} {e.before!r}->{e.after!r}",
):
    """A setting of a topic, a broker or a group was changed."""

    resource: str  # topic, broker, group or client-metrics
    name: str  # "": of all brokers
    key: str
    before: str | None  # None: it had none of its own
    after: str | None  # None: the default counts again. Of secrets both are ***
    why: str = "somebody asked for it"

    @property
    def sentence(self) -> str:
        who = f"{self.resource} {self.name}" if self.name else f"all {self.resource}s"
        now = "is its default again" if self.after is None else f"is {self.after}"
        before = "" if self.before is None else f", and was {self.before}"
        return f"The setting {self.key} of {who} {now}{before}, because {self.why}."


class GroupMembers(
    Event,
    kind="members",
    line="members b{e.broker} {e.group} epoch={e.epoch}",
):
    """The members of a group, or what they have, as its coordinator sees it."""

    broker: int
    group: str
    epoch: int  # of a classic group the generation
    members: tuple[tuple[object, ...], ...]  # of each its id, client id, epoch, and what it has: orders-0, ...

    @property
    def sentence(self) -> str:
        who = "; ".join(f"{each[1]} has {', '.join(map(str, each[3:])) or 'nothing'}" for each in self.members)
        return f"In epoch {self.epoch} of group {self.group}, as broker {self.broker} sees it: {who or 'nobody'}."


class Coordination(
    PartitionEvent,
    kind="coordinator",
    line="coordinator b{e.broker} {e.topic}-{e.partition} {e.state}",
    sentence="Broker {e.broker} {e.state} {e.topic}-{e.partition}, whose groups or transactions it coordinates.",
):
    """A broker reads a partition of a state topic, has read it, or coordinates it no more."""

    state: str  # "reads", "has read" or "has given up"

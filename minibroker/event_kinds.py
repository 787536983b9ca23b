"""The kinds of events: what can be seen of a cluster while it runs.

Each has fields, a short line for scenarios and traces, and a sentence for people; `why` is a clause that follows
"because", written by who knew the reason. Broker -1 is nobody.
"""

from __future__ import annotations

from minibroker.audit_kinds import Administration as Administration
from minibroker.audit_kinds import Allowed as Allowed
from minibroker.audit_kinds import Certificate as Certificate
from minibroker.audit_kinds import Denied as Denied
from minibroker.audit_kinds import Login as Login
from minibroker.events import Event
from minibroker.events import PartitionEvent as PartitionEvent
from minibroker.state_kinds import Config as Config
from minibroker.state_kinds import Coordination as Coordination
from minibroker.state_kinds import GroupMembers as GroupMembers
from minibroker.state_kinds import Replicas as Replicas
from minibroker.state_kinds import brokers_text
from minibroker.trouble_kinds import Clock as Clock
from minibroker.trouble_kinds import DiskChange as DiskChange
from minibroker.trouble_kinds import Link as Link
from minibroker.trouble_kinds import delay_text as delay_text


def _s(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


# Records


class Append(
    PartitionEvent,
    kind="append",
    line="append b{e.broker} {e.topic}-{e.partition} offsets={e.first_offset}..{e.last_offset} leo={e.end_offset}",
):
    """Records were added to a log."""

    first_offset: int
    last_offset: int
    leader_epoch: int
    size_bytes: int
    origin: str = "producer"  # or "leader", or "coordinator"

    @property
    def end_offset(self) -> int:
        return self.last_offset + 1

    @property
    def sentence(self) -> str:
        count = _s(self.last_offset - self.first_offset + 1, "record")
        by = "copied from its leader" if self.origin == "leader" else f"that came from a {self.origin}"
        return (
            f"Broker {self.broker} appended {count} {by} to {self.topic}-{self.partition}; its log ends at "
            f"{self.end_offset} now, in leader epoch {self.leader_epoch}."
        )


class Truncate(
    PartitionEvent,
    kind="truncate",
    line="truncate b{e.broker} {e.topic}-{e.partition} from={e.from_offset} to={e.to_offset}",
    sentence="Broker {e.broker} cut {e.topic}-{e.partition} from {e.from_offset} back to {e.to_offset}, "
    "because {e.why}.",
):
    """A follower took back what its leader never had."""

    from_offset: int  # where the log ended
    to_offset: int  # where it ends now
    why: str


class Recover(
    PartitionEvent,
    kind="recover",
    line="recover b{e.broker} {e.topic}-{e.partition} leo={e.end_offset} cut={e.cut_bytes}",
):
    """A log was read again after a crash."""

    end_offset: int
    cut_bytes: int
    why: str = ""

    @property
    def sentence(self) -> str:
        cut = f"cut off {self.cut_bytes} bytes, because {self.why}" if self.cut_bytes else "found nothing broken"
        return (
            f"Broker {self.broker} recovered {self.topic}-{self.partition} after a crash and {cut}; "
            f"the log ends at {self.end_offset}."
        )


class Roll(
    PartitionEvent,
    kind="roll",
    line="roll b{e.broker} {e.topic}-{e.partition} base={e.base_offset}",
    sentence="Broker {e.broker} began a new segment of {e.topic}-{e.partition} at offset {e.base_offset}, "
    "because {e.why}.",
):
    """A new segment is the active one."""

    base_offset: int
    why: str


class Delete(
    PartitionEvent,
    kind="delete",
    line="delete b{e.broker} {e.topic}-{e.partition} start={e.start_offset}",
    sentence="Broker {e.broker} let {e.topic}-{e.partition} begin at offset {e.start_offset}, because {e.why}.",
):
    """Records at the beginning are gone."""

    start_offset: int
    why: str


class Retention(
    PartitionEvent,
    kind="retention",
    line="retention b{e.broker} {e.topic}-{e.partition} segments={e.segments} bytes={e.size_bytes} "
    "start={e.start_offset}",
):
    """Whole segments at the beginning were let go."""

    segments: int
    size_bytes: int
    start_offset: int
    why: str

    @property
    def sentence(self) -> str:
        return (
            f"Broker {self.broker} removed {_s(self.segments, 'segment')} ({_s(self.size_bytes, 'byte')}) of "
            f"{self.topic}-{self.partition}, which begins at offset {self.start_offset} now, because {self.why}."
        )


class CompactionBegin(
    PartitionEvent,
    kind="compaction_begin",
    line="compaction_begin b{e.broker} {e.topic}-{e.partition} dirty={e.first_dirty}..{e.end_offset} "
    "ratio={e.dirty_ratio}",
    sentence="Broker {e.broker} begins to compact {e.topic}-{e.partition} up to offset {e.end_offset}; what came since "
    "offset {e.first_dirty} has not been compacted yet, {e.dirty_ratio:.0%} of the bytes. Now, because {e.why}.",
):
    """A pass of the cleaner over a log began."""

    first_dirty: int
    end_offset: int  # it goes no further
    dirty_ratio: float
    why: str


class Compaction(
    PartitionEvent,
    kind="compaction",
    line="compaction b{e.broker} {e.topic}-{e.partition} end={e.end_offset} records={e.records_before}->"
    "{e.records_after} bytes={e.bytes_before}->{e.bytes_after} segments={e.segments_before}->{e.segments_after}",
):
    """A pass of the cleaner over a log is done."""

    end_offset: int  # the first that is dirty now
    bytes_before: int
    bytes_after: int
    records_before: int
    records_after: int
    segments_before: int
    segments_after: int

    @property
    def sentence(self) -> str:
        return (
            f"Broker {self.broker} compacted {self.topic}-{self.partition} up to offset {self.end_offset}: of "
            f"{_s(self.records_before, 'record')} in {_s(self.segments_before, 'segment')} ({self.bytes_before} bytes) "
            f"{self.records_after} are left, in {_s(self.segments_after, 'segment')} ({self.bytes_after} bytes)."
        )


class CompactionGivenUp(
    PartitionEvent,
    kind="compaction_given_up",
    line="compaction_given_up b{e.broker} {e.topic}-{e.partition}",
    sentence="Broker {e.broker} gave up compacting {e.topic}-{e.partition}, because {e.why}.",
):
    """A pass of the cleaner ended before it was done; what it had finished stays."""

    why: str


class Uncleanable(
    PartitionEvent,
    kind="uncleanable",
    line="uncleanable b{e.broker} {e.topic}-{e.partition}",
    sentence="Broker {e.broker} compacts {e.topic}-{e.partition} no more until it starts again, because {e.why}.",
):
    """A log cannot be compacted, so it is left alone."""

    why: str


class Loss(
    PartitionEvent,
    kind="loss",
    line="loss b{e.broker} {e.topic}-{e.partition} offsets={e.first_offset}..{e.last_offset}",
):
    """An election lost records that had been committed: an unclean one, or of a leader whose disk had lost them.

    `broker` is the one that leads now.
    """

    first_offset: int
    last_offset: int
    why: str

    @property
    def sentence(self) -> str:
        where = f"of {self.topic}-{self.partition}"
        if self.first_offset == self.last_offset:
            return f"Offset {self.first_offset} {where} is lost, because {self.why}."
        return f"Offsets {self.first_offset} to {self.last_offset} {where} are lost, because {self.why}."


# Replication


class HighWatermark(
    PartitionEvent,
    kind="high_watermark",
    line="hw b{e.broker} {e.topic}-{e.partition} {e.previous}->{e.offset}",
    sentence="Broker {e.broker} moved the high watermark of {e.topic}-{e.partition} from {e.previous} to {e.offset}, "
    "because {e.why}.",
):
    """A replica learned that more records are on every replica in sync."""

    previous: int
    offset: int
    why: str


class LastStableOffset(
    PartitionEvent,
    kind="last_stable_offset",
    line="lso b{e.broker} {e.topic}-{e.partition} {e.previous}->{e.offset}",
    sentence="On broker {e.broker} consumers of committed transactions read {e.topic}-{e.partition} up to offset "
    "{e.offset} now, and not only to {e.previous}, because {e.why}.",
):
    """The last stable offset of a replica rose where it lags, or lagged, behind the high watermark."""

    previous: int
    offset: int
    why: str


class Isr(
    PartitionEvent,
    kind="isr",
):
    """The set of replicas in sync changed; `broker` leads."""

    before: tuple[int, ...]
    after: tuple[int, ...]
    leader_epoch: int
    partition_epoch: int
    why: str

    @property
    def line(self) -> str:
        return f"isr {self.topic}-{self.partition} {brokers_text(self.before)}->{brokers_text(self.after)}"

    @property
    def sentence(self) -> str:
        return (
            f"The replicas of {self.topic}-{self.partition} in sync are {brokers_text(self.after)} and no longer "
            f"{brokers_text(self.before)}, because {self.why}."
        )


class Leader(
    PartitionEvent,
    kind="leader",
):
    """A partition has another leader, or the same one in a new epoch; `broker` is the one that leads now."""

    previous: int
    leader_epoch: int
    why: str
    is_clean: bool = True

    @property
    def line(self) -> str:
        unclean = "" if self.is_clean else " unclean"
        return (
            f"leader {self.topic}-{self.partition} b{self.previous}->b{self.broker} epoch={self.leader_epoch}{unclean}"
        )

    @property
    def sentence(self) -> str:
        what = f"Broker {self.broker} leads" if self.broker >= 0 else "Nobody leads"
        before = f" after broker {self.previous}" if self.previous >= 0 else ""
        unclean = "" if self.is_clean else ", though it was not in sync,"
        return (
            f"{what} {self.topic}-{self.partition}{before} in leader epoch {self.leader_epoch}{unclean} "
            f"because {self.why}."
        )


class Epoch(
    PartitionEvent,
    kind="epoch",
    line="epoch b{e.broker} {e.topic}-{e.partition} epoch={e.leader_epoch} start={e.start_offset}",
    sentence="On broker {e.broker} leader epoch {e.leader_epoch} of {e.topic}-{e.partition} begins at offset "
    "{e.start_offset}, because {e.why}.",
):
    """A log entered a new leader epoch."""

    leader_epoch: int
    start_offset: int
    why: str = "its leader changed"


class Fetch(
    PartitionEvent,
    kind="fetch",
    line="fetch b{e.broker}<-b{e.leader} {e.topic}-{e.partition} offset={e.offset} bytes={e.size_bytes} "
    "hw={e.high_watermark}",
):
    """A follower got an answer from its leader."""

    leader: int
    offset: int  # what it asked for, so its log ended there
    size_bytes: int
    high_watermark: int  # the leader's, as the answer told

    @property
    def sentence(self) -> str:
        got = f"got {_s(self.size_bytes, 'byte')} of records" if self.size_bytes else "got no records"
        return (
            f"Broker {self.broker} fetched {self.topic}-{self.partition} from broker {self.leader} at offset "
            f"{self.offset}, which told the leader that it has all before, {got}, and learned of the high watermark "
            f"{self.high_watermark}."
        )


# Clients


class Produce(
    PartitionEvent,
    kind="produce",
    line="produce {e.client}->b{e.broker} {e.topic}-{e.partition} acks={e.acks} bytes={e.size_bytes}",
    sentence="Client {e.client} sent {e.size_bytes} bytes of records for {e.topic}-{e.partition} to broker {e.broker} "
    "with acks={e.acks}.",
):
    """A producer's records arrived."""

    client: str
    acks: int
    size_bytes: int


class Ack(
    PartitionEvent,
    kind="ack",
):
    """A producer got its answer."""

    client: str
    acks: int
    offset: int  # of the first record; -1: nothing was appended, or nobody knows
    error: str = ""  # Kafka's name of it
    why: str = ""

    @property
    def line(self) -> str:
        result = self.error or f"offset={self.offset}"
        return f"ack b{self.broker}->{self.client} {self.topic}-{self.partition} acks={self.acks} {result}"

    @property
    def sentence(self) -> str:
        where = f"{self.topic}-{self.partition}"
        because = f", because {self.why}" if self.why else ""
        if self.error:
            return f"Broker {self.broker} answered client {self.client} {self.error} for {where}{because}."
        return (
            f"Broker {self.broker} confirmed offset {self.offset} of {where} to client {self.client} "
            f"(acks={self.acks}){because}."
        )


# Groups


class Group(
    Event,
    kind="group",
    line="group b{e.broker} {e.group} {e.before}->{e.after}",
):
    """A group of consumers changed its state, or its members while the state stayed."""

    broker: int
    group: str
    before: str
    after: str
    why: str

    @property
    def sentence(self) -> str:
        if self.before == self.after:
            return f"Group {self.group} is still {self.after} on broker {self.broker}: {self.why}."
        return (
            f"Group {self.group} went from {self.before} to {self.after} on broker {self.broker}, because {self.why}."
        )


class Commit(
    PartitionEvent,
    kind="commit",
    line="commit b{e.broker} {e.group} {e.topic}-{e.partition} offset={e.offset}",
):
    """A group's offset is safe; it is the next one that the group wants."""

    group: str
    offset: int  # -1: it has been deleted

    @property
    def sentence(self) -> str:
        if self.offset < 0:
            return f"Group {self.group} has no committed offset of {self.topic}-{self.partition} any more."
        return (
            f"Group {self.group} has committed offset {self.offset} of {self.topic}-{self.partition}, to read on there."
        )


# Transactions


class Transaction(
    Event,
    kind="transaction",
    line="transaction b{e.broker} {e.id} {e.before}->{e.after} producer={e.producer_id} epoch={e.producer_epoch}",
):
    """What the coordinator knows of a transactional id changed, and is safe."""

    broker: int
    id: str
    producer_id: int
    producer_epoch: int
    before: str  # the state; "": it is new here
    after: str  # Dead: the id is forgotten
    partitions: tuple[str, ...]  # that a marker is to be written to, as topic-partition
    why: str
    timeout_ms: int = -1  # how long it may be open
    start_ms: int = -1  # since when it is open; -1: it is not

    @property
    def sentence(self) -> str:
        if self.before == self.after:
            return f"Transaction {self.id} is still {self.after} on broker {self.broker}: {self.why}."
        came = f"went from {self.before} to {self.after}" if self.before else f"is {self.after}"
        return f"Transaction {self.id} {came} on broker {self.broker}, because {self.why}."


class TransactionMarker(
    PartitionEvent,
    kind="marker",
    line="marker b{e.broker} {e.topic}-{e.partition} {e.outcome} producer={e.producer_id} epoch={e.producer_epoch} "
    "offset={e.offset}",
):
    """The leader of a partition appended the marker that ends a transaction there."""

    producer_id: int
    producer_epoch: int
    outcome: str  # commit or abort
    offset: int

    @property
    def sentence(self) -> str:
        return (
            f"Broker {self.broker} wrote a marker at offset {self.offset} of {self.topic}-{self.partition}: "
            f"{self.outcome} what producer {self.producer_id} has written there."
        )


# The cluster


class Broker(
    Event,
    kind="broker",
    line="broker b{e.broker} {e.state}",
    sentence="Broker {e.broker} is {e.state}, because {e.why}.",
):
    """A broker started, stopped, was killed, paused, fenced, ..."""

    broker: int
    state: str
    why: str


class Topic(
    Event,
    kind="topic",
    line="topic {e.topic} {e.what} partitions={e.partitions}",
):
    """A topic was made, enlarged or deleted."""

    topic: str
    what: str
    partitions: int
    why: str = "somebody asked for it"

    @property
    def sentence(self) -> str:
        return f"Topic {self.topic} ({_s(self.partitions, 'partition')}) was {self.what}, because {self.why}."


class Metadata(
    Event,
    kind="metadata",
    line="metadata b{e.broker} offset={e.offset}",
    sentence="Broker {e.broker} knows the metadata up to offset {e.offset}, because the controller told it.",
):
    """A broker applied records of the metadata log."""

    broker: int
    offset: int


class Message(
    Event,
    kind="message",
    line="message {e.source}->{e.target} {e.name} {e.state}",
    sentence="{e.name} number {e.letter} from {e.source} to {e.target} was {e.state}.",
    by_name=True,
):
    """A message between brokers was sent, held, delivered, lost, ..."""

    source: str
    target: str
    name: str
    letter: int  # counts the messages of the network
    state: str


class Step(
    Event,
    kind="step",
    line="step {e.gate} {e.what} {e.state}",
    sentence="{e.what} {e.state} at the gate {e.gate}.",
):
    """In step mode: something waits for its token, or got it."""

    gate: str
    what: str
    state: str  # "waits" or "goes on"


class Fault(
    Event,
    kind="fault",
    line="fault {e.fault} {e.state} {e.where}",
    sentence="The fault {e.fault} {e.state} at {e.where}, because {e.why}.",
):
    """A fault was set, struck, or was taken away."""

    fault: str
    where: str
    state: str  # "is set", "strikes", "is removed"
    why: str = "somebody asked for it"


class Throttle(
    Event,
    kind="throttle",
    line="throttle b{e.broker} {e.client} {e.what} wait={e.wait_ms}",
    sentence="Broker {e.broker} takes nothing from {e.client} for {e.wait_ms} ms: its {e.what} was above a quota.",
):
    """A client has taken more than it may, and has to wait."""

    broker: int
    client: str  # user and client id
    what: str  # the API
    wait_ms: int


class InstanceShares(
    Event,
    kind="shares",
    line="shares {e.instance} {e.direction} {e.step} {e.shares_text}",
    sentence="Of what instance {e.instance} is promised, {e.direction}, each broker may have: {e.shares_text} bytes a "
    "second ({e.step}).",
):
    """The master of an instance has shared its flow anew."""

    instance: str
    direction: str  # "produced" or "fetched"
    step: str  # of the article that says so: F, P, or P + 10 %
    brokers: tuple[int, ...]
    shares: tuple[int, ...]  # of each, bytes a second

    @property
    def shares_text(self) -> str:
        return ", ".join(f"{broker}: {share}" for broker, share in zip(self.brokers, self.shares, strict=True))


class InstanceFull(
    Event,
    kind="full",
    line="full {e.instance} {e.is_full}",
    sentence="Instance {e.instance} {e.state}, because {e.why}.",
):
    """An instance takes no records any more, or takes some again."""

    instance: str
    is_full: bool
    why: str

    @property
    def state(self) -> str:
        return "is full" if self.is_full else "takes records again"


# What people are told of without asking for more: results, not the traffic that leads to them.
TOLD = {"append", "truncate", "recover", "loss", "delete", "high_watermark", "isr", "leader", "ack", "link", "disk"}
TOLD |= {"group", "commit", "transaction", "marker", "last_stable_offset", "retention", "compaction", "uncleanable"}
TOLD_STATES = {"killed", "paused", "stopped", "fenced"}  # of brokers


def is_internal(topic: str) -> bool:
    """Whether brokers keep a topic for themselves."""
    return topic.startswith("__")


def is_of_interest(event: Event) -> bool:
    is_told = event.kind in TOLD or (isinstance(event, Broker) and event.state in TOLD_STATES)
    # What brokers keep for themselves is nobody's business, but that offsets of a transaction count with their marker.
    return is_told and (event.kind == "marker" or not is_internal(getattr(event, "topic", "")))


def is_shown(event: Event) -> bool:
    """Whether who looks at a screen is told of an event in words."""
    return is_of_interest(event) or event.kind in ("clock", "step", "fault")

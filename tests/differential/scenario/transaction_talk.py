"""One producer with a transactional id, as it speaks with coordinators and leaders.

It speaks at a level, as in talk.py: each API in the version of that number, counted from the oldest that both sides
serve. Ids and epochs are those that the expected side has given last. States are reached by the steps of STATES.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from minibroker.protocol.headers import Request
from minibroker.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from minibroker.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from minibroker.protocol.messages.describe_transactions import DescribeTransactionsRequest
from minibroker.protocol.messages.end_txn import EndTxnRequest
from minibroker.protocol.messages.init_producer_id import InitProducerIdRequest
from minibroker.protocol.messages.produce import ProduceRequest
from minibroker.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest
from tests.differential.play import Play
from tests.differential.scenario.build import UNKNOWN_ID, batch, produce

TIMEOUT_MS = 60_000
SHORT_MS = 50  # of a transaction that is to be aborted by its coordinator
TOPIC, OTHER, GROUP = "transactional", "transactional-2", "transactional-group"
BATCHES_SINCE = 4  # AddPartitionsToTxn
EXPECTED_SINCE = 3  # InitProducerId: the id and epoch that a producer has
MEMBERS_SINCE = 3  # TxnOffsetCommit: the member that the offsets come from
NONE, CONCURRENT_TRANSACTIONS = 0, 51

Places = dict[str, list[int]]
Transaction = AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction
CommitTopic = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic
CommitPartition = CommitTopic.TxnOffsetCommitRequestPartition


class Identity(NamedTuple):
    """What a producer calls itself."""

    producer_id: int
    epoch: int


NOBODY = Identity(-1, -1)
SOMEBODY = Identity(4_000_000, 0)  # nobody is ever given that


class Producer:
    """One transactional id at one level."""

    def __init__(self, play: Play, subject: str, level: int):
        self.play = play
        self.subject = subject
        self.level = level
        self.name = f"{subject}-{level}"
        self.identity = SOMEBODY
        self.before = SOMEBODY  # its identity before the last end, or the last coming

    @property
    def known(self) -> Identity:
        """What it can say of itself when it comes again; in old versions nothing."""
        return self.identity if self.has(InitProducerIdRequest, EXPECTED_SINCE) else NOBODY

    @property
    def known_before(self) -> Identity:
        """What it could have said of itself before it came last."""
        return self.before if self.has(InitProducerIdRequest, EXPECTED_SINCE) else NOBODY

    # Asking

    def version(self, request: type[Request]) -> int:
        """Return the version of an API that is spoken here."""
        # Before version 3 of Produce there is no transactional id.
        versions = self.play.versions(request, 3 if request is ProduceRequest else 0)
        return versions[min(self.level, len(versions) - 1)]

    def has(self, request: type[Request], since: int) -> bool:
        """Whether an API is spoken in a version that has something."""
        return self.version(request) >= since

    def ask(self, step: str, request: Request, version: int | None = None) -> Any:
        """Ask both sides; take the id and epoch that an answer gives, and wait until all markers are written."""
        version = self.version(type(request)) if version is None else version
        answer = self.play.ask(f"{self.subject}: {step}", request, version)
        if isinstance(request, (InitProducerIdRequest, EndTxnRequest)):
            self.before = self.identity
            if answer is not None and answer.error_code == 0 and answer.producer_id >= 0:
                self.identity = Identity(answer.producer_id, answer.producer_epoch)
            if answer is not None and answer.error_code in (NONE, CONCURRENT_TRANSACTIONS):
                self.wait_for("")
        return answer

    def wait_for(self, state: str) -> None:
        """Wait until the id is in a state, or until no marker of it is under way."""

        def holds(answer: Any) -> bool:
            found: str = answer.transaction_states[0].transaction_state
            return found == state if state else not found.startswith("Prepare")

        request = DescribeTransactionsRequest(transactional_ids=[self.name])
        self.play.wait_for(f"{self.name} to be {state or 'complete'}", request, holds, 0)

    def describe(self, step: str) -> None:
        """Compare what there is of this id."""
        request = DescribeTransactionsRequest(transactional_ids=[self.name])
        self.play.ask(f"{self.subject}: described, {step}", request, 0)

    # Requests to the coordinator

    def init(
        self, *, timeout_ms: int = TIMEOUT_MS, expected: Identity = NOBODY, name: str | None = ""
    ) -> InitProducerIdRequest:
        """Return a request for an id and epoch."""
        return InitProducerIdRequest(
            transactional_id=self.name if name == "" else name,
            transaction_timeout_ms=timeout_ms,
            producer_id=expected.producer_id,
            producer_epoch=expected.epoch,
        )

    def add(
        self, places: Places, of: Identity | None = None, *, verify_only: bool = False
    ) -> AddPartitionsToTxnRequest:
        """Return a request that adds partitions, or asks for them, in the form of the version that is spoken here."""
        producer_id, epoch = of or self.identity
        topics = [AddPartitionsToTxnTopic(name=name, partitions=numbers) for name, numbers in places.items()]
        if self.has(AddPartitionsToTxnRequest, BATCHES_SINCE):
            only = Transaction(
                transactional_id=self.name,
                producer_id=producer_id,
                producer_epoch=epoch,
                verify_only=verify_only,
                topics=topics,
            )
            return AddPartitionsToTxnRequest(transactions=[only])
        return AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.name,
            v3_and_below_producer_id=producer_id,
            v3_and_below_producer_epoch=epoch,
            v3_and_below_topics=topics,
        )

    def add_offsets(self, of: Identity | None = None, group: str = GROUP) -> AddOffsetsToTxnRequest:
        """Return a request that adds the offsets of a group."""
        producer_id, epoch = of or self.identity
        return AddOffsetsToTxnRequest(
            transactional_id=self.name, producer_id=producer_id, producer_epoch=epoch, group_id=group
        )

    def end(self, of: Identity | None = None, *, commit: bool = True) -> EndTxnRequest:
        """Return a request that commits or aborts."""
        producer_id, epoch = of or self.identity
        return EndTxnRequest(
            transactional_id=self.name, producer_id=producer_id, producer_epoch=epoch, committed=commit
        )

    # Requests to others

    def produce(
        self,
        places: Places | None = None,
        of: Identity | None = None,
        *,
        sequence: int = 0,
        count: int = 1,
        name: str | None = "",
        transactional: bool = True,
        acks: int = -1,
        **given: Any,
    ) -> ProduceRequest:
        """Return a request that appends a batch to each of some partitions."""
        producer_id, epoch = of or self.identity
        data = batch(
            count,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            transactional=transactional,
            **given,
        )
        rows = [(topic, number) for topic, numbers in (places or {TOPIC: [0]}).items() for number in numbers]
        request = produce(rows[0][0], data, partition=rows[0][1], acks=acks, ids=self.play.ids)
        for topic, number in rows[1:]:
            request.topic_data += produce(topic, data, partition=number, ids=self.play.ids).topic_data
        request.transactional_id = self.name if name == "" else name
        return request

    def commit_offsets(
        self,
        offsets: dict[str, dict[int, int]] | None = None,
        of: Identity | None = None,
        *,
        group: str = GROUP,
        metadata: str | None = "m",
        epoch: int = -1,
        generation: int = -1,
        member_id: str = "",
        instance: str | None = None,
    ) -> TxnOffsetCommitRequest:
        """Return a request that commits offsets of a group when the transaction is committed."""
        producer_id, producer_epoch = of or self.identity
        return TxnOffsetCommitRequest(
            transactional_id=self.name,
            group_id=group,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            generation_id_or_member_epoch=generation,
            member_id=member_id,
            group_instance_id=instance,
            topics=[
                CommitTopic(
                    topic_id=self.play.ids.get(topic, UNKNOWN_ID),
                    name=topic,
                    partitions=[
                        CommitPartition(
                            partition_index=number,
                            committed_offset=offset,
                            committed_leader_epoch=epoch,
                            committed_metadata=metadata,
                        )
                        for number, offset in rows.items()
                    ],
                )
                for topic, rows in (offsets or {TOPIC: {0: 7}}).items()
            ],
        )


# The states that an id can be in, and those that only its producer does not know of


def _empty(producer: Producer) -> None:
    producer.ask("an id", producer.init())


def _ongoing(producer: Producer) -> None:
    _empty(producer)
    producer.ask("partitions", producer.add({TOPIC: [0, 1]}))


def _committed(producer: Producer) -> None:
    _ongoing(producer)
    producer.ask("committed", producer.end())


def _aborted(producer: Producer) -> None:
    _ongoing(producer)
    producer.ask("aborted", producer.end(commit=False))


def _fenced(producer: Producer) -> None:
    """Another has come while the transaction was open."""
    _ongoing(producer)
    zombie = producer.identity
    producer.ask("an id for another", producer.init())
    producer.ask("an id for another, again", producer.init())
    producer.identity = zombie


def _replaced(producer: Producer) -> None:
    """Another has come while no transaction was open, and has opened one."""
    _empty(producer)
    zombie = producer.identity
    _ongoing(producer)
    producer.identity = zombie


STATES: dict[str, Callable[[Producer], None]] = {
    "unknown": lambda _: None,
    "empty": _empty,
    "ongoing": _ongoing,
    "committed": _committed,
    "aborted": _aborted,
    "fenced": _fenced,
    "replaced": _replaced,
}

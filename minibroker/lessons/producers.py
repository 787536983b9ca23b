"""The producers of a lesson that brokers know by an id: idempotent ones, and those of a transactional id.

    v2        batches and offsets add their partitions to the transaction, each end gives the producer its next epoch
    classic   the producer adds them first, and keeps its epoch

A real producer asks again by itself when an answer is lost. Here that is what the student commands, and what is delayed
on its way arrives when he says so, as it was sent.
What must hold: they speak to the ports of leaders and coordinators as every client does. A sequence number is used up
by what has been sent, answered or not.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from minibroker.client.transaction_calls import LAST_CLASSIC, LAST_FOR_CLIENTS
from minibroker.errors import Error
from minibroker.lessons.clients import Asking, NotPossible, Origin, Produced, check, produce
from minibroker.lessons.sharing import Place
from minibroker.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from minibroker.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from minibroker.protocol.messages.end_txn import EndTxnRequest
from minibroker.protocol.messages.init_producer_id import InitProducerIdRequest
from minibroker.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest

TIMEOUT_MS = 60_000  # transaction.timeout.ms, as producers have it
NO_PRODUCER = -1


class Producer:
    """One producer: what it knows of itself."""

    def __init__(
        self,
        name: str,
        transactional_id: str | None = None,
        *,
        is_classic: bool = False,
        timeout_ms: int = TIMEOUT_MS,
        asking: Asking,
    ):
        self.name = name
        self.transactional_id = transactional_id
        self.is_classic = is_classic
        self.timeout_ms = timeout_ms
        self.asking = asking
        self.id = self.epoch = NO_PRODUCER
        self.delayed: list[tuple[str, Callable[[], Awaitable[list[str]]]]] = []  # on their way
        self._sequences: dict[Place, int] = {}
        self._added: set[Place | str] = set()  # partitions and groups, in the transaction that it believes to be open
        self._last: Produced | None = None

    async def init(self, broker: int) -> list[str]:
        """Get an id and an epoch, from a transactional id's coordinator or from any broker."""
        request = InitProducerIdRequest(
            transactional_id=self.transactional_id,
            transaction_timeout_ms=self.timeout_ms if self.transactional_id else 0,
        )
        answer = await self.asking.ask(broker, request)
        check(answer.error_code, f"broker {broker} answers this to {self.name}")
        self._go_on(answer.producer_id, answer.producer_epoch)
        self._sequences.clear()
        return [f"broker {broker} answers: {self.name} is producer {self.id} in epoch {self.epoch}"]

    def _go_on(self, producer_id: int, epoch: int) -> None:
        if (producer_id, epoch) != (self.id, self.epoch):
            self._sequences.clear()
        self.id, self.epoch = producer_id, epoch
        self._added.clear()

    # Records

    async def add(self, coordinator: int, place: Place) -> list[str]:
        """Add a partition to the transaction before the first batch, as the classic protocol has it."""
        if not self.is_classic or place in self._added:
            return []
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id or "",
            v3_and_below_producer_id=self.id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=place[0], partitions=[place[1]])],
        )
        answer = await self.asking.ask(coordinator, request, version=LAST_FOR_CLIENTS)
        code = answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code
        where = f"{place[0]}-{place[1]}"
        check(code, f"broker {coordinator} answers this to {self.name}, who adds {where}")
        self._added.add(place)
        return [f"broker {coordinator} answers: {where} is in the transaction"]

    def batch(self, plain: Produced) -> Produced:
        """Return the batch with what it bears of its producer; it is the last one from now on."""
        if self.id == NO_PRODUCER:
            raise NotPossible(f"{self.name} has no producer id yet: it was refused, or its answer was lost")
        place = (plain.topic, plain.partition)
        sequence = self._sequences.get(place, 0)
        self._sequences[place] = sequence + len(plain.records)
        origin = Origin(self.id, self.epoch, sequence, self.transactional_id, is_classic=self.is_classic)
        self._last = plain._replace(origin=origin)
        return self._last

    @property
    def last(self) -> Produced:
        """The last batch, which may be sent again."""
        if self._last is None:
            raise NotPossible(f"{self.name} has sent nothing")
        return self._last

    async def send(self, broker: int, batch: Produced, asking: Asking | None = None) -> list[str]:
        return [await produce(asking or self.asking, broker, batch)]

    # Offsets

    async def commit_offset(
        self, coordinator: int, group_coordinator: int, group: str, place: Place, offset: int
    ) -> list[str]:
        """Commit an offset of a group that counts when the transaction is committed."""
        if self.is_classic and group not in self._added:
            asked = AddOffsetsToTxnRequest(
                transactional_id=self.transactional_id or "",
                producer_id=self.id,
                producer_epoch=self.epoch,
                group_id=group,
            )
            answer = await self.asking.ask(coordinator, asked)
            check(answer.error_code, f"broker {coordinator} answers this to {self.name}, who adds {group}")
            self._added.add(group)
        Topic = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic
        row = Topic.TxnOffsetCommitRequestPartition(
            partition_index=place[1], committed_offset=offset, committed_metadata=""
        )
        request = TxnOffsetCommitRequest(
            transactional_id=self.transactional_id or "",
            group_id=group,
            producer_id=self.id,
            producer_epoch=self.epoch,
            topics=[Topic(name=place[0], partitions=[row])],
        )
        answer = await self.asking.ask(group_coordinator, request, version=self._version("TxnOffsetCommit"))
        words = f"broker {group_coordinator} answers this to {self.name}, who commits for {group}"
        check(answer.topics[0].partitions[0].error_code, words)
        return [f"broker {group_coordinator} answers: {offset} counts for {group} if the transaction is committed"]

    # The end

    def end_request(self, *, commit: bool) -> EndTxnRequest:
        if self.transactional_id is None:
            raise NotPossible(f"{self.name} has no transactional id: init {self.name} for ID")
        return EndTxnRequest(
            transactional_id=self.transactional_id, producer_id=self.id, producer_epoch=self.epoch, committed=commit
        )

    async def end(self, broker: int, request: EndTxnRequest) -> list[str]:
        """Commit or abort the transaction; what is answered says how the producer goes on."""
        answer = await self.asking.ask(broker, request, version=self._version("EndTxn"))
        check(answer.error_code, f"broker {broker} answers this to {self.name}, who {_wish(request)}")
        done = f"broker {broker} answers: the transaction is {_done(request)}"
        if self.is_classic:
            self._added.clear()
            return [done]
        self._go_on(answer.producer_id, answer.producer_epoch)
        return [f"{done}; {self.name} goes on in epoch {self.epoch}"]

    async def end_late(self, broker: int, request: EndTxnRequest, asking: Asking) -> list[str]:
        """Let a request arrive whose answer nobody waits for any more."""
        answer = await asking.ask(broker, request, version=self._version("EndTxn"))
        said = Error(answer.error_code).name if answer.error_code else f"the transaction is {_done(request)}"
        return [f"broker {broker} answers: {said}; and nobody hears it"]

    def _version(self, api: str) -> int:
        return LAST_CLASSIC[api] if self.is_classic else LAST_CLASSIC[api] + 1


def _wish(request: EndTxnRequest) -> str:
    return "commits" if request.committed else "aborts"


def _done(request: EndTxnRequest) -> str:
    return "committed" if request.committed else "aborted"

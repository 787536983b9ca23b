"""Shard of the transaction coordinator: the transactional ids of one partition of __transaction_state.

    replay        what the log says, record by record, while it is loaded; resume: what of an id is left to do then
    a request     is answered at once, or makes a transition, which is to be written
    committed     the record of a transition is safe: it counts for whoever asks; refused: it is as if it had never been

Of each id there are two views: `metadata`, which is committed and answered by, and `pending`, the one transition that
has been appended. As long as there is one, who wants another is told to ask again (CONCURRENT_TRANSACTIONS): that is so
from the moment in which a transaction is prepared until every marker is written and the record of that is safe.
What must hold: what is prepared stays decided; an epoch that has been raised, also one whose record could not be
written, is given to nobody else; a lower epoch ends and adds nothing.
Pure: producer ids come from whoever has them, times are arguments.
Not here: reading and writing the log, markers in partitions, requests.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import NamedTuple

from minibroker.errors import Error, KafkaError
from minibroker.transactions.metadata import (
    EPOCH_BUMP,
    EPOCH_MAX,
    EPOCH_MAX_GIVEN,
    NO_EPOCH,
    NO_PRODUCER,
    NO_PRODUCER_ID,
    TWO_PHASE_TIMEOUT_MS,
    ProducerIdAndEpoch,
    TopicPartition,
    TransactionMetadata,
)
from minibroker.transactions.states import (
    ABORT_CLASSIC,
    ABORT_V2,
    ABORT_V2_AGAIN,
    ADD_PARTITIONS,
    BY_NAME,
    COMMIT,
    COMMIT_CLASSIC,
    COMMIT_V2,
    COMMIT_V2_AGAIN,
    EVENTS,
    EXPIRE,
    FENCE,
    INIT_PRODUCER_ID,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    REQUESTS,
    VERIFY_PARTITIONS,
    Outcome,
)

NewProducerId = Callable[[], int]  # NoProducerId, if the controller has to be asked for more first
NO_DURATION = -1


class NoProducerId(Exception):
    """No producer id is at hand: nothing has happened; whoever asked gets some, and decides again."""


class TransactionLimits(NamedTuple):
    """What a coordinator's settings allow."""

    timeout_ms_max: int
    expiration_ms: int  # an id that is not used for so long is forgotten
    allows_two_phase: bool

    def check(self, name: str, timeout_ms: int, *, is_two_phase: bool = False, keeps_prepared: bool = False) -> int:
        """Return the timeout of the transactions of a producer; raise if it asks for what nobody is given."""
        check_name(name)
        if is_two_phase and not self.allows_two_phase:
            raise KafkaError(Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "two-phase commit is not enabled")
        if keeps_prepared:
            raise KafkaError(Error.UNSUPPORTED_VERSION, "a prepared transaction cannot be kept")
        if is_two_phase:
            return TWO_PHASE_TIMEOUT_MS
        if not 0 < timeout_ms <= self.timeout_ms_max:
            raise KafkaError(
                Error.INVALID_TRANSACTION_TIMEOUT, f"{timeout_ms} ms is not between 1 and {self.timeout_ms_max}"
            )
        return timeout_ms


class Transition:
    """A change of one transactional id, on its way into the log."""

    __slots__ = ("answer", "is_fence", "of", "to")

    def __init__(
        self,
        of: TransactionalId,
        to: TransactionMetadata | None,
        answer: Error | ProducerIdAndEpoch,
        *,
        is_fence: bool = False,
    ):
        self.of = of
        self.to = to  # None: the id is forgotten
        self.answer = answer  # to whoever asked for it, once it is committed
        self.is_fence = is_fence  # its coordinator aborts it, whatever its producer does


class TransactionalId:
    """One transactional id."""

    __slots__ = ("has_failed_fence", "metadata", "name", "pending")

    def __init__(self, name: str, metadata: TransactionMetadata):
        self.name = name
        self.metadata = metadata
        self.pending: Transition | None = None
        # The record of a fence could not be written. Nobody has been given its epoch, so the next takes it, too.
        self.has_failed_fence = False

    def is_timed_out(self, now_ms: int) -> bool:
        """Whether its transaction has been open for too long, and nobody is about to end it."""
        metadata = self.metadata
        return (
            metadata.state is ONGOING
            and self.pending is None
            and not metadata.is_two_phase
            and metadata.start_ms + metadata.timeout_ms < now_ms
        )

    def check_pending(self) -> None:
        if self.pending is not None:
            raise KafkaError(Error.CONCURRENT_TRANSACTIONS, f"{self.name}: a change is under way")

    def check_producer(self, producer: ProducerIdAndEpoch) -> None:
        """Raise unless a producer has the producer id, and its newest epoch."""
        self.check_producer_id(producer)
        if self.metadata.producer_epoch != producer.epoch:
            raise self.fenced(producer)

    def check_producer_id(self, producer: ProducerIdAndEpoch) -> None:
        if self.metadata.producer_id != producer.producer_id:
            raise KafkaError(
                Error.INVALID_PRODUCER_ID_MAPPING,
                f"{self.name}: its producer id is {self.metadata.producer_id}, not {producer.producer_id}",
            )

    def fenced(self, producer: ProducerIdAndEpoch) -> KafkaError:
        message = f"{self.name}: the epoch of its producer is {self.metadata.producer_epoch}, not {producer.epoch}"
        return KafkaError(Error.PRODUCER_FENCED, message)

    def begin(self, to: TransactionMetadata | None, answer: Error | ProducerIdAndEpoch = Error.NONE) -> Transition:
        """Have a change written."""
        assert self.pending is None, f"{self.name}: a change is under way"
        self.pending = Transition(self, to, answer)
        return self.pending

    def event(self, request: str) -> str | None:
        """Return the event that a request brings about, None if there is nothing to do; raise if it may not."""
        outcome: Outcome = REQUESTS[request][self.metadata.state]
        if not isinstance(outcome, Error):
            return outcome
        if outcome is Error.NONE:
            return None
        raise KafkaError(outcome, f"{self.name}: {request} while it is {self.metadata.state.name}")


class TransactionShard:
    """The ids of one partition."""

    def __init__(self, limits: TransactionLimits, level_of: Callable[[], int], *, is_before_4: bool = False):
        """level_of: of transaction.version now, by which the coordinator ends what its producer does not.

        is_before_4: a producer that may not add partitions hears that first, also while a change is under way.
        """
        self.limits = limits
        self._is_before_4 = is_before_4
        self.level_of = level_of
        self.ids: dict[str, TransactionalId] = {}
        self._ongoing: dict[str, TransactionalId] = {}

    # As the log tells

    def replay(self, name: str, metadata: TransactionMetadata | None) -> None:
        """Take one record."""
        self.ids.pop(name, None)
        self._ongoing.pop(name, None)
        if metadata is not None:
            self.ids[name] = found = TransactionalId(name, metadata)
            self._note(found)

    def resume(self, found: TransactionalId, now_ms: int) -> Transition | None:
        """Return the completion of what another coordinator, or an earlier life of this one, has prepared, if it has.

        To be called for each id that was read, when that is safe.
        """
        return self._complete(found, now_ms) if found.metadata.state in (PREPARE_COMMIT, PREPARE_ABORT) else None

    def _note(self, found: TransactionalId) -> None:
        if found.metadata.state is ONGOING:
            self._ongoing[found.name] = found
        else:
            self._ongoing.pop(found.name, None)

    # What becomes of a transition

    def committed(self, transition: Transition, now_ms: int) -> Transition | None:
        """Let a change count. If it has prepared a transaction, return its completion: markers are to be written now.

        Nothing but a coordinator that has moved comes in between, so what whoever asked is answered stands already.
        """
        found = transition.of
        assert found.pending is transition, f"{found.name}: another change is under way"
        found.pending = None
        if transition.to is None:
            del self.ids[found.name]
            return None
        found.metadata = transition.to
        self._note(found)
        if transition.to.state in (PREPARE_COMMIT, PREPARE_ABORT):
            return self._complete(found, now_ms)
        return None

    def refused(self, transition: Transition) -> None:
        """The record of a change could not be written."""
        found = transition.of
        assert found.pending is transition, f"{found.name}: another change is under way"
        found.pending = None
        found.has_failed_fence = found.has_failed_fence or transition.is_fence

    def _complete(self, found: TransactionalId, now_ms: int) -> Transition:
        found.has_failed_fence = False
        return found.begin(found.metadata.completed(now_ms))

    @staticmethod
    def markers_written(found: TransactionalId, partitions: Iterable[TopicPartition]) -> bool:
        """Take note of markers that are safe, or that nobody wants any more; return whether those were the last."""
        metadata = found.metadata
        assert metadata.state in (PREPARE_COMMIT, PREPARE_ABORT), f"{found.name}: {metadata.state.name}"
        left = dict(metadata.partitions)
        for place in partitions:
            left.pop(place, None)
        found.metadata = metadata._replace(partitions=left)
        return not left

    # Requests

    def init_producer_id(
        self,
        name: str,
        timeout_ms: int,
        expected: ProducerIdAndEpoch | None,
        *,
        now_ms: int,
        new_producer_id: NewProducerId,
        is_two_phase: bool = False,
        keeps_prepared: bool = False,
    ) -> Transition:
        """Give a producer its id and epoch; fence who had them, and abort what it left open: it is to ask again then.

        expected: what the producer has, if it goes on after an error (KIP-360).
        """
        timeout_ms = self.limits.check(name, timeout_ms, is_two_phase=is_two_phase, keeps_prepared=keeps_prepared)
        found = self.ids.get(name)
        if found is None:  # it stays, also if its record cannot be written: its producer id is its own
            metadata = TransactionMetadata(new_producer_id(), timeout_ms, now_ms)
            found = self.ids[name] = TransactionalId(name, metadata)
        found.check_pending()
        metadata = found.metadata
        if expected is not None and not _is_known(expected, metadata):
            raise KafkaError(Error.PRODUCER_FENCED, f"{name}: {expected} is not {metadata.producer}")
        if found.event(INIT_PRODUCER_ID) == FENCE:
            fence = self.abort(found, now_ms=now_ms, new_producer_id=new_producer_id)
            fence.answer = Error.CONCURRENT_TRANSACTIONS
            return fence
        if metadata.is_epoch_exhausted and (expected is None or expected.epoch == metadata.producer_epoch):
            to = metadata.with_new_producer_id(new_producer_id(), timeout_ms, now_ms, notes_epoch=expected is not None)
        else:
            to = metadata.with_raised_epoch(timeout_ms, None if expected is None else expected.epoch, now_ms)
        return found.begin(to, to.producer)

    def add_partitions(
        self,
        name: str,
        producer: ProducerIdAndEpoch,
        partitions: Collection[TopicPartition],
        *,
        version: int,
        now_ms: int,
    ) -> Transition | None:
        """Add partitions to the transaction of a producer; None: they are in it. version: the client's."""
        found = self._find(name)
        if not self._is_before_4:  # since then the change may be to an epoch, or an id, that the producer knows already
            found.check_pending()
        found.check_producer(producer)
        found.check_pending()
        found.event(ADD_PARTITIONS)
        metadata = found.metadata
        if metadata.state is ONGOING and all(place in metadata.partitions for place in partitions):
            return None
        return found.begin(metadata.with_partitions(partitions, version, now_ms))

    def verify_partitions(
        self, name: str, producer: ProducerIdAndEpoch, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, Error]:
        """Return of each partition whether it is in the transaction of a producer (KIP-890).

        A change that is under way is not looked at: the leader of the partition has the last word.
        """
        found = self._find(name)
        found.check_producer(producer)
        found.event(VERIFY_PARTITIONS)
        known = found.metadata.partitions
        return {place: Error.NONE if place in known else Error.TRANSACTION_ABORTABLE for place in partitions}

    def end_transaction(
        self,
        name: str,
        producer: ProducerIdAndEpoch,
        *,
        commit: bool,
        version: int,
        now_ms: int,
        new_producer_id: NewProducerId,
    ) -> Transition | ProducerIdAndEpoch:
        """Commit or abort the transaction of a producer; without a transition it is answered at once.

        The answer is what the producer goes on with; to classic ones that is not said, for it is the same.
        """
        found = self._find(name)
        if version < EPOCH_BUMP:
            found.check_producer(producer)
            found.check_pending()
            if found.event(COMMIT_CLASSIC if commit else ABORT_CLASSIC) is None:
                return NO_PRODUCER
            return found.begin(found.metadata.prepared(commit=commit, version=0, now_ms=now_ms), NO_PRODUCER)
        found.check_pending()
        metadata = found.metadata
        # Its epochs ran out with this end, and it has not heard that it goes on with another id.
        is_overflow = producer == (metadata.previous_producer_id, EPOCH_MAX_GIVEN) and metadata.producer_epoch == 0
        if not is_overflow:
            found.check_producer_id(producer)
        if is_overflow or metadata.producer_epoch == producer.epoch + 1:
            event = found.event(COMMIT_V2_AGAIN if commit else ABORT_V2_AGAIN)
        elif metadata.producer_epoch == producer.epoch:
            event = found.event(COMMIT_V2 if commit else ABORT_V2)
        else:
            raise found.fenced(producer)
        if event is None:
            return metadata.producer
        to = self._prepared(metadata, is_commit=event == COMMIT, now_ms=now_ms, new_producer_id=new_producer_id)
        return found.begin(to, to.completed(now_ms).producer)

    @staticmethod
    def _prepared(
        metadata: TransactionMetadata, *, is_commit: bool, now_ms: int, new_producer_id: NewProducerId
    ) -> TransactionMetadata:
        """Return the end of a transaction in v2, with another producer id if epochs run out with it."""
        next_id = new_producer_id() if metadata.is_epoch_exhausted else NO_PRODUCER_ID
        return metadata.prepared(commit=is_commit, version=EPOCH_BUMP, now_ms=now_ms, next_producer_id=next_id)

    def abort(self, found: TransactionalId, *, now_ms: int, new_producer_id: NewProducerId) -> Transition:
        """Abort an open transaction, and fence its producer: another has come, its time is over, somebody wants it.

        It goes by the version of the coordinator: what the producer works by does not matter any more. In the classic
        protocol the producer is fenced at once, and stays so if the record cannot be written.
        """
        found.check_pending()
        metadata = found.metadata
        assert metadata.state is ONGOING, f"{found.name}: {metadata.state.name}"
        if self.level_of() >= EPOCH_BUMP:
            to = self._prepared(metadata, is_commit=False, now_ms=now_ms, new_producer_id=new_producer_id)
        else:
            epoch = metadata.producer_epoch
            if not found.has_failed_fence and epoch < EPOCH_MAX:
                epoch += 1
            found.metadata = metadata = metadata._replace(producer_epoch=epoch, last_producer_epoch=NO_EPOCH)
            to = metadata.prepared(commit=False, version=0, now_ms=now_ms)
        transition = found.begin(to)
        transition.is_fence = True
        return transition

    def _find(self, name: str) -> TransactionalId:
        check_name(name)
        found = self.ids.get(name)
        if found is None:
            raise KafkaError(Error.INVALID_PRODUCER_ID_MAPPING, f"{name} is no transactional id here")
        return found

    # Time

    def ongoing(self) -> list[TransactionalId]:
        """Return the ids whose transaction is open: the only ones whose time may be over."""
        return list(self._ongoing.values())

    def expire(self, found: TransactionalId, now_ms: int) -> Transition | None:
        """Have an id forgotten that was not used for long; None: it is still wanted."""
        metadata = found.metadata
        if (
            found.pending is not None
            or metadata.state not in EVENTS[EXPIRE]
            or metadata.last_update_ms > now_ms - self.limits.expiration_ms
        ):
            return None
        return found.begin(None)

    # What is asked

    def describe(self, name: str) -> TransactionMetadata:
        """Return what is committed of an id."""
        check_name(name)
        found = self.ids.get(name)
        if found is None:
            raise KafkaError(Error.TRANSACTIONAL_ID_NOT_FOUND, f"{name} is no transactional id here")
        return found.metadata

    def select(
        self,
        *,
        producer_ids: Collection[int],
        states: Collection[str],
        duration_ms: int = NO_DURATION,
        now_ms: int,
        among: Iterable[TransactionalId] | None = None,
    ) -> Iterator[TransactionalId]:
        """Yield the ids that fit all filters that are given; duration_ms: for how long, at least, since the start.

        among: some of them, where all are looked at in shares.
        """
        wanted = {BY_NAME[name] for name in states if name in BY_NAME}
        for found in self.ids.values() if among is None else among:
            metadata = found.metadata
            if (
                (not producer_ids or metadata.producer_id in producer_ids)
                and (not states or metadata.state in wanted)
                and (duration_ms < 0 or now_ms - metadata.start_ms > duration_ms)
            ):
                yield found


def check_name(name: str) -> None:
    if not name:
        raise KafkaError(Error.INVALID_REQUEST, "the transactional id is empty")


def _is_known(expected: ProducerIdAndEpoch, metadata: TransactionMetadata) -> bool:
    """Whether a producer that goes on has the producer id, as far as it can know; its epoch is looked at later.

    Without an epoch the id is new here: its records have been deleted. With the last epoch of the id before it asks
    once more, since it has not heard of the new one.
    """
    return (
        metadata.producer_epoch == NO_EPOCH
        or expected.producer_id == metadata.producer_id
        or (expected.producer_id == metadata.previous_producer_id and expected.epoch >= EPOCH_MAX_GIVEN)
    )

"""Transaction manager of a producer: where its transaction stands, and what becomes of it after an error.

    UNINITIALIZED, READY -> IN_TRANSACTION -> COMMITTING, ABORTING -> READY
    ABORTABLE_ERROR    the transaction can only be aborted; the producer goes on with the next one
    FATAL_ERROR        the producer can only be closed: it was fenced, or may not do what it does

Errors are classed as Kafka 4's client classes them. What must hold: a transaction is committed only if every record and
offset of it was acknowledged. An end whose answer nobody knows may be asked for again, the same end.
Not here: batches (producer.py), requests (transaction_calls.py).
"""

from __future__ import annotations

import asyncio

from minibroker.errors import Error, KafkaError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterable, Mapping
    from typing import Any, TypeVar

    from minibroker.client.accumulator import ProducerId
    from minibroker.client.cluster import TopicPartition
    from minibroker.client.groups import CommittedOffset
    from minibroker.client.transaction_calls import TransactionCalls

    R = TypeVar("R")

UNINITIALIZED, READY, IN_TRANSACTION = "uninitialized", "ready", "in a transaction"
COMMITTING, ABORTING = "committing", "aborting"
ABORTABLE_ERROR, FATAL_ERROR = "in an error that an abort ends", "in a fatal error"

FENCED = frozenset((Error.PRODUCER_FENCED, Error.INVALID_PRODUCER_EPOCH))
# Of a produce, and of requests to coordinators. INVALID_PRODUCER_EPOCH of a produce is no proof that somebody else has
# taken over: the coordinator tells, when it is asked to abort (KIP-588).
FATAL_OF_PRODUCE = frozenset(
    (
        Error.CLUSTER_AUTHORIZATION_FAILED,
        Error.INVALID_PRODUCER_ID_MAPPING,
        Error.PRODUCER_FENCED,
        Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        Error.UNSUPPORTED_VERSION,
    )
)
ABORTABLE_OF_OFFSETS = frozenset(
    (
        Error.FENCED_INSTANCE_ID,
        Error.GROUP_AUTHORIZATION_FAILED,
        Error.GROUP_ID_NOT_FOUND,
        Error.ILLEGAL_GENERATION,
        Error.STALE_MEMBER_EPOCH,
        Error.TRANSACTION_ABORTABLE,
        Error.UNKNOWN_MEMBER_ID,
        Error.UNKNOWN_PRODUCER_ID,
    )
)
FATAL_OF_PARTITIONS = frozenset(
    (
        Error.INVALID_PRODUCER_ID_MAPPING,
        Error.INVALID_TXN_STATE,
        Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        Error.UNSUPPORTED_VERSION,
    )
)


class TransactionAbortable(KafkaError):
    """The transaction can only be aborted; the producer goes on with the next one. `code` is that of the cause."""


class ProducerFatal(KafkaError):
    """The producer can only be closed. `code` is that of the cause."""


class ProducerFenced(ProducerFatal):
    """Another producer with the same transactional id has taken over."""


class TransactionManager:
    """The transactions of one producer, one after the other."""

    def __init__(self, calls: TransactionCalls):
        self.calls = calls
        self.state = UNINITIALIZED
        self.error: KafkaError | None = None  # of the two states of errors
        self.producer: ProducerId | None = None  # another object with each epoch
        self._added: set[TopicPartition] = set()
        self._adding = asyncio.Lock()  # the coordinator takes one change of a transaction at a time
        self._needs_epoch = False  # sequences were lost, so the next transaction begins in another epoch

    @property
    def is_open(self) -> bool:
        """Whether there is a transaction that only an end can end."""
        return self.state in (IN_TRANSACTION, COMMITTING, ABORTING, ABORTABLE_ERROR)

    async def init(self) -> None:
        """Fence whoever had the transactional id, and have what he left open aborted."""
        self._expect("init_transactions", UNINITIALIZED)
        self.producer = await self._asking(self.calls.init_producer(), frozenset((Error.TRANSACTION_ABORTABLE,)))
        self.state = READY

    def begin(self) -> None:
        self._expect("begin_transaction", READY)
        self.state = IN_TRANSACTION

    def check(self, operation: str) -> None:
        """Raise unless records and offsets can be added now."""
        self._expect(operation, IN_TRANSACTION)

    async def add(self, partitions: Iterable[TopicPartition]) -> None:
        """Make partitions part of the transaction, before the first batch goes there."""
        async with self._adding:
            new = [each for each in partitions if each not in self._added]
            if not new or self.error is not None:
                return
            assert self.producer is not None
            await self._asking(self.calls.add_partitions(self.producer, new), None)
            self._added.update(new)

    async def add_offsets(
        self, group: str, offsets: Mapping[TopicPartition, CommittedOffset], member: Mapping[str, Any]
    ) -> None:
        self.check("send_offsets_to_transaction")
        assert self.producer is not None
        await self._asking(self.calls.commit_offsets(self.producer, group, offsets, **member), ABORTABLE_OF_OFFSETS)

    def begin_end(self, *, commit: bool) -> None:
        """Take no more records; those that are there may still fail, if it is to be committed."""
        if commit:
            self._expect("commit_transaction", IN_TRANSACTION, COMMITTING)
        else:
            self._expect("abort_transaction", IN_TRANSACTION, ABORTING, ABORTABLE_ERROR)
        self.state = COMMITTING if commit else ABORTING
        self.error = None

    async def end(self) -> None:
        """Commit or abort, once nothing is under way any more; an error that passes leaves it to be asked again."""
        self._raise_error()
        assert self.producer is not None
        commit = self.state == COMMITTING
        abortable = frozenset((Error.TRANSACTION_ABORTABLE, Error.UNKNOWN_PRODUCER_ID)) if commit else frozenset()
        if self.calls.has_begun:
            self.producer = await self._asking(self.calls.end(self.producer, commit=commit), abortable)
        if not self.calls.is_v2 and (self._needs_epoch or self.calls.sees_v2):
            self.producer = await self._asking(self.calls.init_producer(self.producer), abortable)
        self._needs_epoch = False
        self._added.clear()
        self.state = READY

    # Errors

    def lose_sequences(self) -> None:
        """A batch that had its sequence will not be sent again."""
        self._needs_epoch = True

    def fail(self, error: Exception) -> KafkaError:
        """Class what a batch failed with, and return what its records fail with."""
        if self.error is not None:
            return self.error
        if self.state == ABORTING:
            return _abortable(error)
        code = error.code if isinstance(error, KafkaError) else Error.UNKNOWN_SERVER_ERROR
        self.lose_sequences()
        is_fatal = code in FATAL_OF_PRODUCE or not (self.calls.is_v2 or self.calls.can_raise_epoch)
        return self._enter(_fatal(error) if is_fatal else _abortable(error))

    async def _asking(self, asked: Awaitable[R], abortable: frozenset[Error] | None) -> R:
        """Await what coordinators answer. abortable: errors that an abort ends; None: all but the fatal ones."""
        try:
            return await asked
        except KafkaError as error:
            if error.code in FENCED:
                raise self._enter(_fatal(error)) from error
            if error.code.retriable and abortable is not None:
                raise  # nobody knows: it may be asked for again
            if error.code in FATAL_OF_PARTITIONS if abortable is None else error.code not in abortable:
                raise self._enter(_fatal(error)) from error
            self.lose_sequences()
            raise self._enter(_abortable(error)) from error

    def _enter(self, error: KafkaError) -> KafkaError:
        self.state = FATAL_ERROR if isinstance(error, ProducerFatal) else ABORTABLE_ERROR
        self.error = error
        return error

    def _raise_error(self) -> None:
        if self.error is not None:
            raise type(self.error)(self.error.code, self.error.message) from self.error

    def _expect(self, operation: str, *states: str) -> None:
        if self.state in states:
            return
        self._raise_error()
        reason = f"{operation}: the producer {self.calls.transactional_id} is {self.state}, not {' or '.join(states)}"
        raise KafkaError(Error.INVALID_TXN_STATE, reason)


def _abortable(error: Exception) -> TransactionAbortable:
    return TransactionAbortable(*_parts(error))


def _fatal(error: Exception) -> ProducerFatal:
    code, message = _parts(error)
    return (ProducerFenced if code in FENCED else ProducerFatal)(code, message)


def _parts(error: Exception) -> tuple[Error, str]:
    if isinstance(error, KafkaError):
        return Error(error.code), error.message
    return Error.UNKNOWN_SERVER_ERROR, str(error)

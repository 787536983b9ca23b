"""Transaction metadata: what is known of one transactional id, and what each event makes of it.

A value: an event makes another one. It is stored as it is (records.py), but for `last_producer_epoch`, which a
coordinator that takes over does not know.
What must hold: an epoch that has been raised never falls as long as the producer id is the same; 32767 is given to no
client, so that a producer with the last epoch can still be fenced; partitions are kept until their markers are written.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from minibroker.errors import Error, KafkaError
from minibroker.transactions.states import (
    ABORT,
    ADD,
    BEGIN,
    COMMIT,
    COMPLETE,
    EMPTY,
    EVENTS,
    ONGOING,
    State,
)

TopicPartition = tuple[str, int]

NO_PRODUCER_ID = -1
NO_EPOCH = -1
NO_TIME = -1
EPOCH_MAX = 32_767
EPOCH_MAX_GIVEN = EPOCH_MAX - 1
TWO_PHASE_TIMEOUT_MS = 2_147_483_647  # such a transaction stays open until somebody ends it (KIP-939)
EPOCH_BUMP = 2  # transaction.version from which on each end raises the epoch
NOTHING: Mapping[TopicPartition, None] = {}


class ProducerIdAndEpoch(NamedTuple):
    """What a producer is told, and says who it is by."""

    producer_id: int
    epoch: int


NO_PRODUCER = ProducerIdAndEpoch(NO_PRODUCER_ID, NO_EPOCH)


class TransactionMetadata(NamedTuple):
    """One transactional id and its transaction."""

    producer_id: int
    timeout_ms: int  # the coordinator aborts a transaction that is open longer
    last_update_ms: int  # by it an id that is not used expires
    state: State = EMPTY
    previous_producer_id: int = NO_PRODUCER_ID  # before the last event, mostly the same
    next_producer_id: int = NO_PRODUCER_ID  # to go on with when the transaction has ended, if epochs ran out
    producer_epoch: int = NO_EPOCH  # -1 until the first record is written
    last_producer_epoch: int = NO_EPOCH  # before the producer's own request raised it; -1: another one raised it
    partitions: Mapping[TopicPartition, None] = NOTHING  # those that want a marker, in the order in which they came
    start_ms: int = NO_TIME  # when the first of them came
    client_version: int = 0  # transaction.version that the client works by

    @property
    def producer(self) -> ProducerIdAndEpoch:
        return ProducerIdAndEpoch(self.producer_id, self.producer_epoch)

    @property
    def is_epoch_exhausted(self) -> bool:
        return self.producer_epoch >= EPOCH_MAX_GIVEN

    @property
    def is_two_phase(self) -> bool:
        return self.timeout_ms == TWO_PHASE_TIMEOUT_MS

    def _after(self, event: str, **changes: Any) -> TransactionMetadata:
        return self._replace(state=EVENTS[event][self.state], previous_producer_id=self.producer_id, **changes)

    def _begun(
        self, producer: ProducerIdAndEpoch, last_epoch: int, timeout_ms: int, now_ms: int
    ) -> TransactionMetadata:
        return self._after(
            BEGIN,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            last_producer_epoch=last_epoch,
            timeout_ms=timeout_ms,
            partitions=NOTHING,
            start_ms=NO_TIME,
            last_update_ms=now_ms,
        )

    def with_raised_epoch(self, timeout_ms: int, expected_epoch: int | None, now_ms: int) -> TransactionMetadata:
        """A producer takes over the id, or goes on with it after an error if it names the epoch that it has (KIP-360).

        Who names the epoch before is one whose answer was lost, and is told again what it was told.
        """
        epoch, last_epoch = self.producer_epoch, NO_EPOCH
        if self.is_epoch_exhausted:
            raise KafkaError(Error.UNKNOWN_SERVER_ERROR, f"producer {self.producer_id} has no epoch behind {epoch}")
        if expected_epoch is None:
            epoch += 1
        elif epoch in (NO_EPOCH, expected_epoch):
            epoch, last_epoch = epoch + 1, epoch
        elif expected_epoch == self.last_producer_epoch:
            last_epoch = expected_epoch
        else:
            raise KafkaError(
                Error.PRODUCER_FENCED, f"epoch {expected_epoch} of producer {self.producer_id} is not {epoch}"
            )
        return self._begun(ProducerIdAndEpoch(self.producer_id, epoch), last_epoch, timeout_ms, now_ms)

    def with_new_producer_id(
        self, producer_id: int, timeout_ms: int, now_ms: int, *, notes_epoch: bool
    ) -> TransactionMetadata:
        """A producer takes over the id, and no epoch is left; notes_epoch: it goes on, and may have to ask again."""
        last_epoch = self.producer_epoch if notes_epoch else NO_EPOCH
        return self._begun(ProducerIdAndEpoch(producer_id, 0), last_epoch, timeout_ms, now_ms)

    def with_partitions(self, added: Iterable[TopicPartition], version: int, now_ms: int) -> TransactionMetadata:
        """Records of the transaction are about to be written to partitions."""
        if self.producer_epoch == NO_EPOCH:
            raise KafkaError(Error.UNKNOWN_SERVER_ERROR, f"producer {self.producer_id} has been given no epoch")
        return self._after(
            ADD,
            partitions={**self.partitions, **dict.fromkeys(added)},
            start_ms=self.start_ms if self.state is ONGOING else now_ms,
            last_update_ms=now_ms,
            client_version=version,
        )

    def prepared(
        self, *, commit: bool, version: int, now_ms: int, next_producer_id: int = NO_PRODUCER_ID
    ) -> TransactionMetadata:
        """How the transaction ends is decided.

        In v2 its producer goes on with the next epoch, which the markers bear: a later one of this transaction cannot
        end the next. At the largest epoch, which no producer has been given, an abort still goes through.
        """
        epoch, last_epoch = self.producer_epoch, self.last_producer_epoch
        if version >= EPOCH_BUMP:
            last_epoch = epoch
            if epoch < EPOCH_MAX:
                epoch += 1
            elif commit:
                raise KafkaError(Error.UNKNOWN_SERVER_ERROR, f"producer {self.producer_id} is at epoch {epoch}")
        return self._after(
            COMMIT if commit else ABORT,
            producer_epoch=epoch,
            last_producer_epoch=last_epoch,
            next_producer_id=next_producer_id,
            start_ms=self.start_ms if self.state is ONGOING else now_ms,  # without partitions it has not begun before
            last_update_ms=now_ms,
            client_version=version,
        )

    def completed(self, now_ms: int) -> TransactionMetadata:
        """Every partition has its marker; if epochs ran out, the producer goes on with another id."""
        producer = self.producer
        if self.next_producer_id != NO_PRODUCER_ID:
            producer = ProducerIdAndEpoch(self.next_producer_id, 0)
        return self._after(
            COMPLETE,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            next_producer_id=NO_PRODUCER_ID,
            partitions=NOTHING,
            last_update_ms=now_ms,
        )


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Return the numbers of partitions by their topic, as requests and records have them."""
    topics: dict[str, list[int]] = {}
    for topic, number in partitions:
        topics.setdefault(topic, []).append(number)
    return topics

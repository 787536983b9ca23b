"""Transaction coordinator of a broker: which partitions of __transaction_state it leads, and so which ids are its own.

What handlers ask is decided at once by the shard of the id (shard.py), and answered when the record of it is safe. Now
and then it looks which transactions have been open for too long, and which ids nobody has used for long.
What must hold: what is decided is written in the same turn of the loop.
Not here: one such partition (partition.py), the rules (shard.py, states.py), requests (broker/handlers).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Generator, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

from minibroker.clock import CHORE
from minibroker.coordinator.partitions import LedPartitions
from minibroker.errors import Error, KafkaError
from minibroker.metadata.features import TRANSACTION_VERSION, TRANSACTIONS_V2
from minibroker.parts import Parts
from minibroker.replication.replica import Replica
from minibroker.transactions import TRANSACTION_STATE_TOPIC
from minibroker.transactions.markers import BrokerCalls, MarkerSender
from minibroker.transactions.metadata import EPOCH_BUMP, ProducerIdAndEpoch, TopicPartition, TransactionMetadata
from minibroker.transactions.partition import Answered, TransactionStatePartition
from minibroker.transactions.shard import NoProducerId, TransactionalId, TransactionLimits, Transition, check_name
from minibroker.transactions.states import ONGOING

if TYPE_CHECKING:
    from minibroker.clock import Timer

Decision = Transition | ProducerIdAndEpoch | None
Decide = Callable[[TransactionStatePartition], Decision]

LOOKED_AT_US: Final = 1  # an id whose time may be over
FORGOTTEN_US: Final = 25  # one whose time is over
OPEN_TOGETHER: Final = 1_000  # transactions that are looked at, for how long they have been open
OPEN_US: Final = 200
ABORTED_US: Final = 80  # a transaction, with its record and what is made of it when that is safe
WRITTEN_A_US: Final = 5  # partitions of a transaction: a change of it copies and writes down all of them


class ProducerIdSource(Protocol):
    """Ids for producers: nobody had one before."""

    def next(self) -> int | None: ...

    def give_back(self, producer_id: int) -> None: ...

    async def later(self) -> int: ...


class TransactionCoordinator(LedPartitions[TransactionStatePartition]):
    """All transactional ids that one broker coordinates."""

    def __init__(
        self,
        parts: Parts,
        replicas: Mapping[tuple[str, int], Replica],
        calls: BrokerCalls,
        producer_ids: ProducerIdSource,
    ):
        super().__init__(
            parts,
            replicas,
            TRANSACTION_STATE_TOPIC,
            lambda replica: TransactionStatePartition(self, replica, self.limits, self.markers.send),
            contents="transactions",
            page="docs/transactions.md",
        )
        config = parts.config
        self.limits = TransactionLimits(
            timeout_ms_max=config["transaction.max.timeout.ms"],
            expiration_ms=config["transactional.id.expiration.ms"],
            allows_two_phase=config["transaction.two.phase.commit.enable"],
        )
        self.markers = MarkerSender(parts, calls)
        self._producer_ids = producer_ids
        self._tasks: set[asyncio.Task[None]] = set()  # of requests that wait for a producer id
        self._timers: dict[str, Timer] = {}  # by the setting that says how often
        self._again("transaction.abort.timed.out.transaction.cleanup.interval.ms", self._abort_timed_out)
        self._again("transaction.remove.expired.transaction.cleanup.interval.ms", self._remove_expired)
        self.follow()

    def stop(self) -> None:
        for timer in self._timers.values():
            timer.cancel()
        for task in self._tasks:
            task.cancel()
        self.markers.stop()
        super().stop()

    def find(self, key: str) -> TransactionStatePartition:
        """Return the partition of a transactional id; raise if that can be none."""
        check_name(key)
        return super().find(key)

    # What handlers ask: `answered` is told of what the producer goes on with, or of an error

    def init_producer_id(
        self,
        name: str,
        timeout_ms: int,
        expected: ProducerIdAndEpoch | None,
        answered: Answered,
        *,
        is_two_phase: bool = False,
        keeps_prepared: bool = False,
    ) -> None:
        """Give the producer of an id its producer id and epoch. expected: those that it has, if it goes on."""

        def decide(led: TransactionStatePartition) -> Transition:
            self._raise_version()
            return led.shard.init_producer_id(
                name,
                timeout_ms,
                expected,
                now_ms=self.parts.clock.now_ms(),
                new_producer_id=self._new_producer_id,
                is_two_phase=is_two_phase,
                keeps_prepared=keeps_prepared,
            )

        try:  # before it is looked who coordinates the id
            self.limits.check(name, timeout_ms, is_two_phase=is_two_phase, keeps_prepared=keeps_prepared)
        except KafkaError as error:
            answered(Error(error.code))
            return
        self._decide(name, decide, "a producer has come for it", answered)

    def add_partitions(
        self,
        name: str,
        producer: ProducerIdAndEpoch,
        partitions: Collection[TopicPartition],
        answered: Answered,
        *,
        version: int,
    ) -> None:
        """Add partitions to the transaction of a producer. version: of transactions, as the client's request says."""

        def decide(led: TransactionStatePartition) -> Transition | None:
            return led.shard.add_partitions(
                name, producer, partitions, version=version, now_ms=self.parts.clock.now_ms()
            )

        self._decide(name, decide, "its producer is about to write", answered, waits=version >= EPOCH_BUMP)

    def verify_partitions(
        self, name: str, producer: ProducerIdAndEpoch, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, Error]:
        """Return of each partition whether it is in the transaction of a producer; KafkaError if none is."""
        return self.find(name).shard.verify_partitions(name, producer, partitions)

    def end_transaction(
        self, name: str, producer: ProducerIdAndEpoch, answered: Answered, *, commit: bool, version: int
    ) -> None:
        """Commit or abort the transaction of a producer."""

        def decide(led: TransactionStatePartition) -> Transition | ProducerIdAndEpoch:
            return led.shard.end_transaction(
                name,
                producer,
                commit=commit,
                version=version,
                now_ms=self.parts.clock.now_ms(),
                new_producer_id=self._new_producer_id,
            )

        self._decide(name, decide, f"its producer wants it {'committed' if commit else 'aborted'}", answered)

    def describe(self, name: str) -> TransactionMetadata:
        return self.find(name).shard.describe(name)

    def change_us(self, name: str) -> int:
        """How long about a change of a transaction takes by what it holds already, however short the request is."""
        try:
            return len(self.describe(name).partitions) // WRITTEN_A_US
        except KafkaError:
            return 0

    def _decide(self, name: str, decide: Decide, why: str, answered: Answered, *, waits: bool = False) -> None:
        """waits: if a change is under way, it is decided when that is over.

        Kafka: tells who adds partitions at once to ask again after add.partitions.to.txn.retry.backoff.ms; here it
        waits so long at most, and mostly a completion takes less.
        """
        led: TransactionStatePartition | None = None
        try:
            led = self.find(name)
            decision = decide(led)
        except KafkaError as error:
            if waits and led is not None and error.code == Error.CONCURRENT_TRANSACTIONS:
                led.when_free(name, partial(self._decide_again, name, decide, why, answered))
            else:
                answered(Error(error.code))
        except NoProducerId:
            self._decide_later(name, decide, why, answered)
        else:
            if isinstance(decision, Transition):
                led.carry_out(decision, why, answered)
            else:
                answered(Error.NONE if decision is None else decision)

    def _decide_again(self, name: str, decide: Decide, why: str, answered: Answered, error: Error) -> None:
        if error:
            answered(error)
        else:
            self._decide(name, decide, why, answered)

    def _raise_version(self) -> None:
        """Raise transaction.version for the first transactional id, if nobody has set it (features.py)."""
        metadata = self.parts.metadata
        if self.parts.emulated.raises_transaction_version(metadata):
            metadata.need_feature(TRANSACTION_VERSION, TRANSACTIONS_V2)

    # Producer ids

    def _new_producer_id(self) -> int:
        found = self._producer_ids.next()
        if found is None:
            raise NoProducerId
        return found

    def _decide_later(self, name: str, decide: Decide, why: str, answered: Answered) -> None:
        """Decide again when there are producer ids: what was known of the transaction may have changed by then."""
        task = asyncio.get_running_loop().create_task(self._decide_with_ids(name, decide, why, answered))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _decide_with_ids(self, name: str, decide: Decide, why: str, answered: Answered) -> None:
        try:
            self._producer_ids.give_back(await self._producer_ids.later())
        except KafkaError as error:
            answered(Error(error.code))
        else:
            self._decide(name, decide, why, answered)

    # Time

    def _again(self, setting: str, work: Callable[[], object]) -> None:
        """Do something every so often."""

        def ring() -> None:
            self._timers[setting] = self.parts.clock.after(self.parts.config[setting], ring, CHORE)
            work()

        self._timers[setting] = self.parts.clock.after(self.parts.config[setting], ring, CHORE)

    def _abort_timed_out(self) -> None:
        self.parts.shares.begin(self._abort_timed_out_in_shares())

    def _abort_timed_out_in_shares(self) -> Generator[int, Any, None]:
        now_ms = self.parts.clock.now_ms()
        for led in list(self.led.values()):
            for count, found in enumerate(led.shard.ongoing(), 1):
                if found.is_timed_out(now_ms):
                    yield ABORTED_US + len(found.metadata.partitions) // WRITTEN_A_US
                    if found.is_timed_out(now_ms):  # others have had their turn
                        self.abort(found, f"it was open for more than {found.metadata.timeout_ms} ms")
                elif not count % OPEN_TOGETHER:
                    yield OPEN_US

    def abort(self, found: TransactionalId, why: str, answered: Answered | None = None) -> None:
        """Abort an open transaction, and fence its producer."""
        start_ms = found.metadata.start_ms

        def decide(led: TransactionStatePartition) -> Transition | None:
            if led.shard.ids.get(found.name) is not found or found.pending or found.metadata.state is not ONGOING:
                return None  # something has happened while it was waited for a producer id
            if found.metadata.start_ms != start_ms:
                return None  # this is the next transaction
            return led.shard.abort(found, now_ms=self.parts.clock.now_ms(), new_producer_id=self._new_producer_id)

        self._decide(found.name, decide, why, answered or nobody_waits)

    def _remove_expired(self) -> None:
        self.parts.shares.begin(self._remove_expired_in_shares())

    def _remove_expired_in_shares(self) -> Generator[int, Any, None]:
        for led in list(self.led.values()):
            for found in list(led.shard.ids.values()) if not led.is_loading else ():
                transition = led.expire(found)
                yield LOOKED_AT_US if transition is None else FORGOTTEN_US


def nobody_waits(answer: object) -> None:
    """What is done because time has passed is tried again when more has passed."""

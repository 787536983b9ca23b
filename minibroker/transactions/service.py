"""Transaction service of a broker: what of transactions there is before the first of them, and the coordinator then."""

from __future__ import annotations

from functools import cached_property

from minibroker.coordinator.service import CoordinatorService
from minibroker.transactions import TRANSACTION_STATE_TOPIC

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from minibroker.parts import Parts
    from minibroker.replication.replica import Replica
    from minibroker.transactions.coordinator import ProducerIdSource, TransactionCoordinator
    from minibroker.transactions.markers import BrokerCalls
    from minibroker.transactions.verification import TransactionVerifier


class Transactions(CoordinatorService["TransactionCoordinator"]):
    """One for the life of a broker."""

    def __init__(
        self,
        parts: Parts,
        replicas: Mapping[tuple[str, int], Replica],
        calls: BrokerCalls,
        producer_ids: ProducerIdSource,
    ):
        super().__init__(parts, TRANSACTION_STATE_TOPIC)
        self._replicas = replicas
        self._calls = calls
        self._producer_ids = producer_ids

    def make(self) -> TransactionCoordinator:
        """Return the transaction coordinator."""
        from minibroker.transactions.coordinator import TransactionCoordinator

        return TransactionCoordinator(self.parts, self._replicas, self._calls, self._producer_ids)

    @cached_property
    def verifier(self) -> TransactionVerifier:
        """What asks coordinators about batches; made for the first of a transaction."""
        from minibroker.transactions.verification import TransactionVerifier

        return TransactionVerifier(self.parts, self._calls)

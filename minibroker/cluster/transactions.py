"""The transactions of a cluster: each as the broker that coordinates it has it."""

from __future__ import annotations

TIMEOUT_S = 10.0

TYPE_CHECKING = False
if TYPE_CHECKING:
    from minibroker.broker.transaction_view import SeenTransactions
    from minibroker.cluster.nodes import Nodes
    from minibroker.transactions.view_rows import TransactionView


class Transactions:
    """How transactions are looked at, waited for and aborted."""

    def __init__(self, cluster: Nodes):
        self.cluster = cluster

    def transactions(self) -> list[TransactionView]:
        """Return all transactional ids: state, producer id and epoch, timeout, partitions, coordinator."""
        return self._seen().transactions()

    def transaction(self, id: str) -> TransactionView:
        """Return a transactional id: state, producer id and epoch, timeout, partitions, coordinator.

        KafkaError if there is none.
        """
        return self._seen().transaction(id)

    async def wait_transaction(self, id: str, state: str, timeout: float = TIMEOUT_S) -> TransactionView:
        """Wait until a transaction has a state; return it as it is then, however short it lasts.

        Ongoing, PrepareCommit, PrepareAbort, CompleteCommit, CompleteAbort, Empty; Dead: there is none of that id.
        TimeoutError says how it is instead.
        """
        return await self._seen().wait_transaction(id, state, timeout_ms=timeout * 1000)

    async def abort_transaction(self, id: str, timeout: float = TIMEOUT_S) -> TransactionView:
        """Abort an open transaction and fence its producer, as an operator would; return when that is decided.

        Its markers follow: wait_transaction(id, "CompleteAbort").
        """
        return await self._seen().abort_transaction(id, timeout_ms=timeout * 1000)

    def _seen(self) -> SeenTransactions:
        from minibroker.broker.transaction_view import SeenTransactions  # nothing of it is loaded before it is needed

        cluster = self.cluster
        return SeenTransactions(cluster.events, lambda: cluster.nodes, lambda: cluster.controller.image)

"""Those who look after a lesson's cluster: what `minibroker transactions` asks and does, by the clock of the lesson.

A leader knows producers by their ids, a coordinator by transactional ids; what hangs shows when the two are compared.
What must hold: it is the client of that command which asks, so a lesson finds what the command finds.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from minibroker.client.cluster import Cluster
from minibroker.client.transactions import Transactions
from minibroker.clock import LoopClock
from minibroker.clock.steered import duration_ms
from minibroker.lessons.clients import PATIENCE_MS, NotPossible

TYPE_CHECKING = False
if TYPE_CHECKING:
    from minibroker.clock.steered import SteeredClock
    from minibroker.lessons.sharing import Place

CLIENT_ID = "operator"
LONGER_THAN = "15m"  # of find-hanging, as transaction.max.timeout.ms: no open transaction is older by right
MINUTE_MS = 60_000


class OperatorClock(LoopClock):
    """Waits by the loop, as all clients of a lesson do, and knows the time of the lesson."""

    def __init__(self, clock: SteeredClock):
        self._clock = clock

    def now_ms(self) -> int:
        return self._clock.now_ms()


@asynccontextmanager
async def operating(address: str, clock: SteeredClock) -> AsyncIterator[Transactions]:
    """Ask a cluster, each thing once."""
    by_lesson = OperatorClock(clock)
    async with Cluster(address, client_id=CLIENT_ID, clock=by_lesson, timeout_ms=PATIENCE_MS, retry_count=0) as cluster:
        yield Transactions(cluster)


async def known_to_coordinators(transactions: Transactions) -> list[str]:
    """Tell of each transactional id where its coordinator is with it."""
    listed = await transactions.list_transactions()
    described = await transactions.describe_transactions(each.transactional_id for each in listed)
    told = []
    for name, each in sorted(described.items()):
        where = ", ".join(f"{topic}-{number}" for topic, number in each.partitions) or "no partitions"
        who = f"producer {each.producer_id} in epoch {each.producer_epoch}"
        told.append(f"broker {each.coordinator_id} coordinates {name}: {each.state}, {who}, {where}")
    return told or ["no coordinator knows of any transactional id"]


async def open_for_leaders(transactions: Transactions, place: Place) -> list[str]:
    """Tell of the transactions that are open to the leader of a partition."""
    told = []
    for _, each in await transactions.open_transactions([place]):
        who = f"producer {each.producer_id} in epoch {each.producer_epoch}"
        told.append(f"open in {place[0]}-{place[1]}: from offset {each.transaction_start_offset} on, of {who}")
    return told or [f"nothing is open in {place[0]}-{place[1]}"]


async def hanging(transactions: Transactions, place: Place, longer_than: str, now_ms: int) -> list[str]:
    """Tell what is open in a partition, has not written for so long, and has no coordinator that would end it."""
    told = []
    for _, each in await transactions.hanging([place], longer_than_ms=round(duration_ms(longer_than))):
        minutes = (now_ms - each.last_timestamp) // MINUTE_MS
        who = f"producer {each.producer_id} in epoch {each.producer_epoch}"
        told.append(f"hangs in {place[0]}-{place[1]}: from offset {each.transaction_start_offset} on, of {who},")
        told[-1] += f" whose last record is {minutes} minutes old"
    return told or [f"nothing hangs in {place[0]}-{place[1]} that has not written for {longer_than}"]


async def abort(transactions: Transactions, place: Place, start_offset: int) -> None:
    """Have the leader of a partition write the marker for the transaction that begins there, whoever it belongs to."""
    for _, each in await transactions.open_transactions([place]):
        if each.transaction_start_offset == start_offset:
            return await transactions.abort(place, each.producer_id, each.producer_epoch, each.coordinator_epoch)
    raise NotPossible(f"no transaction that is open begins at offset {start_offset} of {place[0]}-{place[1]}")

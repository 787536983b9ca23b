"""View of transactions for HTTP, Python and lessons: state, epoch, partitions; waits, and an operator's abort.

    seen = SeenTransactions(events, lambda: {node.node_id: node}, lambda: node.image)
    await seen.wait_transaction("pay-1", "PrepareCommit", timeout_ms=5000)

Of each id the broker is asked that coordinates it. Nothing asks again and again: events say when to look, and patience
is measured by the machine's clock, since the cluster's may be frozen.
What must hold: looking changes nothing; a state is seen however short it lasts, if it comes while it is waited for.
"""

from __future__ import annotations

from minibroker.coordinator.hashing import partition_of
from minibroker.errors import Error, KafkaError
from minibroker.transactions import TRANSACTION_STATE_TOPIC
from minibroker.transactions.states import DEAD, ONGOING, STORED
from minibroker.transactions.view_rows import TransactionView

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from minibroker.broker.broker_parts import BrokerParts
    from minibroker.events import EventStream
    from minibroker.metadata.image import MetadataImage, Partition
    from minibroker.transactions.partition import Answer, TransactionStatePartition
    from minibroker.transactions.shard import TransactionalId

TIMEOUT_MS = 10_000
STATES = [state.name for state in (*STORED, DEAD)]  # Dead: there is none of that name
# After the others it is worth looking again: another broker may coordinate, or has read what there is.
KINDS = ("transaction", "leader", "epoch", "metadata", "broker")


class SeenTransactions:
    """The transactions of the brokers of one cluster, or of one broker."""

    def __init__(
        self, events: EventStream, nodes: Callable[[], Mapping[int, BrokerParts]], image: Callable[[], MetadataImage]
    ):
        """nodes: by id; who does not run is left out of account. image: what is decided."""
        self._events = events
        self._nodes = nodes
        self._image = image

    # Looking

    def transactions(self) -> list[TransactionView]:
        """Return all transactional ids, by name."""
        return sorted(_view(led, found) for led in self._led() for found in led.shard.ids.values())

    def ids(self) -> Iterator[str]:
        """Yield all transactional ids."""
        return (found.name for led in self._led() for found in led.shard.ids.values())

    def row(self, id: str) -> list[object] | None:
        """Return what a list of transactions shows of one, None if there is none, or nobody can tell."""
        topic = self._image().topics.get(TRANSACTION_STATE_TOPIC)
        if topic is None:
            return None
        led = self._led_at(topic.partitions[partition_of(id, len(topic.partitions))])
        found = None if led is None else led.shard.ids.get(id)
        if led is None or found is None or found.metadata.producer_epoch < 0:  # its first record is not written yet
            return None
        _, *row = _view(led, found)
        return [[list(place) for place in each] if isinstance(each, list) else each for each in row]

    def transaction(self, id: str) -> TransactionView:
        """Return a transactional id; KafkaError if there is none, or nobody can tell."""
        return _view(*self._find(id))

    def _led(self) -> Iterator[TransactionStatePartition]:
        """Yield the partitions of the topic that some broker coordinates, and is to coordinate."""
        topic = self._image().topics.get(TRANSACTION_STATE_TOPIC)
        for partition in topic.partitions if topic is not None else ():
            if (led := self._led_at(partition)) is not None:
                yield led

    def _led_at(self, partition: Partition) -> TransactionStatePartition | None:
        node = self._nodes().get(partition.leader)
        if node is None or not node.is_ready or TRANSACTION_STATE_TOPIC not in node.image.topics:
            return None
        led = node.transactions.coordinator.led.get(partition.id)
        return None if led is None or led.is_loading else led

    def _find(self, id: str) -> tuple[TransactionStatePartition, TransactionalId]:
        topic = self._image().topics.get(TRANSACTION_STATE_TOPIC)
        if topic is not None:
            number = partition_of(id, len(topic.partitions))
            for led in self._led():
                if led.replica.partition == number:
                    led.check(id)  # its last record may not be safe yet
                    found = led.shard.ids.get(id)
                    if found is None or found.metadata.producer_epoch < 0:  # its first record is not written yet
                        break
                    return led, found
            else:
                leader = topic.partitions[number].leader
                who = "nobody leads" if leader < 0 else f"broker {leader} has not read"
                reason = f"nobody knows of {id!r}: {who} {TRANSACTION_STATE_TOPIC}-{number}"
                raise KafkaError(Error.COORDINATOR_NOT_AVAILABLE, reason)
        raise KafkaError(Error.TRANSACTIONAL_ID_NOT_FOUND, f"there is no transactional id {id!r}")

    # Waiting

    async def wait_transaction(self, id: str, state: str, *, timeout_ms: float = TIMEOUT_MS) -> TransactionView:
        """Return a transaction as it is when it has a state; TimeoutError says how it is instead."""
        if state not in STATES:
            raise ValueError(f"{state!r} is no state of a transaction: there are {', '.join(STATES)}")
        return await self._until(id, lambda view: view.state == state, state, timeout_ms)

    async def _until(
        self, id: str, fits: Callable[[TransactionView], bool], wanted: str, timeout_ms: float
    ) -> TransactionView:
        seen: list[TransactionView] = []

        def has_it() -> bool:
            try:
                view = self.transaction(id)
            except KafkaError as error:
                if error.code != Error.TRANSACTIONAL_ID_NOT_FOUND:
                    return False
                view = TransactionView(id, DEAD.name, -1, -1, -1, None, [], -1)
            if fits(view):
                seen.append(view)
            return bool(seen)

        try:
            await self._events.wait_until(has_it, KINDS, timeout_ms=max(timeout_ms, 0))
        except TimeoutError:
            try:
                state = f"it is {self.transaction(id).state}"
            except KafkaError as error:
                state = error.message
            raise TimeoutError(f"not within {timeout_ms / 1000:g} s: {id!r} is to be {wanted}; {state}") from None
        return seen[0]

    # Ending

    async def abort_transaction(self, id: str, *, timeout_ms: float = TIMEOUT_MS) -> TransactionView:
        """Abort an open transaction and fence its producer; return when that is decided, with the new epoch.

        ValueError if none is open; KafkaError if that cannot be written, and then it may be asked for again.
        """
        import asyncio

        led, found = self._find(id)
        if found.metadata.state is not ONGOING or found.pending is not None:
            change = ", and about to change" if found.pending is not None else ""
            raise ValueError(f"{id!r} has no transaction to abort: it is {found.metadata.state.name}{change}")
        failed: asyncio.Future[Error] = asyncio.get_running_loop().create_future()

        def answered(answer: Answer) -> None:
            if isinstance(answer, Error) and answer is not Error.NONE and not failed.done():
                failed.set_result(answer)

        self._nodes()[led.parts.node_id].transactions.coordinator.abort(found, "somebody asked for it", answered)
        aborted = asyncio.ensure_future(self._until(id, lambda view: view.state != ONGOING.name, "aborted", timeout_ms))
        try:
            await asyncio.wait((failed, aborted), return_when=asyncio.FIRST_COMPLETED)
            if aborted.done():
                return aborted.result()
        finally:
            aborted.cancel()
        error = failed.result()
        reason = f"{id!r} is not aborted, for that cannot be written ({error.name}): ask again when it can"
        raise KafkaError(error, reason)


def _view(led: TransactionStatePartition, found: TransactionalId) -> TransactionView:
    metadata = found.metadata
    return TransactionView(
        found.name,
        metadata.state.name,
        metadata.producer_id,
        metadata.producer_epoch,
        metadata.timeout_ms,
        metadata.start_ms if metadata.start_ms >= 0 else None,
        list(metadata.partitions),
        led.parts.node_id,
    )

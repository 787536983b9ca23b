"""Markers of ended transactions: sent to the leaders of their partitions (WriteTxnMarkers) until all of them are safe.

    a leader             gets one request at a time, and in the next all that has come meanwhile
    nobody leads         the partition waits for the metadata to change
    the topic is gone    the partition needs no marker any more
    an error             is tried again with whoever leads then; a broker that does not answer, too

What must hold: every partition of a transaction gets its marker before the transaction is complete. A coordinator that
has moved sends nothing more: the next one sends all that is left again, in an epoch of its own, and whoever has heard
of that epoch refuses markers of the one before.
Not here: writing them (broker/handlers/txn_markers.py), what may come next (shard.py).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Generator, Iterable, Sequence
from functools import partial
from typing import Any, Protocol

from minibroker.clock import CHORE
from minibroker.errors import Error, KafkaError
from minibroker.metadata.image import NO_LEADER
from minibroker.parts import Parts
from minibroker.protocol.headers import Request
from minibroker.protocol.messages.write_txn_markers import WriteTxnMarkersRequest, WriteTxnMarkersResponse
from minibroker.reporter import Unexpected
from minibroker.transactions.metadata import TopicPartition, by_topic
from minibroker.transactions.partition import TransactionStatePartition
from minibroker.transactions.shard import Transition
from minibroker.transactions.states import PREPARE_COMMIT

Marker = WriteTxnMarkersRequest.WritableTxnMarker

VERSION = 2
ROUTED_US, ROUTED_TOGETHER = 1, 500  # a partition; so many between two looks at what has changed
RETRY_MS = 100
PARTITIONS_MAX, TRANSACTIONS_MAX = 2_000, 100  # of one request; each transaction whose last marker it is completes
# What a partition says that has its marker, or is too old for one.
WRITTEN = frozenset((Error.NONE, Error.UNSUPPORTED_FOR_MESSAGE_FORMAT, Error.UNSUPPORTED_VERSION))
# Another coordinator has been there before, or another producer: nobody here may end this transaction.
FENCED = frozenset((Error.INVALID_PRODUCER_EPOCH, Error.TRANSACTION_COORDINATOR_FENCED))
FENCED_MS = 10_000  # within which a coordinator that has moved hears of it
REFUSED = """\
transaction {name!r} stays {state}: {place} takes no marker of producer {producer.producer_id}, epoch \
{producer.epoch}, from coordinator epoch {epoch}, for it has had one with a newer epoch
  Nobody else coordinates it by now, so somebody has sent such a marker by hand (WriteTxnMarkers). Its partitions are
  readable as that marker says; its producer has to go on with another transactional id."""


class BrokerCalls(Protocol):
    """Asks a broker, or this one."""

    def call(self, broker_id: int, request: Request, version: int) -> Any:
        """Return the answer, or what waits for it; NetworkError if there is none."""
        ...

    def holds(self, transactional_id: str, topic: str, partition: int, go_on: Callable[[], object]) -> bool:
        """Whether a marker is to wait, until `go_on` is called: for faults that somebody has set."""
        ...


class EndedTransaction:
    """A transaction that is prepared, and whose markers are under way."""

    __slots__ = ("completion", "is_fenced", "led")

    def __init__(self, led: TransactionStatePartition, completion: Transition):
        self.led = led
        self.completion = completion
        self.is_fenced = False

    @property
    def is_wanted(self) -> bool:
        """Whether this coordinator is still to see to it."""
        return not (self.led.log.is_closed or self.is_fenced) and self.completion.of.pending is self.completion

    def marker(self, places: Iterable[TopicPartition]) -> Marker:
        metadata = self.completion.of.metadata
        return Marker(
            producer_id=metadata.producer_id,
            producer_epoch=metadata.producer_epoch,
            transaction_result=metadata.state is PREPARE_COMMIT,
            topics=[
                Marker.WritableTxnMarkerTopic(name=name, partition_indexes=numbers)
                for name, numbers in by_topic(places).items()
            ],
            coordinator_epoch=self.led.epoch,
            transaction_version=metadata.client_version,
        )


Batch = dict[EndedTransaction, list[TopicPartition]]  # what goes into one request
Part = tuple[EndedTransaction, Sequence[TopicPartition]]  # partitions of a transaction that wait together


class MarkerSender:
    """All markers that one coordinator has to send."""

    def __init__(self, parts: Parts, calls: BrokerCalls):
        self.parts = parts
        self._calls = calls
        self._unrouted: deque[tuple[EndedTransaction, Iterable[TopicPartition]]] = deque()
        self._is_routing = False
        self._waiting: dict[int, deque[Part]] = {}  # by broker
        # By the id of the topic: nothing else that changes helps them, but that their coordinator gives them up.
        self._led_by_nobody: dict[tuple[TransactionStatePartition, bytes], list[Part]] = {}
        # By broker: what waits for its answer; None: in the next turn of the loop something is sent.
        self._sending: dict[int, asyncio.Task[None] | None] = {}
        self._unexpected = Unexpected(parts.reporter, f"markers of broker {parts.node_id}")
        parts.watchers[self._metadata_changed] = None

    def stop(self) -> None:
        self.parts.watchers.pop(self._metadata_changed, None)
        for task in self._sending.values():
            if task is not None:
                task.cancel()
        self._unrouted.clear()
        self._waiting.clear()
        self._led_by_nobody.clear()

    def send(self, led: TransactionStatePartition, completion: Transition) -> None:
        """Have markers written to all partitions of a prepared transaction, and then its completion."""
        self._route(EndedTransaction(led, completion), completion.of.metadata.partitions)

    def _route(self, ended: EndedTransaction, places: Iterable[TopicPartition]) -> None:
        """Put partitions where they are to wait: at once if there are few of them in this turn, else in shares."""
        self._unrouted.append((ended, places))
        if not self._is_routing:
            self._is_routing = True
            self.parts.shares.begin(self._route_in_shares())

    def _route_in_shares(self) -> Generator[int, None, None]:
        try:
            while self._unrouted:
                ended, places = self._unrouted.popleft()
                listed = list(places)
                for start in range(0, max(len(listed), 1), ROUTED_TOGETHER):
                    together = listed[start : start + ROUTED_TOGETHER]
                    if ended.is_wanted:
                        self._put(ended, together)
                    yield ROUTED_US * (1 + len(together))
        finally:
            self._is_routing = False

    def _put(self, ended: EndedTransaction, places: Sequence[TopicPartition]) -> None:
        """Have partitions wait for the broker that leads them now.

        Kafka: 4.x takes a partition that nobody leads for deleted, and completes the transaction without its marker: no
        consumer with read_committed gets beyond it any more. Here it waits for a leader, as in 3.9.
        """
        topics = self.parts.image.topics
        gone: list[TopicPartition] = []
        by_leader: dict[int, list[TopicPartition]] = {}
        for place in places:
            name, number = place
            topic = topics.get(name)
            if topic is None or number >= len(topic.partitions):
                gone.append(place)
            elif not self._calls.holds(ended.completion.of.name, name, number, partial(self._route, ended, (place,))):
                by_leader.setdefault(topic.partitions[number].leader, []).append(place)
        for name, numbers in by_topic(by_leader.pop(NO_LEADER, ())).items():
            part = ended, [(name, number) for number in numbers]
            self._led_by_nobody.setdefault((ended.led, topics[name].id), []).append(part)
        for leader, led in by_leader.items():
            self._waiting.setdefault(leader, deque()).append((ended, led))
            self._begin(leader)
        if gone or not places:  # an abort in v2 may have no partitions at all
            self._written(ended, gone)

    def _written(self, ended: EndedTransaction, places: Iterable[TopicPartition]) -> None:
        """Take note of markers that are safe; with the last of them the transaction is complete."""
        if ended.led.shard.markers_written(ended.completion.of, places):
            ended.led.carry_out(ended.completion, "every partition has its marker")

    def _metadata_changed(self) -> None:
        changed = self.parts.changed_topics
        for key in [key for key in self._led_by_nobody if key[1] in changed or key[0].log.is_closed]:
            for ended, places in self._led_by_nobody.pop(key):
                self._route(ended, places)

    # One broker

    def _begin(self, broker_id: int) -> None:
        if broker_id not in self._sending:
            self._sending[broker_id] = None
            asyncio.get_running_loop().call_soon(self._send, broker_id)

    def _send(self, broker_id: int) -> None:
        """Send what waits for a broker, until there is nothing more or an answer is to be waited for.

        A broker that is alone answers itself at once: markers and completion are written before the producer can hear
        that the end is decided, and so before it begins anew.
        """
        while batch := self._take(broker_id):
            request = WriteTxnMarkersRequest(markers=[ended.marker(places) for ended, places in batch.items()])
            try:
                answer = self._calls.call(broker_id, request, VERSION)
                if hasattr(answer, "__await__"):
                    name = f"markers {self.parts.node_id}->{broker_id}"
                    waiting = asyncio.get_running_loop().create_task(self._wait(broker_id, batch, answer), name=name)
                    self._sending[broker_id] = waiting
                    return
                self._answered(batch, answer)
            except Exception as failure:
                self._failed(batch, failure)
        del self._sending[broker_id]

    async def _wait(self, broker_id: int, batch: Batch, answer: Awaitable[WriteTxnMarkersResponse]) -> None:
        try:
            self._answered(batch, await answer)
        except Exception as failure:
            self._failed(batch, failure)
        self._send(broker_id)

    def _failed(self, batch: Batch, failure: Exception) -> None:
        if not isinstance(failure, KafkaError):
            self._unexpected.tell(failure)
        for ended, places in batch.items():
            self._retry(ended, places)

    def _answered(self, batch: Batch, answer: WriteTxnMarkersResponse) -> None:
        said = {
            (marker.producer_id, topic.name, each.partition_index): each.error_code
            for marker in answer.markers
            for topic in marker.topics
            for each in topic.partitions
        }
        for ended, places in batch.items():
            producer_id = ended.completion.of.metadata.producer_id
            self._go_by(ended, {place: said.get((producer_id, *place)) for place in places})
        for log in {ended.led.log: None for ended in batch}:
            log.flush()

    def _take(self, broker_id: int) -> Batch:
        """Return what goes into one request to a broker."""
        waiting, left = self._waiting.get(broker_id), PARTITIONS_MAX
        batch: Batch = {}
        while waiting and left and len(batch) < TRANSACTIONS_MAX:
            ended, places = waiting.popleft()
            if not ended.is_wanted:
                continue
            if len(places) > left:
                waiting.appendleft((ended, places[left:]))
                places = places[:left]
            batch.setdefault(ended, []).extend(places)
            left -= len(places)
        if not waiting:
            self._waiting.pop(broker_id, None)
        return batch

    def _go_by(self, ended: EndedTransaction, codes: dict[TopicPartition, int | None]) -> None:
        """Go by what a broker says of each partition. None: nothing, so it is asked again.

        Kafka: never ends a transaction one of whose partitions says what it does not expect; here it is asked again.
        """
        if not ended.is_wanted:
            return
        again = dict.fromkeys(place for place, code in codes.items() if code not in WRITTEN)
        self._written(ended, [place for place in codes if place not in again])
        fenced = [place for place in again if codes[place] in FENCED]
        if fenced:
            ended.is_fenced = True
            self.parts.clock.after(FENCED_MS, partial(self._say_fenced, ended, fenced[0]), CHORE)
        elif again:
            self._retry(ended, again)

    def _retry(self, ended: EndedTransaction, places: Iterable[TopicPartition]) -> None:
        self.parts.clock.after(RETRY_MS, partial(self._route, ended, places))

    def _say_fenced(self, ended: EndedTransaction, place: TopicPartition) -> None:
        """Say that a transaction is never completed, if this is still its coordinator: mostly there is another."""
        if not ended.led.log.is_closed:
            metadata = ended.completion.of.metadata
            line = REFUSED.format(
                name=ended.completion.of.name,
                state=metadata.state.name,
                place=f"{place[0]}-{place[1]}",
                producer=metadata.producer,
                epoch=ended.led.epoch,
            )
            self.parts.say_once("markers", line)

"""Fetch where not everybody may read everything: what one may not read is answered with an error, and read by nobody.

A partition that was refused stays in its session, as with Kafka, and is looked at again with each request of it: the
day it may be read, it is. It makes no answer leave sooner, unless there is nothing else to wait for.
Not here: who may read what (broker/authorize/).
"""

from __future__ import annotations

from collections.abc import Iterable

from minibroker.broker.dispatch import Context
from minibroker.broker.handlers.fetch import PartitionResponse, Round, answer_of, refuse_all
from minibroker.errors import Error, KafkaError
from minibroker.protocol.messages.fetch import FetchRequest, FetchResponse
from minibroker.replication.replica import READ_COMMITTED, READ_UNCOMMITTED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from minibroker.broker.handlers.fetch import PartitionRequest
    from minibroker.broker.handlers.fetch_sessions import Key
    from minibroker.turns import Work

    Answer = (
        FetchResponse
        | Coroutine[None, None, FetchResponse]
        | Work[FetchResponse | Coroutine[None, None, FetchResponse]]
    )


def fetch(request: FetchRequest, context: Context, may_read: Callable[[str], bool]) -> Answer:
    """Do what `fetch.fetch` does, for who may read some topics only.

    may_read: asked by a topic's name; that is empty where nobody has the id.
    """
    if not READ_UNCOMMITTED <= request.isolation_level <= READ_COMMITTED:
        return refuse_all(request, context)
    try:
        round_ = ReadableRound(request, context, may_read)
    except KafkaError as error:
        return FetchResponse(error_code=error.code, responses=[])
    return answer_of(round_, request, context)


class ReadableRound(Round):
    """A request of which only some partitions are read."""

    def __init__(self, request: FetchRequest, context: Context, may_read: Callable[[str], bool]):
        super().__init__(request, context)
        self._may_read = may_read
        self._refused: set[Key] = set()

    def _to_read(self, keys: Iterable[Key] | None) -> Iterable[tuple[Key, PartitionRequest]]:
        readable = []
        for key, wanted in super()._to_read(keys):
            name = key[0] or self.context.node.topic_name(key[1]) or ""
            if self._may_read(name):
                readable.append((key, wanted))
                self._refused.discard(key)
                self._unknown.discard(key)
                continue
            answer = PartitionResponse(
                partition_index=wanted.partition, error_code=Error.NONE, high_watermark=-1, records=b""
            )
            self._refuse(key, answer, KafkaError(Error.TOPIC_AUTHORIZATION_FAILED), None)
            self._answers[key] = answer
            self._unknown.add(key)
            self._refused.add(key)
        if len(self._refused) == len(self._asked):
            self._is_due = True
        return readable

    def watch(self, keys: Iterable[Key]) -> None:
        readable = []
        for key in keys:
            if key in self._refused:
                self.watched.changed.pop(key, None)  # until the next request
            else:
                readable.append(key)
        super().watch(readable)

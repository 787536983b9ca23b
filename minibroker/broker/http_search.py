"""Searching a topic, and looking at what is written to it: streams that go on until they are at an end or left."""

from __future__ import annotations

from typing import Any

from minibroker.broker.http_asking import Query, check_topic, is_allowed, read_in_turn, source_of
from minibroker.broker.http_calls import BAD, NOT_NOW, Refused, as_refused
from minibroker.broker.http_records import BYTES_USUAL, ISOLATION, replicas_of
from minibroker.errors import Error, KafkaError
from minibroker.log.reading import find_time_in_pieces
from minibroker.security.acls import READ
from minibroker.view.decoding import BASE64, HEX
from minibroker.view.filters import BadFilter, Filter
from minibroker.view.record_rows import Wanted
from minibroker.view.search import SearchedPartition, SearchStream
from minibroker.view.sliced_stream import READERS_MAX
from minibroker.view.tail import TailStream

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from typing import Final

    from minibroker.broker.broker_parts import BrokerParts
    from minibroker.broker.http_calls import Call
    from minibroker.metadata.image import Topic
    from minibroker.replication.replica import Replica

HITS_USUAL: Final = 100
HITS_MAX: Final = 500
SECONDS_USUAL: Final = 30
SECONDS_MAX: Final = 600
RATE_MAX: Final = 50
FILTERS: Final = ("key", "key_hex", "text", "path", "header")
COMMON: Final = (*FILTERS, "partition", "isolation", "bytes")


async def search_records(node: BrokerParts, call: Call) -> Any:
    """Return a stream of what fits, from the beginning, or from where the query says."""
    topic = check_topic(node, call, READ)
    query = Query(call, *COMMON, "offset", "time", "newest", "limit", "seconds", "broker")
    query.at_most_one("offset", "time", "newest")
    wanted = _filter(query)
    if wanted.is_empty:
        raise Refused(BAD, f"something is to be looked for: {', '.join(FILTERS)}")
    shown = _shown(query)
    limit = query.number("limit", HITS_USUAL, least=1, most=HITS_MAX)
    seconds = query.number("seconds", SECONDS_USUAL, least=1, most=SECONDS_MAX)
    replicas = replicas_of(node, topic, query)
    if query.has("offset") and len(replicas) > 1:
        raise Refused(BAD, f"{topic.name} has {len(topic.partitions)} partitions: an offset needs one of them")
    places = await read_in_turn(node, _places(replicas, query, committed_only=shown.committed_only))
    _check_room(node)
    return SearchStream(
        node.feed, _may_look(node, call, topic), _asked(node), places, wanted, limit=limit, seconds=seconds, shown=shown
    )


def _places(
    replicas: list[Replica], query: Query, *, committed_only: bool
) -> Generator[int, None, list[SearchedPartition]]:
    """Return where each partition is searched from."""
    places = []
    for replica in replicas:
        log, end = replica.log, replica.readable_end(int(committed_only))
        start = query.number("offset") if query.has("offset") else log.log_start_offset
        if query.has("offset") and not 0 <= start <= log.log_end_offset:
            text = f"{start} is not within {log.log_start_offset} to {log.log_end_offset}"
            raise as_refused(KafkaError(Error.OFFSET_OUT_OF_RANGE, text))
        if query.has("newest"):
            start = end - query.number("newest", least=1)
        if query.has("time"):
            found = yield from find_time_in_pieces(log, query.number("time"), limit_offset=end)
            start = end if found is None else found.offset
        places.append(SearchedPartition(replica, start, committed_only=committed_only))
    return places


def tail_records(node: BrokerParts, call: Call) -> Any:
    """Return a stream of what is written from now on."""
    topic = check_topic(node, call, READ)
    query = Query(call, *COMMON, "rate", "markers")
    shown = _shown(query)
    shown.with_markers = query.truth("markers", True)
    wanted = _filter(query)
    replicas_of(node, topic, query)  # of one that is there no more the stream says nothing
    rate = query.number("rate", RATE_MAX, least=1, most=RATE_MAX)

    def find() -> list[Replica]:
        known = source_of(node).image.topics.get(topic.name)
        if known is None:
            return []
        try:
            return replicas_of(node, known, query)
        except Refused:
            return []  # nobody leads now

    _check_room(node)
    return TailStream(node.feed, _may_look(node, call, topic), _asked(node), find, wanted, rate=rate, shown=shown)


def _shown(query: Query) -> Wanted:
    return Wanted(
        bytes_max=BYTES_USUAL,
        committed_only=query.one_of("isolation", ISOLATION, ISOLATION[0]) == ISOLATION[1],
        encoding=query.one_of("bytes", (HEX, BASE64), HEX),
    )


def _filter(query: Query) -> Filter:
    if query.has("key") and query.has("key_hex"):
        raise Refused(BAD, "one of key and key_hex is enough")
    try:
        key = query.text("key").encode() if query.has("key") else None
        if query.has("key_hex"):
            key = bytes.fromhex(query.text("key_hex"))
    except ValueError:
        raise Refused(BAD, "key_hex is not hex") from None
    try:
        return Filter(key=key, text=query.text("text"), path=query.text("path"), header=query.text("header"))
    except BadFilter as failure:
        raise Refused(BAD, str(failure)) from None


def _may_look(node: BrokerParts, call: Call, topic: Topic) -> Callable[[], bool]:
    def may_look() -> bool:
        known = source_of(node).image.topics.get(topic.name)
        return known is not None and known.id == topic.id and is_allowed(node, call, READ, topic.name)

    return may_look


def _asked(node: BrokerParts) -> Callable[[], int]:
    return lambda: sum(each.asked_count for each in source_of(node).nodes.values())


def _check_room(node: BrokerParts) -> None:
    if len(node.feed.readers) >= READERS_MAX:
        raise Refused(NOT_NOW, f"{READERS_MAX} searches and tails go on already: close one of them")

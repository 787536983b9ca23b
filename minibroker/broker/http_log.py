"""The log of a partition by HTTP: its segments, how an offset or a time is found in it, and its batches as bytes."""

from __future__ import annotations

from typing import Any

from minibroker.broker.http_asking import Query, check_topic, number_of, read_in_turn, replica_of, source_of
from minibroker.broker.http_calls import BAD, Refused, as_refused
from minibroker.errors import Error, KafkaError
from minibroker.security.acls import DESCRIBE, READ
from minibroker.view.anatomy import (
    Beside,
    TooLarge,
    batch_bytes,
    explained,
    index_entries,
    index_in,
    log_anatomy,
    lookup,
)
from minibroker.view.record_rows import encode

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Generator
    from typing import Final

    from minibroker.broker.broker_parts import BrokerParts
    from minibroker.broker.http_calls import Call
    from minibroker.log.segment import Segment
    from minibroker.replication.replica import Replica

RECORDS_USUAL: Final = 10
RECORDS_MAX: Final = 100  # that are explained
INT32_MAX: Final = (1 << 31) - 1
FOUND_US: Final = 100
ENCODED_BYTES_PER_US: Final = 100
ROWS_TOGETHER: Final = 50


def _replica(node: BrokerParts, call: Call, query: Query, operation: int = DESCRIBE) -> Replica:
    topic = check_topic(node, call, operation)
    number = number_of(call.arguments[1], "a partition", most=INT32_MAX)
    return replica_of(node, topic, number, query.number_or_none("broker", most=INT32_MAX))


def show_log(node: BrokerParts, call: Call) -> Any:
    """Return what the log of a replica consists of, or the entries of the indexes of one segment."""
    query = Query(call, "broker", "segment")
    replica = _replica(node, call, query)
    if query.has("segment"):
        return read_in_turn(node, _checked(index_entries(_segment(replica, query))))
    return read_in_turn(node, _checked(log_anatomy(replica, source_of(node).clean_offset(replica))))


def look_up(node: BrokerParts, call: Call) -> Any:
    """Return the steps by which an offset or a time is found."""
    query = Query(call, "broker", "offset", "time")
    query.at_most_one("offset", "time")
    replica = _replica(node, call, query)
    if not query.has("time") and not query.has("offset"):
        raise Refused(BAD, "an offset or a time is to be looked up")

    def looked_up() -> Generator[int, None, dict[str, Any]]:
        steps = yield from lookup(replica.log, offset=query.number("offset", -1), time_ms=query.number("time", -1))
        return {"topic": replica.topic, "partition": replica.partition, "broker": replica.node_id, "steps": steps}

    return read_in_turn(node, _checked(looked_up()))


def show_bytes(node: BrokerParts, call: Call) -> Any:
    """Return one batch: its bytes, its fields, and what was sent."""
    query = Query(call, "broker", "offset", "segment", "at", "record", "records", "compare", "format")
    query.at_most_one("offset", "at")
    replica = _replica(node, call, query, READ)
    return read_in_turn(node, _checked(_bytes(replica, query)))


def _checked(work: Generator[int, None, dict[str, Any]]) -> Generator[int, None, bytes]:
    """Return what comes of work as JSON."""
    try:
        found = yield from work
    except TooLarge as error:
        raise Refused(BAD, str(error)) from None
    return (yield from _encoded(found))


def _encoded(found: dict[str, Any]) -> Generator[int, None, bytes]:
    """Return an object as JSON; of lists that may be long some elements at a time."""
    pieces = []
    for name, value in found.items():
        if isinstance(value, list):
            rows = []
            for start in range(0, len(value), ROWS_TOGETHER):
                text = encode(value[start : start + ROWS_TOGETHER])
                rows.append(text[1:-1])
                yield len(text) // ENCODED_BYTES_PER_US
            pieces.append(f"{encode(name)}:[{','.join(rows)}]")
        else:
            pieces.append(f"{encode(name)}:{encode(value)}")
    return f"{{{','.join(pieces)}}}\n".encode()


def _segment(replica: Replica, query: Query) -> Segment:
    base_offset = query.number("segment")
    for segment in replica.log.segments:
        if segment.base_offset == base_offset:
            return segment
    raise Refused("404 Not Found", f"no segment begins with {base_offset}")


def _bytes(replica: Replica, query: Query) -> Generator[int, None, dict[str, Any]]:
    count = query.number("records", RECORDS_USUAL, least=0, most=RECORDS_MAX)
    as_format = query.number_or_none("format", most=2)
    segment, position = _place(replica, query)
    yield FOUND_US
    data = batch_bytes(segment, position)
    first = query.number("record", most=INT32_MAX)
    if query.has("offset") and not query.has("record"):
        index = index_in(data, query.number("offset"))
        first = 0 if index < count else index
    face: dict[str, Any] = {
        "topic": replica.topic,
        "partition": replica.partition,
        "broker": replica.node_id,
        "segment": segment.base_offset,
        "position": position,
        "next_position": position + len(data) if position + len(data) < segment.size_bytes else None,
    }
    beside = Beside(data)
    if as_format is not None or query.truth("compare"):
        yield from beside.read()
    if as_format is not None:
        if beside.why:
            raise Refused(BAD, f"it is not to be had in another format: {beside.why}")
        data = beside.in_format(as_format)
        face["format"] = as_format
    face |= yield from explained(data, range(first, first + count))
    if query.truth("compare"):
        face["sent"] = yield from beside.sent()
        face["formats"] = yield from beside.formats()
        if beside.why:
            face["why"] = beside.why
    return face


def _place(replica: Replica, query: Query) -> tuple[Segment, int]:
    """Return the segment and the position of the batch that is asked for."""
    log = replica.log
    if query.has("at"):
        segment = _segment(replica, query) if query.has("segment") else log.active
        position = query.number("at")
        if position >= segment.size_bytes:
            raise Refused(BAD, f"segment {segment.base_offset} has {segment.size_bytes:,} bytes, and not {position:,}")
        return segment, position
    if not query.has("offset"):
        raise Refused(BAD, "an offset, or a segment and a byte in it (at), says which batch is to be shown")
    offset = query.number("offset")
    if log.log_start_offset <= offset < log.log_end_offset:
        for segment in log.segments[log.segment_of(offset) :]:
            place = segment.find(offset)
            if place is not None:
                return segment, place.position
    text = f"the log has the offsets from {log.log_start_offset} on, and {log.log_end_offset} comes next: not {offset}"
    raise as_refused(KafkaError(Error.OFFSET_OUT_OF_RANGE, text))

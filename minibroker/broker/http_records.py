"""Records by HTTP: to read some, and to write some.

Reading is done on the replica of the leader, or of a broker that is named, as far as consumers see it there; writing by
Produce, on the leader of each partition.
"""

from __future__ import annotations

from typing import Any

from minibroker.broker.http_asking import (
    Query,
    asked,
    check_fields,
    check_topic,
    field,
    partition_of,
    read_in_turn,
    replica_of,
    running_leader,
)
from minibroker.broker.http_calls import BAD, Refused, as_refused
from minibroker.errors import Error, KafkaError
from minibroker.log.build import build_batch
from minibroker.log.murmur2 import partition_of_key
from minibroker.log.reading import find_time_in_pieces
from minibroker.log.records import Record
from minibroker.protocol.messages.produce import ProduceRequest
from minibroker.security.acls import READ, WRITE
from minibroker.view.decoding import BASE64, HEX
from minibroker.view.record_rows import PartitionRead, Wanted, encode

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Generator, Mapping
    from typing import Final

    from minibroker.broker.broker_parts import BrokerParts
    from minibroker.broker.http_calls import Call
    from minibroker.metadata.image import Topic
    from minibroker.replication.replica import Replica

PRODUCE_VERSION: Final = 12
LIMIT_USUAL: Final = 50
LIMIT_MAX: Final = 200
BYTES_USUAL: Final = 1 << 20
BYTES_MAX: Final = 8 << 20
PARTITIONS_MAX: Final = 64  # that are read together
RECORDS_MAX: Final = 1000  # of one request to write
TIMEOUT_MS_MAX: Final = 60_000
HASHED_BYTES_MAX: Final = 32 * 1024  # of a key by which a partition is chosen
HASHED_BYTES_PER_US: Final = 10
ISOLATION: Final = ("read_uncommitted", "read_committed")
ACKS: Final = {"all": -1, -1: -1, 1: 1}
INT64: Final = 1 << 63
BEGIN: Final = ("offset", "time", "newest")


# Reading


def read_records(node: BrokerParts, call: Call) -> Any:
    """Return records of a partition, or the newest of all."""
    topic = check_topic(node, call, READ)
    query = Query(call, "partition", *BEGIN, "limit", "max_bytes", "isolation", "markers", "whole", "bytes", "broker")
    query.at_most_one(*BEGIN)
    is_whole = query.truth("whole")
    wanted = Wanted(
        query.number("limit", 1 if is_whole else LIMIT_USUAL, least=1, most=1 if is_whole else LIMIT_MAX),
        query.number("max_bytes", BYTES_USUAL, least=1, most=BYTES_MAX),
        committed_only=query.one_of("isolation", ISOLATION, ISOLATION[0]) == ISOLATION[1],
        with_markers=query.truth("markers", True),
        is_whole=is_whole,
        encoding=query.one_of("bytes", (HEX, BASE64), HEX),
    )
    replicas = replicas_of(node, topic, query)
    if query.has("offset") and len(topic.partitions) > 1 and not query.has("partition"):
        raise Refused(BAD, f"{topic.name} has {len(topic.partitions)} partitions: an offset needs one of them")
    count = query.number("newest", wanted.limit, least=1, most=LIMIT_MAX)
    if query.has("newest"):
        wanted.limit = count
    wanted.answer_bytes_max //= len(replicas)
    return read_in_turn(node, _read(topic, replicas, wanted, query))


def replicas_of(node: BrokerParts, topic: Topic, query: Query) -> list[Replica]:
    """Return the replicas that a query is about: of one partition, or of all, as far as they are there."""
    broker = query.number_or_none("broker", most=(1 << 31) - 1)
    if query.has("partition"):
        return [replica_of(node, topic, query.number("partition", most=(1 << 31) - 1), broker)]
    if len(topic.partitions) > PARTITIONS_MAX:
        raise Refused(
            BAD, f"{topic.name} has {len(topic.partitions)} partitions: name one, for at most {PARTITIONS_MAX} are read"
        )
    found, failure = [], None
    for partition in topic.partitions:
        try:
            found.append(replica_of(node, topic, partition.id, broker))
        except Refused as refusal:
            failure = refusal
    if not found:
        raise failure or Refused(BAD, f"{topic.name} has no partitions")
    return found


def _read(topic: Topic, replicas: list[Replica], wanted: Wanted, query: Query) -> Generator[int, None, bytes]:
    reads = []
    is_newest = not query.has("offset") and not query.has("time")
    for replica in replicas:
        part = PartitionRead(replica, wanted)
        reads.append(part)
        if is_newest:
            yield from part.newest(wanted.limit)
            continue
        start = query.number("offset")
        if query.has("time"):
            limit = replica.readable_end(int(wanted.committed_only))
            found = yield from find_time_in_pieces(replica.log, query.number("time"), limit_offset=limit)
            start = limit if found is None else found.offset
        elif not 0 <= start <= replica.log.log_end_offset:
            text = f"{start} is not within {replica.log.log_start_offset} to {replica.log.log_end_offset}"
            raise as_refused(KafkaError(Error.OFFSET_OUT_OF_RANGE, text))
        yield from part.forward(start)
    rows = [(stamp, part.replica.partition, offset, row) for part in reads for stamp, offset, row in part.rows]
    if len(reads) > 1:
        rows.sort(reverse=is_newest)
    shown = rows[: wanted.limit]
    left_out = len(rows) - len(shown)
    head = {
        "topic": topic.name,
        "order": "newest first" if is_newest else "oldest first",
        "partitions": [part.face() for part in reads],
        "left_out": left_out,  # of other partitions
    }
    return f'{encode(head)[:-1]},"records":[{",".join(row for *_, row in shown)}]}}\n'.encode()


# Writing


async def write_records(node: BrokerParts, call: Call) -> Any:
    """Append records, and return where they are."""
    Query(call)
    topic = check_topic(node, call, WRITE)
    body = call.body
    single = {name: value for name, value in body.items() if name not in ("records", "acks", "timeout_ms")}
    check_fields(body, ("records", "acks", "timeout_ms", *RECORD_FIELDS))
    rows = field(body, "records", list, "a list of records", [single] if single else [])
    if "records" in body and single:
        raise Refused(BAD, "there are records, or one record, and not both")
    if not 1 <= len(rows) <= RECORDS_MAX:
        raise Refused(BAD, f"1 to {RECORDS_MAX} records can be written at once, and not {len(rows)}")
    acks = body.get("acks", "all")
    if not isinstance(acks, (int, str)) or isinstance(acks, bool) or acks not in ACKS:
        raise Refused(BAD, f'acks is "all" or 1, and not {acks!r:.50}')
    timeout_ms = field(body, "timeout_ms", int, "a number", 30_000)
    if not 0 <= timeout_ms <= TIMEOUT_MS_MAX:
        raise Refused(BAD, f"timeout_ms is a number from 0 to {TIMEOUT_MS_MAX}")
    by_partition = await node.shares.run(_by_partition(node, topic, rows))
    results: list[dict[str, Any]] = [{} for _ in rows]
    statuses = []
    for number, records in by_partition.items():
        status, answer = await _append(node, call, topic, number, records, ACKS[acks], timeout_ms)
        statuses.append(status)
        for place, (index, record) in enumerate(records):
            results[index] = {"partition": number} | answer
            if status is None:
                results[index] = {
                    "partition": number,
                    "offset": answer["base_offset"] + place,
                    "timestamp": answer["time"] if answer["time"] >= 0 else record.timestamp,
                }
    failed = [status for status in statuses if status is not None]
    if len(failed) == len(statuses):
        first = next(result for result in results if "error" in result)
        raise Refused(failed[0], first["error"], first.get("code", ""))
    return {"topic": topic.name, "records": results, "failed": sum("error" in result for result in results)}


def _by_partition(
    node: BrokerParts, topic: Topic, rows: list[Any]
) -> Generator[int, None, dict[int, list[tuple[int, Record]]]]:
    """Return the records for each partition, with their places in the request."""
    now_ms = node.clock.now_ms()
    found: dict[int, list[tuple[int, Record]]] = {}
    for index, row in enumerate(rows):
        number, record = _record_of(node, topic, row, index, now_ms)
        found.setdefault(number, []).append((index, record))
        yield 20 + len(record.key or b"") // HASHED_BYTES_PER_US
    return found


RECORD_FIELDS: Final = (
    *("key", "key_base64", "key_hex", "value", "value_base64", "value_hex", "headers", "partition", "timestamp"),
)


def _record_of(node: BrokerParts, topic: Topic, row: Any, index: int, now_ms: int) -> tuple[int, Record]:
    """Return the partition that a record goes to, and the record."""
    try:
        if not isinstance(row, dict):
            raise Refused(BAD, f"it is to be an object, and not {row!r:.100}")
        check_fields(row, RECORD_FIELDS)
        key, value = _bytes_of(row, "key"), _bytes_of(row, "value")
        timestamp = field(row, "timestamp", int, "milliseconds since 1970", now_ms)
        if not 0 <= timestamp < INT64:
            raise Refused(BAD, f"timestamp is a number from 0 to {INT64 - 1}")
        number = field(row, "partition", int, "a number", -1)
        if "partition" in row:
            if number < 0:
                raise Refused(BAD, f"partition is a number from 0, and not {number}")
            partition_of(topic, number)
        elif key is not None:
            if len(key) > HASHED_BYTES_MAX:
                raise Refused(BAD, f"a key of more than {HASHED_BYTES_MAX:,} bytes needs a partition beside it")
            number = partition_of_key(key, len(topic.partitions))
        else:
            number = _shortest(node, topic)
        return number, Record(key, value, _headers_of(row.get("headers")), timestamp)
    except Refused as refusal:
        raise Refused(refusal.status, f"record {index}: {refusal}", refusal.code) from None


def _shortest(node: BrokerParts, topic: Topic) -> int:
    """Return the partition with the smallest end of those that can be written to: there a record without a key goes."""
    ends = {}
    for partition in topic.partitions:
        try:
            ends[partition.id] = replica_of(node, topic, partition.id).log.log_end_offset
        except Refused:
            continue
    return min(ends, key=lambda number: (ends[number], number), default=0)


def _bytes_of(row: Mapping[str, Any], name: str) -> bytes | None:
    """Return a key or a value: a text, whatever else JSON has as JSON, or bytes by their base64 or hex."""
    given = [each for each in (name, f"{name}_base64", f"{name}_hex") if each in row]
    if len(given) > 1:
        raise Refused(BAD, f"one of {' and '.join(given)} is enough")
    if not given or row[given[0]] is None:
        return None
    value = row[given[0]]
    if given[0] == name:
        return _utf8(value if isinstance(value, str) else encode(value), name)
    from base64 import b64decode

    text = field(row, given[0], str, "a text")
    try:
        return b64decode(text, validate=True) if given[0].endswith(BASE64) else bytes.fromhex(text)
    except ValueError:
        raise Refused(BAD, f"{given[0]} is not {'base64' if given[0].endswith(BASE64) else 'hex'}") from None


def _utf8(text: str, name: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise Refused(BAD, f"{name} has half of a pair of surrogates, which is no character") from None


def _headers_of(given: Any) -> tuple[tuple[str, bytes | None], ...]:
    """Read headers: an object, or a list of those that have a name."""
    if given is None:
        return ()
    if isinstance(given, dict):
        given = [{"name": name, "value": value} for name, value in given.items()]
    if not isinstance(given, list):
        raise Refused(BAD, f"headers is an object or a list, and not {given!r:.100}")
    found = []
    for each in given:
        if not isinstance(each, dict) or not isinstance(each.get("name"), str):
            raise Refused(BAD, f"a header has a name, which {each!r:.100} has not")
        check_fields(each, ("name", "value", "value_base64", "value_hex"))
        _utf8(each["name"], "the name of a header")
        found.append((each["name"], _bytes_of(each, "value")))
    return tuple(found)


async def _append(
    node: BrokerParts,
    call: Call,
    topic: Topic,
    number: int,
    records: list[tuple[int, Record]],
    acks: int,
    timeout_ms: int,
) -> tuple[str | None, dict[str, Any]]:
    """Return None and where they are, or a status and why not."""
    Data = ProduceRequest.TopicProduceData
    try:
        batch = build_batch(2, [record._replace(offset=place) for place, (_, record) in enumerate(records)])
        request = ProduceRequest(
            acks=acks,
            timeout_ms=timeout_ms,
            topic_data=[Data(name=topic.name, partition_data=[Data.PartitionProduceData(index=number, records=batch)])],
        )
        response = await asked(running_leader(node, topic, number), call, request, PRODUCE_VERSION)
        ((made,),) = (each.partition_responses for each in response.responses)
        if made.error_code:
            raise KafkaError(Error(made.error_code), _why(made))
    except KafkaError as error:
        refusal = as_refused(error)
        return refusal.status, {"error": str(refusal), "code": refusal.code}
    return None, {"base_offset": made.base_offset, "time": made.log_append_time_ms}


def _why(made: Any) -> str:
    said = [each.batch_index_error_message for each in made.record_errors if each.batch_index_error_message]
    return " ".join(filter(None, [made.error_message, *said[:3]]))

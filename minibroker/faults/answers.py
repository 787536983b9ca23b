"""An answer that carries an error where Kafka puts it, for every API and version, made of the schema alone.

    refuse    the request is not carried out: its topics and partitions come back with the error
    split     what of a request a rule is for, and the rest of it, which is carried out as ever
    overlay   the request was carried out, and the error takes the place of what came of it

LEVELS is all that is written down: which array of a request is mirrored by which of its answer, level by level, down
to where the errors are. Names, numbers and ids of an entry are taken over because their fields have the same meaning;
everything else has the value that Kafka answers when it knows nothing.
What must hold: an answer made here can be encoded in the version it was made for, and our request is never changed.
"""

from __future__ import annotations

from minibroker.errors import Error
from minibroker.protocol.registry import response_class
from minibroker.schema.types import find_struct, zero

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from minibroker.protocol.headers import Request, Response

    Levels = tuple[tuple[str, str], ...]
    Hits = Callable[[str, bytes, int | None], bool]  # name of the topic, or its id, and partition; None: all of it

FETCH, METADATA, OFFSET_FETCH, API_VERSIONS, DESCRIBE_LOG_DIRS = 1, 3, 9, 18, 35

TOPICS = ("topics", "topics")
RESOURCES = ("resources", "responses")
STATES = (("topics", "results"), ("partitions", "partitions"))
# API -> fields of the request and of the answer, and from which version on. What is not here has one error for all.
LEVELS: dict[int, dict[int, Levels]] = {
    0: {0: (("topic_data", "responses"), ("partition_data", "partition_responses"))},
    1: {0: (("topics", "responses"), ("partitions", "partitions"))},
    2: {0: (TOPICS, ("partitions", "partitions"))},
    3: {0: (TOPICS,)},
    8: {0: (TOPICS, ("partitions", "partitions"))},
    9: {
        0: (TOPICS, ("partition_indexes", "partitions")),
        8: (("groups", "groups"), TOPICS, ("partition_indexes", "partitions")),
    },
    10: {0: (), 4: (("coordinator_keys", "coordinators"),)},
    13: {0: (), 3: (("members", "members"),)},
    15: {0: (("groups", "groups"),)},
    19: {0: (TOPICS,)},
    20: {0: (("topic_names", "responses"),), 6: (("topics", "responses"),)},
    21: {0: (TOPICS, ("partitions", "partitions"))},
    23: {0: (TOPICS, ("partitions", "partitions"))},
    24: {
        0: (("v3_and_below_topics", "results_by_topic_v3_and_below"), ("partitions", "results_by_partition")),
        4: (
            ("transactions", "results_by_transaction"),
            ("topics", "topic_results"),
            ("partitions", "results_by_partition"),
        ),
    },
    27: {0: (("markers", "markers"), TOPICS, ("partition_indexes", "partitions"))},
    28: {0: (TOPICS, ("partitions", "partitions"))},
    30: {0: (("creations", "results"),)},
    31: {0: (("filters", "filter_results"),)},
    32: {0: (("resources", "results"),)},
    33: {0: (RESOURCES,)},
    34: {0: (("topics", "results"), ("partitions", "partitions"))},
    37: {0: (("topics", "results"),)},
    42: {0: (("groups_names", "results"),)},
    43: {0: (("topic_partitions", "replica_election_results"), ("partitions", "partition_result"))},
    44: {0: (RESOURCES,)},
    45: {0: (("topics", "responses"), ("partitions", "partitions"))},
    47: {0: (TOPICS, ("partitions", "partitions"))},
    49: {0: (("entries", "entries"),)},
    51: {0: (("deletions", "results"),)},
    61: {0: (TOPICS, ("partition_indexes", "partitions"))},
    65: {0: (("transactional_ids", "transaction_states"),)},
    69: {0: (("group_ids", "groups"),)},
    75: {0: (TOPICS,)},
    77: {0: (("group_ids", "groups"),)},
    **{api: {0: STATES} for api in (83, 84, 85, 86, 87)},
    89: {0: (("group_ids", "groups"),)},
    90: {0: (("groups", "groups"),)},
}
# APIs whose topics are named in several lists of the request, and come back in one.
IN_SEVERAL = {34: "dirs"}
# Whose entries are something else, or are asked for by none but brokers.
WITHOUT_TOPICS = {10, 13, 15, 24, 27, 30, 31, 34, 42, 49, 51, 65, 69, 77, 83, 84, 85, 86, 87, 89, 90}
WITHOUT_PARTITIONS = {3, 19, 20, 32, 33, 37, 44, 75} | WITHOUT_TOPICS
# Errors of a whole fetch: its session is at fault, and no partition. All others stand at partitions, where clients act
# on them: with NOT_LEADER_OR_FOLLOWER at the top a client would only begin a new session.
FETCH_AS_A_WHOLE = {
    Error.FETCH_SESSION_ID_NOT_FOUND,
    Error.INVALID_FETCH_SESSION_EPOCH,
    Error.FETCH_SESSION_TOPIC_ID_ERROR,
}
# Errors of OffsetFetch about a partition; the others are about the group.
OFFSETS_OF_A_PARTITION = {
    Error.UNSTABLE_OFFSET_COMMIT,
    Error.UNKNOWN_TOPIC_OR_PARTITION,
    Error.UNKNOWN_TOPIC_ID,
    Error.TOPIC_AUTHORIZATION_FAILED,
}
GROUP_ERRORS_SINCE = 2
ALL_ERRORS_SINCE = 3  # of DescribeLogDirs; before, each directory had its own
TOPIC_RESOURCE = 2
NO_ID = bytes(16)

ERROR_CODES = ("error_code", "partition_error_code")
NAMES = ("name", "topic", "key")
NUMBERS = ("index", "partition", "partition_index", "partition_id")
TAKEN_OVER = ("topic_id", "group_id", "member_id", "group_instance_id", "resource_type", "resource_name")
# What Kafka answers when it knows nothing, where the schema's default says something else.
NOTHING: dict[str, Any] = {
    "base_offset": -1,
    "committed_offset": -1,
    "expiry_timestamp_ms": -1,
    "high_watermark": -1,
    "low_watermark": -1,
    "next_cursor": None,
    "node_id": -1,
    "port": -1,
    "producer_epoch": -1,
}


class Fault:
    """An error, with words that may say whose it is."""

    __slots__ = ("code", "message")

    def __init__(self, code: Error, message: str | None = ""):
        """message: the meaning of the code by default; None: null."""
        self.code = code
        self.message = code.meaning if message == "" else message


def has_topics(api: int) -> bool:
    """Whether requests of an API name topics."""
    return api in LEVELS and api not in WITHOUT_TOPICS


def has_partitions(api: int) -> bool:
    """Whether requests of an API name partitions."""
    return api in LEVELS and api not in WITHOUT_PARTITIONS


def levels_of(api: int, version: int) -> Levels:
    """Return where the topics and partitions of a request and of its answer are."""
    found: Levels = ()
    for since, levels in LEVELS.get(api, {}).items():
        if version >= since:
            found = levels
    return found


def asked_for(request: Request, api: int, version: int) -> Iterator[tuple[str, bytes, int | None]]:
    """Yield name of the topic or its id, and partition, of everything that a request names."""
    if has_topics(api):
        yield from _walk(request, [field for field, _ in levels_of(api, version)], ("", NO_ID))


def refuse(request: Request, api: int, version: int, fault: Fault, *, keeps_empty: bool = False) -> Response:
    """Answer a request with an error, as a whole and for all that it names.

    keeps_empty: a topic without partitions comes back, too; where Kafka answers by partitions it does not.
    """
    levels = levels_of(api, version)
    at_top = True
    if api == FETCH:
        at_top = fault.code in FETCH_AS_A_WHOLE and version >= 7
        levels = () if at_top else levels
    elif api == OFFSET_FETCH:
        at_top = fault.code not in OFFSETS_OF_A_PARTITION and version >= GROUP_ERRORS_SINCE
        levels = levels if not at_top else levels[:1] if version >= 8 else ()
    response = answer_of(api, fault if at_top else None)
    if api == DESCRIBE_LOG_DIRS and version < ALL_ERRORS_SINCE:
        response.results = [_entry(_struct(type(response), "results"), None, fault)]  # type: ignore[attr-defined]
    if levels:
        owners = getattr(request, IN_SEVERAL[api]) if api in IN_SEVERAL else [request]
        entries = []
        hits: Hits = _everything if keeps_empty else lambda *_: True
        for owner in owners:
            entries += _split(owner, type(response), levels, ("", NO_ID), hits, fault)[1]
        setattr(response, levels[0][1], entries)
    return response


def split(request: Request, api: int, version: int, hits: Hits, fault: Fault) -> tuple[Request | None, Response]:
    """Return the rest of a request, None if nothing is left, and an answer that has the error for what was hit."""
    levels = levels_of(api, version)
    response = answer_of(api, None)
    rest, entries = _split(request, type(response), levels, ("", NO_ID), hits, fault)
    setattr(response, levels[0][1], entries)
    return rest, response


def merge(response: Response, faulty: Response, api: int, version: int) -> None:
    """Add the entries of one answer to another one."""
    _merge(response, faulty, [field for _, field in levels_of(api, version)])


def overlay(response: Response, api: int, version: int, hits: Hits, fault: Fault) -> None:
    """Let an error take the place of each entry that is hit."""
    _overlay(response, [field for _, field in levels_of(api, version)], ("", NO_ID), hits, fault)


def answer_of(api: int, fault: Fault | None) -> Response:
    """Return an answer without entries; the fault is of the request as a whole."""
    cls = response_class(api)
    made: Response = _entry(cls, None, fault)
    return made


# Reading


def _walk(owner: Any, fields: list[str], topic: tuple[str, bytes]) -> Iterator[tuple[str, bytes, int | None]]:
    for element in getattr(owner, fields[0], None) or ():
        here = _topic_of(element, topic)
        if len(fields) > 1:
            yield from _walk(element, fields[1:], here)
        elif here != ("", NO_ID):
            yield (*here, _number_of(element))


def _topic_of(element: Any, above: tuple[str, bytes]) -> tuple[str, bytes]:
    """Return name and id of the topic that an element speaks of; that of the level above if it has none."""
    if isinstance(element, str):
        return element, NO_ID
    if getattr(element, "resource_type", TOPIC_RESOURCE) != TOPIC_RESOURCE:
        return above
    for field in ("name", "topic", "resource_name"):
        if hasattr(element, field):
            return getattr(element, field) or "", bytes(getattr(element, "topic_id", NO_ID))
    return above


def _number_of(element: Any) -> int | None:
    if isinstance(element, int):
        return element
    for field in NUMBERS:
        if hasattr(element, field):
            number: int = getattr(element, field)
            return number
    return None


# Building


def _everything(name: str, topic_id: bytes, partition: int | None) -> bool:
    """Hit all that a request names, and what is empty."""
    return True


def _split(
    owner: Any, answer: Any, levels: Levels, topic: tuple[str, bytes], hits: Hits, fault: Fault
) -> tuple[Any, list[Any]]:
    """Return a copy of the owner with what was not hit, None if all was, and the entries for what was."""
    (asked_field, answered_field), *deeper = levels
    cls = _struct(answer, answered_field)
    kept: list[Any] = []
    entries: list[Any] = []
    elements = getattr(owner, asked_field) or []
    for element in elements:
        here = _topic_of(element, topic)
        if deeper:
            rest, below = _split(element, cls, tuple(deeper), here, hits, fault)
            if below or hits is _everything:
                entry = _entry(cls, element, None)
                setattr(entry, deeper[0][1], below)
                entries.append(entry)
            if rest is not None:
                kept.append(rest)
        elif hits(*here, _number_of(element)):
            entries.append(_entry(cls, element, fault))
        else:
            kept.append(element)
    if not entries:
        return owner, []
    return (copy_with(owner, asked_field, kept) if kept else None), entries


def _merge(owner: Any, faulty: Any, fields: list[str]) -> None:
    field, *deeper = fields
    found = list(getattr(owner, field))
    for entry in getattr(faulty, field):
        same = next((each for each in found if _identity(each) == _identity(entry)), None) if deeper else None
        if same is None:
            found.append(entry)
        else:
            _merge(same, entry, deeper)
    setattr(owner, field, found)


def _overlay(owner: Any, fields: list[str], topic: tuple[str, bytes], hits: Hits, fault: Fault) -> None:
    field, *deeper = fields
    entries = list(getattr(owner, field))
    for index, entry in enumerate(entries):
        here = _topic_of(entry, topic)
        if deeper:
            _overlay(entry, deeper, here, hits, fault)
        elif hits(*here, _number_of(entry)):
            entries[index] = _entry(type(entry), entry, fault)
    setattr(owner, field, entries)


def copy_with(struct: Any, field: str, value: Any) -> Any:
    """Return a copy of a struct in which one field is another."""
    copied = object.__new__(type(struct))
    copied.__dict__.update(struct.__dict__)
    copied.__dict__[field] = value
    return copied


def _identity(entry: Any) -> tuple[Any, ...]:
    return tuple(getattr(entry, field, None) for field in (*NAMES, *TAKEN_OVER))


def _entry(cls: Any, asked: Any, fault: Fault | None) -> Any:
    """Return the entry of an answer for an element of the request, or of another answer."""
    values: dict[str, Any] = {}
    for field, annotation in cls.__fields__.items():
        spec = cls.__specs__.get(field)
        if field in ERROR_CODES:
            values[field] = Error.NONE if fault is None else fault.code
        elif field == "error_message" and fault is not None:
            values[field] = fault.message
        elif field in NAMES and asked is not None:
            values[field] = asked if isinstance(asked, str) else getattr(asked, field)
        elif field in ("group_id", "transactional_id") and isinstance(asked, str):
            values[field] = asked
        elif field in NUMBERS and asked is not None:
            values[field] = _number_of(asked)
        elif field in TAKEN_OVER and hasattr(asked, field):
            values[field] = getattr(asked, field)
        elif field in NOTHING:
            values[field] = NOTHING[field]
        elif not (spec and spec.has_default):
            values[field] = zero(cls, annotation)
    return cls(**values)


def _struct(cls: Any, field: str) -> Any:
    """Return the class of an array's elements."""
    return find_struct(cls, cls.__fields__[field].removesuffix(" | None").removeprefix("Array[").removesuffix("]"))

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

from functools import cache

from minibroker.errors import Error
from minibroker.in_pieces import at_once
from minibroker.protocol.registry import response_class
from minibroker.schema.source import Source
from minibroker.schema.types import find_struct, zero

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from minibroker.in_pieces import InPieces
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
# Of an answer that is made in pieces; about how long an entry takes, and one that has others within.
ENTRIES_PIECE, ENTRY_US, TOPIC_US = 128, 2, 6
GROUP_ERRORS_SINCE = 2
ALL_ERRORS_SINCE = 3  # of DescribeLogDirs; before, each directory had its own
TOPIC_RESOURCE = 2
NO_ID = bytes(16)

ERROR_CODES = ("error_code", "partition_error_code")
NAMES = ("name", "topic", "key")
NUMBERS = ("index", "partition", "partition_index", "partition_id")
TAKEN_OVER = ("topic_id", "group_id", "member_id", "group_instance_id", "resource_type", "resource_name", "producer_id")
# What Kafka answers when it knows nothing, where the schema's default says something else.
NOTHING: dict[str, Any] = {
    "base_offset": -1,
    "committed_offset": -1,
    "entries": None,
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


def refuse_in_pieces(
    request: Request, api: int, version: int, fault: Fault, *, keeps_empty: bool = False
) -> InPieces[Response]:
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
        entries: list[Any] = []
        made = _levels_with(type(response), levels, fault)
        hits = None if keeps_empty else _hit_all
        for owner in owners:
            entries += (yield from _split(owner, made, ("", NO_ID), hits))[1]
        setattr(response, levels[0][1], entries)
    return response


refuse = at_once(refuse_in_pieces)


def split_in_pieces(
    request: Request, api: int, version: int, hits: Hits, fault: Fault
) -> InPieces[tuple[Request | None, Response]]:
    """Return the rest of a request, None if nothing is left, and an answer that has the error for what was hit."""
    levels = levels_of(api, version)
    response = answer_of(api, None)
    rest, entries = yield from _split(request, _levels_with(type(response), levels, fault), ("", NO_ID), hits)
    setattr(response, levels[0][1], entries)
    return rest, response


split = at_once(split_in_pieces)


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


class _Level:
    """An array of a request, and the one of its answer that mirrors it."""

    __slots__ = ("answered_field", "asked_field", "cls", "fault")

    def __init__(self, asked_field: str, answered_field: str, cls: Any, fault: Fault | None):
        self.asked_field = asked_field
        self.answered_field = answered_field
        self.cls = cls  # of the entries in the answer
        self.fault = fault  # in them; None: it is in those further down

    def entries(self, elements: list[Any]) -> list[Any]:
        """Return an entry for each element; one for all if nothing of them is in it, and nothing further down."""
        make, is_alike = _maker(self.cls, elements[0].__class__)
        if is_alike and self.fault is not None:
            return make(elements[:1], self.fault) * len(elements)
        return make(elements, self.fault)


def _levels_with(answer: Any, levels: Levels, fault: Fault) -> list[_Level]:
    made = []
    for depth, (asked_field, answered_field) in enumerate(levels, 1):
        answer = _struct(answer, answered_field)
        made.append(_Level(asked_field, answered_field, answer, fault if depth == len(levels) else None))
    return made


def _hit_all(name: str, topic_id: bytes, partition: int | None) -> bool:
    return True


def _split(
    owner: Any, levels: list[_Level], topic: tuple[str, bytes], hits: Hits | None
) -> InPieces[tuple[Any, list[Any]]]:
    """Return a copy of the owner with what was not hit, None if all was, and the entries for what was.

    hits: None for everything, and what is empty.
    """
    level, *deeper = levels
    kept: list[Any] = []
    entries: list[Any] = []
    elements: list[Any] = getattr(owner, level.asked_field) or []
    for start in range(0, len(elements), ENTRIES_PIECE):
        piece = elements[start : start + ENTRIES_PIECE]
        if not deeper:
            hit = piece
            if hits is not None:
                hit = []
                for element in piece:
                    here = _topic_of(element, topic)
                    (hit if hits(*here, _number_of(element)) else kept).append(element)
            if hit:
                entries += level.entries(hit)
            yield ENTRY_US * len(piece)
            continue
        for element in piece:
            here = topic if hits is None else _topic_of(element, topic)
            rest, below = yield from _split(element, deeper, here, hits)
            if below or hits is None:
                (entry,) = level.entries([element])
                setattr(entry, deeper[0].answered_field, below)
                entries.append(entry)
            if rest is not None:
                kept.append(rest)
            yield TOPIC_US
    if not entries:
        return owner, []
    return (copy_with(owner, level.asked_field, kept) if kept else None), entries


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
    """Return the entry of an answer for an element of the request, or of another answer; None: for all of it."""
    (entry,) = _maker(cls, asked.__class__)[0]([asked], fault)
    return entry


@cache
def _maker(cls: Any, asked: Any) -> tuple[Callable[[list[Any], Fault | None], list[Any]], bool]:
    """Return what makes the entries of an answer for elements of a class, and whether nothing is taken over of them."""
    source = Source(f"refusals {cls.__qualname__}")
    source.names["cls"] = cls
    values: dict[str, str] = {}
    taken: dict[str, str] = {}
    is_plain, has = issubclass(asked, (str, int)), getattr(asked, "__fields__", {})
    for field, annotation in cls.__fields__.items():
        spec = cls.__specs__.get(field)
        default = spec.default if spec and spec.has_default else zero(cls, annotation)
        if field in ERROR_CODES:
            values[field] = "code"
        elif field == "error_message":
            values[field] = f"{source.constant(default)} if fault is None else fault.message"
        elif (field in NAMES or field in NUMBERS) and asked is not type(None):
            same = field if field in NAMES else next(filter(has.__contains__, NUMBERS), "")
            taken[field] = "each" if is_plain else f"each.{same}"
        elif field == "topic_name" and "name" in has:
            taken[field] = "each.name"
        elif field in ("group_id", "transactional_id") and issubclass(asked, str):
            taken[field] = "each"
        elif field in TAKEN_OVER and field in has:
            taken[field] = f"each.{field}"
        elif field in NOTHING:
            values[field] = source.constant(NOTHING[field])
        else:
            values[field] = source.constant(default)
    source.line("def make(elements, fault):")
    with source:
        source.line(f"code = {source.constant(Error.NONE)} if fault is None else fault.code")
        given = ", ".join(f"{field}={value}" for field, value in (values | taken).items())
        source.line(f"return [cls({given}) for each in elements]")
    return source.function("make"), not taken


def _struct(cls: Any, field: str) -> Any:
    """Return the class of an array's elements."""
    return find_struct(cls, cls.__fields__[field].removesuffix(" | None").removeprefix("Array[").removesuffix("]"))

"""A request and its answer as one line for people, whatever the API and its version.

12:00:01.200 kafka-python-producer-1  Produce v9 orders-0 1 record, 84 B -> offset 17, 0.4 ms

What must hold: a frame that cannot be read is a line, too, and so is one of which only the start was kept.
"""

from __future__ import annotations

from typing import NamedTuple

from minibroker.errors import ProtocolError, error_name
from minibroker.protocol.framing import decode_request, decode_response
from minibroker.protocol.registry import APIS
from minibroker.schema.message import Struct
from minibroker.traffic.tap import SECRET_APIS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from minibroker.protocol.headers import Request, Response

    Names = Callable[[bytes], str | None]

PLACES_MAX = 3  # that a line names
DAY_MS = 86_400_000
API_VERSIONS, METADATA = 18, b"\0\x03"
# What a request is about, before its topics; and the parts of an answer that people look for, with words for each.
SUBJECTS = (
    *("group_id", "group", "groups", "groups_names", "transactional_id", "key", "coordinator_keys", "member_id"),
    "v3_and_below_transactional_id",
    *("mechanism", "client_software_name", "client_software_version"),
)
FACTS = {
    "base_offset": "offset",
    "offset": "offset",
    "committed_offset": "committed",
    "generation_id": "generation",
    "member_epoch": "epoch",
    "producer_id": "producer",
    "producer_epoch": "epoch",
    "node_id": "node",
}
COUNTED = {"brokers": "broker", "topics": "topic", "members": "member", "groups": "group", "api_keys": "API"}
PARTITIONS = ("partition_data", "partitions", "partition_responses", "partition_indexes")
INDEXES = ("index", "partition", "partition_index", "partition_id")


class RequestRow(NamedTuple):
    """A request and what became of it."""

    time_ms: int  # since 1970, by the broker's clock
    client_id: str
    api: str
    version: int
    summary: str  # what was asked -> what was answered
    error: str  # by Kafka's name, several with commas; empty: none
    ms: float | None  # until its answer was made, or it was known that it gets none; None: nobody knows yet
    broker: int

    def __str__(self) -> str:
        took = ", no answer yet" if self.ms is None else f", {self.ms:.1f} ms"
        words = " ".join(filter(None, [self.api, f"v{self.version}", self.summary, self.error]))
        return f"{clock_text(self.time_ms)} {self.client_id or '-'}  {words}{took}"


class Spoken(NamedTuple):
    """What a line is made of."""

    client_id: str
    api: str
    version: int
    summary: str
    error: str


def summary_of(request: bytes, answer: bytes | None, topic_name: Names) -> Spoken:
    """Return what to say of two frames, without their lengths in front of the request and with it before the answer.

    request: empty for a token of a login. answer: None if there is none.
    """
    if not request:
        return Spoken("", "token of a login", 0, "", "")
    number, version = int.from_bytes(request[:2]), int.from_bytes(request[2:4])
    api = APIS.get(number, f"api {number}")
    client_id, asked, found = "", f"{len(request)} B", None
    if number not in SECRET_APIS:
        try:
            header, found = decode_request(request)
            client_id, asked = header.client_id or "", _asked(found, topic_name)
        except ProtocolError:
            pass
    if answer is None:
        return Spoken(client_id, api, version, asked, "")
    try:
        response = _decoded(answer[4:], number, version)
    except ProtocolError:
        return Spoken(client_id, api, version, f"{asked} -> {len(answer)} B".strip(), "")
    errors = ", ".join(dict.fromkeys(error_name(code) for code in _codes(response)))
    told = _answered(response, topic_name) if number not in SECRET_APIS else "" if errors else "done"
    return Spoken(client_id, api, version, f"{asked} -> {told}".strip(), errors)


def names_told(request: bytes, answer: bytes) -> dict[bytes, str]:
    """Return the names of topics by their ids, if an answer to Metadata tells them; two frames without lengths."""
    if request[:2] != METADATA:
        return {}
    try:
        topics = decode_response(answer, 3, int.from_bytes(request[2:4]))[1].topics  # type: ignore[attr-defined]
    except ProtocolError:
        return {}
    return {bytes(topic.topic_id): topic.name for topic in topics if topic.name}


def clock_text(time_ms: int) -> str:
    """Return the time of the day, in UTC: 12:00:01.200."""
    seconds, ms = divmod(time_ms % DAY_MS, 1000)
    return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{ms:03}"


def _decoded(frame: bytes, api: int, version: int) -> Response:
    if api == API_VERSIONS and frame[4:6] == b"\0\x23":  # UNSUPPORTED_VERSION: always in version 0
        version = 0
    return decode_response(frame, api, version)[1]


def _asked(request: Request, topic_name: Names) -> str:
    words = []
    for name in SUBJECTS:
        value = getattr(request, name, None)
        if isinstance(value, str) and value:
            words.append(value)
        elif isinstance(value, list):
            words += [each if isinstance(each, str) else _name(each, topic_name) for each in value[:PLACES_MAX]]
    places = []
    for place, part in _places(request, topic_name):
        records = getattr(part, "records", None)
        if records is not None:
            places.append(f"{place} {_records(records)}")
        elif (offset := getattr(part, "fetch_offset", None)) is not None:
            places.append(f"{place} at {offset}")
        else:
            places.append(place)
    if getattr(request, "session_id", 0) and not places:
        places = ["its session"]
    return " ".join(filter(None, [*words, _few(places)]))


def _answered(response: Response, topic_name: Names) -> str:
    facts = _facts(response)
    for name, noun in COUNTED.items():
        value = getattr(response, name, None)
        if isinstance(value, list) and not any(True for _ in _places(response, topic_name)):
            facts.append(f"{len(value)} {noun}{'' if len(value) == 1 else 's'}")
    places = []
    for place, part in _places(response, topic_name):
        said = _facts(part)
        if (records := getattr(part, "records", None)) is not None:
            said = [_records(records)] if len(records) else []
        if said:
            places.append(" ".join([place, *said]))
    if coordinators := getattr(response, "coordinators", None):  # else what is for older versions
        facts = [" ".join(_facts(each)) for each in coordinators[:PLACES_MAX]]
    if len(places) == 1:
        places = [places[0].partition(" ")[2]]  # the request has named it
    shown = ", ".join([*facts, *([_few(places)] if places else [])])
    return shown or ("nothing" if hasattr(response, "session_id") else "done")


def _facts(part: Any) -> list[str]:
    found = {word: getattr(part, name) for name, word in FACTS.items() if isinstance(getattr(part, name, None), int)}
    return [f"{word} {value}" for word, value in found.items() if value != -1]


def _places(message: Any, topic_name: Names) -> Iterator[tuple[str, Any]]:
    """Yield the partitions that a message is about, or its topics if it says no more, each with what it says of it."""
    for field in ("topic_data", "topics", "v3_and_below_topics", "responses", "resources"):
        for topic in getattr(message, field, None) or ():
            if not isinstance(topic, Struct):
                yield str(topic), None
                continue
            name = _name(topic, topic_name)
            partitions = next((found for each in PARTITIONS if (found := getattr(topic, each, None)) is not None), None)
            if not isinstance(partitions, list) or hasattr(topic, "is_internal"):
                if not hasattr(topic, "is_internal"):
                    yield name, None
                continue
            for part in partitions:
                index = next((getattr(part, each) for each in INDEXES if hasattr(part, each)), part)
                yield f"{name}-{index}", part


def _name(topic: Any, topic_name: Names) -> str:
    for field in ("name", "topic", "topic_name", "resource_name", "group_id"):
        if found := getattr(topic, field, None):
            return str(found)
    identifier = getattr(topic, "topic_id", b"") or b""
    return topic_name(bytes(identifier)) or bytes(identifier).hex()[:8]


def _records(records: Any) -> str:
    """Return how many records there are, if all are in one batch, and how many bytes they take."""
    size = len(records)
    if size > 61 and records[16] == 2 and int.from_bytes(bytes(records[8:12])) == size - 12:
        count = int.from_bytes(bytes(records[57:61]))
        return f"{count} record{'' if count == 1 else 's'}, {size} B"
    return f"{size} B"


def _few(texts: list[str]) -> str:
    more = len(texts) - PLACES_MAX
    return ", ".join(texts[:PLACES_MAX]) + (f" and {more} more" if more > 0 else "")


def _codes(value: Any) -> Iterator[int]:
    """Yield every error code in a message that is none of NONE."""
    if isinstance(value, list):
        for item in value:
            yield from _codes(item)
    elif isinstance(value, Struct):
        for field in value.__fields_all__():
            found = getattr(value, field, None)
            if field == "error_code" and found:
                yield found
            elif isinstance(found, list | Struct):
                yield from _codes(found)

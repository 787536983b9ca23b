"""Decoders of kafka-dump-log: records as JSON of Kafka's own converters, made from our declarations.

A decoder takes a record and returns the text for its key and for its value, None where the line has none.
What cannot be read is said in the line and does not end the dump.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from minibroker.errors import InvalidRecord, ProtocolError, UnknownMessage
from minibroker.log.formats import (
    ABORT,
    COMMIT,
    CONTROL_NAMES,
    KRAFT_VERSION,
    KRAFT_VOTERS,
    LEADER_CHANGE,
    SNAPSHOT_FOOTER,
    SNAPSHOT_HEADER,
)
from minibroker.log.records import Record, control_type
from minibroker.protocol.registry import STORED, message, snake_case
from minibroker.schema.message import Message
from minibroker.schema.plan import Plan, Type, message_plan
from minibroker.stored.control import (
    EndTxnMarker,
    KRaftVersionRecord,
    LeaderChangeMessage,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    VotersRecord,
)
from minibroker.stored.kinds import CoordinatorKey, metadata_frame

Text = tuple[str | None, str | None]


def text_of(record: Record) -> Text:
    """Take key and value for UTF-8, as the tool does without a decoder."""
    key, value = record.key, record.value
    return _utf8(key), _utf8(value)


def _utf8(data: bytes | None) -> str | None:
    return None if data is None else bytes(data).decode("utf-8", "replace")


# Messages as JSON


def to_json(found: Message, version: int) -> Any:
    """Return the fields as Kafka's JSON converters have them, tagged ones only if they differ from the default."""
    return _fields(found, message_plan(type(found), version))


def _fields(found: Any, plan: Plan) -> dict[str, Any]:
    by_name = {field.name: field for field in (*plan.fields, *plan.tagged)}
    shown = {}
    for name in plan.cls.__fields__:
        field = by_name.get(name)
        if field and (field.tag is None or getattr(found, name) != field.default):
            shown[_camel_case(name)] = _value(getattr(found, name), field.type)
    return shown


def _value(value: Any, type: Type) -> Any:
    if value is None:
        return None
    if type.element:
        return [_value(item, type.element) for item in value]
    if type.plan:
        return _fields(value, type.plan)
    if type.name == "Uuid":
        return _base64(value, b"-_").rstrip("=")
    return _base64(bytes(value)) if isinstance(value, (bytes, bytearray, memoryview)) else value


def _base64(data: bytes, others: bytes = b"+/") -> str:
    from base64 import b64encode

    return b64encode(data, others).decode("ascii")


@cache
def _camel_case(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def json_text(value: Any) -> str:
    """Return JSON as Jackson writes it: no spaces, characters beyond ASCII as they are, numbers as Java has them."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{json_text(name)}:{json_text(item)}" for name, item in value.items()) + "}"
    if isinstance(value, list):
        return f"[{','.join(map(json_text, value))}]"
    if isinstance(value, float):
        return java_double(value)
    import json

    text = json.dumps(value, ensure_ascii=False)
    if "\\u00" in text:
        import re

        text = re.sub(r"\\(\\|u00..)", lambda found: found[0][:2] + found[0][2:].upper(), text)
    return text


def java_double(value: float) -> str:
    """Return a number as Double.toString does: 1.0E10, 0.001, 1.0E-4."""
    if value in (0.0, float("inf"), float("-inf")) or value != value:
        return {"inf": '"Infinity"', "-inf": '"-Infinity"', "nan": '"NaN"'}.get(repr(value), repr(value))
    if 1e-3 <= abs(value) < 1e7:
        return repr(value)
    from decimal import Decimal

    sign, digits, exponent = Decimal(repr(value)).as_tuple()
    assert isinstance(exponent, int)
    text = "".join(map(str, digits))
    power, text = exponent + len(text) - 1, text.rstrip("0")
    return f"{'-' * sign}{text[0]}.{text[1:] or '0'}E{power}"


# Control records

_CONTROL: dict[int, tuple[str, type[Message]]] = {
    LEADER_CHANGE: ("LeaderChange:", LeaderChangeMessage),
    SNAPSHOT_HEADER: ("SnapshotHeader", SnapshotHeaderRecord),
    SNAPSHOT_FOOTER: ("SnapshotFooter", SnapshotFooterRecord),
    KRAFT_VERSION: ("KRaftVersion", KRaftVersionRecord),
    KRAFT_VOTERS: ("KRaftVoters", VotersRecord),
}
_KNOWN = {
    "2.8": {ABORT, COMMIT},
    "3.9": {ABORT, COMMIT, *_CONTROL} - {LEADER_CHANGE},
    "4.4": {ABORT, COMMIT, *_CONTROL},
}
_CONTROL_NAMES = [name.upper().replace("-", "_") for name in CONTROL_NAMES]


def control_text(record: Record, release: str) -> str:
    """Return what the line of a control record says at its end."""
    number, value = control_type(record), record.value
    if number not in _KNOWN[release]:
        known = 0 <= number < (3 if release == "2.8" else len(_CONTROL_NAMES))
        return f" controlType: {_CONTROL_NAMES[number] if known else 'UNKNOWN'}({number})"
    if value is None or len(value) < 2:
        raise InvalidRecord(f"control record {record.offset} has no version", 0, "RecordV2.value")
    version = int.from_bytes(value[:2], "big", signed=True)
    if number in (ABORT, COMMIT):
        # Versions above ours begin with the same fields.
        epoch = EndTxnMarker.decode_from(value, 2, 0)[0].coordinator_epoch
        return f" endTxnMarker: {_CONTROL_NAMES[number]} coordinatorEpoch: {epoch}"
    title, cls = _CONTROL[number]
    known_version = min(version, cls.schema.last_version)
    return f" {title} {json_text(to_json(cls.decode_from(value, 0, known_version)[0], known_version))}"


# Internal topics


@cache
def _coordinator_classes(modules: tuple[str, ...]) -> dict[int, tuple[Any, Any]]:
    """Return key and value by the number that a key begins with."""
    names = [name for module in modules for name in STORED[module] if name.endswith("Key")]
    keys = [key for key in map(message, names) if issubclass(key, CoordinatorKey)]  # a few are of no release
    return {key.type_number: (key, message(key.__name__.removesuffix("Key") + "Value")) for key in keys}


def _coordinator_record(record: Record, modules: tuple[str, ...], known: int = 0x7FFF) -> Text:
    """Decode a record of a coordinator; 3.9 knows the types up to `known`."""
    if record.key is None:
        raise InvalidRecord(f"record {record.offset} has no key, so this decoder is not for it", 0, "RecordV2.key")
    number = int.from_bytes(record.key[:2], "big", signed=True)
    key_class, value_class = _coordinator_classes(modules).get(number, (None, None))
    if len(record.key) < 2:
        return f"Error at offset {record.offset}, skipping. Could not read version from key's buffer.", None
    if key_class is None or number > known:
        return f"Unknown record type {number} at offset {record.offset}, skipping.", None
    reading = number, "key"
    try:
        key = key_class.decode_stored(record.key)
        title = json_text({"type": str(number), "data": to_json(key, key_class.schema.last_version)})
        if record.value is None:
            return title, "<DELETE>"
        version = int.from_bytes(record.value[:2], "big", signed=True)
        reading = version, "value"
        value = value_class.decode_stored(record.value)
        data = to_json(value, version)
        if value_class.__name__ == "GroupMetadataValue" and value.protocol_type == "consumer":
            _open_members(data, value.members)
        return title, json_text({"version": str(version), "data": data})
    except ProtocolError as error:
        where = f"version {reading[0]} from {reading[1]}'s buffer due to: {error}."
        return f"Error at offset {record.offset}, skipping. Could not read record with {where}", None


def _open_members(data: dict[str, Any], members: list[Any]) -> None:
    """Show what consumers told each other instead of its bytes, where it can be read."""
    for shown, member in zip(data["members"], members):
        for field in ("subscription", "assignment"):
            cls: Any = message(f"ConsumerProtocol{field.capitalize()}")
            content = bytes(getattr(member, field))
            version = int.from_bytes(content[:2], "big", signed=True)
            known = min(version, cls.schema.last_version)
            try:
                shown[field] = to_json(cls.decode_from(content, 2, known)[0], known)
            except ProtocolError:
                continue  # another program's bytes: they stay bytes


_GROUP_MODULES = ("group_offsets", "consumer_groups", "share_groups", "streams_groups")


def _offsets(record: Record, release: str) -> Text:
    if release == "4.4":
        return _coordinator_record(record, _GROUP_MODULES)
    return _coordinator_record(record, _GROUP_MODULES[:2], known=8)


def _transactions(record: Record, release: str) -> Text:
    if release == "4.4":
        return _coordinator_record(record, ("transactions",))
    from minibroker.stored.transactions import TransactionLogKey, TransactionLogValue

    key = TransactionLogKey.decode_stored(record.key or b"")
    title = f"transaction_metadata::transactionalId={key.transactional_id}"
    if record.value is None:
        return title, "<DELETE>"
    value = TransactionLogValue.decode_stored(record.value)
    partitions = [
        f"{each.topic}-{number}" for each in value.transaction_partitions or () for number in each.partition_ids
    ]
    states = _STATES[value.transaction_status] if 0 <= value.transaction_status < len(_STATES) else "unknown"
    return title, (
        f"producerId:{value.producer_id},producerEpoch:{value.producer_epoch},state={states},"
        f"partitions=[{','.join(partitions)}],txnLastUpdateTimestamp={value.transaction_last_update_timestamp_ms},"
        f"txnTimeoutMs={value.transaction_timeout_ms}"
    )


_STATES = [
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
    "Dead",
    "PrepareEpochFence",
]


@cache
def _metadata_classes() -> dict[int, Any]:
    names = [name for module in ("brokers", "cluster", "security", "topics") for name in STORED[module]]
    classes: list[Any] = [message(name) for name in names if name not in _NEVER_WRITTEN]
    return {cls.type_number: cls for cls in classes}


_NEVER_WRITTEN = ("AccessControlRecord", "QuotaRecord")  # declared by Kafka, known to no reader of the metadata log


def _cluster_metadata(record: Record, release: str) -> Text:
    data = record.value or b""
    try:
        number, version, start = metadata_frame(data)
    except UnknownMessage:
        reason = f"unknown frame version {data[0]}(only frame version 1 is supported)"
        return None, f"Error at {record.offset}, skipping. Could not deserialize metadata record due to {reason}"
    except ProtocolError as error:
        return None, f"Error at {record.offset}, skipping. {error}"
    cls = _metadata_classes().get(number)
    if cls is None:
        reason = f"org.apache.kafka.common.errors.UnsupportedVersionException: Unknown metadata id {number}"
        return None, f"Error at {record.offset}, skipping. {reason}"
    try:
        found = cls.decode(data[start:], version)
    except ProtocolError:
        return None, f"Error at {record.offset}, skipping. Failed to deserialize record with type {number}"
    title = {"type": snake_case(cls.__name__).upper(), "version": version}
    return None, json_text(title | {"data": to_json(found, version)})


def _share_state(record: Record, release: str) -> Text:
    return _coordinator_record(record, ("share_state",))


DECODERS: dict[str, Callable[[Record, str], Text]] = {
    "offsets": _offsets,
    "transaction-log": _transactions,
    "cluster-metadata": _cluster_metadata,
    "share-group-state": _share_state,
}

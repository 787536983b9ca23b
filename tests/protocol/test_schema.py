"""Our declarations against Kafka's own schema files, version by version, field by field."""

from __future__ import annotations

import re
from typing import Any

import pytest

from minibroker.protocol import message, names
from minibroker.protocol.headers import ApiMessage
from minibroker.protocol.registry import APIS, request_class, response_class, snake_case
from minibroker.schema.message import Struct
from minibroker.schema.plan import Plan, Type, message_plan
from minibroker.schema.types import EMPTY, NO_ID
from tests import goldens

SCHEMA = goldens.schema()
LAST = 0x7FFF
TYPES = {"Uuid": "uuid", "OldString": "string"}  # ours -> Kafka's, where it is not just lower case


def versions(text: str) -> tuple[int, int]:
    """Read "3+", "0-12", "5" or "none"."""
    match = re.fullmatch(r"(\d+)(\+|-(\d+))?", text)
    if not match:
        return 1, 0
    first = int(match[1])
    return first, LAST if match[2] == "+" else int(match[3] or first)


def within(text: str, version: int) -> bool:
    first, last = versions(text)
    return first <= version <= last


def kafka_fields(fields: list[dict[str, Any]], common: dict[str, Any], version: int) -> list[dict[str, Any]]:
    """Return what a version has of Kafka's fields, in the form of `our_fields`."""
    found = []
    for field in fields:
        if not within(field["versions"], version):
            continue
        nullable = within(field.get("nullableVersions", "none"), version)
        tagged = within(field.get("taggedVersions", "none"), version)
        inner = field["type"].removeprefix("[]")
        structs = field.get("fields") or (common[inner]["fields"] if inner in common else None)
        found.append(
            {
                "name": snake_case_of_kafka(field["name"]),
                "type": field["type"],
                "nullable": nullable,
                "tag": field["tag"] if tagged else None,
                "default": kafka_default(field),
                "fields": structs and kafka_fields(structs, common, version),
            }
        )
    return found


def kafka_default(field: dict[str, Any]) -> object:
    given, kind = field.get("default"), field["type"]
    if kind.startswith("[]"):
        return None if given == "null" else []
    if given is None:  # JSON's null, unlike the text "null", is no default for Kafka's generator
        zeros: dict[str, object] = {"string": "", "bytes": b"", "records": None, "uuid": NO_ID, "bool": False}
        return zeros.get(kind, 0 if not kind[0].isupper() else "struct")
    if given == "null":
        return None
    if kind == "bool":
        return str(given).lower() == "true"
    if kind == "string":
        return given
    return int(str(given), 0)


def our_fields(plan: Plan) -> list[dict[str, Any]]:
    found = []
    order = list(plan.cls.__fields__)
    for field in sorted([*plan.fields, *plan.tagged], key=lambda field: order.index(field.name)):
        element = field.type.element
        inner = element.plan if element else field.type.plan
        found.append(
            {
                "name": field.name,
                "type": kafka_type(field.type),
                "nullable": field.type.nullable,
                "tag": field.tag,
                "default": "struct" if isinstance(field.default, Struct) else field.default,
                "fields": inner and our_fields(inner),
            }
        )
    return found


def kafka_type(type: Type) -> str:
    if type.element:
        return "[]" + kafka_type(type.element)
    return type.plan.cls.__name__ if type.plan else TYPES.get(type.name, type.name.lower())


def snake_case_of_kafka(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


def plain_default(field: dict[str, Any]) -> dict[str, Any]:
    # `records` has no default in Kafka's files and none is ever used; ours says null.
    records = field["type"] == "records"
    fields = field["fields"] and [plain_default(inner) for inner in field["fields"]]
    return {**field, "default": None if records else field["default"], "fields": fields}


def test_every_message_of_kafka_is_declared_and_no_other() -> None:
    assert sorted(names()) == sorted(SCHEMA)


@pytest.mark.parametrize("name", sorted(SCHEMA))
def test_declaration_equals_kafkas_schema_in_every_version(name: str) -> None:
    kafka, cls = SCHEMA[name], message(name)
    assert (cls.schema.first_version, cls.schema.last_version) == versions(kafka["validVersions"])
    common = {struct["name"]: struct for struct in kafka.get("commonStructs", [])}
    for version in range(cls.schema.first_version, cls.schema.last_version + 1):
        assert cls.schema.is_flexible(version) == within(kafka["flexibleVersions"], version)
        ours = [plain_default(field) for field in our_fields(message_plan(cls, version))]
        theirs = [plain_default(field) for field in kafka_fields(kafka["fields"], common, version)]
        assert ours == theirs, f"v{version}"


@pytest.mark.parametrize("name", sorted(name for name in SCHEMA if SCHEMA[name].get("apiKey") is not None))
def test_number_and_stability_equal_kafkas(name: str) -> None:
    kafka, cls = SCHEMA[name], message(name)
    number = cls.api if issubclass(cls, ApiMessage) else getattr(cls, "type_number", None)
    assert number == kafka["apiKey"]
    if issubclass(cls, ApiMessage):
        unstable = kafka["validVersions"].rpartition("-")[2] if kafka.get("latestVersionUnstable") else None
        assert cls.schema.settings["unstable"] == unstable
        assert cls.schema.settings["never_stable"] == kafka.get("neverStableVersions")


def test_numbers_lead_to_their_requests_and_responses() -> None:
    for number, api in APIS.items():
        assert request_class(number).api == response_class(number).api == number
        assert request_class(number).__name__ == f"{api}Request"


def test_header_versions_equal_kafkas() -> None:
    for kind in ("requests", "responses"):
        for vector in goldens.wire(kind):
            cls = message(vector["name"])
            assert issubclass(cls, ApiMessage)
            assert cls.header_version(vector["version"]) == vector["headerVersion"], (vector["name"], vector["version"])  # type: ignore[attr-defined]


def test_every_message_says_what_it_is_for() -> None:
    silent = [name for name in names() if not (message(name).__doc__ or "").strip() or "@@" in message(name).__doc__]
    assert silent == []


def test_module_of_an_api_carries_its_name() -> None:
    for api in APIS.values():
        assert message(api + "Request").__module__ == f"minibroker.protocol.messages.{snake_case(api)}"


def test_empty_default_of_arrays_cannot_be_changed_by_accident() -> None:
    with pytest.raises(TypeError, match="assign a new list"):
        EMPTY.append(1)
    with pytest.raises(TypeError, match="assign a new list"):
        message("FetchRequest")(max_wait_ms=1, min_bytes=1, topics=[]).forgotten_topics_data.append(1)  # type: ignore[attr-defined]
    with pytest.raises(TypeError, match="assign a new ReplicaState"):
        message("FetchRequest")(max_wait_ms=1, min_bytes=1, topics=[]).replica_state.replica_id = 5  # type: ignore[attr-defined]

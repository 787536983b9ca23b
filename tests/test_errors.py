"""The table of error codes and the exceptions."""

from __future__ import annotations

import copy
import inspect
import json
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from docs.generate import PAGES
from minibroker import errors
from minibroker.errors import (
    ERRORS,
    FORMER_NAMES,
    EncodeError,
    Error,
    KafkaError,
    ProtocolError,
    error_name,
    find_error,
)
from tests.goldens import table

KAFKA = table("errors")["errors"]
BROKEN_BYTES = [cls for cls in vars(errors).values() if inspect.isclass(cls) and issubclass(cls, ProtocolError)]


def test_codes_names_and_retriable_flags_are_those_of_kafka() -> None:
    ours = [(int(error), error.name, error.retriable) for error in ERRORS]
    assert ours == [(error["code"], error["name"], error["retriable"]) for error in KAFKA]


def test_every_name_is_an_attribute_and_every_code_leads_to_it() -> None:
    for error in ERRORS:
        assert getattr(Error, error.name) is error
        assert Error(int(error)) is error
        assert find_error(int(error)) is error
        assert find_error(error.name) is error


def test_former_names_lead_to_the_current_error() -> None:
    kafka = {old: error["name"] for error in KAFKA for old in error.get("formerNames", [])}
    assert kafka == FORMER_NAMES
    assert find_error("NOT_LEADER_FOR_PARTITION") is Error.NOT_LEADER_OR_FOLLOWER
    assert all(find_error(old) is getattr(Error, name) for old, name in kafka.items())


def test_each_error_has_a_sentence_of_its_own() -> None:
    assert len({error.meaning for error in ERRORS}) == len(ERRORS)
    for error in ERRORS:
        assert error.meaning.endswith("."), error
        assert len(error.meaning) <= 110, error


def test_an_error_is_its_number() -> None:
    assert Error.NOT_LEADER_OR_FOLLOWER == 6
    assert json.dumps([Error.NOT_LEADER_OR_FOLLOWER]) == "[6]"
    assert Error.OFFSET_OUT_OF_RANGE
    assert not Error.NONE
    assert {6: "six"}[Error.NOT_LEADER_OR_FOLLOWER] == "six"


def test_an_error_reads_as_its_name() -> None:
    assert f"{Error.NONE}" == "NONE"
    assert repr(Error.NONE) == "Error.NONE"


def test_copies_of_an_error_are_the_error() -> None:
    error = Error.FENCED_LEADER_EPOCH
    assert copy.deepcopy(error) is error
    assert pickle.loads(pickle.dumps(error)) is error


@pytest.mark.parametrize("unknown", [-2, 137, 32767])
def test_an_unknown_code_raises_only_where_it_is_ours(unknown: int) -> None:
    assert find_error(unknown) is None
    assert error_name(unknown) == f"UNKNOWN_CODE_{unknown}"
    with pytest.raises(ValueError, match=str(unknown)):
        Error(unknown)


@pytest.mark.parametrize("unknown", ["", "NO_SUCH_ERROR", "name", "__doc__"])
def test_an_unknown_name_is_found_to_be_none(unknown: str) -> None:
    assert find_error(unknown) is None


def test_error_name_names_known_codes() -> None:
    assert error_name(-1) == "UNKNOWN_SERVER_ERROR"


def test_kafka_error_carries_code_and_values() -> None:
    error = KafkaError(Error.FENCED_LEADER_EPOCH, "orders-0: epoch 3 < 5")
    assert error.code is Error.FENCED_LEADER_EPOCH
    assert error.message == "orders-0: epoch 3 < 5"
    assert str(error) == "FENCED_LEADER_EPOCH: orders-0: epoch 3 < 5"


def test_kafka_error_without_a_message_says_what_the_code_means() -> None:
    assert KafkaError(Error.NON_EMPTY_GROUP).message == Error.NON_EMPTY_GROUP.meaning


@pytest.mark.parametrize("cls", BROKEN_BYTES)
def test_broken_bytes_are_reported_with_reason_position_and_path(cls: type[ProtocolError]) -> None:
    error = cls("2 bytes left, 4 needed", 17, "FetchRequest.topics[0].partitions[3]")
    assert (error.reason, error.position, error.path) == (
        "2 bytes left, 4 needed",
        17,
        "FetchRequest.topics[0].partitions[3]",
    )
    assert str(error) == "FetchRequest.topics[0].partitions[3] at byte 17: 2 bytes left, 4 needed"
    assert cls.__doc__


def test_broken_bytes_may_lack_a_path() -> None:
    assert str(errors.Truncated("ends early", 3)) == "at byte 3: ends early"


def test_path_and_position_can_be_completed_on_the_way_up() -> None:
    error = errors.InvalidVarint("6 bytes", 2, "key")
    error.position += 61
    error.path = f"batch.records[4].{error.path}"
    assert str(error) == "batch.records[4].key at byte 63: 6 bytes"


def test_encode_error_names_the_field() -> None:
    error = EncodeError("40000 is no int16", "ProduceRequest.acks")
    assert (error.reason, error.path) == ("40000 is no int16", "ProduceRequest.acks")
    assert str(error) == "ProduceRequest.acks: 40000 is no int16"
    assert str(EncodeError("no value")) == "no value"


@pytest.mark.parametrize(
    "error",
    [KafkaError(Error.INVALID_REQUEST, "x"), errors.CorruptCrc("1 != 2", 17, "batch"), EncodeError("bad", "a.b")],
    ids=lambda error: type(error).__name__,
)
def test_exceptions_survive_pickling(error: Exception) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert (str(again), vars(again)) == (str(error), vars(error))


@pytest.mark.parametrize(
    "name", [pytest.param(each, marks=pytest.mark.pure) if each == "reading.md" else each for each in PAGES]
)
def test_generated_page_is_current(name: str) -> None:
    committed = Path(__file__).parent.parent / "docs" / name
    assert committed.read_text("utf-8") == PAGES[name](), "run `python -m docs.generate`"


IMPORTS = """
import sys, minibroker
before = set(sys.modules)
import minibroker.errors
print(*set(sys.modules) - before)
"""


def test_the_errors_load_nothing_and_only_when_asked_for() -> None:
    loaded = subprocess.run([sys.executable, "-c", IMPORTS], capture_output=True, text=True, check=True)
    assert set(loaded.stdout.split()) - {"__future__"} == {"minibroker.errors"}

"""Masking: what cannot be read any more, what can still be joined, and that nothing slips through."""

from __future__ import annotations

import json
import re

import pytest

from minibroker.spark.jobs.slice import By
from minibroker.spark.jobs.slice_masking import WHOLE, Masker, parse_masks
from minibroker.spark.option_values import OptionError


def masker(*masks: str, salt: str = "s") -> Masker:
    return Masker(parse_masks(masks), salt)


def value_of(made: Masker, document: object, topic: str = "orders") -> object:
    _, value, _, met = made.masked(topic, None, json.dumps(document).encode(), None)
    assert value is not None
    assert met & WHOLE == 0
    return json.loads(value)


def test_the_same_content_becomes_the_same_wherever_it_stands() -> None:
    made = masker("key=hash", "value.customer=hash", "value.items.owner=hash", "header.who=hash")
    document = {"customer": 17, "items": [{"owner": "17"}, {"owner": 18}], "total": 3}
    key, value, headers, _ = made.masked("orders", b"17", json.dumps(document).encode(), [("who", b"17"), ("x", b"y")])
    assert key is not None
    assert value is not None
    assert headers is not None
    found = json.loads(value)
    assert key.isdigit()
    assert key != b"17"
    assert str(found["customer"]).encode() == key
    assert found["items"][0]["owner"].encode() == key
    assert isinstance(found["customer"], int)
    assert found["items"][1]["owner"] != found["customer"]
    assert headers == [("who", key), ("x", b"y")]
    assert found["total"] == 3
    other = masker("key=hash", salt="t").masked("orders", b"17", None, None)[0]
    assert other not in (key, None)


def test_what_a_fake_looks_like() -> None:
    made = masker("value.mail=fake", "value.phone=fake", "value.price=fake", "value.id=fake")
    found = value_of(made, {"mail": "Anna.B@shop.de", "phone": "+49 30 123456", "price": 1.5, "id": 1234})
    assert isinstance(found, dict)
    assert re.fullmatch(r"[A-Z][a-z]{3}\.[A-Z]@[a-z]{4}\.[a-z]{2}", found["mail"])
    assert found["mail"] != "Anna.B@shop.de"
    assert re.fullmatch(r"\+\d\d \d\d \d{6}", found["phone"])
    assert re.fullmatch(r"\d\.\d", str(found["price"]))
    assert 1000 <= found["id"] <= 9999
    assert value_of(made, {"mail": "Anna.B@shop.de"}) == {"mail": found["mail"]}
    long = "x" * 500
    faked = value_of(made, {"mail": long})
    assert isinstance(faked, dict), "it does not repeat itself"
    assert len(set(faked["mail"])) > 10, "it does not repeat itself"


def test_what_is_redacted_keeps_its_type_and_null_is_null() -> None:
    made = masker("value.a=redact", "value.b=null", "header.h=null")
    document = {"a": [1, 2], "b": "x"}
    assert value_of(made, document) == {"a": [], "b": None}
    for given, left in (("x", "***"), (5, 0), (1.5, 0), (True, False), ({"c": 1}, {}), (None, None)):
        assert value_of(made, {"a": given}) == {"a": left}
    assert made.masked("t", b"k", None, [("h", b"x"), ("h", None)])[2] == [("h", None), ("h", None)]
    assert masker("value=null").masked("t", b"k", b"v", None)[:2] == (b"k", None)


def test_objects_and_lists_are_masked_leaf_by_leaf() -> None:
    found = value_of(masker("value.who=hash"), {"who": {"name": "anna", "tags": ["a", True, None, 2.5]}})
    assert isinstance(found, dict)
    assert re.fullmatch("[0-9a-f]{32}", found["who"]["name"])
    text, flag, nothing, number = found["who"]["tags"]
    assert len(text) == 32
    assert isinstance(flag, bool)
    assert nothing is None
    assert isinstance(number, int)


def test_what_is_not_masked_keeps_its_bytes() -> None:
    made = masker("value.a=hash", "users:value.b=hash")
    for data in (b'{ "b": 1.10,  "c":"\\u00e4" }', b"[ 1, 2 ]"):
        assert made.masked("orders", None, data, None) == (None, data, None, 0)
    kept = made.masked(
        "orders", None, b'{"c":1.10, "d":1E+5, "a":null, "e":"\\u00e4", "f":12345678901234567890}', None
    )[1]
    assert kept == '{"c":1.10,"d":1E+5,"a":null,"e":"ä","f":12345678901234567890}'.encode()
    assert made.masked("users", None, b'{"b":"x"}', None)[1] != b'{"b":"x"}'


@pytest.mark.parametrize(
    "data", [b"anna@shop.de", b'{"mail": "anna@shop.de"', b"\xff\x00anna", b'"anna@shop.de"', b"[" * 10_000]
)
def test_what_a_mask_cannot_look_into_is_masked_as_a_whole(data: bytes) -> None:
    for how in ("hash", "fake", "redact", "null"):
        _, value, _, met = masker(f"value.mail={how}").masked("t", None, data, None)
        assert met == WHOLE | 1
        assert b"anna" not in (value or b"")
        assert (value is None) == (how == "null")


def test_masks_that_met_nothing_are_known() -> None:
    masks = parse_masks(["key=hash", "value.a=hash", "value.b=hash", "value.c=hash", "header.h=null", "header.i=null"])
    made = Masker(masks, "s")
    met = made.masked("t", None, b'{"b":1}', [("h", b"x")])[3] | made.masked("t", b"k", b'[{"a":1}]', None)[3]
    assert [mask.what for mask in masks if not met & mask.bit] == ["value.c", "header.i"]
    met |= made.masked("t", None, b"?", None)[3]
    assert [mask.what for mask in masks if not met & mask.bit] == ["header.i"]


def test_a_field_may_have_dots_in_its_name() -> None:
    both = {"a.b": "x", "a": {"b": "y", "c": "z"}}
    assert value_of(masker("value.a.b=redact"), both) == {"a.b": "***", "a": {"b": "***", "c": "z"}}
    assert value_of(masker("value.a.b=redact"), {"a.b": "x"}) == {"a.b": "***"}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("value.email", "write it as WHAT=HOW"),
        ("value.email=scramble", "it can be hash, fake, redact, null"),
        ("values=hash", "write it as key, value"),
        ("value.=hash", "write it as key, value"),
        (":key=hash", "write it as key, value"),
        ("header=hash", "say which header"),
    ],
)
def test_masks_that_make_no_sense_are_refused(text: str, told: str) -> None:
    with pytest.raises(OptionError, match=told):
        parse_masks([text])


@pytest.mark.parametrize("text", ["value", "header.x", "key.", ""])
def test_entities_that_make_no_sense_are_refused(text: str) -> None:
    with pytest.raises(OptionError, match="write it as key"):
        By(text)

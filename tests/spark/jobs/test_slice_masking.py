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
    (first, name), (second, tags) = found["who"].items()
    assert all(re.fullmatch("[0-9a-f]{32}", each) for each in (first, second, name))
    text, flag, nothing, number = tags
    assert len(text) == 32
    assert isinstance(flag, bool)
    assert nothing is None
    assert isinstance(number, int)


def test_what_is_not_masked_keeps_its_bytes() -> None:
    made = masker("value.a=hash", "users:value.b=hash")
    for data in (b'{ "b": 1.10,  "c":"\\u00e4" }', b"[ { }, null ]", b" null"):
        assert made.masked("orders", None, data, None) == (None, data, None, 0)
    kept = made.masked(
        "orders", None, b'{"c":1.10, "d":1E+5, "a":null, "e":"\\u00e4", "f":12345678901234567890}', None
    )[1]
    assert kept == '{"c":1.10,"d":1E+5,"a":null,"e":"ä","f":12345678901234567890}'.encode()
    assert made.masked("users", None, b'{"b":"x"}', None)[1] != b'{"b":"x"}'


MAIL = b"anna@shop.de"
ODD = {  # where a mask of customer.mail cannot tell what to leave
    "text": MAIL,
    "cut": b'{"customer":{"mail":"%b"}' % MAIL,
    "bytes": b"\xff\x00" + MAIL,
    "text of JSON": b'"%b"' % MAIL,
    "number": b"17",
    "list of texts": b'["%b"]' % MAIL,
    "list of lists": b'[[],[["%b"]]]' % MAIL,
    "deep": b'{"customer":' * 10_000,
    "deep and whole": b"[" * 5_000 + b'{"customer":{"mail":"%b"}}' % MAIL + b"]" * 5_000,
    "two values": b'{"a":1}\n{"customer":{"mail":"%b"}}' % MAIL,
    "comma behind": b'{"customer":{"mail":"%b"},}' % MAIL,
    "NaN": b'{"a":NaN,"customer":{"mail":"%b"}}' % MAIL,
    "Infinity": b'{"customer":{"mail":-Infinity,"a":"%b"}}' % MAIL,
    "number as a name": b'{1:2,"customer":{"mail":"%b"}}' % MAIL,
    "field twice": b'{"customer":{"mail":"%b","mail":"x"}}' % MAIL,
    "object twice": b'{"customer":{"mail":"%b"},"customer":{}}' % MAIL,
    "object twice, then null": b'{"customer":{"mail":"%b"},"cust\\u006fmer":null}' % MAIL,
    "text in place of an object": b'{"customer":"%b"}' % MAIL,
    "text in a list of objects": b'{"customer":[{"mail":"x"},"%b"]}' % MAIL,
    "JSON in a text": b'{"customer":"{\\"mail\\":\\"%b\\"}"}' % MAIL,
    "number in place of an object": b'{"customer":491701234567}',
    "truth in place of an object": b'{"customer":true}',
}


@pytest.mark.parametrize("name", ODD)
@pytest.mark.parametrize("how", ["hash", "fake", "redact", "null"])
def test_what_a_mask_cannot_look_into_is_masked_as_a_whole(name: str, how: str) -> None:
    for made in (
        masker(f"value.customer.mail={how}").masked("t", None, ODD[name], None),
        masker(f"key.customer.mail={how}").masked("t", ODD[name], None, None),
    ):
        found = made[0] or made[1]
        assert made[3] == WHOLE | 1
        assert found != ODD[name]
        assert b"anna" not in (found or b"")
        assert b"1701234" not in (found or b"")


SHAPES = {  # where it is met, and all else stays
    "list": '[{"customer":{"mail":"anna@shop.de"}},[{"customer":[{"mail":"anna@shop.de"}]}]]',
    "escaped name": '{"cust\\u006fmer":{"m\\u0061il":"anna@shop.de"}}',
    "capitals": '{"Customer":{"MAIL":"anna@shop.de"}}',
    "both": '{"customer":{"mail":"x","Mail":"anna@shop.de"}}',
    "dots": '{"customer.mail":"anna@shop.de","customer":null}',
    "mark of the order of bytes": '\ufeff{"customer":{"mail":"anna@shop.de"}}',
    "object": '{"customer":{"mail":{"anna@shop.de":{"anna@shop.de":["anna@shop.de"]}}}}',
    "text of JSON": '{"customer":{"mail":"{\\"anna@shop.de\\":1}"}}',
    "empty and null": '{"customer":[null,{},{"mail":null},{"mail":"anna@shop.de"}]}',
}


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16-le"])
def test_a_field_is_met_in_whatever_form_it_comes(name: str, encoding: str) -> None:
    for how in ("hash", "fake", "redact", "null"):
        _, value, _, met = masker(f"value.customer.mail={how}").masked("t", None, SHAPES[name].encode(encoding), None)
        assert value is not None
        assert b"anna" not in value
        assert met == 1
        assert "mail" in value.decode().lower(), "names above what is masked stay"


def test_a_mask_finds_fields_whose_parents_have_dots_in_their_names() -> None:
    document = {"a.b": {"c": "x"}, "a": {"b.c": "y", "b": {"c": "z"}}, "a.b.c": "w"}
    found = value_of(masker("value.a.b.c=redact"), document)
    assert found == {"a.b": {"c": "***"}, "a": {"b.c": "***", "b": {"c": "***"}}, "a.b.c": "***"}


def test_masks_of_a_field_and_of_what_is_in_it_go_together() -> None:
    for masks in (("value.a=hash", "value.a.b=null"), ("value.a.b=null", "value.a=hash")):
        made = masker(*masks)
        _, value, _, met = made.masked("t", None, b'{"a":{"b":"x","c":"y"}}', None)
        assert met == 3
        assert value is not None
        assert sorted(map(type, json.loads(value)["a"].values()), key=str) == [type(None), str]
        _, value, _, met = made.masked("t", None, b'{"a":"x"}', None)
        assert value is not None
        assert len(json.loads(value)["a"]) == 32, "the text that is there is one of the masks' matter"


def test_headers_are_met_in_capitals_and_by_each_of_their_masks() -> None:
    made = masker("header.X-Mail=hash", "t:header.x-mail=null")
    assert made.masked("t", None, None, [("x-mail", MAIL), ("X-MAIL", MAIL)])[2:] == (
        [("x-mail", None), ("X-MAIL", None)], 3,
    )  # fmt: skip
    kept = made.masked("u", None, None, [("x-mail", MAIL)])[2]
    assert kept is not None
    assert re.fullmatch(b"[0-9a-f]{32}", kept[0][1] or b"")


def test_fakes_keep_no_letter_of_any_script() -> None:
    for text in ("अनिल कुमार", "①②③ 漢字", "อันนา", "🙂 Анна", "ﬁn é"):
        faked = masker("value=fake").masked("t", None, text.encode(), None)[1]
        assert faked is not None
        assert not set(faked.decode()) & {each for each in text if not each.isascii()}
    names = value_of(masker("value.a=fake"), {"a": {str(number): number for number in range(10)}})
    assert isinstance(names, dict)
    assert len(names["a"]) == 10, "two names that would become one"


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

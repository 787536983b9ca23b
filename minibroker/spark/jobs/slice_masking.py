"""Masking: keys, values, fields of JSON and headers made unreadable, the same content always in the same way.

    mask = Mask("key", "hash"), Mask("value.customer.email", "fake"), Mask("orders:header.trace", "null")

    hash    a code of the content: hexadecimal digits, for whole numbers a number
    fake    letters become other letters, digits other digits, all else stays: what looks like a mail still does
    redact  ***, 0, false, [] or {}
    null    null; a value that becomes null is a tombstone

What must hold: the same content under the same salt becomes the same, in whatever topic, as key or as a field, number
or text; so what could be joined still can. Without the salt nobody can try contents until one fits. What a mask cannot
look into is masked as a whole: nothing is let through because it was no JSON.
Values in which nothing is masked keep their bytes; others are written anew, as compact JSON with their fields in order.
Not here: which records (slice.py).
"""

from __future__ import annotations

import hmac
import json
import re
from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import Any

import pyarrow as pa

from minibroker.spark.columns.rows_of_query import ROWS
from minibroker.spark.option_values import OptionError

Header = tuple[str, bytes | None]

Masked = tuple[bytes | None, bytes | None, list[Header] | None, int]


HASH, FAKE, REDACT, NULL = HOWS = ("hash", "fake", "redact", "null")
STARS = "***"
PLACES = ("key", "value", "header")
NUMBER_MAX = 10**15  # below 2**53: every reader of JSON keeps it
MASKS_MAX = 62
WHOLE = 1 << MASKS_MAX  # among the bits of what was met: something was masked as a whole, though a field was meant


class Mask:
    """What is masked how: `[TOPIC:]key[.PATH]=HOW`, `value[.PATH]`, `header.NAME`."""

    __slots__ = ("how", "path", "place", "topic", "what")

    def __init__(self, what: str, how: str):
        self.what = what
        self.topic, colon, rest = what.rpartition(":")
        self.place, _, path = rest.partition(".")
        self.path = path.split(".") if path else []
        self.how = how
        if how not in HOWS:
            raise OptionError(f"--mask {what}={how}: it can be {', '.join(HOWS)}")
        if self.place not in PLACES or (colon and not self.topic) or "" in self.path or rest.endswith("."):
            raise OptionError(f"--mask {what}: write it as key, value, value.FIELD.FIELD, header.NAME, or TOPIC:key")
        if self.place == "header" and not self.path:
            raise OptionError(f"--mask {what}: say which header, as header.trace")

    @property
    def needs_salt(self) -> bool:
        return self.how in (HASH, FAKE)


def parse_masks(texts: Sequence[str]) -> list[Mask]:
    """Read WHAT=HOW of each."""
    found = []
    for text in texts:
        what, sign, how = text.rpartition("=")
        if not sign:
            raise OptionError(f"--mask {text}: write it as WHAT=HOW, as value.email=hash")
        found.append(Mask(what, how))
    if len(found) > MASKS_MAX:
        raise OptionError(f"--mask comes {len(found)} times: {MASKS_MAX} are the most")
    return found


def unused(masks: Sequence[Mask], met: int) -> list[Mask]:
    """Return the masks that met nothing, by the bits of all records."""
    return [mask for number, mask in enumerate(masks) if not met >> number & 1]


class Masker:
    """Masks records. Made in a worker, as it remembers what it has seen."""

    def __init__(self, masks: Sequence[Mask], salt: str):
        self._masks = list(masks)
        self._salt = salt.encode()
        self._by_topic: dict[str, list[Mask]] = {}

    def masked(self, topic: str, key: bytes | None, value: bytes | None, headers: Sequence[Header] | None) -> Masked:
        """Return key, value and headers, and a bit for each mask that met something."""
        masks = self._by_topic.get(topic)
        if masks is None:
            masks = self._by_topic[topic] = [mask for mask in self._masks if mask.topic in ("", topic)]
        met = 0
        for place in ("key", "value"):
            mine = [mask for mask in masks if mask.place == place]
            data = key if place == "key" else value
            if not mine or data is None:
                continue
            data, hits = self._content(data, mine)
            met |= hits
            key, value = (data, value) if place == "key" else (key, data)
        named = {".".join(mask.path): mask for mask in masks if mask.place == "header"}
        if not named or not headers:
            return key, value, None if headers is None else list(headers), met
        kept: list[Header] = []
        for name, data in headers:
            mask = named.get(name)
            if mask is not None:
                met |= self._bit(mask)
                data = None if data is None else self.whole(data, mask.how)
            kept.append((name, data))
        return key, value, kept, met

    def _bit(self, mask: Mask) -> int:
        return 1 << self._masks.index(mask)

    def _content(self, data: bytes, masks: list[Mask]) -> tuple[bytes | None, int]:
        """Mask a key or value; return it, and the bits of what was met."""
        for mask in masks:
            if not mask.path:
                return self.whole(data, mask.how), sum(self._bit(each) for each in masks)
        try:
            document = json.loads(data, parse_float=_Fraction)
        except (ValueError, RecursionError):
            document = None
        if not isinstance(document, dict | list):
            # No place for a field: a text in which it may stand somehow, or something in another format.
            return self.whole(data, masks[0].how), WHOLE | sum(self._bit(each) for each in masks)
        met = sum(self._bit(mask) for mask in masks if self._walk(document, mask.path, mask.how))
        if not met:
            return data, 0
        text = _Fraction.WRITTEN.sub(r"\1", json.dumps(document, ensure_ascii=False, separators=(",", ":")))
        return text.encode("utf-8", "surrogatepass"), met

    def _walk(self, document: Any, path: list[str], how: str) -> int:
        """Mask the fields at a path, in each element of lists on the way; return how many there were."""
        if isinstance(document, list):
            return sum(self._walk(each, path, how) for each in document)
        if not isinstance(document, dict):
            return 0
        hits = 0
        if len(path) > 1 and path[0] in document:
            hits = self._walk(document[path[0]], path[1:], how)
        name = ".".join(path)  # a field may have dots in its name
        if name in document:
            document[name] = self.of_json(document[name], how)
            hits += 1
        return hits

    # One content

    def whole(self, data: bytes, how: str) -> bytes | None:
        """Mask bytes."""
        if how == NULL:
            return None
        if how == REDACT:
            return STARS.encode()
        try:
            text = data.decode()
        except UnicodeDecodeError:
            text, how = data.decode("latin-1"), HASH  # there is no shape that could be kept
        return self._of_text(text, how).encode()

    def of_json(self, value: Any, how: str) -> Any:
        """Mask a value of JSON; it keeps its type, and lists and objects their form."""
        if how == NULL or value is None:
            return None
        if how == REDACT:
            return _nothing_of(value)
        if isinstance(value, list):
            return [self.of_json(each, how) for each in value]
        if isinstance(value, dict):
            return {name: self.of_json(each, how) for name, each in value.items()}
        if isinstance(value, bool):
            return bool(self._code(f"bool {value}")[0] & 1)
        if isinstance(value, _Fraction):
            return _Fraction(
                self._faked(value.text, is_number=True)
                if how == FAKE
                else self._of_text(value.text, HASH, is_number=True)
            )
        if isinstance(value, int):
            return int(self._of_text(str(value), how, is_number=True))
        return self._of_text(value, how)

    def _of_text(self, text: str, how: str, *, is_number: bool = False) -> str:
        if how == FAKE:
            return self._faked(text)
        code = self._code(text)
        if is_number or re.fullmatch(r"-?(0|[1-9]\d{0,17})", text, re.ASCII):
            return str(int.from_bytes(code[:8], "big") % NUMBER_MAX)
        return code[:16].hex()

    def _code(self, text: str) -> bytes:
        return hmac.digest(self._salt, text.encode("utf-8", "surrogatepass"), sha256)

    def _faked(self, text: str, *, is_number: bool = False) -> str:
        """Return another text of the same form."""
        chance, used, number = self._code(f"fake {text}"), 0, 0
        out = []
        for index, character in enumerate(text):
            if used == len(chance):
                number += 1
                chance, used = self._code(f"fake {number} {text}"), 0
            code, used = chance[used], used + 1
            if character.isdigit():
                # A number does not get zeros in front, which JSON does not take.
                is_first = index == 0 or not (text[index - 1].isdigit() or text[index - 1] == ".")
                has_more = text[index + 1 : index + 2].isdigit()
                out.append(str(code % 9 + 1) if is_first and has_more and character != "0" else str(code % 10))
            elif character.isalpha() and not is_number:
                letter = chr(ord("a") + code % 26)
                out.append(letter.upper() if character.isupper() else letter)
            else:
                out.append(character)
        return "".join(out)


class _Fraction(str):
    """A number with a fraction or exponent: as text, so that it is written as it was read."""

    __slots__ = ()
    # As the encoder writes it: nobody has such texts in earnest.
    WRITTEN = re.compile(r'"\\u0000fraction ([-+.\deE]+)\\u0000"')

    def __new__(cls, text: str) -> _Fraction:
        return super().__new__(cls, f"\0fraction {text}\0")

    @property
    def text(self) -> str:
        return self[10:-1]


def _nothing_of(value: Any) -> Any:
    kinds: list[tuple[type, Callable[[], Any]]] = [
        (bool, bool),
        (int, int),
        (_Fraction, int),
        (list, list),
        (dict, dict),
    ]
    for kind, made in kinds:
        if isinstance(value, kind):
            return made()
    return STARS


MASKED = ROWS.append(pa.field("met", pa.int64()))


def masked(batch: pa.RecordBatch, masker: Masker) -> pa.RecordBatch:
    """Return the batch masked, and a column with bits for the masks that met something."""
    columns = {name: batch.column(name) for name in ROWS.names}
    keys, values, headers, mets = [], [], [], []
    texts = (columns[name].to_pylist() for name in ("topic", "key", "value", "headers"))
    for topic, key, value, given in zip(*texts, strict=True):
        pairs = None if given is None else [(each["key"], each["value"]) for each in given]
        key, value, kept, met = masker.masked(topic, key, value, pairs)
        keys.append(key)
        values.append(value)
        headers.append(None if kept is None else [{"key": name, "value": data} for name, data in kept])
        mets.append(met)
    for name, made in (("key", keys), ("value", values), ("headers", headers)):
        columns[name] = pa.array(made, ROWS.field(name).type)
    arrays = [columns[name].cast(ROWS.field(name).type) for name in ROWS.names]
    return pa.RecordBatch.from_arrays([*arrays, pa.array(mets, pa.int64())], schema=MASKED)

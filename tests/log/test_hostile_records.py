"""Records as no client of ours writes them: what a leader takes, what it writes anew, what it says of the others."""

from __future__ import annotations

import pytest

from minibroker.errors import KafkaError
from minibroker.log.batches import batches
from minibroker.log.build import build_batch, pack_batch
from minibroker.log.compression import GZIP
from minibroker.log.convert import recompressed
from minibroker.log.formats import HEADER_BYTES
from minibroker.log.records import Record
from minibroker.log.settings import ValidationSettings
from minibroker.log.validate import Validated
from minibroker.schema.varint import uvarint
from tests.broker.stretches import counted
from tests.log.validating import validate

NOW_MS = 1_600_000_000_000
RECORD = b"\0\0\0\2k\2v"  # attributes, deltas of time and offset, key and value; the headers follow
MANY = 6_000  # headers: gone through in pieces


def sized(body: bytes) -> bytes:
    return uvarint(len(body) << 1) + body


def batch_of(payload: bytes, count: int = 1, attributes: int = 0) -> bytes:
    return pack_batch(0, -1, (attributes, max(count, 1) - 1, NOW_MS, NOW_MS, -1, -1, -1, count), payload)


def appended(data: bytes, settings: ValidationSettings | None = None) -> Validated:
    settings = settings or ValidationSettings()
    return validate(data, settings, next_offset=0, leader_epoch=0, now_ms=NOW_MS, partition="t-0")


@pytest.mark.parametrize("message_format", [0, 1, 2])
@pytest.mark.parametrize("zero", [b"\0", b"\x80\0", b"\x80\x80\0"], ids=len)
def test_no_headers_may_be_said_in_more_than_one_byte(message_format: int, zero: bytes) -> None:
    settings = ValidationSettings(message_format=message_format, compression_type="gzip")
    done = appended(batch_of(sized(RECORD + zero)), settings)
    (batch,) = batches(b"".join(done.chunks), strict=True)
    assert [(each.key, each.value, each.headers) for each in batch.records()] == [(b"k", b"v", ())]


@pytest.mark.parametrize("count", [1, 2, MANY])
def test_keys_of_headers_that_are_no_text_are_written_anew_as_text(count: int) -> None:
    """As Kafka does; what stays as it is keeps them."""
    header, anew = b"\x06\xffbc\2\xfe", b"\x0a\xef\xbf\xbdbc\2\xfe"
    fine = b"\4\xc3\xa4\1"
    body = RECORD + uvarint((count + 1) << 1) + fine
    data = batch_of(sized(body + header * count))
    assert b"".join(appended(data).chunks)[HEADER_BYTES:] == data[HEADER_BYTES:]
    (packed,) = batches(b"".join(appended(data, ValidationSettings(compression_type="gzip")).chunks), strict=True)
    (plain,) = batches(recompressed(packed, 0))
    assert bytes(plain.view[HEADER_BYTES:]) == sized(body + anew * count)


WRONG = {
    "size": (b"\xff" * 11 + b"\0", "RecordV2[0].size at byte 61: is longer than 5 bytes or too large"),
    "offset": (
        sized(b"\0\0" + b"\xff" * 6),
        "RecordV2[0].offset_delta at byte 64: is longer than 5 bytes or too large",
    ),
    "headers": (
        sized(b"\0\0\0\1\1\x8c\1") + b"\0\0",
        "RecordV2[0].headers at byte 67: 70 elements cannot fit into the 2 bytes that are left",
    ),
    "key of a header": (
        sized(RECORD + b"\2\1\0"),
        "RecordV2[0].headers[0].key at byte 70: length -1 means null, which this version does not allow",
    ),
    "second": (
        sized(RECORD + b"\0") + sized(b"\0\0\2\x7e\0\0"),
        "RecordV2[1].key at byte 75: needs 63 bytes, 2 are left",
    ),
    "count": (sized(RECORD + b"\0"), "BatchHeader.count at byte 57: 9 records cannot be in 9 bytes"),
}


@pytest.mark.parametrize("name", WRONG)
def test_the_words_for_a_broken_record_name_its_field_and_place(name: str) -> None:
    payload, words = WRONG[name]
    with pytest.raises(KafkaError) as caught:
        appended(batch_of(payload, {"second": 2, "count": 9}.get(name, 1)))
    assert words in str(caught.value)


def test_many_headers_that_begin_behind_their_record_are_no_negative_number_of_bytes() -> None:
    body = RECORD + uvarint(2 * 2816)
    with pytest.raises(KafkaError, match="its headers begin behind its end"):
        appended(batch_of(uvarint(2 * (len(body) - 1)) + body + bytes(20_000)))


def test_what_a_batch_without_records_has_is_kept() -> None:
    (batch,) = batches(batch_of(b"\x1f\x8bnobody can read this", 0, GZIP))
    assert recompressed(batch, 0) == bytes(batch.view)


@pytest.mark.parametrize("message_format", [0, 1])
def test_a_message_alone_is_read_in_few_steps(message_format: int) -> None:
    count, lines_max = 300, 205  # 236 in a reader that goes in pieces
    sent = build_batch(message_format, [Record(None, b"v", (), NOW_MS)] * count)
    settings = ValidationSettings(message_format=message_format)
    appended(sent, settings)
    done, steps = counted(lambda: appended(sent, settings))
    assert done.last_offset == count - 1
    assert steps.all_lines <= count * lines_max, steps.all_lines / count

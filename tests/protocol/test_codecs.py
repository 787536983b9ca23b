"""What users of messages rely on beyond the bytes: views, chunks, unknown tags, defaults, laziness."""

from __future__ import annotations

import subprocess
import sys
import traceback

import pytest

from minibroker.errors import EncodeError, TrailingBytes, UnknownMessage, UnsupportedVersion
from minibroker.protocol import message
from minibroker.protocol.messages.api_versions import ApiVersionsRequest
from minibroker.protocol.messages.fetch import FetchRequest, FetchResponse
from minibroker.protocol.messages.list_groups import ListGroupsRequest
from minibroker.protocol.messages.produce import ProduceRequest

Topic = ProduceRequest.TopicProduceData
Partition = Topic.PartitionProduceData


def produce(records: bytes | memoryview | None) -> ProduceRequest:
    return ProduceRequest(
        acks=-1, timeout_ms=1000, topic_data=[Topic(name="t", partition_data=[Partition(index=0, records=records)])]
    )


def test_records_are_a_view_of_the_receive_buffer() -> None:
    buffer = bytearray(produce(b"batch").encode(9))
    records = ProduceRequest.decode(buffer, 9).topic_data[0].partition_data[0].records
    assert isinstance(records, memoryview)
    assert records.obj is buffer
    buffer[buffer.index(b"batch")] = ord("B")
    assert records == b"Batch"


def test_large_records_leave_as_the_object_that_they_were() -> None:
    records = memoryview(bytes(100_000))
    chunks = produce(records).encode_chunks(9)
    assert any(chunk is records for chunk in chunks)
    assert b"".join(chunks) == produce(records).encode(9)
    assert len(chunks) == 3


def test_tagged_fields_of_the_future_survive_a_round_trip() -> None:
    # One known tag is absent, two unknown ones stand in front of each other, one of them empty.
    data = ApiVersionsRequest(client_software_name="n", client_software_version="v").encode(3)[:-1]
    data += bytes.fromhex("02 63 03 616263 8001 00")
    request = ApiVersionsRequest.decode(data, 3)
    assert request.unknown_tags == {99: b"abc", 128: b""}
    assert request.encode(3) == data
    assert request.encode(0) == b""


def test_tagged_fields_may_come_in_any_order_and_leave_in_ascending_order() -> None:
    whole = FetchRequest(max_wait_ms=1, min_bytes=1, topics=[]).encode(12)
    data = whole[:-1] + bytes.fromhex("02 63012a 00020241")
    request = FetchRequest.decode(data, 12)
    assert request.cluster_id == "A"
    assert request.encode(12) == whole[:-1] + bytes.fromhex("02 00020241 63012a")


def test_field_that_a_version_lacks_reads_as_its_default_and_is_not_written() -> None:
    old = FetchRequest.decode(FetchRequest(max_wait_ms=1, min_bytes=1, topics=[], rack_id="r").encode(4), 4)
    assert (old.rack_id, old.session_epoch, old.replica_state.replica_epoch) == ("", -1, -1)
    assert FetchRequest(max_wait_ms=1, min_bytes=1, topics=[], rack_id="r").encode(4) == old.encode(4)


def test_struct_field_that_is_left_out_reads_as_a_struct_of_defaults() -> None:
    Data = FetchResponse.FetchableTopicResponse.PartitionData
    data = Data(partition_index=0, error_code=0, high_watermark=1, records=None)
    assert data.current_leader.leader_id == -1
    assert data.diverging_epoch == Data.EpochEndOffset()


def test_equal_fields_make_equal_messages() -> None:
    assert produce(b"x") == produce(memoryview(b"x"))
    assert produce(b"x") != produce(b"y")
    assert produce(b"x") != ListGroupsRequest()


def test_to_dict_is_made_of_plain_values() -> None:
    request = ProduceRequest.decode(produce(b"x").encode(3), 3)
    topic = {"topic_id": bytes(16), "name": "t", "partition_data": [{"index": 0, "records": b"x"}]}
    assert request.to_dict() == {"transactional_id": None, "acks": -1, "timeout_ms": 1000, "topic_data": [topic]}


def test_missing_and_misspelt_fields_are_refused_as_in_any_function() -> None:
    with pytest.raises(TypeError, match="missing 1 required keyword-only argument: 'acks'"):
        ProduceRequest(timeout_ms=1, topic_data=[])  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="timeout"):
        ProduceRequest(acks=1, timeout_ms=1, topic_data=[], timeout=1)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"acks": 70_000}, "ProduceRequest.acks: 70000 is not a valid Int16"),
        ({"acks": None}, "ProduceRequest.acks: null is not allowed here"),
        ({"topic_data": None}, "ProduceRequest.topic_data: null is not allowed here"),
        ({"topic_data": [1]}, r"ProduceRequest.topic_data\[0\]: 1 is not a TopicProduceData"),
        ({"topic_data": 7}, "ProduceRequest.topic_data: 7 is not a list"),
        ({"topic_data": [Topic(name="\ud800", partition_data=[])]}, r"topic_data\[0\].name: .* not a valid String"),
    ],
)
@pytest.mark.parametrize("version", [3, 12])
def test_values_that_do_not_fit_are_named(change: dict[str, object], reason: str, version: int) -> None:
    fields = {"acks": 1, "timeout_ms": 1, "topic_data": []} | change
    with pytest.raises(EncodeError, match=reason):
        ProduceRequest(**fields).encode(version)  # type: ignore[arg-type]


def test_string_too_long_for_its_length_field_is_refused() -> None:
    long = ProduceRequest(acks=1, timeout_ms=1, topic_data=[Topic(name="x" * 40_000, partition_data=[])])
    for version in (3, 12):
        with pytest.raises(EncodeError, match=r"topic_data\[0\].name: .* is not a valid String"):
            long.encode(version)


def test_uuid_of_wrong_length_is_refused() -> None:
    with pytest.raises(EncodeError, match="topic_id: b'short' is not a valid Uuid"):
        ProduceRequest(acks=1, timeout_ms=1, topic_data=[Topic(topic_id=b"short", partition_data=[])]).encode(13)


def test_versions_that_do_not_exist_are_refused_both_ways() -> None:
    last = ProduceRequest.schema.last_version
    for version in (-1, last + 1):
        with pytest.raises(UnsupportedVersion, match=f"is not one of 0-{last}"):
            produce(b"").encode(version)
        with pytest.raises(UnsupportedVersion, match=f"is not one of 0-{last}"):
            ProduceRequest.decode(b"", version)


def test_bytes_behind_the_message_are_an_error() -> None:
    with pytest.raises(TrailingBytes, match="3 bytes follow"):
        ProduceRequest.decode(produce(b"x").encode(9) + b"abc", 9)


def test_unknown_name_gets_a_suggestion() -> None:
    with pytest.raises(UnknownMessage, match="did you mean 'ProduceRequest'"):
        message("ProduceReqest")


def test_broken_utf_8_becomes_replacement_characters_as_in_kafka() -> None:
    data = ListGroupsRequest(states_filter=["abc"]).encode(4).replace(b"abc", b"a\xffc")
    assert ListGroupsRequest.decode(data, 4).states_filter == ["a�c"]


@pytest.mark.outside
def test_importing_a_message_generates_nothing() -> None:
    program = (
        "import minibroker.protocol.messages.produce as m, sys;"
        "assert 'minibroker.schema.compile' not in sys.modules;"
        "m.ProduceRequest(acks=1, timeout_ms=1, topic_data=[]).encode(9);"
        "assert list(m.ProduceRequest.schema.encoders) == [9] and not m.ProduceRequest.schema.decoders"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_traceback_through_a_codec_shows_its_source() -> None:
    read = ProduceRequest.schema.decoders.get(9) or ProduceRequest._make_decoder(9)
    try:
        read(b"", 0, 0)
    except IndexError:
        assert "= buf[pos]" in traceback.format_exc()
    else:
        raise AssertionError("an empty buffer was decoded")

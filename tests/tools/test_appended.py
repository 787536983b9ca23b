"""What a leader changes of what producers send, format by format, and what that costs the checksum."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from minibroker.cli import main
from minibroker.log.build import build_batch
from minibroker.log.records import Record
from minibroker.protocol import message
from minibroker.protocol.framing import encode_request
from minibroker.tools.appended import Comparison, NotKnown, append, as_sent, compare

RECORDS = [Record(None, b"value%d" % number, (), 1524709879130 + number, number) for number in range(3)]


def appended(magic: int, codec: int = 0, **settings: object) -> tuple[bytes, bytes, Comparison]:
    sent = build_batch(magic, RECORDS if codec or magic == 2 else RECORDS[:1], codec=codec)
    stored = append(sent, next_offset=11, leader_epoch=3, **{"message_format": magic, **settings})  # type: ignore[arg-type]
    return sent, stored.data, compare(sent, stored.data)


def names(found: Comparison) -> dict[str, tuple[object, object]]:
    return {
        each.path.removeprefix("batch[0]."): (each.sent and each.sent.value, each.stored and each.stored.value)
        for each in found.changed
    }


def test_v2_is_given_one_offset_and_an_epoch_which_its_checksum_does_not_cover() -> None:
    for codec in (0, 1, 4):
        sent, stored, found = appended(2, codec)
        assert names(found) == {"base_offset": (0, 11), "partition_leader_epoch": (-1, 3)}
        assert not found.crc_made_again
        assert found.bytes_changed == 5
        assert found.sentence.startswith(f"5 of {len(sent)} bytes changed, in base_offset and partition_leader_epoch;")
        assert as_sent(stored) == sent


def test_v1_is_given_the_offset_of_the_wrapper_which_is_that_of_the_last() -> None:
    sent, stored, found = appended(1, 1)
    assert names(found) == {"offset": (2, 13)}
    assert (found.bytes_changed, found.crc_made_again) == (1, False)
    assert as_sent(stored) == sent
    sent, stored, found = appended(1)
    assert names(found) == {"offset": (0, 11)}
    assert not found.crc_made_again
    assert as_sent(stored) == sent


def test_v0_within_a_wrapper_has_to_be_numbered_one_by_one_and_packed_again() -> None:
    sent, stored, found = appended(0, 1)
    assert not found.is_in_place
    assert found.crc_made_again
    changed = names(found)
    assert changed["offset"] == (2, 13)
    within = [changed[f"value.batch[{number}].offset"] for number in range(3)]
    assert within == [(0, 11), (1, 12), (2, 13)]
    assert not [path for path in changed if path.startswith("value.batch") and not path.endswith(".offset")]
    assert "crc" in changed
    assert found.sentence.startswith(f"written anew as v0: {len(sent)} bytes became {len(stored)}")
    assert as_sent(stored) == sent


def test_v0_alone_is_given_its_offset_in_place() -> None:
    _, _, found = appended(0)
    assert names(found) == {"offset": (0, 11)}
    assert not found.crc_made_again


@pytest.mark.parametrize(("magic", "time"), [(1, "timestamp"), (2, "max_timestamp")])
def test_log_append_time_costs_a_checksum_and_stays_in_place(magic: int, time: str) -> None:
    sent, stored, found = appended(magic, 1, append_time=True, now_ms=1700000000000)
    assert found.is_in_place
    assert found.crc_made_again
    assert set(names(found)) >= {"attributes", "crc", time}
    assert names(found)[time][1] == 1700000000000
    assert as_sent(stored) == sent


def test_a_topic_of_another_codec_or_format_has_it_written_anew() -> None:
    sent, _, found = appended(2, 0, compression_type="gzip")
    assert not found.is_in_place
    assert names(found)["attributes"] == (0, 1)
    assert compare(sent, append(sent, message_format=1).data).sentence.startswith("written anew as v1")
    old = build_batch(0, RECORDS, codec=1)
    assert not append(old).in_place
    assert compare(old, append(old).data).changed == []  # other fields altogether


def test_what_is_no_longer_known_is_said() -> None:
    hole = build_batch(2, [RECORDS[0], RECORDS[2]])
    with pytest.raises(NotKnown, match="compaction has taken"):
        as_sent(hole)
    with pytest.raises(NotKnown, match="its own time"):
        as_sent(build_batch(1, RECORDS[:1], timestamp_type=1, max_timestamp=5))


def test_json_has_both_sides() -> None:
    _, _, found = appended(2)
    row = found.to_dict()["changed"][0]
    assert row["path"] == "batch[0].base_offset"
    assert (row["sent"]["hex"], row["stored"]["hex"]) == ("00" * 8, "000000000000000b")


def test_explain_compares_what_is_sent_with_what_a_leader_would_store(capsys: pytest.CaptureFixture[str]) -> None:
    sent = build_batch(2, RECORDS)
    assert main(["explain", sent.hex(), "--append-at", "11", "--leader-epoch", "3"]) == 0
    printed = capsys.readouterr().out
    assert max(map(len, printed.splitlines())) <= 80
    assert "5 of " in printed
    assert "batch[0].base_offset" in printed
    stored = append(sent, next_offset=11, leader_epoch=3).data
    assert main(["explain", sent.hex(), "--stored-as", stored.hex()]) == 0
    assert capsys.readouterr().out == printed
    assert main(["explain", "--json", sent.hex(), "--stored-as", stored.hex()]) == 0
    assert json.loads(capsys.readouterr().out)["bytes_changed"] == 5


def test_explain_takes_the_records_out_of_a_produce_request(capsys: pytest.CaptureFixture[str]) -> None:
    ProduceRequest = message("ProduceRequest")
    topic = ProduceRequest.TopicProduceData  # type: ignore[attr-defined]
    sent = build_batch(1, RECORDS, codec=1)
    row = topic.PartitionProduceData(index=0, records=sent)
    request = ProduceRequest(acks=1, timeout_ms=5, topic_data=[topic(name="t", partition_data=[row])])
    frame = b"".join(encode_request(request, 2, 7, "me"))  # type: ignore[arg-type]
    assert main(["explain", frame.hex(), "--append-at", "11"]) == 0
    assert capsys.readouterr().out.startswith(f"1 of {len(sent)} bytes changed, in offset;")


def test_explain_says_what_a_leader_refuses(capsys: pytest.CaptureFixture[str]) -> None:
    sent = build_batch(2, [RECORDS[2]])
    assert main(["explain", sent.hex(), "--append-at", "11"]) == 1
    assert "INVALID_RECORD: base offset is 2, not 0" in capsys.readouterr().err


def test_dump_shows_what_the_producer_sent_of_each_batch(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "00000000000000000011.log"
    batches = [append(build_batch(magic, RECORDS, codec=1), next_offset=11, message_format=magic) for magic in range(3)]
    log.write_bytes(b"".join(each.data for each in batches) + build_batch(2, [RECORDS[0], RECORDS[2]]))
    assert main(["dump", "--sent", str(log)]) == 0
    printed = capsys.readouterr().out
    assert max(map(len, printed.splitlines()[1:])) <= 80
    assert [line for line in printed.splitlines() if line.startswith("batch[0].value.batch[2].offset")]
    assert "batch[1].offset" in printed
    assert "batch[2].base_offset" in printed
    assert "not known any more: compaction has taken" in printed

"""Explanations cover all bytes, come from the declarations, and end with the error where bytes are broken."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from minibroker.cli import main
from minibroker.errors import CorruptCrc, InvalidMagic, Truncated, UnknownMessage, UnsupportedVersion
from minibroker.log.build import build_batch
from minibroker.log.records import Record
from minibroker.protocol import message
from minibroker.protocol.framing import encode_request, encode_response
from minibroker.protocol.headers import Request
from minibroker.tools.explain import Explanation, Part, explain, file_kind, guess
from minibroker.tools.field_words import attribute_words
from tests import goldens

V2 = next(bytes.fromhex(case["hex"]) for case in goldens.records("records") if case["id"] == "known-v2-key-value")
V0 = next(bytes.fromhex(case["hex"]) for case in goldens.records("records") if case["id"] == "known-v0-key-value")


def covered(found: Explanation) -> bool:
    """Whether the parts lie side by side from the first byte to the last, in each buffer."""
    outer = [part for part in found.parts if not part.inside]
    return [part.start for part in outer] == [0, *(part.end for part in outer)][: len(outer)] and (
        not outer or outer[-1].end == len(found.data)
    )


def test_request_is_explained_with_header_records_and_comments() -> None:
    ProduceRequest = message("ProduceRequest")
    topic = ProduceRequest.TopicProduceData  # type: ignore[attr-defined]
    request = ProduceRequest(
        acks=1,
        timeout_ms=5,
        topic_data=[topic(name="t", partition_data=[topic.PartitionProduceData(index=0, records=V2)])],
    )
    assert isinstance(request, Request)
    frame = b"".join(encode_request(request, 9, 7, "me"))
    found = explain(frame)
    assert found.error is None
    assert covered(found)
    by_path = {part.path: part for part in found.parts}
    assert by_path["frame.length"].value == len(frame) - 4
    assert by_path["RequestHeader.correlation_id"].value == 7
    assert by_path["ProduceRequest.topic_data[0].name"].data == b"\x02t"
    record = by_path["ProduceRequest.topic_data[0].partition_data[0].records.batch[0].records[0].value"]
    assert (record.value, record.data) == (b"value", b"value")
    assert all(by_path[path].comment for path in ("ProduceRequest.acks", "RequestHeader.client_id"))
    # The frame without its length is recognised as well.
    assert [part.path for part in explain(frame[4:]).parts] == [part.path for part in found.parts[1:]]


def test_response_needs_to_be_told_what_it_answers() -> None:
    Response = message("ApiVersionsResponse")
    frame = b"".join(encode_response(Response(error_code=0, api_keys=[]), 3, 9))  # type: ignore[arg-type]
    for api in ("ApiVersions", "18", "ApiVersionsRequest"):
        found = explain(frame, "response", api, 3)
        assert found.error is None
        assert covered(found)
    assert isinstance(explain(frame, "response").error, UnsupportedVersion)
    assert isinstance(explain(frame, "response", "", 3).error, UnknownMessage)


@pytest.mark.parametrize("case", goldens.records("records"), ids=lambda case: case["id"])
def test_every_golden_batch_is_explained_to_its_last_byte(case: dict[str, object]) -> None:
    data = bytes.fromhex(str(case["hex"]))
    found = explain(data, "batch")
    if case.get("broken") == "tail":
        assert found.error is not None
    elif found.error is None:
        assert covered(found)


def test_checksum_is_judged() -> None:
    assert next(part for part in explain(V2).parts if part.path.endswith("crc")).meaning == "right"
    broken = bytearray(V0)
    broken[-1] ^= 1
    found = explain(bytes(broken))
    assert next(part for part in found.parts if part.path.endswith("crc")).meaning.startswith("WRONG: the bytes give")
    assert not isinstance(found.error, CorruptCrc)


@pytest.mark.parametrize("path", sorted(goldens.log_files()))
def test_files_of_a_real_log_directory_are_explained(path: str) -> None:
    data = goldens.log_files()[path]
    kind = file_kind(path.rpartition("/")[2])
    if not kind:
        assert path.endswith((".metadata", ".properties", "quorum-state", "cleanshutdown", ".lock")), path
        return
    found = explain(data, kind)
    assert found.error is None, found.error
    assert covered(found)


def values(data: bytes, kind: str, *fields: str) -> list[list[object]]:
    """Return the named fields of every entry that an explanation shows."""
    found = explain(data, kind)
    assert found.error is None
    columns = [[part.value for part in found.parts if part.path.endswith("." + field)] for field in fields]
    return [list(entry) for entry in zip(*columns)]


def test_entries_of_indexes_and_snapshots_equal_what_kafka_reads() -> None:
    files = goldens.log_files()
    seen: set[str] = set()
    for partition, meaning in goldens.log_meaning()["partitions"].items():
        for segment in meaning["segments"]:
            start = f"{partition}/{segment['base']:020}"
            for kind, fields in {
                "index": ("relative_offset", "position"),
                "timeindex": ("timestamp", "relative_offset"),
                "txnindex": ("producer_id", "first_offset", "last_offset", "last_stable_offset"),
            }.items():
                if kind not in segment or f"{start}.{kind}" not in files:
                    continue
                entries = values(files[f"{start}.{kind}"], kind, *fields)
                # Kafka's reader adds the base offset, and does not show the zeros of an index that holds nothing.
                for entry in entries:
                    for column, field in enumerate(fields):
                        if field == "relative_offset":
                            entry[column] += segment["base"]  # type: ignore[operator]
                theirs = [list(entry.values()) if isinstance(entry, dict) else entry for entry in segment[kind]]
                assert entries == theirs, (start, kind)
                seen |= {kind} if entries else set()
        for offset, producers in meaning.get("snapshots", {}).items():
            fields = ("producer_id", "epoch", "last_sequence", "last_offset", "current_txn_first_offset")
            names = ("producerId", "producerEpoch", "lastSequence", "lastOffset", "currentTxnFirstOffset")
            theirs = [[producer[name] for name in names] for producer in producers]
            data = files[f"{partition}/{offset}.snapshot"]
            ours = values(data, "snapshot", *fields)
            assert sorted(ours) == sorted(theirs)  # type: ignore[type-var]
            seen |= {"snapshot"} if ours else set()
        epochs = files.get(f"{partition}/leader-epoch-checkpoint", b"0\n0\n")
        ours = values(epochs, "leader-epoch-checkpoint", "epoch", "start_offset")
        assert [f"{epoch} {start}" for epoch, start in ours] == meaning.get("leader-epoch-checkpoint", [])[2:]
    assert seen == {"index", "timeindex", "txnindex", "snapshot"}


def test_preallocated_index_is_zeros_behind_its_entries() -> None:
    found = explain(bytes.fromhex("0000000500000100") + bytes(4096), "index")
    assert [part.path for part in found.parts] == ["entry[0].relative_offset", "entry[0].position", "preallocated"]
    assert covered(found)


@pytest.mark.parametrize(
    ("data", "kind", "error"),
    [
        (V2[:-1], "batch", Truncated),
        (V2[8:18], "batch", Truncated),
        (V2[:16] + b"\x07" + V2[17:], "batch", InvalidMagic),
        (b"", "", UnknownMessage),
        (b"\xff" * 40, "", UnknownMessage),
        (b"0\n2\n1 0\n", "leader-epoch-checkpoint", None),
        (b"0\n1\n1 x\n", "leader-epoch-checkpoint", None),
        (b"0\n1\n1 0 0\n", "leader-epoch-checkpoint", None),
    ],
)
def test_broken_bytes_end_the_explanation_with_the_error(data: bytes, kind: str, error: type[Exception] | None) -> None:
    found = explain(data, kind)
    assert found.error is not None
    assert error is None or isinstance(found.error, error)
    assert sum(part.end - part.start for part in found.parts) <= len(data)


def test_every_golden_message_explains_without_error() -> None:
    for kind in ("requests", "responses", "records"):
        for vector in goldens.wire(kind):
            found = explain(bytes.fromhex(vector["hex"]), vector["name"], version=vector["version"])
            # Records fields of the golden messages hold real batches or nothing.
            assert found.error is None or ".records" in found.error.path, (vector["name"], found.error)


def test_guess_prefers_what_fits() -> None:
    assert guess(V0) == guess(V2) == "batch"
    assert guess(bytes.fromhex("0012 0000 00000001 0000")) == "request"


def described(data: bytes) -> dict[str, Part]:
    """Return the parts of an explanation by their path."""
    found = explain(data, "batch")
    assert found.error is None
    assert covered(found)
    return {part.path.removeprefix("batch[0]."): part for part in found.parts}


def test_lengths_of_keys_and_values_are_fields_of_their_own() -> None:
    old = described(V0)
    assert [(old[name].value, old[name].data.hex()) for name in ("key.size", "value.size")] == [
        (3, "00000003"),
        (5, "00000005"),
    ]
    new = described(build_batch(2, [Record(b"order-1", None)]))
    assert new["records[0].key.size"].meaning == "0e = 14, zigzag 7"
    assert (new["records[0].value.size"].value, new["records[0].value"].value) == (-1, None)
    assert new["records[0].value.size"].meaning == "01 = 1, zigzag -1"


def test_a_varint_of_several_bytes_shows_its_steps() -> None:
    parts = described(build_batch(2, [Record(None, b"a", (), 5000), Record(None, b"x" * 300, (), 6000)]))
    assert parts["records[1].timestamp_delta"].meaning == "d0 0f = 80 + 15 x 128 = 2000, zigzag 1000"
    assert parts["records[1].value.size"].value == 300


@pytest.mark.parametrize(
    ("magic", "attributes", "words"),
    [
        (0, 0, "no codec"),
        (0, 1, "gzip"),
        (1, 9, "gzip, LogAppendTime"),
        (2, 0, "no codec, CreateTime"),
        (2, 0x34, "zstd, CreateTime, transactional, control"),
        (2, 0x46, "codec 6, CreateTime, delete horizon"),
    ],
)
def test_attribute_bits_have_names(magic: int, attributes: int, words: str) -> None:
    assert attribute_words(magic, attributes) == words


def written_by_broker(data: bytes) -> set[str]:
    return {path for path, part in described(data).items() if part.set_by == "broker"}


def test_what_the_broker_writes_is_said_and_what_the_checksum_covers() -> None:
    records = [Record(None, b"a", (), 5, number) for number in range(2)]
    assert written_by_broker(build_batch(2, records)) == {"base_offset", "partition_leader_epoch"}
    stamped = build_batch(2, records, timestamp_type=1, max_timestamp=9)
    assert {"max_timestamp", "attributes", "crc"} <= written_by_broker(stamped)
    assert written_by_broker(build_batch(1, records, codec=1)) == {"offset"}
    within = {"value.batch[0].offset", "value.batch[1].offset"}
    assert written_by_broker(build_batch(0, records, codec=1)) == {"offset", "size", "crc", "value"} | within
    assert described(V2)["crc"].covers == (21, len(V2))
    assert described(V0)["crc"].covers == (16, len(V0))


def test_command_prints_a_line_a_field_and_below_it_what_it_is_for(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", V2.hex(" ")]) == 0
    lines = capsys.readouterr().out.splitlines()
    fields = [line for line in lines if line[:6].strip().isdigit()]
    assert len(fields) == len(explain(V2).parts)
    assert fields[-4].split()[1:] == ["6b", "65", "79", "key", "'key'"]
    assert max(map(len, lines)) <= 80
    assert main(["explain", "--color", "always", V2.hex()]) == 0
    assert "\x1b[" in capsys.readouterr().out


def test_a_comment_is_printed_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", build_batch(2, [Record(None, b"a"), Record(None, b"b")]).hex()]) == 0
    assert capsys.readouterr().out.count("Varint: offset minus base offset") == 1


def test_command_reads_files_by_their_names_and_writes_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "00000000000000000000.log"
    file.write_bytes(V2)
    assert main(["explain", "--json", str(file)]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["error"] is None
    assert document["fields"][0] | {"comment": ""} == {
        "path": "batch[0].base_offset",
        "type": "Int64",
        "value": 0,
        "from": 0,
        "to": 8,
        "hex": "00" * 8,
        "comment": "",
        "set_by": "broker",
    }
    by_path = {field["path"]: field for field in document["fields"]}
    assert by_path["batch[0].crc"]["covers"] == [21, len(V2)]
    assert by_path["batch[0].records[0].key.size"]["meaning"] == "06 = 6, zigzag 3"


def test_command_says_what_is_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "no such thing"]) == 2
    assert "is neither a file nor hexadecimal digits" in capsys.readouterr().err
    assert main(["explain", "--as", "batch", V2[:-1].hex()]) == 1
    assert "Truncated: batch[0]" in capsys.readouterr().out
    assert main(["explain", "--as", "Nonsense", "00"]) == 1
    assert "no message is called 'Nonsense'" in capsys.readouterr().out


@pytest.mark.outside
def test_command_stops_quietly_when_its_reader_has_seen_enough() -> None:
    command = f"{sys.executable} -m minibroker explain --as batch {(V2 * 500).hex()} | head -1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    assert "batch[0]" in done.stdout

"""Explanations cover all bytes, come from the declarations, and end with the error where bytes are broken."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from minibroker.cli import main
from minibroker.errors import CorruptCrc, InvalidMagic, Truncated, UnknownMessage, UnsupportedVersion
from minibroker.protocol import message
from minibroker.protocol.framing import encode_request, encode_response
from minibroker.protocol.headers import Request
from minibroker.tools.explain import Explanation, explain, file_kind, guess
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
    assert (record.value, record.data) == (b"value", b"\x0avalue")
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
    assert next(part for part in explain(V2).parts if part.path.endswith("crc")).comment.startswith("right; ")
    broken = bytearray(V0)
    broken[-1] ^= 1
    found = explain(bytes(broken))
    assert next(part for part in found.parts if part.path.endswith("crc")).comment.startswith("WRONG: the bytes give")
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


def test_command_prints_one_line_a_field(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", V2.hex(" ")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(explain(V2).parts)
    assert "batch[0].records[0].key" in lines[-3]
    assert "'key'" in lines[-3]
    assert main(["explain", "--color", "always", V2.hex()]) == 0
    assert "\x1b[" in capsys.readouterr().out


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
    }


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
    assert "base_offset" in done.stdout

"""Golden record files: their JSON in our terms, and ours in theirs."""

from __future__ import annotations

from typing import Any

from minibroker.log.batches import Batch
from minibroker.log.compression import CODEC_NAMES
from minibroker.log.records import Record

CODECS = {name: number for number, name in enumerate(CODEC_NAMES)}
TIMESTAMP_TYPES = {"NoTimestampType": -1, "CreateTime": 0, "LogAppendTime": 1}
CONTROL_TYPES = {"ABORT": 0, "COMMIT": 1, "LEADER_CHANGE": 2}


def value_of(shown: Any) -> bytes | None:
    """Return the bytes that a golden file shows as text, hex, a repetition or null."""
    if shown is None:
        return None
    if isinstance(shown, str):
        return shown.encode()
    if "hex" in shown:
        return bytes.fromhex(shown["hex"])
    text, times = shown["repeat"]
    return bytes(text, "utf-8") * times


def records_of(shown: dict[str, Any]) -> list[Record]:
    """Return the records of a batch in a golden file."""
    return [
        Record(
            value_of(record["key"]),
            value_of(record["value"]),
            tuple((key, value_of(value)) for key, value in record.get("headers", ())),
            record["timestamp"],
            record["offset"],
        )
        for record in shown["records"]
    ]


def header_of(shown: dict[str, Any]) -> dict[str, Any]:
    """Return what a golden file says of a batch, by the names of our attributes."""
    said = {
        "magic": shown["magic"],
        "size_bytes": shown["size"],
        "base_offset": shown["baseOffset"],
        "last_offset": shown["lastOffset"],
        "codec": CODECS[shown["codec"]],
        "timestamp_type": TIMESTAMP_TYPES[shown["timestampType"]],
        "max_timestamp": shown["maxTimestamp"],
    }
    if "crc" in shown:
        said["crc"] = shown["crc"]
    if "records" in shown:
        said["count"] = len(shown["records"])
    if shown["magic"] == 2:
        said |= {
            "attributes": shown["attributes"],
            "partition_leader_epoch": shown["partitionLeaderEpoch"],
            "base_timestamp": shown["baseTimestamp"],
            "producer_id": shown["producerId"],
            "producer_epoch": shown["producerEpoch"],
            "base_sequence": shown["baseSequence"],
            "last_sequence": shown["lastSequence"],
            "is_transactional": shown["transactional"],
            "is_control": shown["control"],
            "count": shown["count"],
            "delete_horizon": shown.get("deleteHorizonMs"),
        }
    return said


def header_in(batch: Batch, names: dict[str, Any]) -> dict[str, Any]:
    """Return the same attributes of one of our batches."""
    return {name: getattr(batch, name) for name in names}

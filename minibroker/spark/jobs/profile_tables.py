"""Tables of a profile out of what its queries find, and the limits of what they show.

What must hold: all of it is small: rows of partitions and topics, and of tables with a limit.
Not here: counting (profile_sql.py), what the report looks like (profile_report.py).
"""

from __future__ import annotations

from itertools import groupby
from typing import Any

from minibroker.spark.jobs.page import Row, iso_text
from minibroker.spark.jobs.profile_findings import findings
from minibroker.spark.jobs.profile_sql import BROKEN_MAX, OF_BATCHES, ROWS_MAX, SUMS
from minibroker.spark.jobs.summary import Table

Rows = dict[str, list[Row]]

# Table -> columns behind the topic, and how many rows people see.
TABLES = {
    "topics": ("partitions records batches stored_bytes key_bytes value_bytes headers header_bytes", None),
    "keys": (
        "distinct_keys keys_in_several_partitions null_keys null_values largest_share partition_skew",
        None,
    ),
    "top_keys": ("rank key records share", None),
    "timestamps": (
        "oldest newest create_time append_time none in_the_future out_of_order out_of_order_share late_ms_max",
        None,
    ),
    "sizes": ("what count mean smallest median p99 largest", None),
    "codecs": ("format codec batches stored_bytes records", None),
    "compressibility": ("codec sampled_bytes compressed_bytes ratio", None),
    "partitions": (
        "partition first_offset end_offset records batches stored_bytes key_bytes value_bytes distinct_keys null_keys "
        "oldest newest out_of_order late_ms_max",
        40,
    ),
    "gaps": (
        "partition offsets without_record holes largest_hole control_records hidden removed aborted "
        "in_open_transactions",
        40,
    ),
    "producers": (
        "producer_id epochs partitions batches records transactional committed aborted open oldest newest",
        20,
    ),
    "hours": ("partition hour records bytes", 24),
}
TIMES = ("oldest", "newest", "hour")


def made(counted: Rows, now_ms: int, *, is_committed: bool) -> tuple[dict[str, Any], list[Table], list[str]]:
    """Return the figures, the tables and the notes of the summary."""
    parts = [part | _gaps(part, is_committed=is_committed) for part in counted["parts"]]
    top_keys = [
        row | {"key": key_text(bytes(row["key"])), "share": round(row["records"] / row["keyed"], 6)}
        for row in counted["top_keys"]
    ]
    topics = [
        _topic(name, list(mine), next((row for row in top_keys if row["topic"] == name), {}))
        for name, mine in groupby(parts, key=lambda part: part["topic"])
    ]
    found = counted | {"topics": topics, "keys": topics, "timestamps": topics, "top_keys": top_keys}
    found |= {"partitions": parts, "gaps": parts, "sizes": sizes(counted["bins"])}
    notes = []
    for name, order in (("hours", ("topic", "partition", "hour")), ("producers", ("topic",))):
        if len(found[name]) > ROWS_MAX:
            which = "newest" if name == "hours" else "those with the most records"
            notes.append(f"the table {name} has {ROWS_MAX:,} rows, the {which}; there are more")
        found[name] = sorted(found[name][:ROWS_MAX], key=lambda row: [row[column] for column in order])
    tables = []
    for name, (told, text_rows) in TABLES.items():
        columns = ["topic", *told.split()]
        rows = [[iso_text(row[each]) if each in TIMES else row[each] for each in columns] for row in found[name]]
        tables.append(Table(name, columns, rows, text_rows))
    figures = {
        "topic_count": len(topics),
        "partition_count": len(parts),
        "records": sum(row["records"] for row in topics),
        "key_and_value_bytes": sum(row["key_bytes"] + row["value_bytes"] for row in topics),
        "batches": sum(row["batches"] for row in topics),
        "stored_bytes": sum(row["stored_bytes"] for row in topics),
        "oldest": iso_text(_least(row["oldest"] for row in topics)),
        "newest": iso_text(_most(row["newest"] for row in topics)),
        "profiled_at": iso_text(now_ms),
    }
    return figures, tables, findings(found) + notes


def problems_of(counted: Rows, *, is_committed: bool) -> list[str]:
    """Return what is wrong with the data: broken batches, and records that batches hold and nobody has read."""
    found = [str(row["broken"]) for row in counted["broken"]]
    if len(found) > BROKEN_MAX:
        found[BROKEN_MAX:] = [f"there are more than {BROKEN_MAX} broken batches"]
    for part in counted["parts"] if not is_committed else ():
        if part["promised"] not in (None, part["records"]):
            told = f"batches hold {part['promised']:,} records, and {part['records']:,} were read"
            found.append(f"{part['topic']}-{part['partition']}: {told}")
    return found


def _gaps(part: Row, *, is_committed: bool) -> Row:
    """Return which offsets have no record. Hidden is what batches hold and rows do not show; wrappers do not say it."""
    offsets = part["end_offset"] - part["first_offset"]
    missing, promised = offsets - part["records"], part["promised"]
    hidden = 0 if not is_committed else part["aborted"] if promised is None else promised - part["records"]
    removed = missing - part["control_records"] - hidden
    return {"offsets": offsets, "without_record": missing, "hidden": hidden, "removed": removed}


def _topic(name: str, parts: list[Row], top: Row) -> Row:
    """Return what is said of a topic: sums of its partitions, and of its most frequent key."""
    row: Row = {column: sum(part[column] for part in parts) for column in (*SUMS, *OF_BATCHES)}
    records = [part["records"] for part in parts]
    return row | {
        "topic": name,
        "partitions": len(parts),
        "oldest": _least(part["oldest"] for part in parts),
        "newest": _most(part["newest"] for part in parts),
        "none": row["records"] - row["timed"],
        "out_of_order_share": round(row["out_of_order"] / row["timed"], 6) if row["timed"] else None,
        "late_ms_max": max(part["late_ms_max"] for part in parts),
        "distinct_keys": top.get("distinct_keys", 0),
        "keys_in_several_partitions": top.get("in_several", 0),
        "largest_share": top.get("share"),
        # Records of the largest partition against the mean of all.
        "partition_skew": round(max(records) * len(records) / sum(records), 4) if any(records) else None,
    }


def sizes(bins: list[Row]) -> list[Row]:
    found = []
    for (topic, what), group in groupby(bins, key=lambda row: (row["topic"], row["what"])):
        mine = list(group)
        count, smallest = sum(row["count"] for row in mine), min(row["smallest"] for row in mine)
        row = {"topic": topic, "what": what, "count": count, "smallest": smallest}
        row |= {"mean": round(sum(row["total"] for row in mine) / count, 3), "largest": mine[-1]["largest"]}
        for name, share in (("median", 0.5), ("p99", 0.99)):
            upto = 0
            for each in mine:
                upto += each["count"]
                if upto >= share * count:
                    row[name] = min(each["bin"], each["largest"])
                    break
        found.append(row)
    return found


def _least(values: Any) -> int | None:
    return min((value for value in values if value is not None), default=None)


def _most(values: Any) -> int | None:
    return max((value for value in values if value is not None), default=None)


def key_text(key: bytes) -> str:
    """Return a key as text if it is, else as hexadecimal digits."""
    try:
        text = key.decode()
    except UnicodeDecodeError:
        text = "\0"
    if not text.isprintable():
        text = f"0x{key.hex()}"
    return text if len(text) <= 50 else f"{text[:48]}…"

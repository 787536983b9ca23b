"""What a lesson shows of bytes: sizes in each format, fields, what a leader has changed, how an offset is looked up.

    lines = await ACTS["sizes"](stage, command)

What must hold: everything is read off real batches of the leader's log, or made by the code that brokers and producers
use. The log of Kafka 0.7 is the one exhibit that no broker here has: it is a buffer of its own, made and read by
tools/dump/v07.py.
"""

from __future__ import annotations

from typing import Protocol

from minibroker.clock.steered import duration_ms
from minibroker.errors import ProtocolError
from minibroker.lessons.clients import NotPossible, Produced, batch_text, produce, record_of
from minibroker.log.batches import batches
from minibroker.log.compression import CODEC_NAMES, NONE
from minibroker.log.records import Record
from minibroker.tools.appended import compare
from minibroker.tools.dump.offsets import rows_of
from minibroker.tools.dump.v07 import build_message, consumed, messages
from minibroker.tools.explain import explain
from minibroker.tools.format_sizes import format_sizes
from minibroker.tools.lookup import lookup_offset, lookup_time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from minibroker.clock.steered import SteeredClock
    from minibroker.cluster.cluster import Cluster
    from minibroker.lessons.clients import Asking
    from minibroker.lessons.commands import Command
    from minibroker.log.batches import Batch
    from minibroker.log.partition_log import PartitionLog
    from minibroker.tools.explain import Part


class Scene(Protocol):
    """What is needed of a stage."""

    clock: SteeredClock
    sent: list[bytes]  # batches, as the lesson's producers made them
    v07: bytearray  # a log of Kafka 0.7

    @property
    def on(self) -> Cluster: ...
    @property
    def asking(self) -> Asking: ...


V07_START = 368  # the name of its file, so that offsets are not places in the file only
BYTES_SHOWN = 8
CHANGES_TOLD = {  # sizes and checksums follow from these
    *("offset", "base_offset", "partition_leader_epoch", "attributes", "timestamp", "max_timestamp"),
}
ROWS_TOLD_MAX = 4  # of one list


def records_of(scene: Scene, command: Command) -> list[Record]:
    """Return the records that a command's texts are, `times` over; `bytes`: instead of texts, values so long."""
    now_ms = scene.clock.now_ms()
    texts = command["TEXTS"] * command.get("times", 1)
    if "bytes" in command:
        texts = [text[:1] * command["bytes"] for text in texts]
    return [record_of(text, now_ms, is_keyed="keyed" in command) for text in texts]


def codec_of(command: Command) -> int:
    return CODEC_NAMES.index(command.get("codec", CODEC_NAMES[NONE]))


async def _sizes(scene: Scene, command: Command) -> list[str]:
    codec = codec_of(command)
    sizes = format_sizes(records_of(scene, command), codec)
    packed = f", {CODEC_NAMES[codec]}" if codec else ""
    return [", ".join(f"v{each.magic} {each.size_bytes:,} bytes" for each in sizes) + packed]


async def _bytes(scene: Scene, command: Command) -> list[str]:
    found = explain(bytes(_batch(scene, command).view), "batch")
    if found.error:
        raise NotPossible(str(found.error))
    if "NAMES" not in command:
        return [_field(part) for part in found.parts]
    parts: list[Part] = []
    for name in command["NAMES"]:
        exactly = [part for part in found.parts if _short(part.path) == name]
        parts += exactly or [part for part in found.parts if part.name == name]
    if not parts:
        raise NotPossible(f"it has none of {', '.join(command['NAMES'])}")
    return [_field(part) for part in parts]


def _short(path: str) -> str:
    return path.removeprefix("batch[0].")


def _field(part: Part) -> str:
    shown = part.data[:BYTES_SHOWN].hex(" ") + (" .." if len(part.data) > BYTES_SHOWN else "")
    value = (
        part.value.decode(errors="replace") if isinstance(part.value, bytes) and part.value.isascii() else part.value
    )
    if isinstance(value, bytes) or len(str(value)) > 40:
        value = f"{len(part.data):,} bytes"
    words = f"{part.start}-{part.end} {_short(part.path)}: {'null' if value is None else value}"
    meaning = f" ({part.meaning})" if part.meaning else ""
    covers = f", covers bytes {part.covers[0]}-{part.covers[1]}" if part.covers else ""
    return f"{words}{meaning}{covers}{', set by the broker' if part.set_by else ''} [{shown}]"


async def _changed(scene: Scene, command: Command) -> list[str]:
    """Tell what the leader has changed of what a producer of this lesson sent."""
    batch = _batch(scene, command)
    stored = bytes(batch.view)
    contents = _contents(stored)
    sent = next((data for data in reversed(scene.sent) if _contents(data) == contents), None)
    if sent is None:
        raise NotPossible("no producer of this lesson sent it")
    found = compare(sent, stored)
    told = [found.sentence]
    for change in found.changed:
        if change.sent and change.stored and change.stored.name in CHANGES_TOLD:
            told.append(f"{_short(change.path)}: {change.sent.value} -> {change.stored.value}")
    return told


def _contents(data: bytes) -> list[tuple[bytes | None, bytes | None]]:
    return [(record.key, record.value) for batch in batches(data) for record in batch.records()]


async def _explain_offsets(scene: Scene, command: Command) -> list[str]:
    batch = _batch(scene, command)
    told = []
    for row in rows_of(batch.view, ""):
        _, size, version, stored, record, how, offset = row
        if version:
            told.append(f"{version}, {size} bytes: {stored}" + (f", {how}" if how else ""))
        else:
            told.append(f"{record}: {how} = {offset}")
    return [told[0], *_few(told[1:])]


def _few(rows: list[str]) -> list[str]:
    """Return the rows, or of many the first and the last."""
    return rows if len(rows) <= ROWS_TOLD_MAX else [rows[0], "...", rows[-1]]


async def _fill(scene: Scene, command: Command) -> list[str]:
    """Send records one by one, each in a batch of its own."""
    topic = scene.on.controller.controller.get_topic(command.topic)
    leader = scene.on.partition(command.topic, command.partition).leader
    count, now_ms = command["COUNT"], scene.clock.now_ms()
    apart_ms = round(duration_ms(command.get("every", 0)))
    value = b"x" * command.get("bytes", 1)
    for left in reversed(range(count)):
        records = [Record(None, value, (), now_ms - left * apart_ms)]
        batch = Produced(topic.name, topic.id, command.partition, records, 1, codec=codec_of(command))
        await produce(scene.asking, leader, batch)
    return []


async def _weigh(scene: Scene, command: Command) -> list[str]:
    log = _log(scene, command)
    found = [batch for segment in log.segments for batch in segment.batches()]
    codecs = ", ".join(dict.fromkeys(CODEC_NAMES[batch.codec] for batch in found)) or "nothing"
    records = sum(batch.count for batch in found)
    size = sum(batch.size_bytes for batch in found)
    noun = "batch" if len(found) == 1 else "batches"
    return [f"{records:,} records in {len(found):,} {noun}, {size:,} bytes; codec: {codecs}"]


async def _batches(scene: Scene, command: Command) -> list[str]:
    """Tell what is in the leader's log."""
    told = []
    for segment in _log(scene, command).segments:
        told.append(f"segment {segment.base_offset}, {segment.size_bytes} bytes")
        told += [batch_text(batch, scene.clock.now_ms()) for batch in segment.batches()]
    return told


async def _index(scene: Scene, command: Command) -> list[str]:
    told = []
    for segment in _log(scene, command).segments:
        count = sum(1 for _ in segment.hop())
        told.append(
            f"segment {segment.base_offset}: {segment.size_bytes:,} bytes, {count} batches, "
            f"{segment.offset_index.count} index entries"
        )
        rows = [f"{offset} is at byte {position:,}" for offset, position in segment.offset_index.entries()]
        told += _few(rows)
    return told


async def _lookup(scene: Scene, command: Command) -> list[str]:
    return [step.sentence for step in lookup_offset(_log(scene, command), command["OFFSET"])]


async def _lookup_time(scene: Scene, command: Command) -> list[str]:
    timestamp = scene.clock.now_ms() - round(duration_ms(command["TIME"]))
    return [step.sentence for step in lookup_time(_log(scene, command), timestamp)]


def _log(scene: Scene, command: Command) -> PartitionLog:
    """Return the leader's log."""
    leader = scene.on.partition(command.topic, command.partition).leader
    replica = scene.on.replica(command.topic, command.partition, leader)
    if replica is None:
        raise NotPossible("nobody leads")
    return replica.log


def _batch(scene: Scene, command: Command) -> Batch:
    log, offset = _log(scene, command), command["OFFSET"]
    place = log.segments[log.segment_of(offset)].find(offset) if offset < log.log_end_offset else None
    if place is None:
        raise NotPossible(f"the log ends at {log.log_end_offset}")
    return log.segments[log.segment_of(offset)].batch_at(place)


# Kafka 0.7


async def _append_v07(scene: Scene, command: Command) -> list[str]:
    """Append as Kafka 0.7 did; tell under which offsets that is read."""
    codec, start = codec_of(command), len(scene.v07)
    payloads = [text.encode() for text in command["TEXTS"]]
    plain = b"".join(build_message(payload) for payload in payloads)
    scene.v07 += build_message(plain, codec=codec) if codec else plain
    return [
        f'"{each.payload.decode()}" is at offset {each.offset}; behind it a consumer asks for {each.next_offset}'
        for each in consumed(bytes(scene.v07), V07_START)
        if each.position >= start
    ]


async def _fetch_v07(scene: Scene, command: Command) -> list[str]:
    """Read from a number on, as Kafka 0.7 did: whatever lies there is taken for a message."""
    position = command["OFFSET"] - V07_START
    if not 0 <= position < len(scene.v07):
        raise NotPossible(f"the log has offsets from {V07_START} to {V07_START + len(scene.v07)}")
    try:
        first = next(messages(bytes(scene.v07[position:]), command["OFFSET"]))
    except ProtocolError as error:
        return [f"no message begins at byte {position} of the file: {error.reason}"]
    texts = ", ".join(f'"{each.payload.decode()}"' for each in consumed(bytes(scene.v07[position:]), first.offset))
    return [f"from byte {position} of the file on: {texts}"]


ACTS: dict[str, Callable[[Scene, Command], Awaitable[list[str]]]] = {
    "sizes": _sizes,
    "bytes": _bytes,
    "changed": _changed,
    "explain offsets": _explain_offsets,
    "fill": _fill,
    "weigh": _weigh,
    "batches": _batches,
    "index": _index,
    "lookup": _lookup,
    "lookup since": _lookup_time,
    "0.7 append": _append_v07,
    "0.7 fetch": _fetch_v07,
}

"""The small text files of a log directory: checkpoints of offsets and epochs, ids of topics, how it was left.

    *-checkpoint          text: version 0, how many lines follow, the lines (their columns: files.py)
    partition.metadata    two lines: version and topic id
    .kafka_cleanshutdown  JSON; that it is there is what counts

What must hold: a file is the old one or the new one, never a mixture: it is written under another name, synced and
renamed, and the directory synced. A file that makes no sense raises BrokenFile, which names file and line; all of them
can be made again, so callers do that and go on.
Not here: meta.properties (meta_properties.py), what the offsets mean and when they are due.
"""

from __future__ import annotations

from binascii import Error as Base64Error
from binascii import a2b_base64, b2a_base64

from minibroker.errors import ProtocolError
from minibroker.log.epochs import LeaderEpochs
from minibroker.log.files import CHECKPOINT_COLUMNS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from minibroker.log.storage import Storage

METADATA_LOG = ("__cluster_metadata", 0)  # in no checkpoint of partitions
LEADER_EPOCHS, RECOVERY_POINTS, HIGH_WATERMARKS, LOG_STARTS, CLEANER_OFFSETS = CHECKPOINT_COLUMNS
PARTITION_METADATA = "partition.metadata"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
TEMPORARY = ".tmp"

NO_BROKER_EPOCH = -1  # 2.8 wrote none
INT32_MAX, INT64_MAX = 0x7FFFFFFF, 0x7FFFFFFFFFFFFFFF


class BrokenFile(ProtocolError):
    """A file of a log directory does not read: which, and in which line (from 1; 0 is the file as a whole)."""

    def __init__(self, path: str, line: int, reason: str):
        super().__init__(reason, 0, path)
        self.line = line

    def __str__(self) -> str:
        return f"{self.path}, line {self.line}: {self.reason}" if self.line else f"{self.path}: {self.reason}"


# Files as a whole


def read_file(storage: Storage, path: str) -> bytes:
    """Return all of a file; an absent one is empty."""
    if not storage.exists(path):
        return b""
    file = storage.open(path)
    try:
        return file.read_at(0, file.size_bytes)
    finally:
        file.close()


def write_file(storage: Storage, path: str, data: bytes, *, is_synced: bool = True) -> None:
    """Put `data` in the place of a file: whoever reads it, also after a crash, sees all of the old or of the new.

    is_synced: False for what can be made again, if the machine goes down before somebody syncs file and directory.
    """
    file = storage.open(path + TEMPORARY, create=True)
    try:
        file.truncate(0)  # an earlier try may have left something
        file.append([data])
        if is_synced:
            file.sync()
    finally:
        file.close()
    storage.rename(path + TEMPORARY, path)
    if is_synced:
        storage.sync_directory(_directory_of(path))


def sync_file(storage: Storage, path: str) -> None:
    """Return when a file's content is on the disk."""
    file = storage.open(path)
    try:
        file.sync()
    finally:
        file.close()


def remove_file(storage: Storage, path: str) -> None:
    """Remove a file so that no crash brings it back."""
    if storage.exists(path):
        storage.remove(path)
        storage.sync_directory(_directory_of(path))


def _directory_of(path: str) -> str:
    return path.rpartition("/")[0]


# Checkpoints


def read_offsets(storage: Storage, path: str) -> dict[tuple[str, int], int]:
    """Return the offset of each topic and partition in a checkpoint; an absent or empty file has none."""
    return parse_offsets(read_file(storage, path), path)


def write_offsets(storage: Storage, path: str, offsets: Mapping[tuple[str, int], int]) -> None:
    """Write the checkpoint of offsets by topic and partition."""
    write_file(storage, path, format_offsets(offsets))


def read_leader_epochs(storage: Storage, directory: str) -> LeaderEpochs:
    """Return the leader epochs of a partition's directory; an absent or empty file has none."""
    path = path_in(directory, LEADER_EPOCHS)
    return LeaderEpochs(parse_epochs(read_file(storage, path), path))


def write_leader_epochs(storage: Storage, directory: str, epochs: LeaderEpochs, *, is_synced: bool = True) -> None:
    write_file(storage, path_in(directory, LEADER_EPOCHS), format_checkpoint(epochs.entries), is_synced=is_synced)


def parse_offsets(data: bytes, path: str) -> dict[tuple[str, int], int]:
    found: dict[tuple[str, int], int] = {}
    for line, (topic, partition, offset) in _checkpoint_lines(data, path, CHECKPOINT_COLUMNS[RECOVERY_POINTS]):
        found[topic, parse_number(partition, INT32_MAX, path, line)] = parse_number(offset, INT64_MAX, path, line)
    return found


def format_offsets(offsets: Mapping[tuple[str, int], int]) -> bytes:
    return format_checkpoint((topic, partition, offset) for (topic, partition), offset in offsets.items())


def parse_epochs(data: bytes, path: str) -> list[tuple[int, int]]:
    """Return epoch and start offset of each line of a leader-epoch-checkpoint."""
    return [
        (parse_number(epoch, INT32_MAX, path, line), parse_number(start, INT64_MAX, path, line))
        for line, (epoch, start) in _checkpoint_lines(data, path, CHECKPOINT_COLUMNS[LEADER_EPOCHS])
    ]


def format_checkpoint(rows: Iterable[tuple[str | int, ...]]) -> bytes:
    """Return the text of a checkpoint: version, count, a line for each row."""
    lines = [" ".join(map(str, row)) for row in rows]
    return "\n".join(["0", str(len(lines)), *lines, ""]).encode()


def _checkpoint_lines(data: bytes, path: str, columns: tuple[str, ...]) -> Iterator[tuple[int, list[str]]]:
    """Yield number and words of each line behind version and count.

    Kafka: takes a file that ends behind the version for an empty one; here it is broken. An empty file has no entries
    there and here.
    """
    lines = _lines(data, path)
    if not lines:
        return
    if lines[0] != "0":
        raise BrokenFile(path, 1, f"version {lines[0]!r} instead of 0")
    if len(lines) == 1:
        raise BrokenFile(path, 2, "the count is missing")
    count = parse_number(lines[1], INT32_MAX, path, 2)
    if count != len(lines) - 2:
        raise BrokenFile(path, 2, f"{count} lines are promised, there are {len(lines) - 2}")
    for number, line in enumerate(lines[2:], 3):
        words = line.split()
        if len(words) != len(columns):
            raise BrokenFile(path, number, f"{len(words)} words instead of {len(columns)}: {' '.join(columns)}")
        yield number, words


def _lines(data: bytes, path: str) -> list[str]:
    try:
        text = data.decode()
    except UnicodeDecodeError as failure:
        line = data.count(b"\n", 0, failure.start) + 1
        raise BrokenFile(path, line, "not UTF-8") from None
    lines = text.replace("\r\n", "\n").split("\n")
    return lines if lines[-1] else lines[:-1]


def parse_number(text: str, most: int, path: str, line: int) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 20 and int(text) <= most):
        raise BrokenFile(path, line, f"{text[:40]!r} is not a number from 0 to {most}")
    return int(text)


# Ids


def format_id(value: bytes) -> str:
    """Return 16 bytes as Kafka writes ids: base64 for URLs, without padding."""
    return b2a_base64(value, newline=False).decode().rstrip("=").replace("+", "-").replace("/", "_")


def parse_id(text: str, path: str, line: int) -> bytes:
    """Read what `format_id` wrote.

    Kafka: ignores the four bits that are left over in the last letter; here they must be zero.
    """
    try:
        value = a2b_base64(text.replace("-", "+").replace("_", "/") + "==", strict_mode=True)
    except (Base64Error, ValueError):
        value = b""
    if len(value) != 16 or format_id(value) != text:
        raise BrokenFile(path, line, f"{text[:40]!r} is not an id")
    return value


# partition.metadata


def read_topic_id(storage: Storage, directory: str) -> bytes | None:
    """Return the id of the topic that a partition's directory belongs to, None if it has no such file."""
    path = path_in(directory, PARTITION_METADATA)
    return parse_topic_id(read_file(storage, path), path) if storage.exists(path) else None


def write_topic_id(storage: Storage, directory: str, topic_id: bytes, *, is_synced: bool = True) -> None:
    write_file(storage, path_in(directory, PARTITION_METADATA), format_topic_id(topic_id), is_synced=is_synced)


def parse_topic_id(data: bytes, path: str = PARTITION_METADATA) -> bytes:
    values = []
    for number, (line, name) in enumerate(zip([*_lines(data, path), "", ""], ("version: ", "topic_id: ")), 1):
        if not line.startswith(name):
            raise BrokenFile(path, number, f"does not begin with {name!r}")
        values.append(line.removeprefix(name))
    # A later version may say more, so any is fine, as it is for Kafka.
    parse_number(values[0], INT32_MAX, path, 1)
    return parse_id(values[1], path, 2)


def format_topic_id(topic_id: bytes) -> bytes:
    return f"version: 0\ntopic_id: {format_id(topic_id)}".encode()


# .kafka_cleanshutdown


def read_clean_shutdown(storage: Storage, directory: str = "") -> int | None:
    """Return the broker epoch that a clean stop left, -1 if it cannot be read; None: the stop was not clean.

    That the file is there says that all was flushed; its content only helps the controller (KIP-966).
    """
    path = path_in(directory, CLEAN_SHUTDOWN)
    if not storage.exists(path):
        return None
    import json

    try:
        content = json.loads(read_file(storage, path))
    except (ValueError, RecursionError):
        return NO_BROKER_EPOCH
    epoch = content.get("brokerEpoch") if isinstance(content, dict) else None
    return epoch if type(epoch) is int and 0 <= epoch <= INT64_MAX else NO_BROKER_EPOCH


def write_clean_shutdown(storage: Storage, broker_epoch: int = NO_BROKER_EPOCH, directory: str = "") -> None:
    """Say that everything has been flushed: the last thing that a broker writes."""
    write_file(storage, path_in(directory, CLEAN_SHUTDOWN), format_clean_shutdown(broker_epoch))


def format_clean_shutdown(broker_epoch: int) -> bytes:
    return f'{{"version":0,"brokerEpoch":{broker_epoch}}}'.encode()


def remove_clean_shutdown(storage: Storage, directory: str = "") -> None:
    """Before anything else is written: from now on a stop is not clean."""
    remove_file(storage, path_in(directory, CLEAN_SHUTDOWN))


def path_in(directory: str, name: str) -> str:
    return f"{directory}/{name}" if directory else name

"""meta.properties: which node of which cluster a log directory belongs to.

A broker that finds another's directory must not touch it, so this is the one file of a directory that nobody can make
again: a broken one stops the broker for that directory.

The format is that of Java's Properties: `key=value` lines with comments, continuation lines and escapes. We write what
Java writes, byte by byte, and read all that Java reads.
Not here: drawing ids, comparing them with the configuration.
"""

from __future__ import annotations

from time import gmtime

from minibroker.log.checkpoints import (
    INT32_MAX,
    BrokenFile,
    format_id,
    parse_id,
    parse_number,
    path_in,
    read_file,
    write_file,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from minibroker.log.storage import Storage

META_PROPERTIES = "meta.properties"


class MetaProperties:
    """Which node of which cluster a log directory belongs to. Version 1 is KRaft's, 0 ZooKeeper's."""

    def __init__(
        self, node_id: int | None, cluster_id: str | None, directory_id: bytes | None = None, *, version: int = 1
    ):
        self.version = version
        self.node_id = node_id  # may be missing in version 0, which calls it broker.id
        self.cluster_id = cluster_id  # may be missing in version 0
        self.directory_id = directory_id  # 16 bytes; since 3.7

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MetaProperties) and self.__dict__ == other.__dict__

    __hash__ = None  # type: ignore[assignment]  # it can change

    def __repr__(self) -> str:
        return f"MetaProperties({', '.join(f'{name}={value!r}' for name, value in self.__dict__.items())})"


def read_meta_properties(storage: Storage, directory: str = "") -> MetaProperties | None:
    """Return whose the directory is, None if that has not been written yet."""
    path = path_in(directory, META_PROPERTIES)
    return parse_meta_properties(read_file(storage, path), path) if storage.exists(path) else None


def write_meta_properties(storage: Storage, meta: MetaProperties, now_ms: int, directory: str = "") -> None:
    write_file(storage, path_in(directory, META_PROPERTIES), format_meta_properties(meta, now_ms))


def parse_meta_properties(data: bytes, path: str = META_PROPERTIES) -> MetaProperties:
    found = parse_properties(data, path)

    def get(name: str) -> str | None:
        return found[name][1] if name in found else None

    if not found:
        raise BrokenFile(path, 0, "it says nothing")
    version = get("version") or "0"
    if version not in ("0", "1"):
        raise BrokenFile(path, found["version"][0], f"version {version!r} is neither 0 nor 1")
    id_name = "node.id" if version == "1" else "broker.id"
    for name in ("node.id", "cluster.id") if version == "1" else ():
        if not get(name):
            raise BrokenFile(path, 0, f"{name} is missing")
    node_id, directory_id = get(id_name), get("directory.id")
    return MetaProperties(
        None if node_id is None else parse_number(node_id, INT32_MAX, path, found[id_name][0]),
        get("cluster.id"),
        None if directory_id is None else parse_id(directory_id, path, found["directory.id"][0]),
        version=int(version),
    )


def format_meta_properties(meta: MetaProperties, now_ms: int) -> bytes:
    """Return the text as Java writes it: an empty comment, the time, and its order of the keys."""
    pairs = {
        "node.id" if meta.version else "broker.id": meta.node_id,
        "directory.id": None if meta.directory_id is None else format_id(meta.directory_id),
        "version": meta.version,
        "cluster.id": meta.cluster_id,
    }
    lines = [f"{name}={_escape(str(value))}" for name, value in pairs.items() if value is not None]
    return "\n".join(["#", f"#{java_date(now_ms)}", *lines, ""]).encode()


def java_date(now_ms: int) -> str:
    """Return a time as Java's Date shows it in UTC: `Sat Nov 21 10:35:03 UTC 2026`."""
    time = gmtime(now_ms // 1000)
    day = _DAYS[time.tm_wday]
    month = _MONTHS[time.tm_mon - 1]
    clock = f"{time.tm_hour:02}:{time.tm_min:02}:{time.tm_sec:02}"
    return f"{day} {month} {time.tm_mday:02} {clock} UTC {time.tm_year:04}"


_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


# Java properties


def parse_properties(data: bytes, path: str) -> dict[str, tuple[int, str]]:
    """Return line number and value of each key of a properties file.

    A line that ends in a backslash goes on in the next; # and ! begin comments; =, : and spaces end the key; \\uXXXX
    and a few letters behind a backslash stand for what they do in Java. Bytes are Latin-1.
    """
    found: dict[str, tuple[int, str]] = {}
    for number, line in _logical_lines(data.decode("latin-1")):
        end = _key_end(line)
        rest = line[end:].lstrip(_BLANKS)
        if rest[:1] in ("=", ":"):
            rest = rest[1:].lstrip(_BLANKS)
        found[_unescape(line[:end], path, number)] = number, _unescape(rest, path, number)
    return found


_BLANKS = " \t\f"
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield the lines that say something, joined where they go on, with the number of the first."""
    started, pieces = 0, ""
    for number, line in enumerate(text.replace("\r\n", "\n").replace("\r", "\n").split("\n"), 1):
        line = line.lstrip(_BLANKS)
        if not started and line[:1] in ("", "#", "!"):
            continue
        started = started or number
        slashes = len(line) - len(line.rstrip("\\"))
        if slashes % 2:
            pieces += line[:-1]
            continue
        yield started, pieces + line
        started, pieces = 0, ""
    if started:
        yield started, pieces


def _key_end(line: str) -> int:
    index = 0
    while index < len(line) and line[index] not in "=: \t\f":
        index += 2 if line[index] == "\\" else 1
    return min(index, len(line))


def _unescape(text: str, path: str, number: int) -> str:
    head, *pieces = text.split("\\")
    if not pieces:
        return text
    found, index = [head], 0
    while index < len(pieces):
        piece = pieces[index]
        index += 1
        if piece[:1] == "u":
            code = piece[1:5]
            if len(code) < 4 or code.strip("0123456789abcdefABCDEF"):
                raise BrokenFile(path, number, f"{piece[:5]!r} behind a backslash is not a character")
            found.append(chr(int(code, 16)) + piece[5:])
        elif piece:
            found.append(_ESCAPES.get(piece[0], piece[0]) + piece[1:])
        elif index < len(pieces):  # two backslashes: the next piece is what follows them
            found.append("\\" + pieces[index])
            index += 1
    try:
        # What lies beyond 16 bits is written as two halves.
        return "".join(found).encode("utf-16-be", "surrogatepass").decode("utf-16-be")
    except UnicodeDecodeError:
        raise BrokenFile(path, number, "half of a character") from None


def _escape(text: str) -> str:
    """Return a value as Java writes it."""
    names = {value: "\\" + name for name, value in _ESCAPES.items()} | {letter: "\\" + letter for letter in "\\=:#!"}
    found = "".join(names.get(letter) or (letter if " " <= letter <= "~" else _code_units(letter)) for letter in text)
    return "\\" + found if found[:1] == " " else found


def _code_units(letter: str) -> str:
    data = letter.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{data[start : start + 2].hex().upper()}" for start in range(0, len(data), 2))

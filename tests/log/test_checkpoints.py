"""The text files of a log directory: as Kafka writes them, whole or not at all, and broken ones say where."""

from __future__ import annotations

from calendar import timegm
from collections.abc import Callable
from pathlib import Path
from time import strptime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minibroker.errors import ProtocolError
from minibroker.log.checkpoints import (
    CLEAN_SHUTDOWN,
    LEADER_EPOCHS,
    RECOVERY_POINTS,
    BrokenFile,
    format_checkpoint,
    format_clean_shutdown,
    format_offsets,
    format_topic_id,
    parse_epochs,
    parse_offsets,
    parse_topic_id,
    read_clean_shutdown,
    read_leader_epochs,
    read_offsets,
    read_topic_id,
    remove_clean_shutdown,
    write_clean_shutdown,
    write_leader_epochs,
    write_offsets,
    write_topic_id,
)
from minibroker.log.epochs import LeaderEpochs
from minibroker.log.files import CHECKPOINT_COLUMNS
from minibroker.log.meta_properties import (
    META_PROPERTIES,
    MetaProperties,
    format_meta_properties,
    java_date,
    parse_meta_properties,
    parse_properties,
    read_meta_properties,
    write_meta_properties,
)
from minibroker.log.storage import OsStorage
from minibroker.simulation.disk import SimulatedStorage
from tests import goldens
from tests.log.crash import explore

OFFSETS = {("orders", 0): 12, ("orders", 1): 0, ("pay.ments_x-1", 10): 9_000_000_000}


def files_named(*names: str) -> list[tuple[str, str]]:
    """Return directory and path of each golden file of these names."""
    return [
        (directory, path)
        for directory in goldens.LOG_DIRECTORIES
        for path in goldens.log_files(directory)
        if path.rpartition("/")[2] in names
    ]


@pytest.fixture
def storage(tmp_path: Path) -> OsStorage:
    return OsStorage(str(tmp_path))


def put(storage: OsStorage, path: str, data: bytes) -> None:
    file = storage.open(path, create=True)
    file.truncate(0)
    file.append([data])
    file.close()


# As Kafka writes them


def test_there_are_golden_files_of_every_kind() -> None:
    names = {path.rpartition("/")[2] for _, path in files_named(*CHECKPOINT_COLUMNS)}
    assert names == set(CHECKPOINT_COLUMNS)


@pytest.mark.parametrize(("directory", "path"), files_named(*(set(CHECKPOINT_COLUMNS) - {LEADER_EPOCHS})))
def test_golden_offsets_are_written_as_they_were_read(directory: str, path: str) -> None:
    data = goldens.log_files(directory)[path]
    offsets = parse_offsets(data, path)
    assert format_offsets(offsets) == data
    shown = goldens.log_meaning(directory)["checkpoints"][path]
    assert [f"{topic} {partition} {offset}" for (topic, partition), offset in offsets.items()] == shown[2:]


@pytest.mark.parametrize(("directory", "path"), files_named(LEADER_EPOCHS))
def test_golden_epochs_are_written_as_they_were_read(directory: str, path: str) -> None:
    data = goldens.log_files(directory)[path]
    epochs = LeaderEpochs(parse_epochs(data, path))
    assert format_checkpoint(epochs.entries) == data


@pytest.mark.parametrize(("directory", "path"), files_named("partition.metadata"))
def test_golden_topic_ids_are_written_as_they_were_read(directory: str, path: str) -> None:
    data = goldens.log_files(directory)[path]
    assert format_topic_id(parse_topic_id(data, path)) == data


@pytest.mark.parametrize("directory", goldens.LOG_DIRECTORIES)
def test_golden_meta_properties_are_written_as_they_were_read(directory: str) -> None:
    data = goldens.log_files(directory)[META_PROPERTIES]
    meta = parse_meta_properties(data)
    assert (meta.version, meta.node_id) == (0 if directory.startswith("zk") else 1, 1)
    assert (meta.directory_id is None) == directory.startswith("zk")
    written = data.split(b"\n")[1].decode()
    now_ms = timegm(strptime(written, "#%a %b %d %H:%M:%S %Z %Y")) * 1000
    assert format_meta_properties(meta, now_ms) == data


@pytest.mark.parametrize(
    ("directory", "epoch"),
    [
        ("kraft39-1-before-clean", 6),
        ("kraft39-2-after-clean", 118),
        ("kraft39-3-killed", None),
        ("kraft44-1", 11),
        ("zk28-1-before-clean", -1),
        ("zk28-2-after-clean", -1),
    ],
)
def test_golden_directories_say_how_they_were_left(directory: str, epoch: int | None, storage: OsStorage) -> None:
    data = goldens.log_files(directory).get(CLEAN_SHUTDOWN)
    if data is not None:
        put(storage, CLEAN_SHUTDOWN, data)
    assert read_clean_shutdown(storage) == epoch
    if data:
        assert format_clean_shutdown(epoch or 0) == data


# On a disk


def test_what_is_written_is_read(storage: OsStorage) -> None:
    storage.make_directory("orders-0")
    write_offsets(storage, RECOVERY_POINTS, OFFSETS)
    assert read_offsets(storage, RECOVERY_POINTS) == OFFSETS
    write_leader_epochs(storage, "orders-0", LeaderEpochs([(0, 0), (4, 17)]))
    assert read_leader_epochs(storage, "orders-0").entries == [(0, 0), (4, 17)]
    write_topic_id(storage, "orders-0", bytes(range(16)))
    assert read_topic_id(storage, "orders-0") == bytes(range(16))
    meta = MetaProperties(3, "a:b=c\\ é😀", bytes(range(16)))
    write_meta_properties(storage, meta, 0)
    assert read_meta_properties(storage) == meta
    assert storage.list("") == [META_PROPERTIES, "orders-0", RECOVERY_POINTS]
    assert storage.list("orders-0") == [LEADER_EPOCHS, "partition.metadata"]


def test_what_is_not_there_is_empty(storage: OsStorage) -> None:
    assert read_offsets(storage, RECOVERY_POINTS) == {}
    assert len(read_leader_epochs(storage, "orders-0")) == 0
    assert read_topic_id(storage, "orders-0") is None
    assert read_meta_properties(storage) is None
    assert read_clean_shutdown(storage) is None


def test_an_earlier_try_leaves_nothing_behind(storage: OsStorage) -> None:
    put(storage, RECOVERY_POINTS + ".tmp", b"x" * 1000)
    write_offsets(storage, RECOVERY_POINTS, {})
    assert storage.list("") == [RECOVERY_POINTS]
    assert read_offsets(storage, RECOVERY_POINTS) == {}


def test_a_crash_leaves_the_old_file_or_the_new_one_and_after_the_write_the_new_one() -> None:
    newer = OFFSETS | {("more", 3): 7}

    def replace(storage: SimulatedStorage, mark: Callable[[list[dict[tuple[str, int], int]]], None]) -> None:
        mark([{}, OFFSETS])
        write_offsets(storage, RECOVERY_POINTS, OFFSETS)
        mark([OFFSETS, newer])
        write_offsets(storage, RECOVERY_POINTS, newer)
        mark([newer])

    def check(storage: SimulatedStorage, possible: list[dict[tuple[str, int], int]]) -> None:
        assert read_offsets(storage, RECOVERY_POINTS) in possible

    explored = explore(replace, check, seed=1)
    assert explored.distinct > 10


def test_no_crash_brings_back_a_clean_stop_that_was_taken_back() -> None:
    def take_back(storage: SimulatedStorage, mark: Callable[[set[int | None]], None]) -> None:
        mark({None, 42})
        write_clean_shutdown(storage, 42)
        mark({42, None})
        remove_clean_shutdown(storage)
        mark({None})

    def check(storage: SimulatedStorage, possible: set[int | None]) -> None:
        assert read_clean_shutdown(storage) in possible

    explore(take_back, check, seed=1)


def test_a_clean_stop_is_remembered_until_it_is_taken_back(storage: OsStorage) -> None:
    write_clean_shutdown(storage, 42)
    assert read_clean_shutdown(storage) == 42
    remove_clean_shutdown(storage)
    remove_clean_shutdown(storage)
    assert read_clean_shutdown(storage) is None


@pytest.mark.parametrize(
    "data", [b"", b"{", b"[1]", b"\xff", b'{"brokerEpoch":"7"}', b'{"brokerEpoch":-5}', b"[" * 9999]
)
def test_a_clean_stop_counts_whatever_the_file_says(data: bytes, storage: OsStorage) -> None:
    put(storage, CLEAN_SHUTDOWN, data)
    assert read_clean_shutdown(storage) == -1


# Broken ones


@pytest.mark.parametrize(
    ("data", "line"),
    [
        (b"1\n0\n", 1),
        (b"0", 2),
        (b"0\nx\n", 2),
        (b"0\n2\na 0 1\n", 2),
        (b"0\n1\na 0 1\nb 0 1\n", 2),
        (b"0\n1\na 0\n", 3),
        (b"0\n1\na 0 1 2\n", 3),
        (b"0\n2\na 0 1\n\n", 4),
        (b"0\n1\na -1 1\n", 3),
        (b"0\n1\na 0 1x\n", 3),
        (b"0\n1\na 0 9223372036854775808\n", 3),
        (b"0\n1\na 2147483648 0\n", 3),
        ("0\n1\na 0 ١\n".encode(), 3),
        (b"0\n1\n\xff 0 1\n", 3),
        (b"0\n99999999999999999999\n", 2),
        (bytes(100), 1),
    ],
)
def test_a_broken_checkpoint_names_file_and_line(data: bytes, line: int, storage: OsStorage) -> None:
    put(storage, RECOVERY_POINTS, data)
    with pytest.raises(BrokenFile) as broken:
        read_offsets(storage, RECOVERY_POINTS)
    assert (broken.value.path, broken.value.line) == (RECOVERY_POINTS, line)
    assert f"{RECOVERY_POINTS}, line {line}: " in str(broken.value)
    assert isinstance(broken.value, ProtocolError)


def test_an_empty_checkpoint_and_other_line_ends_are_fine() -> None:
    assert parse_offsets(b"", "") == {}
    assert parse_offsets(b"0\r\n1\r\na 0 7", "") == {("a", 0): 7}


@pytest.mark.parametrize(
    ("data", "line"),
    [
        (b"", 1),
        (b"version: x\ntopic_id: 0ufnPNp-QQ6lYaR_pxlQdA", 1),
        (b"version: 0", 2),
        (b"version: 0\ntopic_id: short", 2),
        (b"version: 0\ntopic_id: !!!!!!!!!!!!!!!!!!!!!!", 2),
        (b"version: 0\ntopic_id: 0ufnPNp-QQ6lYaR_pxlQdB", 2),
        (b"version: 0\ntopic_id: \xc3\xa9", 2),
    ],
)
def test_a_broken_topic_id_names_its_line(data: bytes, line: int) -> None:
    with pytest.raises(BrokenFile) as broken:
        parse_topic_id(data)
    assert broken.value.line == line


@pytest.mark.parametrize(
    ("data", "line"),
    [
        (b"version=2\n", 1),
        (b"#\n\nversion=1\ncluster.id=c\n", 0),
        (b"version=1\nnode.id=1\n", 0),
        (b"version=1\nnode.id=one\ncluster.id=c\n", 2),
        (b"version=0\n\n! a\nbroker.id=-1\n", 4),
        (b"version=0\ndirectory.id=x\n", 2),
        (b"version=0\ncluster.id=\\u00g0\n", 2),
        (b"version=0\ncluster.id=\\uD83D\n", 2),
    ],
)
def test_broken_meta_properties_name_their_line(data: bytes, line: int) -> None:
    with pytest.raises(BrokenFile) as broken:
        parse_meta_properties(data)
    assert broken.value.line == line


parsers = st.sampled_from([parse_offsets, parse_epochs, parse_topic_id, parse_meta_properties])
golden_texts = st.sampled_from(
    [goldens.log_files()[path] for path in (META_PROPERTIES, RECOVERY_POINTS, "txn-0/leader-epoch-checkpoint")]
    + [goldens.log_files()["txn-0/partition.metadata"]]
)


@pytest.mark.outside
@settings(derandomize=True, max_examples=500, deadline=None)
@given(parsers, st.binary(max_size=60) | golden_texts, st.integers(0, 300), st.binary(max_size=2))
def test_no_bytes_do_worse_than_a_broken_file(parse: object, data: bytes, at: int, change: bytes) -> None:
    data = data[:at] + change + data[at + 1 :]
    try:
        parse(data, "a")  # type: ignore[operator]
    except BrokenFile as broken:
        assert str(broken).startswith("a")


# Java's properties and dates


def test_a_key_is_on_the_line_on_which_it_begins() -> None:
    found = parse_properties(b"a=1 \\\n  2\nb=3 \\\n\\\n4\n\nc=5", "")
    assert found == {"a": (1, "1 2"), "b": (3, "3 4"), "c": (7, "5")}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=1\n", {"a": "1"}),
        ("a : 1", {"a": "1"}),
        ("  a 1 2 ", {"a": "1 2 "}),
        ("a", {"a": ""}),
        ("# a=1\n! b=2\n\n \t\nc=3", {"c": "3"}),
        ("a\\=b\\:c\\ d=e=f", {"a=b:c d": "e=f"}),
        ("a=one \\\n   two\\\r\n  three", {"a": "one twothree"}),
        ("a=1\\\\\nb=2", {"a": "1\\", "b": "2"}),
        ("a=\\\\\\\\x\\\\", {"a": "\\\\x\\"}),
        ("a=\\t\\n\\r\\f\\q", {"a": "\t\n\r\fq"}),
        ("a=\\u00e9\\u20AC", {"a": "é€"}),
        ("a=é", {"a": "é"}),
        ("a=1\ra=2", {"a": "2"}),
        ("=1", {"": "1"}),
        ("a=1\\", {"a": "1"}),
        ("a=x\\\n#y", {"a": "x#y"}),
    ],
)
def test_properties_are_read_as_java_does(text: str, expected: dict[str, str]) -> None:
    found = parse_properties(text.encode("latin-1"), "")
    assert {key: value for key, (_, value) in found.items()} == expected


@settings(derandomize=True, max_examples=300, deadline=None)
@given(st.text(min_size=1))
def test_any_cluster_id_is_read_as_it_was_written(cluster_id: str) -> None:
    meta = MetaProperties(None, cluster_id, version=0)
    assert parse_meta_properties(format_meta_properties(meta, 0)) == meta


def test_a_date_looks_as_in_java() -> None:
    assert java_date(0) == "Thu Jan 01 00:00:00 UTC 1970"
    assert java_date(1_795_257_303_999) == "Sat Nov 21 10:35:03 UTC 2026"

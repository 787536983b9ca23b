"""Runs of an export that are killed anywhere, and runs that meet: each offset is there once, and readers see no other.

Files hold their offsets as JSON: what Parquet does is not of interest here.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from minibroker.spark.folders import Entry, open_folder, walk
from minibroker.spark.jobs.export_files import small_files
from minibroker.spark.jobs.export_manifest import VERSIONS_KEPT, Conflict, Lake, Manifest, newest, staging_of, versions
from minibroker.spark.jobs.export_ranges import check_topics, plan, reading, told_lost
from minibroker.spark.option_values import OptionError
from tests.spark.jobs.dying_folder import DyingFolder, Killed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from minibroker.spark.folders import Folder

KEY = ("orders", 0)


def export(lake: Lake, end: int, *, files: int = 2) -> None:
    """Export what is new up to an offset."""
    first = lake.manifest.offsets.get(KEY, (0, 0))[1]
    if first >= end:
        return
    run = lake.begin(1)
    following = lake.manifest.following(run, 1)
    for number in range(files):
        name = f"topic=orders/date=2026-01-0{number + 1}/{run}.json"
        offsets = list(range(first, end))[number::files]
        lake.folder.write(f"{staging_of(run)}/{name}", json.dumps(offsets).encode())
        following.files[name] = {"bytes": len(offsets), "records": len(offsets)}
        following.moves[name] = name
    following.offsets[KEY] = 0, end
    lake.commit(following)


def compact(lake: Lake) -> None:
    for group in small_files(lake.manifest.files, 100, 1000):
        run = lake.begin(1)
        following = lake.manifest.following(run, 1)
        offsets = [offset for name in group for offset in json.loads(lake.folder.read(name))]
        name = f"{group[0].rpartition('/')[0]}/{run}.json"
        lake.folder.write(f"{staging_of(run)}/{name}", json.dumps(offsets).encode())
        for old in group:
            del following.files[old]
        following.files[name] = {"bytes": len(offsets), "records": len(offsets)}
        following.moves, following.removed = {name: name}, group
        lake.commit(following)


def visible(folder: Folder) -> dict[str, list[int]]:
    """Return what somebody sees who knows nothing of manifests."""
    names = [entry.name for entry in walk(folder) if not entry.name.startswith(("_", "."))]
    return {name: json.loads(folder.read(name)) for name in names}


def recovered(folder: Folder) -> Lake:
    lake = Lake(folder)
    lake.recover(1)
    return lake


def work(folder: Folder) -> None:
    lake = recovered(folder)
    export(lake, 5)
    export(lake, 12, files=1)
    compact(lake)


@pytest.mark.slow
def test_wherever_a_run_is_killed_the_next_one_makes_it_good(tmp_path: Path) -> None:
    kills = 0
    for number in range(1000):
        folder = open_folder(str(tmp_path / str(number)))
        dying = DyingFolder(folder, number // 2, after=bool(number % 2))
        try:
            work(dying)
        except Killed:
            kills += 1
            seen = visible(folder)
            manifest = newest(folder)
            assert seen.keys() <= manifest.files.keys() | set(manifest.removed), "a file is seen that does not count"
        else:
            break
        work(folder)
        assert sorted(offset for offsets in visible(folder).values() for offset in offsets) == list(range(12))
        assert visible(folder).keys() == newest(folder).files.keys()
        assert not folder.list("_staging")
    assert kills > 20


def test_a_run_that_is_killed_again_and_again_gets_done(tmp_path: Path) -> None:
    folder = open_folder(str(tmp_path))
    for number in range(100):
        try:
            work(DyingFolder(folder, number // 4, after=bool(number % 2)))
        except Killed:
            continue
        break
    assert sorted(offset for offsets in visible(folder).values() for offset in offsets) == list(range(12))


def test_of_two_runs_at_once_one_fails_and_changes_nothing(tmp_path: Path) -> None:
    folder = open_folder(str(tmp_path))
    first, second = recovered(folder), recovered(folder)
    export(first, 5)
    with pytest.raises(Conflict, match="another run has written version 1"):
        export(second, 7)
    assert sorted(offset for offsets in visible(folder).values() for offset in offsets) == [0, 1, 2, 3, 4]


def test_a_run_at_work_fails_once_another_has_removed_its_files(tmp_path: Path) -> None:
    folder = open_folder(str(tmp_path))
    slow = recovered(folder)
    run = slow.begin(1)
    folder.write(f"{staging_of(run)}/topic=orders/date=2026-01-01/{run}.json", b"[0]")
    assert recovered(folder).folder.list("_staging") == []
    following = slow.manifest.following(run, 1)
    following.offsets[KEY] = 0, 1
    with pytest.raises(Conflict):
        slow.commit(following)
    assert visible(folder) == {}
    assert newest(folder).offsets == {}


def test_old_versions_go(tmp_path: Path) -> None:
    folder = open_folder(str(tmp_path))
    lake = recovered(folder)
    for end in range(1, 15):
        export(lake, end, files=1)
    assert versions(folder) == list(range(15 - VERSIONS_KEPT, 15))


def test_a_manifest_is_what_it_was_when_it_is_read_again() -> None:
    manifest = Manifest(3)
    manifest.offsets = {("a", 0): (1, 5), ("a", 11): (0, 2)}
    manifest.lost = [("a", 0, 5, 9)]
    manifest.topic_ids = {"a": "x"}
    manifest.planned = {("b", 0): (0, 2)}
    again = Manifest.from_json(manifest.as_json(), "x")
    assert vars(again) == vars(manifest)


def test_something_else_by_the_name_of_a_manifest_is_told(tmp_path: Path) -> None:
    folder = open_folder(str(tmp_path))
    folder.write("_manifest/00000000000000000001.json", b'{"version": 1}')
    with pytest.raises(OptionError, match=r"0001\.json is no manifest of an export"):
        newest(folder)


# Ranges


def test_ranges_go_on_where_the_manifest_ends() -> None:
    found = plan({("a", 0): (0, 10), ("a", 1): (0, 5), ("b", 0): (3, 9)}, {("a", 0): (0, 4), ("a", 1): (0, 5)})
    assert found.ranges == {("a", 0): (4, 10), ("b", 0): (3, 9)}
    assert found.lost == []
    assert found.behind == 0


def test_what_was_deleted_before_it_was_exported_is_told() -> None:
    found = plan({("a", 0): (7, 10), ("a", 1): (9, 9)}, {("a", 0): (0, 4), ("a", 1): (0, 2)})
    assert found.ranges == {("a", 0): (7, 10)}
    assert told_lost(found.lost) == [
        "a-0: offsets 4 to 6 were deleted before they were exported",
        "a-1: offsets 2 to 8 were deleted before they were exported",
    ]


def test_a_topic_of_another_id_is_another_one() -> None:
    check_topics({"a": "x", "b": "y"}, {"a": "x", "c": "z"})
    check_topics({}, {"a": "x"})
    with pytest.raises(OptionError, match="a is another topic than the one that was exported: its id is y and was x"):
        check_topics({"a": "y"}, {"a": "x"})


def test_a_topic_that_became_shorter_is_another_one() -> None:
    with pytest.raises(OptionError, match="a-0 ends at 3, and 4 were exported already"):
        plan({("a", 0): (0, 3)}, {("a", 0): (0, 4)})
    assert plan({("a", 0): (0, 3)}, {("a", 0): (0, 4)}, has_end=True).ranges == {}


def test_a_limit_is_shared_by_the_partitions() -> None:
    there = {("a", 0): (0, 3), ("a", 1): (10, 100), ("a", 2): (0, 1000)}
    found = plan(there, {}, offsets_max=23)
    assert found.ranges == {("a", 0): (0, 3), ("a", 1): (10, 20), ("a", 2): (0, 10)}
    assert found.offsets == 23
    assert found.behind == 1093 - 23
    assert plan(there, {}, offsets_max=1).offsets == 1


def test_a_query_reads_the_ranges_and_nothing_else() -> None:
    source = {"path": "data", "subscribePattern": ".*", "startingTimestamp": "5", "mode": "skip"}
    told = reading(source, {("a", 0): (4, 10), ("a", 1): (0, 2)})
    assert told == {
        "path": "data",
        "mode": "skip",
        "assign": '{"a": [0, 1]}',
        "startingOffsets": '{"a": {"0": 4, "1": 0}}',
        "endingOffsets": '{"a": {"0": 10, "1": 2}}',
        "includeHeaders": "true",
    }


def test_small_files_of_one_folder_go_together_up_to_a_size() -> None:
    files = {
        f"topic=a/date={day}/{name}": {"bytes": size, "records": 1}
        for day, name, size in [(1, "a", 5), (1, "b", 5), (1, "c", 5), (1, "d", 50), (2, "e", 1)]
    }
    assert small_files(files, 10, 12) == [["topic=a/date=1/a", "topic=a/date=1/b"]]
    assert small_files(files, 10, 100) == [[f"topic=a/date=1/{name}" for name in "abc"]]


# Folders


def test_a_folder_of_this_machine(tmp_path: Path) -> None:
    folder = open_folder(f"file://{tmp_path}/deep/er")
    assert folder.list() == []
    assert not folder.exists()
    folder.write("a/b", b"1")
    folder.write("a/b", b"23")
    assert folder.read("a/b") == b"23"
    assert not folder.write_new("a/b", b"4")
    assert folder.write_new("a/c", b"5")
    assert folder.list("a") == [Entry("b", 2, False), Entry("c", 1, False)]
    assert folder.move("a/b", "x/y/b")
    assert not folder.move("a/b", "x")
    assert [entry.name for entry in walk(folder)] == ["a/c", "x/y/b"]
    folder.remove("x")
    folder.remove("x")
    assert [entry.name for entry in walk(folder)] == ["a/c"]
    assert (tmp_path / "deep/er/a/c").read_bytes() == b"5"


def test_a_url_without_a_session_is_refused() -> None:
    with pytest.raises(OptionError, match=r"s3a://bucket/x: only a session with its own JVM can open a URL"):
        open_folder("s3a://bucket/x")

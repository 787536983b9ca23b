"""The manifest of an export: which offsets are in a folder, in which files, and how one version follows another.

    _manifest/00000000000000000007.json   all that is exported, as of version 7; the highest version counts
    _staging/RUN/topic=.../date=.../      what a run is writing, or has written and not yet moved
    topic=orders/date=2026-01-02/RUN-00000.parquet

A run writes its files below `_staging`, then makes the next version, which names them: from that moment on they count.
Then it publishes: moves them to where readers look, removes those that they replace, and removes its staging folder.
What must hold: a version is written once and never changed, so of two runs that make the same one the second fails and
has done nothing. A run that was killed has left a version that is published by the next run, or files that no version
names: these are removed, after a version of the next run's own has made sure that their owner, should it live, fails.
So each offset is in the files of a version once, and readers of the folder never see a file that does not count.
Spark and others do not look into folders whose names begin with an underscore.
Not here: what is in the files (export_files.py), which offsets there are (export_ranges.py).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from minibroker.errors import StorageError
from minibroker.spark.folders import Folder
from minibroker.spark.option_values import OptionError, TopicPartition

MANIFESTS, STAGING = "_manifest", "_staging"
VERSIONS_KEPT = 10
FENCES_MAX = 20  # how often others may be faster


class Conflict(StorageError):
    """Another run has written to the folder meanwhile; this one has changed nothing."""


class Lost(StorageError):
    """What the manifest names is not there."""


class Manifest:
    """One version. `moves` and `removed` are what makes it true, should nobody have done so yet."""

    def __init__(self, version: int = 0):
        self.version = version
        self.run = ""  # whose staging folder the moves are from
        self.shape: dict[str, Any] = {}  # format and columns; the same for all runs
        self.offsets: dict[TopicPartition, tuple[int, int]] = {}  # from the first that was exported to the end
        self.lost: list[
            tuple[str, int, int, int]
        ] = []  # topic, partition, offsets that were gone before they came here
        self.topic_ids: dict[str, str] = {}  # which topics the offsets are of, as far as that is known
        self.files: dict[str, dict[str, int]] = {}  # name -> bytes, records
        self.moves: dict[str, str] = {}  # name in the staging folder -> name in the folder
        self.removed: list[str] = []
        self.planned: dict[TopicPartition, tuple[int, int]] = {}  # what a table is being told (export_tables.py)
        self.ended_ms = 0

    def following(self, run: str, now_ms: int) -> Manifest:
        """Return the next version, with the same content and nothing to do."""
        found = Manifest(self.version + 1)
        found.run, found.ended_ms, found.shape = run, now_ms, dict(self.shape)
        found.offsets, found.lost, found.files = dict(self.offsets), list(self.lost), dict(self.files)
        found.topic_ids = dict(self.topic_ids)
        return found

    def as_json(self) -> bytes:
        told = {**vars(self), "offsets": _nested(self.offsets), "planned": _nested(self.planned)}
        return json.dumps(told, indent=1).encode()

    @classmethod
    def from_json(cls, data: bytes, name: str) -> Manifest:
        found = cls()
        try:
            told = {"topic_ids": {}, **json.loads(data)}
            for field in vars(found):
                setattr(found, field, told[field])
            found.offsets, found.planned = _flat(told["offsets"]), _flat(told["planned"])
            found.lost = [tuple(each) for each in told["lost"]]
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise OptionError(f"{name} is no manifest of an export: {error}") from None
        return found


def _nested(ranges: Mapping[TopicPartition, tuple[int, int]]) -> dict[str, dict[str, list[int]]]:
    found: dict[str, dict[str, list[int]]] = {}
    for (topic, partition), limits in sorted(ranges.items()):
        found.setdefault(topic, {})[str(partition)] = list(limits)
    return found


def _flat(nested: dict[str, dict[str, list[int]]]) -> dict[TopicPartition, tuple[int, int]]:
    return {
        (topic, int(partition)): (first, end)
        for topic, partitions in nested.items()
        for partition, (first, end) in partitions.items()
    }


class Lake:
    """A folder with a manifest. `recover` comes first; then runs of `begin` and `commit`."""

    def __init__(self, folder: Folder):
        self.folder = folder
        self.manifest = Manifest()

    # Where a run begins

    def recover(self, now_ms: int) -> bool:
        """Read the newest version, finish what it says, and remove what a run left that was killed; return whether
        there was something to do."""
        had_work = False
        for _ in range(FENCES_MAX):
            self.manifest = newest(self.folder)
            had_work = self.publish() or had_work
            leftovers = [entry.name for entry in self.folder.list(STAGING)]
            if not leftovers:
                return had_work
            had_work = True
            # Who wrote them may be at work: it was about to make this version, and now cannot.
            fence = self.manifest.following("", now_ms)
            if not self.folder.write_new(name_of(fence.version), fence.as_json()):
                continue
            self.manifest = fence
            for name in leftovers:
                self.folder.remove(f"{STAGING}/{name}")
            return True
        raise Conflict(f"{self.folder.place}: others write to it all the time")

    def begin(self, now_ms: int) -> str:
        """Return the name of a new run; its files belong into its staging folder."""
        return f"{self.manifest.version + 1:08d}-{now_ms}"

    # Where it ends

    def commit(self, following: Manifest) -> None:
        """Make a version count and publish it; raise Conflict if somebody else was faster."""
        if not self.folder.write_new(name_of(following.version), following.as_json()):
            self.folder.remove(staging_of(following.run))
            raise Conflict(
                f"{self.folder.place}: another run has written version {following.version} of the manifest meanwhile; "
                "nothing of this one counts, run it again"
            )
        self.manifest = following
        self.publish()
        self._forget_old()

    def publish(self) -> bool:
        """Do what the version says, as far as nobody has; return whether there was something to do."""
        manifest = self.manifest
        staging = staging_of(manifest.run)
        if not manifest.run or not self.folder.exists(staging):
            return False
        for old, name in manifest.moves.items():
            if not self.folder.move(f"{staging}/{old}", name) and not self.folder.exists(name):
                # A later version may have replaced it by now, whose run has then published this one too.
                if newest(self.folder).version == manifest.version:
                    raise Lost(f"{self.folder.at(name)} is in the manifest, and neither there nor in {staging}")
                return True
        for name in manifest.removed:
            self.folder.remove(name)
        self.folder.remove(staging)
        return True

    def _forget_old(self) -> None:
        for version in versions(self.folder)[:-VERSIONS_KEPT]:
            self.folder.remove(name_of(version))


def newest(folder: Folder) -> Manifest:
    found = versions(folder)
    if not found:
        return Manifest()
    name = name_of(found[-1])
    return Manifest.from_json(folder.read(name), folder.at(name))


def versions(folder: Folder) -> list[int]:
    """Return the numbers of the versions that are there, rising."""
    names = (entry.name.removesuffix(".json") for entry in folder.list(MANIFESTS))
    return sorted(int(name) for name in names if len(name) == 20 and name.isdigit())


def name_of(version: int) -> str:
    return f"{MANIFESTS}/{version:020d}.json"


def staging_of(run: str) -> str:
    return f"{STAGING}/{run}"

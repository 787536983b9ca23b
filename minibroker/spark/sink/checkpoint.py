"""The checkpoint of a query, as far as a write looks into it: whose it is, and how a micro-batch was planned.

Spark writes `metadata` once, with the id of the query, and `offsets/N` once for each batch, before it runs: what is
read from where to where, and when that was planned. A batch that is repeated has the same file; one that is planned
anew, because somebody put the checkpoint back or took the file away, has another one.
What must hold: a folder counts as the checkpoint only if the id of the query is in it: the same path on another machine
may be another folder.
"""

from __future__ import annotations

import json
from hashlib import sha256
from typing import TYPE_CHECKING

from minibroker.errors import StorageError
from minibroker.spark.folders import LocalFolder

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem


class Checkpoint:
    """That of one query; picklable."""

    def __init__(self, location: str, query: str):
        """location: a path or an address; empty: nobody knows it."""
        self.location = location.replace("s3a://", "s3://")
        self._query = query

    def opened(self) -> tuple[FileSystem, str] | None:
        """Return where its files are, None if they are not to be reached from here."""
        if not self.location:
            return None
        from pyarrow.fs import FileSystem  # takes 20 ms, and most batches are small

        try:
            files, path = FileSystem.from_uri(self.location)
            with files.open_input_stream(f"{path}/metadata") as source:
                if not self._is_ours(source.read()):
                    return None
        except (OSError, ValueError, NotImplementedError):  # the last: PyArrow was built without this store
            return None
        return files, path

    def plan_of(self, batch: int) -> str:
        """Return what tells the plan of a batch from any other; empty: it cannot be known here."""
        try:
            if self.location.startswith("/"):
                folder = LocalFolder(self.location)
                if not self._is_ours(folder.read("metadata")):
                    return ""
                plan = folder.read(f"offsets/{batch}")
            elif (found := self.opened()) is None:
                return ""
            else:
                files, path = found
                with files.open_input_stream(f"{path}/offsets/{batch}") as source:
                    plan = bytes(source.read())
        except (StorageError, OSError, ValueError):
            return ""
        return sha256(plan).hexdigest()[:32]

    def _is_ours(self, metadata: bytes) -> bool:
        found = json.loads(metadata)
        return isinstance(found, dict) and found.get("id") == self._query

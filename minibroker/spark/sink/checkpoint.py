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

from minibroker.errors import StorageError
from minibroker.spark.option_values import OptionError


class Checkpoint:
    """That of one query; picklable."""

    def __init__(self, location: str, query: str):
        """location: a path or an address; empty: nobody knows it."""
        self.location = location
        self._query = query

    def is_ours(self) -> bool:
        """Return whether it is to be reached from here."""
        try:
            found = json.loads(self._read("metadata"))
        except (StorageError, OptionError, ValueError):  # PyArrow may have been built without this store
            return False
        return isinstance(found, dict) and found.get("id") == self._query

    def plan_of(self, batch: int) -> str:
        """Return what tells the plan of a batch from any other; empty: it cannot be known here."""
        try:
            return sha256(self._read(f"offsets/{batch}")).hexdigest()[:32] if self.is_ours() else ""
        except (StorageError, OptionError):
            return ""

    def _read(self, name: str) -> bytes:
        from minibroker.spark.folders import Folder  # takes 20 ms, and most batches are small

        return Folder(self.location).read(name)

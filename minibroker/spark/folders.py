"""Folders that jobs read and write beside logs: of this machine, or behind a URL that PyArrow can open (s3, gs, hdfs).

    folder = open_folder("s3://bucket/orders", spark)
    folder.write("report.html", data)

A place without a scheme means what it means to Spark: the file system that is the session's default, which on a laptop
is the disk. Names within a folder use "/" and are relative to it. A folder goes to other processes as its place.
What must hold: whoever reads a file sees all of the old or all of the new, also after a kill: where a rename is one
step (`renames`) a file is renamed into its place, and an object store shows a file when it is closed.
Not here: segments (minibroker/log/storage.py).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Any

from pyarrow import NativeFile
from pyarrow.fs import FileInfo, FileSelector, FileSystem, FileType

from minibroker.errors import StorageError
from minibroker.spark.option_values import OptionError

BUFFER_BYTES = 1 << 20
RENAMING = ("local", "hdfs")  # what PyArrow calls those that rename in one step


class Folder:
    """One at a path or URL; it need not be there."""

    def __init__(self, place: str):
        self.place = place.rstrip("/")

    def __reduce__(self) -> tuple[type[Folder], tuple[str]]:
        return Folder, (self.place,)

    @cached_property
    def _opened(self) -> tuple[FileSystem, str]:
        try:
            files, root = FileSystem.from_uri(self.place.replace("s3a://", "s3://", 1))  # s3a is Hadoop's word
        except (OSError, ValueError, NotImplementedError) as failure:
            raise OptionError(f"{self.place} cannot be opened: {failure}") from None
        return files, root.rstrip("/")

    @property
    def files(self) -> FileSystem:
        return self._opened[0]

    @property
    def renames(self) -> bool:
        return self.files.type_name in RENAMING

    def path(self, name: str = "") -> str:
        """Return where something in the folder is, as `files` takes it."""
        return f"{self._opened[1]}/{name}" if name else self._opened[1]

    def at(self, name: str) -> str:
        """Return the same as people and Spark take it."""
        return f"{self.place}/{name}"

    def exists(self, name: str = "") -> bool:
        with self._refused("look for", name):
            return bool(self.files.get_file_info(self.path(name)).type != FileType.NotFound)

    def list(self, name: str = "") -> list[FileInfo]:
        """Return what is in a folder, by name; an absent one is empty."""
        with self._refused("list", name):
            found = self.files.get_file_info(FileSelector(self.path(name), allow_not_found=True))
        return sorted(found, key=lambda each: str(each.base_name))

    def read(self, name: str) -> bytes:
        with self._refused("read", name), self.files.open_input_stream(self.path(name)) as source:
            return bytes(source.read())

    def write(self, name: str, data: bytes) -> None:
        """Write a file, in the place of one that may be there."""
        if self.renames:
            with self.writing(name, str(os.getpid())) as sink:
                sink.write(data)
        else:
            with self._refused("write", name), self.files.open_output_stream(self.path(name)) as sink:
                sink.write(data)

    @contextmanager
    def writing(self, name: str, writer: str) -> Iterator[NativeFile]:
        """Yield where to write a file, in pieces, that comes to its place when it is whole; writer: no other is it."""
        above, _, last = self.path(name).rpartition("/")
        temporary = f"{above}/.{last}.{writer}.tmp"
        with self._refused("write", name):
            self.files.create_dir(above)
            try:
                with self.files.open_output_stream(temporary, buffer_size=BUFFER_BYTES) as sink:
                    yield sink
                self.files.move(temporary, self.path(name))
            finally:
                if self.files.get_file_info(temporary).is_file:
                    self.files.delete_file(temporary)

    def move(self, old: str, new: str) -> None:
        with self._refused("rename", old):
            self.files.move(self.path(old), self.path(new))

    def remove(self, name: str) -> None:
        """Remove a file, or a folder with all that is in it; an absent one is fine."""
        with self._refused("remove", name):
            kind = self.files.get_file_info(self.path(name)).type
            if kind == FileType.Directory:
                self.files.delete_dir(self.path(name))
            elif kind == FileType.File:
                self.files.delete_file(self.path(name))

    @contextmanager
    def _refused(self, what: str, name: str) -> Iterator[None]:
        try:
            yield
        except OSError as failure:
            raise StorageError.of(what, self.path(name), failure) from failure


def open_folder(place: str, spark: Any = None) -> Folder:
    """Return the folder at a path or URL; raise OptionError for one that nobody here can open."""
    scheme, colon, rest = place.partition(":")
    if colon and len(scheme) > 1 and scheme.isalnum():  # one letter is a disk of Windows
        place = "/" + rest.lstrip("/") if scheme == "file" else place
    else:
        try:
            configuration = spark.sparkContext._jsc.hadoopConfiguration()
            path = spark.sparkContext._jvm.org.apache.hadoop.fs.Path(place)
            whole = str(path.getFileSystem(configuration).makeQualified(path).toString())
        except Exception:  # Spark Connect, or no session at all
            whole = "file:"
        place = os.path.abspath(place) if whole.startswith("file:") else whole
    folder = Folder(place)
    folder.path()
    return folder

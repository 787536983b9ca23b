"""Folders that jobs read and write beside logs: of this machine, or behind a URL that the session's Hadoop knows.

    folder = open_folder("s3a://bucket/orders", spark)
    folder.write("report.html", data)

A place without a scheme means what it means to Spark: the file system that is the session's default, which on a laptop
is the disk. Names within a folder use "/" and are relative to it.
What must hold: whoever reads a file sees all of the old or all of the new, also after a kill; `write_new` lets one of
several writers win; `move` gives a name to what is whole already. What was removed or moved by somebody else is fine.
Hadoop: an object store knows no rename that is one step, so there a file is written under its own name: it appears
when it is closed. Two who call `write_new` there in the same moment may both be told that they were first.
Not here: segments (minibroker/log/storage.py).
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol

from minibroker.errors import StorageError
from minibroker.spark.option_values import OptionError


class Folder(Protocol):
    place: str  # as Spark takes it

    def at(self, name: str) -> str:
        """Return where something in the folder is, as Spark takes it."""
        ...

    def exists(self, name: str = "") -> bool: ...

    def list(self, name: str = "") -> list[Entry]:
        """Return what is in a folder, by name; an absent one is empty."""
        ...

    def read(self, name: str) -> bytes: ...

    def write(self, name: str, data: bytes) -> None:
        """Write a file, in the place of one that may be there."""
        ...

    def write_new(self, name: str, data: bytes) -> bool:
        """Write a file unless there is one of that name; return whether there was none."""
        ...

    def move(self, old: str, new: str) -> bool:
        """Give a file or folder another name; return whether it was there."""
        ...

    def remove(self, name: str) -> None:
        """Remove a file, or a folder with all that is in it; an absent one is fine."""
        ...


class Entry(NamedTuple):
    name: str
    size_bytes: int
    is_folder: bool


TEMPORARY = ".tmp"  # and a dot in front: nobody takes it for data
# Where a rename is a copy, and a file appears when it is closed.
OBJECT_STORES = ("s3", "s3a", "s3n", "gs", "wasb", "wasbs", "oss", "cosn", "swift")


def open_folder(place: str, spark: Any = None) -> Folder:
    """Return the folder at a path or URL, which need not be there; raise OptionError for a URL nobody here can open."""
    scheme, colon, rest = place.partition(":")
    is_url = bool(colon) and len(scheme) > 1 and scheme.isalnum()  # one letter is a disk of Windows
    if is_url and scheme == "file":
        return LocalFolder("/" + rest.lstrip("/"))
    jvm = _jvm(spark)
    if jvm is None:
        if is_url:
            raise OptionError(f"{place}: only a session with its own JVM can open a URL; name a path of this machine")
        return LocalFolder(place)
    default = jvm.org.apache.hadoop.fs.FileSystem.getDefaultUri(_configuration(spark)).getScheme()
    if not is_url and default == "file":
        return LocalFolder(place)
    return HadoopFolder(spark, place)


def walk(folder: Folder, name: str = "") -> Iterator[Entry]:
    """Yield the files below a folder, with names from the top."""
    for entry in folder.list(name):
        below = f"{name}/{entry.name}" if name else entry.name
        if entry.is_folder:
            yield from walk(folder, below)
        else:
            yield Entry(below, entry.size_bytes, False)


def _jvm(spark: Any) -> Any:
    """Return the session's JVM; sessions of Spark Connect have none here."""
    try:
        return spark.sparkContext._jvm
    except Exception:
        return None


def _configuration(spark: Any) -> Any:
    return spark.sparkContext._jsc.hadoopConfiguration()


class LocalFolder:
    """A folder of this machine."""

    def __init__(self, place: str):
        self.place = os.path.abspath(place)

    def at(self, name: str) -> str:
        return os.path.join(self.place, name) if name else self.place

    def exists(self, name: str = "") -> bool:
        return os.path.exists(self.at(name))

    def list(self, name: str = "") -> list[Entry]:
        try:
            with os.scandir(self.at(name)) as found:
                entries = [Entry(each.name, _size_of(each), each.is_dir()) for each in found]
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as failure:
            raise StorageError.of("list", self.at(name), failure) from failure
        return sorted(entries)

    def read(self, name: str) -> bytes:
        try:
            with open(self.at(name), "rb") as file:
                return file.read()
        except OSError as failure:
            raise StorageError.of("read", self.at(name), failure) from failure

    def write(self, name: str, data: bytes) -> None:
        try:
            os.replace(self._written(name, data), self.at(name))
            self._sync_above(name)
        except OSError as failure:
            raise StorageError.of("write", self.at(name), failure) from failure

    def write_new(self, name: str, data: bytes) -> bool:
        try:
            temporary = self._written(name, data)
            try:
                os.link(temporary, self.at(name))
            except FileExistsError:
                return False
            finally:
                os.remove(temporary)
            self._sync_above(name)
        except OSError as failure:
            raise StorageError.of("write", self.at(name), failure) from failure
        return True

    def _written(self, name: str, data: bytes) -> str:
        """Return a file beside the one that is meant, with the same content, and on the disk."""
        above, _, last = self.at(name).rpartition(os.sep)
        temporary = os.path.join(above, f".{last}.{os.getpid()}{TEMPORARY}")
        os.makedirs(above, exist_ok=True)
        with open(temporary, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        return temporary

    def _sync_above(self, name: str) -> None:
        handle = os.open(os.path.dirname(self.at(name)), os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    def move(self, old: str, new: str) -> bool:
        try:
            os.makedirs(os.path.dirname(self.at(new)), exist_ok=True)
            os.rename(self.at(old), self.at(new))
        except FileNotFoundError:
            return False
        except OSError as failure:
            raise StorageError.of("rename", self.at(new), failure, told=f"{self.at(old)} to {new}") from failure
        return True

    def remove(self, name: str) -> None:
        path = self.at(name)
        try:
            if os.path.isdir(path) and not os.path.islink(path):
                shutil.rmtree(path)
            else:
                os.remove(path)
        except FileNotFoundError:
            pass
        except OSError as failure:
            raise StorageError.of("remove", path, failure) from failure


def _size_of(entry: os.DirEntry[str]) -> int:
    try:
        return entry.stat().st_size
    except FileNotFoundError:  # removed in this moment
        return 0


class HadoopFolder:
    """A folder of a file system that the session's Hadoop knows."""

    def __init__(self, spark: Any, place: str):
        self.place = place.rstrip("/")
        self._jvm = spark.sparkContext._jvm
        self._gateway = spark.sparkContext._gateway
        self._configuration = _configuration(spark)
        try:
            self._system = self._path("").getFileSystem(self._configuration)
        except Exception as failure:  # Py4JJavaError; py4j is not imported for its name
            raise OptionError(f"{place} cannot be opened: {_reason(failure)}") from None
        self._is_object_store = str(self._system.getUri().getScheme()) in OBJECT_STORES

    def _path(self, name: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(self.at(name))

    def at(self, name: str) -> str:
        return f"{self.place}/{name}" if name else self.place

    def exists(self, name: str = "") -> bool:
        return bool(self._asked("look for", name, lambda path: self._system.exists(path)))

    def list(self, name: str = "") -> list[Entry]:
        if not self.exists(name):
            return []
        found = self._asked("list", name, lambda path: self._system.listStatus(path))
        return sorted(Entry(each.getPath().getName(), each.getLen(), each.isDirectory()) for each in found)

    def read(self, name: str) -> bytes:
        def read(path: Any) -> bytes:
            stream = self._system.open(path)
            try:
                return bytes(stream.readAllBytes())
            finally:
                stream.close()

        return bytes(self._asked("read", name, read))

    def write(self, name: str, data: bytes) -> None:
        if self._is_object_store:
            self._put(name, data, is_new=False)
            return
        temporary = self._temporary(name)
        self._put(temporary, data, is_new=False)
        self._asked("rename", temporary, lambda path: self._replace(path, self._path(name)))

    def _replace(self, old: Any, new: Any) -> None:
        """Rename over what is there, which only the newer of Hadoop's two interfaces can."""
        hadoop = self._jvm.org.apache.hadoop.fs
        how = self._gateway.new_array(getattr(hadoop, "Options$Rename"), 1)
        how[0] = getattr(hadoop, "Options$Rename").OVERWRITE
        hadoop.FileContext.getFileContext(self._system.getUri(), self._configuration).rename(old, new, how)

    def write_new(self, name: str, data: bytes) -> bool:
        if self.exists(name):
            return False
        if self._is_object_store:
            self._put(name, data, is_new=True)
            return True
        temporary = self._temporary(name)
        self._put(temporary, data, is_new=False)
        if self._asked("rename", temporary, lambda path: self._system.rename(path, self._path(name))):
            return True
        self.remove(temporary)
        return False

    def _temporary(self, name: str) -> str:
        above, slash, last = name.rpartition("/")
        application = self._jvm.java.lang.ProcessHandle.current().pid()
        return f"{above}{slash}.{last}.{application}{TEMPORARY}"

    def _put(self, name: str, data: bytes, *, is_new: bool) -> None:
        def put(path: Any) -> None:
            stream = self._system.create(path, not is_new)
            stream.write(bytearray(data))
            stream.close()  # not after a failure: closing is what makes it appear

        self._asked("write", name, put)

    def move(self, old: str, new: str) -> bool:
        if not self.exists(old):
            return False
        self._asked("make the folder of", new, lambda path: self._system.mkdirs(path.getParent()))
        return bool(self._asked("rename", old, lambda path: self._system.rename(path, self._path(new))))

    def remove(self, name: str) -> None:
        self._asked("remove", name, lambda path: self._system.delete(path, True))

    def _asked(self, what: str, name: str, call: Any) -> Any:
        try:
            return call(self._path(name))
        except Exception as failure:
            raise StorageError(f"{what} {self.at(name)}: {_reason(failure)}") from failure


def _reason(failure: Exception) -> str:
    """Return what Java said, without its stack."""
    java = getattr(failure, "java_exception", None)
    return str(java.toString() if java is not None else failure).splitlines()[0]

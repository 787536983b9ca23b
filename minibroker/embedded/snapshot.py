"""What a broker has stored at one moment, and brokers that go on from there.

    snapshot = broker.snapshot()
    with snapshot.fork() as one, snapshot.fork() as other: ...    each with a port and records of its own
    broker.reset(snapshot)                                        the same broker as it was
    snapshot.save("data")                                         a data directory, for a broker or a real Kafka

A snapshot is storage: logs with what groups and transactions keep there, metadata with topics, settings, access rules
and producer ids, whose directory it is. It is left as by a clean stop, so a start from it reads no log. Beside that it
knows the arguments of the broker, and how far its clock was moved.
What must hold: it has all that was acknowledged before; nothing that is done to a fork, or to the broker that it was
made of, changes it. In memory bytes are shared until somebody writes; of a broker on a disk it is a directory beside
that, which goes with it.
Not here: how a storage is copied (log/copying.py), connections, members' sessions, faults: a fork has none.
"""

from __future__ import annotations

import os
import weakref
from contextlib import contextmanager
from typing import Generic, NamedTuple, TypeVar

from minibroker.clock import LoopClock
from minibroker.config.listeners import LISTENERS
from minibroker.embedded.engine import BrokerError
from minibroker.errors import ProtocolError, StorageError
from minibroker.log.clean_copy import end_directory, end_log, prepare_copy
from minibroker.log.copying import Copying, copy_at_once, directory_beside, remove_all, remove_directory
from minibroker.log.memory_storage import MemoryStorage
from minibroker.log.meta_properties import META_PROPERTIES, read_meta_properties
from minibroker.log.storage import LOCK, OsStorage

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from types import TracebackType
    from typing import Any, Self

    from minibroker.broker.broker import Node
    from minibroker.config import BrokerConfig
    from minibroker.log.storage import Storage

# Of each broker alone: where it keeps its data, who it is, and where clients find it.
OWN = ("log.dirs", "log.dir", "node.id", "broker.id", LISTENERS, "advertised.listeners")

B = TypeVar("B")


class Arguments(NamedTuple):
    """What a broker was made with, for those that go on from its snapshots, unless they say otherwise."""

    node_id: int
    host: str = "127.0.0.1"
    as_version: str | None = None
    tls: bool = False
    users: Mapping[str, str] | None = None
    settings: Mapping[str, str] = {}  # by Kafka's names


class BrokerSnapshot(Generic[B]):
    """Made by `Broker.snapshot()`, or of a data directory by `Broker.load_snapshot(path)`."""

    def __init__(
        self,
        storage: Storage,
        new_broker: Callable[..., B],
        arguments: Arguments,
        moved: tuple[int, float, bool] | None = None,
        *,
        is_temporary: bool = False,
    ):
        """moved: the broker's clock. is_temporary: its directory goes with it."""
        self.arguments = arguments
        self.moved = moved
        self._new_broker = new_broker
        self._storage: Storage | None = storage
        self._memory: MemoryStorage | None = storage if isinstance(storage, MemoryStorage) else None
        self._finalizer: weakref.finalize[Any, Any] | None = None
        if is_temporary and isinstance(storage, OsStorage):
            self._finalizer = weakref.finalize(self, _remove, storage.root, os.getpid())

    def __repr__(self) -> str:
        storage = self._storage
        where = "closed" if storage is None else storage.root if isinstance(storage, OsStorage) else "in memory"
        return f"<minibroker.BrokerSnapshot of broker {self.arguments.node_id}, {where}>"

    def fork(self, **arguments: Any) -> B:
        """Return a broker that goes on from here, on memory and a free port; arguments: those of `Broker`."""
        return self._new_broker(snapshot=self, **arguments)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Make a data directory of it, which must be empty or absent; `Broker(data_dir=path)` goes on there."""
        target = OsStorage(os.path.abspath(os.fspath(path)))
        _check_empty(target)
        with _all_or_nothing(target):
            copy_at_once(self._source(), target)

    def close(self) -> None:
        """Let go of what it holds; forks that have started go on."""
        self._storage = self._memory = None
        if self._finalizer is not None:
            self._finalizer()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def copying(self, target: Storage) -> Copying:
        """Return what copies it into an empty storage."""
        source = self._source()
        if isinstance(target, MemoryStorage):
            if self._memory is None:  # of a directory, which is read once for all forks
                self._memory = MemoryStorage(lambda: 0)
                copy_at_once(source, self._memory)
            source = self._memory
        else:
            _check_empty(target)
        return Copying(source, target, is_still=True)

    def check_before_reset(self, data_dir: str | None) -> None:
        """Raise ValueError if it has been closed, is gone, or would go when a broker's directory is emptied."""
        source = self._source()
        if not isinstance(source, OsStorage):
            return
        is_read = self._memory is None or data_dir is not None
        if is_read and not source.exists(META_PROPERTIES):
            raise ValueError(f"the directory of the snapshot is gone: {source.root}")
        if data_dir is None:
            return
        root, emptied = os.path.realpath(source.root), os.path.realpath(data_dir)
        if root == emptied or root.startswith(os.path.join(emptied, "")):
            raise ValueError(
                f"the snapshot lies in {data_dir}, which a reset empties: save() it elsewhere, and load that"
            )

    def _source(self) -> Storage:
        if self._storage is None:
            raise ValueError("the snapshot has been closed")
        return self._storage


def read_directory(path: str, new_broker: Callable[..., B]) -> BrokerSnapshot[B]:
    """Return what a data directory holds, of which nothing may be at work, and which must stay as it is.

    BrokerError: it is none of a single broker.
    """
    storage = OsStorage(os.path.abspath(path))
    try:
        meta = read_meta_properties(storage)
        if meta is None or meta.node_id is None:
            raise BrokerError(f"{path} is no data directory of a broker: it has no {META_PROPERTIES} with a node.id")
        storage.lock()  # says so if somebody is at work
        storage.unlock()
    except (StorageError, ProtocolError) as failure:
        raise BrokerError(str(failure)) from failure
    return BrokerSnapshot(storage, new_broker, Arguments(meta.node_id))


class Seed:
    """What a broker begins with: a snapshot, once."""

    def __init__(self, snapshot: BrokerSnapshot[Any]):
        self.snapshot = snapshot
        self._is_sown = False

    async def sow(self, storage: Storage) -> None:
        """Fill the storage, unless that has been done."""
        if not self._is_sown:
            copying = self.snapshot.copying(storage)
            with _all_or_nothing(storage):
                await _let_others_in(copying)
            self._is_sown = True


async def copy_of(node: Node) -> Storage:
    """Return a copy of a broker's storage as a clean stop would leave it; the broker goes on.

    BrokerError: a part of it cannot be read, so it would not be whole.
    """
    if offline := node.offline():
        (topic, number), reason = next(iter(offline.items()))
        raise BrokerError(f"{topic}-{number} is not served, so a snapshot would not be whole: {reason}")
    source = node.storage
    if isinstance(source, MemoryStorage):
        target: Storage = MemoryStorage(source.now_ms)
    else:
        assert isinstance(source, OsStorage)
        target = OsStorage(directory_beside(source.root))
    try:
        # Up to the first piece nobody else has a turn: this is the moment that the snapshot shows.
        metadata_log = node.metadata_log.log
        copying = Copying(source, target, prepare_copy([metadata_log, *node.directory.logs.values()]))
        end_log(metadata_log, copying.taken)
        high_watermarks = {key: replica.high_watermark for key, replica in node.replicas.items()}
        end_directory(node.directory, copying.taken, high_watermarks, node.metadata.broker_epoch)
        await _let_others_in(copying)
    except BaseException as failure:
        if isinstance(target, OsStorage):
            remove_directory(target.root)
        if isinstance(failure, StorageError):
            raise BrokerError(f"no snapshot can be made: {failure}") from failure
        raise
    return target


async def _let_others_in(copying: Copying) -> None:
    clock = LoopClock()
    for _ in copying:
        await clock.sleep(0)


def arguments_of(config: BrokerConfig, own_listeners: str, given: Arguments) -> Arguments:
    """Return what a fork is made with; given: of it what has no setting. own_listeners: what nobody has asked for."""
    settings = {name: text for name, text in config.static.items() if name not in OWN}
    if given.users is not None:
        del settings["sasl.enabled.mechanisms"]
    listeners = config.static[LISTENERS]
    if listeners != own_listeners:
        free = [f"{each.strip().rpartition(':')[0]}:0" for each in listeners.split(",")]
        settings[LISTENERS] = ",".join(free)
    return given._replace(settings=settings)


def empty(data_dir: str) -> None:
    """Remove all that a broker has in its directory, but for certificates that clients know."""
    remove_all(OsStorage(os.path.abspath(data_dir)), _staying())


def _remove(path: str, process_id: int) -> None:
    """Remove the directory of a snapshot, unless a program that has forked does so in its child."""
    if os.getpid() == process_id:
        remove_directory(path)


@contextmanager
def _all_or_nothing(target: Storage) -> Iterator[None]:
    """Remove what has been copied if not all could be: a broker would start on it, with topics that are empty."""
    there = target.list("")
    try:
        yield
    except BaseException:
        if isinstance(target, OsStorage):
            remove_all(target, there)
        raise


def _check_empty(storage: Storage) -> None:
    """Raise BrokerError if anything is there but the certificates that a start has made."""
    assert isinstance(storage, OsStorage)
    if any(name not in _staying() for name in storage.list("")):
        raise BrokerError(f"{storage.root} holds something already: a snapshot goes into an empty directory")


def _staying() -> tuple[str, ...]:
    """Return the names of what is no data in a broker's directory."""
    from minibroker.security.throwaway_ca import CA, CA_KEY, CLIENT, CLIENT_STORE, SERVER

    return (LOCK, CA, CA_KEY, SERVER, CLIENT, CLIENT_STORE)

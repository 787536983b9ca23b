"""Whose a log directory is, and what a new one begins with: what `kafka-storage format` writes.

    meta.properties                     cluster id, node id and the directory's own id
    bootstrap.checkpoint                feature levels of the new cluster, up to 4.3
    __cluster_metadata-0/0...-0.checkpoint   the same, since 4.4

What must hold: meta.properties comes last, so a directory that has it is formatted; one that belongs to another node
or cluster is not touched.
Not here: drawing ids (they come as parameters; `random_id` makes one out of chance that is handed in).
"""

from __future__ import annotations

import os

from minibroker.errors import ProtocolError, StorageError
from minibroker.log.checkpoints import METADATA_LOG, format_id
from minibroker.log.meta_properties import (
    META_PROPERTIES,
    MetaProperties,
    read_meta_properties,
    write_meta_properties,
)
from minibroker.metadata.features import FINALIZED, METADATA_VERSION, NEWEST

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from random import Random

    from minibroker.log.storage import Storage
    from minibroker.stored.kinds import MetadataRecord

BOOTSTRAP = "bootstrap.checkpoint"
METADATA_TOPIC, _ = METADATA_LOG
METADATA_DIRECTORY = f"{METADATA_TOPIC}-0"
FIRST_SNAPSHOT = f"{METADATA_DIRECTORY}/{0:020}-{0:010}.checkpoint"
CLUSTER_DIRECTORY = "controller"  # below the directory of a whole cluster, beside those of its brokers
IN_LOG_SINCE = 31  # metadata.version of 4.4-IV0: what a cluster begins with lies beside the log


class WrongDirectory(Exception):
    """The directory belongs to somebody else, or to a broker that kept its metadata in another way."""


def format_directory(
    storage: Storage,
    *,
    cluster_id: str,
    node_id: int,
    directory_id: bytes,
    now_ms: int,
    features: Mapping[str, int] | None = None,
) -> MetaProperties:
    """Make a directory one that a broker can start on; return whose it is.

    directory_id: 16 bytes, see `random_id`. features: level of each; by default those of the newest release.
    """
    from minibroker.metadata.snapshot import write_snapshot
    from minibroker.stored.cluster import FeatureLevelRecord

    features = features or FINALIZED[NEWEST]
    metadata_version = features[METADATA_VERSION]
    names = sorted(features, key=lambda name: (name != METADATA_VERSION, name))
    records = [FeatureLevelRecord(name=name, feature_level=features[name]) for name in names]
    storage.make_directory("")
    path = BOOTSTRAP
    if metadata_version >= IN_LOG_SINCE:
        storage.make_directory(METADATA_DIRECTORY)
        storage.sync_directory("")
        path = FIRST_SNAPSHOT
    write_snapshot(storage, path, records, metadata_version=metadata_version, now_ms=now_ms)
    meta = MetaProperties(node_id, cluster_id, directory_id)
    write_meta_properties(storage, meta, now_ms)
    return meta


def check_directory(storage: Storage, *, node_id: int, cluster_id: str | None = None) -> MetaProperties | None:
    """Return whose the directory is, None if it has not been formatted; raise WrongDirectory if it is not ours.

    cluster_id: None is content with any.
    """
    try:
        meta = read_meta_properties(storage)
    except ProtocolError as error:
        raise WrongDirectory(f"nobody can say whose directory this is: {error}") from error
    if meta is None:
        if storage.exists(f"{CLUSTER_DIRECTORY}/{META_PROPERTIES}"):
            raise WrongDirectory(
                "the directory holds the data of a cluster, whose brokers have theirs below it: start as many brokers, "
                "or give another directory"
            )
        return None
    if meta.version == 0:
        raise WrongDirectory("meta.properties has version 0: a broker with ZooKeeper wrote it, and nothing here can")
    if cluster_id is not None and meta.cluster_id != cluster_id:
        raise WrongDirectory(f"meta.properties: the directory belongs to cluster {meta.cluster_id}, not {cluster_id}")
    if meta.node_id != node_id:
        raise WrongDirectory(f"meta.properties: the directory belongs to node {meta.node_id}, not {node_id}")
    return meta


def check_alone(root: str) -> None:
    """Raise WrongDirectory if a directory is that of a broker of a cluster, whose metadata lie beside it.

    Alone it would be short of them, and what it does then is not what the other replicas have.
    """
    from minibroker.log.read_only_storage import ReadOnlyStorage

    above = os.path.dirname(os.path.abspath(root))
    try:
        own = read_meta_properties(ReadOnlyStorage(root))
        controller = read_meta_properties(ReadOnlyStorage(os.path.join(above, CLUSTER_DIRECTORY)))
    except (ProtocolError, StorageError):
        return
    if own is not None and controller is not None and own.cluster_id == controller.cluster_id:
        raise WrongDirectory(
            f"{root} is the directory of broker {own.node_id} of the cluster in {above}: start that (--brokers); "
            "a broker of its own can have a copy of it elsewhere"
        )


def bootstrap_records(storage: Storage) -> list[MetadataRecord]:
    """Return what the metadata log begins with; features of the newest release if no file says."""
    from minibroker.metadata.records import UnknownRecord
    from minibroker.metadata.snapshot import read_snapshot
    from minibroker.stored.cluster import FeatureLevelRecord

    for path in (BOOTSTRAP, FIRST_SNAPSHOT):
        if storage.exists(path):
            found = read_snapshot(storage, path).records
            return [record for record in found if not isinstance(record, UnknownRecord)]
    return [FeatureLevelRecord(name=name, feature_level=level) for name, level in FINALIZED[NEWEST].items()]


def random_id(chance: Random) -> bytes:
    """Return a random id (version 4 of RFC 9562) that Kafka would take: its text never begins with a dash, which
    command lines would take for an option."""
    while True:
        drawn = bytearray(chance.getrandbits(128).to_bytes(16, "big"))
        drawn[6] = drawn[6] & 0x0F | 0x40
        drawn[8] = drawn[8] & 0x3F | 0x80
        if not format_id(bytes(drawn)).startswith("-"):
            return bytes(drawn)

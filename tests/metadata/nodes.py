"""A node without a network: a directory, its metadata log and its controller."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

from minibroker.controller import brokers
from minibroker.controller.controller import Controller
from minibroker.log.checkpoints import read_clean_shutdown
from minibroker.log.memory_storage import MemoryStorage
from minibroker.log.storage import OsStorage
from minibroker.metadata.bootstrap import check_directory, format_directory, random_id
from minibroker.metadata.features import FINALIZED, supported
from minibroker.metadata.image import MetadataImage
from minibroker.metadata.metadata_log import MetadataLog
from tests import goldens

NOW_MS = 1_795_278_882_000
CLUSTER_ID = "EBESExQVFhcYGRobHB0eHw"
DIRECTORY_ID = bytes(range(64, 80))


def no_check(kind: int, name: str, configs: Mapping[str, str]) -> None:
    """Settings are fine as they are."""


class LoneNode:
    """Node 1, broker and controller, from start to stop."""

    def __init__(
        self, storage: MemoryStorage | OsStorage, *, release: str = "4.4", port: int = 9092, **log_settings: Any
    ):
        self.storage = storage
        self.chance = Random(11)
        meta = check_directory(storage, node_id=1)
        if meta is None:
            meta = format_directory(
                storage,
                cluster_id=CLUSTER_ID,
                node_id=1,
                directory_id=DIRECTORY_ID,
                now_ms=NOW_MS,
                features=FINALIZED[release],
            )
        assert meta.directory_id
        self.clean_epoch = read_clean_shutdown(storage)
        self.log = MetadataLog(storage, node_id=1, **log_settings)
        self.image = self.log.load(now_ms=NOW_MS)
        self.controller = Controller(
            self.image,
            node_id=1,
            new_id=lambda: random_id(self.chance),
            check_configs=no_check,
            supported_features=supported(release),
        )
        self.log.lead(now_ms=NOW_MS)
        for records in brokers.starting(
            self.controller,
            1,
            next_offset=lambda: self.log.log_end_offset,
            incarnation_id=random_id(self.chance),
            endpoints=[("PLAINTEXT", "127.0.0.1", port, "PLAINTEXT")],
            log_dirs=[meta.directory_id],
            clean_epoch=self.clean_epoch,
        ):
            self.append(records)

    def append(self, records: Sequence[Any]) -> int:
        return self.log.append(records, now_ms=NOW_MS)

    def create(self, name: str, partitions: int = 1, **more: Any) -> None:
        self.append(self.controller.create_topic(name, partitions=partitions, replication_factor=1, **more))

    def stop(self) -> None:
        for records in brokers.stopping(self.controller, 1):
            self.append(records)
        self.log.close()


def memory() -> MemoryStorage:
    return MemoryStorage(lambda: NOW_MS)


def golden_storage(name: str) -> MemoryStorage:
    """Return the directory that a real broker left behind."""
    storage = memory()
    for path, data in goldens.log_files(name).items():
        directory = path.rpartition("/")[0]
        storage.make_directory(directory)
        file = storage.open(path, create=True)
        file.append([data])
        file.close()
    return storage


def plain(image: MetadataImage) -> dict[str, Any]:
    """Return what an image says as values that can be compared."""

    def fields(record: Any) -> Any:
        if isinstance(record, (list, tuple)):
            return [fields(item) for item in record]
        if isinstance(record, (str, bytes, int, float, type(None))):
            return record
        return {name: fields(getattr(record, name)) for name in type(record).__fields__}

    return {
        "topics": {
            name: (topic.id, [{slot: getattr(each, slot) for slot in each.__slots__} for each in topic.partitions])
            for name, topic in image.topics.items()
        },
        "ids": {topic_id: topic.name for topic_id, topic in image.topics_by_id.items()},
        "configs": image.configs,
        "brokers": {key: fields(record) for key, record in image.brokers.items()},
        "controllers": {key: fields(record) for key, record in image.controllers.items()},
        "features": image.features,
        "next_producer_id": image.next_producer_id,
        "quotas": image.client_quotas,
        "scram": {key: fields(record) for key, record in image.scram.items()},
        "acls": {key: fields(record) for key, record in image.acls.items()},
        "tokens": {key: fields(record) for key, record in image.delegation_tokens.items()},
    }

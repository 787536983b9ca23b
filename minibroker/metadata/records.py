"""Records of the metadata log as bytes: which class a number stands for, and which version may be written.

A reader of an older release stops at a version that it does not know, so what is written depends on the finalized
metadata.version and on nothing else.
"""

from __future__ import annotations

from importlib import import_module

from minibroker.metadata.features import CONTROLLED_SHUTDOWN, CORDONED, DIRECTORIES, ELR, MIGRATION
from minibroker.stored.kinds import metadata_frame

TYPE_CHECKING = False
if TYPE_CHECKING:
    from minibroker.stored.brokers import BrokerRegistrationChangeRecord
    from minibroker.stored.kinds import MetadataRecord

_CLASSES = {  # by number; imported when the first one is met
    0: ("brokers", "RegisterBrokerRecord"),
    1: ("brokers", "UnregisterBrokerRecord"),
    2: ("topics", "TopicRecord"),
    3: ("topics", "PartitionRecord"),
    4: ("topics", "ConfigRecord"),
    5: ("topics", "PartitionChangeRecord"),
    6: ("security", "AccessControlRecord"),
    7: ("brokers", "FenceBrokerRecord"),
    8: ("brokers", "UnfenceBrokerRecord"),
    9: ("topics", "RemoveTopicRecord"),
    10: ("security", "DelegationTokenRecord"),
    11: ("security", "UserScramCredentialRecord"),
    12: ("cluster", "FeatureLevelRecord"),
    14: ("security", "ClientQuotaRecord"),
    15: ("cluster", "ProducerIdsRecord"),
    17: ("brokers", "BrokerRegistrationChangeRecord"),
    18: ("security", "AccessControlEntryRecord"),
    19: ("security", "RemoveAccessControlEntryRecord"),
    20: ("cluster", "NoOpRecord"),
    21: ("cluster", "ZkMigrationStateRecord"),
    22: ("security", "RemoveUserScramCredentialRecord"),
    23: ("cluster", "BeginTransactionRecord"),
    24: ("cluster", "EndTransactionRecord"),
    25: ("cluster", "AbortTransactionRecord"),
    26: ("security", "RemoveDelegationTokenRecord"),
    27: ("brokers", "RegisterControllerRecord"),
    28: ("topics", "ClearElrRecord"),
    29: ("brokers", "UnregisterControllerRecord"),
}
_loaded: dict[int, type[MetadataRecord]] = {}


class UnknownRecord:
    """A record of a kind that came after us."""

    def __init__(self, type_number: int, version: int):
        self.type_number = type_number
        self.version = version


def read_record(data: bytes) -> MetadataRecord | UnknownRecord:
    """Return what stands in the value of a record of the metadata log.

    A kind that we do not know can be left out; a version that we do not know of a kind that we do cannot, and raises
    UnsupportedVersion: the state would be wrong from there on.
    """
    number, version, position = metadata_frame(data)
    found = _loaded.get(number)
    if found is None:
        if number not in _CLASSES:
            return UnknownRecord(number, version)
        module, name = _CLASSES[number]
        found = _loaded[number] = getattr(import_module(f"minibroker.stored.{module}"), name)
    return found.decode(data[position:], version)


def write_record(record: MetadataRecord, metadata_version: int) -> bytes:
    """Return the value of a record, in the version that Kafka writes at this metadata.version."""
    return record.encode_stored(record_version(record, metadata_version))


def record_version(record: MetadataRecord, metadata_version: int) -> int:
    number = record.type_number
    if number in (3, 5):  # partitions and what changes in them
        return 2 if metadata_version >= ELR else 1 if metadata_version >= DIRECTORIES else 0
    if number == 0:
        starts = (CONTROLLED_SHUTDOWN, MIGRATION, DIRECTORIES, CORDONED)
        return sum(metadata_version >= start for start in starts)
    if number == 17:
        return _change_version(record)  # type: ignore[arg-type]
    return 0


def _change_version(record: BrokerRegistrationChangeRecord) -> int:
    """Return the lowest version that can say it, as Kafka does."""
    if record.cordoned_log_dirs is not None:
        return 3
    if record.log_dirs:
        return 2
    return 1 if record.in_controlled_shutdown else 0

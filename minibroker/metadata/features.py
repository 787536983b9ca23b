"""Feature levels: which ones each release of Kafka finalizes for a new cluster, and which ones it can work with.

metadata.version is the feature that all others lean on: it says which records may be written, in which versions.
"""

from __future__ import annotations

METADATA_VERSION = "metadata.version"
ELR_VERSION = "eligible.leader.replicas.version"
GROUP_VERSION = "group.version"  # 1: groups of the consumer protocol
TRANSACTION_VERSION = "transaction.version"  # 2: each end of a transaction raises the epoch of its producer (KIP-890)
TRANSACTIONS_V2 = 2

# metadata.version from which on ...
CONTROLLED_SHUTDOWN = 7  # 3.3-IV3
MIGRATION = 8  # 3.4-IV0
SCRAM = 11  # 3.5-IV2
ISR_SHRINKS_SILENTLY = 12  # 3.6-IV0, KAFKA-15021: no new leader epoch for it
DELEGATION_TOKENS = 14  # 3.6-IV2
MIGRATION_END = 22  # 4.0-IV0: ZooKeeper is history
DIRECTORIES = 17  # 3.7-IV2, KIP-858
ELR = 23  # 4.0-IV1, KIP-966
CORDONED = 30  # 4.3-IV0, KIP-1066

# What `kafka-storage format` of a release finalizes, in the order in which it writes them.
_SINCE_4_2 = {ELR_VERSION: 1, GROUP_VERSION: 1, "share.version": 1, "streams.version": 1, TRANSACTION_VERSION: 2}
FINALIZED: dict[str, dict[str, int]] = {
    "3.9": {METADATA_VERSION: 21},
    "4.0": {METADATA_VERSION: 25, GROUP_VERSION: 1, TRANSACTION_VERSION: 2},
    "4.1": {METADATA_VERSION: 27, ELR_VERSION: 1, GROUP_VERSION: 1, TRANSACTION_VERSION: 2},
    "4.2": {METADATA_VERSION: 29, **_SINCE_4_2},
    "4.3": {METADATA_VERSION: 30, **_SINCE_4_2},
    "4.4": {METADATA_VERSION: 33, **_SINCE_4_2, "share.version": 2},
}
NEWEST = "4.4"

# What we do: clients are told of no other feature, whatever its level in a directory.
SERVED = (METADATA_VERSION, ELR_VERSION, GROUP_VERSION, TRANSACTION_VERSION)
# The lowest levels that our own records need, so that every release from there on can go on with a directory: 3.9 with
# that of one broker, until a group of the consumer protocol or a transactional id is in it (4.0 then); 4.0 with that of
# a cluster.
LOWEST = {METADATA_VERSION: 21}
LOWEST_OF_CLUSTER = {METADATA_VERSION: 25, ELR_VERSION: 1, GROUP_VERSION: 1, TRANSACTION_VERSION: TRANSACTIONS_V2}


def bootstrap(release: str) -> dict[str, int]:
    """Return the levels that a directory begins with which is to look like a release's."""
    return {name: level for name, level in FINALIZED[release].items() if name in SERVED}


def supported(release: str = NEWEST) -> dict[str, tuple[int, int]]:
    """Return lowest and highest level of each feature that a release can work with, as it registers itself.

    All of them: a directory that Kafka wrote may have any at any level, and does not hurt.
    """
    ranges = {name: (0, level) for name, level in FINALIZED[release].items()}
    # 4.0 dropped what came before 3.3-IV3.
    ranges[METADATA_VERSION] = (1 if release.startswith("3.") else 7, FINALIZED[release][METADATA_VERSION])
    ranges["kraft.version"] = (0, 1)
    return ranges

"""Defaults that a release of Kafka had before the newest: what a broker with `as_version` goes by.

Compared with the classes of these releases by tests/interop/test_defaults_are_those_of_the_release.py.
"""

from __future__ import annotations

# Setting of a broker -> its default below a release, the oldest first.
OLD_DEFAULTS: dict[str, tuple[tuple[str, str], ...]] = {
    "delete.topic.enable": (("1.0", "false"),),
    "group.consumer.migration.policy": (("4.0", "disabled"),),
    "group.coordinator.rebalance.protocols": (("4.0", "classic"), ("4.1", "classic,consumer")),
    "group.max.session.timeout.ms": (("0.10.0", "30000"), ("2.3", "300000")),
    "log.cleaner.enable": (("0.9.0", "false"),),
    "log.message.timestamp.after.max.ms": (("4.0", str((1 << 63) - 1)),),  # KIP-937
    "message.max.bytes": (("2.5", "1000012"),),  # of records; since then with the header of a v2 batch
    "num.recovery.threads.per.data.dir": (("4.0", "1"),),  # KIP-1030
    "offsets.retention.minutes": (("2.0", "1440"),),  # KIP-186
    "replica.lag.time.max.ms": (("2.5", "10000"),),  # KIP-537
    "unclean.leader.election.enable": (("0.11.0", "true"),),  # KIP-106
}


def old_defaults(release: str) -> dict[str, str]:
    """Return the defaults of a release that are not those of the newest."""
    number = _number(release)
    found = {}
    for name, changes in OLD_DEFAULTS.items():
        for below, default in changes:
            if number < _number(below):
                found[name] = default
                break
    return found


def _number(release: str) -> tuple[int, ...]:
    return tuple(int(word) for word in release.split("."))

"""Topics to be made at a start, as people write them: `orders`, `orders:3`, `orders:3:compact`.

More words are settings (`orders:3:retention.ms=1000`) or, as in older images of Kafka, a number of replicas
(`orders:3:1:compact`), which a broker on its own passes over.
"""

from __future__ import annotations

from collections import namedtuple

from minibroker.config.values import ConfigError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NamedTuple

    class WantedTopic(NamedTuple):
        """A topic that has to be there."""

        name: str
        partitions: int  # -1: as many as the broker makes by default
        configs: dict[str, str]
        replication_factor: int  # -1: as the brokers' settings have it
else:  # the class statement would import typing
    WantedTopic = namedtuple("WantedTopic", "name partitions configs replication_factor")

POLICIES = ("compact", "delete", "compact+delete")


def parse_topic(text: str) -> WantedTopic:
    """Read one topic; raise ConfigError for words that mean nothing."""
    name, *words = text.strip().split(":")
    partitions, replication_factor, configs = -1, -1, {}
    for number, word in enumerate(words):
        if word.isdigit():
            if number == 0:
                partitions = int(word)
            else:
                replication_factor = int(word)
        elif "=" in word:
            key, _, value = word.partition("=")
            configs[key] = value
        elif word in POLICIES:
            configs["cleanup.policy"] = word.replace("+", ",")
        else:
            raise ConfigError("topic", text, word, "a number of partitions, a cleanup policy or key=value")
    return WantedTopic(name, partitions, configs, replication_factor)

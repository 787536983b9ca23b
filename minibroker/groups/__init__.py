"""Group coordinator: consumer groups of both protocols, and how far each group has read."""

from __future__ import annotations

from minibroker.config import BrokerConfig

OFFSETS_TOPIC = "__consumer_offsets"  # where groups and their offsets are kept


def offsets_topic_configs(config: BrokerConfig) -> dict[str, str]:
    """Return the settings with which the topic is made."""
    return {
        "compression.type": "producer",
        "cleanup.policy": "compact",
        "segment.bytes": str(config["offsets.topic.segment.bytes"]),
    }

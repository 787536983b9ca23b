"""Transaction coordinator: transactional ids, their producers, and the state of each one's transaction."""

from __future__ import annotations

from minibroker.config import BrokerConfig

TRANSACTION_STATE_TOPIC = "__transaction_state"  # where they are kept


def transaction_state_topic_configs(config: BrokerConfig) -> dict[str, str]:
    """Return the settings with which the topic is made."""
    return {
        "unclean.leader.election.enable": "false",
        "compression.type": "uncompressed",
        "cleanup.policy": "compact",
        "min.insync.replicas": str(config["transaction.state.log.min.isr"]),
        "segment.bytes": str(config["transaction.state.log.segment.bytes"]),
    }

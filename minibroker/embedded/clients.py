"""What the client libraries of others want to be told to find a broker."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Literal

    Library = Literal["confluent", "aiokafka", "kafka-python", "java", "spark"]

# Library -> the name it has for bootstrap servers.
NAMES: dict[str, str] = {
    "confluent": "bootstrap.servers",
    "aiokafka": "bootstrap_servers",
    "kafka-python": "bootstrap_servers",
    "java": "bootstrap.servers",
    "spark": "kafka.bootstrap.servers",
}


def client_config(library: Library, bootstrap_servers: str) -> dict[str, str]:
    """Return the settings of a client, to be handed over as they are or with more of the caller's own."""
    if library not in NAMES:
        raise ValueError(f"{library!r} is none of {', '.join(NAMES)}")
    return {NAMES[library]: bootstrap_servers}

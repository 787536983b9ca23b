"""The clusters that are compared, and single brokers beside them: what each is started with.

Ours are one process whatever they hold; Kafka is three, each broker and controller, with a heap of 1 GB as its start
script gives it.
"""

from __future__ import annotations

import sys

from bench.broker.brokers import MINIBROKER, Kind, Order, fetch_kafka, kafka, minibroker_disk, minibroker_memory

BROKERS = 3
ONE, ONE_MEMORY = "one", "one, memory"
UNREPLICATED, THREE, THREE_MEMORY = "three, RF 1", "three, RF 3", "three, RF 3, memory"
KAFKA = "Kafka, RF 3"
NOBODY, ONE_KIND, EVERYTHING = "nobody watches", "leader watched", "all events watched"


def on_disk(order: Order) -> list[list[str]]:
    return [[*MINIBROKER, "--brokers", str(BROKERS), "--port", "0", "--data-dir", f"{order.directory}/data"]]


def in_memory(order: Order) -> list[list[str]]:
    return [[*MINIBROKER, "--brokers", str(BROKERS), "--port", "0", "--memory"]]


def watched(brokers: int) -> Kind:
    """Ours in memory, with a subscriber that can be told to come and to go."""
    command = [sys.executable, "-m", "bench.cluster.watched", str(brokers)]
    return Kind(lambda order: [command], brokers=brokers, replicas=brokers, prints_address=True)


KINDS = {
    ONE: Kind(minibroker_disk),
    ONE_MEMORY: Kind(minibroker_memory),
    UNREPLICATED: Kind(on_disk, brokers=BROKERS, prints_address=True),
    THREE: Kind(on_disk, brokers=BROKERS, replicas=BROKERS, prints_address=True),
    THREE_MEMORY: Kind(in_memory, brokers=BROKERS, replicas=BROKERS, prints_address=True),
    KAFKA: Kind(kafka, ("java", "mvn"), fetch_kafka, brokers=BROKERS, processes=BROKERS, replicas=BROKERS),
}

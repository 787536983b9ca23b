"""A broker as somebody looks at it: what view/feed.py asks for, of one that is its own controller.

Of a cluster: cluster/view_source.py, which has the same of several. What must hold: looking changes nothing.
"""

from __future__ import annotations

from random import Random

from minibroker.clock import LoopClock
from minibroker.errors import KafkaError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from minibroker.broker.broker_parts import BrokerParts
    from minibroker.broker.group_view import SeenGroups
    from minibroker.broker.transaction_view import SeenTransactions
    from minibroker.clock import Clock
    from minibroker.events import EventStream
    from minibroker.metadata.image import MetadataImage
    from minibroker.replication.replica import Replica
    from minibroker.taught import SeenLesson
    from minibroker.view.source import Rows

CLIENTS_MAX = 200  # that are shown
GROUP_US = 100


class NodesSource:
    """Some brokers, by their ids."""

    events: EventStream
    clock: Clock
    chance: Random
    lesson: SeenLesson | None = None

    @property
    def nodes(self) -> Mapping[int, BrokerParts]:
        raise NotImplementedError

    @property
    def image(self) -> MetadataImage:
        raise NotImplementedError

    @property
    def is_stepped(self) -> bool:
        return False

    @property
    def serving(self) -> object:
        return [(node, node.is_ready) for node in self.nodes.values()]

    def new_boot(self) -> str:
        """By chance; and by the time, for the same chance may come again."""
        return f"{self._own_chance().getrandbits(32):08x}{LoopClock().steady_ms():x}"

    def new_token(self) -> str:
        return f"{self._own_chance().getrandbits(128):032x}"

    def _own_chance(self) -> Random:
        """Return chance of which nobody else has less then."""
        if type(self.chance) is not Random:
            return self.chance
        own = Random()
        own.setstate(self.chance.getstate())
        return own

    def now_ms(self) -> int:
        return self.clock.now_ms()

    def steady_ms(self) -> int:
        return self.clock.steady_ms()

    # Tables of few rows

    def small_tables(self) -> Mapping[str, Rows]:
        nodes = self.nodes
        return {
            "cluster": self._cluster_rows(),
            "brokers": {str(broker): self._broker_row(broker) for broker in nodes},
            "links": {},
            "disks": {},
            "gates": {},
            "rules": {key: row for node in nodes.values() for key, row in _rule_rows(node)},
            "totals": {str(broker): _totals(node) for broker, node in nodes.items()},
        }

    def _cluster_rows(self) -> dict[str, object]:
        bootstrap = ",".join(filter(None, (node.bootstrap_servers for _, node in sorted(self.nodes.items()))))
        return {"bootstrap": bootstrap, "controller": "", "clock": [False, 1.0]}

    def _broker_row(self, broker: int) -> list[object]:
        node = self.nodes[broker]
        known = self.image.brokers.get(broker)
        rack = node.config["broker.rack"] or ""
        is_fenced = known is None or known.fenced
        return [node.bootstrap_servers, self.state_of(broker), is_fenced, rack, False, node.image.offset]

    def state_of(self, broker: int) -> str:
        return "running" if self.nodes[broker].is_ready else "starting"

    # Partitions

    def replicas(self, topic: str, partition: int, brokers: Iterable[int]) -> list[Replica | None]:
        nodes, key = self.nodes, (topic, partition)
        return [node.replicas.get(key) if (node := nodes.get(broker)) is not None else None for broker in brokers]

    def clean_offset(self, replica: Replica) -> int:
        return self.nodes[replica.node_id].directory.cleaner_offsets.get((replica.topic, replica.partition), -1)

    def min_in_sync(self, topic: str) -> int:
        for node in self.nodes.values():
            count: int = node.topic_config(topic)["min.insync.replicas"]
            return count
        return 1

    # What coordinators have

    def _groups(self) -> SeenGroups:
        from minibroker.broker.group_view import SeenGroups

        return SeenGroups(self.events, lambda: self.nodes, lambda: self.image)

    def group_ids(self) -> Iterable[str]:
        return self._groups().ids()

    def group_row(self, group: str) -> list[object] | None:
        return self._groups().row(group)

    def group_view(self, group: str) -> Iterator[int | dict[str, object]]:
        from minibroker.groups.view_rows import view_as_json

        try:
            view = self._groups().group(group)
        except KafkaError:
            return
        yield GROUP_US + 20 * len(view.partitions)
        yield view_as_json(view)

    def _transactions(self) -> SeenTransactions:
        from minibroker.broker.transaction_view import SeenTransactions

        return SeenTransactions(self.events, lambda: self.nodes, lambda: self.image)

    def transaction_ids(self) -> Iterable[str]:
        return self._transactions().ids()

    def transaction_row(self, id: str) -> list[object] | None:
        return self._transactions().row(id)

    # Clients

    def client_rows(self) -> Iterator[tuple[str, list[object]]]:
        count = 0
        for broker, node in self.nodes.items():
            for server in node.servers:
                for connection in list(server.connections):
                    software = getattr(connection, "client_software", None)
                    if software is None or count == CLIENTS_MAX:  # who came by HTTP has none
                        continue
                    count += 1
                    host, port = connection.remote_address
                    name, reads = _reads(node, getattr(connection, "last_fetch", None))
                    row = [broker, server.listener_name, name, " ".join(filter(None, software)), reads]
                    yield f"{host}:{port}>{broker}", row


class NodeSource(NodesSource):
    """One broker that is alone."""

    def __init__(self, node: BrokerParts):
        self.node = node
        self.events, self.clock, self.chance = node.events, node.clock, node.chance

    @property
    def nodes(self) -> Mapping[int, BrokerParts]:
        return {self.node.node_id: self.node}

    @property
    def image(self) -> MetadataImage:
        return self.node.image


def _totals(node: BrokerParts) -> list[object]:
    return [
        sum(len(server.connections) for server in node.servers),
        node.asked_count,
        sum(server.sent_bytes for server in node.servers),
    ]


def _rule_rows(node: BrokerParts) -> Iterator[tuple[str, object]]:
    if "faults" not in node.__dict__:  # nobody has asked for them yet
        return
    for number, rule in node.faults.rules.items():
        yield f"{node.node_id}/{number}", rule.as_json()
    for name, toxic in node.faults.toxics.items():
        yield f"{node.node_id}/{name}", toxic.as_json()


def _reads(
    node: BrokerParts, last: tuple[str | None, Mapping[tuple[str, bytes, int], object]] | None
) -> tuple[str, dict[str, int]]:
    """Return a client's name, and what it fetches from where."""
    if last is None:
        return "", {}
    reads: dict[str, int] = {}
    for (name, topic_id, number), wanted in list(last[1].items())[:CLIENTS_MAX]:
        topic = name or node.topic_name(topic_id) or ""
        reads[f"{topic}-{number}"] = wanted.fetch_offset  # type: ignore[attr-defined]
    return last[0] or "", reads

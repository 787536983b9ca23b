"""A cluster as somebody looks at it: brokers in any state, links, disks, what waits at gates and what is in it."""

from __future__ import annotations

from minibroker.broker.view_source import NodesSource
from minibroker.clock.steered import SteeredClock
from minibroker.log.batches import batches
from minibroker.replication.network import CONTROLLER, Letter

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

    from minibroker.broker.broker_parts import BrokerParts
    from minibroker.cluster.disks import Disks
    from minibroker.cluster.nodes import Nodes
    from minibroker.metadata.image import MetadataImage
    from minibroker.replication.network import Link
    from minibroker.taught import SeenLesson
    from minibroker.view.source import Rows

USUAL: list[object] = [False, 0, 0, 0, 0]  # of links
CUT = (True, 0, 0, 0, 0)
PLACES_MAX = 20  # of a letter, that are shown


class ClusterSource(NodesSource):
    """All of a cluster."""

    def __init__(self, cluster: Nodes, disks: Disks, lesson: SeenLesson | None = None):
        self.cluster = cluster
        self.disks = disks
        self.lesson = lesson
        self.events, self.clock, self.chance = cluster.events, cluster.clock, cluster.chance

    @property
    def nodes(self) -> Mapping[int, BrokerParts]:
        return self.cluster.nodes

    @property
    def image(self) -> MetadataImage:
        return self.cluster.controller.image

    @property
    def is_stepped(self) -> bool:
        return bool(self.cluster.gates) or self._is_frozen

    @property
    def _is_frozen(self) -> bool:
        clock = self.cluster.clock
        return isinstance(clock, SteeredClock) and clock.is_frozen

    def small_tables(self) -> Mapping[str, Rows]:
        cluster = self.cluster
        links = {f"{link.source}->{link.target}": link_row(link) for link in cluster.network.links.values()}
        clients = {f"clients->{broker}": list(CUT) for broker in cluster.cut_from_clients}
        return {
            **super().small_tables(),
            "brokers": {str(broker): self._broker_row(broker) for broker in cluster.broker_ids},
            "links": {key: row for key, row in (links | clients).items() if row != USUAL},
            "disks": {str(who): [each.kind, each.write_ms] for who, each in self.disks.troubles().items()},
            "gates": dict(self._held()),
        }

    def _cluster_rows(self) -> dict[str, object]:
        cluster, clock = self.cluster, self.cluster.clock
        speed = clock.speed if isinstance(clock, SteeredClock) else 1.0
        return {
            "bootstrap": cluster.bootstrap_servers,
            "controller": cluster.states[CONTROLLER],
            "clock": [self._is_frozen, speed],
            **({} if self.lesson is None else {"lesson": [self.lesson.name, self.lesson.turn]}),
        }

    def _broker_row(self, broker: int) -> list[object]:
        node, known = self.cluster.nodes.get(broker), self.image.brokers.get(broker)
        return [
            "" if node is None else node.bootstrap_servers,
            self.cluster.states[broker],
            known is None or known.fenced,
            (known.rack if known is not None else "") or "",
            broker in self.cluster.cut_from_clients,
            -1 if node is None else node.image.offset,
        ]

    def _held(self) -> Iterator[tuple[str, object]]:
        """Yield what waits at gates: by the gate and the number of the message, or the place in the line."""
        for kind, gate in self.cluster.gates.items():
            for number, held in enumerate(gate.waiting):
                letter = held.letter
                if not isinstance(letter, Letter):
                    yield f"{kind}/{held.what}", [kind, number, "", "", held.what, []]
                    continue
                source, target = letter.link.source, letter.link.target
                places = self._places(letter.name, letter.message)
                yield f"{kind}/{letter.number}", [kind, number, source, target, letter.name, places]

    def _places(self, name: str, message: Any) -> list[object]:
        """Return what a message says of each partition that it is about."""
        places: list[object] = []
        if name == "FetchRequest":
            for topic in message.topics:
                for each in topic.partitions:
                    said = {"offset": each.fetch_offset, "epoch": each.current_leader_epoch}
                    places.append({"partition": self._place(topic, each.partition), **said})
        elif name == "FetchResponse":
            for topic in message.responses:
                for each in topic.partitions:
                    offsets = _offsets(each.records)
                    said = {"offsets": offsets, "high_watermark": each.high_watermark, "error": each.error_code}
                    places.append({"partition": self._place(topic, each.partition_index), **said})
        elif name == "AlterPartitionRequest":
            for topic in message.topics:
                for each in topic.partitions:
                    in_sync = [state.broker_id for state in each.new_isr_with_epochs] or list(each.new_isr)
                    said = {"isr": in_sync, "epoch": each.leader_epoch, "partition_epoch": each.partition_epoch}
                    places.append({"partition": self._place(topic, each.partition_index), **said})
        elif name == "WriteTxnMarkersRequest":
            for marker in message.markers:
                outcome = "commit" if marker.transaction_result else "abort"
                said = {"outcome": outcome, "producer_id": marker.producer_id, "epoch": marker.producer_epoch}
                for topic in marker.topics:
                    for number in topic.partition_indexes:
                        places.append({"partition": f"{topic.name}-{number}", **said})
        return places[:PLACES_MAX]

    def _place(self, topic: Any, number: int) -> str:
        known = self.image.topics_by_id.get(bytes(topic.topic_id))
        return f"{known.name if known is not None else '?'}-{number}"

    def state_of(self, broker: int) -> str:
        return self.cluster.states[broker]


def link_row(link: Link) -> list[object]:
    """Return what a link does to messages."""
    return [link.is_cut, link.delay_ms, link.jitter_ms, link.bytes_per_s, link.lost_share]


def _offsets(records: Any) -> list[int]:
    """Return the first and the last offset of some batches, nothing if there are none."""
    found = [(batch.base_offset, batch.next_offset - 1) for batch in batches(records)] if records else []
    return [found[0][0], found[-1][1]] if found else []

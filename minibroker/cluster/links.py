"""The cables of a cluster: between brokers, to the controller, and to the clients.

The ends are brokers by their ids, "controller", and "clients": all who come through a port.
What must hold: to a client a broker that is cut off looks as a machine whose cable is out: nothing comes, nothing is
taken, no connection ends.
"""

from __future__ import annotations

from minibroker.event_kinds import Link as LinkChanged

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from minibroker.cluster.nodes import Nodes
    from minibroker.replication.network import Link, NodeId

CLIENTS = "clients"
LINK_NUMBERS = ("delay_ms", "jitter_ms", "bytes_per_s", "lost_share")  # that an event tells
AS_AT_FIRST = dict.fromkeys(("delay_ms", "jitter_ms", "lost_share", "twice_share", "late_share", "bytes_per_s"), 0)


class Links:
    """What can be done to the links of a cluster."""

    def __init__(self, cluster: Nodes):
        self.cluster = cluster
        self.network = cluster.network

    def cut(self, a: NodeId, b: NodeId, *, one_way: bool = False) -> None:
        """Let nothing through between two: brokers, "controller", "clients"; one_way: only from a to b."""
        broker = self._broker_of_clients(a, b)
        if broker is None:
            for link in self._links(a, b, one_way):
                if not link.is_cut:
                    self._set(link, "cut", is_cut=True)
        elif broker not in self.cluster.cut_from_clients:
            self.cluster.cut_from_clients[broker] = None
            self.apply(broker)
            self._tell(CLIENTS, broker, "cut")

    def heal(self, a: NodeId | None = None, b: NodeId | None = None, *, one_way: bool = False) -> None:
        """Undo the cuts between two, or of one to everybody; without either make every link as it was at first."""
        if a is None:
            for link in list(self.network.links.values()):  # what flows may find a link that nobody has used yet
                self._heal(link, **AS_AT_FIRST)
            for each in list(self.cluster.cut_from_clients):
                self._heal_clients(each)
            return
        others = [b] if b is not None else [each for each in (*self.cluster.states, CLIENTS) if each != a]
        for other in others:
            broker = self._broker_of_clients(a, other)
            if broker is not None:
                self._heal_clients(broker)
            elif CLIENTS not in (a, other):
                for link in self._links(a, other, one_way):
                    self._heal(link)

    def isolate(self, broker: NodeId) -> None:
        """Cut a broker off from everybody, clients too."""
        for other in (*self.cluster.states, CLIENTS):
            if other != broker and not (isinstance(broker, str) and other == CLIENTS):
                self.cut(broker, other)

    def split(self, *groups: Iterable[NodeId]) -> None:
        """Cut every link from one group to another: 1,2 3,controller.

        In Python: split([1, 2], [3, "controller"]).
        """
        members = [list(group) for group in groups]
        for number, group in enumerate(members):
            for other in members[number + 1 :]:
                for a in group:
                    for b in other:
                        self.cut(a, b)

    def delay(self, a: NodeId, b: NodeId, ms: float, *, jitter_ms: float = 0, one_way: bool = False) -> None:
        """Let messages between two take so long, and up to the jitter longer; 0 undoes it."""
        for link in self._links(a, b, one_way):
            self._set(link, "delayed", delay_ms=ms, jitter_ms=jitter_ms)

    def throttle(self, a: NodeId, b: NodeId, bytes_per_s: int, *, one_way: bool = False) -> None:
        """Let so many bytes a second through between two; 0 is any number."""
        for link in self._links(a, b, one_way):
            self._set(link, "throttled", bytes_per_s=bytes_per_s)

    def lose(self, a: NodeId, b: NodeId, share: float, *, one_way: bool = False) -> None:
        """Lose a share of the messages between two, 0 to 1."""
        for link in self._links(a, b, one_way):
            self._set(link, "losing", lost_share=share)

    def _links(self, a: NodeId, b: NodeId, one_way: bool) -> list[Link]:
        self._check(a, b)
        there = self.network.link(a, b)
        return [there] if one_way else [there, self.network.link(b, a)]

    def _set(self, link: Link, what: str, **attributes: float) -> None:
        for name, value in attributes.items():
            setattr(link, name, value)
        self._tell(link.source, link.target, what)

    def _heal(self, link: Link, **attributes: float) -> None:
        """Undo a cut, and let flow what is due."""
        was_cut, link.is_cut = link.is_cut, False
        for name, value in attributes.items():
            setattr(link, name, value)
        if was_cut:
            self._tell(link.source, link.target, "healed")
        link.flow()

    # Clients

    def apply(self, broker: int) -> None:
        """Have a broker see of its clients what it is to see: after a cut, and after its start."""
        node = self.cluster.nodes.get(broker)
        if node is not None and broker in self.cluster.cut_from_clients:
            for server in node.servers:
                server.pause()

    def _heal_clients(self, broker: int) -> None:
        if broker in self.cluster.cut_from_clients:
            del self.cluster.cut_from_clients[broker]
            node = self.cluster.nodes.get(broker)
            if node is not None and self.cluster.states[broker] == "running":
                for server in node.servers:
                    server.resume()
            self._tell(CLIENTS, broker, "healed")

    def _broker_of_clients(self, a: NodeId | None, b: NodeId | None) -> int | None:
        """Return the broker at the other end of a link to the clients, None if it is no such link."""
        for one, other in ((a, b), (b, a)):
            if one == CLIENTS and isinstance(other, int):
                self._check(other)
                return other
        return None

    def _check(self, *ends: NodeId) -> None:
        for end in ends:
            self.cluster.check(end)

    def _tell(self, source: NodeId, target: NodeId, what: str) -> None:
        events = self.cluster.events
        if events.observed:
            found = self.network.links.get((source, target))  # none for clients: their links are cut, no more
            numbers = {name: getattr(found, name) for name in LINK_NUMBERS} if found is not None else {}
            events.emit(LinkChanged(source=str(source), target=str(target), what=what, **numbers))

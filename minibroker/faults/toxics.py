"""Toxics: what can be wrong with a stream of bytes, by the names and attributes of Toxiproxy.

    latency      latency, jitter (ms)                              everything comes later
    bandwidth    rate (KB/s)                                       no more than so much in a second
    slow_close   delay (ms)                                        the end of the stream comes later
    timeout      timeout (ms)                                      nothing gets through; closed after that, 0: never
    reset_peer   timeout (ms)                                      reset, that long after the first bytes
    slicer       average_size, size_variation (bytes), delay (us)  cut into small pieces
    limit_data   bytes                                             closed after so many

A toxic is set for one direction: upstream is what the client sends, downstream what it gets. Each connection that is
struck (toxicity is the probability of that) has a stage for it, and its bytes go through the stages in their order.
What must hold: a stage passes bytes on in the order in which they came, and when it is taken away it passes on at once
what it holds; only timeout, as Toxiproxy's, has lost bytes and so ends its connections.
Not here: how a stage gets between a transport and its protocol (links.py).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

from minibroker.faults import FaultError
from minibroker.faults.links import DOWNSTREAM, UPSTREAM, Link, Stage
from minibroker.server.connection import Connection

TYPE_CHECKING = False
if TYPE_CHECKING:
    from random import Random

    from minibroker.clock import Clock
    from minibroker.server.server import Server

ATTRIBUTE_MAX = 1 << 53
TOXICS_MAX = 100
SLICE_MS = 100  # bandwidth passes on what a tenth of a second allows


class Latency(Stage):
    """Each piece leaves so long after it came, and none before the one ahead of it."""

    def __init__(self, attributes: dict[str, int], clock: Clock, chance: Random):
        super().__init__(attributes, clock, chance)
        self._due_ms: deque[int] = deque()

    def feed(self, data: bytes) -> None:
        jitter = self.attributes["jitter"]
        delay_ms = self.attributes["latency"] + (self.chance.randrange(2 * jitter) - jitter if jitter else 0)
        self._hold(data)
        self._due_ms.append(self.clock.elapsed_ms() + max(delay_ms, 0))
        self._wait()

    def finish(self) -> None:
        if self._held:
            self._due_ms.append(self._due_ms[-1])
        super().finish()

    def _wait(self) -> None:
        if self._timer is None and self._held:
            self._after(max(self._due_ms[0] - self.clock.elapsed_ms(), 0), self._let_go)

    def _let_go(self) -> None:
        elapsed_ms = self.clock.elapsed_ms()
        while self._held and self._due_ms[0] <= elapsed_ms:
            self._due_ms.popleft()
            self._pass_one()
        self._wait()


class Paced(Stage):
    """A stage that passes on one piece after the other, with a pause before or behind each."""

    def feed(self, data: bytes) -> None:
        for piece in self.pieces(data):
            self._hold(piece)
        self._wait()

    def _wait(self) -> None:
        if self._timer is None and self._held:
            self._after(self.pause_ms(self._held[0]), self._let_go)

    def _let_go(self) -> None:
        if self._held:
            self._pass_one()
        self._wait()

    def pieces(self, data: bytes) -> Sequence[bytes]:
        raise NotImplementedError

    def pause_ms(self, piece: bytes) -> float:
        """Return how long to wait before a piece leaves."""
        raise NotImplementedError


class Bandwidth(Paced):
    """So many bytes in a millisecond: a rate in KB/s is just that."""

    def pieces(self, data: bytes) -> Sequence[bytes]:
        size_bytes = self.attributes["rate"] * SLICE_MS or len(data)
        return [data[start : start + size_bytes] for start in range(0, len(data), size_bytes)]

    def pause_ms(self, piece: bytes) -> float:
        rate = self.attributes["rate"]
        return len(piece) / rate if rate else 0


class Slicer(Paced):
    """Small pieces, as a network with small packets delivers them."""

    def pieces(self, data: bytes) -> Sequence[bytes]:
        average, variation = self.attributes["average_size"], self.attributes["size_variation"]
        pieces = []
        start = 0
        while start < len(data):
            size_bytes = average + (self.chance.randrange(-variation, variation + 1) if variation else 0)
            pieces.append(data[start : start + max(size_bytes, 1)])
            start += len(pieces[-1])
        return pieces

    def pause_ms(self, piece: bytes) -> float:
        return self.attributes["delay"] / 1000


class SlowClose(Stage):
    """The end comes later."""

    def finish(self) -> None:
        self._hold(b"")
        self._after(self.attributes["delay"], self.leave)


class Timeout(Stage):
    """Nothing gets through; with a timeout the connection is closed then."""

    def start(self) -> None:
        if self.attributes["timeout"]:
            self._after(self.attributes["timeout"], self.close)

    def feed(self, data: bytes) -> None:
        """Lose it."""

    def finish(self) -> None:
        """Lose that too: the other side is to notice nothing."""

    def leave(self) -> None:
        self.stop()
        self.close()


class ResetPeer(Stage):
    """A reset, as of a machine that has crashed; what is under way is lost."""

    def feed(self, data: bytes) -> None:
        if self._timer is None:
            self._after(self.attributes["timeout"], self.reset)

    def leave(self) -> None:
        if self._timer is not None:  # it has swallowed bytes
            self.stop()
            self.reset()


class LimitData(Stage):
    """So many bytes, then the end."""

    def __init__(self, attributes: dict[str, int], clock: Clock, chance: Random):
        super().__init__(attributes, clock, chance)
        self._left_bytes = attributes["bytes"]

    def feed(self, data: bytes) -> None:
        passed = data[: self._left_bytes]
        self._left_bytes -= len(passed)
        if passed:
            self.out(passed)
        if not self._left_bytes:
            self.end()


# Type -> its stage, and its attributes; all are 0 if nothing is said, as with Toxiproxy.
TYPES: dict[str, tuple[type[Stage], tuple[str, ...]]] = {
    "latency": (Latency, ("latency", "jitter")),
    "bandwidth": (Bandwidth, ("rate",)),
    "slow_close": (SlowClose, ("delay",)),
    "timeout": (Timeout, ("timeout",)),
    "reset_peer": (ResetPeer, ("timeout",)),
    "slicer": (Slicer, ("average_size", "size_variation", "delay")),
    "limit_data": (LimitData, ("bytes",)),
}


class Toxic:
    """A toxic as it was asked for, checked."""

    def __init__(
        self,
        *,
        type: Any = "",
        name: Any = "",
        stream: Any = DOWNSTREAM,
        toxicity: Any = 1.0,
        attributes: Any = None,
    ):
        if not isinstance(type, str) or type not in TYPES:
            raise FaultError(f"there is no toxic {type!r}; there are {', '.join(TYPES)}")
        if stream not in (UPSTREAM, DOWNSTREAM):
            raise FaultError(f"stream {stream!r}: {UPSTREAM} and {DOWNSTREAM} are")
        if isinstance(toxicity, bool) or not isinstance(toxicity, (int, float)) or not 0 <= toxicity <= 1:
            raise FaultError(f"toxicity {toxicity!r} is no probability; 0 to 1 is")
        if not isinstance(name, str) or "/" in name:
            raise FaultError(f"{name!r} is no name for a toxic")
        self.stage, known = TYPES[type]
        self.type: str = type
        self.name: str = name or f"{type}_{stream}"
        self.stream: str = stream
        self.toxicity: float = toxicity
        self.attributes: dict[str, int] = dict.fromkeys(known, 0)
        for key, value in (attributes or {}).items():
            if key not in known:
                raise FaultError(f"{type} has no attribute {key!r}; it has {', '.join(known)}")
            if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= ATTRIBUTE_MAX:
                raise FaultError(f"{key}: {value!r} is no whole number from 0 to {ATTRIBUTE_MAX}")
            self.attributes[key] = value
        if type == "slicer" and not self.attributes["size_variation"] < max(self.attributes["average_size"], 1):
            raise FaultError("slicer: size_variation has to be smaller than average_size")
        if type == "slicer" and not self.attributes["average_size"]:
            raise FaultError("slicer: average_size has to be 1 at least")

    def as_json(self) -> dict[str, Any]:
        """Return it in the shape of Toxiproxy's API."""
        return {
            "name": self.name,
            "type": self.type,
            "stream": self.stream,
            "toxicity": self.toxicity,
            "attributes": self.attributes,
        }


class Toxics:
    """The toxics of one broker, and the connections that they strike."""

    def __init__(self, servers: Sequence[Server], clock: Clock, chance: Random):
        self.by_name: dict[str, Toxic] = {}
        self._servers = servers
        self._clock = clock
        self._chance = chance
        self._links: dict[Connection, Link] = {}

    def add(self, /, **wanted: Any) -> Toxic:
        """Set a toxic, for new connections and for those that are there; FaultError says why it cannot be."""
        unknown = wanted.keys() - {"type", "name", "stream", "toxicity", "attributes"}
        if unknown:
            raise FaultError(f"{', '.join(sorted(unknown))}: a toxic has name, type, stream, toxicity, attributes")
        if not isinstance(wanted.get("attributes") or {}, dict):
            raise FaultError("attributes: a JSON object, such as {'latency': 100}")
        toxic = Toxic(**{name: value for name, value in wanted.items() if value is not None})
        if toxic.name in self.by_name:
            raise FaultError(f"there is a toxic {toxic.name!r} already")
        if len(self.by_name) >= TOXICS_MAX:
            raise FaultError(f"there are {TOXICS_MAX} toxics already")
        self.by_name[toxic.name] = toxic
        for server in self._servers:
            server.toxics = self
            for connection in list(server.connections):
                self._strike(connection, toxic)  # type: ignore[arg-type]  # who may be toxic is a Connection
        return toxic

    def remove(self, name: str) -> Toxic:
        """Take a toxic away."""
        toxic = self.by_name.pop(name)
        if not self.by_name:
            for server in self._servers:
                server.toxics = None
        for link in list(self._links.values()):
            link.remove(name)
        return toxic

    def opened(self, connection: Connection) -> None:
        """Take note of a new connection."""
        for toxic in self.by_name.values():
            self._strike(connection, toxic)

    def _strike(self, connection: Connection, toxic: Toxic) -> None:
        if not connection.may_be_toxic or connection.is_closing or self._chance.random() >= toxic.toxicity:
            return
        link = self._links.get(connection)
        if link is None:
            link = self._links[connection] = Link(connection, self._forget)
        link.add(toxic.name, toxic.stream, toxic.stage(toxic.attributes, self._clock, self._chance))

    def _forget(self, connection: Connection) -> None:
        self._links.pop(connection, None)

"""A link of the network: one direction between two nodes, and the messages that are under way on it.

What must hold: messages arrive in the order in which they were sent, as over TCP; only `late_share` breaks that. What
is under way on a link that is cut stays there until it is healed.
Not here: who is at the ends (network.py).
"""

from __future__ import annotations

from collections import deque

from minibroker.errors import Error, KafkaError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from asyncio import Future
    from typing import Any

    from minibroker.clock import Timer
    from minibroker.replication.gate import Gate, Held
    from minibroker.replication.network import Network

    NodeId = int | str  # a broker's id, or a name such as "controller"

CONTROLLER = "controller"
LATE_MS_MAX = 60_000


class NetworkError(KafkaError):
    """A call without an answer: nobody knows what became of it."""

    def __init__(self, message: str, code: Error = Error.NETWORK_EXCEPTION):
        super().__init__(code, message)


class Letter:
    """A message under way."""

    __slots__ = ("call", "held", "is_answer", "is_copy", "is_due", "link", "message", "number", "size_bytes")

    def __init__(self, number: int, link: Link, message: Any, call: Call, *, is_answer: bool, is_copy: bool = False):
        self.number = number
        self.link = link
        self.message = message
        self.call = call
        self.is_answer = is_answer
        self.is_copy = is_copy
        self.is_due = False  # it has travelled long enough
        self.size_bytes = 0  # only known if somebody had to encode it
        self.held: tuple[Gate, Held] | None = None

    @property
    def name(self) -> str:
        return type(self.message).__name__

    def __str__(self) -> str:
        return f"{self.name} {self.link}"


class Call:
    """A request and whoever waits for its answer."""

    __slots__ = ("epochs", "future", "is_late", "letters", "source", "target", "timer", "version")

    def __init__(self, source: NodeId, target: NodeId, version: int, future: Future[Any], epochs: tuple[int, int]):
        self.source = source
        self.target = target
        self.version = version
        self.future = future
        self.epochs = epochs  # the lives of source and target that it belongs to
        self.is_late = False  # what is under way arrives though nobody waits for it
        self.letters: list[Letter] = []
        self.timer: Timer | None = None


class Link:
    """One direction between two nodes: what it does to messages. Set the attributes as you like."""

    def __init__(self, network: Network, source: NodeId, target: NodeId):
        self.source = source
        self.target = target
        self.delay_ms = 0.0
        self.jitter_ms = 0.0  # up to this is added
        self.bytes_per_s = 0  # 0: any number
        self.lost_share = 0.0  # of messages, 0 to 1
        self.twice_share = 0.0  # arrive twice
        self.late_share = 0.0  # arrive long after, when the caller may have asked again
        self.is_cut = False
        self.sent_count = 0
        self._network = network
        self._line: deque[Letter] = deque()  # while it is throttled: what is being sent, and what waits for that
        self._queue: deque[Letter] = deque()  # what travels, in the order in which it will arrive

    def __str__(self) -> str:
        return f"{self.source}->{self.target}"

    @property
    def under_way(self) -> list[Letter]:
        """What was sent and has not arrived."""
        return [*self._queue, *self._line]

    def send(self, letter: Letter) -> None:
        """Take a message that has passed the gates."""
        self.sent_count += 1
        chance = self._network.chance
        if self.lost_share and chance.random() < self.lost_share:
            self._network.tell(letter, "lost")
            return
        if self.late_share and chance.random() < self.late_share:
            letter.call.is_late = True
            self._network.tell(letter, "made late")
            self._network.clock.after(
                chance.uniform(0, LATE_MS_MAX), lambda: None if self.is_cut else self._network.deliver(letter)
            )
            return
        self._put(letter)
        if self.twice_share and not letter.is_answer and chance.random() < self.twice_share:
            copy = Letter(letter.number, self, letter.message, letter.call, is_answer=False, is_copy=True)
            copy.size_bytes = letter.size_bytes
            self._put(copy)

    def _put(self, letter: Letter) -> None:
        if not self.bytes_per_s and not self._line:
            self._travel(letter)
            return
        self._line.append(letter)
        if len(self._line) == 1:
            self._transmit()

    def _transmit(self) -> None:
        """Give the first in line the time that its bytes take."""
        taken_ms = self._line[0].size_bytes * 1000 / self.bytes_per_s if self.bytes_per_s else 0
        self._network.clock.after(taken_ms, self._transmitted)

    def _transmitted(self) -> None:
        self._travel(self._line.popleft())
        if self._line:
            self._transmit()

    def _travel(self, letter: Letter) -> None:
        delay_ms = self.delay_ms
        if self.jitter_ms:
            delay_ms += self._network.chance.uniform(0, self.jitter_ms)
        if not delay_ms and not self._queue and not self.is_cut:
            self._network.deliver(letter)
            return
        self._queue.append(letter)
        # Timers only, and no look at the clock: it may be set wrong meanwhile.
        self._network.clock.after(delay_ms, lambda: self._due(letter))

    def _due(self, letter: Letter) -> None:
        letter.is_due = True
        self.flow()

    def flow(self) -> None:
        """Let arrive what is due, unless the link is cut."""
        while self._queue and self._queue[0].is_due and not self.is_cut:
            self._network.deliver(self._queue.popleft())

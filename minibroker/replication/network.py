"""Links between the brokers of a process, and to the controller: messages as objects, and what can befall them.

    network.attach(1, handler)      handler(source, message, version) -> answer, or a future or coroutine of one
    answer = await network.call(2, 1, FetchRequest(...))

A link is one direction between two nodes. It can be delayed, throttled, cut, lose and repeat messages; a gate can hold
what passes. Requests and answers both travel, each over the link of its direction. Nodes can be paused (what comes
waits, as with a hung machine), gone (calls fail at once, as with a process that was killed) and silent (calls are
swallowed, as with a machine that lost its power).
What must hold: a call ends, by its answer or a NetworkError, at the latest when its time is up. A link keeps the order
of its messages, as TCP does; only `late_share` breaks it. A cut link keeps what is under way until it is healed, as
TCP would send it again; the caller may have given up by then, and then it is not delivered, unless late. The same
calls with the same chance at the same times go the same way. Code of a node runs in the context in which the node was
attached, whoever called: a simulation can stop all of it at once.
Not here: what the messages say (leader.py, follower.py, controller.py), the connections of clients (server/).
"""

from __future__ import annotations

import asyncio
from asyncio import Future
from collections import deque
from collections.abc import Callable
from contextvars import Context, copy_context
from random import Random
from typing import Any

from minibroker.errors import Error, KafkaError
from minibroker.event_kinds import Message as MessageSeen
from minibroker.events import EventStream
from minibroker.protocol.headers import Request
from minibroker.replication.gate import Gate, Held

TYPE_CHECKING = False
if TYPE_CHECKING:
    from minibroker.clock import Clock, Timer

NodeId = int | str  # a broker's id, or a name such as "controller"
Handler = Callable[[NodeId, Any, int], Any]

CONTROLLER = "controller"
LATE_MS_MAX = 60_000
CALL_TIMEOUT_MS = 30_000  # Kafka's replica.socket.timeout.ms
RUNNING, PAUSED, GONE, SILENT = "running", "paused", "gone", "silent"


class NetworkError(KafkaError):
    """A call without an answer: nobody knows what became of it."""

    def __init__(self, message: str, code: Error = Error.NETWORK_EXCEPTION):
        super().__init__(code, message)


class NetworkNode:
    """A node of the network."""

    def __init__(self, handler: Handler, context: Context, epoch: int):
        self.handler = handler
        self.context = context
        self.epoch = epoch  # counts its lives: what was meant for an earlier one is not for this one
        self.state = RUNNING
        self.inbox: deque[Letter] = deque()  # while it is paused
        self.waiting: dict[Future[Any], None] = {}  # answers to come


class Network:
    """Every link between some nodes."""

    def __init__(self, clock: Clock, chance: Random, events: EventStream):
        self.clock = clock
        self.chance = chance
        self.events = events
        self.encodes = False  # messages go as bytes, so that only what their version has arrives
        self.sent_count = 0
        self._nodes: dict[NodeId, NetworkNode] = {}
        self.links: dict[tuple[NodeId, NodeId], Link] = {}
        self._gates: dict[Gate, Callable[[Letter], object]] = {}
        self._calls: dict[Call, None] = {}
        self._lives = 0

    # Nodes

    def attach(self, node: NodeId, handler: Handler) -> None:
        """Let a node be called; what it does runs in the context of now: attach it where its other work is begun."""
        self._lives += 1
        self._nodes[node] = NetworkNode(handler, copy_context(), self._lives)

    def detach(self, node: NodeId, *, silent: bool = False) -> None:
        """A node is gone: calls to it and from it fail; silent: nobody hears anything any more."""
        gone = self._nodes.get(node)
        if gone is None or gone.state in (GONE, SILENT):
            return
        gone.state = SILENT if silent else GONE
        gone.inbox.clear()
        for answer in list(gone.waiting):
            answer.cancel()
        for call in list(self._calls):
            if call.source == node or (call.target == node and not silent):
                self._end(call, NetworkError(f"{node} has gone"))

    def pause(self, node: NodeId) -> None:
        """Let what comes for a node wait. That it does nothing itself is not up to the network."""
        self._nodes[node].state = PAUSED

    def resume(self, node: NodeId) -> None:
        resumed = self._nodes[node]
        resumed.state = RUNNING
        while resumed.inbox and resumed.state == RUNNING:
            self.deliver(resumed.inbox.popleft())

    # Links

    def link(self, source: NodeId, target: NodeId) -> Link:
        """Return the link from one node to another; the way back is another link."""
        link = self.links.get((source, target))
        if link is None:
            link = self.links[source, target] = Link(self, source, target)
        return link

    # Step mode

    def hold(self, name: str, fits: Callable[[Letter], object]) -> Gate:
        """Let messages that fit wait for a token, at the first gate that they fit; `release` takes it away."""
        gate = Gate(name, self.events)
        gate.close()
        self._gates[gate] = fits
        return gate

    def release(self, gate: Gate) -> None:
        """Take a gate away; what waits there goes on."""
        self._gates.pop(gate, None)
        gate.open()

    @property
    def gates(self) -> list[Gate]:
        return list(self._gates)

    # Messages

    async def call(
        self,
        source: NodeId,
        target: NodeId,
        message: Request,
        version: int | None = None,
        *,
        timeout_ms: float = CALL_TIMEOUT_MS,
    ) -> Any:
        """Ask a node and return its answer, or raise NetworkError. Whoever is cancelled asks no more."""
        sender, receiver = self._nodes.get(source), self._nodes.get(target)
        if receiver is None or receiver.state == GONE:
            raise NetworkError(f"{target} is not there")
        epochs = (sender.epoch if sender else 0, receiver.epoch)
        future: Future[Any] = asyncio.get_running_loop().create_future()
        if version is None:
            version = message.schema.last_version
        call = Call(source, target, version, future, epochs)
        self._calls[call] = None
        self._post(Letter(self._next(), self.link(source, target), message, call, is_answer=False))
        if not future.done():
            expired = f"no answer from {target} within {timeout_ms:g} ms"
            call.timer = self.clock.after(
                timeout_ms, lambda: self._end(call, NetworkError(expired, Error.REQUEST_TIMED_OUT))
            )
        try:
            return await future
        finally:
            self._end(call, None)

    def _next(self) -> int:
        self.sent_count += 1
        return self.sent_count

    def _post(self, letter: Letter) -> None:
        """Send a message: through the gates, then over its link."""
        link, call = letter.link, letter.call
        call.letters.append(letter)
        if self.encodes or link.bytes_per_s:
            data = letter.message.encode(call.version)
            letter.size_bytes = len(data)
            if self.encodes:
                letter.message = type(letter.message).decode(data, call.version)
        if "message" in self.events.wanted:
            self.tell(letter, "sent")
        for gate, fits in self._gates.items():
            if fits(letter):
                held = gate.enter(str(letter), lambda: link.send(letter), letter)
                if held is not None:
                    letter.held = (gate, held)
                return
        link.send(letter)

    def deliver(self, letter: Letter) -> None:
        """Hand over what has arrived: a request to its handler, an answer to who waits for it."""
        call = letter.call
        is_wanted = not call.future.done() or call.is_late or letter.is_copy
        node_id, epoch = (call.source, call.epochs[0]) if letter.is_answer else (call.target, call.epochs[1])
        node = self._nodes.get(node_id)
        if not is_wanted or (node is not None and node.epoch != epoch):
            self.tell(letter, "not delivered")
            return
        if node is not None and node.state != RUNNING:
            if node.state == PAUSED:
                node.inbox.append(letter)
            else:
                self.tell(letter, "not delivered")
            return
        if "message" in self.events.wanted:
            self.tell(letter, "delivered")
        if letter.is_answer:
            self._end(call, None, letter.message)
        elif node is not None:
            self._handle(node, letter)

    def _handle(self, node: NetworkNode, letter: Letter) -> None:
        call = letter.call
        # In a copy, for a context can be entered only once: nodes call each other while they are called.
        context = node.context.copy()
        try:
            answer = context.run(node.handler, call.source, letter.message, call.version)
        except Exception as failure:
            self._failed(call, failure)
            return
        if not hasattr(answer, "__await__"):
            self._answer(letter, answer)
            return
        waiting: Future[Any] = answer
        if not asyncio.isfuture(answer):
            waiting = asyncio.get_running_loop().create_task(answer, context=context)
        node.waiting[waiting] = None
        waiting.add_done_callback(lambda done: self._finish(node, letter, done), context=context)

    def _finish(self, node: NetworkNode, letter: Letter, done: Future[Any]) -> None:
        node.waiting.pop(done, None)
        if done.cancelled():
            return
        if failure := done.exception():
            self._failed(letter.call, failure)
        else:
            self._answer(letter, done.result())

    def _answer(self, letter: Letter, message: Any) -> None:
        call = letter.call
        if message is None or letter.is_copy or (call.future.done() and not call.is_late):
            return
        if self._nodes[call.target].epoch == call.epochs[1]:
            self._post(Letter(letter.number, self.link(call.target, call.source), message, call, is_answer=True))

    def _failed(self, call: Call, failure: BaseException) -> None:
        """A handler has an error that nobody expected: ours. To the caller it is a connection that broke."""
        asyncio.get_running_loop().call_exception_handler(
            {"message": f"{call.target} failed at a call of {call.source}", "exception": failure}
        )
        broken = NetworkError(f"{call.target} closed the connection")
        broken.__cause__ = failure
        self._end(call, broken)

    def _end(self, call: Call, failure: NetworkError | None, answer: Any = None) -> None:
        """A call is over; what of it is still under way does not arrive, unless it is late."""
        self._calls.pop(call, None)
        if call.timer is not None:
            call.timer.cancel()
            call.timer = None
        if not call.future.done():
            if failure is not None:
                call.future.set_exception(failure)
            elif answer is not None:
                call.future.set_result(answer)
        if answer is None and not call.is_late:
            for letter in call.letters:
                if letter.held is not None:
                    letter.held[0].give_up(letter.held[1])
        call.letters.clear()

    def tell(self, letter: Letter, state: str) -> None:
        if "message" in self.events.wanted:
            self.events.emit(
                MessageSeen(
                    source=str(letter.link.source),
                    target=str(letter.link.target),
                    name=letter.name,
                    letter=letter.number,
                    state=state,
                )
            )


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
        self._network = network
        self._line: deque[Letter] = deque()  # while it is throttled: what is being sent, and what waits for that
        self._queue: deque[Letter] = deque()  # what travels, in the order in which it will arrive

    def __str__(self) -> str:
        return f"{self.source}->{self.target}"

    def send(self, letter: Letter) -> None:
        """Take a message that has passed the gates."""
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

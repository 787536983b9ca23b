"""A cluster of another process on the screen: its state comes over HTTP, and keys go there as verbs.

    async with RemoteScreen(addresses) as screen: ...

One question is always under way, `watch`, which is answered when there is something new (cluster/watchers.py). Which
broker is asked does not matter, so whoever answers is kept until he does not, or says himself that he is about to be
killed, paused or cut off; addresses that were not named are learned from the state.
What must hold: a broker that hangs costs ANSWER_MS_MAX and no more; if nobody answers, the screen says so and goes on
asking.
"""

from __future__ import annotations

import asyncio

from minibroker.cli.cluster import arguments_of
from minibroker.cli.connect import Refused
from minibroker.client.control import Refusal, ask
from minibroker.clock import LoopClock
from minibroker.watch.screen import Screen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import TracebackType
    from typing import Any, Self

    from minibroker.cluster.snapshot import ClusterState

    Address = tuple[str, int]

REFRESH_MS = 100  # nothing is asked more often, however much happens
WAIT_MS = 1_000  # the time on the screen goes on at least so often
ANSWER_MS_MAX = 1_500  # on top of what an answer may wait: who takes longer hangs
VERB_MS = 30_000  # a broker may take a while to start
AGAIN_MS = 500  # before all are asked again, when nobody answered


class RemoteScreen(Screen):
    """A cluster that is asked for everything."""

    def __init__(self, addresses: Sequence[Address]):
        super().__init__()
        self.addresses = list(addresses)
        self._clock = LoopClock()
        self._state: ClusterState | None = None
        self._number = -1  # of the last event that was told
        self._is_lost = False
        self._asking: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        """Begin, or raise OSError if nobody answers, Refusal if it is no cluster that does."""
        await self.look()
        self._asking = asyncio.get_running_loop().create_task(self._keep_asking())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.gather(self._asking, return_exceptions=True)

    def state(self) -> ClusterState | None:
        return self._state

    async def do(self, line: str) -> str:
        verb, *words = line.split()
        try:
            arguments = arguments_of(verb, words)
            if verb == "advance":
                arguments["sessions"] = True  # as in a lesson: what brokers say to each other is what is looked at
            await self._ask("waiting", {}, ANSWER_MS_MAX)  # then the first address is one that answers:
            await self._ask_one(self.addresses[0], verb, arguments, VERB_MS)  # no verb may be asked for twice
        except (Refusal, Refused, OSError) as failure:
            return str(failure) or "nobody answers"
        return ""

    # The question that is always under way

    async def look(self, wait_ms: int = 0) -> None:
        """Take in what is new."""
        news = await self._ask("watch", {"since": self._number, "wait_ms": wait_ms}, wait_ms + ANSWER_MS_MAX)
        self._state = news["state"]
        self._number = news["number"]
        self.said += [(event["at_ms"], event["sentence"]) for event in news["events"]]
        self._order_addresses(news["state"])
        self.changed()

    async def _keep_asking(self) -> None:
        while True:
            try:
                await self.look(WAIT_MS)
            except OSError:
                self._say_lost(is_lost=True)
                await self._clock.sleep(AGAIN_MS)
            except Refusal as refusal:  # another program has the port now
                self.words = [str(refusal)]
                self.changed()
                await self._clock.sleep(AGAIN_MS)
            else:
                self._say_lost(is_lost=False)
                await self._clock.sleep(REFRESH_MS)

    def _say_lost(self, *, is_lost: bool) -> None:
        if is_lost != self._is_lost:
            self._is_lost = is_lost
            self.words = ["Nobody answers any more; this is how it was last."] if is_lost else []
            self.changed()

    # Whom to ask

    async def _ask(self, verb: str, arguments: Mapping[str, Any], timeout_ms: float) -> Any:
        """Ask the first that answers; OSError if nobody does."""
        failure: OSError = ConnectionError("there is nobody to ask")
        for address in list(self.addresses):
            try:
                return await self._ask_one(address, verb, arguments, timeout_ms)
            except OSError as error:
                failure = error
                if address in self.addresses:  # the last to be asked from now on
                    self.addresses.remove(address)
                    self.addresses.append(address)
        raise failure

    async def _ask_one(self, address: Address, verb: str, arguments: Mapping[str, Any], timeout_ms: float) -> Any:
        path = f"/cluster/{verb}"
        return await ask(*address, "POST", path, arguments, clock=self._clock, timeout_ms=timeout_ms)

    def _order_addresses(self, state: ClusterState) -> None:
        """Put those in front that can answer. Those that were named come before those that were learned."""
        silent = set()
        for broker in state["brokers"]:
            host, _, port = broker["address"].partition(",")[0].rpartition(":")
            if not port:
                continue
            address = (host.strip("[]"), int(port))
            if address not in self.addresses:
                self.addresses.append(address)
            if broker["state"] != "running" or broker["is_cut_from_clients"]:
                silent.add(address)
        self.addresses.sort(key=lambda each: each in silent)

"""A cluster of another process on the screen: its state comes as server-sent events, and keys go there as verbs.

    async with RemoteScreen(addresses) as screen: ...

One stream is always open, `/api/events` (docs/http.md). Which broker sends it does not matter, so whoever does is kept
until he does not, or says himself that he is about to be killed, paused or cut off; then the next one goes on where he
stopped. Addresses that were not named are learned from the state.
What must hold: a broker that hangs costs SILENCE_MS_MAX and no more; if nobody answers, the screen says so and goes on
asking. Of a cluster with too many partitions some are shown, those in trouble first, and it is said how many.
"""

from __future__ import annotations

import asyncio
from urllib.parse import quote

from minibroker.cli.cluster import arguments_of
from minibroker.cli.connect import Refused
from minibroker.client.control import Refusal, ask
from minibroker.client.event_source import EventSource
from minibroker.clock import LoopClock
from minibroker.event_kinds import is_internal, is_shown
from minibroker.events import KINDS, from_json
from minibroker.view.reduce import reduce
from minibroker.watch.from_view import cluster_state
from minibroker.watch.screen import Screen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import TracebackType
    from typing import Any, Self

    from minibroker.cluster.snapshot import ClusterState

    Address = tuple[str, int]

ANSWER_MS_MAX = 1_500  # who takes longer to answer hangs
SILENCE_MS_MAX = 2_500  # and who has sent nothing for so long: something comes once a second
PARTS_MAX, GROUPS_MAX = 64, 8  # that can be asked for
VERB_MS = 30_000  # a broker may take a while to start
AGAIN_MS = 500  # before all are asked again, when nobody answered


class RemoteScreen(Screen):
    """A cluster that is asked for everything."""

    def __init__(self, addresses: Sequence[Address]):
        super().__init__()
        self.addresses = list(addresses)
        self._clock = LoopClock()
        self._view: dict[str, Any] = {}  # the state as it came
        self._last_id = ""  # of the last frame
        self._query = "contents=1"
        self._shown = ""  # what is not shown, in words
        self._is_lost = False
        self._source: EventSource | None = None
        self._reading: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        """Begin, or raise OSError if nobody answers, Refusal if what answers is no broker of ours."""
        await self.look()
        self._reading = asyncio.get_running_loop().create_task(self._keep_reading())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)
        self._close()

    def state(self) -> ClusterState | None:
        return cluster_state(self._view) if self._view else None

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

    # The stream that is always open

    async def look(self) -> None:
        """Take in what comes next; the first time, a whole state."""
        if self._source is None:
            await self._connect()
        assert self._source is not None
        try:
            event, self._last_id, data = await self._source.next(timeout_ms=SILENCE_MS_MAX)
        except OSError:
            self._close()
            raise
        self._view = data if event == "state" else reduce(self._view, data)
        for row in data.get("said", ()):
            if row["kind"] in KINDS and is_shown(seen := from_json(row)):
                self.said.append((seen.at_ms, seen.sentence))
        self._order_addresses()
        if event == "state" and self._choose_parts(data):
            self._close()  # all of it was too much: some of it is asked for
            self._last_id = ""
            await self.look()
        self.changed()

    async def _connect(self) -> None:
        """Have the first that answers send what happens; OSError if nobody does."""
        failure: OSError = ConnectionError("there is nobody to ask")
        path = f"/api/events?{self._query}"
        for address in list(self.addresses):
            try:
                self._source = await EventSource.open(
                    *address, path, clock=self._clock, timeout_ms=ANSWER_MS_MAX, last_id=self._last_id
                )
                return
            except OSError as error:
                failure = error
                self._ask_last(address)
        raise failure

    def _close(self) -> None:
        if self._source is not None:
            self._source.close()
            self._source = None

    def _choose_parts(self, view: Mapping[str, Any]) -> bool:
        """Choose what is to be shown, if not all of it can be; return whether that is another choice."""
        left_out = view["left_out"]
        if not left_out or "&" in self._query:
            return False
        cells = [
            (letter in "kp", topic, number)
            for topic, letters in view["cells"].items()
            if not is_internal(topic)
            for number, letter in enumerate(letters)
        ]
        parts = [f"{topic}-{number}" for _, topic, number in sorted(cells)[:PARTS_MAX]]
        groups = sorted(view["groups"])[:GROUPS_MAX]
        self._query += "".join([f"&parts={','.join(parts)}", *(f"&groups={quote(group)}" for group in groups)])
        counts = [f"{len(parts)} of {len(cells):,} partitions" if len(cells) > len(parts) else ""]
        counts.append(f"{len(groups)} of {len(view['groups']):,} groups" if len(groups) < len(view["groups"]) else "")
        self._shown = f"Shown are {' and '.join(filter(None, counts))}."
        self.words = self._usual_words()
        return True

    def _usual_words(self) -> list[str]:
        return [self._shown] if self._shown else []

    async def _keep_reading(self) -> None:
        while True:
            try:
                await self.look()
            except OSError:
                if self._source is None and not await self._is_anybody_there():
                    self._say_lost(is_lost=True)
                    await self._clock.sleep(AGAIN_MS)
            except Refusal as refusal:  # another program has the port now, or too many look
                self.words = [str(refusal)]
                self.changed()
                await self._clock.sleep(AGAIN_MS)
            else:
                self._say_lost(is_lost=False)

    async def _is_anybody_there(self) -> bool:
        try:
            await self._connect()
        except (OSError, Refusal):
            return False
        return True

    def _say_lost(self, *, is_lost: bool) -> None:
        if is_lost != self._is_lost:
            self._is_lost = is_lost
            self.words = ["Nobody answers any more; this is how it was last."] if is_lost else self._usual_words()
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
                self._ask_last(address)
        raise failure

    def _ask_last(self, address: Address) -> None:
        if address in self.addresses:
            self.addresses.remove(address)
            self.addresses.append(address)

    async def _ask_one(self, address: Address, verb: str, arguments: Mapping[str, Any], timeout_ms: float) -> Any:
        path = f"/cluster/{verb}"
        return await ask(*address, "POST", path, arguments, clock=self._clock, timeout_ms=timeout_ms)

    def _order_addresses(self) -> None:
        """Put those in front that can answer. Those that were named come before those that were learned."""
        silent = set()
        for address_text, state, _, _, is_cut, _ in self._view["brokers"].values():
            host, _, port = address_text.partition(",")[0].rpartition(":")
            if not port:
                continue
            address = (host.strip("[]"), int(port))
            if address not in self.addresses:
                self.addresses.append(address)
            if state != "running" or is_cut:
                silent.add(address)
        self.addresses.sort(key=lambda each: each in silent)

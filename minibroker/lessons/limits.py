"""The clients of a lesson that may take no more than somebody lets them: what they send, and when they are heard.

A real client that is told throttle_time_ms waits by itself, so nobody sees that the broker would have made it wait.
These do what they are commanded: they may knock while they should be silent.
What must hold: how much is counted, and of whom, is what the broker itself has counted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from minibroker.clock.steered import duration_ms
from minibroker.lessons.clients import LONG_PATIENCE_MS, Asking, NotPossible, check
from minibroker.log.build import build_batch
from minibroker.log.records import Record
from minibroker.protocol.framing import encode_request
from minibroker.protocol.messages.alter_client_quotas import AlterClientQuotasRequest
from minibroker.protocol.messages.metadata import MetadataRequest
from minibroker.protocol.messages.produce import ProduceRequest

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from minibroker.clock.steered import SteeredClock
    from minibroker.lessons.commands import Command
    from minibroker.lessons.sharing import Place

LENGTH_BYTES = 4  # in front of a request, and not counted
PRODUCE_VERSION = 9  # the first that is written as today's are
ANONYMOUS = "ANONYMOUS"  # who has not logged in
ANSWER_MS = 30_000
HEARD_S = 0.5  # by the loop: a broker that takes something has answered then
WANTED_MS = 20  # so often who wants to write does
WRITTEN_BYTES_MIN, WRITTEN_BYTES_MAX = 1_000, 2_000  # of a request: there is a record in it, and it is no leap
SENT_MAX = 100  # requests of one command


class LimitedClients:
    """Those of a lesson, by their client ids, and what is commanded of them."""

    def __init__(
        self,
        asking: Asking,
        address_of: Callable[[int], tuple[str, int]],
        clock: SteeredClock,
        nodes: Callable[[], Mapping[int, Any]],
        leader_of: Callable[[str, int], int],
    ):
        self._asking = asking
        self._address_of = address_of
        self._clock = clock
        self._nodes = nodes
        self._leader_of = leader_of
        self._clients: dict[str, LimitedClient] = {}
        self._wanting: dict[Place, Wanting] = {}

    async def close(self) -> None:
        for client in self._clients.values():
            await client.close()

    def _client(self, name: str) -> LimitedClient:
        if name not in self._clients:
            self._clients[name] = LimitedClient(Asking(self._address_of, name), self._clock, self._measured)
        return self._clients[name]

    def _measured(self, broker: int, client_id: str) -> Any:
        """Return what a broker has counted of a client id, None if nobody limits it."""
        node = self._nodes()[broker]
        return node.quotas_guard.quotas.produce.measured(ANONYMOUS, client_id, node.clock.elapsed_ms())

    async def limit(self, broker: int, command: Command) -> None:
        await limit(self._asking, broker, command["NAME"], command["SETTINGS"])

    async def send(self, command: Command) -> list[str]:
        client, place = self._client(command["NAME"]), command["PARTITION"]
        leader = self._leader_of(*place)
        if "for" in command:
            return await client.send_for(leader, place, command["COUNT"], command["for"])
        told, _ = await client.send(leader, place, command["COUNT"])
        return [f"broker {leader} answers {client.name}: {told}"]

    async def want(self, command: Command) -> list[str]:
        """Have a producer for each partition of a topic want so much, for so long."""
        topic, wanting = command["TOPIC"], []
        for number, rate in enumerate(command["RATES"]):
            place = topic, number
            if place not in self._wanting:
                self._wanting[place] = Wanting(self._client(f"producer-{number}"), place)
            wanting.append(self._wanting[place])
            wanting[-1].begin(rate)
        left_ms = time_ms = round(duration_ms(command.get("for", "10s")))
        while left_ms > 0:
            step_ms = min(WANTED_MS, left_ms)
            for each in wanting:
                await each.go_on(self._leader_of(*each.place), self._clock.elapsed_ms(), step_ms)
            await self._clock.advance(step_ms, sessions=True)
            left_ms -= step_ms
        written = ", ".join(f"{each.written_bytes * 1000 / time_ms:.0f}" for each in wanting)
        return [f"producers of {topic} have written {written} bytes a second"]

    async def rate(self, broker: int, command: Command) -> list[str]:
        return self._client(command["NAME"]).samples(broker)

    async def knock(self, broker: int, command: Command) -> list[str]:
        return await self._client(command["NAME"]).knock(broker)

    async def hear(self, command: Command) -> list[str]:
        return await self._client(command["NAME"]).hear()


class Wanting:
    """A producer that wants to write so many bytes a second to one partition, and writes what it may."""

    def __init__(self, client: LimitedClient, place: Place):
        self.client = client
        self.place = place
        self.written_bytes = 0
        self._rate = 0
        self._backlog_bytes = 0.0
        self._free_ms = 0  # until then it has been told to wait

    def begin(self, rate: int) -> None:
        self._rate, self._backlog_bytes, self.written_bytes = rate, 0.0, 0

    async def go_on(self, broker: int, now_ms: int, passed_ms: int) -> None:
        """Write what has come together, unless it has to wait."""
        self._backlog_bytes = min(self._backlog_bytes + self._rate * passed_ms / 1000, WRITTEN_BYTES_MAX)
        size_bytes = int(self._backlog_bytes)
        if size_bytes >= WRITTEN_BYTES_MIN and now_ms >= self._free_ms:
            _, throttle_ms = await self.client.send(broker, self.place, size_bytes)
            self._free_ms = now_ms + throttle_ms
            self._backlog_bytes -= size_bytes
            self.written_bytes += size_bytes


class LimitedClient:
    """One client, by its client id."""

    def __init__(self, asking: Asking, clock: SteeredClock, measured: Callable[[int, str], Any]):
        self.asking = asking
        self.name = asking.client_id
        self._clock = clock
        self._measured = measured
        self._knock: asyncio.Task[int] | None = None  # until it is answered
        self._knocked_ms = 0

    async def close(self) -> None:
        if self._knock is not None:
            self._knock.cancel()
            await asyncio.gather(self._knock, return_exceptions=True)
        await self.asking.close()

    # Records

    async def send(self, broker: int, place: Place, size_bytes: int) -> tuple[str, int]:
        """Send a request of so many bytes; return what came of it, and how long the broker wants to be left alone."""
        answer = await self.asking.ask(broker, self._request(place, size_bytes), version=PRODUCE_VERSION)
        row = answer.responses[0].partition_responses[0]
        check(row.error_code, f"broker {broker} answers this to {self.name}")
        throttle_ms: int = answer.throttle_time_ms
        return f"offset {row.base_offset}, {self._counted(broker)}; throttle_time_ms={throttle_ms}", throttle_ms

    async def send_for(self, broker: int, place: Place, size_bytes: int, time: str) -> list[str]:
        """Send the same again and again, as soon as one may, for so long."""
        begun_ms, time_ms = self._clock.elapsed_ms(), round(duration_ms(time))
        told: list[str] = []
        passed_ms = 0
        while passed_ms < time_ms:
            if len(told) == SENT_MAX:
                raise NotPossible(
                    f"{SENT_MAX} requests of {self.name} in {passed_ms} ms, and no more are sent: say a lower limit, "
                    "larger requests or less time"
                )
            what, throttle_ms = await self.send(broker, place, size_bytes)
            told.append(f"after {passed_ms / 1000:g} s: {what}")
            if throttle_ms:
                await self._clock.advance(min(throttle_ms, time_ms - passed_ms), sessions=True)
            passed_ms = self._clock.elapsed_ms() - begun_ms
        sent = len(told) * size_bytes
        return [
            *told,
            f"{self.name} has sent {sent} bytes in {time_ms / 1000:g} s, {sent * 1000 / time_ms:.0f} a second",
        ]

    def _request(self, place: Place, size_bytes: int) -> ProduceRequest:
        """Return a request that is so long; the value of its record fills it up."""
        value_bytes = size_bytes
        while True:
            if value_bytes < 0:
                raise NotPossible(f"a request of {size_bytes} bytes has no place for a record")
            Topic = ProduceRequest.TopicProduceData
            data = build_batch(2, [Record(None, b"x" * value_bytes, (), self._clock.now_ms())])
            rows = [Topic.PartitionProduceData(index=place[1], records=data)]
            request = ProduceRequest(
                acks=-1, timeout_ms=ANSWER_MS, topic_data=[Topic(name=place[0], partition_data=rows)]
            )
            whole = sum(map(len, encode_request(request, PRODUCE_VERSION, 1, self.name)))
            excess = whole - LENGTH_BYTES - size_bytes
            if excess == 0:
                return request
            value_bytes -= excess

    # What brokers know of it

    def _counted(self, broker: int) -> str:
        """Return the rate that a broker has measured, and the limit of it."""
        found = self._measured(broker, self.name)
        if found is None:
            return "nobody counts it"
        return f"{found.rate:.0f} bytes a second of {found.limit:g}"

    def samples(self, broker: int) -> list[str]:
        """Return what a broker has counted, sample by sample."""
        now_ms, found = self._clock.elapsed_ms(), self._measured(broker, self.name)
        if found is None:
            return [f"broker {broker} has counted nothing of {self.name}"]
        told = [
            f"{(now_ms - begun_ms) / 1000:g} s ago: {value:.0f} bytes" for begun_ms, value in found.samples if value
        ]
        total = sum(value for _, value in found.samples)
        span = found.span_ms / 1000
        return [*told, f"{total:.0f} bytes in {span:g} s: {found.rate:.0f} a second of {found.limit:g}"]

    # Does a broker listen to it?

    async def knock(self, broker: int) -> list[str]:
        """Ask for something small, and look whether it is answered at once."""
        if self._knock is not None:
            raise NotPossible(f"{self.name} has knocked already: hear {self.name}")
        self._knocked_ms = self._clock.elapsed_ms()
        self._knock = asyncio.get_running_loop().create_task(self._ask(broker))
        return await self.hear()

    async def _ask(self, broker: int) -> int:
        await self.asking.ask(broker, MetadataRequest(topics=[]), LONG_PATIENCE_MS)
        return self._clock.elapsed_ms()

    async def hear(self) -> list[str]:
        """Tell whether what was asked has been answered, and how long that took."""
        if self._knock is None:
            raise NotPossible(f"{self.name} waits for nothing: knock {self.name}")
        await asyncio.wait([self._knock], timeout=HEARD_S)
        waited_ms = self._clock.elapsed_ms() - self._knocked_ms
        if not self._knock.done():
            return [f"{self.name} has been waiting for {waited_ms / 1000:g} s"]
        answered_ms, self._knock = self._knock.result(), None
        return [f"{self.name} was answered after {(answered_ms - self._knocked_ms) / 1000:g} s"]


async def limit(asking: Asking, broker: int, name: str, settings: Mapping[str, str]) -> None:
    """Set limits of a client id, at any broker."""
    Entry = AlterClientQuotasRequest.EntryData
    try:
        changes = [Entry.OpData(key=key, value=float(text), remove=False) for key, text in settings.items()]
    except ValueError as error:
        raise NotPossible(f"limits are numbers, such as producer_byte_rate=1000: {error}") from None
    entry = Entry(entity=[Entry.EntityData(entity_type="client-id", entity_name=name)], ops=changes)
    answer = await asking.ask(broker, AlterClientQuotasRequest(entries=[entry], validate_only=False))
    check(answer.entries[0].error_code, answer.entries[0].error_message or "")


async def shares_told(rows: list[dict[str, Any]]) -> list[str]:
    """Tell what the master of each instance says of each broker."""
    told, total = [], sum(row["partitions"] for row in rows)
    for row in rows:
        for direction in ("produced", "fetched"):
            flow = row[direction]
            if flow["promised"] is not None:
                who = f"broker {row['broker']}, {row['partitions']} of {total} partitions"
                told.append(f"{who}: used {flow['used'] or 0:.0f}, may {flow['share']:.0f} ({flow['step']})")
    return told

"""`broker.faults`: what the clients of a broker meet, set from the program that has it.

    with broker.faults.add(api="Produce", error="NOT_LEADER_OR_FOLLOWER", times=2):
        ...
    with broker.faults.toxic("latency", latency=200):
        ...

    with cluster.faults(2).add(api="Fetch", delay_ms=200): ...

The verbs are those of HTTP (broker/http_verbs.py), so they are the same wherever the broker runs; each has a twin to
await with an `a` in front. A broker that is stopped forgets its faults.
"""

from __future__ import annotations

from minibroker.faults import FaultError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from types import TracebackType
    from typing import Any, Literal, Self, TypedDict, Unpack

    from minibroker.embedded.hosted import Hosted

    Control = Callable[[str, str, dict[str, Any] | None], Coroutine[Any, Any, Any]]

    class RuleValues(TypedDict, total=False):
        """What a rule may say; docs/faults.md has the table."""

        api: str | int
        version: str | int
        topic: str
        partition: int
        client_id: str
        transactional_id: str
        nth: int
        times: int
        probability: float
        delay_ms: int
        error: str | int
        after: bool
        drop_request: bool
        drop_response: bool
        close: Literal["before", "after"]
        hold: Literal["before", "after"]
        kill: Literal["before", "after"]
        truncate: int
        corrupt: int | Literal["random"]
        throttle_ms: int

    Stream = Literal["upstream", "downstream"]


class BrokerFaults:
    """The faults of one broker."""

    def __init__(self, host: Hosted[Any], control: Control, is_running: Callable[[], bool]):
        """host: what the broker runs in. control: does what HTTP would, as Engine.control says."""
        self._host = host
        self._control = control
        self._is_running = is_running

    def add(self, **rule: Unpack[RuleValues]) -> SetFault:
        """Set a rule; FaultError says what is wrong with it."""
        return SetFault(self, "/faults", self._call("POST", "/faults", dict(rule))["id"])

    async def aadd(self, **rule: Unpack[RuleValues]) -> SetFault:
        """Set a rule, as add does."""
        return SetFault(self, "/faults", (await self._await("POST", "/faults", dict(rule)))["id"])

    def toxic(
        self, type: str, *, name: str = "", stream: Stream = "downstream", toxicity: float = 1.0, **attributes: int
    ) -> SetFault:
        """Set a toxic, by Toxiproxy's names: toxic("latency", latency=200). FaultError says what is wrong with it."""
        body = _toxic(type, name, stream, toxicity, attributes)
        return SetFault(self, "/toxics", self._call("POST", "/toxics", body)["name"])

    async def atoxic(
        self, type: str, *, name: str = "", stream: Stream = "downstream", toxicity: float = 1.0, **attributes: int
    ) -> SetFault:
        """Set a toxic, as toxic does."""
        body = _toxic(type, name, stream, toxicity, attributes)
        return SetFault(self, "/toxics", (await self._await("POST", "/toxics", body))["name"])

    def rules(self) -> list[dict[str, Any]]:
        """Return every rule, with how often it matched and struck."""
        found: list[dict[str, Any]] = self._call("GET", "/faults")
        return found

    async def arules(self) -> list[dict[str, Any]]:
        """Return every rule, as rules does."""
        found: list[dict[str, Any]] = await self._await("GET", "/faults")
        return found

    def toxics(self) -> list[dict[str, Any]]:
        """Return every toxic, in Toxiproxy's shape."""
        found: list[dict[str, Any]] = self._call("GET", "/toxics")
        return found

    async def atoxics(self) -> list[dict[str, Any]]:
        """Return every toxic, as toxics does."""
        found: list[dict[str, Any]] = await self._await("GET", "/toxics")
        return found

    def clear(self) -> None:
        """Take every rule and toxic away."""
        self._call("DELETE", "/faults")
        self._call("DELETE", "/toxics")

    async def aclear(self) -> None:
        """Take every rule and toxic away."""
        await self._await("DELETE", "/faults")
        await self._await("DELETE", "/toxics")

    def _call(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        return self._host._call(self._control(method, path, body))

    async def _await(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        return await self._host._await(self._control(method, path, body))


class SetFault:
    """A rule or toxic that has been set. As a context manager it is taken away at the end."""

    def __init__(self, faults: BrokerFaults, path: str, id: int | str):
        self.id = id  # the number of a rule, the name of a toxic
        self._faults = faults
        self._list_path = path

    def __repr__(self) -> str:
        return f"<{'rule' if self._list_path == '/faults' else 'toxic'} {self.id}>"

    def remove(self) -> None:
        """Take it away; FaultError if it is not there any more."""
        self._faults._call("DELETE", self._path)

    async def aremove(self) -> None:
        """Take it away, as remove does."""
        await self._faults._await("DELETE", self._path)

    def strikes(self) -> int:
        """Return how many requests a rule has struck so far."""
        return self._strikes_in(self._faults.rules())

    async def astrikes(self) -> int:
        """Return how many requests a rule has struck so far."""
        return self._strikes_in(await self._faults.arules())

    @property
    def _path(self) -> str:
        from urllib.parse import quote

        return f"{self._list_path}/{quote(str(self.id), safe='')}"

    def _strikes_in(self, rules: list[dict[str, Any]]) -> int:
        for rule in rules:
            if rule["id"] == self.id:
                return int(rule["strikes"])
        raise FaultError(f"there is no rule {self.id}")

    def _is_in(self, found: list[dict[str, Any]]) -> bool:
        return any(self.id in (each.get("id"), each.get("name")) for each in found)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._faults._is_running() and self._is_in(self._faults._call("GET", self._list_path)):
            self.remove()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._faults._is_running() and self._is_in(await self._faults._await("GET", self._list_path)):
            await self.aremove()


def _toxic(type: str, name: str, stream: str, toxicity: float, attributes: dict[str, int]) -> dict[str, Any]:
    return {"type": type, "name": name, "stream": stream, "toxicity": toxicity, "attributes": attributes}

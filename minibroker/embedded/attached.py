"""A broker that somebody else runs, with the verbs of `Broker` that Kafka's own protocol has:

    with Broker.attach("localhost:9092") as kafka:
        kafka.create_topic("orders")
        kafka.expect("orders", value={"state": "paid"}, within="2s")

So one and the same test runs on a broker of its own and on a real Kafka. What the protocol does not have (clock,
faults, cleaning now, one's own settings) raises NotToBeHad, by which the pytest plugin skips a test.
What must hold: nothing that was there before is touched; what is waited for is asked for again and again, for no broker
tells of it.
"""

from __future__ import annotations

from minibroker.embedded.engine import TIMEOUT_S, BrokerError, Engine
from minibroker.embedded.remote import PAUSE_MS, Remote
from minibroker.embedded.verbs import Asked
from minibroker.errors import Error, KafkaError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Container, Coroutine, Mapping
    from typing import Any, NoReturn, TypeVar

    from minibroker.clock.steered import SteeredClock
    from minibroker.embedded.client_settings import Access
    from minibroker.embedded.writing import Writer
    from minibroker.groups.view_rows import GroupPartition, GroupRow, GroupView
    from minibroker.log.storage import Storage

    T = TypeVar("T")

MADE_MS = 10_000  # for a topic to be there for everybody, or to have gone
EMPTY, STABLE, DEAD = "Empty", "Stable", "Dead"


class NotToBeHad(RuntimeError):
    """An outside broker has no such thing."""


class Attached(Asked):
    """A broker that somebody else runs; to stop it is to hang up."""

    _noun = "outside broker"
    _runs_here = False

    def __init__(
        self, bootstrap_servers: str, config: Mapping[str, str] | None = None, others: Container[str] = frozenset()
    ):
        """config: how to come in, in the words of Kafka's clients: security.protocol, ssl.…, sasl.….

        others: what a broker of one's own has besides.
        """
        super().__init__()
        self._others = others
        self._settings = {"bootstrap.servers": bootstrap_servers, **(config or {})}

    def __repr__(self) -> str:
        return f"<minibroker.Broker.attach({self._settings['bootstrap.servers']!r})>"

    def _new_engine(self) -> Engine:
        return Outside(self._settings)

    def _access(self, bootstrap_servers: str, user: str | None = None) -> Access:
        if len(self._settings) > 1 or user is not None:
            raise NotToBeHad("client_config of an outside broker: it is what you have attached with")
        return super()._access(bootstrap_servers)

    def _producer(self) -> Writer:
        from minibroker.embedded.writing import Writer

        return Writer(self._settings, None)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> object:
            if not name.startswith("_") and name in self._others:
                raise NotToBeHad(f"{name} is not to be had of an outside broker, such as {self!r}")
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def delete_group(self, group: str) -> None:
        """Delete a group that nobody is in; KafkaError says why not."""
        self._call(self._outside().delete_group(group), blocks=True)

    def _outside(self) -> Outside:
        engine = self._running()
        assert isinstance(engine, Outside)
        return engine


class Outside(Remote):
    """Asks an outside broker."""

    def __init__(self, settings: Mapping[str, str]):
        super().__init__(settings if len(settings) > 1 else {}, tells_versions=True)
        self._address = settings["bootstrap.servers"]

    @property
    def bootstrap_servers(self) -> str:
        return self._address

    async def start(self) -> None:
        try:
            await self._client().ask_metadata([])
        except KafkaError as failure:
            await self._hang_up()
            raise BrokerError(f"no broker answers at {self._address}: {failure}") from None

    async def stop(self) -> None:
        await self._hang_up()

    def abandon(self) -> None: ...

    def handles(self) -> list[int]:
        return []

    def steered_clock(self) -> SteeredClock:
        self._refuse("its clock")

    async def snapshot(self) -> Storage:
        self._refuse("a snapshot")

    async def ask(self, *_: Any, **__: Any) -> Any:
        self._refuse("what minibroker has of its own")

    def _refuse(self, what: str) -> NoReturn:
        raise NotToBeHad(f"{what} is not to be had of an outside broker, such as {self._address}")

    # Topics: a broker of Kafka answers before all of it is so

    async def create_topic(self, /, name: str, partitions: int | None = None, **configs: object) -> None:
        await super().create_topic(name, partitions, **configs)

        async def has_leaders() -> bool:
            topic = (await self._client().metadata([name])).get(name)
            partitions = [] if topic is None else topic.partitions.values()
            return bool(partitions) and all(each.leader_id >= 0 for each in partitions)

        await self._until(has_leaders, MADE_MS, lambda: f"{name} has no leaders within {MADE_MS / 1000:g} s")

    async def delete_topic(self, name: str) -> None:
        await super().delete_topic(name)

        async def has_gone() -> bool:
            return name not in await self.topics()

        await self._until(has_gone, MADE_MS, lambda: f"{name} is still there after {MADE_MS / 1000:g} s")
        self._client().forget(name)

    # Groups

    async def groups(self) -> list[GroupRow]:
        from minibroker.client.groups import Groups
        from minibroker.groups.view_rows import GroupRow

        listed = await Groups(self._client()).list_groups()
        found = await Groups(self._client()).describe_groups([each.id for each in listed]) if listed else {}
        return [
            GroupRow(each.id, each.type, each.protocol_type, each.state, len(each.members), each.coordinator_id)
            for each in found.values()
        ]

    async def group(self, group: str) -> GroupView:
        from minibroker.client import Admin
        from minibroker.client.groups import Groups
        from minibroker.groups.view_rows import GroupMember, GroupView

        found = (await Groups(self._client()).describe_groups([group]))[group]
        if found.state == DEAD:
            raise KafkaError(Error.GROUP_ID_NOT_FOUND, f"there is no group {group!r}")
        committed = (await Groups(self._client()).fetch_offsets([group]))[group]
        holders = {place: member.id for member in found.members for place in member.assignment}
        places = sorted({*committed, *holders})
        admin = Admin(self._client())
        begins, ends = [await admin.list_offsets(dict.fromkeys(places, which)) for which in ("earliest", "latest")]
        stable = await admin.list_offsets(dict.fromkeys(places, "latest"), read_committed=True)
        members = [
            GroupMember(
                *(each.id, each.instance_id, each.client_id, each.host, each.epoch),
                *(each.assignment, each.target, each.assignment),
            )
            for each in found.members
        ]
        rows = [
            _row(
                place,
                holders.get(place),
                committed[place].offset if place in committed else None,
                (begins[place].offset, stable[place].offset, ends[place].offset),
            )
            for place in places
        ]
        return GroupView(
            *(group, found.type, found.protocol_type, found.state, found.epoch, found.assignor),
            *(found.coordinator_id, members, rows),
        )

    async def wait_group(
        self, group: str, members: int | None = None, state: str | None = None, timeout: float = TIMEOUT_S
    ) -> GroupView:
        from minibroker.groups.view_rows import GroupView

        wanted = state or (EMPTY if members == 0 else STABLE)
        last = GroupView(group, "", "", DEAD, -1, "", -1, [], [])

        async def has_it() -> bool:
            nonlocal last
            try:
                last = await self.group(group)
            except KafkaError as failure:
                if failure.code != Error.GROUP_ID_NOT_FOUND:
                    raise
                last = last._replace(state=DEAD, members=[], partitions=[])
            return last.state == wanted and members in (None, len(last.members))

        def told() -> str:
            count = "" if members is None else f" with {members} members"
            return (
                f"not within {timeout:g} s: group {group!r} is {last.state} with {len(last.members)} members, and not "
                f"{wanted}{count}"
            )

        await self._until(has_it, timeout * 1000, told)
        return last

    async def wait_committed(
        self, group: str, topic: str, partition: int = 0, offset: int | None = None, timeout: float = TIMEOUT_S
    ) -> int:
        from minibroker.client.groups import Groups

        place, last = (topic, partition), -1

        async def is_so_far() -> bool:
            nonlocal last
            found = (await Groups(self._client()).fetch_offsets([group], [place]))[group].get(place)
            last = -1 if found is None else found.offset
            return found is not None and (offset is None or last >= offset)

        def told() -> str:
            wanted = "anything" if offset is None else f"{offset}"
            has = "nothing" if last < 0 else f"{last}"
            return f"not within {timeout:g} s: {group} has committed {has} of {topic}-{partition}, and not {wanted}"

        await self._until(is_so_far, timeout * 1000, told)
        return last

    async def delete_group(self, group: str) -> None:
        from minibroker.client.groups import Groups

        await Groups(self._client()).delete_groups([group])

    async def _until(
        self, condition: Callable[[], Coroutine[Any, Any, bool]], timeout_ms: float, told: Callable[[], str]
    ) -> None:
        """Ask again and again until something is so; TimeoutError says how it is instead."""
        clock = self._client().clock
        deadline_ms = clock.steady_ms() + timeout_ms
        while not await condition():
            if clock.steady_ms() >= deadline_ms:
                raise TimeoutError(told())
            await clock.sleep(PAUSE_MS)


def _row(
    place: tuple[str, int], member: str | None, committed: int | None, offsets: tuple[int, int, int]
) -> GroupPartition:
    """Return what there is to know of a partition of a group. Where its log ends consumers are not told."""
    from minibroker.groups.view_rows import GroupPartition

    begin, stable, end = offsets
    lags = (None, None) if committed is None else (max(stable - committed, 0), max(end - committed, 0))
    return GroupPartition(
        *(place[0], place[1], member, None, committed),
        *(begin, stable, end, None, lags[0], lags[1], None),
    )

"""What a lesson does with groups: members that join, sync, live and leave; offsets that are committed and read again.

What must hold: a command returns when every answer has come that does not wait for somebody else.
Not here: what members do and say (members.py).
"""

from __future__ import annotations

import asyncio

from minibroker.clock.steered import duration_ms
from minibroker.cluster.groups import seen_groups
from minibroker.errors import KafkaError
from minibroker.lessons.clients import Asking, NotPossible, Reader
from minibroker.lessons.members import CONSUMER, EAGER, JOIN, REBALANCE_MS, SESSION_MS, SYNC, Member, Members, commit

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from minibroker.lessons.commands import Command
    from minibroker.lessons.stage import Stage

ARRIVAL_MS = 3_000  # within which an answer is there that does not wait for anybody


class GroupStage:
    """The groups of a lesson, and their members."""

    def __init__(self, stage: Stage, asking: Asking):
        self.stage = stage
        self.members = Members(self._state_of)
        self._asking = asking

    async def consume_for(self, command: Command) -> list[str]:
        """A consumer that starts knows nothing: what it read before, another one has read."""
        reader = Reader(self._asking, *command["PARTITION"])
        coordinator = await self._coordinator(command["GROUP"])
        return await reader.resume(
            command["GROUP"], command.get("reset", "latest"), coordinator, self.stage.reachable()
        )

    def _state_of(self, group: str) -> str:
        try:
            return seen_groups(self.stage.on).group(group).state
        except KafkaError:
            return ""

    async def _coordinator(self, group: str) -> int:
        """Return who coordinates a group, when it is ready to."""
        broker = await self._asking.coordinator(self.stage.reachable()[0], group)
        seen = seen_groups(self.stage.on)
        await self.stage.events.wait_until(lambda: seen.coordinator(group) == broker, timeout_ms=ARRIVAL_MS)
        return broker

    async def hear(self) -> list[str]:
        """Wait for the answers to members that are under way; return what members have to tell."""
        while due := self.members.due():
            if not await self._first_of(due):
                break
        return self.members.take_lines()

    async def close(self) -> None:
        await self.members.close()

    async def _first_of(self, answers: list[asyncio.Task[None]], kind: str = "group") -> bool:
        """Wait until an answer has come, or something has happened to a group; False if nothing does."""
        news = asyncio.get_running_loop().create_task(
            self.stage.events.wait_for(lambda event: True, (kind,), timeout_ms=ARRIVAL_MS)
        )
        try:
            await asyncio.wait([news, *answers], return_when=asyncio.FIRST_COMPLETED)
            return not news.done() or news.exception() is None
        finally:
            news.cancel()
            await asyncio.gather(news, return_exceptions=True)
            await self.stage.clock.settle()

    def _member(self, command: Command) -> Member:
        member = self.members.get(command["MEMBER"])
        if member is None:
            raise NotPossible(f"there is no member {command['MEMBER']}: join GROUP as {command['MEMBER']}")
        if member.waits_for:
            raise NotPossible(f"{member.name} waits for the answer to its {member.waits_for}")
        return member

    async def join(self, command: Command) -> None:
        member = self.members.get(command["MEMBER"])
        if member is None:
            member = Member(
                command["MEMBER"],
                command["GROUP"],
                command.get("topics", []),
                by=command.get("by", EAGER),
                session_ms=round(duration_ms(command.get("session", SESSION_MS))),
                rebalance_ms=round(duration_ms(command.get("rebalance", REBALANCE_MS))),
                asking=Asking(self.stage.address_of, command["MEMBER"]),
            )
            self.members.add(member)
        member = self._member(command)
        broker = await self._coordinator(member.group)
        if member.by == CONSUMER:
            await member.enter(broker)
        else:
            await self._first_of([member.begin(JOIN, member.join(broker))])

    async def sync(self, command: Command) -> None:
        member = self._member(command)
        answer = member.begin(SYNC, member.sync(await self._coordinator(member.group)))
        if member.leads is not None:  # it need not wait for anybody
            await asyncio.wait([answer], timeout=ARRIVAL_MS / 1000)

    async def heartbeat(self, command: Command) -> None:
        member = self._member(command)
        await member.heartbeat(await self._coordinator(member.group))

    async def leave(self, command: Command) -> None:
        member = self._member(command)
        await member.leave(await self._coordinator(member.group))

    async def commit(self, command: Command) -> None:
        member = self._member(command)
        await member.commit(await self._coordinator(member.group), command["PARTITION"], command["OFFSET"])

    async def commit_for(self, command: Command) -> None:
        broker = await self._coordinator(command["GROUP"])
        await commit(self._asking, broker, command["GROUP"], command["PARTITION"], command["OFFSET"])

    async def wait_group(self, command: Command) -> None:
        await seen_groups(self.stage.on).wait_group(command["GROUP"], command["COUNT"], timeout_ms=ARRIVAL_MS)


GROUP_ACTS: dict[str, Callable[[GroupStage, Command], Awaitable[list[str] | None]]] = {
    "consume for": GroupStage.consume_for,
    "commit for": GroupStage.commit_for,
    "commit as": GroupStage.commit,
    "join as": GroupStage.join,
    "sync": GroupStage.sync,
    "heartbeat": GroupStage.heartbeat,
    "leave": GroupStage.leave,
    "wait group": GroupStage.wait_group,
}

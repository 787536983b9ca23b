"""How long a record takes: until each replica has it, and until its producer is answered."""

from __future__ import annotations

from minibroker.event_kinds import Ack, Append
from minibroker.lessons.clients import NotPossible
from minibroker.lessons.commands import Command

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from minibroker.clock.steered import SteeredClock
    from minibroker.events import Event, EventStream

LONGEST_MS = 5_000


async def timed(
    clock: SteeredClock,
    events: EventStream,
    command: Command,
    produce: Callable[[Command], Awaitable[list[str]]],
    tell_clock: Callable[[str, float], None],
) -> list[str]:
    """Send a record with acks=all, let time pass by the millisecond, and tell what came when.

    tell_clock: the watcher of the clock that is not told meanwhile, for it would be told of each millisecond.
    """
    place = command.topic, command.partition
    begun_ms = clock.elapsed_ms()
    copied_ms: dict[int, float] = {}
    answered: list[Ack] = []

    def hear(event: Event) -> None:
        if isinstance(event, Append) and (event.topic, event.partition) == place:
            copied_ms.setdefault(event.broker, clock.elapsed_ms() - begun_ms)
        if isinstance(event, Ack) and (event.topic, event.partition) == place:
            answered.append(event)

    clock.watchers.pop(tell_clock, None)
    try:
        with events.subscribe(hear):
            await produce(Command(command.line, command.form, {**command.values, "later": True}))
            while not answered and clock.elapsed_ms() - begun_ms < LONGEST_MS:
                await clock.advance(1, sessions=True)
    finally:
        clock.watchers[tell_clock] = None
    if not answered:
        raise NotPossible(f"no answer within {LONGEST_MS} ms")
    rows = [f"broker {broker} has it after {after_ms:.0f} ms" for broker, after_ms in sorted(copied_ms.items())]
    return [*rows, f"acks=all is answered after {clock.elapsed_ms() - begun_ms:.0f} ms"]

"""Waiting until partitions have moved: what Kafka calls purgatory."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from minibroker.clock import Clock
    from minibroker.replication.replica import Replica


async def wait_for(
    replicas: Iterable[Replica], is_enough: Callable[[int], bool], timeout_ms: float, clock: Clock
) -> bool:
    """Wait until `is_enough` says so; it is asked with each change of a partition, and told how many bytes came.

    Returns whether it did; False: the time is over. It is asked at once, too: a coroutine begins later than the request
    was looked at, and until then somebody else may lead.
    """
    import asyncio

    done: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

    def changed(added_bytes: int) -> None:
        if is_enough(added_bytes) and not done.done():
            done.set_result(True)

    def over() -> None:
        if not done.done():
            done.set_result(False)

    timer = clock.after(max(timeout_ms, 0), over)
    waited = list(replicas)
    for replica in waited:
        replica.waiters[changed] = None
    changed(0)
    try:
        return await done
    finally:
        timer.cancel()
        for replica in waited:
            replica.waiters.pop(changed, None)

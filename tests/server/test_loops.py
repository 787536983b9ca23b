"""What strangers can make a callback raise is told, and not without end."""

from __future__ import annotations

import asyncio

import pytest

from minibroker.server.loops import TRACEBACKS_MAX, new_loop


def test_errors_of_callbacks_are_told_and_then_counted(caplog: pytest.LogCaptureFixture) -> None:
    def fail() -> None:
        raise ValueError("broken")

    async def main() -> None:
        loop = asyncio.get_running_loop()
        for _ in range(10 * TRACEBACKS_MAX):
            loop.call_soon(fail)
        await asyncio.sleep(0)
        handler = loop.get_exception_handler()
        handler._until = 0.0  # type: ignore[union-attr]  # a second later
        loop.call_soon(fail)
        await asyncio.sleep(0)

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(main())
    told = [record.getMessage() for record in caplog.records]
    assert sum("fail" in line for line in told) == TRACEBACKS_MAX + 1
    assert sum(f"{9 * TRACEBACKS_MAX} more errors" in line for line in told) == 1

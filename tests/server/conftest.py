"""Every test of the server runs on asyncio's loop and on uvloop's, where pytest-asyncio is new enough to be told."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest


@pytest.hookimpl(optionalhook=True)
def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    factories: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {"asyncio": asyncio.new_event_loop}
    try:
        import uvloop
    except ImportError:
        return factories
    return {**factories, "uvloop": uvloop.new_event_loop}

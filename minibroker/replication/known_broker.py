"""What a leader must know of a broker, whoever says it: types only, nothing runs here.

In a module of its own: mypyc cannot compile a module that has a class inside `if TYPE_CHECKING`.
"""

from __future__ import annotations

from typing import Protocol


class KnownBroker(Protocol):
    """What the metadata say of a broker; RegisterBrokerRecord has all of it."""

    @property
    def broker_epoch(self) -> int: ...
    @property
    def fenced(self) -> bool: ...
    @property
    def in_controlled_shutdown(self) -> bool: ...
    @property
    def rack(self) -> str | None: ...

"""What tests of handlers use."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.broker.virtual_broker import VirtualBroker, virtual_broker


@pytest.fixture
def broker() -> Iterator[VirtualBroker]:
    with virtual_broker() as broker:
        yield broker

"""What tests of the page share: a browser, and brokers to look at."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from minibroker import Cluster

from .browsing import chromium


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as found:
        yield found


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster() as cluster:
        cluster.create_topic("orders", assignments=[[1, 2, 3], [2, 3, 1]])
        cluster.wait_in_sync()
        yield cluster

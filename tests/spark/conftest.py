"""The session of Spark that all tests share: it takes seconds to start."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.spark.session import Session, started


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    with started(tmp_path_factory.mktemp("spark")) as session:
        yield session

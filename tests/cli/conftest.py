"""One broker for the tests of a module; a topic of its own for each test that asks for one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cli.running import Shell, broker_running


@pytest.fixture(scope="module")
def shell() -> Iterator[Shell]:
    with broker_running("--topic", "orders:3") as address:
        yield Shell(address)


@pytest.fixture
def topic(shell: Shell, request: pytest.FixtureRequest) -> str:
    name = "".join(letter if letter.isalnum() else "-" for letter in request.node.name)[-200:].strip("-")
    shell.good("topics", "--create", name, "--partitions", "1")
    return name

"""Foreign clients of many ages read topics that compaction has left full of holes (cleaned_topics.py says which).

The broker is ours, one per test worker. Skips are those of test_clients.py.
"""

from __future__ import annotations

import time
import urllib.request
from collections.abc import Iterator

import pytest

from minibroker import Broker
from tests.clients.cleaned_topics import clean, write
from tests.clients.matrix import CLEANED_RECORDS_MIN, CLEANED_STEPS, CLIENTS, Client, cleaned_steps
from tests.clients.test_clients import Broker as Told
from tests.clients.test_clients import work

NAME = "cleaned"
# A client that waits for 100 ms each time, some seconds in all, has asked some dozens of times at the end. One that
# spins at an empty batch asks thousands of times in a second.
FETCHES_MAX = 250
# It does not go on behind a batch without records, and asks for it again at once: of Kafka 4.4.0 with the same topic it
# asked 10,773 times in six seconds.
SPINS = ("kafkajs",)
READERS = [client for client in CLIENTS if cleaned_steps(client)]


@pytest.fixture(scope="session")
def cleaned(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Told]:
    root, base_ms = tmp_path_factory.mktemp("cleaned"), (int(time.time()) - 3600) * 1000
    write(root, NAME, base_ms)
    with Broker(data_dir=root) as broker:
        clean(broker, NAME)
        yield Told(broker.bootstrap_servers, NAME, base_ms)


@pytest.mark.interop
@pytest.mark.parametrize("client", READERS, ids=lambda client: client.slug)
def test_a_client_reads_through_holes(client: Client, cleaned: Told) -> None:
    before = fetches(cleaned.bootstrap)
    start, *done = work(client, cleaned_steps(client), cleaned)
    asked = fetches(cleaned.bootstrap) - before
    assert str(start["version"]).startswith(client.version)
    assert {step["step"]: step["records"] for step in done} == {
        step: CLEANED_RECORDS_MIN[step] for step in cleaned_steps(client)
    }
    assert asked > 0
    if client.name not in SPINS:
        assert asked < FETCHES_MAX


def fetches(address: str) -> int:
    """Return how many fetch requests a broker has answered."""
    with urllib.request.urlopen(f"http://{address}/metrics") as page:
        lines = page.read().decode().splitlines()
    found = [line for line in lines if line.startswith("minibroker_requests_total{") and 'api="Fetch"' in line]
    return sum(int(line.split()[-1]) for line in found)


def test_every_step_about_cleaned_topics_is_done_in_every_language() -> None:
    for toolchain in ("python", "java", "go", "node"):
        done = {step for client in CLIENTS if client.toolchain == toolchain for step in cleaned_steps(client)}
        assert done == set(CLEANED_STEPS), toolchain

"""Foreign clients come in by every way, or are refused as they should be; security_cases.py has the cases.

Each client's program does all of its cases in one process. Skips are those of test_clients.py. MINIBROKER_TEST_KAFKA=1
starts Apache Kafka on the directory of our broker, with the same settings, and asks that of it.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import pytest

from minibroker import Broker
from minibroker.embedded.client_settings import LIBRARIES, client_settings
from tests.clients import build
from tests.clients.build import ROOT
from tests.clients.matrix import Client
from tests.clients.relay import Relay, Relays, relays
from tests.clients.security_cases import (
    AGAIN,
    ENTRIES,
    LISTENERS,
    MECHANISMS,
    PLAIN,
    RELAYED,
    RIGHT,
    SASL_SSL,
    SCRAM_256,
    SCRAM_512,
    TURNED,
    USERS,
    Case,
    Entry,
    Place,
    access_of,
    cases_of,
    prepared,
    settings_of,
    table,
    told,
)
from tests.interop import broker as kafka
from tests.interop.broker import free_ports

PROGRAM_SECONDS_MAX = 150
SCRAM = (SCRAM_256, SCRAM_512)
TOPICS = [entry.client.slug for entry in ENTRIES]
KAFKA = bool(os.environ.get("MINIBROKER_TEST_KAFKA"))  # a real one is to be tried

pytestmark = [pytest.mark.interop, pytest.mark.slow]


class Running(NamedTuple):
    place: Place
    relays: Relays
    steady: dict[str, Relay]
    broker: Broker | None  # None: it is Kafka's


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("security") / "data"
    folder.mkdir()
    place = prepared(folder, free_ports(len(LISTENERS) + len(RELAYED)))
    with relays() as open_relays, broker_at(place) as broker:
        steady = {
            name: open_relays.open(Relay(place.ports[name], how), place.advertised[name])
            for name, how in RELAYED.items()
        }
        yield Running(place, open_relays, steady, broker)


@contextmanager
def broker_at(place: Place) -> Iterator[Broker | None]:
    """Ours, or a real Kafka on the directory that ours has made."""
    with Broker(tls=True, users=USERS, topics=TOPICS, data_dir=place.folder, config=settings_of(place)) as ours:
        if not KAFKA:
            yield ours
            return
    (controller,) = free_ports(1)
    settings = settings_of(place)
    settings |= {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "controller.listener.names": "CONTROLLER",
        "listeners": f"{settings['listeners']},CONTROLLER://127.0.0.1:{controller}",
        "listener.security.protocol.map": f"{settings['listener.security.protocol.map']},CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "OPEN",
        "log.dirs": str(place.folder),
    }
    # Java's properties have escapes, too.
    properties = "\n".join(f"{name}={value}" for name, value in settings.items()).replace("\\", "\\\\")
    urls = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={settings['sasl.oauthbearer.jwks.endpoint.url']}"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAVA_TOOL_OPTIONS", urls)
        work = place.folder.parent / "work"
        with kafka.launched(properties, work, place.ports["OPEN"], seconds_max=600) as real:
            real.wait_until_ready()
            assert real.process.stdout
            threading.Thread(target=real.said.extend, args=(real.process.stdout,), daemon=True).start()
            patch.delenv("JAVA_TOOL_OPTIONS")
            yield None


def work(client: Client, lines: list[str]) -> list[dict[str, Any]]:
    """Run a client's program and return the JSON lines that it printed."""
    try:
        command = build.security_of(client)
    except build.Missing as missing:
        if os.environ.get("MINIBROKER_TEST_CLIENTS_REQUIRED"):
            raise
        pytest.skip(f"{client.id}: {missing}")
    except subprocess.CalledProcessError as error:
        pytest.fail(f"{client.id} does not build:\n{error.output[-3000:]}")
    done = build.run(command, seconds_max=PROGRAM_SECONDS_MAX, given="\n".join(lines) + "\n")
    assert not done.returncode, f"{client.id}: {done.stderr[-3000:]}\nuntil then:\n{done.stdout}"
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.client.slug)
def test_who_may_comes_in_by_every_way_and_nobody_else(entry: Entry, running: Running) -> None:
    client = entry.client
    if KAFKA and client.id.startswith("java 0."):
        pytest.skip("Kafka 4 does not serve clients as old as this")
    chosen = cases_of(client)
    for relay in running.steady.values():
        relay.logins.clear()
        relay.ended = 0
    first = len(running.relays.opened)
    start, *done = work(client, [told(client, case, running.place, running.relays) for case in chosen])
    assert str(start["version"]).startswith(client.version)
    found = {each["case"]: each for each in done}
    assert len(done) == len(chosen)
    wrong = [found[case.name] for case in chosen if not re.fullmatch(entry.errors.of(case), found[case.name]["error"])]
    assert not wrong, "what a client says otherwise than it should"
    assert all(relay.cuts == 1 for relay in running.relays.opened[first:])
    check_sessions(entry, running.steady)
    if running.broker is not None:
        arrived = {(record.value or b"").decode() for record in running.broker.records(client.slug)}
        unsteady = {case.name for case in chosen if case.what not in (AGAIN, TURNED)}
        assert arrived & unsteady == {name for name in unsteady if not found[name]["error"]}


def check_sessions(entry: Entry, steady: dict[str, Relay]) -> None:
    """A client that can logs in again on a connection that it has; the others come anew when it is closed."""
    mechanisms = {*entry.client.steps} & {*MECHANISMS}
    for mechanism in mechanisms:
        connections = [logins for logins in steady["SHORT"].logins if logins[0] == mechanism]
        assert all({*logins} == {mechanism} for logins in connections)
        if entry.logs_in_again:
            assert max(map(len, connections)) > 1
        else:
            assert max(map(len, connections)) == 1
    if not entry.logs_in_again:
        assert steady["SHORT"].ended >= len(mechanisms)
    turned = {*map(tuple, steady["TURNED"].logins)}
    assert ({SCRAM, SCRAM[::-1]} <= turned) == entry.logs_in_again


def test_a_brokers_client_config_is_what_the_clients_were_told(running: Running) -> None:
    if running.broker is None:
        pytest.skip("it is Kafka's broker that is tried")
    case = Case(SASL_SSL, PLAIN, RIGHT)
    access = access_of(case, running.place, running.place.port(case.listener))
    for library in LIBRARIES:
        of_broker = running.broker.client_config(library, user="alice")  # type: ignore[arg-type]
        of_case = client_settings(library, access)
        for settings in (of_broker, of_case):
            settings.pop("ssl_context", None)
        assert of_broker == of_case


def test_the_page_about_clients_shows_what_they_say() -> None:
    assert table() in (ROOT / "docs/clients.md").read_text(encoding="utf-8")

"""Java's console tools, of now and of 2.8, with the settings that client_config gives: let in, or told why not."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from minibroker import Broker
from tests.interop import broker as kafka
from tests.interop.kafka import JAVA, Release, class_path

pytestmark = [pytest.mark.interop, pytest.mark.slow]

TOOLS = {
    "newest": (Release("kafka-tools", "4.3.1"), "tools.ConsoleProducer", "tools.consumer.ConsoleConsumer"),
    "2.8": (Release("kafka_2.13", "2.8.2"), "ConsoleProducer", "ConsoleConsumer"),
}
PACKAGE = {"newest": "org.apache.kafka.", "2.8": "kafka.tools."}


def run(which: str, tool: int, words: list[str], given: str = "") -> str:
    release, *classes = TOOLS[which]
    done = subprocess.run(
        [*JAVA, "-cp", class_path(release), PACKAGE[which] + classes[tool], *words],
        input=given,
        capture_output=True,
        text=True,
        timeout=120,
    )
    return done.stdout + done.stderr


def properties(settings: dict[str, Any], folder: Path) -> str:
    path = folder / "client.properties"
    path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    return str(path)


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
@pytest.mark.parametrize("auth", ["none", "required"])
@pytest.mark.parametrize("which", TOOLS)
def test_records_go_there_and_come_back(which: str, auth: str, version: str, tmp_path: Path) -> None:
    with Broker(tls=True, topics="t", ssl_client_auth=auth, ssl_enabled_protocols=version) as broker:
        to = ["--bootstrap-server", broker.bootstrap_servers, "--topic", "t"]
        settings = properties(broker.client_config("java"), tmp_path)
        run(which, 0, [*to, "--producer.config", settings], "one\ntwo\n")
        found = run(which, 1, [*to, "--from-beginning", "--max-messages", "2", "--consumer.config", settings])
        assert "one\ntwo\n" in found


@pytest.mark.parametrize(
    ("wrong", "line"),
    [
        ("truststore", "the client does not trust our certificate"),
        ("keystore", "the client's certificate does not count"),
        ("no keystore", "the client sends no certificate"),
    ],
)
def test_who_is_refused_is_told_so_at_once(
    wrong: str, line: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with (
        Broker(tls=True, ssl_client_auth="required") as other,
        Broker(tls=True, topics="t", ssl_client_auth="required") as broker,
    ):
        replaced = f"ssl.{wrong.removeprefix('no ')}."
        settings = {name: text for name, text in broker.client_config("java").items() if not name.startswith(replaced)}
        if wrong != "no keystore":
            others = other.client_config("java")
            settings |= {name: text for name, text in others.items() if name.startswith(replaced)}
        to = ["--bootstrap-server", broker.bootstrap_servers, "--topic", "t"]
        run("newest", 0, [*to, "--producer.config", properties(settings, tmp_path)], "one\n")
        assert not broker.records("t")
    lines = [record.getMessage() for record in caplog.records if "closed" in record.getMessage()]
    assert len(lines) == 1, lines  # a client that gets no alert comes again and again
    assert line in lines[0]


def test_kafka_goes_on_with_a_directory_that_has_our_certificates(tmp_path: Path) -> None:
    """It takes every folder among the data for a partition, so they are in none."""
    with Broker(tls=True, data_dir=tmp_path / "data", topics="t"):
        pass
    assert list((tmp_path / "data").glob("tls-*"))
    with kafka.running(tmp_path / "data", tmp_path / "work") as real:
        real.stop()
    assert "shutting down" in real.text

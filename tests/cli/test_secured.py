"""Commands and a broker with TLS: -X by Kafka's and librdkafka's names, and files of Kafka's clients."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from minibroker import Broker
from minibroker.cli import main

pytestmark = pytest.mark.outside


@pytest.fixture(scope="module")
def secured() -> Iterator[Broker]:
    with Broker(tls=True, topics="orders", ssl_client_auth="required") as broker:
        yield broker


def dash_x(settings: dict[str, str]) -> list[str]:
    return [word for name, value in settings.items() for word in ("-X", f"{name}={value}")]


@pytest.mark.parametrize("command", ["topics", "health"])
@pytest.mark.parametrize("library", ["librdkafka", "minibroker"])
def test_a_secured_broker_is_reached_by_either_names(
    secured: Broker, library: str, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([command, *dash_x(secured.client_config(library))]) == 0  # type: ignore[arg-type]
    assert ("orders" if command == "topics" else "is healthy") in capsys.readouterr().out


@pytest.mark.parametrize("command", ["topics", "health"])
def test_a_file_of_a_client_is_taken(
    secured: Broker, command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "client.properties"
    settings = {**secured.client_config("minibroker"), "acks": "all"}
    file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    assert main([command, "-b", secured.bootstrap_servers, "--command-config", str(file)]) == 0
    assert capsys.readouterr().out


@pytest.mark.parametrize("words", [["roll"], ["faults", "add", "--api", "Heartbeat", "--error", "NOT_COORDINATOR"]])
def test_what_goes_by_http_goes_by_tls_too(
    secured: Broker, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*words, *dash_x(secured.client_config("minibroker"))]) == 0
    assert capsys.readouterr().out


WRONG = {
    "no file": (["--command-config", "/no/such"], "--command-config /no/such: No such file or directory"),
    "two files": (
        ["-X", "security.protocol=SSL", "-X", "ssl.key.location=a", "-X", "ssl.certificate.location=b"],
        "write key and certificates into one file",
    ),
    "no protocol": (["-X", "ssl.ca.location=a"], "ssl.truststore.location: nothing comes of it without security"),
    "unknown": (["-X", "ssl.keystore.pasword=a"], "-X ssl.keystore.pasword: not known here"),
    "no such file": (["-X", "security.protocol=SSL", "-X", "ssl.ca.location=/no/such"], "cannot be read: No such file"),
    "no mechanism": (["-X", "security.protocol=SASL_SSL"], "sasl.mechanism is not set"),
}


@pytest.mark.parametrize("command", ["topics", "health"])
@pytest.mark.parametrize("case", WRONG)
def test_what_makes_no_sense_is_refused(case: str, command: str, capsys: pytest.CaptureFixture[str]) -> None:
    words, expected = WRONG[case]
    assert main([command, "-b", "127.0.0.1:1", *words]) == 2
    assert expected in capsys.readouterr().err


def test_who_shows_no_certificate_is_told_which_settings_do(
    secured: Broker, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = secured.client_config("librdkafka")
    given = {name: value for name, value in settings.items() if "certificate" not in name and "key" not in name}
    assert main(["topics", *dash_x(given)]) == 1  # type: ignore[arg-type]
    assert "asks clients for a certificate: -X ssl.certificate.location=" in capsys.readouterr().err


@pytest.mark.parametrize("tls", [False, True])
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_health_logs_in(tls: bool, mechanism: str, capsys: pytest.CaptureFixture[str]) -> None:
    with Broker(tls=tls, users={"alice": "secret"}) as broker:
        settings = {**broker.client_config("librdkafka"), "sasl.mechanism": mechanism}
        assert main(["health", *dash_x(settings)]) == 0  # type: ignore[arg-type]
        assert "is healthy: 1 broker, controller 1" in capsys.readouterr().out
        assert main(["health", *dash_x({**settings, "sasl.password": "guessed"})]) == 1  # type: ignore[arg-type]
        assert "Authentication failed" in capsys.readouterr().err
        assert main(["health", *dash_x({**settings, "sasl.username": "bob"})]) == 1  # type: ignore[arg-type]
        assert "Authentication failed" in capsys.readouterr().err
        if not tls:
            assert main(["health", "-b", broker.bootstrap_servers]) == 1
            assert "hangs up without an answer: TLS, a login, or no Kafka broker" in capsys.readouterr().err


def test_health_logs_in_where_nobody_asks_for_it(capsys: pytest.CaptureFixture[str]) -> None:
    login = ["-X", "security.protocol=SASL_PLAINTEXT", "-X", "sasl.mechanism=PLAIN"]
    login += ["-X", "sasl.username=a", "-X", "sasl.password=b"]
    with Broker() as broker:
        assert main(["health", "-b", broker.bootstrap_servers, *login]) == 1
    assert capsys.readouterr().err.count("\n") == 1


def test_who_does_not_trust_the_broker_is_told(secured: Broker, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["topics", "-b", secured.bootstrap_servers, "-X", "security.protocol=SSL"]) == 1
    assert "self-signed certificate in certificate chain" in capsys.readouterr().err
    assert main(["health", "-b", secured.bootstrap_servers, "-X", "security.protocol=SSL"]) == 1
    assert "certificate verify failed" in capsys.readouterr().err

"""What only a process can show: signals, pipes, terminals; and brokers that are not there, or are none."""

from __future__ import annotations

import json
import os
import pty
import signal
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cli.running import MINIBROKER, Shell, broker_running

DEADLINE_S = 60  # only bounds a hang


def start(shell: Shell, *words: str, **channels: object) -> subprocess.Popen[bytes]:
    environment = os.environ | {"MINIBROKER_BOOTSTRAP": shell.address}
    return subprocess.Popen(  # type: ignore[call-overload,no-any-return]
        [*MINIBROKER, *words],
        env=environment,
        # A run in the background of a script (`make test &`) has it ignored, and its children would too.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        **channels,
    )


@pytest.mark.slow
def test_a_reader_who_has_seen_enough_is_no_failure(shell: Shell, topic: str) -> None:
    shell.good("produce", "-t", topic, stdin=b"x" * 99 + b"\n" + b"y\n" * 200_000)
    with start(shell, "consume", topic, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout
        assert process.stderr
        assert process.stdout.readline() == b"x" * 99 + b"\n"
        process.stdout.close()
        shell.good("produce", "-t", topic, stdin=b"more\n" * 20_000)
        assert process.wait(DEADLINE_S) == 0
        assert b"Traceback" not in process.stderr.read()


def test_ctrl_c_is_a_good_end_of_consume(shell: Shell, topic: str) -> None:
    shell.good("produce", "-t", topic, stdin=b"one\n")
    with start(shell, "consume", topic, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout
        assert process.stderr
        assert process.stdout.readline() == b"one\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(DEADLINE_S) == 0
        assert b"Traceback" not in process.stderr.read()


def test_ctrl_c_ends_produce_and_what_was_read_is_written(shell: Shell, topic: str) -> None:
    with start(shell, "produce", "-t", topic, "-v", stdin=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdin
        assert process.stderr
        process.stdin.write(b"one\n")
        process.stdin.flush()
        assert shell.good("consume", topic, "-c1", "-q").lines == ["one"]  # while the pipe is open
        process.send_signal(signal.SIGINT)
        assert process.wait(DEADLINE_S) == 130
        assert b"Traceback" not in process.stderr.read()


def test_a_producer_that_is_told_to_end_leaves_no_transaction_open(shell: Shell, topic: str) -> None:
    for number, status in ((signal.SIGTERM, 143), (signal.SIGINT, 130)):
        name = f"{topic}-{number}"
        words = ("produce", "-t", topic, "-v", "--transactional-id", name)
        with start(shell, *words, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            assert process.stdin
            assert process.stderr
            process.stdin.write(b"one\n")
            process.stdin.flush()
            assert shell.good("consume", topic, "-c1", "-q").lines == ["one"]  # while the pipe is open
            process.send_signal(number)
            assert process.wait(DEADLINE_S) == status
            assert b"Traceback" not in process.stderr.read()
        (found,) = json.loads(shell.good("transactions", "describe", name, "--json").text)
        assert found["state"] == "CompleteAbort"
        shell.good("topics", "--delete", topic)
        shell.good("topics", "--create", topic)


def test_pipes_from_one_to_the_other(shell: Shell, topic: str) -> None:
    shell.good("topics", "--create", f"{topic}-copy")
    data = b"".join(b"%d:value %d\n" % (number, number) for number in range(5000))
    shell.good("produce", "-t", topic, "-K:", stdin=data)
    with (
        start(shell, "consume", topic, "-eqJ", stdout=subprocess.PIPE) as source,
        start(shell, "produce", "-t", f"{topic}-copy", "-J", stdin=source.stdout) as sink,
    ):
        assert (source.wait(), sink.wait()) == (0, 0)
    assert shell.good("consume", f"{topic}-copy", "-eq", "-K:").output == data


@pytest.mark.slow
def test_progress_is_shown_on_a_terminal_only(shell: Shell, topic: str) -> None:
    main, terminal = pty.openpty()
    data = b"0123456789\n" * 150_000
    with start(shell, "produce", "-t", topic, stdin=subprocess.PIPE, stderr=terminal) as process:
        process.communicate(data)
        assert process.returncode == 0
    os.close(terminal)
    shown = os.read(main, 65_536)
    os.close(main)
    assert b" records written, " in shown
    assert shown.endswith(b"\r\x1b[K")
    assert shell.good("produce", "-t", topic, stdin=data).errors == ""


@contextmanager
def listening(answer: Callable[[socket.socket], None]) -> Iterator[str]:
    """Accept one connection and do something with it."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def accept() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(65_536)
                answer(connection)

        thread = threading.Thread(target=accept)
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        thread.join()


ANSWERS = {
    "hangs up": lambda connection: None,
    "speaks HTTP": lambda connection: connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n"),
    "sends garbage": lambda connection: connection.sendall(b"\0\0\0\x08\xff\xff\xff\xff\0\0\0\0"),
}


@pytest.mark.parametrize("answer", ANSWERS)
@pytest.mark.parametrize("command", ["topics", "health"])
def test_who_is_no_broker_is_found_out(command: str, answer: str) -> None:
    with listening(ANSWERS[answer]) as address:
        ran = Shell(address)(command)
    assert (ran.status, ran.output) == (1, b"")
    assert ran.errors.startswith(f"minibroker {command}: ")
    assert "Traceback" not in ran.errors


@pytest.fixture
def nobody() -> str:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return f"127.0.0.1:{server.getsockname()[1]}"


@pytest.mark.parametrize(
    "words", ["topics", "consume orders", "produce -t orders", "offsets", "configs -t orders", "metadata"]
)
def test_a_broker_that_is_not_there(nobody: str, words: str) -> None:
    ran = Shell(nobody)(*words.split())
    assert (ran.status, ran.output) == (1, b"")
    assert f"nobody answers at {nobody}: is the broker running? `minibroker serve` starts one" in ran.errors


def test_health_of_what_is_not_there(nobody: str) -> None:
    assert Shell(nobody)("health").status == 1
    assert "Connection refused" in Shell(nobody)("health").errors
    assert Shell(nobody)("health", "--quiet").errors == ""
    assert '"healthy": false' in Shell(nobody)("health", "-J").text


def test_health_of_a_broker(shell: Shell, nobody: str) -> None:
    assert shell.good("health").lines == [f"{shell.address} is healthy: 1 broker, controller 1"]
    assert shell.good("health", "-q").lines == []
    assert '"brokers": 1' in shell.good("health", "--json").text
    assert shell.good("health", "-b", f"{nobody},{shell.address}").status == 0


@pytest.mark.parametrize("as_version", ["0.8.2", "0.9.0"])
def test_health_of_a_broker_that_knows_no_question_without_topics(as_version: str, nobody: str) -> None:
    with broker_running("--as-version", as_version, "--topic", "orders") as address:
        for words in ((), ("-X", "api.version.request=false")):
            assert Shell(address).good("health", *words).lines == [f"{address} is healthy: 1 broker"]
        assert '"controller": null' in Shell(address).good("health", "--json").text


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("qqqq", "'qqqq'. There are "),
        ("qqqq --text", "'qqqq'. There are "),
        ("high-watermrk", "did you mean high-watermark? There"),
        ("nope.txt", "minibroker lesson: nope.txt: No such file or directory\n"),
    ],
)
def test_a_lesson_that_is_none(words: str, said: str) -> None:
    ran = Shell("unused:1")("lesson", *words.split())
    assert (ran.status, said in ran.errors) == (2, True)


def test_the_text_of_a_lesson_can_be_played_as_one_s_own(tmp_path: Path) -> None:
    shell, mine = Shell("unused:1"), tmp_path / "mine.txt"
    mine.write_text(shell.good("lesson", "zombies", "--text").text, "utf-8")
    assert shell.good("lesson", str(mine), "--run").text == shell.good("lesson", "zombies", "--run").text


@pytest.mark.parametrize("timeout", ["0", "-1", "nan", "inf", "soon"])
def test_a_timeout_that_is_none_is_not_the_fault_of_the_broker(timeout: str, nobody: str) -> None:
    ran = Shell(nobody)("health", "--timeout", timeout)
    assert ran.status == 2
    assert f"{timeout} is no number of seconds" in ran.errors


@pytest.mark.parametrize("address", ["host:port", ":9092", "host:99999x"])
@pytest.mark.parametrize("command", ["health", "topics"])
def test_an_address_that_is_none(command: str, address: str) -> None:
    ran = Shell("unused:1")(command, "-b", address)
    assert ran.status == 2
    assert "say host:port" in ran.errors


def test_an_address_may_come_by_other_names(shell: Shell, nobody: str) -> None:
    for words in (("--bootstrap-server",), ("--broker-list",), ("-X", "bootstrap.servers=")):
        *option, last = words
        given = [*option, last + shell.address] if last.endswith("=") else [*words, shell.address]
        assert Shell(nobody)("topics", *given).status == 0
    assert Shell(nobody)("topics", "-b", f"PLAINTEXT://{shell.address}").status == 0


@pytest.mark.slow
def test_an_advertised_address_that_cannot_be_reached_is_named(nobody: str) -> None:
    port = nobody.rpartition(":")[2]
    options = ("--port", port, "-o", "advertised.listeners=PLAINTEXT://127.0.0.1:1", "--topic", "orders")
    with broker_running(*options):
        ran = Shell(nobody)("offsets", "orders")
    assert ran.status == 1
    assert f"{nobody} answers, but says that clients shall use 127.0.0.1:1" in ran.errors
    assert "advertised.listeners" in ran.errors

"""`minibroker serve` as a process: what it refuses, what it says, and how it takes what its parent left it."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from minibroker import Broker
from minibroker.client import Admin, Cluster, NewTopic
from minibroker.embedded import BrokerError
from minibroker.errors import KafkaError
from tests.security.conversations import client_first, login, plain, play
from tests.security.conversations import scram as scram_login

SECONDS_MAX = 60  # a process that hangs must not hang the tests
SERVE = (sys.executable, "-m", "minibroker", "serve")


def environment(variables: Mapping[str, str]) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("KAFKA_", "CLUSTER_ID"))}
    return {**kept, **variables}


def refusal(*arguments: str, **variables: str) -> str:
    """Return what a start says that fails; nothing is on stdout then."""
    ran = subprocess.run(
        [*SERVE, *arguments], env=environment(variables), capture_output=True, text=True, timeout=SECONDS_MAX
    )
    assert (ran.returncode, ran.stdout) == (2, "")
    assert "Traceback" not in ran.stderr
    return ran.stderr


@contextmanager
def serving(
    *arguments: str, prepare: Callable[[], object] | None = None, cwd: Path | None = None, **variables: str
) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Start a broker; yield it with the address that it printed. prepare: what the child does before it is one."""
    process = subprocess.Popen(
        [*SERVE, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(variables),
        preexec_fn=prepare,
        cwd=cwd,
    )
    try:
        assert process.stdout
        yield process, process.stdout.readline().strip()
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def stopped(process: subprocess.Popen[str], number: int = signal.SIGTERM) -> str:
    """Ask for an orderly stop; return what is on stderr."""
    process.send_signal(number)
    _, said = process.communicate(timeout=SECONDS_MAX)
    assert process.returncode == 0, said
    return said


@pytest.mark.parametrize(("protocol", "more"), [("SSL", ()), ("SASL_SSL", ("--user", "alice:secret"))])
def test_nobody_is_served_in_plain_text_where_tls_was_asked_for(protocol: str, more: tuple[str, ...]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as held:
        port = held.getsockname()[1]
    said = refusal("--memory", *more, KAFKA_LISTENERS=f"{protocol}://127.0.0.1:{port}")
    assert said.startswith(f"minibroker serve: environment variable KAFKA_LISTENERS: listeners={protocol}://")
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=SECONDS_MAX)


def test_a_listener_that_asks_for_a_login_says_who_can_come_in_or_does_not_start() -> None:
    said = refusal("--memory", KAFKA_LISTENERS="SASL_PLAINTEXT://127.0.0.1:0")
    assert "sasl.enabled.mechanisms=GSSAPI: GSSAPI (Kerberos, which it is by default) is not served" in said
    said = refusal("--memory", "--user", "alice:hush", "-o", "listeners=PLAINTEXT://127.0.0.1:0")
    assert said.startswith("minibroker serve: users: no listener asks for a login")
    said = refusal("--memory", "--port", "0", "--user", "hush")
    assert said.startswith("minibroker serve: --user, --add-scram: a user is NAME:PASSWORD")
    assert "hush" not in said


@pytest.mark.parametrize("more", [(), ("--brokers", "2")])
def test_users_of_the_command_line_log_in(more: tuple[str, ...]) -> None:
    scram = "SCRAM-SHA-256=[name=bob,password=other]"
    with serving("--memory", "--port", "0", "--user", "alice:secret", "--add-scram", scram, *more) as (_, address):
        host, _, port = address.split(",")[0].rpartition(":")
        for conversation, is_in in (
            (login("PLAIN", plain("alice", "secret")), True),
            (login("PLAIN", plain("alice", "other")), False),
            (scram_login("SCRAM-SHA-512", client_first(), "secret"), True),
            (scram_login("SCRAM-SHA-256", client_first("bob"), "other"), True),
            (scram_login("SCRAM-SHA-256", client_first("bob"), "secret"), False),
        ):
            assert (asyncio.run(play(host, int(port), conversation))[-1] != "closed") is is_in


def test_several_data_directories_are_refused_and_none_is_made(tmp_path: Path) -> None:
    said = refusal("--port", "0", "-o", f"log.dirs={tmp_path}/a,{tmp_path}/b")
    assert "partitions are kept in one data directory" in said
    assert not list(tmp_path.iterdir())


def test_a_properties_file_that_is_no_text_is_named(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_bytes(b"\x7fELF\x02\x01\xff\xfe")
    assert f"--config {file}: no text in UTF-8" in refusal("--memory", "--config", str(file))


@pytest.mark.parametrize("options", [("--memory",), ("--memory", "--brokers", "2"), ()])
def test_tls_makes_certificates_and_says_where_they_are(options: tuple[str, ...], tmp_path: Path) -> None:
    where = () if options else ("--data-dir", str(tmp_path))
    with serving("--tls", "--port", "0", *options, *where) as (process, bootstrap):
        assert process.stderr
        told = next(line for line in process.stderr if "clients of TLS trust" in line)
        ca = Path(told.split(" trust ")[1].partition(",")[0])
        host, _, port = bootstrap.partition(",")[0].partition(":")
        context = ssl.create_default_context(cafile=ca)
        plain = socket.create_connection((host, int(port)), timeout=SECONDS_MAX)
        with context.wrap_socket(plain, server_hostname=host) as tls:
            tls.sendall(f"GET /health HTTP/1.1\r\nHost: {bootstrap}\r\n\r\n".encode())
            assert tls.recv(1000).startswith(b"HTTP/1.1 200 OK")
        assert ca.parent == tmp_path or options
        stopped(process)
    assert ca.exists() == (not options)


@pytest.mark.parametrize("auth", ["none", "required"])
def test_only_who_lets_everybody_in_is_told_so(auth: str) -> None:
    options = ("--tls", "--memory", "--host", "0.0.0.0", "--port", "0", "-o", f"ssl.client.auth={auth}")
    with serving(*options) as (process, _):
        said = stopped(process)
        assert ("nobody is asked for a password" in said) == (auth == "none")
        assert "browser" not in said


def test_tls_goes_with_the_listeners_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("listeners=OUTSIDE://127.0.0.1:0\nlistener.security.protocol.map=OUTSIDE:SSL\n")
    with serving("--tls", "--memory", "--config", str(file)) as (process, bootstrap):
        assert bootstrap.startswith("127.0.0.1:")
        assert bootstrap != "127.0.0.1:9092"
        stopped(process)
    file.write_text("listeners=PLAINTEXT://127.0.0.1:0\n")
    assert "--tls: no listener uses TLS" in refusal("--tls", "--memory", "--config", str(file))


def test_a_thousand_brokers_are_refused_at_once() -> None:
    assert "at most 100 brokers, not 1000" in refusal("--memory", "--port", "0", "--brokers", "1000")


def test_a_host_that_has_no_address_is_named() -> None:
    words = "no address of the host 'nohost.invalid' is known: "
    assert words in refusal("--memory", "--port", "0", "--host", "nohost.invalid")
    with pytest.raises(BrokerError, match=words), Broker(host="nohost.invalid"):
        pass


def test_a_file_is_no_data_directory(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"")
    words = f"{file} is a file, and a directory is wanted there"
    assert words in refusal("--port", "0", "--data-dir", str(file))
    with pytest.raises(BrokerError, match=words), Broker(data_dir=file):
        pass
    assert f"make directory {file}/below: Not a directory" in refusal("--port", "0", "--data-dir", f"{file}/below")


def test_nothing_is_not_repaired(tmp_path: Path) -> None:
    typo, empty = tmp_path / "typo", tmp_path / "empty"
    empty.mkdir()
    for path in (typo, empty):
        assert f"--repair: there is nothing in {path}" in refusal("--port", "0", "--repair", "--data-dir", str(path))
    assert list(tmp_path.iterdir()) == [empty]
    assert not list(empty.iterdir())
    assert "--repair: not with --memory" in refusal("--port", "0", "--repair", "--memory")


def test_no_rack_is_dropped() -> None:
    words = "there are 4 racks for 3 brokers, and a broker is in one"
    assert words in refusal("--memory", "--port", "0", "--brokers", "3", "--rack", "a,b,c,d")


@pytest.mark.parametrize("options", [(), ("--brokers", "1")])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("has_uvloop", [True, False])
def test_a_second_signal_does_not_spoil_the_status_of_an_end_in_order(
    has_uvloop: bool, number: signal.Signals, options: tuple[str, ...]
) -> None:
    """It comes when the loop is closed and nothing is left to be stopped, or later, when Python takes handlers away."""
    code = f"""
import os, signal, sys
if not {has_uvloop}:
    sys.modules["uvloop"] = None
from minibroker import cli
status = cli.main(["serve", "--memory", "--port", "0", "--quiet", *{options!r}])
os.kill(os.getpid(), {int(number)})
sys.exit(status or signal.getsignal({int(number)}) != signal.SIG_IGN)
"""
    with subprocess.Popen([sys.executable, "-c", code], env=environment({}), stdout=subprocess.PIPE) as process:
        assert process.stdout
        process.stdout.readline()
        process.send_signal(number)
        assert process.wait(SECONDS_MAX) == 0


def test_the_first_line_is_the_listener_of_this_machine_and_stderr_has_the_others() -> None:
    variables = {
        "KAFKA_CFG_LISTENERS": "INTERNAL://127.0.0.1:0,EXTERNAL://127.0.0.1:0",
        "KAFKA_CFG_ADVERTISED_LISTENERS": "INTERNAL://kafka:29592,EXTERNAL://localhost:0",
        "KAFKA_CFG_LISTENER_SECURITY_PROTOCOL_MAP": "INTERNAL:PLAINTEXT,EXTERNAL:PLAINTEXT",
    }
    with serving("--memory", **variables) as (process, address):
        host, _, port = address.partition(":")
        socket.create_connection((host, int(port)), timeout=SECONDS_MAX).close()
        said = stopped(process)
    assert host == "localhost"
    assert f"minibroker: a browser shows it at http://{address}\n" in said
    assert "minibroker: listener INTERNAL is found at kafka:29592" in said
    assert "unknown setting" not in said


@pytest.mark.parametrize(("host", "is_said"), [("127.0.0.1", False), ("0.0.0.0", True)])
def test_a_broker_that_other_machines_reach_says_that_nobody_is_asked_for_a_password(host: str, is_said: bool) -> None:
    with serving("--memory", "--port", "0", "--host", host) as (process, _):
        assert ("nobody is asked for a password" in stopped(process)) == is_said


@pytest.mark.parametrize("closed", [(0,), (1,), (2,), (0, 1, 2)])
def test_closed_standard_files_are_no_place_for_sockets_and_the_stop_is_clean(
    closed: tuple[int, ...], tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as held:
        port = held.getsockname()[1]
    arguments = ("--port", str(port), "--data-dir", str(tmp_path))

    def close() -> None:
        for handle in closed:
            os.close(handle)

    with serving(*arguments, prepare=close) as (process, _):
        while True:  # a closed stdout says nothing: the port does
            try:
                socket.create_connection(("127.0.0.1", port), timeout=SECONDS_MAX).close()
                break
            except ConnectionRefusedError:
                assert process.poll() is None
        open_files = {number: os.readlink(f"/proc/{process.pid}/fd/{number}") for number in range(3)}
        stopped(process)
    assert all(open_files[handle] == "/dev/null" for handle in closed), open_files
    assert (tmp_path / ".kafka_cleanshutdown").exists()


def test_a_terminal_that_closes_is_an_orderly_stop(tmp_path: Path) -> None:
    listen = lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL)  # noqa: E731 the tests may have been begun by nohup
    with serving("--port", "0", "--data-dir", str(tmp_path), prepare=listen) as (process, _):
        stopped(process, signal.SIGHUP)
    assert (tmp_path / ".kafka_cleanshutdown").exists()


def test_nohup_keeps_its_word(tmp_path: Path) -> None:
    ignore = lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN)  # noqa: E731
    with serving("--port", "0", "--data-dir", str(tmp_path), prepare=ignore) as (process, address):
        process.send_signal(signal.SIGHUP)
        host, _, port = address.partition(":")
        socket.create_connection((host, int(port)), timeout=SECONDS_MAX).close()
        stopped(process)


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [(("--data-dir", "d"), "d"), (("-o", "log.dirs=d"), "d"), (("-o", "log.dir=d"), "d"), ((), "minibroker-data")],
)
@pytest.mark.setting("log.dir", "log.dirs")
def test_log_dirs_says_where_the_data_are(arguments: tuple[str, ...], wanted: str, tmp_path: Path) -> None:
    with serving("--port", "0", *arguments, cwd=tmp_path) as (process, address):
        configs = [sys.executable, "-m", "minibroker", "configs", "--describe", "--all", "--entity-type", "brokers"]
        ran = subprocess.run(
            [*configs, "--entity-name", "1", "-b", address], capture_output=True, text=True, timeout=SECONDS_MAX
        )
        stopped(process)
    assert f"log.dirs={tmp_path / wanted} " in ran.stdout, ran.stderr
    assert (tmp_path / wanted / "meta.properties").exists()


# Its metadata log

FAILING_SYNC = """
import errno, sys
from minibroker import cli, serve
from minibroker.simulation.disk import SimulatedStorage

def arm(*given):
    disk.fail(errno.EIO, doing="sync", path=f"__cluster_metadata-0/{0:020d}.log")
    tell(*given)

disk, tell = SimulatedStorage(), serve._tell
serve._storage, serve._tell = lambda *given: disk, arm
sys.exit(cli.main(["serve", "--memory", "--port", "0"]))
"""


async def test_a_broker_ends_whose_metadata_cannot_be_synced() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", FAILING_SYNC],
        env=environment({}),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout
        address = process.stdout.readline().strip()
        async with Cluster(address, timeout_ms=1000, retry_count=1) as cluster:
            with pytest.raises(KafkaError):  # nobody can say whether there is such a topic now
                await Admin(cluster).create_topics([NewTopic("orders", 1)])
        _, said = process.communicate(timeout=SECONDS_MAX)
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == 2
    assert "minibroker serve: KAFKA_STORAGE_ERROR: __cluster_metadata-0 is offline: " in said, said
    assert "Input/output error" in said
    assert "Traceback" not in said

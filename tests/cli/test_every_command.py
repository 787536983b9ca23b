"""Every command where its output cannot go, its path leads nowhere, nobody answers or the terminal is narrow.

What must hold: a status, at most one line on standard error that says what is wrong, and never a traceback.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from minibroker.cli import COMMANDS
from tests.cli.running import MINIBROKER, broker_running

DEADLINE_S = 60  # only bounds a hang
DEAD = "127.0.0.1:1"  # where nobody may listen

LOGIN = ["-X", "security.protocol=SASL_PLAINTEXT", "-X", "sasl.mechanism=PLAIN"]
LOGIN += ["-X", "sasl.username=admin", "-X", "sasl.password=secret"]
# Command -> how it is typed, with {broker} for an address and {path} for a path that it reads. A row for each command.
TYPED = {
    "serve": ["serve", "--help"],
    "lesson": ["lesson"],
    "watch": ["watch", "--once", "-b", "{cluster}"],
    "topics": ["topics", "-b", "{broker}", "--describe"],
    "produce": ["produce", "-b", "{broker}", "-t", "orders", "{path}"],
    "consume": ["consume", "-b", "{broker}", "-t", "orders", "-e", "-q"],
    "groups": ["groups", "-b", "{broker}", "--list"],
    "transactions": ["transactions", "-b", "{broker}", "list"],
    "offsets": ["offsets", "-b", "{broker}", "-t", "orders"],
    "configs": ["configs", "-b", "{broker}", "--describe", "--topic", "orders", "--all"],
    "users": ["users", "-b", "{broker}"],
    "acls": ["acls", "-b", "{secured}", *LOGIN],
    "who-may": ["who-may", "-b", "{broker}", "alice", "write", "orders"],
    "tokens": ["tokens", "-b", "{secured}", *LOGIN],
    "quotas": ["quotas", "-b", "{broker}"],
    "instances": ["instances", "-b", "{broker}"],
    "metadata": ["metadata", "-b", "{broker}"],
    "retention": ["retention", "-b", "{broker}", "-t", "orders"],
    "compact": ["compact", "-b", "{broker}", "-t", "orders"],
    "roll": ["roll", "-b", "{broker}", "-t", "orders"],
    "cluster": ["cluster", "state", "-b", "{cluster}"],
    "faults": ["faults", "list", "-b", "{broker}"],
    "doctor": ["doctor"],
    "health": ["health", "-b", "{broker}"],
    "proxy": ["proxy", "--help"],
    "replay": ["replay", "{path}", "--list"],
    "explain": ["explain", "{path}"],
    "dump": ["dump", "--print-data-log", "{path}"],
    "formats": ["formats"],
    "codecs": ["codecs", "{path}", "--sample-bytes", "1KB"],
    "verify": ["verify", "{path}"],
    "spark": ["spark"],
}
SILENT = {"produce", "groups", "faults"}  # have nothing to say when all is well
SECURED = ["-o", "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer"]
SECURED += ["-o", "super.users=User:admin", "-o", "delegation.token.secret.key=hush"]
READS = {name for name, words in TYPED.items() if "{path}" in words}
ADDRESSES = ("broker", "cluster", "secured")
ASKS = {name for name, words in TYPED.items() if {f"{{{each}}}" for each in ADDRESSES} & {*words}}
NOBODY = dict.fromkeys(ADDRESSES, DEAD)

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Where there is something to be read."""
    directory = tmp_path_factory.mktemp("data")
    data = directory / "data"
    serving = [*MINIBROKER, "serve", "--port", "0", "--quiet", "--data-dir", str(data), "--topic", "orders"]
    serving += ["--record", str(directory / "traffic.rec")]
    with (
        broker_running("--brokers", "1", "--topic", "orders") as cluster,
        broker_running("--user", "admin:secret", *SECURED) as secured,
        subprocess.Popen(serving, stdout=subprocess.PIPE, text=True) as broker,
    ):
        assert broker.stdout
        address = broker.stdout.readline().strip()
        lines = b"".join(b"line %d\n" % number for number in range(3000))
        subprocess.run([*MINIBROKER, "produce", "-b", address, "-t", "orders"], input=lines, check=True)
        (directory / "values").write_bytes(b"one\n")
        yield {
            "broker": address,
            "cluster": cluster,
            "secured": secured,
            "data": str(data),
            "values": str(directory / "values"),
            "recording": str(directory / "traffic.rec"),
        }
        broker.terminate()


def typed(name: str, places: dict[str, str]) -> list[str]:
    log = min(Path(places["data"], "orders-0").glob("*.log"))  # others may begin new segments
    paths = {
        "produce": places["values"],
        "explain": str(log),
        "dump": str(log),
        "codecs": str(log),
        "verify": places["data"],
        "replay": places["recording"],
    }
    return [word.format(path=paths.get(name, ""), **places) for word in TYPED[name]]


def run(words: list[str], stdout: int, **more: str) -> tuple[int, str]:
    """Return the status of a command and what it says on standard error."""
    done = subprocess.run(
        [*MINIBROKER, *words],
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        timeout=DEADLINE_S,
        env={**os.environ, **more},
        check=False,
    )
    return done.returncode, done.stderr


def test_there_is_a_row_for_every_command() -> None:
    assert list(TYPED) == list(COMMANDS)


@pytest.mark.parametrize("name", TYPED)
def test_a_disk_without_room_is_named_in_one_line(name: str, places: dict[str, str]) -> None:
    with open("/dev/full", "wb") as full:
        status, said = run(typed(name, places), full.fileno())
    if name in SILENT:
        assert (status, said) == (0, "")
    else:
        assert (status, said) == (1, "minibroker: standard output: No space left on device\n")


@pytest.mark.parametrize("name", TYPED)
def test_a_reader_that_has_gone_is_a_good_end(name: str, places: dict[str, str]) -> None:
    readable, writable = os.pipe()
    os.close(readable)
    try:
        assert run(typed(name, places), writable) == (0, "")
    finally:
        os.close(writable)


@pytest.mark.parametrize("name", sorted(READS))
def test_a_path_that_leads_nowhere_is_named(name: str, places: dict[str, str]) -> None:
    words = [word.format(path="/not/there", **places) for word in TYPED[name]]
    status, said = run(words, subprocess.DEVNULL)
    assert status == 2
    assert said.count("\n") == 1
    assert "/not/there" in said
    assert said.startswith(f"minibroker {name}: ")


@pytest.mark.parametrize("name", sorted(ASKS))
def test_who_does_not_answer_is_named(name: str, places: dict[str, str]) -> None:
    words = typed(name, {**places, **NOBODY})
    status, said = run(words, subprocess.DEVNULL)
    assert status == 1
    assert said.count("\n") == 1
    assert DEAD in said
    assert said.startswith(f"minibroker {name}: ")
    assert "Errno" not in said


@pytest.mark.parametrize("name", sorted(ASKS - {"watch"}))  # which starts a cluster unless -b names one
def test_who_does_not_answer_is_named_if_a_variable_says_who(name: str, places: dict[str, str]) -> None:
    words = typed(name, {**places, **NOBODY})
    index = words.index("-b")
    del words[index : index + 2]
    status, said = run(words, subprocess.DEVNULL, MINIBROKER_BOOTSTRAP=DEAD)
    assert status == 1
    assert said.count("\n") == 1
    assert DEAD in said
    assert "localhost" not in said


@pytest.mark.parametrize("name", sorted(ASKS - {"watch"}))  # which takes no -X
def test_a_property_that_nobody_knows_is_refused(name: str, places: dict[str, str]) -> None:
    status, said = run([*typed(name, places), "-X", "no.such=1"], subprocess.DEVNULL)
    assert status == 2
    assert said.count("\n") == 1
    assert said.startswith(f"minibroker {name}: -X no.such: not known here; there are ")


@pytest.mark.parametrize("name", TYPED)
def test_a_narrow_terminal_is_no_reason_to_fail(name: str, places: dict[str, str]) -> None:
    status, said = run([*TYPED[name][:1], "--help"], subprocess.DEVNULL, COLUMNS="20", LINES="5")
    assert (status, said) == (0, "")
    if name in {"spark"}:
        return  # without a job it says which there are, with status 2
    assert run(typed(name, places), subprocess.DEVNULL, COLUMNS="20", LINES="5") == (0, "")


@pytest.mark.parametrize("name", TYPED)
def test_an_option_that_is_none_takes_one_line(name: str) -> None:
    status, said = run([*TYPED[name][:1], "--no-such-option"], subprocess.DEVNULL)
    assert status == 2
    assert "Traceback" not in said
    assert said.count("\n") == 1 or name == "spark"


@pytest.mark.parametrize(
    ("words", "same"),
    [
        (["help"], ["--help"]),
        (["version"], ["--version"]),
        (["help", "roll"], ["roll", "--help"]),
        (["-b", "{broker}", "topics", "--list"], ["topics", "--list", "-b", "{broker}"]),
        (["topic", "list", "-b", "{broker}"], ["topics", "--list", "-b", "{broker}"]),
        (["topics", "describe", "orders", "-b", "{broker}"], ["topics", "--describe", "orders", "-b", "{broker}"]),
        (["-b", "{broker}", "-L", "-t", "orders"], ["metadata", "-b", "{broker}", "-t", "orders"]),
    ],
    ids=lambda words: "-".join(words),
)
def test_what_people_type_who_come_from_other_tools(words: list[str], same: list[str], places: dict[str, str]) -> None:
    outputs = []
    for each in (words, same):
        command = [*MINIBROKER, *(word.format(**places) for word in each)]
        done = subprocess.run(command, capture_output=True, timeout=DEADLINE_S, check=False)
        assert (done.returncode, done.stderr) == (0, b"")
        outputs.append(done.stdout)
    assert outputs[0] == outputs[1]
    assert outputs[0]


def test_a_text_that_is_taken_for_a_file_is_told_where_it_goes(places: dict[str, str]) -> None:
    status, said = run(["produce", "-b", places["broker"], "-t", "orders", "hello"], subprocess.DEVNULL)
    assert status == 2
    assert said.startswith("minibroker produce: hello: No such file or directory; ")
    assert "echo hello |" in said


def test_a_directory_without_logs_is_none_to_be_verified(tmp_path: Path) -> None:
    (tmp_path / "foreign.tmp").write_text("x")
    status, said = run(["verify", str(tmp_path)], subprocess.DEVNULL)
    assert (status, said) == (2, f"minibroker verify: {tmp_path}: holds no logs\n")

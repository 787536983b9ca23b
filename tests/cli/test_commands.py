"""Which command is meant, what is said when none is, and what commands load: all without a broker."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from types import FunctionType

import pytest

import minibroker
from minibroker.cli import COMMANDS, _command, doctor, main, parser_of
from minibroker.log.validate import validate_in_place
from tests.cli.running import MINIBROKER, Shell

shell_without_broker = Shell("127.0.0.1:1")
HOW = "pure Python" if isinstance(validate_in_place, FunctionType) else "compiled"
VERSION = f"minibroker {minibroker.__version__} ({HOW})\n"


@pytest.mark.parametrize(
    ("typed", "command", "rest"),
    [
        ("topics --list", "topics", "--list"),
        ("-L -b host", "metadata", "-b host"),
        ("-b host -L", "metadata", "-b host"),
        ("-bhost -t orders -C -e", "consume", "-bhost -t orders -e"),
        ("-C -b host", "consume", "-b host"),
        ("-Ce -t orders", "consume", "-e -t orders"),
        ("-eC -t orders", "consume", "-e -t orders"),
        ("-P -t orders -K :", "produce", "-t orders -K :"),
        ("-t -C -P", "produce", "-t -C"),
        ("-tCPL -Q", "offsets", "-tCPL"),
        ("consume -L", "consume", "-L"),
    ],
)
def test_a_mode_of_kcat_is_a_command(typed: str, command: str, rest: str) -> None:
    committed = ["-X", "isolation.level=read_committed"] if command == "consume" and typed != "consume -L" else []
    assert _command(typed.split()) == (command, committed + rest.split())


def test_options_without_a_mode_are_no_command() -> None:
    ran = shell_without_broker("-b", "localhost")
    assert ran.status == 2
    assert "say -C to consume" in ran.errors


def test_the_overview_names_every_command() -> None:
    ran = shell_without_broker("--help")
    assert ran.status == 0
    assert all(f"\n  {name}" in ran.text for name in COMMANDS)


def test_a_misspelled_command_is_recognised() -> None:
    ran = shell_without_broker("topcs")
    assert (ran.status, ran.output) == (2, b"")
    assert "did you mean topics?" in ran.errors


def test_the_version_is_told() -> None:
    assert shell_without_broker("--version").text == VERSION


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(command: str) -> None:
    ran = shell_without_broker(command, "--help")
    assert ran.status == 0
    assert f"usage: minibroker {command}" in ran.text
    undocumented = [
        action.option_strings
        for action in parser_of(command)._actions
        if action.option_strings and not action.help and not action.metavar and action.nargs == 0
    ]
    assert not [names for names in undocumented if names != ["--exclude-internal-topics"]]


def loaded_by(*words: str) -> set[str]:
    code = f"import sys; from minibroker.cli import main\ntry: main({list(words)!r})\nexcept SystemExit: pass\n"
    code += "print(*sys.modules, file=sys.stderr)"
    return set(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stderr.split())


@pytest.mark.parametrize("command", ["topics", "produce", "consume", "groups", "serve", "dump"])
def test_help_loads_no_client_and_no_other_command(command: str) -> None:
    loaded = loaded_by(command, "--help")
    assert not loaded & {"asyncio", "minibroker.client", "minibroker.protocol", "json", "typing", "dataclasses"}
    others = {f"minibroker.cli.{name}" for name in COMMANDS} - {f"minibroker.cli.{command}", "minibroker.cli.explain"}
    assert not loaded & others


def test_health_needs_no_asyncio() -> None:
    assert not loaded_by("health", "-q", "-b", "127.0.0.1:1") & {"asyncio", "json", "typing", "ssl"}


def test_the_overview_needs_no_argparse() -> None:
    assert "argparse" not in loaded_by("--help")


def test_python_m_minibroker_is_the_command() -> None:
    done = subprocess.run([*MINIBROKER, "--version"], capture_output=True, text=True)
    assert done.stdout == VERSION


def test_doctor_says_what_runs_here() -> None:
    found = json.loads(shell_without_broker("doctor", "-J").output)
    assert found["version"] == minibroker.__version__
    assert bool(found["compiled"]) is (HOW == "compiled")
    assert (
        len(found["compiled"])
        == len(set(found["compiled"]))
        == sum(name.rpartition(".")[2].isidentifier() and "cpython" not in name for name in found["compiled"])
    )
    assert found["packages"]["zstandard"]


def test_doctor_names_what_is_missing(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "xxhash", None)
    assert main(["doctor"]) == 1
    assert "xxhash is missing: pip install xxhash" in capsys.readouterr().out


def test_each_compiled_module_is_counted_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "minibroker"
    package.mkdir()
    for suffix in EXTENSION_SUFFIXES:
        (package / f"scan{suffix}").touch()
    (package / "scan.py").touch()
    monkeypatch.setattr(doctor, "PACKAGE", package)
    assert doctor.compiled_modules() == ["minibroker.scan"]

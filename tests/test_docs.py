"""The examples in README and docs/ run and print what they say, and the links between the pages lead somewhere.

The ```python blocks of a page run in order in one namespace, like a session. What a line prints is written behind it
as `# => text`, one per printed line.
"""

from __future__ import annotations

import ast
import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from minibroker.cli import COMMANDS, main, parser_of

ROOT = Path(__file__).parent.parent
TOP = [ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "tests/README.md")]
PAGES = [*TOP, *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_examples_run_and_print_what_they_say(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    names: dict[str, object] = {"__name__": "example"}
    for block in BLOCK.finditer(text):
        source = block.group(1)
        # Blank lines in front keep the page's line numbers in tracebacks.
        code = compile("\n" * text[: block.start(1)].count("\n") + source, str(page), "exec")
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(code, names)
        assert printed.getvalue().splitlines() == re.findall(r"# => (.*)$", source, re.MULTILINE)


COMMAND = re.compile(r"^\$ minibroker (.*)\n((?:(?!\$ |```).*\n)*)", re.MULTILINE)


# A page whose commands need a broker says with which options: <!-- broker: --topic orders:3 -->. They run in one shell,
# one after the other; its address becomes 127.0.0.1:9092, and ids of topics may be others than those that are shown.
BROKER = re.compile(r"^<!-- broker: (.*) -->$", re.MULTILINE)
SHELL_COMMAND = re.compile(r"^\$ (.*)\n((?:(?!\$ |```).*\n)*)", re.MULTILINE)
HERE = "127.0.0.1:9092"
TOPIC_ID = re.compile(r"TopicId: \S+")


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_commands_print_what_the_page_shows(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = page.read_text(encoding="utf-8")
    if BROKER.search(text):
        return
    for command, shown in COMMAND.findall(text):
        main(shlex.split(command))
        assert capsys.readouterr().out == shown


PAGES_WITH_BROKER = [page for page in PAGES if BROKER.search(page.read_text(encoding="utf-8"))]


@pytest.mark.parametrize("page", PAGES_WITH_BROKER, ids=name_of)
def test_commands_with_a_broker_print_what_the_page_shows(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    examples = SHELL_COMMAND.findall(text)
    command = f"{shlex.quote(sys.executable)} -m minibroker"
    (options,) = BROKER.findall(text)
    serve = [*shlex.split(command), "serve", "--port", "0", "--memory", "--quiet", *shlex.split(options)]
    with subprocess.Popen(serve, stdout=subprocess.PIPE, text=True) as broker:
        try:
            assert broker.stdout
            address = broker.stdout.readline().strip()
            lines = [f'minibroker() {{ {command} "$@"; }}']
            lines += [f"{line.replace(HERE, address)}\nprintf '\\0'" for line, _ in examples]
            environment = os.environ | {"MINIBROKER_BOOTSTRAP": address}
            bash = ["bash", "-c", "\n".join(lines)]
            done = subprocess.run(
                bash, stdin=subprocess.DEVNULL, capture_output=True, text=True, env=environment, cwd=ROOT, timeout=300
            )
        finally:
            broker.terminate()
    printed = TOPIC_ID.sub("TopicId:", done.stdout.replace(address, HERE)).split("\0")
    wanted = [TOPIC_ID.sub("TopicId:", shown) for _, shown in examples]
    assert list(zip(examples, printed)) == list(zip(examples, wanted)), done.stderr


def test_every_command_and_option_has_its_place_in_the_docs() -> None:
    pages = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
    for name in COMMANDS:
        spellings = [option for action in parser_of(name)._actions for option in action.option_strings]
        options = [option for option in spellings if option[:2] == "--"]
        missing = [word for word in (f"minibroker {name}", *options) if word not in pages and word != "--help"]
        assert not missing


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\((?!https?://|#)([^)#\s]+)", page.read_text(encoding="utf-8"))
    assert not [link for link in links if not (page.parent / link).exists()]


def test_readme_has_an_example() -> None:
    assert BLOCK.search((ROOT / "README.md").read_text(encoding="utf-8"))


def test_architecture_page_stays_short() -> None:
    assert len((ROOT / "docs/architecture.md").read_text(encoding="utf-8").splitlines()) < 200


def test_what_kafka_does_ends_before_what_our_parameters_mean() -> None:
    """docs/deviations.md is made of docstrings: of them only the sentences that begin with the word."""
    parameters: dict[str, set[str]] = {}
    for line in (ROOT / "docs" / "deviations.md").read_text("utf-8").splitlines():
        if found := re.fullmatch(r"\| `(minibroker/\S+\.py)` \| (.*) \|", line):
            path, said = found.groups()
            if path not in parameters:
                tree = ast.parse((ROOT / path).read_text("utf-8"))
                parameters[path] = {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
            assert not [name for name in parameters[path] if re.search(rf"\b{name}: ", said)], line
    assert len(parameters) > 20

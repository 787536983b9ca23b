"""Writes the pages of docs/ that are made from the code: `python -m docs.generate`.

Each page is a function from nothing to text; a test compares it with the file that is committed.
"""

from __future__ import annotations

import inspect
import re
from pathlib import Path

from minibroker import errors
from minibroker.protocol import message
from minibroker.protocol.registry import APIS, STORED, snake_case

HERE = Path(__file__).parent
PACKAGE = HERE.parent / "minibroker"


def errors_page() -> str:
    """Return docs/errors.md: the table of codes, then the exceptions."""
    former: dict[str, list[str]] = {}
    for old, name in errors.FORMER_NAMES.items():
        former.setdefault(name, []).append(f"formerly `{old}`")
    codes = [
        f"| {int(error)} | {', '.join([f'`{error.name}`', *former.get(error.name, [])])} "
        f"| {'yes' if error.retriable else ''} | {error.meaning} |"
        for error in errors.ERRORS
    ]
    exceptions = [
        f"| `{cls.__name__}` | {(cls.__doc__ or '').splitlines()[0]} |"
        for cls in vars(errors).values()
        if inspect.isclass(cls) and issubclass(cls, Exception)
    ]
    return "\n".join([_INTRODUCTION, *codes, _EXCEPTIONS, *exceptions, ""])


_INTRODUCTION = """\
# Errors

<!-- Made by `python -m docs.generate` from minibroker/errors.py: change it there. -->

Answers of a broker carry these codes. In Python, `Error(6)` is `Error.NOT_LEADER_OR_FOLLOWER`, an int with `name`,
`retriable` and `meaning`; `find_error("NOT_LEADER_FOR_PARTITION")` knows former names as well.
Retriable: clients repeat the request by themselves.

| code | name | retriable | what it means |
|---:|---|---|---|"""

_EXCEPTIONS = """
## Exceptions

`KafkaError` has `code` and `message`. `ProtocolError` and the classes derived from it, all but the last of this list,
have `reason`, `position` (of the first byte that is wrong) and `path` (of the field, as in
`FetchResponse.responses[0].partitions[2].records`). `EncodeError` has `reason` and `path`.

| class | raised when |
|---|---|"""


def messages_page() -> str:
    """Return docs/messages.md: every message, its versions, where it is declared and what it is for."""
    lines = [_MESSAGES]
    for number, api in APIS.items():
        request, response = message(f"{api}Request"), message(f"{api}Response")
        module = f"minibroker/protocol/messages/{snake_case(api)}.py"
        lines.append(f"| {number} | [{api}](../{module}) | {_versions(request)} | {_first_line(request)} |")
        assert _versions(request) == _versions(response)
    lines.append(_STORED)
    for module, names in STORED.items():
        for name in names:
            cls = message(name)
            lines.append(f"| [{name}](../minibroker/stored/{module}.py) | {_versions(cls)} | {_first_line(cls)} |")
    return "\n".join([*lines, ""])


def _versions(cls: type) -> str:
    schema = cls.schema  # type: ignore[attr-defined]
    first, last, flexible = schema.first_version, schema.last_version, schema.first_flexible
    versions = f"{first}-{last}" if last > first else f"{first}"
    return f"{versions} | {f'{flexible}+' if flexible <= last else ''}"


def _first_line(cls: type) -> str:
    return " ".join((cls.__doc__ or "").split("\n\n")[0].split())


def deviations_page() -> str:
    """Return docs/deviations.md: where we differ from Kafka on purpose, as the comments in the code say."""
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        text = path.read_text("utf-8")
        # A comment or a paragraph of a docstring that begins with the word, up to its end.
        for match in re.finditer(
            r"^ *# Kafka: (.*(?:\n *# .*)*)|^ *Kafka: (.*(?:\n *[^\s#\"].*)*)", text, re.MULTILINE
        ):
            said = " ".join(line.strip().removeprefix("# ") for line in (match[1] or match[2]).splitlines())
            said = said.removesuffix('"""').strip()
            found.append(f"| `{path.relative_to(PACKAGE.parent).as_posix()}` | {said} |")
    return "\n".join([_DEVIATIONS, *found, ""])


_MESSAGES = """\
# Messages

<!-- Made by `python -m docs.generate` from the declarations: change them there. -->

All versions that a release of Kafka up to 4.4 has served. Flexible versions have varint lengths and tagged fields.
`minibroker.protocol.message("FetchRequest")` gives the class.

| number | API | versions | flexible | the request |
|---:|---|---|---|---|"""

_STORED = """
## What brokers store

Records of internal topics and of the metadata log, side files, and what consumers hand each other.

| record | versions | flexible | what it is |
|---|---|---|---|"""

_DEVIATIONS = """\
# Where we differ from Kafka on purpose

<!-- Made by `python -m docs.generate` from comments that begin with `Kafka:`: change them there. -->

Each line says what Kafka does.

| where | Kafka |
|---|---|"""

PAGES = {"errors.md": errors_page, "messages.md": messages_page, "deviations.md": deviations_page}


def main() -> None:
    for name, page in PAGES.items():
        (HERE / name).write_text(page(), "utf-8")


if __name__ == "__main__":
    main()

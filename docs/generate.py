"""Writes the pages of docs/ that are made from the code: `python -m docs.generate`.

Each page is a function from nothing to text; a test compares it with the file that is committed.
"""

from __future__ import annotations

import inspect
from pathlib import Path

from minibroker import errors

HERE = Path(__file__).parent


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

PAGES = {"errors.md": errors_page}


def main() -> None:
    for name, page in PAGES.items():
        (HERE / name).write_text(page(), "utf-8")


if __name__ == "__main__":
    main()

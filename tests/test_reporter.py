"""An error of our own is said when it comes first, whatever came before it, and the same one ever more rarely."""

from __future__ import annotations

from minibroker.reporter import PLACES_MAX, Unexpected
from tests.server.running import Said


def raised(kind: type[Exception], what: str) -> Exception:
    try:
        raise kind(what)
    except Exception as error:
        return error


def raised_elsewhere(kind: type[Exception], what: str) -> Exception:
    try:
        raise kind(what)
    except Exception as error:
        return error


def test_each_kind_of_error_and_each_place_is_said() -> None:
    said = Said()
    unexpected = Unexpected(said, "fetch 1<-2")
    for error in (raised(ValueError, "one"), raised(KeyError, "two"), raised_elsewhere(KeyError, "three"), OSError()):
        unexpected.tell(error)
        unexpected.tell(error)
    assert len(said.lines) == 4
    for line, words in zip(
        said.lines, ("ValueError: one", "KeyError: 'two'", "KeyError: 'three'", "OSError"), strict=True
    ):
        assert line.startswith("unexpected error of fetch 1<-2")
        assert words in line


def test_the_same_one_is_said_ever_more_rarely_whatever_its_words_and_what_comes_between() -> None:
    said = Said()
    unexpected = Unexpected(said, "isr 1")
    for number in range(100):
        unexpected.tell(raised(ValueError, f"number {number}"))
        unexpected.tell(raised(KeyError, "between"))
    assert [int(line.split("number ")[1]) + 1 for line in said.lines if "number" in line] == [1, 4, 16, 64]


def test_what_is_counted_is_bounded() -> None:
    unexpected = Unexpected(Said(), "isr 1")
    for number in range(3 * PLACES_MAX):
        unexpected.tell(type(f"Made{number}", (Exception,), {})())
    assert len(unexpected._counts) <= PLACES_MAX

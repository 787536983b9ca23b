"""What is announced is what works; what Kafka serves and we do not is a list that only gets shorter."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from docs.generate import missing_versions
from minibroker.broker.apis import SERVED
from minibroker.broker.dispatch import find_route
from minibroker.broker.emulated_release import PRODUCE, EmulatedRelease
from minibroker.broker.releases import RELEASES, ranges_of, release_named
from minibroker.errors import KafkaError
from minibroker.protocol.registry import APIS, request_class, response_class
from minibroker.schema.plan import Plan, message_plan

NOT_YET = {71, 72}  # client metrics, which Kafka announces only with a plugin that takes them


def test_missing_versions_are_known() -> None:
    missing = {number: found for number in APIS if (found := missing_versions(number))}
    assert set(missing) <= NOT_YET
    assert not NOT_YET & set(SERVED)


@pytest.mark.parametrize("api", SERVED)
def test_what_is_served_has_a_handler(api: int) -> None:
    first, last, _ = SERVED[api]
    for version in (first, last):
        assert callable(find_route(api, version).handler)


HANDLERS = sorted((Path(__file__).parents[2] / "minibroker" / "broker" / "handlers").glob("*.py"))
VERSION_NOTES = re.compile(r"^Versions of (\w+): (.*?)\.$", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("path", HANDLERS, ids=lambda path: path.stem)
def test_what_a_handler_notes_of_versions_is_served_and_what_it_looks_at_is_noted(path: Path) -> None:
    tree = ast.parse(path.read_text("utf-8"))
    apis = {APIS[number]: number for number, (*_, name) in SERVED.items() if name.split(".")[0] == path.stem}
    noted: set[int] = set()
    for api, notes in VERSION_NOTES.findall(ast.get_docstring(tree) or ""):
        versions = [int(version) for version in re.findall(r"(?:^|, |,\n)(\d+) ", notes)]
        first, last, _ = SERVED[apis[api]]
        assert versions == sorted(set(versions)), notes
        assert first <= versions[0], f"{api} has no version {versions[0]}"
        assert versions[-1] <= last, f"{api} has no version {versions[-1]}"
        noted.update(versions)
    constants = {
        name: value.value
        for node in tree.body
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        for name, value in zip(re.findall(r"\w+_SINCE\b", ast.unparse(target)), _elements(node.value))
        if isinstance(value, ast.Constant)
    }
    looked_at = {*constants.values(), *versions_compared_in(tree)}
    has_table = "\nVersions:\n" in (ast.get_docstring(tree) or "")
    assert not apis or has_table or {*constants.values()} <= noted
    assert not noted or looked_at - BEFORE_NOTES <= noted
    for api, notes in VERSION_NOTES.findall(ast.get_docstring(tree) or ""):
        for version in map(int, re.findall(r"(?:^|, |,\n)(\d+) ", notes)):
            is_known = version in looked_at or version in MEANINGS.get(api, ()) or fields_change(apis[api], version)
            assert is_known, f"{api}: nothing changes with version {version}"


BEFORE_NOTES = {1, 2}  # of the oldest clients
# The same fields, with values that mean more.
MEANINGS = {"Fetch": (6,), "Metadata": (0, 12), "ListOffsets": (0, 7, 8, 9, 11)}


def versions_compared_in(tree: ast.Module) -> set[int]:
    """Return the versions from which on something is otherwise, as comparisons with a number say."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare) and ast.unparse(node.left).endswith("api_version"):
            (operator, *_), (other, *_) = node.ops, node.comparators
            if isinstance(other, ast.Constant) and isinstance(operator, ast.Lt | ast.GtE | ast.LtE | ast.Gt):
                found.add(other.value + isinstance(operator, ast.LtE | ast.Gt))
    return found


def fields_change(api: int, version: int) -> bool:
    """Say whether a request or its response has other fields than the version before it."""
    return any(
        cls.schema.first_version < version <= cls.schema.last_version
        and fields_of(message_plan(cls, version)) != fields_of(message_plan(cls, version - 1))
        for cls in (request_class(api), response_class(api))
    )


def fields_of(plan: Plan) -> list[object]:
    inner = [(field, field.type.plan or (field.type.element and field.type.element.plan)) for field in plan.fields]
    return [(field.name, field.type.name, below and fields_of(below)) for field, below in inner] + [
        field.name for field in plan.tagged
    ]


def _elements(value: ast.expr) -> list[ast.expr]:
    return value.elts if isinstance(value, ast.Tuple) else [value]


@pytest.mark.parametrize(
    ("name", "release"),
    [("4.x", "4.4"), ("4", "4.4"), ("2.8.1", "2.8"), ("0.8.2.2", "0.8.2"), ("0.11", "0.11.0"), ("3.9.0", "3.9")],
)
def test_releases_are_known_by_their_usual_names(name: str, release: str) -> None:
    assert release_named(name) == release


def test_a_release_that_never_was_is_refused() -> None:
    with pytest.raises(KafkaError, match=r"5\.0"):
        release_named("5.0")


def test_ranges_follow_the_releases() -> None:
    assert ranges_of("0.8.2")[0] == (0, 0)
    assert ranges_of("2.8")[0] == (0, 9)
    assert ranges_of("4.4")[0] == (3, 13)
    assert all(0 in ranges_of(release) for release in RELEASES)


def guesses(announced: dict[int, tuple[int, int]]) -> set[str]:
    """Return the releases for which a client takes a broker that goes by the list of APIs, as kcl does."""
    wanted = {api: last for api, (_, last) in announced.items()}
    return {
        release
        for release in RELEASES
        if {api: last for api, (_, last) in ranges_of(release).items() if api not in NOT_YET} == wanted
    }


@pytest.mark.parametrize("release", RELEASES)
def test_a_broker_that_is_to_look_like_a_release_is_taken_for_it_by_its_apis(release: str) -> None:
    announced = EmulatedRelease(release).announced
    expected = {api: versions for api, versions in ranges_of(release).items() if api not in NOT_YET}
    if release >= "4":
        expected[PRODUCE] = (0, expected[PRODUCE][1])
    assert announced == expected
    assert release in guesses(announced)


def test_no_other_release_announces_what_the_newest_does() -> None:
    newest = EmulatedRelease().announced
    assert set(newest) == set(ranges_of("4.4")) - NOT_YET
    assert {api: last for api, (_, last) in newest.items()} == {
        api: last for api, (_, last) in EmulatedRelease("4.4").announced.items()
    }

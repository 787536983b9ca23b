"""Regular expressions against RE2/J, which Kafka uses."""

from __future__ import annotations

from resource import RUSAGE_SELF, getrusage

import pytest

from minibroker.errors import Error, KafkaError
from minibroker.groups.patterns import KEPT_MAX, check, resolve, resolve_in_shares
from tests.groups.goldens import golden

# Where RE2 and RE2/J do not agree whether it is an expression, or why not: nothing that a topic's name needs.
TAKEN_HERE = {r"\C", "(?<n>a)(?<n>b)", "{?p0m}0m{"}
REFUSED_HERE = {r"\é", r"b\é|k", r"\p{Unknown}"}
OTHER_WORDS = {r"\é(", r"P}w\é(mk", "(?<=a)b"}


def test_what_matches_and_what_is_wrong_is_as_in_kafka() -> None:
    data = golden("patterns")
    for pattern, expected in data["patterns"]:
        if isinstance(expected, str) and pattern not in TAKEN_HERE:
            with pytest.raises(KafkaError) as refused:
                check(pattern)
            assert refused.value.code is Error.INVALID_REGULAR_EXPRESSION
            words = f"SubscribedTopicRegex `{pattern}` is not a valid regular expression: {expected}."
            assert refused.value.message == words or pattern in OTHER_WORDS
        elif pattern in REFUSED_HERE:
            with pytest.raises(KafkaError):
                check(pattern)
        else:
            check(pattern)
            found = sorted(resolve([pattern], data["names"])[pattern])
            assert pattern in TAKEN_HERE or found == sorted(expected), pattern


def test_time_does_not_grow_with_the_ways_to_match() -> None:
    name = "a" * 249
    assert resolve(["(a*)*b", "(a|a)*", "(a?){200}a{49}"], [name]) == {
        "(a*)*b": frozenset(),
        "(a|a)*": {name},
        "(a?){200}a{49}": {name},
    }


HOSTILE = [
    "((a{1000}){1000}){1000}",
    "(((.?){1000}){45})",
    r"\pL{1000}",
    "(" * 2000 + ")" * 2000,
    "(?i)" + "a" * 32_000,
    "(?i)" + r"\pL" * 10_000,
    "|".join(["[a-z]{500}"] * 60),
]


@pytest.mark.parametrize("pattern", HOSTILE, ids=lambda pattern: pattern[:20])
def test_an_expression_that_would_take_much_is_refused_or_takes_little(pattern: str) -> None:
    before = getrusage(RUSAGE_SELF).ru_maxrss
    names = [letter * 249 for letter in "abcdefghij"]
    try:
        check(pattern)
        resolve([pattern], names)
    except KafkaError as refused:
        assert refused.code is Error.INVALID_REGULAR_EXPRESSION
    assert getrusage(RUSAGE_SELF).ru_maxrss - before < 40_000  # KiB


def test_the_longest_list_of_topics_is_an_expression() -> None:
    names = [f"topic-of-some-length-{number}" for number in range(300)]
    assert resolve(["|".join(names)], [*names, "other"]) == {"|".join(names): frozenset(names)}


@pytest.mark.slow
def test_many_expressions_and_names_are_looked_at_in_shares() -> None:
    names = [f"t{number}" for number in range(5000)]
    wanted = {f"t[0-{number % 10}]+{'x?' * number}" for number in range(2 * KEPT_MAX)}
    spent = []
    work = resolve_in_shares(wanted, names)
    try:
        while True:
            spent.append(next(work))
    except StopIteration as end:
        found = end.value
    assert max(spent) <= 1000
    assert len(spent) >= 20 * len(wanted)
    assert found == resolve(wanted, names)


def test_what_is_no_expression_here_matches_nothing() -> None:
    assert resolve(["("], ["("]) == {"(": frozenset()}

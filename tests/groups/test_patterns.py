"""Regular expressions against RE2/J, which Kafka uses."""

from __future__ import annotations

import pytest

from minibroker.errors import Error, KafkaError
from minibroker.groups.patterns import check, resolve
from tests.groups.goldens import golden


def test_what_matches_and_what_is_wrong_is_as_in_kafka() -> None:
    data = golden("patterns")
    for pattern, expected in data["patterns"]:
        if isinstance(expected, str):
            with pytest.raises(KafkaError) as refused:
                check(pattern)
            assert refused.value.code is Error.INVALID_REGULAR_EXPRESSION
            words = f"SubscribedTopicRegex `{pattern}` is not a valid regular expression: {expected}."
            assert refused.value.message == words
        else:
            check(pattern)
            assert sorted(resolve([pattern], data["names"])[pattern]) == sorted(expected), pattern


def test_time_does_not_grow_with_the_ways_to_match() -> None:
    name = "a" * 249
    assert resolve(["(a*)*b", "(a|a)*", "(a?){200}a{49}"], [name]) == {
        "(a*)*b": frozenset(),
        "(a|a)*": {name},
        "(a?){200}a{49}": {name},
    }


def test_an_expression_that_multiplies_its_counts_is_refused() -> None:
    with pytest.raises(KafkaError, match="too large"):
        check("((a{1000}){1000}){1000}")


def test_what_is_no_expression_here_matches_nothing() -> None:
    assert resolve(["("], ["("]) == {"(": frozenset()}

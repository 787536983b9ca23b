"""Which members want the same, as Kafka's computeSubscriptionType sees it: the assignors go another way then."""

from __future__ import annotations

import pytest

from minibroker.groups.consumer_state import new_member
from minibroker.groups.target import Matches, is_homogeneous_group

Wish = tuple[str, str]  # names of topics, a letter each, and a pattern


@pytest.mark.parametrize(
    ("wishes", "matches", "is_homogeneous"),
    [
        ([("t", ""), ("t", "")], {}, True),
        ([("tu", ""), ("ut", "")], {}, True),
        ([("t", ""), ("tu", "")], {}, False),
        ([("", ".*"), ("", ".*")], {".*": "tu"}, True),
        ([("", ".*"), ("", ".*")], {}, True),
        ([("", ".*"), ("", "t")], {".*": "tu", "t": "t"}, False),
        ([("", ".*"), ("t", "")], {".*": "tu"}, False),
        ([("t", ".*"), ("t", ".*")], {".*": "t"}, False),
        ([("", ".*"), ("", ".*")], {".*": "tu", "t": "t"}, False),  # nobody has that one any more
        ([("", ".*"), ("", ".*")], {".*": "u", "t": "t"}, True),
        ([("t", ""), ("t", "")], {"t": "t"}, True),
        ([("t", ""), ("t", "")], {"u": "u"}, False),
    ],
)
def test_members_want_the_same_if_each_topic_is_wanted_by_all_in_one_way(
    wishes: list[Wish], matches: Matches, is_homogeneous: bool
) -> None:
    members = [
        new_member(f"m{place}")._replace(topic_names=frozenset(names), pattern=pattern)
        for place, (names, pattern) in enumerate(wishes)
    ]
    assert is_homogeneous_group(members, matches) == is_homogeneous

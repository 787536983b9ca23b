"""ssl.principal.mapping.rules: what Kafka's SslPrincipalMapper makes of names, and what it takes for no rule."""

from __future__ import annotations

from typing import Any

import pytest

from minibroker.security.principal_mapping import NoRule, PrincipalMapping
from tests.goldens import principal_names

LINES = principal_names()
# What Java knows and `re` does not; its rules are refused at the start.
ONLY_JAVA = ("RULE:^CN=\\p{Alpha}+.*$/p/", "RULE:^(?i)cn=(.*?),.*$/$1/")
REFUSED = {line["rules"] for line in LINES if line.get("refused") or line.get("failed")} | {*ONLY_JAVA}
MAPPED = [line for line in LINES if "of" in line and line["rules"] not in REFUSED]


@pytest.mark.parametrize("line", MAPPED, ids=lambda line: line["rules"])
def test_a_name_becomes_what_kafka_makes_of_it(line: dict[str, Any]) -> None:
    mapping = PrincipalMapping(line["rules"])
    if line["is"] is None:
        with pytest.raises(NoRule):
            mapping.name_of(line["of"])
    else:
        assert mapping.name_of(line["of"]) == line["is"]


@pytest.mark.parametrize("rules", sorted(REFUSED))
def test_what_is_no_rule_or_could_never_be_carried_out_is_refused_at_once(rules: str) -> None:
    with pytest.raises(ValueError):
        PrincipalMapping(rules)


def test_words_of_javas_patterns_are_translated() -> None:
    assert PrincipalMapping(r"RULE:^CN=(?<who>\w+),.*\z/$1/").name_of("CN=alice,O=x") == "alice"
    assert PrincipalMapping(r"RULE:^CN=\\z(.*)\Z/$1/").name_of("CN=\\za") == "a"

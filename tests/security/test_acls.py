"""Access rules: what they decide, beside a model that looks at all of them, and while rules come and go."""

from __future__ import annotations

from random import Random

import pytest

from minibroker.security import acls as acls_module
from minibroker.security.acls import (
    ALL,
    ALLOW,
    ALTER,
    ALTER_CONFIGS,
    ANY,
    CLUSTER,
    CLUSTER_NAME,
    CREATE,
    DELETE,
    DENY,
    DESCRIBE,
    DESCRIBE_CONFIGS,
    GROUP,
    LITERAL,
    MATCH,
    OPERATIONS,
    PREFIXED,
    READ,
    TOPIC,
    TRANSACTIONAL_ID,
    WRITE,
    Acls,
    Authorizer,
    Rule,
    RuleFilter,
)
from minibroker.security.why import (
    AGREES,
    DECIDES,
    OTHER_HOST,
    OTHER_OPERATION,
    OTHER_PRINCIPAL,
    OUTWEIGHED,
    explain,
)
from minibroker.stored.cluster import EndTransactionRecord
from minibroker.stored.security import AccessControlEntryRecord

HOST, ELSEWHERE = "10.0.0.1", "10.0.0.2"
ALICE, BOB = "User:alice", "User:bob"


def rule(
    operation: int,
    name: str = "orders",
    *,
    permission: int = ALLOW,
    pattern: int = LITERAL,
    principal: str = ALICE,
    host: str = "*",
    kind: int = TOPIC,
) -> Rule:
    return Rule(kind, pattern, name, principal, host, operation, permission)


def deny(operation: int, name: str = "orders", **more: object) -> Rule:
    return rule(operation, name, permission=DENY, **more)  # type: ignore[arg-type]


def authorizer_with(*rules: Rule, super_users: tuple[str, ...] = (), open_without: bool = False) -> Authorizer:
    made = Authorizer(super_users, allows_without_rules=open_without)
    for index, each in enumerate(rules):
        made.acls.add(index.to_bytes(16, "big"), each)
    return made


def may(authorizer: Authorizer, operation: int, name: str = "orders", who: str = ALICE, host: str = HOST) -> bool:
    return authorizer.may(who, host, operation, TOPIC, name)


DECISIONS: list[tuple[str, list[Rule], int, str, bool]] = [
    ("no rule", [], READ, "orders", False),
    ("allowed", [rule(READ)], READ, "orders", True),
    ("another operation", [rule(READ)], WRITE, "orders", False),
    ("another name", [rule(READ)], READ, "orders2", False),
    ("another principal", [rule(READ, principal=BOB)], READ, "orders", False),
    ("everybody", [rule(READ, principal="User:*")], READ, "orders", True),
    ("a group of that name", [rule(READ, kind=GROUP)], READ, "orders", False),
    ("from here", [rule(READ, host=HOST)], READ, "orders", True),
    ("from elsewhere", [rule(READ, host=ELSEWHERE)], READ, "orders", False),
    ("all operations", [rule(ALL)], ALTER_CONFIGS, "orders", True),
    ("a prefix", [rule(READ, "ord", pattern=PREFIXED)], READ, "orders", True),
    ("a prefix that is the name", [rule(READ, "orders", pattern=PREFIXED)], READ, "orders", True),
    ("a prefix that is longer", [rule(READ, "orders2", pattern=PREFIXED)], READ, "orders", False),
    ("another prefix", [rule(READ, "x", pattern=PREFIXED)], READ, "orders", False),
    ("every name", [rule(READ, "*")], READ, "orders", True),
    ("a prefix of a star is no wildcard", [rule(READ, "*", pattern=PREFIXED)], READ, "orders", False),
    ("denied beside allowed", [rule(READ), deny(READ)], READ, "orders", False),
    ("denied by a shorter prefix", [rule(READ), deny(READ, "o", pattern=PREFIXED)], READ, "orders", False),
    ("denied by the wildcard", [rule(READ), deny(READ, "*")], READ, "orders", False),
    ("denied to everybody", [rule(READ), deny(READ, principal="User:*")], READ, "orders", False),
    ("all denied", [rule(READ), deny(ALL)], READ, "orders", False),
    ("denied elsewhere only", [rule(READ), deny(READ, host=ELSEWHERE)], READ, "orders", True),
    ("read implies describe", [rule(READ)], DESCRIBE, "orders", True),
    ("write implies describe", [rule(WRITE)], DESCRIBE, "orders", True),
    ("delete implies describe", [rule(DELETE)], DESCRIBE, "orders", True),
    ("alter implies describe", [rule(ALTER)], DESCRIBE, "orders", True),
    ("create implies nothing", [rule(CREATE)], DESCRIBE, "orders", False),
    ("alter configs implies describe configs", [rule(ALTER_CONFIGS)], DESCRIBE_CONFIGS, "orders", True),
    ("alter configs does not imply describe", [rule(ALTER_CONFIGS)], DESCRIBE, "orders", False),
    ("describe implies no other", [rule(DESCRIBE)], READ, "orders", False),
    ("denying read does not deny describe", [rule(DESCRIBE), deny(READ)], DESCRIBE, "orders", True),
    ("denying describe does not deny read", [rule(READ), deny(DESCRIBE)], READ, "orders", True),
    ("denying describe denies it to readers", [rule(READ), deny(DESCRIBE)], DESCRIBE, "orders", False),
]


@pytest.mark.parametrize(
    ("rules", "operation", "name", "expected"), [each[1:] for each in DECISIONS], ids=[each[0] for each in DECISIONS]
)
def test_rules_decide_as_kafkas_do(rules: list[Rule], operation: int, name: str, expected: bool) -> None:
    authorizer = authorizer_with(*rules)
    assert may(authorizer, operation, name) is expected
    assert may(authorizer, operation, name) is expected, "and the same when it is remembered"
    assert explain(authorizer, ALICE, HOST, operation, TOPIC, name).allowed is expected


def test_super_users_may_do_what_is_denied() -> None:
    authorizer = authorizer_with(deny(ALL, "*", principal="User:*"), super_users=(ALICE,))
    assert may(authorizer, WRITE)
    assert not may(authorizer, WRITE, who=BOB)


def test_without_any_rule_for_a_resource_everybody_may_if_the_setting_says_so() -> None:
    authorizer = authorizer_with(rule(READ, principal=BOB), open_without=True)
    assert may(authorizer, WRITE, "others")
    assert not may(authorizer, WRITE, "orders"), "for there is a rule, though it is about somebody else"


ANY_TOPIC: list[tuple[str, list[Rule], bool]] = [
    ("nothing", [], False),
    ("one name", [rule(WRITE)], True),
    ("all operations", [rule(ALL)], True),
    ("another operation", [rule(READ)], False),
    ("another principal", [rule(WRITE, principal=BOB)], False),
    ("another kind", [rule(WRITE, kind=GROUP)], False),
    ("elsewhere", [rule(WRITE, host=ELSEWHERE)], False),
    ("every name", [rule(WRITE, "*")], True),
    ("one name that is denied", [rule(WRITE), deny(WRITE)], False),
    ("one name below a prefix that is denied", [rule(WRITE), deny(WRITE, "ord", pattern=PREFIXED)], False),
    (
        "a prefix below one that is denied",
        [rule(WRITE, "or", pattern=PREFIXED), deny(WRITE, "o", pattern=PREFIXED)],
        False,
    ),
    (
        "a prefix above one that is denied",
        [rule(WRITE, "o", pattern=PREFIXED), deny(WRITE, "or", pattern=PREFIXED)],
        True,
    ),
    ("a prefix where only a name is denied", [rule(WRITE, "o", pattern=PREFIXED), deny(WRITE, "o")], True),
    ("every name is denied", [rule(WRITE), deny(WRITE, "*")], False),
    ("all that is denied is one name", [rule(WRITE, "*"), deny(WRITE)], True),
    ("by a prefix of all letters", [rule(WRITE, "*"), deny(WRITE, "o", pattern=PREFIXED)], True),
]


@pytest.mark.parametrize(("rules", "expected"), [each[1:] for each in ANY_TOPIC], ids=[each[0] for each in ANY_TOPIC])
def test_whether_there_could_be_a_topic_to_write_to(rules: list[Rule], expected: bool) -> None:
    assert authorizer_with(*rules).may_for_any(ALICE, HOST, WRITE, TOPIC) is expected


FILTERS: list[tuple[str, RuleFilter, Rule, bool]] = [
    ("all", RuleFilter(ANY, ANY, None, None, None, ANY, ANY), rule(READ), True),
    ("the type", RuleFilter(TOPIC, ANY, None, None, None, ANY, ANY), rule(READ), True),
    ("another type", RuleFilter(GROUP, ANY, None, None, None, ANY, ANY), rule(READ), False),
    ("the name", RuleFilter(ANY, ANY, "orders", None, None, ANY, ANY), rule(READ), True),
    (
        "the prefix as a name",
        RuleFilter(ANY, LITERAL, "orders", None, None, ANY, ANY),
        rule(READ, pattern=PREFIXED),
        False,
    ),
    (
        "a name that it is for",
        RuleFilter(ANY, MATCH, "orders", None, None, ANY, ANY),
        rule(READ, "o", pattern=PREFIXED),
        True,
    ),
    ("a name that the star is for", RuleFilter(ANY, MATCH, "orders", None, None, ANY, ANY), rule(READ, "*"), True),
    ("a name it is not for", RuleFilter(ANY, MATCH, "orders", None, None, ANY, ANY), rule(READ, "order"), False),
    ("the star itself", RuleFilter(ANY, LITERAL, "orders", None, None, ANY, ANY), rule(READ, "*"), False),
    ("the principal", RuleFilter(ANY, ANY, None, ALICE, None, ANY, ANY), rule(READ), True),
    ("everybody is not each", RuleFilter(ANY, ANY, None, ALICE, None, ANY, ANY), rule(READ, principal="User:*"), False),
    ("the host", RuleFilter(ANY, ANY, None, None, HOST, ANY, ANY), rule(READ), False),
    ("the operation", RuleFilter(ANY, ANY, None, None, None, WRITE, ANY), rule(READ), False),
    ("all is one of them", RuleFilter(ANY, ANY, None, None, None, READ, ANY), rule(ALL), False),
    ("the permission", RuleFilter(ANY, ANY, None, None, None, ANY, DENY), rule(READ), False),
]


@pytest.mark.parametrize(
    ("wanted", "found", "expected"), [each[1:] for each in FILTERS], ids=[each[0] for each in FILTERS]
)
def test_filters_match_as_kafkas_do(wanted: RuleFilter, found: Rule, expected: bool) -> None:
    assert wanted.matches(found) is expected


# Beside a model


def model_decides(rules: list[Rule], who: str, host: str, operation: int, kind: int, name: str) -> tuple[bool, bool]:
    """Decide by looking at every rule; return also whether there is one for the resource."""
    implied = {DESCRIBE: {READ, WRITE, DELETE, ALTER}, DESCRIBE_CONFIGS: {ALTER_CONFIGS}}.get(operation, set())
    allowed = denied = has_rules = False
    for each in rules:
        if each.resource_type != kind:
            continue
        if each.pattern_type == LITERAL and each.resource_name not in ("*", name):
            continue
        if each.pattern_type == PREFIXED and not name.startswith(each.resource_name):
            continue
        has_rules = True
        if each.principal not in (who, "User:*") or each.host not in ("*", host):
            continue
        if each.permission == DENY:
            denied |= each.operation in (ALL, operation)
        else:
            allowed |= each.operation in {ALL, operation} | implied
    return allowed and not denied, has_rules


def random_rule(chance: Random) -> Rule:
    return Rule(
        chance.choice((TOPIC, GROUP)),
        chance.choice((LITERAL, PREFIXED)),
        chance.choice(("*", "a", "ab", "abc", "b", "ba", "abcd")),
        chance.choice((ALICE, BOB, "User:*")),
        chance.choice(("*", HOST, ELSEWHERE)),
        chance.choice(tuple(OPERATIONS)),
        chance.choice((ALLOW, ALLOW, DENY)),
    )


@pytest.mark.parametrize("seed", range(20))
def test_while_rules_come_and_go_it_decides_as_one_who_looks_at_all_of_them(seed: int) -> None:
    chance = Random(seed)
    authorizer = Authorizer(allows_without_rules=bool(seed % 2))
    there: dict[bytes, Rule] = {}
    for _ in range(150):
        rule_id = chance.randrange(12).to_bytes(16, "big")
        if rule_id in there and chance.random() < 0.5:
            gone = record_of(there.pop(rule_id), rule_id)
            authorizer.follow(gone, {each: record_of(kept, each) for each, kept in there.items()})
        else:
            there[rule_id] = random_rule(chance)
            record = record_of(there[rule_id], rule_id)
            authorizer.follow(record, {rule_id: record})
        assert sorted(authorizer.acls) == sorted(there.values())
        for _ in range(8):
            asked = (
                chance.choice((ALICE, BOB, "User:carol")),
                chance.choice((HOST, ELSEWHERE)),
                chance.choice(tuple(OPERATIONS)),
                chance.choice((TOPIC, GROUP)),
                chance.choice(("a", "ab", "abc", "b", "x", "*")),
            )
            allowed, has_rules = model_decides(list(there.values()), *asked)
            expected = allowed or (authorizer.allows_without_rules and not has_rules)
            assert authorizer.may(*asked) is expected, asked
            assert explain(authorizer, *asked).allowed is expected, asked
    for rule_id in there:
        authorizer.acls.remove(rule_id)
    assert not len(authorizer.acls)
    assert not [*authorizer.acls.sections(TOPIC, "abcd"), *authorizer.acls.sections(GROUP, "abcd")]


def test_a_decision_does_not_look_at_all_rules() -> None:
    class Counting(Rule):
        looked = 0

        def speaks_of(self, host: str, operation: int) -> bool:
            Counting.looked += 1
            return super().speaks_of(host, operation)

    acls = Acls()
    for index in range(3000):
        names = (f"topic-{index}", "orders", f"prefix-{index}")
        who = f"User:{index}"
        acls.add(b"a%d" % index, Counting(TOPIC, LITERAL, names[0], ALICE, "*", READ, ALLOW))
        acls.add(b"b%d" % index, Counting(TOPIC, LITERAL, names[1], who, "*", READ, ALLOW))
        acls.add(b"c%d" % index, Counting(TOPIC, PREFIXED, names[2], ALICE, "*", READ, ALLOW))
    acls.add(b"one", Counting(TOPIC, PREFIXED, "ord", ALICE, "*", READ, ALLOW))
    assert acls.decide(ALICE, HOST, READ, TOPIC, "orders")[0]
    assert Counting.looked == 1
    assert len(list(acls.sections(TOPIC, "orders"))) == 2


def test_what_it_decided_of_long_names_is_not_kept_and_of_others_it_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acls_module, "DECISIONS_MAX", 100)
    authorizer = Authorizer()
    record = record_of(rule(READ, "n" * 30_000))
    authorizer.follow(record, {record.id: record})
    assert authorizer.may(ALICE, HOST, READ, TOPIC, "n" * 30_000)
    assert not authorizer.may(ALICE, HOST, READ, TOPIC, "m" * 30_000)
    assert not authorizer.may_for_any("User:" + "x" * 30_000, HOST, READ, TOPIC)
    assert max(map(len, map(str, authorizer._decisions)), default=0) < 1000
    for index in range(1000):
        authorizer.may_for_any(f"User:{index}", HOST, READ, TOPIC)
    assert len(authorizer._decisions) <= 100
    assert max(len(str(each)) for each in authorizer._decisions) < 1000


def test_what_it_decided_is_forgotten_when_rules_change() -> None:
    authorizer = Authorizer()
    record = record_of(rule(READ))
    assert not may(authorizer, READ)
    authorizer.follow(record, {record.id: record})
    assert may(authorizer, READ)
    authorizer.follow(record, {})  # it is removed, or part of a change that goes on
    assert not may(authorizer, READ)
    authorizer.follow(EndTransactionRecord(), {record.id: record})
    assert may(authorizer, READ)
    authorizer.load({})
    assert not may(authorizer, READ)
    authorizer.load({bytes(16): record})
    assert may(authorizer, READ)
    authorizer.load({})
    assert not may(authorizer, READ)


def record_of(made: Rule, rule_id: bytes = bytes(16)) -> AccessControlEntryRecord:
    return AccessControlEntryRecord(
        id=rule_id,
        resource_type=made.resource_type,
        resource_name=made.resource_name,
        pattern_type=made.pattern_type,
        principal=made.principal,
        host=made.host,
        operation=made.operation,
        permission_type=made.permission,
    )


# Why


def test_an_explanation_says_what_became_of_each_rule() -> None:
    rules = [
        rule(READ),
        deny(READ, "ord", pattern=PREFIXED),
        rule(READ, principal=BOB),
        rule(READ, host=ELSEWHERE),
        rule(WRITE),
        rule(READ, "others"),
    ]
    made = explain(authorizer_with(*rules), ALICE, HOST, READ, TOPIC, "orders")
    assert not made.allowed
    assert made.reason == "a rule denies it, for ord (prefixed)"
    assert dict(made.rules) == {
        rules[1]: DECIDES,
        rules[0]: OUTWEIGHED,
        rules[2]: OTHER_PRINCIPAL,
        rules[3]: OTHER_HOST,
        rules[4]: OTHER_OPERATION,
    }
    assert str(rules[1]) == "DENY User:alice to READ prefix TOPIC:ord"
    assert str(rules[3]) == "ALLOW User:alice from 10.0.0.2 to READ TOPIC:orders"


@pytest.mark.parametrize(
    ("authorizer", "reason"),
    [
        (authorizer_with(), "there is no rule for the resource"),
        (authorizer_with(rule(WRITE)), "no rule for the resource allows it"),
        (authorizer_with(rule(READ, "*")), "a rule allows it, for every name (literal)"),
        (authorizer_with(super_users=(ALICE,)), "User:alice is one of super.users, and rules do not bind it"),
        (
            authorizer_with(open_without=True),
            "there is no rule for the resource, and allow.everyone.if.no.acl.found is true",
        ),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_an_explanation_says_why_in_one_sentence(authorizer: Authorizer, reason: str) -> None:
    assert explain(authorizer, ALICE, HOST, READ, TOPIC, "orders").reason == reason


def test_rules_that_agree_are_told_as_such() -> None:
    made = explain(authorizer_with(rule(READ), rule(ALL)), ALICE, HOST, READ, TOPIC, "orders")
    assert sorted(verdict for _, verdict in made.rules) == [DECIDES, AGREES]


@pytest.mark.parametrize("kind", [CLUSTER, TRANSACTIONAL_ID])
def test_other_resources_have_rules_of_their_own(kind: int) -> None:
    name = CLUSTER_NAME if kind == CLUSTER else "orders"
    authorizer = authorizer_with(rule(ALTER, name, kind=kind))
    assert authorizer.may(ALICE, HOST, ALTER, kind, name)
    assert authorizer.may(ALICE, HOST, DESCRIBE, kind, name)
    assert not may(authorizer, ALTER, name)

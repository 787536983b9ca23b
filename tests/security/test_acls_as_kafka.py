"""Every API, asked by a client of few rights: answered as Kafka 3.9 and 4.4 answered with the same rules.

That it is every one, and with rules of every kind, is tested last; what is not asked is listed with the reason.

tests/golden/sessions/acls-*.jsonl.xz is what they said (record_acls.py); acl_play.py says what is compared.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from minibroker.broker.authorize.table import TABLE, Need
from minibroker.errors import ProtocolError
from minibroker.protocol.headers import Request
from minibroker.security.acls import (
    ALL,
    ALLOW,
    CLUSTER,
    CREATE,
    DENY,
    DESCRIBE,
    LITERAL,
    PREFIXED,
    TOPIC,
    TRANSACTIONAL_ID,
    TWO_PHASE_COMMIT,
)
from minibroker.security.principal import Principal
from tests import goldens
from tests.broker.virtual_broker import VirtualBroker, virtual_broker
from tests.differential.kafka import SETTINGS
from tests.security.acl_cases import (
    ADMIN,
    ALLOWED,
    BY_PREFIX,
    BY_STAR,
    CASES,
    DENIED,
    ELSEWHERE,
    NONE,
    OTHER_HOST,
    Case,
    World,
    asked,
    rules_of,
)
from tests.security.acl_play import ADMIN as ADMIN_NAME
from tests.security.acl_play import Play
from tests.security.conversations import settings as of_logins
from tests.security.record_acls import TOKEN_KEY

AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
RELEASES = ("3.9", "4.4")
LOGIN = 1  # the listener where one logs in
LISTENERS = {
    **of_logins("sasl_plaintext"),
    "listeners": "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0",
    "delegation.token.secret.key": TOKEN_KEY,
}


class OurPlay(Play):
    def __init__(self, broker: VirtualBroker, release: str):
        super().__init__(self._ask, release, dict(broker.node.announced))
        self._broker = broker
        self._of: dict[str, Any] = {}  # connections, by who has logged in

    def _ask(self, request: Request, version: int, who: str) -> Any:
        if who == ADMIN_NAME:
            return self._broker.ask(request, version)
        if who not in self._of or self._of[who].is_closing:
            self._of[who] = self._broker.connect(LOGIN).connection
            self._of[who].principal = Principal("User", who)
        try:
            return self._broker.ask(request, version, by=self._of[who])
        except ProtocolError:
            del self._of[who]
            return None

    def pause(self) -> None:
        self._broker.pass_ms(20)


def our_answers(release: str) -> Iterator[tuple[str, str, int, Any]]:
    settings: dict[str, object] = {**SETTINGS, "authorizer.class.name": AUTHORIZER, "super.users": ADMIN, **LISTENERS}
    with virtual_broker(settings, as_version=release) as broker:
        yield from OurPlay(broker, release).answers()


@pytest.mark.parametrize("release", RELEASES)
def test_a_client_of_few_rights_is_answered_as_by_kafka(release: str) -> None:
    expected = {(row["case"], row["rules"]): row for row in goldens.acl_answers(release)}
    differing = []
    for case, rules, version, answer in our_answers(release):
        row = expected.pop((case, rules))
        if row["version"] != version or row["answer"] != answer:
            differing.append(f"{case} v{version}, {rules}:\n  Kafka {row['answer']}\n  ours  {answer}")
    assert not expected, "asked of Kafka only"
    assert not differing, f"{len(differing)}:\n" + "\n".join(differing)


# What is asked

IN_A_LOGIN = "it is part of the login itself, before there is somebody whom rules could be for: conversations.py"
NO_CASE = {17: IN_A_LOGIN, 36: IN_A_LOGIN}
MAKES_A_TOPIC = "a topic that is made is there for all that is asked afterwards: test_authorizing.py"
# Needs of an API that no case has a rule for.
NO_GRANT = {
    (3, CLUSTER, CREATE): MAKES_A_TOPIC,
    (3, TOPIC, CREATE): MAKES_A_TOPIC,
    (22, TRANSACTIONAL_ID, TWO_PHASE_COMMIT): "no version that is served can ask for two-phase commit",
    (69, TOPIC, DESCRIBE): "a group with assignments has a member that asks again all the time: test_authorizing.py",
}
EVERY_WAY = (NONE, ALLOWED, DENIED, BY_PREFIX, BY_STAR, ELSEWHERE)


def asked_of(api: int) -> list[tuple[Case, str]]:
    return [(case, variation) for case, variation in asked(RELEASES[-1]) if case.api == api]


def test_every_api_that_is_guarded_is_asked_with_rules_of_every_kind() -> None:
    """Those of what it asks for: each operation on each kind of resource."""
    world = World({}, (-1, -1), RELEASES[-1])
    world.token_id = "an-id-of-a-token"
    missing = []
    for api, row in TABLE.items():
        cases = asked_of(api)
        if api in NO_CASE:
            assert not cases
            continue
        missing += [f"{api}: {way}" for way in EVERY_WAY if way not in {variation for _, variation in cases}]
        for kind, operation in {(need.resource_type, one) for need in row.needs for one in operations(need)}:
            made = [rule for case, way in cases for rule in rules_of(case, way, world) if rule[0] == kind]
            made = [rule for rule in made if rule[5] in (operation, ALL)]
            is_there = any(rule[5] == operation for rule in made)
            assert is_there != ((api, kind, operation) in NO_GRANT), (api, kind, operation)
            if not is_there:
                continue
            ways = {
                "allowed": any(rule[5:] == (operation, ALLOW) for rule in made),
                "denied": any(rule[6] == DENY for rule in made),
                "elsewhere": any(rule[4] == OTHER_HOST for rule in made),
                # There is one cluster, and a rule for it has its whole name.
                "a prefix": kind == CLUSTER or any(rule[1] == PREFIXED for rule in made),
                "every name": kind == CLUSTER or any(rule[1:3] == (LITERAL, "*") for rule in made),
            }
            missing += [f"{api}: {kind} {operation} {way}" for way, has in ways.items() if not has]
    assert not missing


def operations(need: Need) -> set[int]:
    return {need.operation, need.alternative} - {0}


@pytest.mark.parametrize("release", RELEASES)
def test_what_kafka_was_asked_of_it_lets_a_client_ask(release: str) -> None:
    """Every API that Kafka of the release announces and we guard is among its answers."""
    with virtual_broker(as_version=release) as broker:
        announced = set(broker.node.announced)
    apis = {case.name: case.api for case in CASES}
    answered = {apis[row["case"]] for row in goldens.acl_answers(release)}
    assert announced - answered == announced & NO_CASE.keys()
    assert TABLE.keys() >= announced

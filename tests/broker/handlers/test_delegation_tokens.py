"""Delegation tokens: made, renewed, ended and told, by who may; and who comes with one."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator
from typing import Any

import pytest

from minibroker.errors import Error
from minibroker.protocol.messages.create_delegation_token import CreateDelegationTokenRequest
from minibroker.protocol.messages.describe_delegation_token import DescribeDelegationTokenRequest
from minibroker.protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest
from minibroker.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest
from tests.broker.virtual_broker import VirtualBroker
from tests.security.conversations import PASSWORDS, client_final, client_first, plain
from tests.security.wire import Wire, asking_broker

KEY = {"delegation.token.secret.key": "abracadabra"}
DAY_MS, WEEK_MS = 86_400_000, 604_800_000


@pytest.mark.parametrize("version", [1, 2, 3])
def test_no_token_is_made_over_plain_text(broker: VirtualBroker, version: int) -> None:
    request = CreateDelegationTokenRequest(
        owner_principal_type="" if version == 3 else None,
        owner_principal_name="" if version == 3 else None,
        renewers=[],
        max_lifetime_ms=-1,
    )
    answer = broker.ask(request, version)
    assert answer.error_code == Error.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    assert (answer.principal_type, answer.principal_name) == ("User", "ANONYMOUS")
    assert (answer.issue_timestamp_ms, answer.expiry_timestamp_ms, answer.max_timestamp_ms) == (-1, -1, -1)
    assert (answer.token_id, answer.hmac) == ("", b"")
    asked_by = (answer.token_requester_principal_type, answer.token_requester_principal_name)
    assert asked_by == (("User", "ANONYMOUS") if version >= 3 else ("", ""))


@pytest.mark.parametrize(
    ("request_", "version"),
    [
        (RenewDelegationTokenRequest(hmac=b"", renew_period_ms=-1), 2),
        (ExpireDelegationTokenRequest(hmac=b"", expiry_time_period_ms=-1), 2),
    ],
)
def test_no_token_is_renewed_or_ended_over_plain_text(broker: VirtualBroker, request_: Any, version: int) -> None:
    answer = broker.ask(request_, version)
    assert (answer.error_code, answer.expiry_timestamp_ms) == (Error.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, -1)
    told = broker.ask(DescribeDelegationTokenRequest(owners=None), 3)
    assert (told.error_code, told.tokens) == (Error.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, [])


@pytest.fixture
def asking() -> Iterator[VirtualBroker]:
    with asking_broker(**KEY) as asking:
        yield asking


def logged_in(broker: VirtualBroker, name: str = "alice") -> Wire:
    wire = Wire(broker)
    assert wire.log_in("PLAIN", plain(name, PASSWORDS[name])).error_code == 0
    return wire


def create(wire: Wire, *renewers: str, owner: str = "", life_ms: int = -1, kind: str = "User") -> Any:
    Renewer = CreateDelegationTokenRequest.CreatableRenewers
    request = CreateDelegationTokenRequest(
        owner_principal_type="User" if owner else "",
        owner_principal_name=owner,
        renewers=[Renewer(principal_type=kind, principal_name=name) for name in renewers],
        max_lifetime_ms=life_ms,
    )
    return wire.ask(request, 3)


def renew(wire: Wire, hmac: bytes, period_ms: int = -1) -> tuple[int, int]:
    answer = wire.ask(RenewDelegationTokenRequest(hmac=hmac, renew_period_ms=period_ms), 2)
    return answer.error_code, answer.expiry_timestamp_ms


def expire(wire: Wire, hmac: bytes, period_ms: int = -1) -> tuple[int, int]:
    answer = wire.ask(ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=period_ms), 2)
    return answer.error_code, answer.expiry_timestamp_ms


def told(wire: Wire, *owners: str, everybody: bool = False) -> list[str]:
    Owner = DescribeDelegationTokenRequest.DescribeDelegationTokenOwner
    wanted = None if everybody else [Owner(principal_type="User", principal_name=name) for name in owners]
    answer = wire.ask(DescribeDelegationTokenRequest(owners=wanted), 3)
    assert answer.error_code == 0
    return [each.principal_name for each in answer.tokens]


def come_with(wire: Wire, token_id: str, hmac: bytes, mechanism: str = "SCRAM-SHA-256") -> Any:
    """Log in with a token; return the last answer."""
    first = client_first(token_id, more=",tokenauth=true")
    challenge = wire.log_in(mechanism, first)
    from minibroker.protocol.messages.sasl_authenticate import SaslAuthenticateRequest

    proof = client_final(mechanism, first, bytes(challenge.auth_bytes), b64encode(hmac).decode())
    return wire.ask(SaslAuthenticateRequest(auth_bytes=proof), 2)


@pytest.mark.setting("delegation.token.secret.key")
def test_without_a_key_there_are_no_tokens() -> None:
    with asking_broker() as broker:
        wire = logged_in(broker)
        assert create(wire).error_code == Error.DELEGATION_TOKEN_AUTH_DISABLED
        assert renew(wire, b"") == expire(wire, b"") == (Error.DELEGATION_TOKEN_AUTH_DISABLED, 0)
        answer = wire.ask(DescribeDelegationTokenRequest(owners=None), 3)
        assert answer.error_code == Error.DELEGATION_TOKEN_AUTH_DISABLED


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_token_lets_in_who_brings_it_and_nobody_else(asking: VirtualBroker, mechanism: str) -> None:
    made = create(logged_in(asking))
    assert (made.error_code, made.principal_name, made.token_requester_principal_name) == (0, "alice", "alice")
    bearer = Wire(asking)
    answer = come_with(bearer, made.token_id, made.hmac, mechanism)
    assert (answer.error_code, answer.session_lifetime_ms) == (0, DAY_MS)
    assert bearer.connection.principal == ("User", "alice")
    assert bearer.serves()
    assert create(bearer).error_code == Error.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    assert renew(bearer, made.hmac) == (Error.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, -1)
    assert come_with(Wire(asking), made.token_id, made.hmac[:-1] + b"?", mechanism).error_code == 58
    assert come_with(Wire(asking), "unknown", made.hmac, mechanism).error_code == 58


@pytest.mark.setting("delegation.token.max.lifetime.ms", "delegation.token.expiry.time.ms")
def test_a_token_lives_as_long_as_the_settings_say_at_most() -> None:
    lives = {"delegation.token.max.lifetime.ms": 1000, "delegation.token.expiry.time.ms": 400}
    with asking_broker(**KEY, **lives) as broker:
        wire, now_ms = logged_in(broker), broker.now_ms()
        made = create(wire)
        assert (made.issue_timestamp_ms, made.expiry_timestamp_ms, made.max_timestamp_ms) == (
            now_ms, now_ms + 400, now_ms + 1000,
        )  # fmt: skip
        short = create(wire, life_ms=300)
        assert (short.expiry_timestamp_ms, short.max_timestamp_ms) == (now_ms + 300, now_ms + 300)
        assert create(wire, life_ms=5000).max_timestamp_ms == now_ms + 1000
        assert renew(wire, made.hmac, 100) == (0, now_ms + 100)
        assert renew(wire, made.hmac, 5000) == (0, now_ms + 400)
        assert renew(wire, short.hmac) == (0, now_ms + 300)
        assert expire(wire, made.hmac, 5000) == (0, now_ms + 1000)
        broker.pass_ms(301)
        assert renew(wire, short.hmac) == (Error.DELEGATION_TOKEN_EXPIRED, 0)
        assert expire(wire, short.hmac, 5) == (Error.DELEGATION_TOKEN_EXPIRED, 0)
        assert come_with(Wire(broker), short.token_id, short.hmac).error_code == 58


@pytest.mark.setting("delegation.token.expiry.check.interval.ms")
def test_tokens_whose_time_is_over_are_removed() -> None:
    lives = {"delegation.token.expiry.time.ms": 400, "delegation.token.expiry.check.interval.ms": 1000}
    with asking_broker(**KEY, **lives) as broker:
        made = create(logged_in(broker))
        broker.pass_ms(900)
        assert list(broker.node.image.delegation_tokens) == [made.token_id]
        broker.pass_ms(200)
        assert not broker.node.image.delegation_tokens


def test_owners_and_renewers_change_a_token_and_others_do_not(asking: VirtualBroker) -> None:
    alice, bob, now_ms = logged_in(asking), logged_in(asking, "bob"), asking.now_ms()
    own, shared = create(alice).hmac, create(alice, "bob").hmac
    assert renew(bob, own) == expire(bob, own) == (Error.DELEGATION_TOKEN_OWNER_MISMATCH, 0)
    assert renew(bob, shared) == (0, now_ms + DAY_MS)
    assert expire(bob, shared) == (0, now_ms)
    assert renew(alice, shared) == expire(alice, b"x") == (Error.DELEGATION_TOKEN_NOT_FOUND, 0)
    assert create(alice, "bob", kind="Group").error_code == Error.INVALID_PRINCIPAL_TYPE


def test_tokens_are_told_by_owner_renewer_or_who_asked_for_them(asking: VirtualBroker) -> None:
    alice = logged_in(asking)
    create(alice)
    create(alice, "bob", owner="carol")
    assert told(alice, everybody=True) == ["alice", "carol"]
    assert told(alice, "bob") == ["carol"]
    assert told(alice, "alice") == ["alice", "carol"]  # who asked for it counts, too
    assert told(alice) == told(alice, "dave") == []


def test_who_asks_for_another_is_written_down(asking: VirtualBroker) -> None:
    alice = logged_in(asking)
    made = create(alice, owner="carol")
    assert (made.principal_name, made.token_requester_principal_name) == ("carol", "alice")
    bearer = Wire(asking)
    come_with(bearer, made.token_id, made.hmac)
    assert bearer.connection.principal == ("User", "carol")
    assert renew(alice, made.hmac)[0] == Error.DELEGATION_TOKEN_OWNER_MISMATCH


@pytest.mark.parametrize("kind", [None, "", "User:x"])
def test_an_owner_without_a_type_is_nobody(asking: VirtualBroker, kind: str | None) -> None:
    request = CreateDelegationTokenRequest(
        owner_principal_type=kind, owner_principal_name="x", renewers=[], max_lifetime_ms=-1
    )
    alice = logged_in(asking)
    assert alice.ask(request, 3).error_code == Error.INVALID_PRINCIPAL_TYPE
    assert told(alice, everybody=True) == []

"""Steps with delegation tokens, of users who have logged in; what came of each, told without chance and hour.

python -m tests.interop.sasl_answers      plays them to Kafka
"""

from __future__ import annotations

import socket
from base64 import b64encode
from collections.abc import Callable
from typing import Any

from minibroker.protocol.framing import decode_response, encode_request
from minibroker.protocol.headers import Request
from minibroker.protocol.messages.create_delegation_token import CreateDelegationTokenRequest
from minibroker.protocol.messages.describe_delegation_token import DescribeDelegationTokenRequest
from minibroker.protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest
from minibroker.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest
from minibroker.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from minibroker.protocol.messages.sasl_handshake import SaslHandshakeRequest
from tests.security.conversations import PASSWORDS, client_final, client_first, plain

SETTINGS = {
    "delegation.token.secret.key": "abracadabra",
    "delegation.token.expiry.time.ms": "100000",
    "delegation.token.max.lifetime.ms": "1000000",
}
ROUND_MS = 20_000  # what a step may take, at most


class LoggedIn:
    """A connection of somebody."""

    def __init__(self, port: int):
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=20)
        self._file = self._socket.makefile("rb")

    def close(self) -> None:
        self._file.close()
        self._socket.close()

    def ask(self, request: Request, version: int) -> Any:
        self._socket.sendall(b"".join(encode_request(request, version, 1, "test")))
        length = int.from_bytes(self._file.read(4), "big")
        return decode_response(self._file.read(length), request.api, version)[1]

    def by_password(self, name: str) -> LoggedIn:
        self.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        assert self.ask(SaslAuthenticateRequest(auth_bytes=plain(name, PASSWORDS[name])), 2).error_code == 0
        return self

    def by_token(self, token_id: str, hmac: bytes) -> LoggedIn:
        first = client_first(token_id, more=",tokenauth=true")
        self.ask(SaslHandshakeRequest(mechanism="SCRAM-SHA-512"), 1)
        challenge = bytes(self.ask(SaslAuthenticateRequest(auth_bytes=first), 2).auth_bytes)
        proof = client_final("SCRAM-SHA-512", first, challenge, b64encode(hmac).decode())
        assert self.ask(SaslAuthenticateRequest(auth_bytes=proof), 2).error_code == 0
        return self


def play_tokens(port: int, pause: Callable[[], object] = lambda: None) -> list[Any]:
    """Return what came of each step; pause: waits until what was changed is known everywhere."""
    alice, bob = LoggedIn(port).by_password("alice"), LoggedIn(port).by_password("bob")
    people = [alice, bob]
    heard: list[Any] = []
    begun_ms = 0

    def since(at_ms: int) -> int:
        return at_ms if at_ms <= 0 else round((at_ms - begun_ms) / ROUND_MS) * ROUND_MS

    def create(who: LoggedIn, *renewers: tuple[str, str], owner: str | None = "", life_ms: int = -1) -> Any:
        nonlocal begun_ms
        Renewer = CreateDelegationTokenRequest.CreatableRenewers
        made = who.ask(
            CreateDelegationTokenRequest(
                owner_principal_type="User" if owner else owner,
                owner_principal_name=owner,
                renewers=[Renewer(principal_type=kind, principal_name=name) for kind, name in renewers],
                max_lifetime_ms=life_ms,
            ),
            3,
        )
        begun_ms = begun_ms or made.issue_timestamp_ms
        names = [made.principal_type, made.principal_name, made.token_requester_principal_type]
        times = map(since, (made.issue_timestamp_ms, made.expiry_timestamp_ms, made.max_timestamp_ms))
        told = [*names, made.token_requester_principal_name, *times, len(made.token_id), len(made.hmac)]
        heard.append(["create", made.error_code, *told])
        pause()
        return made

    def change(what: str, who: LoggedIn, hmac: bytes, period_ms: int = -1) -> None:
        request: Request = RenewDelegationTokenRequest(hmac=hmac, renew_period_ms=period_ms)
        if what == "expire":
            request = ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=period_ms)
        answer = who.ask(request, 2)
        heard.append([what, answer.error_code, since(answer.expiry_timestamp_ms)])
        pause()

    def describe(who: LoggedIn, *owners: str, everybody: bool = False) -> None:
        Owner = DescribeDelegationTokenRequest.DescribeDelegationTokenOwner
        wanted = None if everybody else [Owner(principal_type="User", principal_name=name) for name in owners]
        answer = who.ask(DescribeDelegationTokenRequest(owners=wanted), 3)
        told = [
            [each.principal_name, each.token_requester_principal_name, [one.principal_name for one in each.renewers]]
            for each in answer.tokens
        ]
        heard.append(["describe", answer.error_code, sorted(told)])

    try:
        own, shared = create(alice), create(alice, ("User", "bob"))
        others = create(alice, owner="carol")
        create(alice, owner=None)
        create(alice, ("Group", "bob"))
        short = create(alice, life_ms=40_000)
        create(alice, life_ms=5_000_000)
        for who in people:
            change("renew", who, own.hmac)
            change("renew", who, shared.hmac, 60_000)
            change("renew", who, short.hmac, 80_000)
        change("renew", alice, others.hmac)
        change("renew", alice, b"nonsense")
        change("expire", bob, own.hmac, 1)
        change("expire", bob, shared.hmac, 500_000)
        change("expire", alice, shared.hmac, 5_000_000)
        describe(alice, everybody=True)
        describe(alice, "alice")
        describe(alice, "bob")
        describe(alice)
        describe(bob, "nobody")
        bearer = LoggedIn(port).by_token(own.token_id, own.hmac)
        people.append(bearer)
        create(bearer)
        change("renew", bearer, own.hmac)
        describe(bearer, everybody=True)
        change("expire", alice, own.hmac)
        change("expire", alice, own.hmac)
        change("renew", alice, own.hmac)
    finally:
        for each in people:
            each.close()
    return heard

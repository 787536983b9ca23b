"""Tokens and passwords, of which there are none, and none can be made."""

from __future__ import annotations

import pytest

from minibroker.errors import Error
from minibroker.protocol.messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest
from minibroker.protocol.messages.create_delegation_token import CreateDelegationTokenRequest
from minibroker.protocol.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest
from tests.broker.virtual_broker import VirtualBroker

SHA_256, SHA_512 = 1, 2


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


def test_nobody_has_a_password(broker: VirtualBroker) -> None:
    def described(*names: str) -> list[tuple[str, int, str | None]]:
        User = DescribeUserScramCredentialsRequest.UserName
        users = [User(name=name) for name in names]
        answer = broker.ask(DescribeUserScramCredentialsRequest(users=users), 0)
        assert (answer.error_code, answer.error_message) == (Error.NONE, "")
        return [(each.user, each.error_code, each.error_message) for each in answer.results]

    absent = "Attempt to describe a user credential that does not exist: "
    twice = "Cannot describe SCRAM credentials for the same user twice in a single request: a"
    assert described("a", "b", "a") == [
        ("a", Error.DUPLICATE_RESOURCE, twice),
        ("b", Error.RESOURCE_NOT_FOUND, f"{absent}b"),
    ]
    assert described() == []
    assert broker.ask(DescribeUserScramCredentialsRequest(users=None), 0).results == []


def altered(
    broker: VirtualBroker, deletions: list[tuple[str, int]], upsertions: list[tuple[str, int, int]]
) -> dict[str, tuple[int, str | None]]:
    Request = AlterUserScramCredentialsRequest
    request = Request(
        deletions=[Request.ScramCredentialDeletion(name=name, mechanism=mechanism) for name, mechanism in deletions],
        upsertions=[
            Request.ScramCredentialUpsertion(
                name=name, mechanism=mechanism, iterations=iterations, salt=b"s", salted_password=b"p"
            )
            for name, mechanism, iterations in upsertions
        ],
    )
    answer = broker.ask(request, 0)
    return {each.user: (each.error_code, each.error_message) for each in answer.results}


NOBODY_ASKS = (Error.UNSUPPORTED_SASL_MECHANISM, "no listener of this broker asks for a password")
UNKNOWN = (Error.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
NAMELESS = (Error.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
UPSERTIONS = [
    ("u", SHA_256, 4096, NOBODY_ASKS),
    ("u", SHA_512, 16384, NOBODY_ASKS),
    ("u", SHA_256, 4095, (Error.UNACCEPTABLE_CREDENTIAL, "Too few iterations")),
    ("u", SHA_512, 16385, (Error.UNACCEPTABLE_CREDENTIAL, "Too many iterations")),
    ("u", 3, 1, UNKNOWN),
    ("u", 0, 5000, UNKNOWN),
    ("", SHA_256, 5000, NAMELESS),
    ("", SHA_256, 1, NAMELESS),
]


@pytest.mark.parametrize(("name", "mechanism", "iterations", "expected"), UPSERTIONS)
def test_every_password_is_refused(
    broker: VirtualBroker, name: str, mechanism: int, iterations: int, expected: tuple[Error, str]
) -> None:
    assert altered(broker, [], [(name, mechanism, iterations)]) == {name: expected}


def test_a_password_that_is_not_there_cannot_be_deleted(broker: VirtualBroker) -> None:
    absent = (Error.RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist")
    found = altered(broker, [("u", SHA_256), ("v", 7), ("", SHA_256)], [])
    assert found == {"u": absent, "v": UNKNOWN, "": NAMELESS}


def test_a_password_is_altered_once_in_a_request(broker: VirtualBroker) -> None:
    twice = (Error.DUPLICATE_RESOURCE, "A user credential cannot be altered twice in the same request")
    found = altered(
        broker, [("u", SHA_256), ("w", SHA_256)], [("u", SHA_256, 5000), ("v", SHA_256, 5000), ("w", SHA_512, 5000)]
    )
    assert found == {"u": twice, "v": NOBODY_ASKS, "w": NOBODY_ASKS}

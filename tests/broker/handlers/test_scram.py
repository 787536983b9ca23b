"""Passwords for SCRAM: set, told and deleted, with Kafka's words."""

from __future__ import annotations

import pytest

from minibroker.errors import Error
from minibroker.protocol.messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest
from minibroker.protocol.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest
from tests.broker.virtual_broker import VirtualBroker

SHA_256, SHA_512 = 1, 2


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


TAKEN = (Error.NONE, None)
UNKNOWN = (Error.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
NAMELESS = (Error.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
UPSERTIONS = [
    ("u", SHA_256, 4096, TAKEN),
    ("u", SHA_512, 16384, TAKEN),
    ("u", SHA_256, 4095, (Error.UNACCEPTABLE_CREDENTIAL, "Too few iterations")),
    ("u", SHA_512, 16385, (Error.UNACCEPTABLE_CREDENTIAL, "Too many iterations")),
    ("u", 3, 1, UNKNOWN),
    ("u", 0, 5000, UNKNOWN),
    ("", SHA_256, 5000, NAMELESS),
    ("", SHA_256, 1, NAMELESS),
]


@pytest.mark.parametrize(("name", "mechanism", "iterations", "expected"), UPSERTIONS)
def test_a_password_is_set_if_it_makes_sense(
    broker: VirtualBroker, name: str, mechanism: int, iterations: int, expected: tuple[Error, str | None]
) -> None:
    assert altered(broker, [], [(name, mechanism, iterations)]) == {name: expected}
    assert list(broker.node.image.scram) == ([(name, mechanism)] if expected == TAKEN else [])


ABSENT = (Error.RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist")


def test_a_password_that_is_not_there_cannot_be_deleted(broker: VirtualBroker) -> None:
    found = altered(broker, [("u", SHA_256), ("v", 7), ("", SHA_256)], [])
    assert found == {"u": ABSENT, "v": UNKNOWN, "": NAMELESS}


def test_passwords_are_set_told_and_deleted(broker: VirtualBroker) -> None:
    altered(broker, [], [("u", SHA_512, 8192), ("v", SHA_256, 4096)])
    altered(broker, [], [("u", SHA_256, 4096)])
    answer = broker.ask(DescribeUserScramCredentialsRequest(users=None), 0)
    told = {each.user: [(info.mechanism, info.iterations) for info in each.credential_infos] for each in answer.results}
    assert told == {"u": [(SHA_256, 4096), (SHA_512, 8192)], "v": [(SHA_256, 4096)]}
    assert altered(broker, [("u", SHA_512)], []) == {"u": TAKEN}
    assert list(broker.node.image.scram) == [("v", SHA_256), ("u", SHA_256)]


def test_a_password_is_altered_once_in_a_request(broker: VirtualBroker) -> None:
    twice = (Error.DUPLICATE_RESOURCE, "A user credential cannot be altered twice in the same request")
    altered(broker, [], [("w", SHA_256, 5000)])
    found = altered(
        broker, [("u", SHA_256), ("w", SHA_256)], [("u", SHA_256, 5000), ("v", SHA_256, 5000), ("w", SHA_512, 5000)]
    )
    assert found == {"u": ABSENT, "v": TAKEN, "w": twice}
    assert list(broker.node.image.scram) == [("w", SHA_256), ("v", SHA_256)]


def test_what_is_stored_gives_the_password_to_nobody(broker: VirtualBroker) -> None:
    altered(broker, [], [("u", SHA_256, 4096)])
    stored = broker.node.image.scram["u", SHA_256]
    assert bytes(stored.salt) == b"s"
    assert len(stored.stored_key) == len(stored.server_key) == 32
    assert stored.stored_key != stored.server_key


def test_a_directory_of_old_has_no_passwords(broker: VirtualBroker) -> None:
    broker.node.image.features["metadata.version"] = 10
    too_old = (Error.UNSUPPORTED_VERSION, "The current metadata.version does not support SCRAM")
    assert altered(broker, [("v", SHA_256)], [("u", SHA_256, 4096)]) == {"v": too_old, "u": too_old}

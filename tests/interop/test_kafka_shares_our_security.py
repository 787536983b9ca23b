"""All that is kept of logins and rights in one directory: ours, Kafka's and ours again, each changed by the next."""

from __future__ import annotations

import socket
import time
from base64 import b64encode
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from minibroker import Broker
from minibroker.errors import Error
from minibroker.protocol.headers import Request
from minibroker.protocol.messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest as AlterScram
from minibroker.protocol.messages.create_acls import CreateAclsRequest
from minibroker.protocol.messages.create_delegation_token import CreateDelegationTokenRequest
from minibroker.protocol.messages.delete_acls import DeleteAclsRequest
from minibroker.protocol.messages.describe_acls import DescribeAclsRequest
from minibroker.protocol.messages.describe_delegation_token import DescribeDelegationTokenRequest
from minibroker.protocol.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest
from minibroker.protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest
from minibroker.protocol.messages.metadata import MetadataRequest
from minibroker.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest
from minibroker.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from minibroker.protocol.messages.sasl_handshake import SaslHandshakeRequest
from minibroker.security.acls import ALLOW, DENY, DESCRIBE, LITERAL, PREFIXED, READ, TOPIC, WRITE
from minibroker.security.scram import salted_password
from tests.differential.kafka import CLUSTER_ID, Kafka, missing_tools
from tests.differential.wire import Side
from tests.interop.golden_quotas import (
    CLIENT,
    CONNECTIONS,
    FETCHED,
    IP,
    MUTATIONS,
    PRODUCED,
    TIME,
    USER,
    altering,
    described,
)
from tests.interop.test_kafka_shares_our_rules import EVERY
from tests.security.acl_cases import ADMIN
from tests.security.conversations import client_final, client_first
from tests.security.conversations import settings as of_logins
from tests.security.record_acls import AUTHORIZER, TOKEN_KEY, _answer, settings, unused_address
from tests.security.token_steps import LoggedIn

pytestmark = [
    pytest.mark.interop,
    pytest.mark.slow,
    pytest.mark.skipif(bool(missing_tools()), reason=f"a real Kafka needs {missing_tools()}, not found"),
]

SHA256, SHA512 = "SCRAM-SHA-256", "SCRAM-SHA-512"
NUMBERS = {SHA256: 1, SHA512: 2}
TOPICS = ["bills", "orders", "secret"]
SECONDS_MAX = 20
Rule = tuple[int, str, str, int, int]  # pattern, name, principal, operation, permission


class Admin:
    """Who may do everything, without a login, and what is seen by who logs in."""

    def __init__(self, plain: str, login: str):
        self._side = Side(plain)
        self._port = int(login.rpartition(":")[2])

    def close(self) -> None:
        self._side.close()

    def ask(self, request: Request, version: int) -> Any:
        return _answer(self._side, request, version)

    # What is changed

    def set_password(self, mechanism: str, name: str, password: str, iterations: int = 4096) -> None:
        digest = "sha256" if mechanism == SHA256 else "sha512"
        salt = f"salt of {name}".encode()
        new = AlterScram.ScramCredentialUpsertion(
            name=name,
            mechanism=NUMBERS[mechanism],
            iterations=iterations,
            salt=salt,
            salted_password=salted_password(digest, password, salt, iterations),
        )
        self._alter(AlterScram(deletions=[], upsertions=[new]))

    def remove_password(self, mechanism: str, name: str) -> None:
        old = AlterScram.ScramCredentialDeletion(name=name, mechanism=NUMBERS[mechanism])
        self._alter(AlterScram(deletions=[old], upsertions=[]))

    def _alter(self, request: AlterScram) -> None:
        assert [each.error_code for each in self.ask(request, 0).results] == [Error.NONE]

    def add(self, *rules: Rule) -> None:
        rows = [
            CreateAclsRequest.AclCreation(
                resource_type=TOPIC,
                resource_pattern_type=pattern,
                resource_name=name,
                principal=principal,
                host="*",
                operation=operation,
                permission_type=permission,
            )
            for pattern, name, principal, operation, permission in rules
        ]
        assert {each.error_code for each in self.ask(CreateAclsRequest(creations=rows), 3).results} == {Error.NONE}

    def remove(self, rule: Rule) -> None:
        pattern, name, principal, operation, permission = rule
        exactly = {"resource_name_filter": name, "pattern_type_filter": pattern, "principal_filter": principal}
        exactly |= {"operation": operation, "permission_type": permission}
        gone = DeleteAclsRequest.DeleteAclsFilter(**{**EVERY, **exactly})
        (found,) = self.ask(DeleteAclsRequest(filters=[gone]), 3).filter_results
        assert (found.error_code, len(found.matching_acls)) == (Error.NONE, 1)

    def limit(self, *wishes: Any) -> None:
        answer = self.ask(altering(list(wishes)), 1)
        assert {each.error_code for each in answer.entries} == {Error.NONE}

    # What is seen

    def rules(self) -> list[Rule]:
        return sorted(
            (of.pattern_type, of.resource_name, rule.principal, rule.operation, rule.permission_type)
            for of in self.ask(DescribeAclsRequest(**EVERY), 3).resources
            for rule in of.acls
        )

    def limits(self) -> list[tuple[Any, ...]]:
        return sorted(
            (
                sorted((each.entity_type, each.entity_name or "") for each in entry.entity),
                sorted((each.key, each.value) for each in entry.values),
            )
            for entry in self.ask(described([], strict=False), 1).entries
        )

    def users(self) -> list[tuple[str, int, int]]:
        return sorted(
            (user.user, each.mechanism, each.iterations)
            for user in self.ask(DescribeUserScramCredentialsRequest(users=None), 0).results
            for each in user.credential_infos
        )

    def log_in(self, mechanism: str, name: str, password: str, more: str = "") -> LoggedIn | None:
        """Return a connection of somebody, None if he is not let in."""
        made = LoggedIn(self._port)
        made.ask(SaslHandshakeRequest(mechanism=mechanism), 1)
        first = client_first(name, more=more)
        challenge = made.ask(SaslAuthenticateRequest(auth_bytes=first), 2)
        if challenge.error_code == Error.NONE:
            proof = client_final(mechanism, first, bytes(challenge.auth_bytes), password)
            if made.ask(SaslAuthenticateRequest(auth_bytes=proof), 2).error_code == Error.NONE:
                return made
        made.close()
        return None

    def sees(self, mechanism: str, name: str, password: str, more: str = "") -> list[str] | None:
        """Return the topics that somebody may see, None if he is not let in."""
        made = self.log_in(mechanism, name, password, more)
        if made is None:
            return None
        with closing(made):
            return sorted(topic.name for topic in made.ask(MetadataRequest(topics=None), 9).topics)

    def by_token(self, token: Any) -> list[str] | None:
        return self.sees(SHA512, token.token_id, b64encode(token.hmac).decode(), ",tokenauth=true")

    def tokens(self, password: str) -> list[tuple[Any, ...]]:
        """Return what alice is told of tokens."""
        with closing(self._alice(password)) as alice:
            return sorted(
                (
                    each.token_id,
                    bytes(each.hmac),
                    each.principal_name,
                    each.token_requester_principal_name,
                    each.issue_timestamp,
                    each.expiry_timestamp,
                    each.max_timestamp,
                    tuple(renewer.principal_name for renewer in each.renewers),
                )
                for each in alice.ask(DescribeDelegationTokenRequest(owners=None), 3).tokens
            )

    def ask_as_alice(self, password: str, request: Request, version: int) -> Any:
        with closing(self._alice(password)) as alice:
            answer = alice.ask(request, version)
        assert answer.error_code == Error.NONE
        return answer

    def _alice(self, password: str) -> LoggedIn:
        made = self.log_in(SHA256, "alice", password)
        assert made is not None
        return made

    def state(self, password: str) -> tuple[Any, ...]:
        """Return all that is told; password: of alice's."""
        return self.users(), self.rules(), self.limits(), self.tokens(password)


def until(ask: Callable[[], Any], expected: Any) -> None:
    """Return when an answer is the expected one: what a controller has written down a broker knows a little later."""
    deadline = time.monotonic() + SECONDS_MAX
    while (found := ask()) != expected:
        assert time.monotonic() < deadline, f"{found}\nis not\n{expected}"
        time.sleep(0.05)


def is_open(address: str) -> bool:
    host, _, port = address.rpartition(":")
    with suppress(ConnectionRefusedError), socket.create_connection((host, int(port))):
        return True
    return False


def create_token() -> CreateDelegationTokenRequest:
    Renewer = CreateDelegationTokenRequest.CreatableRenewers
    renewers = [Renewer(principal_type="User", principal_name="bob")]
    return CreateDelegationTokenRequest(renewers=renewers, max_lifetime_ms=-1)


READS: Rule = (LITERAL, "orders", "User:alice", READ, ALLOW)
SEES: Rule = (PREFIXED, "b", "User:alice", DESCRIBE, ALLOW)
BOBS: Rule = (LITERAL, "*", "User:bob", DESCRIBE, ALLOW)
BUT: Rule = (LITERAL, "secret", "User:bob", DESCRIBE, DENY)
THEIRS: Rule = (LITERAL, "secret", "User:carol", WRITE, ALLOW)
LIMITS_LEFT = sorted(
    [
        ([(USER, "alice")], [(PRODUCED, 123_456.0)]),
        ([(CLIENT, ""), (USER, "alice")], [(PRODUCED, 300_000.0)]),
        ([(USER, "carol")], [(FETCHED, 9_999.0)]),
        ([(CLIENT, "loader")], [(MUTATIONS, 5.0)]),
        ([(IP, "10.9.9.9")], [(CONNECTIONS, 8.0)]),
    ]
)
MINE, OTHER = "alice-secret", "another secret"


def ours(data: Path, plain: str, login: str) -> Broker:
    config = {
        **of_logins("sasl_plaintext"),
        "listeners": f"PLAINTEXT://{plain},SASL_PLAINTEXT://{login}",
        "authorizer.class.name": AUTHORIZER,
        "super.users": ADMIN,
        "delegation.token.secret.key": TOKEN_KEY,
    }
    return Broker(data_dir=data, config=config, topics=TOPICS, cluster_id=CLUSTER_ID)


def theirs(release: str, directory: Path, login: str) -> Kafka:
    made = Kafka(release, directory)
    controller = made.settings["controller.quorum.voters"].partition("@")[2]
    made.settings |= settings(made.address, controller, login)
    made.settings |= {"sasl.enabled.mechanisms": f"PLAIN,{SHA256},{SHA512}"}
    module = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
    for mechanism in (SHA256, SHA512):
        made.settings[f"listener.name.sasl_plaintext.{mechanism.lower()}.sasl.jaas.config"] = module
    return made


@pytest.mark.parametrize("release", ["3.9.2", "4.4.0"])
def test_users_rules_quotas_and_tokens_go_to_kafka_and_come_back(tmp_path: Path, release: str) -> None:
    data = tmp_path / "kafka" / "data"
    plain, login = unused_address(), unused_address()
    with ours(data, plain, login), closing(Admin(plain, login)) as admin:
        admin.set_password(SHA256, "alice", MINE)
        admin.set_password(SHA512, "alice", MINE, 8192)
        admin.set_password(SHA512, "bob", "bob-secret")
        admin.add(READS, SEES, BOBS, BUT)
        admin.limit(
            ([(USER, "alice")], [(PRODUCED, 100_000), (TIME, 50)]),
            ([(USER, None)], [(FETCHED, 200_000)]),
            ([(CLIENT, "loader")], [(MUTATIONS, 5)]),
            ([(USER, "alice"), (CLIENT, None)], [(PRODUCED, 300_000)]),
            ([(IP, "10.9.9.9")], [(CONNECTIONS, 7)]),
            ([(IP, None)], [(CONNECTIONS, 1000)]),
        )
        token = admin.ask_as_alice(MINE, create_token(), 3)
        gone = admin.ask_as_alice(MINE, create_token(), 3)
        left = admin.state(MINE)
        assert len(left[0]) == 3
        assert len(left[1]) == 4
        assert len(left[2]) == 6
        assert len(left[3]) == 2
        check_first(admin, token)
    kafka = theirs(release, tmp_path / "kafka", login)
    with kafka, closing(Admin(kafka.address, login)) as admin:
        until(lambda: is_open(login), True)  # listeners open one after the other
        check_first(admin, token)
        until(lambda: admin.state(MINE), left)
        # A password, a mechanism that goes and a user who comes; rules; quotas; tokens
        admin.set_password(SHA256, "alice", OTHER, 16384)
        admin.remove_password(SHA512, "alice")
        admin.set_password(SHA256, "carol", "carol-secret")
        admin.remove(SEES)
        admin.remove(BUT)
        admin.add(THEIRS)
        admin.limit(
            ([(USER, "alice")], [(PRODUCED, 123_456), (TIME, None)]),
            ([(USER, None)], [(FETCHED, None)]),
            ([(USER, "carol")], [(FETCHED, 9_999)]),
            ([(IP, "10.9.9.9")], [(CONNECTIONS, 8)]),
            ([(IP, None)], [(CONNECTIONS, None)]),
        )
        until(lambda: admin.sees(SHA256, "alice", OTHER), ["orders"])
        renewed = admin.ask_as_alice(OTHER, RenewDelegationTokenRequest(hmac=token.hmac, renew_period_ms=3_600_000), 2)
        admin.ask_as_alice(OTHER, ExpireDelegationTokenRequest(hmac=gone.hmac, expiry_time_period_ms=-1), 2)
        new = admin.ask_as_alice(OTHER, create_token(), 3)
        until(lambda: {each[0] for each in admin.tokens(OTHER)}, {token.token_id, new.token_id})
        until(lambda: {each[5] for each in admin.tokens(OTHER)} >= {renewed.expiry_timestamp_ms}, True)
        until(admin.rules, sorted([READS, BOBS, THEIRS]))
        until(admin.limits, LIMITS_LEFT)
        until(admin.users, [("alice", 1, 16384), ("bob", 2, 4096), ("carol", 1, 4096)])
        check_second(admin, token, new, gone)
        left = admin.state(OTHER)
        kafka.stop()
    with ours(data, plain, login), closing(Admin(plain, login)) as admin:
        assert admin.state(OTHER) == left
        check_second(admin, token, new, gone)


def check_first(admin: Admin, token: Any) -> None:
    """What we have written down: who comes in, and what he sees."""
    until(lambda: admin.sees(SHA256, "alice", MINE), ["bills", "orders"])
    until(lambda: admin.sees(SHA512, "alice", MINE), ["bills", "orders"])
    until(lambda: admin.by_token(token), ["bills", "orders"])
    until(lambda: admin.sees(SHA512, "bob", "bob-secret"), ["bills", "orders"])
    assert admin.sees(SHA256, "bob", "bob-secret") is None
    assert admin.sees(SHA512, "alice", OTHER) is None
    assert admin.sees(SHA512, token.token_id, "no hmac", ",tokenauth=true") is None


def check_second(admin: Admin, token: Any, new: Any, gone: Any) -> None:
    """What Kafka has changed."""
    until(lambda: admin.sees(SHA256, "alice", OTHER), ["orders"])
    until(lambda: (admin.by_token(token), admin.by_token(new), admin.by_token(gone)), (["orders"], ["orders"], None))
    until(lambda: (admin.sees(SHA512, "alice", MINE), admin.sees(SHA256, "alice", MINE)), (None, None))
    until(lambda: admin.sees(SHA512, "bob", "bob-secret"), TOPICS)
    until(lambda: admin.sees(SHA256, "carol", "carol-secret"), ["secret"])

"""`Broker(users=...)` and `Cluster(users=...)`: who can log in, at which broker, and what is left of it later."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
from base64 import b64encode
from pathlib import Path
from random import SystemRandom
from typing import Any

import pytest

from minibroker import Broker, Cluster
from minibroker.client import Cluster as ClientCluster
from minibroker.client.security import Security
from minibroker.client.security_admin import AccessRule, Password, SecurityAdmin
from minibroker.embedded import BrokerError
from minibroker.protocol.framing import decode_response, encode_request
from minibroker.protocol.headers import Request
from minibroker.protocol.messages.create_delegation_token import CreateDelegationTokenRequest
from minibroker.protocol.messages.describe_delegation_token import DescribeDelegationTokenRequest
from minibroker.protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest
from minibroker.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from minibroker.protocol.messages.sasl_handshake import SaslHandshakeRequest
from minibroker.security.acls import ALLOW, LITERAL, READ, TOPIC
from tests.security.conversations import client_final, client_first, login, plain, play, scram

USERS = {"alice": "alice-secret"}
ALICE = plain("alice", "alice-secret")


def is_in(address: str, conversation: list[Any]) -> bool:
    host, _, port = address.rpartition(":")
    return asyncio.run(play(host, int(port), conversation))[-1] != "closed"


class Blocking:
    """A connection that is asked and answers."""

    def __init__(self, address: str):
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=10)
        self._file = self._socket.makefile("rb")

    def __enter__(self) -> Blocking:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
        self._socket.close()

    def ask(self, request: Request, version: int) -> Any:
        self._socket.sendall(b"".join(encode_request(request, version, 1, "test")))
        length = int.from_bytes(self._file.read(4), "big")
        return decode_response(self._file.read(length), request.api, version)[1]

    def log_in(self) -> Blocking:
        self.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        assert self.ask(SaslAuthenticateRequest(auth_bytes=ALICE), 2).error_code == 0
        return self


def test_users_of_a_broker_log_in_by_every_mechanism() -> None:
    with Broker(users=USERS) as broker:
        for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
            assert is_in(broker.bootstrap_servers, scram(mechanism))
        assert is_in(broker.bootstrap_servers, login("PLAIN", ALICE))
        assert not is_in(broker.bootstrap_servers, login("PLAIN", plain("bob", "x")))
        assert not is_in(broker.bootstrap_servers, [("metadata", 1)])


def test_who_is_altered_or_removed_comes_in_by_no_mechanism_any_more(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def change(broker: Broker, password: str | None) -> None:
        async def main() -> None:
            settings = broker.client_config("minibroker", user="root")
            async with ClientCluster(broker.bootstrap_servers, security=Security.of(settings)) as cluster:
                admin = SecurityAdmin(cluster)
                for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
                    if password is None:
                        await admin.remove_password("alice", mechanism)
                    else:
                        await admin.set_password("alice", mechanism, Password(password))

        asyncio.run(main())

    with Broker(users={**USERS, "root": "r"}, data_dir=tmp_path) as broker:
        address = broker.bootstrap_servers
        assert is_in(address, login("PLAIN", ALICE))
        change(broker, "new")
        assert not is_in(address, login("PLAIN", ALICE))
        assert is_in(address, login("PLAIN", plain("alice", "new")))
        assert is_in(address, login("PLAIN", plain("alice", "new")))
        change(broker, None)
        assert not is_in(address, login("PLAIN", plain("alice", "new")))
        change(broker, "new")
    caplog.clear()
    with Broker(users={**USERS, "root": "r"}, data_dir=tmp_path) as broker:
        assert is_in(broker.bootstrap_servers, login("PLAIN", ALICE))
    (line,) = [record.getMessage() for record in caplog.records if "another password" in record.getMessage()]
    assert line == "the data directory had another password of alice: that of this start is taken"


def test_passwords_of_scram_outlive_the_start_that_gave_them(tmp_path: Path) -> None:
    with Broker(users=USERS, data_dir=tmp_path) as broker:
        assert is_in(broker.bootstrap_servers, scram())
    listener = {"listeners": "SASL_PLAINTEXT://127.0.0.1:0", "sasl.enabled.mechanisms": "SCRAM-SHA-256"}
    with Broker(config=listener, data_dir=tmp_path) as broker:
        assert is_in(broker.bootstrap_servers, scram())
    with Broker(users={"alice": "changed"}, data_dir=tmp_path) as broker:
        assert not is_in(broker.bootstrap_servers, scram())
        assert is_in(broker.bootstrap_servers, scram(password="changed"))


RULES = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:alice",
}


@pytest.mark.parametrize("make", [Broker, lambda **named: Cluster(2, **named)], ids=["broker", "cluster"])
def test_a_start_that_passes_over_passwords_and_rules_says_so(
    make: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def add_rule(broker: Any) -> None:
        settings = broker.client_config("minibroker", user="alice")
        async with ClientCluster(broker.bootstrap_servers.split(",")[0], security=Security.of(settings)) as client:
            await SecurityAdmin(client).add_rules([AccessRule(TOPIC, LITERAL, "t", "User:bob", "*", READ, ALLOW)])

    users = {f"user-{number}": "x" for number in range(5)}
    with make(users={**USERS, **users}, config=RULES, data_dir=tmp_path) as broker:
        asyncio.run(add_rule(broker))
    assert not [record for record in caplog.records if "the data directory has" in record.getMessage()]
    with make(data_dir=tmp_path):
        pass
    assert [each for record in caplog.records if "the data directory has" in (each := record.getMessage())] == [
        "the data directory has passwords of alice, user-0, user-1, user-2, user-3 and 1 more, and nobody is asked for "
        "one: no listener asks for a login (listeners=SASL_PLAINTEXT://..., or --user)",
        "the data directory has an access rule, and nobody is kept out: authorizer.class.name is not set",
    ]
    caplog.clear()
    with make(users=USERS, config=RULES, data_dir=tmp_path):
        assert not [record for record in caplog.records if "the data directory has" in record.getMessage()]


def test_a_cluster_says_so_too_when_it_takes_an_altered_password_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for password, count in (("altered", 0), ("altered", 0), ("alice-secret", 1)):
        caplog.clear()
        with Cluster(2, users={"alice": password}, data_dir=tmp_path) as cluster:
            assert is_in(cluster.bootstrap_servers.split(",")[1], login("PLAIN", plain("alice", password)))
        lines = [each for record in caplog.records if "another password of alice" in (each := record.getMessage())]
        assert len(lines) == count


def test_plain_is_for_users_of_the_start_and_not_for_all_whose_passwords_are_stored() -> None:
    async def give_bob_a_password(broker: Broker) -> None:
        settings = broker.client_config("minibroker", user="alice")
        async with ClientCluster(broker.bootstrap_servers, security=Security.of(settings)) as cluster:
            await SecurityAdmin(cluster).set_password("bob", "SCRAM-SHA-256", Password("bob-secret"))

    with Broker(users=USERS) as broker:
        asyncio.run(give_bob_a_password(broker))
        assert is_in(broker.bootstrap_servers, scram(first=client_first("bob"), password="bob-secret"))
        assert not is_in(broker.bootstrap_servers, login("PLAIN", plain("bob", "bob-secret")))


def test_nobody_can_foretell_what_a_cluster_draws() -> None:
    with Cluster(2, users=USERS) as cluster:
        core = cluster._engine.core  # type: ignore[union-attr]
        assert {type(each.chance) for each in (*core.nodes.values(), core.controller)} == {SystemRandom}


def test_users_need_a_listener_that_asks_for_them() -> None:
    with pytest.raises(BrokerError, match="users: no listener asks for a login"):
        Broker(users=USERS, listeners="PLAINTEXT://127.0.0.1:0").start()
    with pytest.raises(ValueError, match="names with passwords"):
        Broker(users={"alice": ""})
    with pytest.raises(ValueError, match="for a broker of this process"):
        Broker(users=USERS, process=True)


def test_users_log_in_at_every_broker_of_a_cluster_and_after_its_restart() -> None:
    with Cluster(2, users=USERS) as cluster:
        for address in cluster.bootstrap_servers.split(","):
            assert is_in(address, scram())
            assert is_in(address, login("PLAIN", ALICE))
            assert not is_in(address, scram(password="x"))
        cluster.restart_broker(2)
        assert is_in(cluster.bootstrap_servers.split(",")[1], scram("SCRAM-SHA-512"))


def test_a_token_made_at_one_broker_is_good_at_the_others_until_it_is_ended() -> None:
    with Cluster(2, users=USERS, delegation_token_secret_key="abracadabra") as cluster:
        first, second = cluster.bootstrap_servers.split(",")
        with Blocking(first).log_in() as at_first, Blocking(second).log_in() as at_second:
            made = at_first.ask(CreateDelegationTokenRequest(renewers=[], max_lifetime_ms=-1), 3)
            assert (made.error_code, made.principal_name) == (0, "alice")
            cluster.create_topic("later")  # returns when all brokers know what has been decided up to now
            begun = client_first(made.token_id, more=",tokenauth=true")
            proof = lambda first: client_final("SCRAM-SHA-256", begun, first, b64encode(made.hmac).decode())  # noqa: E731
            with_token = login("SCRAM-SHA-256", begun, proof)
            told = at_second.ask(DescribeDelegationTokenRequest(owners=None), 3).tokens
            assert [(each.token_id, each.hmac) for each in told] == [(made.token_id, made.hmac)]
            assert is_in(second, with_token)
            ended = at_second.ask(ExpireDelegationTokenRequest(hmac=made.hmac, expiry_time_period_ms=-1), 2)
            assert ended.error_code == 0
            again = at_first.ask(ExpireDelegationTokenRequest(hmac=made.hmac, expiry_time_period_ms=-1), 2)
            assert again.error_code == 62


def test_a_broker_that_asks_nobody_loads_nothing_of_logins() -> None:
    program = (
        "import sys\n"
        "from minibroker import Broker\n"
        "with Broker(topics='orders'):\n"
        "    print(*(name for name in sys.modules if name.startswith('minibroker.security.')))\n"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ["minibroker.security.principal"]

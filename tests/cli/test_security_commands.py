"""`minibroker users`, `acls`, `who-may` and `tokens` against a broker that asks who one is, and one that does not."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from minibroker import Broker
from minibroker.cli.users import changes_in
from tests.cli.running import Ran, Shell

pytestmark = pytest.mark.outside

AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
SETTINGS: dict[str, Any] = {
    "authorizer.class.name": AUTHORIZER,
    "super.users": "User:admin",
    "delegation.token.secret.key": "hush",
}


class As:
    """A shell whose commands log in as somebody."""

    def __init__(self, broker: Broker, name: str, password: str, directory: Path):
        self.shell = Shell(broker.bootstrap_servers)
        self.file = directory / f"{name}.properties"
        self.file.write_text(
            "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-256\n"
            f'sasl.jaas.config=ScramLoginModule required username="{name}" password="{password}";\n'
        )

    def __call__(self, *words: str, stdin: bytes = b"") -> Ran:
        return self.shell(*words, "--command-config", str(self.file), stdin=stdin)

    def good(self, line: str, stdin: bytes = b"") -> Ran:
        ran = self(*line.split(), stdin=stdin)
        assert ran.status == 0, ran.errors
        return ran


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    users = {"admin": "secret", "alice": "a1"}
    with Broker(users=users, topics="orders", **SETTINGS) as broker:
        yield broker


@pytest.fixture
def admin(broker: Broker, tmp_path: Path) -> As:
    return As(broker, "admin", "secret", tmp_path)


@pytest.fixture
def alice(broker: Broker, tmp_path: Path) -> As:
    return As(broker, "alice", "a1", tmp_path)


@pytest.fixture
def rules(admin: As) -> Iterator[None]:
    """Three rules about topics, which are gone afterwards."""
    admin.good("acls add alice read,write orders")
    admin.good("acls add bob all or*")
    admin.good("acls add eve write orders --deny --host 10.0.0.7")
    yield
    for who in ("alice", "bob", "eve"):
        for resource in ("orders", "or*"):
            admin("acls", "remove", who, "all,read,write,describe", resource)


# Users


def can_log_in(broker: Broker, name: str, password: str, directory: Path) -> bool:
    return As(broker, name, password, directory)("tokens").status == 0


def test_a_user_is_added_altered_and_removed(broker: Broker, admin: As, tmp_path: Path) -> None:
    assert admin.good("users add carl", b"c1\n").lines == ["added: carl (SCRAM-SHA-256, SCRAM-SHA-512)"]
    assert can_log_in(broker, "carl", "c1", tmp_path)
    file = tmp_path / "password"
    file.write_text("c2\nand no more\n")
    admin.good(f"users alter carl --mechanism scram-sha-256 --iterations 8192 --password-file {file}")
    assert can_log_in(broker, "carl", "c2", tmp_path)
    assert not can_log_in(broker, "carl", "c1", tmp_path)
    assert admin.good("users describe carl").lines == [
        "USER  MECHANISM      ITERATIONS",
        "carl  SCRAM-SHA-256  8192",
        "carl  SCRAM-SHA-512  4096",
    ]
    admin.good("users remove carl --mechanism SCRAM-SHA-256")
    assert not can_log_in(broker, "carl", "c2", tmp_path)
    admin.good("users remove carl")
    assert "carl" not in admin.good("users list").text


def test_users_are_altered_in_kafkas_words_too(broker: Broker, admin: As, tmp_path: Path) -> None:
    words = "--alter --entity-type users --entity-name dora"
    config = "SCRAM-SHA-256=[iterations=8192,password=a,b=c],SCRAM-SHA-512=[password=d2]"
    admin.good(f"users {words} --add-config {config}")
    assert can_log_in(broker, "dora", "a,b=c", tmp_path)
    described = admin.good("configs --describe --entity-type users --entity-name dora")
    assert described.lines == [
        "SCRAM credential configs for user-principal 'dora' are "
        "SCRAM-SHA-256=iterations=8192, SCRAM-SHA-512=iterations=4096"
    ]
    altered = admin.good(f"configs {words} --add-config SCRAM-SHA-256=[password=d3]")
    assert altered.lines == ["Completed updating config for user dora."]
    assert can_log_in(broker, "dora", "d3", tmp_path)
    admin.good(f"configs {words} --delete-config SCRAM-SHA-256,SCRAM-SHA-512")
    assert admin("users", "dora").status == 1


def test_users_as_json(admin: As) -> None:
    found = {row["user"]: row["mechanisms"] for row in json.loads(admin.good("users --json").text)}
    assert found["alice"] == {"SCRAM-SHA-256": 4096, "SCRAM-SHA-512": 4096}


@pytest.mark.parametrize(
    ("words", "status", "reason"),
    [
        ("add", 2, "add: whom?"),
        ("add alice", 1, "alice has a password for SCRAM-SHA-256, SCRAM-SHA-512; users alter gives another one"),
        ("alter nobody", 1, "there is no user nobody; users add makes one"),
        ("remove nobody", 1, "there is no such password of nobody"),
        ("describe nobody", 1, "nobody: has no password for SCRAM"),
        ("list alice", 2, "list takes no names"),
        ("add new --mechanism MD5", 2, "'MD5' is none of SCRAM-SHA-256, SCRAM-SHA-512"),
        ("add new --iterations 5", 2, "iterations are 4096 to 16384"),
        ("add new --password-file /not/there", 2, "--password-file /not/there: No such file or directory"),
        ("alice --password-file x", 2, "--password-file belongs to add and alter"),
        ("add new --add-config SCRAM-SHA-256=[password=hushed]", 2, "belong to --alter"),
        ("alter alice --add-config SCRAM-SHA-256=hushed", 2, "say MECHANISM=[iterations=8192,password=...]"),
        ("alter alice --add-config SCRAM-SHA-256=[hushed]", 2, "there is no password= in the brackets"),
        ("alter alice --add-config SCRAM-SHA-256=[x=1,password=hushed]", 2, "in the brackets stand iterations=N"),
        ("alter alice --add-config SCRAM-SHA-256=[iterations=1,password=hushed]", 2, "iterations are 4096 to 16384"),
        ("alter alice --add-config MD5=[password=hushed]", 2, "'MD5' is none of"),
        ("alter alice --add-config SCRAM-SHA-256=[password=]", 2, "an empty password is none"),
    ],
)
def test_what_cannot_be_done_to_users_is_said_without_a_password(
    admin: As, words: str, status: int, reason: str
) -> None:
    ran = admin("users", *words.split(), stdin=b"hushed\n")
    assert ran.status == status
    assert reason in ran.errors
    assert ran.errors.count("\n") == 1
    assert "hushed" not in ran.errors + ran.text


def test_no_password_is_shown_by_what_holds_it() -> None:
    assert "hushed" not in repr(changes_in(["SCRAM-SHA-256=[password=hushed]"], []))


# Rules


def test_rules_are_made_listed_and_removed(admin: As) -> None:
    made = admin.good("acls add alice read,Describe_Configs ledger").lines
    table = [
        "RESOURCE      PRINCIPAL   HOST  PERMISSION  OPERATIONS",
        "TOPIC:ledger  User:alice  *     ALLOW       DESCRIBE_CONFIGS,READ",
    ]
    assert made == ["2 rules there now:", *table]
    assert admin.good("acls list ledger").lines == table
    assert admin.good("acls remove alice read,describe-configs ledger").lines == ["2 rules removed:", *table]
    assert admin.good("acls list ledger").lines == ["there is no such rule"]


KAFKAS = {  # what is typed, and the rules that come of it
    "--allow-principal User:zoe --operation Read --operation Write --topic a --topic b": {
        "ALLOW zoe * READ TOPIC a LITERAL",
        "ALLOW zoe * WRITE TOPIC a LITERAL",
        "ALLOW zoe * READ TOPIC b LITERAL",
        "ALLOW zoe * WRITE TOPIC b LITERAL",
    },
    "--allow-principal User:zoe --cluster": {"ALLOW zoe * ALL CLUSTER kafka-cluster LITERAL"},
    "--deny-principal zoe --deny-host 10.0.0.1 --deny-host ::1 --group g --operation all": {
        "DENY zoe 10.0.0.1 ALL GROUP g LITERAL",
        "DENY zoe 0:0:0:0:0:0:0:1 ALL GROUP g LITERAL",
    },
    "--allow-principal zoe --deny-principal zoe --deny-host 10.0.0.1 --topic p --operation Read": {
        "ALLOW zoe * READ TOPIC p LITERAL",
        "DENY zoe 10.0.0.1 READ TOPIC p LITERAL",
    },
    "--allow-principal zoe --producer --topic p --transactional-id t --resource-pattern-type prefixed": {
        "ALLOW zoe * WRITE TOPIC p PREFIXED",
        "ALLOW zoe * DESCRIBE TOPIC p PREFIXED",
        "ALLOW zoe * CREATE TOPIC p PREFIXED",
        "ALLOW zoe * WRITE TRANSACTIONAL_ID t PREFIXED",
        "ALLOW zoe * DESCRIBE TRANSACTIONAL_ID t PREFIXED",
    },
    "--allow-principal zoe --producer --idempotent --topic p": {
        "ALLOW zoe * WRITE TOPIC p LITERAL",
        "ALLOW zoe * DESCRIBE TOPIC p LITERAL",
        "ALLOW zoe * CREATE TOPIC p LITERAL",
        "ALLOW zoe * IDEMPOTENT_WRITE CLUSTER kafka-cluster LITERAL",
    },
    "--allow-principal zoe --consumer --topic p --group g": {
        "ALLOW zoe * READ TOPIC p LITERAL",
        "ALLOW zoe * DESCRIBE TOPIC p LITERAL",
        "ALLOW zoe * READ GROUP g LITERAL",
    },
    "--allow-principal zoe --delegation-token t --operation Describe": {
        "ALLOW zoe * DESCRIBE DELEGATION_TOKEN t LITERAL"
    },
    "--allow-principal zoe --user-principal User:bob --operation CreateTokens": {
        "ALLOW zoe * CREATE_TOKENS USER User:bob LITERAL"
    },
}


@pytest.mark.parametrize("typed", KAFKAS)
def test_rules_in_kafkas_words(admin: As, typed: str) -> None:
    added = json.loads(admin.good(f"acls --add {typed} --json").text)
    listed = json.loads(admin.good("acls --list --principal User:zoe --json").text)
    assert added == listed
    found = {
        "{permission} {who} {host} {operation} {resource_type} {resource_name} {pattern_type}".format(
            who=row["principal"].removeprefix("User:"), **row
        )
        for row in listed
    }
    assert found == KAFKAS[typed]
    removed = json.loads(admin.good(f"acls --remove {typed} --json").text)
    assert removed == listed
    assert admin.good("acls --list --principal User:zoe").lines == ["there is no such rule"]


@pytest.mark.usefixtures("rules")
def test_a_list_has_what_applies_to_a_name_unless_a_pattern_type_is_named(admin: As) -> None:
    def principals(words: str) -> list[str]:
        return sorted({row["principal"] for row in json.loads(admin.good(f"acls list {words} -J").text)})

    assert principals("orders") == ["User:alice", "User:bob", "User:eve"]
    assert principals("orders --resource-pattern-type literal") == ["User:alice", "User:eve"]
    assert principals("or*") == ["User:bob"]
    assert principals("order") == ["User:bob"]


@pytest.mark.usefixtures("rules")
def test_all_rules_of_a_resource_go_only_by_force(admin: As) -> None:
    assert "Say --force" in admin("acls", "--remove", "--topic", "orders").errors
    removed = json.loads(admin.good("acls --remove --topic orders --force -J").text)
    assert {row["principal"] for row in removed} == {"User:alice", "User:eve"}


def test_a_rule_for_everybody_and_by_force_one_for_an_odd_name(admin: As) -> None:
    assert "User:*" in admin.good("acls add * read odd").text
    assert "User:CN=a,OU=*" in admin.good("acls --add --allow-principal User:CN=a,OU=* --topic odd --force").text
    assert len(json.loads(admin.good("acls --remove --topic odd --force -J").text)) == 2


@pytest.mark.usefixtures("rules")
def test_of_everybody_only_the_operations_go_that_are_named(admin: As) -> None:
    before = len(admin.good("acls list orders").lines)
    assert "no rule removed" in admin.good("acls --remove --topic orders --operation Alter --force").text
    assert len(admin.good("acls list orders").lines) == before
    removed = json.loads(admin.good("acls --remove --topic orders --operation Write --force -J").text)
    assert {row["operation"] for row in removed} == {"WRITE"}
    left = json.loads(admin.good("acls list orders -J").text)
    assert left
    assert "WRITE" not in {row["operation"] for row in left}


@pytest.mark.parametrize(
    ("words", "status", "reason"),
    [
        ("list orders --operation Read", 2, "--operation is to add and remove; listed are rules of a RESOURCE"),
        ("--list --allow-principal alice", 2, "--allow-principal is to add and remove"),
        ("list orders --host 10.0.0.1", 2, "--host is to add and remove"),
        ("orders", 2, "orders: list, add or remove?"),
        ("add alice write", 2, "say PRINCIPAL OPERATION RESOURCE"),
        ("add alice sing orders", 2, "there is no operation 'sing'; there are ALL, READ, WRITE"),
        ("add alice cluster-action orders", 2, "CLUSTER_ACTION means nothing to a TOPIC; it has READ, WRITE"),
        ("add alice read queue:orders", 2, "there is no resource 'queue'; there are topic, group"),
        ("add alice read group:", 2, "of what name?"),
        ("add alice read orders --host fe80::zz", 2, "'fe80::zz' is no address"),
        ("add alice read orders --topic orders", 2, "as words, or all of it by options"),
        ("add user:alice write orders --deny", 2, "'user:alice' is nobody, so the rule would never hold: clients are"),
        ("add User: write orders", 2, "'User:' is nobody"),
        ("--remove --topic orders --principal alice --force", 2, "--principal is to list"),
        ("add alice read orders --principal bob", 2, "--principal is to list"),
        ("list orders --force", 2, "--force is to add and remove"),
        ("add Group:alice write orders", 2, "'Group:alice' is nobody"),
        ("--add --allow-principal User:ali* --topic orders", 2, "'User:ali*' is nobody"),
        ("--add --topic orders", 2, "for whom? --allow-principal User:alice"),
        ("--add --allow-principal alice", 2, "which resource? --topic"),
        ("--add --allow-host 10.0.0.1 --topic orders", 2, "--allow-host: for whom?"),
        ("--add --deny-principal bob --deny-host 10.0.0.0/8 --topic orders", 2, "'10.0.0.0/8' is no address"),
        ("add alice read orders --host localhost", 2, "'localhost' is no address"),
        ("--add --allow-principal alice --topic orders --resource-pattern-type match", 2, "literal or prefixed"),
        ("--add --allow-principal alice --topic orders --deny", 2, "--deny and --host are for words"),
        ("--add --allow-principal alice --producer", 2, "--producer needs --topic"),
        ("--add --allow-principal alice --consumer --topic orders", 2, "--consumer needs --group"),
        ("--add --allow-principal alice --producer --topic o --operation Read", 2, "so no --operation"),
        ("--add --allow-principal alice --producer --topic o --group g", 2, "GROUP:g: not for --producer"),
        ("--add --deny-principal alice --producer --topic o", 2, "for principals that are allowed"),
        ("--add --allow-principal alice --topic o --idempotent", 2, "--idempotent belongs to --producer"),
    ],
)
def test_what_is_no_rule_is_said(admin: As, words: str, status: int, reason: str) -> None:
    ran = admin("acls", *words.split())
    assert (ran.status, ran.output) == (status, b"")
    assert reason in ran.errors
    assert ran.errors.count("\n") == 1


def test_who_may_not_ask_for_rules_is_told_what_to_do(alice: As) -> None:
    ran = alice("acls")
    assert ran.status == 1
    assert "CLUSTER_AUTHORIZATION_FAILED" in ran.errors
    assert "log in as one of super.users" in ran.errors


# Who may


@pytest.mark.usefixtures("rules")
def test_a_decision_is_explained_rule_by_rule(admin: As) -> None:
    ran = admin.good("who-may alice write orders")
    assert ran.lines[0] == ("yes: User:alice may WRITE TOPIC:orders, because a rule allows it, for orders (literal)")
    told = {line.strip().partition("  ")[0]: line.strip().rpartition("  ")[2] for line in ran.lines[1:]}
    assert told == {
        "ALLOW User:alice to WRITE TOPIC:orders": "decides",
        "ALLOW User:alice to READ TOPIC:orders": "is for another operation",
        "ALLOW User:bob to ALL prefix TOPIC:or": "is for another principal",
        "DENY User:eve from 10.0.0.7 to WRITE TOPIC:orders": "is for another principal",
    }
    assert not ran.errors


@pytest.mark.usefixtures("rules")
@pytest.mark.parametrize(
    ("words", "status", "beginning"),
    [
        (
            "User:bob write orders",
            0,
            "yes: User:bob may WRITE TOPIC:orders, because a rule allows it, for or (prefixed)",
        ),
        ("alice describe orders", 0, "yes: User:alice may DESCRIBE TOPIC:orders, because a rule allows it"),
        ("eve write orders --host 10.0.0.7", 1, "no, unless it is one of super.users: User:eve from 10.0.0.7 may not"),
        ("admin create cluster", 1, "no, unless it is one of super.users: User:admin may not CREATE CLUSTER:"),
        ("admin create cluster --super-user admin", 0, "yes: User:admin may CREATE CLUSTER:kafka-cluster, because"),
        ("eve write orders --super-user admin", 1, "no: User:eve may not WRITE TOPIC:orders, because no rule for"),
        ("eve write bills --super-user admin", 1, "no: User:eve may not WRITE TOPIC:bills, because there is no rule"),
        ("eve write bills --open", 0, "yes: User:eve may WRITE TOPIC:bills, because there is no rule for the resource"),
        ("alice read --group readers", 1, "no, unless it is one of super.users: User:alice may not READ GROUP:readers"),
    ],
)
def test_a_decision_is_yes_or_no_or_what_is_not_known(admin: As, words: str, status: int, beginning: str) -> None:
    ran = admin("who-may", *words.split())
    assert ran.status == status
    assert ran.text.startswith(beginning)
    assert ("--super-user NAME says so" in ran.errors) == ("unless" in beginning)


@pytest.mark.usefixtures("rules")
def test_every_operation_where_none_is_named(admin: As) -> None:
    ran = admin.good("who-may alice orders --super-user admin")
    assert ran.lines[0] == "User:alice to TOPIC:orders:"
    answers = {line.split()[0]: line.split()[1] for line in ran.lines[2:]}
    assert [name for name, may in answers.items() if may == "yes"] == ["READ", "WRITE", "DESCRIBE"]
    assert len(answers) == 8
    assert max(map(len, ran.lines)) <= 80


@pytest.mark.usefixtures("rules")
def test_who_may_at_all(admin: As) -> None:
    ran = admin.good("who-may - write orders --super-user admin")
    assert [line.split("  ")[1] for line in ran.lines[2:]] == [
        "User:admin",
        "User:alice",
        "User:bob",
        "User:eve",
        "everybody else",
    ]
    assert [line[len("  everybody else  ") :][:3].strip() for line in ran.lines[2:]] == [
        "yes",
        "yes",
        "yes",
        "no",
        "no",
    ]
    may = {row["principal"]: row["allowed"] for row in json.loads(admin.good("who-may - orders -J").text)["who"]}
    assert may["User:alice"] == ["READ", "WRITE", "DESCRIBE"]
    assert len(may["User:bob"]) == 8
    assert may["everybody else"] == []


def test_a_decision_as_json_says_what_is_not_known(admin: As) -> None:
    ran = admin("who-may", "eve", "write", "bills", "-J")
    row = json.loads(ran.text)
    assert (ran.status, row["allowed"], row["rules"], row["unknown"]) == (1, False, [], ["super.users"])


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("alice", "to which resource?"),
        ("alice write", "to which resource?"),
        ("alice read write orders", "one of each"),
        ("alice write or*", "a decision is about one resource"),
        ("alice cluster-action orders", "nobody asks for CLUSTER_ACTION of TOPIC:orders, but for READ"),
    ],
)
def test_a_question_that_makes_no_sense_is_refused(admin: As, words: str, reason: str) -> None:
    ran = admin("who-may", *words.split())
    assert (ran.status, ran.output) == (2, b"")
    assert reason in ran.errors


def test_a_broker_that_asks_nobody_says_so(shell: Shell) -> None:
    assert shell.good("who-may", "alice", "write", "orders").lines == [
        "yes: everybody may do everything, because authorizer.class.name is not set"
    ]
    ran = shell("acls")
    assert ran.status == 1
    assert f"authorizer.class.name={AUTHORIZER}" in ran.errors


# Tokens


def test_a_token_is_made_described_renewed_and_ended(alice: As) -> None:
    made = json.loads(alice.good("tokens create --renewer-principal bob --max-life-time-period 600000 -J").text)
    assert (made["owner"], made["requester"], made["renewers"]) == ("User:alice", "User:alice", ["User:bob"])
    listed = alice.good("tokens").lines
    assert listed[0].split() == ["TOKEN-ID", "OWNER", "RENEWERS", "EXPIRES"]
    assert listed[1].split()[:3] == [made["id"], "User:alice", "User:bob"]
    assert made["hmac"] not in "".join(listed)
    assert json.loads(alice.good("tokens --describe --owner-principal User:alice -J").text) == [made]
    assert alice.good("tokens describe --owner-principal User:carl").lines == ["no tokens"]
    assert alice.good(f"tokens renew {made['id']}").lines == [f"renewed: good until {made['ends']}"]
    assert alice.good(f"tokens --expire --hmac {made['hmac']} --expiry-time-period 1000").text.startswith("ends at ")
    assert alice.good(f"tokens expire {made['id']}").lines == ["ended"]
    assert alice.good("tokens").lines == ["no tokens"]


def test_who_has_a_token_comes_in_by_it(broker: Broker, alice: As, tmp_path: Path) -> None:
    made = json.loads(alice.good("tokens create -J").text)
    bearer = As(broker, made["id"], made["hmac"], tmp_path)
    text = bearer.file.read_text()
    assert bearer("topics").status == 1  # a name like others
    bearer.file.write_text(text.replace('";\n', '" tokenauth="true";\n'))
    assert "orders" in bearer.good("topics").text or bearer("topics").status == 0
    bearer.file.write_text(bearer.file.read_text().replace("SCRAM-SHA-256", "PLAIN"))
    ran = bearer("topics")
    assert (ran.status, ran.output) == (2, b"")
    assert "a delegation token comes in by SCRAM" in ran.errors
    alice.good(f"tokens expire {made['id']}")


@pytest.mark.parametrize(
    ("words", "status", "reason"),
    [
        ("sing", 2, "create, renew, expire, describe?"),
        ("renew", 2, "renew: which one? TOKEN-ID or --hmac"),
        ("renew nothing", 1, "there is no token nothing that you may see"),
        ("renew --hmac ?", 2, "that is not base64"),
        ("renew --hmac c2VjcmV0", 1, "DELEGATION_TOKEN_NOT_FOUND"),
        ("create --hmac x", 2, "create takes no --hmac: that is for renew, expire"),
        ("create --owner-principal User:bob", 1, "DELEGATION_TOKEN_AUTHORIZATION_FAILED"),
    ],
)
def test_what_cannot_be_done_with_tokens_is_said(alice: As, words: str, status: int, reason: str) -> None:
    ran = alice("tokens", *words.split())
    assert (ran.status, ran.output) == (status, b"")
    assert reason in ran.errors


def test_who_has_not_logged_in_gets_no_token(shell: Shell) -> None:
    ran = shell("tokens", "create")
    assert ran.status == 1
    assert "log in first, and not with a token" in ran.errors

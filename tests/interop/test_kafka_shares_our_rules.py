"""Access rules between Kafka and us: kafka-acls does its verbs here, and each goes on with the other's rules."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from minibroker import Broker
from minibroker.errors import Error
from minibroker.protocol.messages.create_acls import CreateAclsRequest
from minibroker.protocol.messages.delete_acls import DeleteAclsRequest
from minibroker.protocol.messages.describe_acls import DescribeAclsRequest
from minibroker.security.acls import ALLOW, ANY, DENY, DESCRIBE, LITERAL, PREFIXED, READ, TOPIC, WRITE
from tests.differential.kafka import CLUSTER_ID, Kafka, missing_tools
from tests.differential.wire import Side
from tests.interop import kafka
from tests.security.acl_cases import ADMIN
from tests.security.record_acls import AUTHORIZER, _answer, settings, unused_address

pytestmark = [
    pytest.mark.interop,
    pytest.mark.slow,
    pytest.mark.skipif(bool(missing_tools()), reason=f"a real Kafka needs {missing_tools()}, not found"),
]

SETTINGS = {"authorizer.class.name": AUTHORIZER, "super.users": ADMIN}
NEWEST = 3
EVERY: dict[str, Any] = {"resource_name_filter": None, "principal_filter": None, "host_filter": None, "operation": ANY}
EVERY |= {"permission_type": ANY, "resource_type_filter": ANY, "pattern_type_filter": ANY}


def creation(name: str, operation: int, permission: int = ALLOW, pattern: int = LITERAL) -> Any:
    return CreateAclsRequest.AclCreation(
        resource_type=TOPIC,
        resource_name=name,
        resource_pattern_type=pattern,
        principal="User:alice",
        host="*",
        operation=operation,
        permission_type=permission,
    )


def add(side: Side, *creations: Any) -> None:
    answer = _answer(side, CreateAclsRequest(creations=list(creations)), NEWEST)
    assert [each.error_code for each in answer.results] == [Error.NONE] * len(creations)


def rules(side: Side) -> list[tuple[int, str, int, int]]:
    found = _answer(side, DescribeAclsRequest(**EVERY), NEWEST)
    return sorted(
        (each.pattern_type, each.resource_name, rule.operation, rule.permission_type)
        for each in found.resources
        for rule in each.acls
    )


@pytest.mark.parametrize("release", ["3.9.2", "4.4.0"])
def test_each_goes_on_with_the_rules_of_the_other(tmp_path: Path, release: str) -> None:
    data = tmp_path / "kafka" / "data"
    ours = [(LITERAL, "bills", DESCRIBE, ALLOW), (LITERAL, "orders", READ, ALLOW), (PREFIXED, "o", WRITE, DENY)]
    with Broker(data_dir=data, config=SETTINGS, topics=["orders"], cluster_id=CLUSTER_ID) as broker:
        side = Side(broker.bootstrap_servers)
        add(side, creation("orders", READ), creation("o", WRITE, DENY, PREFIXED), creation("bills", DESCRIBE))
        assert rules(side) == ours
        side.close()
    other = Kafka(release, tmp_path / "kafka")
    controller = other.settings["controller.quorum.voters"].partition("@")[2]
    other.settings |= settings(other.address, controller, unused_address())
    with other:
        side = Side(other.address)
        assert rules(side) == ours
        add(side, creation("theirs", READ), creation("orders", READ))
        gone = DeleteAclsRequest.DeleteAclsFilter(**{**EVERY, "resource_name_filter": "bills"})
        assert len(_answer(side, DeleteAclsRequest(filters=[gone]), NEWEST).filter_results[0].matching_acls) == 1
        side.close()
        other.stop()
    with Broker(data_dir=data, config=SETTINGS) as broker:
        side = Side(broker.bootstrap_servers)
        assert rules(side) == sorted([*ours[1:], (LITERAL, "theirs", READ, ALLOW)])
        side.close()


TOOLS = list(zip(kafka.DUMPS, ("kafka.admin.AclCommand", "org.apache.kafka.tools.AclCommand"), strict=True))


@pytest.mark.parametrize(("release", "command"), TOOLS, ids=["3.9", "4.3"])
def test_kafka_acls_adds_lists_and_removes(tmp_path: Path, release: kafka.Release, command: str) -> None:
    with Broker(config=SETTINGS, topics=["orders"]) as broker:

        def acls(words: str) -> str:
            where = ["--bootstrap-server", broker.bootstrap_servers]
            done = kafka.run(release, command, *where, *words.split(), cwd=tmp_path)
            assert done.returncode == 0, done.stdout + done.stderr
            return done.stdout

        acls("--add --allow-principal User:alice --operation Read --topic orders")
        acls("--add --allow-principal User:bob --producer --topic ord --resource-pattern-type prefixed")
        acls("--add --deny-principal User:eve --deny-host 10.0.0.9 --operation All --cluster")
        listed = acls("--list")
        assert "(principal=User:alice, host=*, operation=READ, permissionType=ALLOW)" in listed
        assert "ResourcePattern(resourceType=TOPIC, name=ord, patternType=PREFIXED)" in listed
        assert "(principal=User:eve, host=10.0.0.9, operation=ALL, permissionType=DENY)" in listed
        assert len([line for line in listed.splitlines() if "principal=User:bob" in line]) == 3
        acls("--remove --force --allow-principal User:alice --operation Read --topic orders")
        assert "alice" not in acls("--list")
        acls("--remove --force --topic ord --resource-pattern-type prefixed")
        acls("--remove --force --cluster")
        assert "principal" not in acls("--list")

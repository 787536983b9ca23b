"""ApiVersions: who introduces itself, whom a client means, and features that begin at 0."""

from __future__ import annotations

import pytest

from minibroker.broker.apis import SERVED
from minibroker.errors import Error
from minibroker.protocol.messages.api_versions import ApiVersionsRequest
from tests.broker.virtual_broker import VirtualBroker

NAMES = {
    "kafka-client": True,
    "a": True,
    "client-1.2": True,
    "": False,
    "-client": False,
    "client.": False,
    "a client": False,
    "clïent": False,
}


@pytest.mark.parametrize("name", NAMES)
def test_a_client_that_introduces_itself_is_remembered(broker: VirtualBroker, name: str) -> None:
    for names in ((name, "1.0"), ("good", name)):
        connection = broker.connect().connection
        request = ApiVersionsRequest(client_software_name=names[0], client_software_version=names[1])
        answer = broker.ask(request, 3, by=connection)
        assert answer.error_code == (Error.NONE if NAMES[name] else Error.INVALID_REQUEST)
        assert connection.client_software == (names if NAMES[name] else ("", ""))
        assert bool(answer.api_keys) == NAMES[name]


def test_before_version_3_nobody_introduces_itself(broker: VirtualBroker) -> None:
    answer = broker.ask(ApiVersionsRequest(), 2)
    assert answer.error_code == Error.NONE
    assert {(each.api_key, each.max_version) for each in answer.api_keys} == {
        (api, last) for api, (_, last) in broker.node.announced.items()
    }
    assert {each.api_key for each in answer.api_keys} == set(SERVED)


def test_a_client_that_means_another_broker_is_told_to_look_for_it_anew(broker: VirtualBroker) -> None:
    own_cluster, own_id = broker.node.cluster_id, broker.node.node_id
    expected = {
        (None, -1): Error.NONE,
        (own_cluster, own_id): Error.NONE,
        (own_cluster, own_id + 1): Error.REBOOTSTRAP_REQUIRED,
        ("another", own_id): Error.REBOOTSTRAP_REQUIRED,
        (own_cluster, -1): Error.INVALID_REQUEST,
        (None, own_id): Error.INVALID_REQUEST,
    }
    for (cluster_id, node_id), code in expected.items():
        request = ApiVersionsRequest(
            client_software_name="a", client_software_version="1", cluster_id=cluster_id, node_id=node_id
        )
        answer = broker.ask(request, 5)
        assert (answer.error_code, bool(answer.api_keys)) == (code, code == Error.NONE), (cluster_id, node_id)


def test_features_that_begin_at_0_are_told_from_version_4_on(broker: VirtualBroker) -> None:
    found = {}
    for version in (3, 4):
        request = ApiVersionsRequest(client_software_name="a", client_software_version="1")
        answer = broker.ask(request, version)
        found[version] = {each.name: (each.min_version, each.max_version) for each in answer.supported_features}
        assert {each.name for each in answer.finalized_features} <= set(broker.node.emulated.supported_features())
        assert all(each.min_version_level == each.max_version_level for each in answer.finalized_features)
        assert answer.finalized_features_epoch >= 0
    assert found[4] == broker.node.emulated.supported_features()
    assert found[3] == {name: each for name, each in found[4].items() if each[0] > 0}
    assert found[3] != found[4]

"""The map: every API that the broker serves, in which versions, and which function answers.

A handler is a plain function `handler(request, context)`; it returns the response, None if there is none (acks 0), a
`Later` that will get it, or a coroutine where more than one thing is to be waited for. What it does before it returns
is done at once, while the bytes of the request still lie in the receive buffer; `Records` of the request are not to be
touched later.
Where a client can make the work long, the handler is a generator that returns the response, and yields after each
element how long about that took, in microseconds, or what it has to wait for: turns.py lets others in between.
Modules are imported when their first request comes.
"""

from __future__ import annotations

from importlib import import_module

from minibroker.protocol.framing import response_header_end
from minibroker.protocol.registry import request_class, response_class

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from typing import Any

    from minibroker.broker.handlers.context import Context
    from minibroker.protocol.headers import Request, Response
    from minibroker.server.later import Later
    from minibroker.turns import Work

    Eventually = Response | Later | Coroutine[Any, Any, Response | None] | None
    Handler = Callable[[Any, Context], Eventually | Work[Response]]

# API -> first and last version served, module of minibroker/broker/handlers and function.
SERVED: dict[int, tuple[int, int, str]] = {
    0: (0, 13, "produce.produce"),
    1: (0, 18, "fetch.fetch"),
    2: (0, 11, "offsets.list_offsets"),
    3: (0, 13, "metadata.metadata"),
    8: (0, 10, "group_offsets.offset_commit"),
    9: (0, 10, "group_offsets.offset_fetch"),
    10: (0, 6, "coordinators.find_coordinator"),
    11: (0, 9, "groups.join_group"),
    12: (0, 4, "groups.heartbeat"),
    13: (0, 5, "groups.leave_group"),
    14: (0, 5, "groups.sync_group"),
    15: (0, 6, "group_admin.describe_groups"),
    16: (0, 5, "group_admin.list_groups"),
    17: (0, 1, "security.sasl_handshake"),
    18: (0, 5, "versions.api_versions"),
    19: (0, 7, "topics.create_topics"),
    20: (0, 6, "topics.delete_topics"),
    21: (0, 2, "offsets.delete_records"),
    22: (0, 5, "producer_ids.init_producer_id"),
    23: (0, 4, "offsets.offset_for_leader_epoch"),
    24: (0, 5, "transactions.add_partitions_to_txn"),
    25: (0, 4, "transactions.add_offsets_to_txn"),
    26: (0, 5, "transactions.end_txn"),
    27: (0, 2, "transactions.write_txn_markers"),
    28: (0, 6, "transactions.txn_offset_commit"),
    29: (0, 3, "security.describe_acls"),
    30: (0, 3, "security.create_acls"),
    31: (0, 3, "security.delete_acls"),
    32: (0, 4, "configs.describe_configs"),
    33: (0, 2, "configs.alter_configs"),
    34: (0, 2, "cluster.alter_replica_log_dirs"),
    35: (0, 5, "cluster.describe_log_dirs"),
    36: (0, 2, "security.sasl_authenticate"),
    37: (0, 3, "topics.create_partitions"),
    38: (0, 3, "security.create_token"),
    39: (0, 2, "security.renew_token"),
    40: (0, 2, "security.expire_token"),
    41: (0, 3, "security.describe_tokens"),
    42: (0, 3, "group_admin.delete_groups"),
    43: (0, 2, "leaders.elect_leaders"),
    44: (0, 1, "configs.incremental_alter_configs"),
    45: (0, 1, "leaders.alter_partition_reassignments"),
    46: (0, 0, "leaders.list_partition_reassignments"),
    47: (0, 0, "group_offsets.offset_delete"),
    48: (0, 1, "quotas.describe_client_quotas"),
    49: (0, 1, "quotas.alter_client_quotas"),
    50: (0, 0, "security.describe_passwords"),
    51: (0, 0, "security.alter_passwords"),
    55: (0, 2, "quorum.describe_quorum"),
    57: (0, 2, "quorum.update_features"),
    60: (0, 2, "cluster.describe_cluster"),
    61: (0, 0, "cluster.describe_producers"),
    64: (0, 0, "quorum.unregister_broker"),
    65: (0, 0, "transactions.describe_transactions"),
    66: (0, 2, "transactions.list_transactions"),
    68: (0, 1, "consumer_groups.consumer_group_heartbeat"),
    69: (0, 1, "consumer_groups.consumer_group_describe"),
    74: (0, 1, "configs.list_config_resources"),
    75: (0, 0, "metadata.describe_topic_partitions"),
    76: (1, 1, "switched_off.share_group_heartbeat"),
    77: (1, 1, "switched_off.share_group_describe"),
    78: (1, 2, "switched_off.share_fetch"),
    79: (1, 2, "switched_off.share_acknowledge"),
    80: (0, 1, "quorum.add_raft_voter"),
    81: (0, 0, "quorum.remove_raft_voter"),
    83: (0, 0, "switched_off.initialize_state"),
    84: (0, 0, "switched_off.read_state"),
    85: (0, 1, "switched_off.write_state"),
    86: (0, 0, "switched_off.delete_state"),
    87: (0, 1, "switched_off.read_state_summary"),
    88: (0, 1, "switched_off.streams_group_heartbeat"),
    89: (0, 1, "switched_off.streams_group_describe"),
    90: (0, 1, "switched_off.describe_share_group_offsets"),
    91: (0, 0, "switched_off.alter_share_group_offsets"),
    92: (0, 0, "switched_off.delete_share_group_offsets"),
    93: (0, 0, "switched_off.update_topology_description"),
    94: (0, 0, "quorum.unregister_controller"),
}

# Modules whose handlers answer as a Kafka in which the part is there and nobody uses it: no authorizer, no login, no
# quota, no transactional producer, share.version and streams.version 0. Clients tell releases apart by their APIs.
NOT_IN_USE = ("quotas", "security", "switched_off", "transactions")


class Route:
    """What is needed to answer one version of one API."""

    __slots__ = ("api", "cls", "decode_from", "handler", "header_version", "response_header_end", "version")

    def __init__(self, api: int, version: int, cls: type[Request], handler: Handler):
        self.api = api
        self.version = version
        self.cls = cls
        self.decode_from = cls.decode_from
        self.handler = handler
        self.header_version = cls.header_version(version)
        self.response_header_end = response_header_end(response_class(api), version)


def find_route(api: int, version: int) -> Route:
    """Return the route of a version that is served."""
    module, _, name = SERVED[api][2].rpartition(".")
    handler = getattr(import_module(f"minibroker.broker.handlers.{module}"), name)
    return Route(api, version, request_class(api), handler)

"""A small asyncio client of our own: what the tests, the command line and simulations talk to brokers with.

    async with Cluster("127.0.0.1:9092") as cluster, Producer(cluster) as producer:
        await producer.send("orders", b"hello")

wire.py        a socket as frames
connection.py  one connection: calls, pipelined, in versions that both sides know
security.py    TLS and SASL, by the settings of Kafka's clients
cluster.py     who leads what, connections to everybody, patience with what passes
producer.py    records -> batches -> leaders; accumulator.py and partitioner.py are its parts, produce.py its requests
transaction_manager.py  where its transaction stands; transaction_calls.py  what it asks of coordinators
consumer.py    partitions by offset, as records; aborted.py, sessions.py and fetching.py are its parts
offsets.py     offsets by time
groups.py      groups and their offsets, from outside; coordinators.py finds who coordinates them
membership.py  being a member of a group
transactions.py  transactions, from outside
client_quotas.py  what clients may take
admin.py       topics, configs, and the rest of what administrators do; descriptions.py holds its values
security_admin.py  passwords for SCRAM, access rules, delegation tokens

It speaks every version that we know of each API, so also with old brokers. Names are imported at their first use.
Time comes from the clock handed in.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from minibroker.client.accumulator import RecordMetadata as RecordMetadata
    from minibroker.client.admin import Admin as Admin
    from minibroker.client.cluster import Cluster as Cluster
    from minibroker.client.connection import Connection as Connection
    from minibroker.client.connection import ConnectionLost as ConnectionLost
    from minibroker.client.consumer import Consumer as Consumer
    from minibroker.client.descriptions import Append as Append
    from minibroker.client.descriptions import NewTopic as NewTopic
    from minibroker.client.descriptions import SomeFailed as SomeFailed
    from minibroker.client.descriptions import Subtract as Subtract
    from minibroker.client.fetching import ConsumedRecord as ConsumedRecord
    from minibroker.client.groups import Groups as Groups
    from minibroker.client.offsets import AtTime as AtTime
    from minibroker.client.producer import Producer as Producer
    from minibroker.client.transactions import Transactions as Transactions

_HOMES = {
    "Admin": "admin",
    "Append": "descriptions",
    "AtTime": "offsets",
    "Cluster": "cluster",
    "Connection": "connection",
    "ConnectionLost": "connection",
    "ConsumedRecord": "fetching",
    "Consumer": "consumer",
    "Groups": "groups",
    "NewTopic": "descriptions",
    "Producer": "producer",
    "RecordMetadata": "accumulator",
    "SomeFailed": "descriptions",
    "Subtract": "descriptions",
    "Transactions": "transactions",
}

__all__ = [
    "Admin",
    "Append",
    "AtTime",
    "Cluster",
    "Connection",
    "ConnectionLost",
    "ConsumedRecord",
    "Consumer",
    "Groups",
    "NewTopic",
    "Producer",
    "RecordMetadata",
    "SomeFailed",
    "Subtract",
    "Transactions",
]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    found = globals()[name] = getattr(import_module(f"minibroker.client.{_HOMES[name]}"), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})

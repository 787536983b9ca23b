"""Get a block of producer ids (KIP-730).

A broker sends it to the controller when its block for InitProducerId is used up; so no two producers get the same id.
"""

from __future__ import annotations

from minibroker.protocol.headers import Request, Response
from minibroker.schema.types import Int16, Int32, Int64


class AllocateProducerIdsRequest(Request, api=67, versions="0", flexible="0+"):
    """Ask for the next block."""

    broker_id: Int32  # the broker that asks
    # given by the controller at registration; -1: not known. An older one than the latest gets error 77
    broker_epoch: Int64 = -1


class AllocateProducerIdsResponse(Response, api=67, versions="0", flexible="0+"):
    """Hand out a range of ids that nobody else has."""

    throttle_time_ms: Int32  # how long the quota of the client makes it wait, 0: not at all
    error_code: Int16  # 0: success
    producer_id_start: Int64  # first id of the block
    producer_id_len: Int32  # how many ids the block has: 1000 in Kafka

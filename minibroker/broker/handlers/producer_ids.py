"""InitProducerId: ids for idempotent producers."""

from __future__ import annotations

from collections.abc import Coroutine

from minibroker.broker.broker_parts import BrokerParts
from minibroker.broker.dispatch import Context, no_transactions
from minibroker.errors import Error, KafkaError
from minibroker.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse


def init_producer_id(
    request: InitProducerIdRequest, context: Context
) -> InitProducerIdResponse | Coroutine[None, None, InitProducerIdResponse]:
    """Hand out a producer id that nobody had before, with epoch 0."""
    try:
        if request.transactional_id == "":
            raise KafkaError(Error.INVALID_REQUEST, "the transactional id is empty")
        if (request.producer_id == -1) != (request.producer_epoch == -1):
            raise KafkaError(Error.INVALID_REQUEST, "producer id and epoch come together or not at all")
        if request.transactional_id is not None:
            raise no_transactions(context, request.transactional_id)
        found = context.node.producer_ids.next()
    except KafkaError as error:
        return _refused(error)
    return _later(context.node) if found is None else _given(found)


async def _later(node: BrokerParts) -> InitProducerIdResponse:
    try:
        return _given(await node.producer_ids.later())
    except KafkaError as error:
        return _refused(error)


def _given(producer_id: int) -> InitProducerIdResponse:
    return InitProducerIdResponse(throttle_time_ms=0, error_code=Error.NONE, producer_id=producer_id, producer_epoch=0)


def _refused(error: KafkaError) -> InitProducerIdResponse:
    return InitProducerIdResponse(throttle_time_ms=0, error_code=error.code, producer_id=-1, producer_epoch=-1)

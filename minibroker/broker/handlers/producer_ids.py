"""InitProducerId: a producer id and its epoch, for idempotent producers, and for transactional ones by their id.

Versions of InitProducerId: 3 a producer goes on after an error with the id and epoch that it has (KIP-360).
"""

from __future__ import annotations

from minibroker.broker.dispatch import Context
from minibroker.errors import Error, KafkaError
from minibroker.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from minibroker.server.later import Later
from minibroker.transactions.metadata import ProducerIdAndEpoch
from minibroker.transactions.old_versions import told

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Coroutine

    from minibroker.broker.broker_parts import BrokerParts
    from minibroker.transactions.partition import Answer

    Answered = InitProducerIdResponse | Later | Coroutine[None, None, InitProducerIdResponse]

NOT_GIVEN = -1


def init_producer_id(request: InitProducerIdRequest, context: Context) -> Answered:
    """Hand out a producer id that nobody had before, with epoch 0; or what a transactional id has."""
    if (request.producer_id == NOT_GIVEN) != (request.producer_epoch == NOT_GIVEN):
        return _answer(Error.INVALID_REQUEST)
    if request.transactional_id is not None:
        return _transactional(request, request.transactional_id, context)
    found = context.node.producer_ids.next()
    return _later(context.node) if found is None else _answer(ProducerIdAndEpoch(found, 0))


def _transactional(
    request: InitProducerIdRequest, transactional_id: str, context: Context
) -> InitProducerIdResponse | Later:
    node, version = context.node, context.api_version
    expected = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
    later = Later()
    try:
        node.transactions.coordinator.init_producer_id(
            transactional_id,
            request.transaction_timeout_ms,
            None if request.producer_id == NOT_GIVEN else expected,
            later,
            is_two_phase=request.enable2_pc,
            keeps_prepared=request.keep_prepared_txn,
        )
    except KafkaError as error:  # this broker is stopping
        return _answer(Error(error.code))
    return later.into(lambda answer: _answer(answer, version))


async def _later(node: BrokerParts) -> InitProducerIdResponse:
    try:
        return _answer(ProducerIdAndEpoch(await node.producer_ids.later(), 0))
    except KafkaError as error:
        return _answer(Error(error.code))


def _answer(answer: Answer, version: int = 0) -> InitProducerIdResponse:
    if isinstance(answer, ProducerIdAndEpoch):
        error, producer = Error.NONE, answer
    else:
        error, producer = told(InitProducerIdRequest.api, version, answer), ProducerIdAndEpoch(NOT_GIVEN, NOT_GIVEN)
    return InitProducerIdResponse(
        throttle_time_ms=0, error_code=error, producer_id=producer.producer_id, producer_epoch=producer.epoch
    )

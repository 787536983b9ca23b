"""Guards: what stands before each handler, once a broker has an authorizer (dispatch.py says what a guard is).

    whole    a request is refused, and its handler never hears of it
    each     the handler is given what is allowed, and its answer gets the rest as errors, where Kafka has them

What must hold: nothing that was refused reaches a handler, and a request is never changed: others hold it.
Which is asked when is written in table.py alone.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from minibroker.broker.authorize.access import FAILED, Access, answered, changed
from minibroker.broker.authorize.table import EACH, FIRST, TABLE, WHOLE, WHY
from minibroker.config.start import OPEN_WITHOUT_RULES, super_users
from minibroker.errors import Error
from minibroker.faults.answers import Fault, answer_of, levels_of, refuse_in_pieces, split_in_pieces
from minibroker.protocol.headers import Request, Response
from minibroker.protocol.registry import response_class
from minibroker.security.acls import CLUSTER, CLUSTER_NAME, GROUP, OPERATIONS, Authorizer
from minibroker.turns import Work

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from minibroker.broker.authorize.table import Need, Row
    from minibroker.broker.broker_parts import BrokerParts
    from minibroker.broker.dispatch import Context, Handler

    Guarded = Callable[[Any, Context, Handler, Access], Any]


def new_authorizer(node: BrokerParts) -> Authorizer:
    """Return what decides by the settings of a broker, and by the rules that it knows."""
    authorizer = Authorizer(super_users(node.config), allows_without_rules=node.config[OPEN_WITHOUT_RULES])
    authorizer.load(node.image.acls)
    return authorizer


def guard(api: int, version: int, handler: Handler) -> Handler:
    """Return what asks for an API, and has its handler answer what is allowed."""
    row = TABLE.get(api)
    if row is None:
        return _refuse_unknown
    if row.by:
        guarded: Guarded = _named(row.by)
        return lambda request, context: guarded(request, context, handler, Access(context, api))
    if not row.needs:
        return handler
    return lambda request, context: _by_needs(row, request, context, handler)


def _named(text: str) -> Any:
    """Return the function of this folder that a row names."""
    module, _, name = text.partition(".")
    return getattr(import_module(f"minibroker.broker.authorize.{module}"), name)


def _refuse_unknown(request: Request, context: Context) -> Work[Response]:
    return refuse_in_pieces(request, request.api, context.api_version, Fault(Error.CLUSTER_AUTHORIZATION_FAILED, None))


def _by_needs(row: Row, request: Any, context: Context, handler: Handler) -> Any:
    access = Access(context, request.api)
    each = None
    for need in row.needs:
        if need.scope == EACH:
            each = need
        elif not is_met(need, request, access):
            return refused(row, need, request, context)
    return handler(request, context) if each is None else by_each(request, context, handler, access, each, row.order)


def is_met(need: Need, request: Any, access: Access) -> bool:
    """Return whether a client may do to a request as a whole what this says."""
    assert need.scope == WHOLE, need
    name = CLUSTER_NAME if need.resource_type == CLUSTER else getattr(request, need.of)
    if need.alternative and access.could(need.alternative, need.resource_type, name):
        return True
    return access.may(need.operation, need.resource_type, name)


def refused(row: Row, need: Need, request: Request, context: Context) -> Response | Work[Response]:
    """Answer a request as a whole with the error of what may not be done."""
    words = row.words
    if row.old_words != WHY and context.node.emulated.is_before_4:
        words = row.old_words
    elif words == WHY:
        name = type(request).__name__.removesuffix("Request")
        words = f"Request {name} needs {OPERATIONS[need.operation]} permission."
    if row.refusal:
        made: Response = _named(row.refusal)(request, words)
        return made
    fault = Fault(FAILED[need.resource_type])
    fault.message = words
    if need.resource_type == GROUP and "error_code" in response_class(request.api).__fields__:
        return answer_of(request.api, fault)  # and its members or topics are not told
    return refuse_in_pieces(request, request.api, context.api_version, fault)


def by_each(request: Request, context: Context, handler: Handler, access: Access, need: Need, order: str) -> Work[Any]:
    """Have what is allowed answered, and answer the rest with an error."""

    def is_refused(name: str, topic_id: bytes, _: int | None) -> bool:
        known = access.name_of(name, topic_id)
        return bool(known) and not access.may(need.operation, need.resource_type, known)

    fault = Fault(FAILED[need.resource_type], None)
    return split(request, context, handler, is_refused, fault, is_first=order == FIRST)


def split(
    request: Request,
    context: Context,
    handler: Handler,
    is_refused: Callable[[str, bytes, int | None], bool],
    fault: Fault,
    *,
    is_first: bool = False,
) -> Work[Any]:
    """Have what is not refused answered by the handler, and put the errors of the rest before or behind it."""
    api, version = request.api, context.api_version
    rest, errors = yield from split_in_pieces(request, api, version, is_refused, fault)
    field = levels_of(api, version)[0][1]
    entries = getattr(errors, field)
    if rest is None:
        return errors
    if not entries:
        return (yield from answered(handler(request, context)))

    def together(response: Response) -> Response:
        found = getattr(response, field)
        setattr(response, field, entries + list(found) if is_first else list(found) + entries)
        return response

    return (yield from changed(handler(rest, context), together))

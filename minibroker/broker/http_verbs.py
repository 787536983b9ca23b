"""What the broker's port answers to HTTP, and who may steer the broker by it.

    ("DELETE", "/faults/<id>"): remove_fault          a line of ROUTES is all that a further verb needs

A function of the table gets the node and what came with the request, and returns what is answered as JSON, or a
coroutine of it. `call` serves programs that have the broker in their own process: the same verbs without a socket.
What must hold: a page that somebody looks at must not steer a broker on his machine or in his network. So an Origin
has to be the broker's own; a Host has to be an address, a loopback name or a name that the broker is known by, for any
other could have been made to point here (DNS rebinding); and a body has to call itself JSON, which a browser does for
a foreign page only after asking, and that is refused. Metrics are given under a name without a dot besides, as
containers call each other by: no foreign page comes from such a name. Health tells nothing that needs this.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from minibroker.broker.broker_parts import BrokerParts
from minibroker.broker.http_pages import METRICS, NAMED_PAGES, PAGES, page
from minibroker.cleaner.results import COMPACT, RETENTION, ROLL
from minibroker.errors import Error, KafkaError
from minibroker.faults import FaultError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from minibroker.broker.group_view import SeenGroups
    from minibroker.broker.transaction_view import SeenTransactions
    from minibroker.groups.view_rows import GroupView
    from minibroker.server.http import HttpAnswer, HttpRequest
    from minibroker.transactions.view_rows import TransactionView

    Handler = Callable[[BrokerParts, "Call"], Any]

JSON = "application/json"
OK = "200 OK"
NUMBER_DIGITS_MAX = 18
LOOPBACK = ("localhost", "127.0.0.1", "::1")


class Refused(Exception):
    """A request that is not carried out; the text says why."""

    def __init__(self, status: str, reason: str):
        super().__init__(reason)
        self.status = status


class Call:
    """What came with a request: the last piece of its path where the route has <...> there, and its JSON."""

    __slots__ = ("argument", "body")

    def __init__(self, argument: str, body: Mapping[str, Any]):
        self.argument = argument
        self.body = body


# Faults


def remove_fault(node: BrokerParts, call: Call) -> Any:
    number = int(call.argument) if _is_number(call.argument) else -1
    if number not in node.faults.rules:
        raise Refused("404 Not Found", f"there is no rule {call.argument[:NUMBER_DIGITS_MAX]}")
    return node.faults.remove(number).as_json()


def _is_number(text: str) -> bool:
    """Whether a text is a number that Python would read without counting the cost."""
    return text.isascii() and text.isdecimal() and len(text) <= NUMBER_DIGITS_MAX


def remove_toxic(node: BrokerParts, call: Call) -> Any:
    if call.argument not in node.faults.toxics:
        raise Refused("404 Not Found", f"there is no toxic {call.argument}")
    return node.faults.remove_toxic(call.argument).as_json()


def clear_faults(node: BrokerParts, call: Call) -> Any:
    node.faults.clear()
    return []


def clear_toxics(node: BrokerParts, call: Call) -> Any:
    node.faults.clear_toxics()
    return []


# Groups


def show_group(node: BrokerParts, call: Call) -> Any:
    try:
        return _view(seen_groups(node).group(call.argument))
    except KafkaError as error:
        raise Refused("404 Not Found", error.message) from None


async def wait_group(node: BrokerParts, call: Call) -> Any:
    return _view(await _waited(seen_groups(node).wait_group, call.body))


def _view(view: GroupView) -> dict[str, Any]:
    from minibroker.groups.view_rows import view_as_json

    return view_as_json(view)


async def _waited(wait: Callable[..., Coroutine[Any, Any, Any]], arguments: Mapping[str, Any]) -> Any:
    import inspect

    try:
        inspect.signature(wait).bind(**arguments)
    except TypeError as failure:
        raise Refused("400 Bad Request", str(failure)) from None
    try:
        return await wait(**arguments)
    except TimeoutError as failure:
        raise Refused("408 Request Timeout", str(failure)) from None
    except ValueError as failure:
        raise Refused("400 Bad Request", str(failure)) from None


def seen_groups(node: BrokerParts) -> SeenGroups:
    from minibroker.broker.group_view import SeenGroups

    return SeenGroups(node.events, lambda: {node.node_id: node}, lambda: node.image)


# Transactions


def show_transaction(node: BrokerParts, call: Call) -> Any:
    return _seen(seen_transactions(node).transaction, call.argument)


async def wait_transaction(node: BrokerParts, call: Call) -> Any:
    return (await _waited(seen_transactions(node).wait_transaction, call.body))._asdict()


async def abort_transaction(node: BrokerParts, call: Call) -> Any:
    id = call.body.get("id")
    _seen(seen_transactions(node).transaction, id if isinstance(id, str) else "")
    return (await _waited(seen_transactions(node).abort_transaction, call.body))._asdict()


def _seen(look: Callable[[str], TransactionView], id: str) -> dict[str, Any]:
    try:
        return look(id)._asdict()
    except KafkaError as error:
        raise Refused("404 Not Found", error.message) from None


def seen_transactions(node: BrokerParts) -> SeenTransactions:
    from minibroker.broker.transaction_view import SeenTransactions

    return SeenTransactions(node.events, lambda: {node.node_id: node}, lambda: node.image)


# Cleaning


def _clean(node: BrokerParts, verb: str, call: Call) -> Any:
    """Do it on this broker, or on all brokers of the cluster that it belongs to."""
    for name, value in call.body.items():
        kind = {"topic": str, "partition": int}.get(name)
        if kind is None:
            raise Refused("400 Bad Request", f"{verb} takes topic and partition, not {name}")
        if value is not None and type(value) is not kind:
            raise Refused(
                "400 Bad Request", f"{name} is to be {'a name' if kind is str else 'a number'}, not {value!r}"
            )
    return _cleaned(node, verb, call.body) if node.steer is None else node.steer(verb, call.body)


async def _cleaned(node: BrokerParts, verb: str, place: Mapping[str, Any]) -> list[dict[str, Any]]:
    from minibroker.cleaner.scheduler import VERBS

    try:
        return [row._asdict() for row in await VERBS[verb](node.cleaning, **place)]
    except KafkaError as error:
        is_absent = error.code == Error.UNKNOWN_TOPIC_OR_PARTITION
        raise Refused("404 Not Found" if is_absent else "400 Bad Request", error.message) from None


# The cluster that the broker belongs to


def steer(node: BrokerParts, call: Call) -> Any:
    if node.steer is None:
        raise Refused("404 Not Found", "this broker belongs to no cluster: start one with minibroker serve --brokers 3")
    return node.steer(call.argument, call.body)


# Method and path -> who answers. <...> stands for any last piece.
ROUTES: dict[tuple[str, str], Handler] = {
    ("GET", "/faults"): lambda node, call: [rule.as_json() for rule in node.faults.rules.values()],
    ("POST", "/faults"): lambda node, call: node.faults.add(**call.body).as_json(),
    ("DELETE", "/faults"): clear_faults,
    ("DELETE", "/faults/<id>"): remove_fault,
    ("GET", "/toxics"): lambda node, call: [toxic.as_json() for toxic in node.faults.toxics.values()],
    ("POST", "/toxics"): lambda node, call: node.faults.add_toxic(**call.body).as_json(),
    ("DELETE", "/toxics"): clear_toxics,
    ("DELETE", "/toxics/<name>"): remove_toxic,
    ("GET", "/groups"): lambda node, call: [row._asdict() for row in seen_groups(node).groups()],
    ("GET", "/groups/<id>"): show_group,
    ("POST", "/wait-group"): wait_group,
    ("POST", "/wait-committed"): lambda node, call: _waited(seen_groups(node).wait_committed, call.body),
    ("GET", "/transactions"): lambda node, call: [row._asdict() for row in seen_transactions(node).transactions()],
    ("GET", "/transactions/<id>"): show_transaction,
    ("POST", "/wait-transaction"): wait_transaction,
    ("POST", "/abort-transaction"): abort_transaction,
    ("POST", "/retention"): lambda node, call: _clean(node, RETENTION, call),
    ("POST", "/compact"): lambda node, call: _clean(node, COMPACT, call),
    ("POST", "/roll"): lambda node, call: _clean(node, ROLL, call),
    ("GET", "/cluster"): lambda node, call: steer(node, Call("state", {})),
    ("POST", "/cluster/<verb>"): steer,
}


SHOWN = " ".join(dict.fromkeys([*NAMED_PAGES, *(path for _, path in ROUTES)]))  # what there is


async def call(node: BrokerParts, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
    """Do what a request would; FaultError or Refused say why not."""
    handler, argument = _find(method, path)
    result = handler(node, Call(argument, body or {}))
    return await result if asyncio.iscoroutine(result) else result


def answer(node: BrokerParts, request: HttpRequest) -> HttpAnswer | Coroutine[None, None, HttpAnswer]:
    """Answer a request: a page, or a verb."""
    try:
        _check(node, request)
        if _is_page(request):
            return page(node, request.path, SHOWN)
        handler, argument = _find(request.method, request.path)
        result = handler(node, Call(argument, _body(request)))
    except (Refused, FaultError, KafkaError) as failure:
        return _refusal(failure)
    return _later(result) if asyncio.iscoroutine(result) else _json(OK, result)


def find_refusal(node: BrokerParts, request: HttpRequest) -> HttpAnswer | None:
    """Return what is to be answered before a body has come, None for a request that may go on."""
    try:
        _check(node, request)
    except Refused as failure:
        return _refusal(failure)
    return None


def _check(node: BrokerParts, request: HttpRequest) -> None:
    if not _is_page(request):
        check_sender(request.headers, names_of(node))
        _find(request.method, request.path)
    elif request.path == METRICS:
        check_sender(request.headers, names_of(node), only_reads=True)


def _is_page(request: HttpRequest) -> bool:
    return request.method in ("GET", "HEAD") and (request.path in PAGES or not _paths(request.path))


async def _later(waiting: Coroutine[Any, Any, Any]) -> HttpAnswer:
    try:
        return _json(OK, await waiting)
    except (Refused, FaultError, KafkaError) as failure:
        return _refusal(failure)


def _refusal(failure: Exception) -> HttpAnswer:
    return _json(failure.status if isinstance(failure, Refused) else "400 Bad Request", {"error": str(failure)})


def _json(status: str, value: object) -> HttpAnswer:
    import json

    return status, JSON, json.dumps(value).encode() + b"\n"


def _find(method: str, path: str) -> tuple[Handler, str]:
    """Return who answers, and the last piece of the path where that is an argument."""
    found = _paths(path)
    if path in PAGES:
        raise Refused("405 Method Not Allowed", f"{path} takes GET")
    if not found:
        raise Refused("404 Not Found", f"there is no {path}")
    for (known, pattern), handler in found.items():
        if known == method:
            return handler, _unquoted(path.rpartition("/")[2]) if "<" in pattern else ""
    raise Refused("405 Method Not Allowed", f"{path} takes {', '.join(known for known, _ in found)}")


def _paths(path: str) -> dict[tuple[str, str], Handler]:
    """Return the routes of a path, whatever their method."""
    above, _, last = path.rpartition("/")
    return {
        route: handler
        for route, handler in ROUTES.items()
        if route[1] == path or (last and "<" in route[1] and route[1].rpartition("/")[0] == above)
    }


def _unquoted(text: str) -> str:
    from urllib.parse import unquote

    return unquote(text)


def _body(request: HttpRequest) -> Mapping[str, Any]:
    if not request.body:
        return {}
    import json

    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != JSON:
        raise Refused("415 Unsupported Media Type", f"a body needs Content-Type: {JSON}")
    try:
        found = json.loads(request.body)
    except (ValueError, RecursionError) as failure:
        raise Refused("400 Bad Request", f"the body is no JSON: {failure}") from None
    if not isinstance(found, dict):
        raise Refused("400 Bad Request", "the body is to be a JSON object")
    return found


# Who may ask


def names_of(node: BrokerParts) -> set[str]:
    """Return the names by which the broker is known."""
    return {host for server in node.servers for host in (server.asked_host, node.advertised_host(server)) if host}


def check_sender(headers: Mapping[str, str], names: set[str], *, only_reads: bool = False) -> None:
    """Refuse what a page in a browser could have sent without being ours."""
    host = headers.get("host", "").lower()
    if only_reads and not host and "origin" not in headers:
        return  # no browser leaves it out
    name = _name_of(host)
    if not name:
        raise Refused("400 Bad Request", "a Host is needed")
    is_known = name in LOOPBACK or name in {each.lower() for each in names} or (only_reads and "." not in name)
    if not is_known and not _is_address(name):
        raise Refused("403 Forbidden", f"the broker is not known as {name}: use its address, or an advertised name")
    origin = headers.get("origin")
    if origin is not None and origin.lower() != f"http://{host}":
        raise Refused("403 Forbidden", f"a page of {origin} may not steer this broker")


def _name_of(host: str) -> str:
    """Return a Host without its port; nothing if it is none."""
    name, colon, port = host.rpartition(":") if not host.endswith("]") else (host, "", "")
    if not colon:
        name = host
    elif not _is_number(port):
        return ""
    if name.startswith("["):
        return name[1:-1] if name.endswith("]") else ""
    return "" if ":" in name else name.rstrip(".")


def _is_address(name: str) -> bool:
    from ipaddress import ip_address

    try:
        ip_address(name)
    except ValueError:
        return False
    return True

"""What the broker's port answers to HTTP, and who may steer the broker by it.

    ("DELETE", "/faults/<id>"): remove_fault          a line of ROUTES is all that a further verb needs

A function of the table gets the node and what came with the request, and returns what is answered as JSON, or a
coroutine of it. `call` serves programs that have the broker in their own process: the same verbs without a socket.
What must hold: a page that somebody looks at must not steer a broker on his machine or in his network. So an Origin
has to be the broker's own; a Host has to be an address, a loopback name or a name that the broker is known by, for any
other could have been made to point here (DNS rebinding); and a body has to call itself JSON, which a browser does for
a foreign page only after asking, and that is refused. What a browser says of itself (Sec-Fetch-Site) has to be that the
page is ours, or none, for reading too: records are private, and a page may open what it cannot read. Metrics are given
under a name without a dot besides, as containers call each other by: no foreign page comes from such a name. Health
tells nothing that needs this. What a page of ours changes needs the word that stands in it (web_page.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from minibroker.broker import web_page
from minibroker.broker.broker_parts import BrokerParts
from minibroker.broker.http_calls import Call, Refused
from minibroker.broker.http_pages import HEALTH_PAGES, METRICS, NAMED_PAGES, PAGES, page
from minibroker.cleaner.results import COMPACT, RETENTION, ROLL
from minibroker.errors import Error, KafkaError
from minibroker.faults import FaultError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from minibroker.broker.group_view import SeenGroups
    from minibroker.broker.transaction_view import SeenTransactions
    from minibroker.groups.view_rows import GroupView
    from minibroker.security.acls import Authorizer
    from minibroker.server.http import HttpAnswer, HttpRequest, HttpStream
    from minibroker.transactions.view_rows import TransactionView
    from minibroker.view.selection import Selection

    Handler = Callable[[BrokerParts, Call], Any]

JSON = "application/json"
OK = "200 OK"
NUMBER_DIGITS_MAX = 18
LOOPBACK = ("localhost", "127.0.0.1", "::1")
LOOKING = ("GET", "HEAD")  # methods that change nothing
TOPICS, LOG = "/api/topics", "/api/log"
# How paths begin that ask for what somebody may do to a topic, and not to the cluster.
OWN_RIGHTS = (f"{TOPICS}/", f"{LOG}/")


# What there is to see, and what changes of it


async def show_state(node: BrokerParts, call: Call) -> Any:
    return await node.feed.show(_selection(call, may_be_all=True))


def show_events(node: BrokerParts, call: Call) -> Any:
    from minibroker.view.stream import EventStreamAnswer

    selection = _selection(call, may_be_all=False)
    selection.since = call.headers.get("last-event-id", selection.since)  # a browser comes again by itself
    if node.feed.is_full:
        raise Refused("503 Service Unavailable", f"{len(node.feed.viewers)} look already: close one of them")

    def may_look() -> bool:
        return _may(node.authorizer, "GET", call.address)

    return EventStreamAnswer(node.feed, selection, may_look)


def _selection(call: Call, *, may_be_all: bool) -> Selection:
    from minibroker.view.selection import BadQuery, parse_query

    try:
        return parse_query(call.query, may_be_all=may_be_all)
    except BadQuery as failure:
        raise Refused("400 Bad Request", str(failure)) from None


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


# Instances


def show_instances(node: BrokerParts, call: Call) -> Any:
    """Return a row for each instance and broker, as the master knows them."""
    if node.steer is not None:
        return node.steer("instances", {})
    return node.instance_rows()


# The verbs of the cluster that the broker belongs to, or of a broker that is alone


def steer(node: BrokerParts, call: Call) -> Any:
    if node.steer is not None:
        return node.steer(call.argument, call.body)
    from minibroker.broker import verbs

    return verbs.call(node, call.argument, call.body)


def _in(place: str) -> Handler:
    """Return what calls a function of a module of this folder, which is imported when it is asked for."""
    module, _, name = place.partition(".")

    def handle(node: BrokerParts, call: Call) -> Any:
        from importlib import import_module

        return getattr(import_module(f"minibroker.broker.{module}"), name)(node, call)

    return handle


# Method and path -> who answers. <...> stands for any piece.
ROUTES: dict[tuple[str, str], Handler] = {
    ("GET", "/api/state"): show_state,
    ("GET", "/api/events"): show_events,
    ("GET", TOPICS): _in("http_topics.list_topics"),
    ("POST", TOPICS): _in("http_topics.create_topic"),
    ("GET", f"{TOPICS}/<topic>"): _in("http_topics.show_topic"),
    ("DELETE", f"{TOPICS}/<topic>"): _in("http_topics.delete_topic"),
    ("GET", f"{TOPICS}/<topic>/records"): _in("http_records.read_records"),
    ("POST", f"{TOPICS}/<topic>/records"): _in("http_records.write_records"),
    ("GET", f"{TOPICS}/<topic>/search"): _in("http_search.search_records"),
    ("GET", f"{TOPICS}/<topic>/tail"): _in("http_search.tail_records"),
    ("GET", f"{LOG}/<topic>/<partition>"): _in("http_log.show_log"),
    ("GET", f"{LOG}/<topic>/<partition>/lookup"): _in("http_log.look_up"),
    ("GET", f"{LOG}/<topic>/<partition>/bytes"): _in("http_log.show_bytes"),
    ("GET", "/api/lessons"): _in("http_lessons.list_lessons"),
    ("GET", "/api/lesson"): _in("http_lessons.show_lesson"),
    ("POST", "/api/lesson"): _in("http_lessons.take_lesson"),
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
    ("GET", "/instances"): show_instances,
    ("GET", "/cluster"): lambda node, call: steer(node, Call(("state",))),
    ("POST", "/cluster/<verb>"): steer,
}


SHOWN = " ".join(dict.fromkeys([*NAMED_PAGES, *(path for _, path in ROUTES)]))  # what there is


async def call(node: BrokerParts, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
    """Do what a request would; FaultError or Refused say why not."""
    path, _, query = path.partition("?")
    handler, arguments = _find(method, path)
    result = handler(node, Call(arguments, body or {}, query))
    return await result if asyncio.iscoroutine(result) else result


def answer(node: BrokerParts, request: HttpRequest) -> HttpAnswer | Coroutine[None, None, HttpAnswer]:
    """Answer a request: a page, or a verb."""
    try:
        _check(node, request)
        if web_page.is_wanted(node, request):
            return web_page.answer(node, request, may_steer=_may(node.authorizer, "POST", request.address))
        if _is_page(request):
            return page(node, request.path, SHOWN)
        handler, arguments = _find(request.method, request.path)
        came = request.connection, request.address
        result = handler(node, Call(arguments, _body(request), request.query, request.headers, *came))
    except (Refused, FaultError, KafkaError) as failure:
        return _refusal(failure)
    return _later(result) if asyncio.iscoroutine(result) else _answered(result)


def find_refusal(node: BrokerParts, request: HttpRequest) -> HttpAnswer | None:
    """Return what is to be answered before a body has come, None for a request that may go on."""
    try:
        _check(node, request)
    except Refused as failure:
        return _refusal(failure)
    return None


def _check(node: BrokerParts, request: HttpRequest) -> None:
    if request.path not in HEALTH_PAGES:
        if request.path != TOPICS and not request.path.startswith(OWN_RIGHTS):
            _check_rights(node, request)
        check_sender(request.headers, names_of(node), path=request.path, scheme=request.scheme)
        if request.method not in LOOKING and (objection := web_page.find_objection(node, request)):
            raise Refused("403 Forbidden", objection)
    if not _is_page(request):
        _find(request.method, request.path)


def _check_rights(node: BrokerParts, request: HttpRequest) -> None:
    """Let those steer who may alter the cluster, and look who may describe it; here nobody logs in."""
    authorizer = node.authorizer
    if authorizer is None or _may(authorizer, request.method, request.address):
        return
    from minibroker.security.acls import CLUSTER, CLUSTER_NAME, OPERATIONS

    who, address, operation = _question(request.method, request.address)
    if authorizer.audit is not None:
        asked = ("HTTP", "", f"{request.method} {request.path}")
        authorizer.audit(False, asked, who, address, (operation, CLUSTER, CLUSTER_NAME))
    what = OPERATIONS[operation]
    raise Refused("403 Forbidden", f"who comes by HTTP is {who}, whom no rule allows to {what} the cluster")


def _may(authorizer: Authorizer | None, method: str, address: str) -> bool:
    """Whether rules let somebody who comes by HTTP look or steer; without an authorizer everybody may."""
    if authorizer is None:
        return True
    from minibroker.security.acls import CLUSTER, CLUSTER_NAME

    return authorizer.may(*_question(method, address), CLUSTER, CLUSTER_NAME)


def _question(method: str, address: str) -> tuple[str, str, int]:
    """Return who wants to do what by HTTP, and from where, as rules have it."""
    from minibroker.security.acls import ALTER, DESCRIBE, java_address
    from minibroker.security.principal import ANONYMOUS

    return str(ANONYMOUS), java_address(address), DESCRIBE if method in LOOKING else ALTER


def _is_page(request: HttpRequest) -> bool:
    return request.method in ("GET", "HEAD") and (request.path in PAGES or not _paths(request.path))


async def _later(waiting: Coroutine[Any, Any, Any]) -> HttpAnswer:
    try:
        return _answered(await waiting)
    except (Refused, FaultError, KafkaError) as failure:
        return _refusal(failure)


def _answered(result: Any) -> HttpAnswer:
    """Return what is sent: a stream, bytes that are JSON already, or a value."""
    if hasattr(result, "go_on"):
        stream: HttpStream = result
        return stream
    return (OK, JSON, result) if type(result) is bytes else _json(OK, result)


def _refusal(failure: Exception) -> HttpAnswer:
    if not isinstance(failure, Refused):
        return _json("400 Bad Request", {"error": str(failure)})
    return _json(failure.status, {"error": str(failure)} | ({"code": failure.code} if failure.code else {}))


def _json(status: str, value: object) -> HttpAnswer:
    import json

    return status, JSON, json.dumps(value).encode() + b"\n"


def _find(method: str, path: str) -> tuple[Handler, tuple[str, ...]]:
    """Return who answers, and the pieces of the path that are arguments."""
    found = _paths(path)
    if path in PAGES:
        raise Refused("405 Method Not Allowed", f"{path} takes GET")
    if not found:
        raise Refused("404 Not Found", f"there is no {path}")
    for (known, pattern), handler in found.items():
        if known == method:
            pieces = zip(pattern.split("/"), path.split("/"), strict=True)
            return handler, tuple(_unquoted(piece) for name, piece in pieces if name.startswith("<"))
    raise Refused("405 Method Not Allowed", f"{path} takes {', '.join(known for known, _ in found)}")


def _paths(path: str) -> dict[tuple[str, str], Handler]:
    """Return the routes of a path, whatever their method."""
    return {route: handler for route, handler in ROUTES.items() if route[1] == path or _fits(route[1], path)}


def _fits(pattern: str, path: str) -> bool:
    wanted, pieces = pattern.split("/"), path.split("/")
    return len(wanted) == len(pieces) and all(
        name == piece or (piece and name.startswith("<")) for name, piece in zip(wanted, pieces, strict=True)
    )


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


def check_sender(headers: Mapping[str, str], names: set[str], *, path: str = "", scheme: str = "http") -> None:
    """Refuse what a page in a browser could have sent without being ours."""
    host = headers.get("host", "").lower()
    only_reads = path == METRICS
    site = headers.get("sec-fetch-site", "none").lower()
    # A link to the first page may stand anywhere: what is opened there is not for who wrote the link to read.
    is_link = (
        path == "/" and headers.get("sec-fetch-mode") == "navigate" and headers.get("sec-fetch-dest") == "document"
    )
    if site not in ("same-origin", "none") and not is_link:
        raise Refused("403 Forbidden", f"a page of another place ({site}) has asked for it: open the broker's own")
    if only_reads and not host and "origin" not in headers:
        return  # no browser leaves it out
    name = _name_of(host)
    if not name:
        raise Refused("400 Bad Request", "a Host is needed")
    is_known = name in LOOPBACK or name in {each.lower() for each in names} or (only_reads and "." not in name)
    if not is_known and not _is_address(name):
        raise Refused("403 Forbidden", f"the broker is not known as {name}: use its address, or an advertised name")
    origin = headers.get("origin")
    if origin is not None and origin.lower() != f"{scheme}://{host}":
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

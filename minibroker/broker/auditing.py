"""What an audit is told: who was denied what, and who changed users, rules, tokens and quotas.

Denials are lines for people, too, as Kafka's authorizer logs them: so many in a while, and how many more there were.
What must hold: no secret is in any of it, and what a client wrote stays on its line. What was allowed is computed only
if somebody asks for events `allowed`; who wants to change something is looked at only if anybody is told of events.
Not here: logins (authenticating.py), what is decided (security/acls.py).
"""

from __future__ import annotations

from typing import Any, Final

from minibroker.broker.authorize.access import changed
from minibroker.errors import Error, error_name
from minibroker.event_kinds import Administration, Allowed, Denied
from minibroker.protocol.registry import APIS
from minibroker.security.acls import OPERATIONS, RESOURCE_TYPES, Rule, java_address

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from minibroker.broker.broker_parts import BrokerParts
    from minibroker.broker.dispatch import Context, Handler
    from minibroker.protocol.headers import Request

    Change = tuple[str, str, int]  # what it is about, what was wished, and the error code

HTTP: Final = "HTTP"  # in place of a listener
WINDOW_MS: Final = 10_000
LINES_MAX: Final = 10  # in a window
SHOWN_LETTERS_MAX: Final = 200
MECHANISMS: Final = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}


class Audit:
    """Tells what one broker has decided."""

    def __init__(self, node: BrokerParts):
        self._node = node
        # Of who logs in, and of who comes by HTTP, which anybody can: until when the window goes, and denials in it.
        self._windows = {False: [0, 0], True: [0, 0]}

    def tell(
        self,
        is_allowed: bool,
        asked: tuple[str, str | None, int | str],
        principal: str,
        address: str,
        decision: tuple[int, int, str],
        more: str = "",
    ) -> None:
        """Tell of a decision about an operation, a type of resource and a name, if anybody is to hear of it.

        asked: at which listener, with which client id, and the number of an API or what else was asked for.
        """
        node = self._node
        has_line = not is_allowed and self._has_line(self._windows[asked[0] == HTTP])
        if not has_line and not node.events.observed:
            return
        from minibroker.security.why import explain

        assert node.authorizer is not None
        listener, client, request = asked
        operation, resource_type, name = decision
        why = explain(node.authorizer, principal, address, operation, resource_type, name).reason + more
        what = OPERATIONS.get(operation, str(operation))
        resource = f"{RESOURCE_TYPES.get(resource_type, resource_type)}:{name}"
        kind: type[Allowed | Denied] = Allowed if is_allowed else Denied
        told = kind(
            broker=node.node_id,
            principal=plainly(principal),
            address=address,
            listener=listener,
            client=plainly(client or ""),
            request=plainly(str(APIS.get(request, request) if isinstance(request, int) else request)),
            operation=what,
            resource=plainly(resource),
            why=plainly(why),
        )
        if has_line:
            node.reporter.say(
                f"denied: {told.principal} from {address} may not {what} {told.resource} ({told.request}), "
                f"because {told.why}"
            )
        node.events.emit(told)

    def _has_line(self, window: list[int]) -> bool:
        """Return whether one more denial is a line; those that were none are counted, and told with the next."""
        now_ms = self._node.clock.steady_ms()
        until_ms, count = window
        if now_ms >= until_ms:
            if count > LINES_MAX:
                self._node.reporter.say(f"denied: {count - LINES_MAX} more, which had no lines")
            until_ms, count = now_ms + WINDOW_MS, 0
        window[:] = until_ms, count + 1
        return count < LINES_MAX


def plainly(text: str) -> str:
    """Return a client's word on one line, and not longer than a line is."""
    cut = text if len(text) <= SHOWN_LETTERS_MAX else f"{text[:SHOWN_LETTERS_MAX]}..."
    return cut if cut.isprintable() else cut.encode("unicode_escape").decode()


# Who changes what


def audited(handler: Handler) -> Handler:
    """Return a handler of what administrators wish, of whose wishes watchers are told with their outcome."""

    def told(request: Any, context: Context) -> Any:
        if not context.node.events.observed:
            return handler(request, context)
        tell = CHANGES[request.api]
        before = _token_of(request, context) if request.api in (RENEW, EXPIRE) else ""

        def look(response: Any) -> Any:
            for thing, wish, code in tell(request, response, before):
                _emit(context, thing, wish, code)
            return response

        return changed(handler(request, context), look)

    return told


def _emit(context: Context, thing: str, wish: str, code: int) -> None:
    connection = context.connection
    context.node.events.emit(
        Administration(
            broker=context.node.node_id,
            principal=plainly(str(connection.principal)),
            address=java_address(connection.remote_address[0]),
            listener=connection.listener_name,
            thing=thing,
            wish=plainly(wish),
            error=error_name(code) if code else "",
        )
    )


def _created_rules(request: Any, response: Any, _: str) -> Iterator[Change]:
    for wish, result in zip(request.creations, response.results, strict=False):
        rule = Rule(
            wish.resource_type,
            wish.resource_pattern_type,
            wish.resource_name,
            wish.principal,
            wish.host,
            wish.operation,
            wish.permission_type,
        )
        yield "rule", f"make the rule {rule}", result.error_code


def _deleted_rules(request: Any, response: Any, _: str) -> Iterator[Change]:
    for result in response.filter_results:
        if result.error_code:
            yield "rule", "remove rules", result.error_code
        for each in result.matching_acls:
            rule = Rule(
                each.resource_type,
                each.pattern_type,
                each.resource_name,
                each.principal,
                each.host,
                each.operation,
                each.permission_type,
            )
            yield "rule", f"remove the rule {rule}", each.error_code


def _altered_users(request: Any, response: Any, _: str) -> Iterator[Change]:
    codes = {result.user: result.error_code for result in response.results}
    for wishes, verb in ((request.deletions, "remove"), (request.upsertions, "set")):
        for wish in wishes:
            mechanism = MECHANISMS.get(wish.mechanism, "a mechanism that nobody knows")
            yield "user", f"{verb} the password of {wish.name} for {mechanism}", codes.get(wish.name, Error.NONE)


def _created_token(request: Any, response: Any, _: str) -> Iterator[Change]:
    owner = f"{response.principal_type}:{response.principal_name}"
    which = f"the token {response.token_id}" if response.token_id else "a token"
    yield "token", f"make {which} of {owner}", response.error_code


def _renewed_token(request: Any, response: Any, token: str) -> Iterator[Change]:
    yield "token", f"renew {token}", response.error_code


def _expired_token(request: Any, response: Any, token: str) -> Iterator[Change]:
    period_ms = request.expiry_time_period_ms
    yield "token", f"end {token}{f' in {period_ms} ms' if period_ms >= 0 else ''}", response.error_code


def _token_of(request: Request, context: Context) -> str:
    """Return which token a request means, of which it has the secret alone."""
    hmacs = context.node.token_secrets
    token = None if hmacs is None else hmacs.find(bytes(request.hmac))  # type: ignore[attr-defined]
    return "a token that is not there" if token is None else f"the token {token.token_id} of {token.owner}"


def _altered_quotas(request: Any, response: Any, _: str) -> Iterator[Change]:
    for wish, result in zip(request.entries, response.entries, strict=False):
        whose = ", ".join(f"{each.entity_type} {each.entity_name or '<default>'}" for each in wish.entity)
        for change in wish.ops:
            what = f"remove the quota {change.key}" if change.remove else f"set the quota {change.key}={change.value:g}"
            yield "quota", f"{what} of {whose}", result.error_code


RENEW, EXPIRE = 39, 40
CHANGES: Final = {
    30: _created_rules,
    31: _deleted_rules,
    38: _created_token,
    RENEW: _renewed_token,
    EXPIRE: _expired_token,
    49: _altered_quotas,
    51: _altered_users,
}

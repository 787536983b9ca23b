"""The page that a browser is shown at `/`, its files, and who may steer the broker by it.

What must hold: a change that a browser asks for (it names its Origin, or its Sec-Fetch-Site) has to bring the word that
stands in the page's head. The word is another one in each process; only who may steer is given it: who sits at this
machine, and whom the rules of an authorizer let. Everybody else looks.
Programs bring no Origin and need no word: whoever reaches the port may steer as he may delete topics (http_verbs.py).
"""

from __future__ import annotations

from minibroker.broker.broker_parts import FULL, OFF, READ_ONLY
from minibroker.server.http import PreparedAnswer
from minibroker.view.page_files import FILES, page_file, shell

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from minibroker.broker.broker_parts import BrokerParts
    from minibroker.server.http import HttpRequest

FOLDER = "/page/"
TOKEN_HEADER = "x-minibroker"
OK = "200 OK"
HTML = "text/html; charset=utf-8"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
GUARDS = {
    "Content-Security-Policy": POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
FROM_AFAR = "you look from another machine ({}), and may look only"
FOR_NOBODY = "whoever has started the broker lets nobody steer by the page"
NO_RIGHT = "the access rules let you look, and not steer"


def is_wanted(node: BrokerParts, request: HttpRequest) -> bool:
    """Whether a browser wants to show it: curl gets the paths as text."""
    if node.page == OFF:
        return False
    is_page = request.path == "/" and "text/html" in request.headers.get("accept", "")
    return request.method in ("GET", "HEAD") and (is_page or _is_file(request))


def _is_file(request: HttpRequest) -> bool:
    return request.path.startswith(FOLDER) and request.path[len(FOLDER) :] in FILES


def answer(node: BrokerParts, request: HttpRequest, *, may_steer: bool) -> PreparedAnswer:
    """Return the page or one of its files. may_steer: the rules let whoever comes by HTTP."""
    if _is_file(request):
        return _file(request.path[len(FOLDER) :], request.headers)
    why_not = _why_not(node, request) or ("" if may_steer else NO_RIGHT)
    words = {"token": "" if why_not else node.feed.token, "why-not": why_not, "broker": str(node.node_id)}
    return PreparedAnswer(OK, HTML, shell(words), {**GUARDS, "Cache-Control": "no-store", "Vary": "Accept"})


def _why_not(node: BrokerParts, request: HttpRequest) -> str:
    """Return why somebody may not steer by the page, from where he sits; nothing if he may."""
    if node.page == READ_ONLY:
        return FOR_NOBODY
    return "" if node.page == FULL or request.is_from_here else FROM_AFAR.format(request.address)


def _file(name: str, headers: Mapping[str, str]) -> PreparedAnswer:
    file = page_file(name)
    more = {**GUARDS, "Cache-Control": "no-cache", "ETag": file.tag, "Vary": "Accept-Encoding"}
    if file.tag in headers.get("if-none-match", ""):
        return PreparedAnswer("304 Not Modified", file.content_type, b"", more)
    if "gzip" in headers.get("accept-encoding", ""):
        return PreparedAnswer(OK, file.content_type, file.packed, {**more, "Content-Encoding": "gzip"})
    from gzip import decompress

    return PreparedAnswer(OK, file.content_type, decompress(file.packed), more)


def find_objection(node: BrokerParts, request: HttpRequest) -> str:
    """Return why a change is not to be made that a page asks for; nothing if it may be, or no page does."""
    headers = request.headers
    if "origin" not in headers and "sec-fetch-site" not in headers:
        return ""
    if why_not := _why_not(node, request):
        return why_not
    from hmac import compare_digest

    if not compare_digest(headers.get(TOKEN_HEADER, "").encode(), node.feed.token.encode()):
        return "a page has to bring the word in its head as X-Minibroker: it may be of another start, load it again"
    return ""

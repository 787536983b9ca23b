"""`minibroker tokens`: delegation tokens, with the options of kafka-delegation-tokens.sh, and in short as words.

    minibroker tokens create --renewer-principal User:bob         minibroker tokens renew TOKEN-ID

What must hold: the hmac, with which anybody can log in, is shown when a token is made, and otherwise with --json alone.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from binascii import Error as NotBase64

from minibroker.cli.acl_words import aligned, principal_of
from minibroker.cli.connect import Refused, print_json, run_with_cluster
from minibroker.cli.connect import add_arguments as add_connection
from minibroker.cli.status import DONE, FAILED

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from typing import Any

    from minibroker.client.cluster import Cluster
    from minibroker.client.security_admin import DelegationToken, SecurityAdmin

DESCRIPTION = "Delegation tokens: make, renew, end and describe them. Without a verb, describe all that one may see."
EPILOG = (
    "Tokens are asked for over a connection that has logged in. Who has one logs in by SCRAM: its id is the name, its "
    "hmac the password, and tokenauth=true is said."
)
VERBS = {  # and the options that belong to each
    "create": ("renewer_principal", "owner_principal", "max_life_time_period"),
    "renew": ("hmac", "renew_time_period"),
    "expire": ("hmac", "expiry_time_period"),
    "describe": ("owner_principal",),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_connection(parser)
    parser.add_argument("words", nargs="*", metavar="WORD", help=f"{', '.join(VERBS)}; renew, expire: TOKEN-ID")
    verbs = parser.add_mutually_exclusive_group()
    verbs.add_argument("--create", dest="verb", action="store_const", const="create", help="make one")
    verbs.add_argument("--renew", dest="verb", action="store_const", const="renew", help="let it be good for longer")
    verbs.add_argument("--expire", dest="verb", action="store_const", const="expire", help="end it")
    verbs.add_argument("--describe", dest="verb", action="store_const", const="describe", help="show them")
    parser.add_argument(
        "--owner-principal", action="append", default=[], metavar="TYPE:NAME",
        help="create: for whom, else for who asks; describe: only theirs",
    )  # fmt: skip
    parser.add_argument(
        "--renewer-principal", action="append", default=[], metavar="TYPE:NAME", help="create: who may renew it, too"
    )
    parser.add_argument("--max-life-time-period", type=int, metavar="MS", help="create: no renewal goes beyond it")
    parser.add_argument("--hmac", metavar="BASE64", help="renew, expire: which, in place of its id")
    parser.add_argument("--renew-time-period", type=int, metavar="MS", help="renew: from now on (as the broker says)")
    parser.add_argument("--expiry-time-period", type=int, metavar="MS", help="expire: in so long (at once)")
    parser.add_argument("-J", "--json", action="store_true", help="one JSON document")


def run(options: argparse.Namespace) -> int:
    async def work(cluster: Cluster) -> int:
        from minibroker.client.security_admin import SecurityAdmin

        verb, words = _verb_of(options)
        works = {"create": _create, "renew": _renew, "expire": _expire, "describe": _describe}
        await works[verb](SecurityAdmin(cluster), words, options)
        return DONE

    return run_with_cluster("tokens", options, work)


def _verb_of(options: argparse.Namespace) -> tuple[str, list[str]]:
    words: list[str] = list(options.words)
    verb: str | None = options.verb
    if verb is None and words:
        if words[0] not in VERBS:
            raise Refused(f"{words[0]}: {', '.join(VERBS)}?")
        verb, words = words[0], words[1:]
    verb = verb or "describe"
    for option in dict.fromkeys(each for known in VERBS.values() for each in known):
        if option not in VERBS[verb] and getattr(options, option) not in (None, []):
            homes = ", ".join(each for each, known in VERBS.items() if option in known)
            raise Refused(f"{verb} takes no --{option.replace('_', '-')}: that is for {homes}")
    if verb in ("create", "describe") and words:
        raise Refused(f"{verb} takes no {words[0]!r}")
    if verb in ("renew", "expire") and len(words) + (options.hmac is not None) != 1:
        raise Refused(f"{verb}: which one? TOKEN-ID or --hmac; minibroker tokens shows what there is")
    return verb, words


async def _create(admin: SecurityAdmin, words: list[str], options: argparse.Namespace) -> None:
    if len(options.owner_principal) > 1:
        raise Refused("create: a token has one owner")
    made = await admin.create_token(
        owner=principal_of(options.owner_principal[0]) if options.owner_principal else None,
        renewers=[principal_of(each) for each in options.renewer_principal],
        life_ms=-1 if options.max_life_time_period is None else options.max_life_time_period,
    )
    if options.json:
        print_json(_document(made))
        return
    for name, value in _document(made).items():
        print(f"{name:11}{', '.join(value) if isinstance(value, list) else value}")


async def _renew(admin: SecurityAdmin, words: list[str], options: argparse.Namespace) -> None:
    period_ms = -1 if options.renew_time_period is None else options.renew_time_period
    expires_ms = await admin.renew_token(await _hmac_of(admin, words, options), period_ms=period_ms)
    if options.json:
        print_json({"expires": moment(expires_ms)})
    else:
        print(f"renewed: good until {moment(expires_ms)}")


async def _expire(admin: SecurityAdmin, words: list[str], options: argparse.Namespace) -> None:
    period_ms = -1 if options.expiry_time_period is None else options.expiry_time_period
    ends_ms = await admin.expire_token(await _hmac_of(admin, words, options), period_ms=period_ms)
    if options.json:
        print_json({"expires": moment(ends_ms)})
    elif period_ms < 0:
        print("ended")
    else:
        print(f"ends at {moment(ends_ms)}")


async def _hmac_of(admin: SecurityAdmin, words: list[str], options: argparse.Namespace) -> bytes:
    if options.hmac is not None:
        try:
            return b64decode(options.hmac, validate=True)
        except NotBase64:
            raise Refused("--hmac: that is not base64") from None
    for token in await admin.describe_tokens():
        if token.id == words[0]:
            return token.hmac
    raise Refused(f"there is no token {words[0]} that you may see", FAILED)


async def _describe(admin: SecurityAdmin, words: list[str], options: argparse.Namespace) -> None:
    tokens = await admin.describe_tokens([principal_of(each) for each in options.owner_principal])
    tokens.sort(key=lambda token: (token.owner, token.issued_ms, token.id))
    if options.json:
        print_json([_document(token) for token in tokens])
        return
    columns = ("TOKEN-ID", "OWNER", "RENEWERS", "EXPIRES")
    rows = [(each.id, each.owner, ",".join(each.renewers) or "-", moment(each.expires_ms)) for each in tokens]
    print("\n".join(aligned(columns, rows)) or "no tokens")


def moment(at_ms: int) -> str:
    """Return a time in UTC, to the minute; what no calendar has as it is."""
    from datetime import UTC, datetime

    try:
        return datetime.fromtimestamp(at_ms // 1000, UTC).strftime("%Y-%m-%dT%H:%MZ")
    except (ValueError, OverflowError, OSError):
        return str(at_ms)


def _document(token: DelegationToken) -> dict[str, Any]:
    return {
        "id": token.id,
        "hmac": b64encode(token.hmac).decode(),
        "owner": token.owner,
        "requester": token.requester,
        "renewers": list(token.renewers),
        "issued": moment(token.issued_ms),
        "expires": moment(token.expires_ms),
        "ends": moment(token.ends_ms),
    }

"""`minibroker users`: who has a password for SCRAM, with the options of kafka-configs.sh, and in short as words.

    minibroker users add alice          asks for the password; --password-file FILE reads it, - from standard input
    minibroker users --alter --entity-name alice --add-config 'SCRAM-SHA-256=[iterations=8192,password=secret]'

What must hold: no password is printed, nor is one in an error; it is hashed here, and the hash is sent.
"""

from __future__ import annotations

import sys

from minibroker.cli.acl_words import aligned
from minibroker.cli.connect import Refused, complain, print_json, run_with_cluster
from minibroker.cli.connect import add_arguments as add_connection
from minibroker.cli.status import DONE, FAILED
from minibroker.client.security_admin import ITERATIONS, MECHANISMS, Password

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable

    from minibroker.client.cluster import Cluster
    from minibroker.client.security_admin import SecurityAdmin

    Change = tuple[str, Password | None]  # a mechanism, and its new password; None: it goes

DESCRIPTION = (
    "Who may log in by SCRAM: list, add, change and remove passwords. Without a verb, list; with names, describe."
)
EPILOG = (
    "A password is asked for at a terminal; elsewhere it is the first line of standard input, or of --password-file. "
    "What stands in a command line can be seen by others on the machine."
)
VERBS = {
    "list": "users with their mechanisms",
    "describe": "those of some users",
    "add": "let new users log in",
    "alter": "give users another password",
    "remove": "take passwords away",
}
ITERATIONS_MIN, ITERATIONS_MAX = 4096, 16384
ON_THE_LINE = (
    "what stands in a command line can be seen by others on this machine, and stays in the history of the shell: "
    "--password-file FILE reads the password, and `minibroker users add NAME` asks for it"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_connection(parser)
    parser.add_argument("words", nargs="*", metavar="WORD", help=f"{', '.join(VERBS)}; and names of users")
    verbs = parser.add_mutually_exclusive_group()
    for verb, text in VERBS.items():
        verbs.add_argument(f"--{verb}", dest="verb", action="store_const", const=verb, help=text)
    parser.add_argument("--user", "--entity-name", dest="names", action="append", default=[], metavar="NAME")
    parser.add_argument("--entity-type", choices=("users",), metavar="users", help="nobody need say so")
    parser.add_argument(
        "--mechanism", action="append", default=[], metavar="NAME", help=f"{', '.join(MECHANISMS)} (all of them)"
    )
    parser.add_argument("--iterations", type=int, metavar="N", help=f"rounds of hashing at each login ({ITERATIONS})")
    parser.add_argument("--password-file", metavar="FILE", help="its first line is the password; - is standard input")
    parser.add_argument(
        "--add-config", action="append", default=[], metavar="MECHANISM=[iterations=N,password=TEXT]", help="set"
    )
    parser.add_argument("--delete-config", action="append", default=[], metavar="MECHANISM,...", help="take away")
    parser.add_argument("-J", "--json", action="store_true", help="one JSON document")


def run(options: argparse.Namespace) -> int:
    async def work(cluster: Cluster) -> int:
        from minibroker.client.security_admin import SecurityAdmin

        verb, names = _verb_of(options)
        admin = SecurityAdmin(cluster)
        if verb in ("list", "describe"):
            return await _describe(admin, names, options)
        if options.add_config or options.delete_config:
            changes = changes_in(options.add_config, options.delete_config)
            await _change(admin, names, changes)
            _say(options, "altered", names, [mechanism for mechanism, _ in changes])
            return DONE
        if verb == "remove":
            return await _remove(admin, names, options)
        return await _set(admin, verb, names, options)

    return run_with_cluster("users", options, work)


def run_as_configs(options: argparse.Namespace) -> int:
    """Do what `configs --entity-type users` says, and print what kafka-configs.sh would."""

    async def work(cluster: Cluster) -> int:
        from minibroker.client.security_admin import SecurityAdmin

        admin, names = SecurityAdmin(cluster), options.entity_name
        if options.settings:
            raise Refused(
                f"{options.settings[0].partition('=')[0]}: of users --add-config and --delete-config are taken"
            )
        changes = changes_in(options.add_config, options.delete_config)
        if changes and not names:
            raise Refused("--entity-type users: which? --entity-name NAME")
        if changes:
            await _change(admin, names, changes)
            for name in names if not options.json else ():
                print(f"Completed updating config for user {name}.")
            if options.json:
                print_json({"altered": [{"kind": "user", "name": name} for name in names]})
            return DONE
        if options.alter:
            raise Refused("--alter: what? --add-config or --delete-config")
        if options.json:
            return await _describe(admin, names, options)
        found, status = await _found(admin, names)
        for name, mechanisms in sorted(found.items()):
            words = ", ".join(f"{mechanism}=iterations={count}" for mechanism, count in sorted(mechanisms.items()))
            print(f"SCRAM credential configs for user-principal '{name}' are {words}")
        return status

    return run_with_cluster("configs", options, work)


def _verb_of(options: argparse.Namespace) -> tuple[str, list[str]]:
    words: list[str] = list(options.words)
    verb: str | None = options.verb
    if verb is None and words and words[0] in VERBS:
        verb, words = words[0], words[1:]
    names = list(dict.fromkeys([*words, *options.names]))
    verb = verb or ("alter" if options.add_config or options.delete_config else "describe" if names else "list")
    if verb == "list" and names:
        raise Refused("list takes no names; describe does")
    if verb not in ("list", "describe") and not names:
        raise Refused(f"{verb}: whom? minibroker users {verb} NAME")
    for option in ("mechanism", "iterations", "password_file"):
        if getattr(options, option) and (
            verb in ("list", "describe") or (verb == "remove" and option != "mechanism") or options.add_config
        ):
            raise Refused(f"--{option.replace('_', '-')} belongs to add and alter")
    if (options.add_config or options.delete_config) and verb != "alter":
        raise Refused("--add-config and --delete-config belong to --alter")
    return verb, names


# Describe


async def _found(admin: SecurityAdmin, names: list[str]) -> tuple[dict[str, dict[str, int]], int]:
    """Return mechanisms by user, and the status: it is no good one if somebody has none."""
    from minibroker.client.descriptions import SomeFailed

    try:
        return await admin.describe_passwords(names), DONE
    except SomeFailed as failed:
        for name in failed.errors:
            complain("users", f"{name}: has no password for SCRAM; minibroker users shows who has")
        return dict(failed.results), FAILED


async def _describe(admin: SecurityAdmin, names: list[str], options: argparse.Namespace) -> int:
    found, status = await _found(admin, names)
    if options.json:
        print_json([{"user": name, "mechanisms": found[name]} for name in sorted(found)])
        return status
    rows = [
        (name, mechanism, str(iterations))
        for name, mechanisms in sorted(found.items())
        for mechanism, iterations in sorted(mechanisms.items())
    ]
    if rows:
        print("\n".join(aligned(("USER", "MECHANISM", "ITERATIONS"), rows)))
    elif not names:
        print("no users with a password for SCRAM")
    return status


# Alter


def changes_in(to_add: Iterable[str], to_delete: Iterable[str]) -> list[Change]:
    """Return what kafka-configs' words change; no error has a password in it."""
    changes: list[Change] = []
    for text in to_add:
        for mechanism, words in _items(text):
            changes.append((_mechanism(mechanism, "--add-config"), _password_in(words)))
    for text in to_delete:
        changes += [(_mechanism(each, "--delete-config"), None) for each in text.split(",")]
    if len({mechanism for mechanism, _ in changes}) < len(changes):
        raise Refused("a mechanism is named twice")
    return changes


def _items(text: str) -> list[tuple[str, str]]:
    """Cut MECHANISM=[...],MECHANISM=[...] at the commas that are outside of brackets."""
    found, rest = [], text.strip()
    while rest:
        mechanism, equals, rest = rest.partition("=[")
        words, bracket, rest = rest.partition("]")
        if not equals or not bracket or rest[:1] not in ("", ","):
            raise Refused("--add-config: say MECHANISM=[iterations=8192,password=...], with commas between several")
        found.append((mechanism.strip(), words))
        rest = rest[1:].strip()
    return found


def _password_in(words: str) -> Password:
    before, found, password = words.rpartition("password=")
    iterations = ITERATIONS
    if not found or (before and not before.endswith(",")):
        raise Refused("--add-config: there is no password= in the brackets")
    for word in before.split(",")[:-1]:
        name, _, value = word.partition("=")
        if name.strip() != "iterations" or not value.strip().isdecimal():
            raise Refused("--add-config: in the brackets stand iterations=N, and password= as the last")
        iterations = int(value)
    return _checked(Password(password, iterations))


def _checked(password: Password) -> Password:
    if not password.text:
        raise Refused("an empty password is none")
    if not ITERATIONS_MIN <= password.iterations <= ITERATIONS_MAX:
        raise Refused(f"iterations are {ITERATIONS_MIN} to {ITERATIONS_MAX}")
    return password


def _mechanism(text: str, where: str = "--mechanism") -> str:
    name = text.strip().upper()
    if name not in MECHANISMS:
        raise Refused(f"{where}: {text.strip()[:30]!r} is none of {', '.join(MECHANISMS)}")
    return name


def _mechanisms(options: argparse.Namespace) -> list[str]:
    named = [_mechanism(word) for text in options.mechanism for word in text.split(",")]
    return list(dict.fromkeys(named)) or list(MECHANISMS)


async def _change(admin: SecurityAdmin, names: list[str], changes: list[Change]) -> None:
    if any(password for _, password in changes) and sys.stderr.isatty():
        complain("users", ON_THE_LINE)
    for name in names:
        for mechanism, password in changes:
            if password is None:
                await admin.remove_password(name, mechanism)
            else:
                await admin.set_password(name, mechanism, password)


async def _set(admin: SecurityAdmin, verb: str, names: list[str], options: argparse.Namespace) -> int:
    """Add or alter users: all of them get the same password."""
    mechanisms = _mechanisms(options)
    known = await admin.describe_passwords()
    for name in names:
        if verb == "add" and (there := sorted(known.get(name, {}).keys() & set(mechanisms))):
            raise Refused(f"{name} has a password for {', '.join(there)}; users alter gives another one", FAILED)
        if verb == "alter" and name not in known:
            raise Refused(f"there is no user {name}; users add makes one", FAILED)
    text = read_password(options.password_file, ", ".join(names))
    password = _checked(Password(text, ITERATIONS if options.iterations is None else options.iterations))
    done: dict[str, None] = {}
    for name in names:
        own = mechanisms if verb == "add" or options.mechanism else sorted(known[name])  # of alter those there are
        for mechanism in own:
            await admin.set_password(name, mechanism, password)
            done[mechanism] = None
    _say(options, "added" if verb == "add" else "altered", names, list(done))
    return DONE


async def _remove(admin: SecurityAdmin, names: list[str], options: argparse.Namespace) -> int:
    known = await admin.describe_passwords()
    wanted = {name: [each for each in _mechanisms(options) if each in known.get(name, {})] for name in names}
    if missing := [name for name, mechanisms in wanted.items() if not mechanisms]:
        raise Refused(
            f"there is no such password of {', '.join(missing)}; minibroker users shows what there is", FAILED
        )
    done: dict[str, None] = {}
    for name, mechanisms in wanted.items():
        for mechanism in mechanisms:
            await admin.remove_password(name, mechanism)
            done[mechanism] = None
    _say(options, "removed", names, list(done))
    return DONE


def _say(options: argparse.Namespace, what: str, names: list[str], mechanisms: list[str]) -> None:
    if options.json:
        print_json({what: names, "mechanisms": mechanisms})
    else:
        print(f"{what}: {', '.join(names)} ({', '.join(mechanisms)})")


def read_password(path: str | None, whose: str) -> str:
    """Return a password from a file, from a terminal without showing it, or from standard input."""
    if path not in (None, "-"):
        try:
            with open(path, encoding="utf-8") as file:
                return file.readline().rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is no text"
            raise Refused(f"--password-file {path}: {why}") from None
    if path is None and sys.stdin.isatty():
        from getpass import getpass

        try:
            password = getpass(f"password of {whose}: ")
            again = getpass("again: ")
        except EOFError:
            raise Refused("no password") from None
        if password != again:
            raise Refused("these are two passwords", FAILED)
        return password
    line = sys.stdin.readline()
    text = line.decode("utf-8", "surrogateescape") if isinstance(line, bytes) else line
    return text.rstrip("\r\n")

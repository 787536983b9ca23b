"""The command `minibroker`: one module for each command, imported when the command is used.

A module has DESCRIPTION, perhaps EPILOG and WORDS_ANYWHERE (behind options, too), `add_arguments(parser)` and
`run(options)`, which returns the exit status.
What must hold: a command loads nothing for the sake of another one, not even its options, so all start quickly.
"""

from __future__ import annotations

import sys

from minibroker.cli.status import DONE, FAILED, INTERRUPTED, USAGE

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from typing import NoReturn

# Command -> module, and what it does. In the order in which people meet them.
COMMANDS = {
    "serve": ("serve", "start a broker"),
    "lesson": ("lesson", "learn how replication works, step by step"),
    "watch": ("watch", "see replicas as lanes in a terminal, with keys to step, kill and advance"),
    "topics": ("topics", "list, describe, create, change and delete topics"),
    "produce": ("produce", "write records: lines of standard input, files"),
    "consume": ("consume", "read records"),
    "groups": ("groups", "consumer groups: who is in them, how far they are, and where they go on"),
    "transactions": ("transactions", "list and describe transactions, find those that hang, abort them"),
    "offsets": ("offsets", "where partitions begin and end, and which offset a moment has"),
    "configs": ("configs", "show and change settings of topics and brokers"),
    "users": ("users", "passwords for SCRAM: list, add, change and remove them"),
    "acls": ("acls", "access rules: list, add and remove them"),
    "who-may": ("who_may", "say who may do what, and which rule decides"),
    "tokens": ("tokens", "delegation tokens: make, renew, end and describe them"),
    "quotas": ("quotas", "limits of clients: list, set and remove them, say which holds"),
    "instances": ("instances", "promised flow and capacity of instances, and the share of each broker"),
    "metadata": ("metadata", "brokers, topics and partitions, as kcat -L shows them"),
    "retention": ("retention", "remove old segments now"),
    "compact": ("compact", "compact topics now: older values of keys go"),
    "roll": ("roll", "begin new segments, since the active ones are not cleaned"),
    "cluster": ("cluster", "kill, pause, cut and step the brokers of a cluster"),
    "faults": ("faults", "let clients meet errors, delays, broken connections"),
    "doctor": ("doctor", "say what minibroker runs on, and what it lacks"),
    "health": ("health", "exit with 0 if a broker answers, with 1 if not"),
    "proxy": ("proxy", "stand between clients and brokers: see and record what they say"),
    "replay": ("replay", "send what was recorded to another broker, and compare its answers"),
    "explain": ("explain", "say what bytes mean, field by field"),
    "dump": ("dump", "print what kafka-dump-log prints of log segments, indexes and snapshots"),
    "formats": ("formats", "the same records as v0, v1 and v2: how many bytes, and which"),
    "codecs": ("codecs", "what compression does to your own records, in each format"),
    "verify": ("verify", "check a log directory and say where it is wrong"),
    "spark": ("spark", "jobs over many topics, on Apache Spark: export, import, profile, codecs, ..."),
}
# What people type who come from other tools: the name of one thing for its many, and `topics create` for --create.
ALIASES = {
    "topic": "topics", "group": "groups", "transaction": "transactions", "config": "configs", "offset": "offsets",
    "fault": "faults", "user": "users", "acl": "acls", "token": "tokens", "instance": "instances",
    "quota": "quotas",
}  # fmt: skip
VERBS = {
    "topics": ("list", "describe", "create", "alter", "delete"),
    "groups": ("list", "describe", "delete"),
}
# kcat's modes: `minibroker -b localhost -t orders -C`.
MODES = {"C": "consume", "P": "produce", "L": "metadata", "Q": "offsets"}
AS_KCAT = {"C": ("-X", "isolation.level=read_committed")}  # a default of librdkafka, for what is said to come behind it
FLAGS = "eqvuJZEAl"  # letters of kcat that take no value; behind others the rest of the word is one


def main(arguments: list[str] | None = None) -> int:
    """Run a command, return the exit status."""
    from minibroker.cli.output import OutputFailed, give_up_output, guard_output

    words = sys.argv[1:] if arguments is None else list(arguments)
    if arguments is None:
        guard_output()
    try:
        try:
            status = _run(words)
        finally:
            sys.stdout.flush()  # also behind --help, which is no return
    except (BrokenPipeError, OutputFailed) as failed:
        give_up_output()
        if isinstance(getattr(failed, "failure", failed), BrokenPipeError):
            return DONE  # whoever read us (head, less) has seen enough
        print(f"minibroker: {failed}", file=sys.stderr)
        return FAILED
    except ModuleNotFoundError as missing:
        from minibroker.errors import dependency_missing

        print(f"minibroker: {dependency_missing(missing)}", file=sys.stderr)
        return FAILED
    except KeyboardInterrupt:
        return INTERRUPTED
    return status


def _run(words: list[str]) -> int:
    command, words = _command(words)
    if command is None or command in ("--help", "--version"):
        return _overview(words if command is None else [command])
    if command not in COMMANDS:
        print(f"minibroker: there is no command {command!r}{_nearest(command)} See minibroker --help", file=sys.stderr)
        return USAGE
    module, parser = _module(command), parser_of(command)
    parse = parser.parse_intermixed_args if hasattr(module, "WORDS_ANYWHERE") else parser.parse_args
    status: int = module.run(parse(words))
    return status


def parser_of(command: str) -> argparse.ArgumentParser:
    """Return the parser of one command."""
    import argparse

    module = _module(command)

    class Parser(argparse.ArgumentParser):
        def error(self, message: str) -> NoReturn:
            """Say what is wrong in one line: the usage of some commands fills the screen."""
            self.exit(USAGE, f"{self.prog}: {message.rstrip('.')}; see {self.prog} --help\n")

    parser = Parser(f"minibroker {command}", description=module.DESCRIPTION, epilog=getattr(module, "EPILOG", None))
    module.add_arguments(parser)
    return parser


def _module(command: str):  # type: ignore[no-untyped-def]  # a module, of which mypy cannot know which
    from importlib import import_module

    return import_module(f"minibroker.cli.{COMMANDS[command][0]}")


def _command(words: list[str]) -> tuple[str | None, list[str]]:
    """Return the command that is meant, the first word or by one of kcat's modes, and the words for it."""
    if words and words[0][:1] != "-":
        return _spelled(words)
    index = 0
    while index < len(words):
        word = words[index]
        if word[:1] == "-" and word[:2] != "--":
            for place, letter in enumerate(word[1:], 1):
                if letter in MODES:
                    rest = word[:place] + word[place + 1 :]
                    rest_of = [*words[:index], *([rest] if rest != "-" else []), *words[index + 1 :]]
                    return MODES[letter], [*AS_KCAT.get(letter, ()), *rest_of]
                if letter not in FLAGS:
                    index += place == len(word) - 1  # then the value is the next word
                    break
        index += 1
    # Options came first: the command is the first word that is one, unless that is an option's value.
    for index, word in enumerate(words):
        if ALIASES.get(word, word) in COMMANDS and words[index - 1] not in ("-t", "--topic", "-g", "--group", "-X"):
            return _spelled([*words[index:], *words[:index]], len(words) - index)
    return None, words


def _spelled(words: list[str], end: int | None = None) -> tuple[str, list[str]]:
    """Return a command by our name and its words, where somebody has spelled it as other tools do.

    end: where the words that stood behind the command end, those that came before it are behind them.
    """
    command, rest = ALIASES.get(words[0], words[0]), words[1:]
    if command in ("help", "version") and command not in COMMANDS:
        asked = ALIASES.get(rest[0], rest[0]) if command == "help" and rest else ""
        return (asked, ["--help"]) if asked in COMMANDS else (f"--{command}", [])
    if rest and end != 1 and rest[0] in VERBS.get(command, ()):
        rest = [f"--{rest[0]}", *rest[1:]]
    return command, rest


def _how_it_runs() -> str:
    """Return whether the hot modules are compiled (hatch_build.py); the file of one of them tells."""
    from importlib.util import find_spec

    spec = find_spec("minibroker.log.validate")
    is_pure = spec is None or str(spec.origin).endswith((".py", ".pyc"))
    return "pure Python" if is_pure else "compiled"


def _overview(words: list[str]) -> int:
    """Say what there is: without argparse, which would take longer than everything else."""
    import minibroker

    if words and words[0] in ("--version", "-V"):
        print(f"minibroker {minibroker.__version__} ({_how_it_runs()})")
        return DONE
    lines = [
        "usage: minibroker COMMAND ...",
        "",
        "A Kafka-compatible broker that you can look into.",
        "",
        *(f"  {name:13}{what}" for name, (_, what) in COMMANDS.items()),
        "",
        "minibroker COMMAND --help tells more.",
        "The modes of kcat work too: -C is consume, -P produce, -L metadata, -Q offsets.",
    ]
    if words and words[0] in ("--help", "-h"):
        print("\n".join(lines))
        return DONE
    if words:
        lines = ["minibroker: which command? With options alone say -C to consume, -P to produce, -L to list."]
        lines += ["minibroker --help has them all."]
    else:
        lines += ["", "minibroker: which command?"]
    print("\n".join(lines), file=sys.stderr)
    return USAGE


def _nearest(command: str) -> str:
    from difflib import get_close_matches

    near = get_close_matches(command, COMMANDS, 1)
    return f"; did you mean {near[0]}?" if near else "."

"""`minibroker replay`: what is in a recording, and how another broker answers it."""

from __future__ import annotations

from minibroker.cli.connect import Refused, addresses_in, complain, properties_of, security_of
from minibroker.cli.status import DONE, FAILED, USAGE

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

    from minibroker.client.security import Security
    from minibroker.traffic.recording import Recording

DESCRIPTION = (
    "Send the requests of a recording to a broker, and show where its answers differ from those that were recorded. "
    "Status 0: they do not, but for what differs by nature; 1: they do."
)
EPILOG = "minibroker replay traffic.rec --against localhost:9092"
LINES_MAX = 10  # of one request


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="of serve --record or proxy --record")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--against", metavar="HOST[:PORT]", help="a broker, to which requests are sent")
    what.add_argument("--list", action="store_true", help="print a line for each request, and send nothing")
    parser.add_argument(
        "--all", action="store_true", help="show what differs by nature, too: times, ids, addresses, epochs, words"
    )
    parser.add_argument(
        "-X", dest="properties", action="append", default=[], metavar="KEY=VALUE",
        help="how the broker is reached: security.protocol=SASL_PLAINTEXT, sasl.username=...",
    )  # fmt: skip
    parser.add_argument("--command-config", metavar="FILE", help="the same from a properties file")


def run(options: argparse.Namespace) -> int:
    import asyncio

    from minibroker.errors import KafkaError
    from minibroker.traffic.files import read
    from minibroker.traffic.recording import BrokenRecording

    try:
        recording = read(options.file)
        if recording.torn_bytes:
            words = f"{recording.torn_bytes} bytes behind the last whole frame are passed over"
            complain("replay", f"{options.file}: {words}")
        if options.list:
            return _list(recording)
        addresses = addresses_in(options.against)
        if len(addresses) != 1:
            raise Refused("--against takes one broker")
        security = security_of(options, properties_of(options))
        return asyncio.run(_replay(recording, addresses[0], security, shows_all=options.all))
    except Refused as refusal:
        complain("replay", str(refusal))
        return refusal.status
    except KafkaError as error:
        complain("replay", error.message)
    except BrokenRecording as broken:
        complain("replay", str(broken))
        return USAGE
    except OSError as failure:
        complain("replay", f"{options.file}: {failure.strerror}")
        return USAGE
    return FAILED


def _list(recording: Recording) -> int:
    from minibroker.traffic.exchanges import rows

    for connection, row in rows(recording.entries):
        print(f"#{connection} {row}")
    return DONE


async def _replay(recording: Recording, address: tuple[str, int], security: Security | None, *, shows_all: bool) -> int:
    from minibroker.clock import LoopClock
    from minibroker.traffic.exchanges import paired, row_of, topic_names
    from minibroker.traffic.replay import Replay

    names = topic_names(paired(recording.entries))
    alike = differ = unsent = natural = 0
    async for outcome in Replay(address, LoopClock(), security).run(recording.entries):
        found = [each for each in outcome.differences if not each.is_natural]
        natural += len(outcome.differences) - len(found)
        unsent += not outcome.is_sent
        is_alike = not found and not outcome.reason
        alike += is_alike and outcome.is_sent
        differ += not is_alike and outcome.is_sent
        shown = list(outcome.differences) if shows_all else found
        if shown or outcome.reason:
            print(f"#{outcome.exchange.request.connection} {row_of(outcome.exchange, names)}")
            for line in [outcome.reason] if outcome.reason else shown[:LINES_MAX]:
                print(f"    {line}")
            if len(shown) > LINES_MAX:
                print(f"    and {len(shown) - LINES_MAX} more")
    hint = "" if shows_all or not natural else " (--all shows them)"
    print(
        f"{alike} answers alike, {differ} differ, {unsent} requests not sent; {natural} fields differ by nature{hint}"
    )
    return FAILED if differ else DONE

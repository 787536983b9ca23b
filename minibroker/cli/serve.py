"""`minibroker serve`: the options of a broker, or of a cluster, in the foreground."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

DESCRIPTION = "Start a broker. The first line on stdout is its address, printed when it answers."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--port", type=int, metavar="N", help="port to listen on; 0 takes a free one (9092)")
    parser.add_argument("--host", metavar="ADDRESS", help="address to listen on (127.0.0.1)")
    parser.add_argument("--tls", action="store_true", help="serve TLS, with certificates that are made beside the data")
    parser.add_argument("--brokers", type=int, metavar="N", help="a cluster of N, on that port and the next ones")
    parser.add_argument(
        "--rack", metavar="A,B,...", help="racks of the brokers of a cluster, in their order; round, if they are fewer"
    )
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--data-dir", metavar="DIR", help="where logs are kept (./minibroker-data)")
    where.add_argument("--memory", action="store_true", help="keep nothing on disk")
    parser.add_argument(
        "-o", "--option", action="append", default=[], metavar="KEY=VALUE", help="any broker setting of Kafka"
    )
    parser.add_argument("--config", metavar="FILE", help="a server.properties file")
    parser.add_argument(
        "--topic", action="append", default=[], metavar="NAME[:PARTITIONS[:compact]]", help="make a topic at start"
    )
    parser.add_argument(
        "--fault", action="append", default=[], metavar="NAME=VALUE,...", help="a rule for clients, see faults --help"
    )
    parser.add_argument(
        "--user", action="append", default=[], metavar="NAME:PASSWORD", help="who may log in, by PLAIN or SCRAM"
    )
    parser.add_argument(
        "--add-scram", action="append", default=[], metavar="CREDENTIAL", help="as kafka-storage format has it"
    )
    parser.add_argument("--record", metavar="FILE", help="keep every frame of every client; see minibroker replay")
    parser.add_argument("--as-version", metavar="RELEASE", help="serve what that release of Kafka served: 0.8.2 to 4.4")
    parser.add_argument("--cluster-id", metavar="ID", help="of a new directory; one that is there must have it")
    parser.add_argument("--node-id", type=int, metavar="N", help="id of the broker, or of the first of --brokers (1)")
    parser.add_argument(
        "--repair", action="store_true", help="start on a damaged directory without what is lost; copy it before"
    )
    parser.add_argument(
        "--page", choices=("near", "full", "read-only", "off"), help="who may steer by the page in a browser: who sits "
        "at this machine (near, if nothing is said), everybody, nobody; off: there is none",
    )  # fmt: skip
    parser.add_argument(
        "--until-stdin-ends", action="store_true", help="stop when standard input ends: who started it is gone"
    )
    parser.add_argument("--quiet", action="store_true", help="say nothing but the address")


def run(options: argparse.Namespace) -> int:
    import gc

    gc.disable()  # until the broker answers: next to nothing of what a start makes is garbage
    from minibroker.serve import serve

    return serve(options)

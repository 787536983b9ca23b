"""`minibroker serve`: a broker, or a cluster of some, in the foreground, until it is told to stop.

The first line on stdout is the address for clients, printed when requests are answered and not before, of a cluster the
addresses with commas between them; what people should know goes to stderr.
"""

from __future__ import annotations

import asyncio
import atexit
import gc
import os
import signal
import sys
from random import SystemRandom

from minibroker.broker.broker import Node
from minibroker.broker.broker_parts import NEAR, OFF, PAGE_MODES
from minibroker.clock import LoopClock
from minibroker.clock.steered import SteeredClock
from minibroker.config import BrokerConfig, ConfigError
from minibroker.config.listeners import (
    LISTENERS,
    address,
    client_listeners,
    is_local,
    known_hosts,
    protocol_of,
)
from minibroker.config.sources import merge_sources
from minibroker.config.start import data_directory
from minibroker.config.topic_texts import parse_topic
from minibroker.errors import KafkaError, ProtocolError
from minibroker.faults import FaultError
from minibroker.metadata.bootstrap import WrongDirectory
from minibroker.reporter import Reporter
from minibroker.server.loops import new_loop

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterable

    from minibroker.clock import Clock
    from minibroker.config.topic_texts import WantedTopic
    from minibroker.log.storage import Storage
    from minibroker.security.throwaway_ca import ThrowawayCa
    from minibroker.security.users import Users
    from minibroker.server.connection import Service
    from minibroker.server.server import Server

STOPPED, USAGE = 0, 2
HOST, PORT = "127.0.0.1", 9092
MECHANISMS = "sasl.enabled.mechanisms"
DATA_DIRECTORY = "minibroker-data"
MEMORY = "memory"
ENDING_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def serve(options: argparse.Namespace) -> int:
    """Run a broker, or several; return the exit status."""
    _hold_standard_files()
    try:
        topics = [parse_topic(text) for text in [*options.topic, *_from_environment("KAFKA_CREATE_TOPICS")]]
        work = _serve_one(options, topics) if options.brokers is None else _serve_cluster(options, topics)
        with asyncio.Runner(loop_factory=new_loop) as runner:
            runner.run(work)
    except (ConfigError, FaultError, KafkaError, ProtocolError, WrongDirectory, OSError) as failure:
        print(f"minibroker serve: {failure}", file=sys.stderr)
        return USAGE
    return STOPPED


def _hold_standard_files() -> None:
    """Let no socket or log take the place of a standard file that is closed: what is written there would go into it."""
    for handle in range(3):
        try:
            os.fstat(handle)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free: this one
    sys.stdout = sys.stdout or os.fdopen(1, "w")
    sys.stderr = sys.stderr or os.fdopen(2, "w")


async def _serve_one(options: argparse.Namespace, topics: list[WantedTopic]) -> None:
    if options.rack is not None:
        raise ConfigError("--rack", options.rack, "", "only together with --brokers; one broker takes -o broker.rack=a")
    users = _users(options)
    config = _config(options, _listener(options, users), users)
    clock = SteeredClock()
    directory = _directory(options, config)
    ca = _certificates(options, config, directory)
    _show_directory(config, directory)
    node = Node(
        config,
        _storage(directory, clock),
        clock=clock,
        chance=SystemRandom(),
        log_dir=directory or MEMORY,
        cluster_id=_cluster_id(options),
        as_version=options.as_version,
        repairs=options.repair,
        users=users,
    )
    _add_faults(node, options)
    node.page = _page_mode(options)
    node.tap = _tap(options, clock)
    stopping = _begin(config, options)
    await node.start()
    node.metadata_log.log.on_offline = stopping.set  # nobody knows any more what there is: as Kafka does, it ends
    try:
        for name, partitions, configs, _ in topics:
            if name not in node.image.topics:
                node.create_topic(name, partitions, configs)
        _tell(node.bootstrap_servers, directory or MEMORY, [node], options.quiet, ca)
        await stopping.wait()
        node.metadata_log.log.check_online()
    finally:
        await node.stop()
        _ignore_signals()


async def _serve_cluster(options: argparse.Namespace, topics: list[WantedTopic]) -> None:
    from minibroker.embedded.cluster_engine import (
        ClusterEngine,
        ClusterStart,
        check_count,
        check_settings,
        new_storages,
        ports_from,
    )
    from minibroker.embedded.engine import BrokerError
    from minibroker.events import EventStream

    first_id = 1 if options.node_id is None else options.node_id
    if options.repair:
        words = "not with --brokers: move the directory of the damaged partition away, and it is copied from the others"
        raise ConfigError("--repair", "", "", words)
    users = _users(options)
    protocol = protocol_of(uses_tls=options.tls, asks_for_login=users is not None)
    listeners = f"{protocol}://{address(options.host or HOST, 0)}"  # as each has them, to be checked with the rest
    config = _config(options, listeners, users)
    if config.static.get(LISTENERS) == listeners:
        del config.static[LISTENERS]
    check_settings(config)
    clock = SteeredClock()
    directory = _directory(options, config)
    ca = _certificates(options, config, directory, [options.host or HOST])
    try:
        racks = tuple(options.rack.split(",")) if options.rack else ()
        check_count(options.brokers, first_id, racks)
        start = ClusterStart(
            config.static,
            tuple(topics),
            options.brokers,
            first_id,
            options.host or HOST,
            ports_from(PORT if options.port is None else options.port, options.brokers),
            racks,
            directory,
            options.as_version,
            _cluster_id(options),
            protocol,
            users,
        )
        storages = new_storages(directory, start.broker_ids, clock.now_ms)
        engine = ClusterEngine(start, storages, clock=clock, events=EventStream(clock.now_ms))
        engine.core.page = _page_mode(options)
        engine.core.tap = _tap(options, clock)
        stopping = _begin(config, options)
        await engine.start()
    except (BrokerError, ValueError) as failure:
        raise OSError(str(failure)) from failure
    try:
        for node in engine.core.nodes.values():
            _add_faults(node, options)
        _tell(engine.bootstrap_servers, directory or MEMORY, engine.core.nodes.values(), options.quiet, ca)
        await stopping.wait()
    finally:
        await engine.stop()
        _ignore_signals()


def _certificates(
    options: argparse.Namespace, config: BrokerConfig, directory: str | None, hosts: Iterable[str] | None = None
) -> ThrowawayCa | None:
    """Make the certificates that --tls asks for, and let the settings name them."""
    if not options.tls:
        return None
    if hosts is None and not any(listener.uses_tls for listener in client_listeners(config)):
        raise ConfigError("--tls", "", "", "no listener uses TLS: leave listeners out, or write SSL://host:port")
    from minibroker.security.throwaway_ca import ThrowawayCa

    ca = ThrowawayCa(directory)
    atexit.register(ca.remove)  # a folder of its own, however this ends
    ca.make(known_hosts(config) if hosts is None else hosts, LoopClock().now_ms())
    for name, value in ca.files.settings().items():
        config.static.setdefault(name, value)
    return ca


def _tap(options: argparse.Namespace, clock: Clock) -> Callable[[Service, int], Service] | None:
    """Return what records, if somebody wants that."""
    if not options.record:
        return None
    from minibroker.traffic.files import open_recorder
    from minibroker.traffic.recording import BrokenRecording

    try:
        return open_recorder(options.record, clock, Reporter().say).over
    except BrokenRecording as broken:
        raise ConfigError("--record", "", "", str(broken)) from None


def _add_faults(node: Node, options: argparse.Namespace) -> None:
    for text in options.fault:
        from minibroker.faults.rules import values_from_text

        node.faults.add(**values_from_text(text))


def _begin(config: BrokerConfig, options: argparse.Namespace) -> asyncio.Event:
    """Return what is set when somebody wants an end."""
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in ENDING_SIGNALS:
        if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:  # nohup's word counts
            loop.add_signal_handler(number, stopping.set)
    if options.until_stdin_ends:
        _end_with_stdin(loop, stopping)
    _raise_file_limit()
    if not options.quiet:
        for warning in config.warnings:
            print(f"minibroker: {warning}", file=sys.stderr)
    return stopping


def _ignore_signals() -> None:
    """Let a second signal not spoil the status of an end in order: the loop would give the system its handlers back."""
    loop = asyncio.get_running_loop()
    for number in ENDING_SIGNALS:
        loop.remove_signal_handler(number)
        signal.signal(number, signal.SIG_IGN)


def _end_with_stdin(loop: asyncio.AbstractEventLoop, stopping: asyncio.Event) -> None:
    """Stop when whoever holds the other end of standard input is gone, in whatever way; what comes is read away."""

    def read() -> None:
        if not os.read(0, 4096):
            loop.remove_reader(0)
            stopping.set()

    try:
        loop.add_reader(0, read)
    except OSError:  # a file, which ends before it begins
        raise ConfigError("--until-stdin-ends", "", "", "standard input is to be a pipe or a terminal") from None


def _logins(nodes: Iterable[Node]) -> dict[str, str]:
    """Return by which mechanisms clients log in, by security protocol."""
    found = {}
    for node in nodes:
        for server in node.servers:
            if server.logins is not None:
                protocol = "SASL_PLAINTEXT" if server.handshakes is None else "SASL_SSL"
                found[protocol] = " or ".join(node.logins[server.listener_name].mechanisms)
    return found


def _page(nodes: Iterable[Node]) -> str:
    """Return the address for a browser: of a listener without TLS and login, of this machine if there is one."""
    found = [
        (address(host, port) != node.bootstrap_servers, f"http://{address(host, port)}")
        for node in nodes
        if node.page != OFF
        for _, host, port, protocol in node.endpoints()
        if protocol == "PLAINTEXT"
    ]
    return min(found, key=lambda each: each[0])[1] if found else ""


def _tell(
    bootstrap_servers: str, where: str, nodes: Iterable[Node], is_quiet: bool, ca: ThrowawayCa | None = None
) -> None:
    """Say that requests are answered."""
    # What is there now stays; the collector need not look at it again and again.
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)
    gc.enable()
    print(bootstrap_servers, flush=True)
    if is_quiet:
        return
    print(f"minibroker: serving {bootstrap_servers}, data in {where}; Ctrl-C stops", file=sys.stderr)
    if page := _page(nodes):
        print(f"minibroker: a browser shows it at {page}", file=sys.stderr)
    for protocol, mechanisms in _logins(nodes).items():
        print(f"minibroker: clients log in: security.protocol={protocol}, sasl.mechanism={mechanisms}", file=sys.stderr)
    if ca is not None:
        print(f"minibroker: clients of TLS trust {ca.files.ca}, and may show {ca.files.client}", file=sys.stderr)
    for node in nodes:
        for name, host, port, _ in node.endpoints():
            if (other := address(host, port)) != node.bootstrap_servers:
                print(f"minibroker: listener {name} is found at {other}", file=sys.stderr)
    servers = [server for node in nodes for server in node.servers if not is_local(server.host)]
    if any(server.logins is None and not _asks_for_certificates(server) for server in servers):
        words = "other machines can reach this broker, and nobody is asked for a password"
        print(f"minibroker: {words}", file=sys.stderr)


def _listener(options: argparse.Namespace, users: Users | None) -> str | None:
    """Return the listener that --port and --host ask for."""
    if options.port is None and options.host is None:
        if not options.tls and users is None:
            return None
        given, _, _ = merge_sources({}, os.environ, _properties(options.config))
        if LISTENERS in given:
            return None
    where = address(options.host or HOST, PORT if options.port is None else options.port)
    return f"{protocol_of(uses_tls=options.tls, asks_for_login=users is not None)}://{where}"


def _page_mode(options: argparse.Namespace) -> str:
    """Return who may steer by the page, as options say, or the environment."""
    wanted: str = options.page or os.environ.get("MINIBROKER_PAGE") or NEAR
    if wanted not in PAGE_MODES:
        raise ConfigError("MINIBROKER_PAGE", "", wanted, f"it is one of {', '.join(PAGE_MODES)}")
    return wanted


def _asks_for_certificates(server: Server) -> bool:
    return server.handshakes is not None and server.handshakes.requires_certificates


def _users(options: argparse.Namespace) -> Users | None:
    """Return who can log in, as options say."""
    if not options.user and not options.add_scram:
        return None
    from minibroker.security.users import Users, parse_scram_user, parse_user

    try:
        pairs = [parse_user(text) for text in options.user]
        names = [name for name, _ in pairs]
        if doubled := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"{', '.join(doubled)} is given two passwords: one of them is enough")
        return Users(dict(pairs), map(parse_scram_user, options.add_scram))
    except ValueError as error:
        raise ConfigError("--user, --add-scram", "", "", str(error)) from None


def _config(options: argparse.Namespace, listener: str | None, users: Users | None) -> BrokerConfig:
    arguments: dict[str, object] = {}
    for text in options.option:
        key, separator, value = text.partition("=")
        if not separator:
            raise ConfigError("-o", text, "", "key=value")
        arguments[key] = value
    if listener is not None:
        arguments.setdefault("listeners", listener)
    if options.node_id is not None and options.brokers is None:
        arguments["node.id"] = options.node_id
    config = BrokerConfig.from_sources(arguments, os.environ, _properties(options.config))
    if users is not None:
        config.static.setdefault(MECHANISMS, users.mechanisms)
    return config


def _properties(path: str | None) -> str | None:
    if not path:
        return None
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"--config {path}", "", "", f"no text in UTF-8: {error.reason} at byte {error.start}"
        ) from None


def _directory(options: argparse.Namespace, config: BrokerConfig) -> str | None:
    """Return where data are kept, None for memory."""
    if options.memory:
        if options.repair:
            raise ConfigError("--repair", "", "", "not with --memory, where nothing is to be repaired")
        return None
    directory = os.path.abspath(options.data_dir or data_directory(config) or DATA_DIRECTORY)
    if options.repair and not (os.path.isdir(directory) and os.listdir(directory)):
        raise ConfigError("--repair", "", "", f"there is nothing in {directory}")
    _storage(directory, LoopClock()).make_directory("")
    return directory


def _show_directory(config: BrokerConfig, directory: str | None) -> None:
    """Let log.dirs say where the data are, whatever option chose that."""
    config.static.pop("log.dirs", None)
    if directory is not None:
        config.static["log.dirs"] = directory


def _storage(directory: str | None, clock: Clock) -> Storage:
    if directory is None:
        from minibroker.log.memory_storage import MemoryStorage

        return MemoryStorage(clock.now_ms)
    from minibroker.log.storage import OsStorage

    return OsStorage(directory)


def _cluster_id(options: argparse.Namespace) -> str | None:
    found = (os.environ.get(name) for name in ("CLUSTER_ID", "KAFKA_CLUSTER_ID", "KAFKA_KRAFT_CLUSTER_ID"))
    return options.cluster_id or next(filter(None, found), None)


def _from_environment(name: str) -> list[str]:
    return [text for text in os.environ.get(name, "").split(",") if text]


def _raise_file_limit() -> None:
    """Use as many files as we may: partitions and clients need some each."""
    try:
        import resource
    except ImportError:
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))

"""`minibroker serve`: a broker in the foreground, until it is told to stop.

The first line on stdout is the address for clients, printed when requests are answered and not before; what people
should know goes to stderr.
"""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys
from random import SystemRandom

from minibroker.broker.node import Node
from minibroker.clock import LoopClock
from minibroker.config import BrokerConfig, ConfigError
from minibroker.config.topic_texts import parse_topic
from minibroker.errors import KafkaError, ProtocolError
from minibroker.faults import FaultError
from minibroker.metadata.bootstrap import WrongDirectory
from minibroker.server.listeners import ListenerError, address
from minibroker.server.loops import new_loop

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

    from minibroker.config.topic_texts import WantedTopic
    from minibroker.log.storage import Storage

STOPPED, USAGE = 0, 2
DATA_DIRECTORY = "minibroker-data"


def serve(options: argparse.Namespace) -> int:
    """Run a broker; return the exit status."""
    try:
        config = _config(options)
        topics = [parse_topic(text) for text in [*options.topic, *_from_environment("KAFKA_CREATE_TOPICS")]]
        clock = LoopClock()
        storage, where = _storage(options, config, clock)
        node = Node(
            config,
            storage,
            clock=clock,
            chance=SystemRandom(),
            log_dir=where,
            cluster_id=options.cluster_id or os.environ.get("CLUSTER_ID") or None,
            as_version=options.as_version,
        )
        for text in options.fault:
            from minibroker.faults.rules import values_from_text

            node.faults.add(**values_from_text(text))
        with asyncio.Runner(loop_factory=new_loop) as runner:
            runner.run(_serve(node, topics, where, options.quiet))
    except (ConfigError, FaultError, KafkaError, ListenerError, ProtocolError, WrongDirectory, OSError) as failure:
        print(f"minibroker serve: {failure}", file=sys.stderr)
        return USAGE
    return STOPPED


async def _serve(node: Node, topics: list[WantedTopic], where: str, is_quiet: bool) -> None:
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    _raise_file_limit()
    if not is_quiet:
        for warning in node.config.warnings:
            print(f"minibroker: {warning}", file=sys.stderr)
    await node.start()
    try:
        for name, partitions, configs in topics:
            if name not in node.image.topics:
                node.create_topic(name, partitions, configs)
        # What is there now stays; the collector need not look at it again and again.
        gc.freeze()
        gc.set_threshold(20_000, 20, 50)
        gc.enable()
        print(node.bootstrap_servers, flush=True)
        if not is_quiet:
            print(f"minibroker: serving {node.bootstrap_servers}, data in {where}; Ctrl-C stops", file=sys.stderr)
        await stopping.wait()
    finally:
        await node.stop()


def _config(options: argparse.Namespace) -> BrokerConfig:
    arguments: dict[str, object] = {}
    for text in options.option:
        key, separator, value = text.partition("=")
        if not separator:
            raise ConfigError("-o", text, "", "key=value")
        arguments[key] = value
    if options.port is not None or options.host is not None:
        host, port = options.host or "127.0.0.1", 9092 if options.port is None else options.port
        arguments.setdefault("listeners", f"PLAINTEXT://{address(host, port)}")
    if options.node_id is not None:
        arguments["node.id"] = options.node_id
    properties = None
    if options.config:
        with open(options.config, encoding="utf-8") as file:
            properties = file.read()
    return BrokerConfig.from_sources(arguments, os.environ, properties)


def _storage(options: argparse.Namespace, config: BrokerConfig, clock: LoopClock) -> tuple[Storage, str]:
    if options.memory:
        from minibroker.log.memory_storage import MemoryStorage

        return MemoryStorage(clock.now_ms), "memory"
    from minibroker.log.storage import OsStorage

    directory = options.data_dir
    if directory is None:
        for name in ("log.dirs", "log.dir"):
            if directory is None and config.is_set(name):
                value = config[name]
                directory = value[0] if isinstance(value, list) else value.split(",")[0]
    directory = os.path.abspath(directory or DATA_DIRECTORY)
    os.makedirs(directory, exist_ok=True)
    return OsStorage(directory), directory


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

"""TLS on a listener, on both loops: who gets in, as whom, what becomes of the others, and that all goes through it."""

from __future__ import annotations

import asyncio
import inspect
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from minibroker.broker.broker import Node
from minibroker.clock.steered import SteeredClock
from minibroker.config import ConfigError
from minibroker.errors import Error
from minibroker.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from minibroker.protocol.messages.metadata import MetadataRequest
from minibroker.security import tls
from minibroker.server import handshakes
from minibroker.server.connection import Connection
from minibroker.server.loops import new_loop
from tests.security.certificates import PASSWORD, client_context, issued, key_and_chain, made, store, with_password
from tests.server.running import (
    Client,
    alter_broker,
    append,
    batch,
    fetch,
    frame,
    produce,
    running,
    said,
    settle,
    turns,
    values_of,
)

NO_TOPICS = MetadataRequest(topics=[])
LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": new_loop}


def on_both_loops(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run a test in a loop of asyncio, and in one of uvloop."""

    def run(loop: str, **named: Any) -> None:
        with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
            runner.run(test(**named))

    run.__name__, run.__doc__ = test.__name__, test.__doc__
    parameters = inspect.signature(test).parameters.values()
    loop = inspect.Parameter("loop", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    run.__signature__ = inspect.Signature([loop, *parameters])  # type: ignore[attr-defined]
    return pytest.mark.parametrize("loop", LOOPS)(run)


@asynccontextmanager
async def tls_node(clock: Any = None, **settings: object) -> AsyncIterator[Node]:
    own = {"listeners": "SSL://127.0.0.1:0", **made().settings()}
    async with running(
        {**own, **{name.replace("_", "."): value for name, value in settings.items()}}, clock=clock
    ) as node:
        yield node


@asynccontextmanager
async def connected(node: Node, context: ssl.SSLContext | None = None) -> AsyncIterator[Client]:
    client = Client(
        *await asyncio.open_connection(
            "127.0.0.1", node.servers[0].port, ssl=context or client_context(), server_hostname="localhost"
        )
    )
    try:
        yield client
    finally:
        await client.close()


async def until_said(node: Node, words: str) -> str:
    """Return the one line with some words."""
    for _ in range(100_000):
        if found := [line for line in said(node) if words in line]:
            assert len(found) == 1, found
            return found[0]
        await asyncio.sleep(0)
    raise AssertionError(said(node))


def only_connection(node: Node) -> Connection:
    (connection,) = node.servers[0].connections
    assert isinstance(connection, Connection)
    return connection


@pytest.mark.parametrize("version", ["TLSv1_2", "TLSv1_3"])
@on_both_loops
async def test_requests_are_answered(version: str) -> None:
    async with tls_node() as node, connected(node, client_context(version=version)) as client:
        answer = await client.ask(NO_TOPICS, 9)
        assert [(each.host, each.port) for each in answer.brokers] == [("127.0.0.1", node.servers[0].port)]
        assert str(only_connection(node).principal) == "User:ANONYMOUS"
        assert client.writer.get_extra_info("ssl_object").version() == version.replace("_", ".")


@pytest.mark.setting("ssl.enabled.protocols")
@on_both_loops
async def test_a_version_that_is_not_enabled_is_refused() -> None:
    async with tls_node(ssl_enabled_protocols="TLSv1.3") as node:
        with pytest.raises(ssl.SSLError, match=r"(?i)protocol.version"):
            async with connected(node, client_context(version="TLSv1_2")):
                pass
        await until_said(node, "the client offers no version of TLS that ssl.enabled.protocols allows")


@pytest.mark.setting("ssl.cipher.suites")
@on_both_loops
async def test_only_the_suites_that_are_set_are_used() -> None:
    async with tls_node(ssl_cipher_suites="TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256") as node:
        async with connected(node) as client:
            assert client.writer.get_extra_info("cipher")[:2] == ("ECDHE-ECDSA-CHACHA20-POLY1305", "TLSv1.2")
        context = client_context(version="TLSv1_2")
        context.set_ciphers("ECDHE-ECDSA-AES128-GCM-SHA256")
        with pytest.raises(ssl.SSLError, match=r"(?i)handshake.failure"):
            async with connected(node, context):
                pass
        await until_said(node, "the client offers no cipher suite that ssl.cipher.suites allows")


def forms(folder: Path) -> dict[str, dict[str, object]]:
    """Return ways to give a broker the same key and certificates."""
    key, chain = key_and_chain()
    secret = folder / "secret.pem"
    secret.write_text(with_password(key) + chain)
    return {
        "settings": {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.key": key,
            "ssl.keystore.certificate.chain": chain,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.certificates": chain,
        },
        "password": {**made().settings(), "ssl.keystore.location": secret, "ssl.key.password": PASSWORD},
        "PKCS12": {
            "ssl.keystore.type": "PKCS12",
            "ssl.keystore.location": store(folder / "broker.p12"),
            "ssl.keystore.password": PASSWORD,
            "ssl.truststore.type": "PKCS12",
            "ssl.truststore.location": store(folder / "trust.p12", key=False),
            "ssl.truststore.password": PASSWORD,
        },
    }


@pytest.mark.setting("ssl.keystore.type", "ssl.keystore.key", "ssl.keystore.certificate.chain", "ssl.key.password")
@pytest.mark.setting("ssl.keystore.password", "ssl.truststore.type", "ssl.truststore.password")
@pytest.mark.setting("ssl.truststore.certificates")
@pytest.mark.parametrize("form", ["settings", "password", "PKCS12"])
@on_both_loops
async def test_certificates_come_in_each_form(form: str, tmp_path: Path) -> None:
    settings = {"listeners": "SSL://127.0.0.1:0", "ssl.client.auth": "required", **forms(tmp_path)[form]}
    async with running(settings) as node, connected(node, client_context("", made().client)) as client:
        await client.ask(NO_TOPICS, 9)
        assert str(only_connection(node).principal) == "User:CN=client,O=minibroker"


@pytest.mark.setting("ssl.protocol")
@on_both_loops
async def test_the_protocol_is_one_that_java_and_we_have() -> None:
    async with tls_node(ssl_protocol="TLSv1.2") as node, connected(node) as client:
        await client.ask(NO_TOPICS, 9)
    with pytest.raises(ConfigError, match=r"TLSv1.2, TLSv1.3 and TLS are"):
        async with tls_node(ssl_protocol="SSLv3"):
            pass


# Certificates of clients


@pytest.mark.setting("ssl.client.auth")
@pytest.mark.parametrize("auth", ["none", "requested", "required"])
@on_both_loops
async def test_a_client_is_who_its_certificate_says_if_it_is_asked(auth: str) -> None:
    async with tls_node(ssl_client_auth=auth) as node, connected(node, client_context("", made().client)) as client:
        await client.ask(NO_TOPICS, 9)
        expected = "ANONYMOUS" if auth == "none" else "CN=client,O=minibroker"
        assert str(only_connection(node).principal) == f"User:{expected}"


@pytest.mark.setting("ssl.client.auth")
@on_both_loops
async def test_a_client_without_a_certificate_gets_in_where_one_is_only_requested() -> None:
    async with tls_node(ssl_client_auth="requested") as node, connected(node) as client:
        await client.ask(NO_TOPICS, 9)
        assert str(only_connection(node).principal) == "User:ANONYMOUS"


@pytest.mark.setting("ssl.principal.mapping.rules")
@on_both_loops
async def test_the_name_of_a_client_follows_the_rules() -> None:
    rules = "RULE:^CN=(.*?),O=minibroker$/$1/U"
    settings = {"ssl_client_auth": "required", "ssl_principal_mapping_rules": rules}
    async with tls_node(**settings) as node, connected(node, client_context("", made().client)) as client:
        await client.ask(NO_TOPICS, 9)
        assert str(only_connection(node).principal) == "User:CLIENT"


@pytest.mark.setting("ssl.principal.mapping.rules")
@on_both_loops
async def test_a_client_whom_no_rule_names_is_closed() -> None:
    async with tls_node(ssl_client_auth="required", ssl_principal_mapping_rules="RULE:^CN=nobody$/x/") as node:
        async with connected(node, client_context("", made().client)) as client:
            assert await client.is_closed()
        await until_said(node, "no rule of ssl.principal.mapping.rules fits CN=client,O=minibroker")


WRONG: dict[str, tuple[Callable[[], str | Path | None], str, str, str]] = {
    # What a client shows; to whom; the alert that it gets; what is said of it.
    "none": (lambda: None, "required", "certificate_required|handshake_failure", "sends no certificate"),
    "other CA": (
        lambda: made("other").client,
        "required",
        "unknown_ca",
        "self-signed certificate in certificate chain",
    ),
    "other CA, requested": (
        lambda: made("other").client,
        "requested",
        "unknown_ca",
        "self-signed certificate in certificate chain",
    ),
    "expired": (lambda: issued("old", year=2020), "required", "certificate_expired", "certificate has expired"),
    "not yet": (lambda: issued("new", year=2099), "requested", "bad_certificate", "certificate is not yet valid"),
}


@pytest.mark.setting("ssl.client.auth", "ssl.truststore.location")
@pytest.mark.parametrize("version", ["TLSv1_2", "TLSv1_3"])
@pytest.mark.parametrize("case", WRONG)
@on_both_loops
async def test_a_wrong_certificate_is_refused_with_an_alert_and_a_line(case: str, version: str) -> None:
    shown, auth, alert, line = WRONG[case]
    async with tls_node(ssl_client_auth=auth) as node:
        told: list[Any] = []
        node.events.subscribe(told.append, ["certificate"])
        with pytest.raises(ssl.SSLError, match=rf"(?i){alert.replace('_', '.')}"):
            async with connected(node, client_context("", shown(), version=version)) as client:
                await client.ask(NO_TOPICS, 9)  # TLS 1.3 lets a client believe that it is in
        await until_said(node, line)
        assert not node.servers[0].connections
        (event,) = told
        assert (event.principal, event.address) == ("", "127.0.0.1")
        assert line in event.why


# Who comes to the wrong port


@on_both_loops
async def test_a_client_without_tls_gets_one_line() -> None:
    async with tls_node() as node:
        reader, writer = await asyncio.open_connection("127.0.0.1", node.servers[0].port)
        writer.write(bytes.fromhex("00000010001200000000000100066162636465660000"))
        assert not await Client(reader, writer).reader.read()
        writer.close()
        line = await until_said(node, "no TLS")
        assert line.endswith("closed: no TLS: the client has to be set to SSL (security.protocol=SSL)")


@on_both_loops
async def test_a_browser_without_tls_gets_one_line() -> None:
    async with tls_node() as node:
        reader, writer = await asyncio.open_connection("127.0.0.1", node.servers[0].port)
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        await reader.read()
        writer.close()
        await until_said(node, "HTTP without TLS")


@on_both_loops
async def test_a_tls_client_on_a_plain_port_gets_one_line() -> None:
    async with running() as node:
        with pytest.raises((ssl.SSLError, ConnectionError)):
            async with connected(node):
                pass
        await until_said(node, "a TLS hello on a plaintext port: the client has to be set to PLAINTEXT")


@on_both_loops
async def test_a_client_that_does_not_trust_us_gets_one_line() -> None:
    async with tls_node() as node:
        sock = socket.create_connection(("127.0.0.1", node.servers[0].port))

        def shake_hands() -> None:
            with pytest.raises(ssl.SSLCertVerificationError):
                client_context("other").wrap_socket(sock, server_hostname="localhost")

        await asyncio.get_running_loop().run_in_executor(None, shake_hands)
        sock.close()
        await until_said(node, "the client does not trust our certificate")


@on_both_loops
async def test_a_probe_that_connects_and_goes_is_not_worth_a_line() -> None:
    async with tls_node() as node:
        _, writer = await asyncio.open_connection("127.0.0.1", node.servers[0].port)
        writer.close()
        async with connected(node) as client:
            await client.ask(NO_TOPICS, 9)
        assert not said(node)


@on_both_loops
async def test_a_handshake_that_does_not_get_on_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handshakes, "HANDSHAKE_SECONDS", 0.05)
    async with tls_node() as node:
        reader, writer = await asyncio.open_connection("127.0.0.1", node.servers[0].port)
        writer.write(b"\x16\x03\x01\x02\x00")
        assert not await reader.read()
        writer.close()
        await until_said(node, "the TLS handshake takes longer than 0.05 s")


@on_both_loops
async def test_there_are_only_so_many_handshakes_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handshakes, "HANDSHAKES_MAX", 2)
    async with tls_node() as node:
        port = node.servers[0].port
        other = await asyncio.open_connection("127.0.0.1", port, local_addr=("127.0.0.2", 0))
        first = await asyncio.open_connection("127.0.0.1", port)
        await settle_handshakes(node, 2)
        late = await asyncio.open_connection("127.0.0.1", port)
        # The oldest of the address with most makes place, so that nobody is shut out by another address.
        assert not await first[0].read()
        await until_said(node, "more than 2 TLS handshakes at once, and most are of this address")
        async with connected(node) as client:
            await client.ask(NO_TOPICS, 9)
        assert not await late[0].read()
        assert not other[0].at_eof()
        for _, writer in (other, first, late):
            writer.close()
        await settle_handshakes(node, 0)
        assert node.quotas.count == len(node.servers[0].connections)


async def settle_handshakes(node: Node, count: int) -> None:
    found: Any = node.servers[0].handshakes
    for _ in range(100_000):
        if len(found.handles()) == count:
            return
        await asyncio.sleep(0)
    raise AssertionError(found.handles())


@on_both_loops
async def test_limits_of_connections_are_asked_before_a_handshake() -> None:
    async with tls_node(max_connections_per_ip=2) as node:
        port = node.servers[0].port
        held = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2)]
        await settle_handshakes(node, 2)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        assert not await reader.read()  # it has not begun to speak TLS
        await until_said(node, "more than 2 connections from this address")
        writer.close()
        for _, writer in held:
            writer.close()
        await settle_handshakes(node, 0)
        assert node.quotas.count == 0
        async with connected(node) as one, connected(node) as two:
            await one.ask(NO_TOPICS, 9)
            await two.ask(NO_TOPICS, 9)
            assert node.quotas.count == 2
        await settle(node)
        assert node.quotas.count == 0


@on_both_loops
async def test_who_comes_too_soon_waits_before_the_handshake_and_who_has_gone_is_passed_over() -> None:
    clock = SteeredClock()
    clock.freeze()
    async with tls_node(clock, max_connection_creation_rate=1) as node:
        for _ in range(10):  # so many may come at once
            async with connected(node) as client:
                await client.ask(NO_TOPICS, 9)
        gone = [await asyncio.open_connection("127.0.0.1", node.servers[0].port) for _ in range(20)]
        await settle_handshakes(node, 20)
        for _, writer in gone:
            writer.close()
        to_server = {"port": node.servers[0].port, "ssl": client_context(), "server_hostname": "localhost"}
        late = asyncio.ensure_future(asyncio.open_connection("127.0.0.1", **to_server))
        await settle_handshakes(node, 21)
        assert not late.done()
        for _ in range(4):
            await clock.advance("1s", sessions=True)
        for _ in range(100_000):
            if late.done():
                break
            await asyncio.sleep(0)
        _, writer = late.result()
        writer.close()


@on_both_loops
async def test_lines_about_handshakes_do_not_end_for_good() -> None:
    clock = SteeredClock()
    async with tls_node(clock) as node:
        for _ in range(3):
            for _ in range(25):
                reader, writer = await asyncio.open_connection("127.0.0.1", node.servers[0].port)
                writer.write(b"\0\0\0\x10no TLS, but something else")
                await reader.read()
                writer.close()
            await settle_handshakes(node, 0)
            await clock.advance("1s", sessions=True)
        assert len([line for line in said(node) if "no TLS" in line]) == 60
        assert len([line for line in said(node) if "5 more lines like these" in line]) == 3


@on_both_loops
async def test_stopping_ends_handshakes_that_are_under_way() -> None:
    async with tls_node() as node:
        reader, writer = await asyncio.open_connection("127.0.0.1", node.servers[0].port)
        await turns()
        await node.stop()
        assert not await reader.read()
        writer.close()
        assert len(asyncio.all_tasks()) == 1


# After two turns asyncio has accepted what it then gives up itself, for its listener has closed.
@pytest.mark.parametrize("turns_before", [0, 1, 3, 4])
@on_both_loops
async def test_no_handshake_begins_when_the_listener_has_stopped(turns_before: int) -> None:
    async with tls_node() as node:
        server = node.servers[0]
        clients = []
        for _ in range(20):
            client = socket.socket()
            client.setblocking(False)
            client.connect_ex(("127.0.0.1", server.port))
            clients.append(client)
        for _ in range(turns_before):
            await asyncio.sleep(0)
        await server.stop()
        await turns()
        assert server.handshakes is not None
        assert not server.handshakes.handles()
        assert server.quotas.count == 0
        for client in clients:
            client.close()


# What goes through it


@on_both_loops
async def test_large_requests_and_answers_arrive_whole() -> None:
    value = bytes(range(256)) * 4_000
    async with tls_node() as node, connected(node) as client:
        node.create_topic("t", 1)
        for _ in range(3):
            answer = await client.ask(produce("t", batch(value)), 7)
            assert answer.responses[0].partition_responses[0].error_code == 0
        assert values_of(node, "t") == [value] * 3
        client.reader._limit = 1 << 20  # type: ignore[attr-defined]
        answer = await client.ask(fetch("t"), 11)
        assert bytes(answer.responses[0].partitions[0].records).count(value) == 3


@on_both_loops
async def test_many_requests_at_once_are_answered_in_order() -> None:
    async with tls_node() as node, connected(node) as client:
        client.send(b"".join(frame(NO_TOPICS, 9, number) for number in range(500)))
        assert [(await client.answer(3, 9))[0] for _ in range(500)] == list(range(500))


@on_both_loops
async def test_a_client_that_does_not_read_is_waited_for() -> None:
    value = bytes(1_000_000)
    async with tls_node() as node, connected(node) as client:
        node.create_topic("t", 1)
        for _ in range(30):
            append(node, "t", value)
        client.reader._transport.pause_reading()  # type: ignore[attr-defined]
        client.send(frame(fetch("t"), 11, 7) + frame(NO_TOPICS, 9, 8))
        await turns(300)
        assert node.servers[0].sent_bytes < 12 << 20
        client.reader._transport.resume_reading()  # type: ignore[attr-defined]
        found, answer = await client.answer(1, 11)
        assert found == 7
        assert len(answer.responses[0].partitions[0].records) > 30_000_000
        assert (await client.answer(3, 9))[0] == 8


@on_both_loops
async def test_a_broker_that_stands_still_takes_no_handshake_until_it_goes_on() -> None:
    async with tls_node() as node, connected(node) as before:
        node.servers[0].pause()
        opening = asyncio.ensure_future(
            asyncio.open_connection(
                "127.0.0.1", node.servers[0].port, ssl=client_context(), server_hostname="localhost"
            )
        )
        before.send(frame(NO_TOPICS, 9))
        await turns(200)
        assert not opening.done()
        node.servers[0].resume()
        after = Client(*await opening)
        assert (await before.answer(3, 9))[0] == 1
        await after.ask(NO_TOPICS, 9)
        await after.close()


@on_both_loops
async def test_http_is_answered_on_the_same_port() -> None:
    async with tls_node() as node, connected(node) as client:
        client.send(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert (await client.reader.read()).endswith(b"\r\n\r\nok\n")


@pytest.mark.parametrize(("scheme", "status"), [("https", b"200"), ("http", b"403")])
@on_both_loops
async def test_a_page_by_tls_is_our_own_if_it_says_so(scheme: str, status: bytes) -> None:
    async with tls_node() as node, connected(node) as client:
        client.send(f"GET /faults HTTP/1.1\r\nHost: localhost\r\nOrigin: {scheme}://localhost\r\n\r\n".encode())
        assert (await client.reader.read()).split()[1] == status


@on_both_loops
async def test_a_client_that_goes_while_it_waits_is_noticed() -> None:
    async with tls_node() as node:
        node.create_topic("t", 1)
        async with connected(node) as client:
            client.send(frame(fetch("t", wait_ms=600_000), 11))
            await turns(200)
            client.reset()
        await settle(node)


@pytest.mark.parametrize("type", ["slicer", "latency", "limit_data", "reset_peer", "bandwidth", "slow_close"])
@pytest.mark.parametrize("stream", ["upstream", "downstream"])
@on_both_loops
async def test_toxics_work_on_the_bytes_within(type: str, stream: str) -> None:
    attributes = {"slicer": {"average_size": 3}, "limit_data": {"bytes": 10}, "bandwidth": {"rate": 1000}}.get(type, {})
    async with tls_node(SteeredClock()) as node, connected(node) as client:
        await client.ask(NO_TOPICS, 9)
        node.faults.add_toxic(type=type, stream=stream, attributes=attributes)
        if type in ("limit_data", "reset_peer"):
            with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
                await client.ask(NO_TOPICS, 9)
        else:
            await client.ask(NO_TOPICS, 9)
            node.faults.remove_toxic(f"{type}_{stream}")
            await client.ask(NO_TOPICS, 9)


@on_both_loops
async def test_a_kill_leaves_nothing() -> None:
    async with tls_node() as node, connected(node) as client:
        await client.ask(NO_TOPICS, 9)
        await node.kill()
        assert await client.is_closed()


# Certificates that change


async def certificate_of(node: Node) -> str:
    async with connected(node) as client:
        der = client.writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        return str(hash(der))


def copy(source: str | Path, target: Path) -> None:
    target.write_bytes(Path(source).read_bytes())


@on_both_loops
async def test_a_file_that_changes_is_taken_and_connections_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls, "LOOK_MS", 1)
    keystore = tmp_path / "server.pem"
    copy(made().server, keystore)
    async with tls_node(ssl_keystore_location=keystore) as node, connected(node) as before:
        first = await certificate_of(node)
        copy(issued("localhost", names=("localhost", "127.0.0.1", "::1")), keystore)
        await until_said(node, "listener SSL has taken changed certificates")
        assert await certificate_of(node) != first
        await before.ask(NO_TOPICS, 9)


@pytest.mark.setting("ssl.allow.dn.changes", "ssl.allow.san.changes")
@pytest.mark.parametrize("allowed", [False, True])
@pytest.mark.parametrize("change", ["dn", "san"])
@on_both_loops
async def test_a_certificate_of_somebody_else_is_taken_only_if_that_is_allowed(
    change: str, allowed: bool, tmp_path: Path
) -> None:
    keystore = tmp_path / "server.pem"
    copy(made().server, keystore)
    settings = {f"ssl_allow_{change}_changes": allowed}
    async with tls_node(ssl_keystore_location=keystore, **settings) as node:
        first = await certificate_of(node)
        names = ("localhost", "127.0.0.1", "::1") if change == "dn" else ("localhost",)
        copy(issued("other" if change == "dn" else "localhost", names=names), keystore)
        node.servers[0].handshakes.reload()  # type: ignore[union-attr]
        assert (await certificate_of(node) != first) == allowed
        words = {"dn": "DistinguishedName does not match", "san": "SubjectAlternativeNames do not match"}[change]
        await until_said(node, "has taken" if allowed else words)


@on_both_loops
async def test_a_file_that_is_broken_is_told_once_and_the_certificate_stays(tmp_path: Path) -> None:
    keystore = tmp_path / "server.pem"
    copy(made().server, keystore)
    async with tls_node(ssl_keystore_location=keystore) as node:
        keystore.write_text("half of it")
        node.servers[0].handshakes.reload()  # type: ignore[union-attr]
        await certificate_of(node)
        await until_said(node, "listener SSL keeps its certificate")


@pytest.mark.setting("ssl.keystore.location")
@on_both_loops
async def test_a_keystore_that_is_altered_while_the_broker_runs_is_taken(tmp_path: Path) -> None:
    other = issued("localhost", names=("localhost", "127.0.0.1", "::1"))
    async with tls_node() as node, connected(node) as client:
        first = await certificate_of(node)
        await alter_broker(client, str(node.node_id), {"listener.name.ssl.ssl.keystore.location": str(other)})
        assert await certificate_of(node) != first
        await client.ask(NO_TOPICS, 9)


ALTERED_WRONG = {
    "missing": ("listener.name.ssl.ssl.keystore.location", "/no/such", "/no/such cannot be read"),
    "somebody else's": ("listener.name.ssl.ssl.keystore.location", "SOMEBODY", "DistinguishedName does not match"),
    "without the listener": ("ssl.keystore.location", "/no/such", "can be dynamically updated only per-listener"),
}


@pytest.mark.parametrize("case", ALTERED_WRONG)
@on_both_loops
async def test_what_cannot_be_taken_while_the_broker_runs_is_refused(case: str) -> None:
    name, value, words = ALTERED_WRONG[case]
    if value == "SOMEBODY":
        value = made().client
    async with tls_node() as node, connected(node) as client:
        first = await certificate_of(node)
        Resource = IncrementalAlterConfigsRequest.AlterConfigsResource
        row = Resource.AlterableConfig(name=name, config_operation=0, value=value)
        resource = Resource(resource_type=4, resource_name=str(node.node_id), configs=[row])
        answer = await client.ask(IncrementalAlterConfigsRequest(resources=[resource], validate_only=False), 1)
        assert answer.responses[0].error_code == Error.INVALID_REQUEST
        assert words in answer.responses[0].error_message
        assert await certificate_of(node) == first


@on_both_loops
async def test_who_resets_before_he_is_accepted_is_not_served_without_an_address() -> None:
    """uvloop asks for his address too late, and rules that deny by address could not bind him."""
    rule = b'{"api": "Metadata", "error": "LEADER_NOT_AVAILABLE"}'
    head = b"POST /faults HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    async with running() as node:
        server = node.servers[0]
        for _ in range(20):
            client = socket.create_connection(("127.0.0.1", server.port))
            client.sendall(head % len(rule) + rule)
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            client.close()
        addresses = []
        opened = server.opened
        server.opened = lambda connection: (addresses.append(connection.remote_address[0]), opened(connection))  # type: ignore[method-assign, func-returns-value, assignment, return-value]
        await turns()
        served = [address for address in addresses if address]
        assert len(node.faults.rules) <= len(served)
        assert server.quotas.count == len(server.connections)

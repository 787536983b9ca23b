"""Kafka's ssl.* settings: what becomes a context, and which sentence stops a start."""

from __future__ import annotations

import shutil
import ssl
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from minibroker.config import BrokerConfig, ConfigError
from minibroker.security.tls import LOOK_MS, SUITES, ListenerTls
from tests.client.scripted import TestClock
from tests.security.certificates import PASSWORD, client_context, key_and_chain, made, store, with_password


def tls_of(settings: Mapping[str, object], listener: str = "SSL") -> ListenerTls:
    return ListenerTls(BrokerConfig.from_sources({"listeners": "SSL://:0", **settings}), listener)


def shake_hands(server: ssl.SSLContext, client: ssl.SSLContext) -> tuple[ssl.SSLObject, ssl.SSLObject]:
    """Let two contexts talk in memory; return both ends, the server's first."""
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = (
        server.wrap_bio(up, down, server_side=True),
        client.wrap_bio(down, up, server_hostname="localhost"),
    )
    for _ in range(4):
        for end in reversed(ends):
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
    return ends


def serves(tls: ListenerTls) -> bool:
    """Whether a client that trusts our CA gets in."""
    server, _ = shake_hands(tls.context, client_context())
    return server.version() == "TLSv1.3"


def test_a_file_of_pem_serves() -> None:
    assert serves(tls_of(made().settings()))


@pytest.mark.parametrize("join", ["\n", " "])
def test_pem_in_settings_serves_be_it_on_one_line(join: str) -> None:
    key, chain = (join.join(text.split("\n")) for text in key_and_chain())
    settings = {"ssl.keystore.type": "PEM", "ssl.keystore.key": key, "ssl.keystore.certificate.chain": chain}
    trust = {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": chain, "ssl.client.auth": "required"}
    tls = tls_of(settings | trust)
    server, _ = shake_hands(tls.context, client_context("", made().client))
    assert str(tls.principal_of(server)) == "User:CN=client,O=minibroker"


def test_a_key_with_a_password_is_opened_by_it(tmp_path: Path) -> None:
    key, chain = key_and_chain()
    path = tmp_path / "broker.pem"
    path.write_text(with_password(key) + chain)
    settings = {"ssl.keystore.type": "PEM", "ssl.keystore.location": path}
    assert serves(tls_of({**settings, "ssl.key.password": PASSWORD}))
    for wrong in ({}, {"ssl.key.password": "geheim-8"}):
        with pytest.raises(ConfigError, match=r"is ssl.key.password set, and right\?") as refused:
            tls_of({**settings, **wrong})
        assert "geheim" not in str(refused.value)


@pytest.mark.parametrize("kind", ["PKCS12", "JKS", None])
def test_pkcs12_serves_under_either_name_as_in_java(kind: str | None, tmp_path: Path) -> None:
    types = {} if kind is None else {"ssl.keystore.type": kind, "ssl.truststore.type": kind}
    tls = tls_of(
        {
            **types,
            "ssl.keystore.location": store(tmp_path / "broker.p12"),
            "ssl.keystore.password": PASSWORD,
            "ssl.truststore.location": store(tmp_path / "trust.p12", key=False),
            "ssl.truststore.password": PASSWORD,
            "ssl.client.auth": "required",
        }
    )
    server, _ = shake_hands(tls.context, client_context("", made().client))
    assert str(tls.principal_of(server)) == "User:CN=client,O=minibroker"


def test_a_listeners_own_settings_come_before_those_of_all() -> None:
    own = {f"listener.name.outside.{name}": value for name, value in made("other").settings().items()}
    tls = tls_of(
        {
            "listeners": "OUTSIDE://:0",
            "listener.security.protocol.map": "OUTSIDE:SSL",
            **own,
            **made().settings(),
            "ssl.client.auth": "required",
            "listener.name.outside.ssl.client.auth": "none",
        },
        "OUTSIDE",
    )
    server, _ = shake_hands(tls.context, client_context("other"))
    assert server.version() == "TLSv1.3"


@pytest.mark.parametrize(
    ("own", "mode"), [({}, "CERT_NONE"), ({"listener.name.in.ssl.client.auth": "required"}, "CERT_REQUIRED")]
)
def test_where_clients_log_in_only_the_listener_itself_can_ask_for_certificates(own: dict[str, str], mode: str) -> None:
    settings = {**made().settings(), "ssl.client.auth": "requested", **own}
    tls = ListenerTls(BrokerConfig(settings), "IN", has_login=True)
    assert tls.context.verify_mode.name == mode
    server, _ = shake_hands(tls.context, client_context("", made().client))
    assert str(tls.principal_of(server)) == "User:ANONYMOUS"  # until it has logged in


@pytest.mark.skipif(shutil.which("keytool") is None, reason="keytool makes the store")
@pytest.mark.interop
def test_a_store_that_keytool_makes_serves(tmp_path: Path) -> None:
    path = tmp_path / "store.p12"
    subprocess.run(
        [
            *("keytool", "-genkeypair", "-alias", "broker", "-keyalg", "RSA", "-dname", "CN=localhost"),
            *("-ext", "SAN=dns:localhost", "-keystore", path, "-storepass", PASSWORD, "-storetype", "PKCS12"),
        ],
        check=True,
        capture_output=True,
    )
    tls = tls_of({"ssl.keystore.location": path, "ssl.keystore.password": PASSWORD})
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname, client.verify_mode = False, ssl.CERT_NONE
    assert shake_hands(tls.context, client)[0].version() == "TLSv1.3"


# Protocols and suites


@pytest.mark.parametrize(
    ("settings", "lowest", "highest"),
    [
        ({}, "TLSv1_2", "TLSv1_3"),
        ({"ssl.enabled.protocols": "TLSv1.2", "ssl.protocol": "TLSv1.2"}, "TLSv1_2", "TLSv1_2"),
        ({"ssl.enabled.protocols": "TLSv1.3", "ssl.protocol": "TLS"}, "TLSv1_3", "TLSv1_3"),
        ({"ssl.cipher.suites": "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"}, "TLSv1_2", "TLSv1_2"),
        (
            {"ssl.cipher.suites": "TLS_AES_128_GCM_SHA256,TLS_AES_256_GCM_SHA384,TLS_CHACHA20_POLY1305_SHA256"},
            *("TLSv1_3", "TLSv1_3"),
        ),
    ],
)
def test_the_versions_of_tls_are_those_that_are_enabled_and_have_suites(
    settings: dict[str, str], lowest: str, highest: str
) -> None:
    context = tls_of({**made().settings(), **settings}).context
    assert (context.minimum_version.name, context.maximum_version.name) == (lowest, highest)


@pytest.mark.parametrize("suite", SUITES)
def test_a_suite_by_javas_name_is_the_one_of_openssl_or_refused(suite: str) -> None:
    try:
        context = tls_of({**made().settings(), "ssl.cipher.suites": suite}).context
    except ConfigError as refused:
        assert f"{suite} is not in OpenSSL" in str(refused)
        return
    assert [each["name"] for each in context.get_ciphers() if each["protocol"] != "TLSv1.3"] == [SUITES[suite]]


# What stops a start

PEM = {"ssl.keystore.type": "PEM"}
REFUSED: list[tuple[dict[str, object], str]] = [
    ({}, "SSL has no certificate: ssl.keystore.location names one, and --tls or tls=True makes one"),
    ({"ssl.keystore.password": "x"}, "SSL key store is not specified, but key store password is specified."),
    ({**PEM, "ssl.keystore.location": "/no/such"}, "/no/such cannot be read: No such file or directory"),
    ({"ssl.keystore.location": "SERVER"}, "is PEM: set ssl.keystore.type=PEM"),
    ({**PEM, "ssl.keystore.location": "CA"}, "there is no PRIVATE KEY in it as PEM"),
    ({**PEM, "ssl.keystore.location": "SERVER", "ssl.keystore.password": "x"}, "only key password may be specified"),
    ({**PEM, "ssl.keystore.key": "x"}, "SSL private key is specified, but certificate chain is not specified."),
    ({"ssl.keystore.key": "x"}, "SSL private key can be specified only for PEM, but key store type is JKS."),
    ({**PEM, "ssl.keystore.certificate.chain": "x"}, "SSL certificate chain is specified, but private key is not"),
    (
        {**PEM, "ssl.keystore.key": "x", "ssl.keystore.certificate.chain": "x", "ssl.keystore.location": "SERVER"},
        "Both SSL key store location and separate private key are specified.",
    ),
    ({"ssl.keystore.location": "JKS", "ssl.keystore.password": "x"}, "JKS.p12 -deststoretype PKCS12"),
    ({"ssl.keystore.location": "GARBAGE", "ssl.keystore.password": "x"}, "is no PKCS12, or its password is another"),
    ({"ssl.keystore.location": "P12"}, "SSL key store is specified, but key store password is not specified."),
    ({"ssl.keystore.location": "P12", "ssl.keystore.password": "x"}, "is no PKCS12, or its password is another"),
    ({"ssl.keystore.location": "P12", "ssl.keystore.type": "BCFKS"}, "BCFKS is not known here; PEM and PKCS12 are"),
    ({**PEM, "ssl.keystore.location": "P12"}, "set the type to PKCS12"),
    ({"GOOD": 1, "ssl.truststore.password": "x", "ssl.truststore.location": ""}, "trust store password"),
    ({"GOOD": 1, "ssl.truststore.password": "x"}, "trust store password cannot be specified for PEM format."),
    ({"GOOD": 1, "ssl.truststore.certificates": "x"}, "Both SSL trust store location and separate trust certificates"),
    ({"GOOD": 1, "ssl.truststore.type": "JKS"}, "is PEM: set ssl.truststore.type=PEM"),
    ({"GOOD": 1, "ssl.truststore.location": "GARBAGE"}, "is no PEM, but a keystore in another format"),
    ({"GOOD": 1, "ssl.enabled.protocols": "TLSv1.1,TLSv1.2"}, "TLSv1.1 is not served; TLSv1.2, TLSv1.3 are"),
    ({"GOOD": 1, "ssl.enabled.protocols": ""}, "nothing is not served"),
    ({"GOOD": 1, "ssl.protocol": "SSLv3"}, "TLSv1.2, TLSv1.3 and TLS are"),
    ({"GOOD": 1, "ssl.cipher.suites": "TLS_RSA_WITH_RC4_128_MD5"}, "TLS_RSA_WITH_RC4_128_MD5 is not known here"),
    ({"GOOD": 1, "ssl.cipher.suites": "TLS_AES_128_GCM_SHA256"}, "of TLS 1.3 all suites are used or none"),
    (
        {
            "GOOD": 1,
            "ssl.enabled.protocols": "TLSv1.3",
            "ssl.cipher.suites": "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
        },
        "none of them is one of TLSv1.3",
    ),
    ({"GOOD": 1, "ssl.principal.mapping.rules": "RULE:x"}, "'RULE:x' is no rule"),
]


@pytest.mark.parametrize(("settings", "words"), REFUSED, ids=[words[:40] for _, words in REFUSED])
def test_what_makes_no_sense_stops_the_start(settings: dict[str, object], words: str, tmp_path: Path) -> None:
    (tmp_path / "JKS").write_bytes(b"\xfe\xed\xfe\xed\0\0\0\2")
    (tmp_path / "GARBAGE").write_bytes(b"\x30garbage")
    files = {"SERVER": made().server, "CA": made().ca, "P12": store(tmp_path / "P12")}
    good = made().settings() if "GOOD" in settings else {}
    given = {
        name: files.get(str(value), tmp_path / str(value) if value in ("JKS", "GARBAGE") else value)
        for name, value in settings.items()
        if name != "GOOD"
    }
    with pytest.raises(ConfigError) as refused:
        tls_of({**good, **given})
    assert words in str(refused.value)


def broken_certificate() -> str:
    """Return a certificate as PEM whose name can be read, and whose signature is no value of its type."""
    data = bytearray(ssl.PEM_cert_to_DER_cert(Path(made().ca).read_text()))
    data[data.rindex(b"\x03", 0, len(data) - 60)] = 0x55
    return ssl.DER_cert_to_PEM_cert(bytes(data))


@pytest.mark.parametrize("store", ["keystore", "truststore"])
def test_a_broken_certificate_stops_a_start_and_no_watch(store: str, tmp_path: Path) -> None:
    path = tmp_path / f"{store}.pem"
    key = key_and_chain()[0] if store == "keystore" else ""
    settings = {
        **made().settings(),
        f"ssl.{store}.location": path,
        f"ssl.{store}.type": "PEM",
        "ssl.client.auth": "required",
    }
    path.write_text(key + broken_certificate())
    with pytest.raises(ConfigError, match=f"ssl.{store}.location=.*: a certificate in it is broken"):
        tls_of(settings)
    good = (key_and_chain()[0] + key_and_chain()[1]) if key else Path(made().ca).read_text()
    path.write_text(good)
    clock, said = TestClock(), list[str]()
    tls = ListenerTls(BrokerConfig.from_sources({"listeners": "SSL://:0", **settings}), "SSL", said.append)
    tls.watch(clock)  # type: ignore[arg-type]
    for text in (f"{key}{broken_certificate()}\n", f"{good}{Path(made('other').ca).read_text()}"):
        path.write_text(text)
        clock.pass_time(LOOK_MS)
    tls.close()
    refused, taken = said
    assert refused.startswith("listener SSL keeps its certificate: ")
    assert refused.endswith("a certificate in it is broken")
    assert taken == "listener SSL has taken changed certificates"


def test_a_password_that_no_key_has_and_a_path_that_is_none_stop_a_start(tmp_path: Path) -> None:
    path = tmp_path / "key.pem"
    path.write_text(with_password(key_and_chain()[0]) + key_and_chain()[1])
    settings = {**PEM, "ssl.keystore.location": path}
    with pytest.raises(ConfigError, match=r"the private key cannot be read: is ssl\.key\.password set"):
        tls_of({**settings, "ssl.key.password": "x" * 2000})
    with pytest.raises(ConfigError, match=r"no\\x00such cannot be read: embedded null byte"):
        tls_of({**PEM, "ssl.keystore.location": "no\0such"})


def test_a_key_of_another_certificate_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "mixed.pem"
    text = Path(made("other").server).read_text()
    path.write_text(key_and_chain()[0] + text[text.index("-----BEGIN CERT") :])
    with pytest.raises(ConfigError, match="the private key is not that of the first certificate"):
        tls_of({**PEM, "ssl.keystore.location": path})


def test_a_key_is_shown_in_no_message() -> None:
    key, chain = key_and_chain()
    secret = key.split("\n")[1]
    with pytest.raises(ConfigError) as refused:
        tls_of(
            {**PEM, "ssl.keystore.key": key.replace("PRIVATE KEY", "SECRET"), "ssl.keystore.certificate.chain": chain}
        )
    assert secret not in str(refused.value)


def test_without_cryptography_pkcs12_is_refused_with_what_installs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sys

    path = store(tmp_path / "x.p12")
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.serialization", None)
    with pytest.raises(ConfigError, match=r"pip install 'minibroker\[tls\]'"):
        tls_of({"ssl.keystore.location": path, "ssl.keystore.password": PASSWORD})


@pytest.mark.parametrize("name", ["ssl.keystore.location", "listener.name.other.ssl.keystore.location"])
def test_what_no_listener_uses_stops_the_start(name: str) -> None:
    with pytest.raises(ConfigError, match="no listener that it is for uses TLS"):
        BrokerConfig.from_sources({name: "/x"})


MISSPELT = {
    "ssl.key.pasword": "ssl.key.password",
    "listener.name.plaintext.ssl.client.auht": "",
    "authorizer.class": "authorizer.class.name",
    "super.user": "super.users",
    "sasl.enabled.mechanism": "sasl.enabled.mechanisms",
    "delegation.token.master.key": "delegation.token.secret.key",
}


@pytest.mark.parametrize("name", MISSPELT)
def test_a_misspelt_setting_of_security_stops_the_start_and_names_the_right_one(name: str) -> None:
    with pytest.raises(ConfigError) as failed:
        BrokerConfig.from_sources({name: "hunter2"})
    assert name in str(failed.value)
    assert MISSPELT[name] in str(failed.value)
    assert "hunter2" not in str(failed.value)


def test_super_users_are_not_divided_by_commas() -> None:
    authorizer = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
    with pytest.raises(ConfigError, match="with semicolons between several"):
        BrokerConfig.from_sources({"authorizer.class.name": authorizer, "super.users": "User:a,User:b"})
    BrokerConfig.from_sources({"authorizer.class.name": authorizer, "super.users": "User:CN=a,OU=b"})

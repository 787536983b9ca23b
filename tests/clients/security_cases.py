"""The ways into a broker, and what clients try at each: right, wrong in every way, cut off, and again when it is time.

One broker has a listener for each way. `python -m tests.clients.security_cases` prints the table of docs/clients.md.
What a login by each client comes to stands here; that it does is what test_security.py shows.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from minibroker.embedded.client_settings import Access, client_settings
from minibroker.security.sasl_settings import MODULES, SIGNED
from minibroker.security.throwaway_ca import CA_KEY, STORE_PASSWORD, TlsFiles
from tests.clients.matrix import Client
from tests.clients.relay import CUT, TURN, WATCH, Relay, Relays

USERS = {"alice": 'al"ice\\ secret', "bob": "bob-secret"}
PLAINTEXT, SSL, MUTUAL, SASL_PLAINTEXT, SASL_SSL = WAYS = (
    "PLAINTEXT",
    "SSL",
    "mutual TLS",
    "SASL_PLAINTEXT",
    "SASL_SSL",
)
PLAIN, SCRAM_256, SCRAM_512, OAUTHBEARER = MECHANISMS = tuple(MODULES)
REAUTH_MS = 5000
STEADY_SECONDS = 6.2  # so long does a client go on that has to log in again after five

RIGHT, WRONG, UNKNOWN, EXPIRED, CUT_OFF = "right", "wrong password", "unknown user", "expired", "truncated"
CHANGED, AGAIN, TURNED = "mechanism changed", "re-authentication", "changed at re-authentication"

# name -> protocol; one for each way, and some that are special.
LISTENERS = {
    "BOTH": "SASL_SSL",  # the first one, of which client_config tells
    "OPEN": "PLAINTEXT",
    "TLS": "SSL",
    "MUTUAL": "SSL",
    "LOGIN": "SASL_PLAINTEXT",
    "OLD": "SSL",  # the broker's certificate has expired
    "SHORT": "SASL_PLAINTEXT",  # who has logged in has to do it again soon
    "TURNED": "SASL_PLAINTEXT",  # likewise, and a relay changes the mechanism then
    "ONE": "SASL_PLAINTEXT",  # it has SCRAM-SHA-512 only
    "OTHER": "SASL_PLAINTEXT",  # it has PLAIN only
}
RELAYED = {"SHORT": WATCH, "TURNED": TURN}  # clients are told the address of a relay
LISTENER_OF = {PLAINTEXT: "OPEN", SSL: "TLS", MUTUAL: "MUTUAL", SASL_PLAINTEXT: "LOGIN", SASL_SSL: "BOTH"}


class Case(NamedTuple):
    way: str
    mechanism: str  # empty: no login
    what: str

    @property
    def name(self) -> str:
        return " ".join(filter(None, self))

    @property
    def listener(self) -> str:
        if self.what == CHANGED and self.mechanism:
            return "OTHER" if self.mechanism == SCRAM_512 else "ONE"
        if self.way == SSL and self.what == EXPIRED:
            return "OLD"
        return {AGAIN: "SHORT", TURNED: "TURNED"}.get(self.what, LISTENER_OF[self.way])


def cases() -> Iterator[Case]:
    """Yield those that take long first."""
    for mechanism in MECHANISMS:
        yield Case(SASL_PLAINTEXT, mechanism, AGAIN)
    yield Case(SASL_PLAINTEXT, SCRAM_256, TURNED)
    yield Case(SASL_PLAINTEXT, SCRAM_512, TURNED)
    for what in (CHANGED, EXPIRED, WRONG, CUT_OFF, RIGHT):
        yield Case(SSL, "", what)
    for what in (UNKNOWN, EXPIRED, WRONG, CUT_OFF, RIGHT):
        yield Case(MUTUAL, "", what)
    yield Case(PLAINTEXT, "", CHANGED)
    yield Case(PLAINTEXT, "", RIGHT)
    for way in (SASL_PLAINTEXT, SASL_SSL):
        for mechanism in MECHANISMS:
            own = EXPIRED if mechanism == OAUTHBEARER else UNKNOWN
            for what in (own, WRONG, CUT_OFF, RIGHT):
                yield Case(way, mechanism, what)
    for mechanism in MECHANISMS:
        yield Case(SASL_PLAINTEXT, mechanism, CHANGED)


def without(*left_out: str) -> tuple[str, ...]:
    assert set(left_out) <= {*WAYS, *MECHANISMS}
    return tuple(each for each in (*WAYS, *MECHANISMS) if each not in left_out)


class Errors(NamedTuple):
    """What a client says, by the names that it has for errors; a pattern, and empty: nothing, it has come in."""

    password: str  # wrong, or of a user that nobody knows
    token: str
    mechanism: str
    broker: str  # its certificate has expired, or is of a CA that the client does not know
    certificate: str  # likewise the client's own, or there is none
    protocol: str  # TLS to a port without, or the reverse
    cut_login: str = ""
    cut_login_in_tls: str = ""
    cut_tls: str = ""
    turned: str = ""

    def of(self, case: Case) -> str:
        if case.what in (RIGHT, AGAIN):
            return ""
        if case.what == TURNED:
            return self.turned
        if case.what == CUT_OFF:
            return {SASL_PLAINTEXT: self.cut_login, SASL_SSL: self.cut_login_in_tls}.get(case.way, self.cut_tls)
        if case.what == CHANGED:
            return self.mechanism if case.mechanism else self.protocol
        if case.mechanism:
            return self.token if case.mechanism == OAUTHBEARER else self.password
        return self.certificate if case.way == MUTUAL else self.broker


class Entry(NamedTuple):
    """What a client can do, and how."""

    client: Client  # its steps are ways and mechanisms
    errors: Errors
    logs_in_again: bool  # on the connection that it has; the others make a new one when the broker closes it


LATE = "KafkaTimeoutError"
NOBODY = "NoBrokersAvailable"
UNREACHED = "KafkaConnectionError"
JAVA_TLS, JAVA_SASL, JAVA_LATE = "SslAuthenticationException", "SaslAuthenticationException", "TimeoutException"
KAFKAJS = "KafkaJSConnectionError"
# Two ends of one connection close it at a time: which of them is told of first is by chance.
SSL_ERRORS = "SSLError|SSLEOFError"
CUT_IN_TLS = "|SSLEOFError|KafkaConnectionError"

OF_JAVA = Errors(JAVA_SASL, JAVA_SASL, "UnsupportedSaslMechanismException", JAVA_TLS, JAVA_TLS, JAVA_LATE)
OF_OLD_KAFKA_PYTHON = Errors(
    password=NOBODY,
    token="AuthenticationFailedError",
    mechanism=NOBODY,
    broker="SSLCertVerificationError",
    certificate=SSL_ERRORS,
    protocol=f"{NOBODY}|UnrecognizedBrokerVersion",
    cut_tls=CUT_IN_TLS,
)
ALL = without()
OF_JAVA_1 = without(SSL, MUTUAL, SASL_SSL, OAUTHBEARER)  # it has no stores of PEM
# Its SCRAM needs a class that Java has no more since 11.
OF_JAVA_0_10 = tuple(each for each in OF_JAVA_1 if each not in (SCRAM_256, SCRAM_512))

ENTRIES = (
    Entry(Client("kafka-python", "3.0.12", "python", ALL), Errors(LATE, LATE, LATE, LATE, LATE, LATE), True),
    Entry(Client("kafka-python", "2.0.2", "python", ALL), OF_OLD_KAFKA_PYTHON, False),
    Entry(Client("kafka-python", "1.4.7", "python", without(SCRAM_256, SCRAM_512)), OF_OLD_KAFKA_PYTHON, False),
    Entry(
        Client("aiokafka", "0.14.0", "python", ALL),
        Errors(
            password=UNREACHED,
            token="UnknownTopicOrPartitionError",  # it takes the broker's refusal for a step of a login that goes well
            mechanism=UNREACHED,
            broker=UNREACHED,
            certificate=UNREACHED,
            protocol=UNREACHED,
            cut_login=UNREACHED,  # it asks each address that it was given once
            cut_login_in_tls=UNREACHED,
            cut_tls=UNREACHED,
        ),
        False,
    ),
    Entry(
        Client("confluent-kafka", "2.16.1", "python", ALL),
        Errors(
            password="_AUTHENTICATION",
            token="_AUTHENTICATION",
            mechanism="_AUTHENTICATION",
            broker="_SSL",
            certificate="_TRANSPORT|_ALL_BROKERS_DOWN",
            protocol="_TRANSPORT|_ALL_BROKERS_DOWN",
        ),
        True,
    ),
    Entry(Client("java", "4.4.0", "java", ALL), OF_JAVA, True),
    Entry(Client("java", "2.8.2", "java", ALL), OF_JAVA, True),
    Entry(Client("java", "1.1.1", "java", OF_JAVA_1), OF_JAVA, False),
    # Before 1.0 it is not told of a login that failed, and tries again.
    Entry(Client("java", "0.10.2.2", "java", OF_JAVA_0_10), Errors(*[JAVA_LATE] * 6), False),
    Entry(
        Client("franz-go", "1.22.2", "go", ALL),
        Errors(
            password="SASL_AUTHENTICATION_FAILED",
            token="errors.errorString",
            mechanism="UNSUPPORTED_SASL_MECHANISM",
            broker="x509.CertificateInvalidError|x509.UnknownAuthorityError",
            certificate="remote error",  # an alert of TLS
            protocol="errors.errorString",
            cut_tls="|errors.errorString",  # it does not try again what it takes for no TLS
        ),
        True,
    ),
    Entry(
        Client("kafkajs", "2.2.4", "node", ALL),
        Errors(
            password="KafkaJSSASLAuthenticationError",
            token="KafkaJSProtocolError",
            mechanism="KafkaJSProtocolError",
            broker=KAFKAJS,
            certificate=KAFKAJS,
            protocol=f"{KAFKAJS}|KafkaJSConnectionClosedError",
            cut_login="KafkaJSSASLAuthenticationError",  # for which it takes a login that is cut off
            turned="KafkaJSSASLAuthenticationError",
        ),
        True,
    ),
)


def cases_of(client: Client) -> list[Case]:
    def can(case: Case) -> bool:
        needs = {case.way, case.mechanism} - {""} | ({SSL} if case.what == CHANGED and not case.mechanism else set())
        return needs <= {*client.steps}

    return [case for case in cases() if can(case)]


# The broker


class Place(NamedTuple):
    """Where everything is that one broker and its clients need."""

    folder: Path
    ports: dict[str, int]  # of the listeners
    advertised: dict[str, int]  # those of them that clients are told another port of
    files: TlsFiles
    other_ca: str
    certificates: dict[str, Path]  # of clients: by what is wrong with them
    tokens: dict[str, str]  # of OAUTHBEARER: by what is wrong with them

    def port(self, listener: str) -> int:
        return self.advertised.get(listener, self.ports[listener])


def prepared(folder: Path, ports: list[int]) -> Place:
    """Make certificates, tokens and keys; ports: one for each listener, and for each that is relayed one more."""
    from tests.security.certificates import issued, made
    from tests.security.test_oauth import OTHER_RSA, RSA, claims, rsa_jwk, token

    for path in (*made(), Path(made().ca).parent / CA_KEY):
        shutil.copy(path, folder)
    files = TlsFiles(*(str(folder / Path(path).name) for path in made()))
    keys = [rsa_jwk(RSA, kid="one", use="sig", alg="RS256")]
    (folder.parent / "jwks.json").write_text(json.dumps({"keys": keys}))
    now_s = int(time.time())
    right = claims(sub="alice", iat=now_s - 10, exp=now_s + 3600)
    header = {"kid": "one"}
    return Place(
        folder,
        dict(zip(LISTENERS, ports, strict=False)),
        dict(zip(RELAYED, ports[len(LISTENERS) :], strict=True)),
        files,
        made("other").ca,
        {
            RIGHT: Path(files.client),
            UNKNOWN: issued("alice", of="other"),
            EXPIRED: issued("alice", year=2020),
        },
        {
            RIGHT: token(right, header),
            WRONG: token(right, header, key=OTHER_RSA),
            EXPIRED: token({**right, "iat": now_s - 7200, "exp": now_s - 3600}, header),
        },
    )


def settings_of(place: Place) -> dict[str, str]:
    """Return the settings of a broker, by Kafka's names."""
    from tests.security.certificates import issued

    found = {
        "listeners": ",".join(f"{name}://127.0.0.1:{place.ports[name]}" for name in LISTENERS),
        "advertised.listeners": ",".join(f"{name}://127.0.0.1:{place.port(name)}" for name in LISTENERS),
        "listener.security.protocol.map": ",".join(f"{name}:{protocol}" for name, protocol in LISTENERS.items()),
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        "sasl.oauthbearer.jwks.endpoint.url": f"file:{place.folder.parent / 'jwks.json'}",
        "sasl.oauthbearer.expected.audience": "kafka",
        "sasl.oauthbearer.expected.issuer": "https://us",
        "listener.name.mutual.ssl.client.auth": "required",
        "listener.name.old.ssl.keystore.type": "PEM",
        "listener.name.old.ssl.keystore.location": str(
            issued("localhost", year=2020, names=("localhost", "127.0.0.1"))
        ),
        **place.files.settings(),
    }
    for name, protocol in LISTENERS.items():
        if protocol.startswith("SASL"):
            found |= _login_settings(name)
    return found


def _login_settings(name: str) -> dict[str, str]:
    prefix = f"listener.name.{name.lower()}"
    found = {}
    for mechanism in {"ONE": (SCRAM_512,), "OTHER": (PLAIN,)}.get(name, MECHANISMS):
        options = ""
        if mechanism == PLAIN:
            passwords = {user: word.replace("\\", r"\\").replace('"', r"\"") for user, word in USERS.items()}
            options = "".join(f' user_{user}="{word}"' for user, word in passwords.items())
        found[f"{prefix}.{mechanism.lower()}.sasl.jaas.config"] = f"{MODULES[mechanism]} required{options};"
        if mechanism == OAUTHBEARER:
            found[f"{prefix}.oauthbearer.sasl.server.callback.handler.class"] = SIGNED[0]
        if name in RELAYED:
            found[f"{prefix}.{mechanism.lower()}.connections.max.reauth.ms"] = str(REAUTH_MS)
    if name in ("ONE", "OTHER"):
        found[f"{prefix}.sasl.enabled.mechanisms"] = SCRAM_512 if name == "ONE" else PLAIN
    return found


# What a client is told


LIBRARY = {"confluent-kafka": "confluent"}


def access_of(case: Case, place: Place, port: int) -> Access:
    tls, asks = case.way in (SSL, MUTUAL, SASL_SSL), bool(case.mechanism)
    if case.what == CHANGED and not asks:
        tls = not tls
    access = Access(f"127.0.0.1:{port}", tls, case.mechanism or None)
    if asks and case.mechanism != OAUTHBEARER:
        user = "nobody" if case.what == UNKNOWN else "alice"
        password = "guessed" if case.what == WRONG else USERS["alice"]
        access = access._replace(user=user, password=password)
    if tls:
        access = access._replace(ca=place.other_ca if (case.way, case.what) == (SSL, WRONG) else place.files.ca)
    if case.way == MUTUAL and case.what != WRONG:  # which is none at all
        path = place.certificates.get(case.what, place.certificates[RIGHT])
        store = str(path.with_suffix(".p12"))
        access = access._replace(client=str(path), client_store=store, store_password=STORE_PASSWORD)
    return access


def told(client: Client, case: Case, place: Place, relays: Relays) -> str:
    """Return the line by which a client's program is told of a case; a relay is opened where it needs one."""
    port = place.port(case.listener)
    if case.what == CUT_OFF:
        tls = {SASL_PLAINTEXT: "", SASL_SSL: "login"}.get(case.way, "handshake")
        port = relays.open(Relay(port, CUT, tls=tls)).port
    access = access_of(case, place, port)
    token = place.tokens.get(case.what, place.tokens[RIGHT]) if case.mechanism == OAUTHBEARER else ""
    seconds = STEADY_SECONDS if case.what in (AGAIN, TURNED) else 0
    if client.name == "aiokafka":  # which makes the settings itself
        settings: dict[str, Any] = access._asdict()
    else:
        settings = client_settings(LIBRARY.get(client.name, client.name), access)
    if client.toolchain == "java":
        fields = [f"{name}={value}" for name, value in settings.items()]
        return "\t".join([case.name, client.slug, str(seconds), token, *fields])
    line = {"case": case.name, "topic": client.slug, "seconds": seconds, "token": token, "settings": settings}
    return json.dumps(line)


def table() -> str:
    """Return the table of docs/clients.md."""
    shown = (*Errors._fields[:6], "cut_login")
    heads = ["password", "token", "mechanism", "broker's certificate", "own certificate", "protocol", "cut off"]
    lines = ["| client | version | comes in by | " + " | ".join([*heads, "again"]) + " |"]
    lines.append("|---" * (len(heads) + 4) + "|")
    for client, errors, logs_in_again in ENTRIES:
        lacking = {
            "token": OAUTHBEARER not in client.steps,
            **dict.fromkeys(("broker", "certificate", "protocol"), SSL not in client.steps),
        }
        cells = [
            "-" if lacking.get(name) else ", ".join(f"`{one}`" for one in said.split("|")) if said else "comes in"
            for name, said in errors._asdict().items()
            if name in shown
        ]
        cells.append("yes" if logs_in_again else "new connection")
        by = "all" if client.steps == ALL else ", ".join(client.steps)
        lines.append(f"| {client.name} | {client.version} | {by} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(table(), end="")

"""TLS of one listener: Kafka's ssl.* settings into an ssl.SSLContext, made anew when certificates change.

`listener.name.NAME.ssl.*` counts before `ssl.*`. Key and certificates come as PEM, in settings or in a file, or as a
PKCS12 file, which needs the package cryptography; JKS is refused with the command that converts it.
What must hold: what cannot be understood stops the start. A private key is in no message, and on no disk that it has
not come from. Who is connected stays connected when certificates change.
Kafka: sends a client the names of the CAs that it trusts; the library here cannot, so a client chooses among its
certificates without that. Which cipher suites TLS 1.3 may use cannot be chosen either: all three, or no TLS 1.3.
Not here: handshakes (server/handshakes.py).
"""

from __future__ import annotations

import os
import re
import ssl
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from minibroker.config.broker import BrokerConfig
from minibroker.config.values import ConfigError
from minibroker.security.named_files import read_file
from minibroker.security.principal import ANONYMOUS, USER, Principal
from minibroker.security.principal_mapping import PrincipalMapping
from minibroker.security.x509 import alternative_names_of, subject_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from minibroker.clock import Clock, Timer

LOOK_MS = 5_000  # how often files of certificates are looked at
PEM, PKCS12, JKS = "PEM", "PKCS12", "JKS"
AUTH = "ssl.client.auth"
OTHERS = ("ssl.key.password", AUTH, "ssl.enabled.protocols", "ssl.protocol", "ssl.cipher.suites")
KEYSTORE, TRUSTSTORE = "ssl.keystore.", "ssl.truststore."
VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
CLIENT_AUTH = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}
SUITES_OF_1_3 = frozenset(("TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"))
# Java's name of a suite of TLS 1.2: OpenSSL's. SSL_ in front is the older spelling of the same.
SUITES = {
    f"TLS_{exchange}_WITH_{cipher}": f"{prefix}{name}"
    for exchange, prefix in {
        "ECDHE_ECDSA": "ECDHE-ECDSA-",
        "ECDHE_RSA": "ECDHE-RSA-",
        "DHE_RSA": "DHE-RSA-",
        "RSA": "",
    }.items()
    for cipher, name in {
        "AES_128_GCM_SHA256": "AES128-GCM-SHA256",
        "AES_256_GCM_SHA384": "AES256-GCM-SHA384",
        "CHACHA20_POLY1305_SHA256": "CHACHA20-POLY1305",
        "AES_128_CBC_SHA256": "AES128-SHA256",
        "AES_256_CBC_SHA256": "AES256-SHA256",
        "AES_256_CBC_SHA384": "AES256-SHA384",
        "AES_128_CBC_SHA": "AES128-SHA",
        "AES_256_CBC_SHA": "AES256-SHA",
    }.items()
}
_BLOCK = re.compile(r"-+BEGIN\s+([A-Z0-9 ]+?)-+\s+([A-Za-z0-9+/=\s]+?)\s*-+END\s+\1-+")
_JKS_BEGINS = (b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce")  # JKS, JCEKS
_CONVERTED = "keytool -importkeystore -srckeystore {0} -destkeystore {0}.p12 -deststoretype PKCS12"


class ListenerTls:
    """The TLS of one listener, as its settings have it now."""

    def __init__(
        self,
        config: BrokerConfig,
        listener: str,
        say: Callable[[str], object] = lambda line: None,
        *,
        has_login: bool = False,
    ):
        """Raise ConfigError for settings that make no sense; `say` is told when certificates change later.

        has_login: clients say later who they are, and are asked for a certificate only if the listener's own settings
        say so (KIP-684).
        """
        self._config = config
        self._listener = listener
        self._say = say
        self._has_login = has_login
        self._timer: Timer | None = None
        self.tell: Callable[[str, str, str], object] = lambda address, principal, reason: None  # who has come in
        made = _Made(config, listener, has_login)
        self.context = made.context
        self._made = made
        settings = _Settings(config, listener)
        try:
            self._mapping = PrincipalMapping(settings["ssl.principal.mapping.rules"])
        except ValueError as error:
            raise settings.error("ssl.principal.mapping.rules", str(error)) from None

    def principal_of(self, tls: ssl.SSLObject) -> Principal:
        """Return who a client is by its certificate; ValueError if no rule gives it a name."""
        certificate = None if self._has_login else tls.getpeercert(binary_form=True)
        if certificate is None:
            return ANONYMOUS
        return Principal(USER, self._mapping.name_of(subject_of(certificate)))

    def check(self, config: BrokerConfig) -> None:
        """Raise ConfigError if other settings of the broker could not take the place of those in force."""
        self._check_identity(_Made(config, self._listener, self._has_login), config)

    def reload(self) -> None:
        """Take what settings and files say now, for new connections; what cannot be taken leaves it as it was."""
        try:
            made = _Made(self._config, self._listener, self._has_login)
            if made.signature == self._made.signature:
                self._made.times = made.times
                return
            self._check_identity(made, self._config)
        except ConfigError as error:
            self._made.times = _times(self._made.files)  # told once
            self._say(f"listener {self._listener} keeps its certificate: {error}")
            return
        self._made, self.context = made, made.context
        self._say(f"listener {self._listener} has taken changed certificates")

    def watch(self, clock: Clock) -> None:
        """Look every few seconds whether files have changed, until `close`."""
        self._timer = clock.after(LOOK_MS, lambda: self._look(clock))

    def _look(self, clock: Clock) -> None:
        self.watch(clock)
        if _times(self._made.files) != self._made.times:
            self.reload()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _check_identity(self, made: _Made, config: BrokerConfig) -> None:
        """Raise ConfigError if a certificate is somebody else's, as Kafka does while it runs (KIP-226)."""
        settings = _Settings(config, self._listener)
        old, new = self._made.certificate, made.certificate
        if subject_of(old) != subject_of(new) and not config["ssl.allow.dn.changes"]:
            words = f"Keystore DistinguishedName does not match:  existing={subject_of(old)}, new={subject_of(new)}"
            raise settings.error(f"{KEYSTORE}location", words)
        if not alternative_names_of(new) >= alternative_names_of(old) and not config["ssl.allow.san.changes"]:
            raise settings.error(f"{KEYSTORE}location", "Keystore SubjectAlternativeNames do not match")


class _Settings:
    """The settings of one listener, its own before those of all."""

    def __init__(self, config: BrokerConfig, listener: str):
        self._config = config
        self._listener = listener

    def __getitem__(self, setting: str) -> Any:
        return self._config.of_listener(setting, self._listener)

    def error(self, setting: str, words: str) -> ConfigError:
        return self._config.error(self._config.name_for(setting, self._listener), words)


class _Made:
    """A context, and what it was made of."""

    def __init__(self, config: BrokerConfig, listener: str, has_login: bool):
        settings = _Settings(config, listener)
        self.files = [path for kind in (KEYSTORE, TRUSTSTORE) if (path := settings[f"{kind}location"])]
        self.times = _times(self.files)  # before they are read: what is written meanwhile is seen at the next look
        keystore = _keystore(settings, listener)
        truststore = _truststore(settings)
        self.signature = (keystore, truststore, *(str(settings[name]) for name in OTHERS))
        is_asked = not has_login or config.name_for(AUTH, listener) != AUTH
        self.context = _context(settings, CLIENT_AUTH[settings[AUTH]] if is_asked else ssl.CERT_NONE)
        self.certificate = _certificates_in(keystore)[0]
        _load_key(self.context, settings, keystore)
        if self.context.verify_mode != ssl.CERT_NONE:
            _load_trust(self.context, settings, truststore)


def _times(files: list[str]) -> list[tuple[int, int]]:
    found = []
    for path in files:
        try:
            state = os.stat(path)
            found.append((state.st_mtime_ns, state.st_size))
        except (OSError, ValueError):
            found.append((0, 0))
    return found


# The context


class ServerTls(ssl.SSLObject):
    """One connection of TLS. Who watches its handshake is told when it fails: the loops send no alert then."""

    outgoing: ssl.MemoryBIO
    handshake: Handshake | None = None

    def do_handshake(self) -> None:
        if self.handshake is not None:
            self.handshake.step_count += 1
        try:
            super().do_handshake()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except ssl.SSLError:
            if self.handshake is not None:
                self.handshake.send_alert(self.outgoing.read())
            raise


class ServerContext(ssl.SSLContext):
    """A context whose connections know the handshake that they belong to."""

    sslobject_class = ServerTls

    def wrap_bio(self, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO, *more: Any, **named: Any) -> ssl.SSLObject:
        tls = super().wrap_bio(incoming, outgoing, *more, **named)
        assert isinstance(tls, ServerTls)
        tls.outgoing = outgoing
        tls.handshake = HANDSHAKE.get(None)
        return tls


class Handshake:
    """What is known of a handshake from outside; HANDSHAKE holds that of the task that runs."""

    step_count = 0

    def send_alert(self, alert: bytes) -> None:
        """Tell the client why it fails."""
        raise NotImplementedError


HANDSHAKE: ContextVar[Handshake] = ContextVar("HANDSHAKE")


def _context(settings: _Settings, verify_mode: ssl.VerifyMode) -> ssl.SSLContext:
    context = ServerContext(ssl.PROTOCOL_TLS_SERVER)
    context.verify_mode = verify_mode
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    versions = settings["ssl.enabled.protocols"]
    unknown = [each for each in versions if each not in VERSIONS]
    if unknown or not versions:
        words = f"{', '.join(unknown) or 'nothing'} is not served; {', '.join(VERSIONS)} are"
        raise settings.error("ssl.enabled.protocols", words)
    if settings["ssl.protocol"] not in (*VERSIONS, "TLS"):
        raise settings.error(
            "ssl.protocol", f"{', '.join(VERSIONS)} and TLS are; ssl.enabled.protocols says what is used"
        )
    allowed = {VERSIONS[each] for each in versions}
    if suites := settings["ssl.cipher.suites"]:
        allowed &= _choose_suites(context, settings, suites)
        if not allowed:
            raise settings.error("ssl.cipher.suites", f"none of them is one of {', '.join(versions)}")
    context.minimum_version, context.maximum_version = min(allowed), max(allowed)
    return context


def _choose_suites(context: ssl.SSLContext, settings: _Settings, suites: list[str]) -> set[ssl.TLSVersion]:
    """Let a context use some suites and no others; return the versions of TLS that have any of them."""
    name = "ssl.cipher.suites"
    found: set[ssl.TLSVersion] = set()
    newer = SUITES_OF_1_3.intersection(suites)
    if newer:
        if newer != SUITES_OF_1_3:
            words = f"of TLS 1.3 all suites are used or none: add {', '.join(sorted(SUITES_OF_1_3 - newer))}, or leave"
            raise settings.error(name, f"{words} out {', '.join(sorted(newer))}")
        found.add(ssl.TLSVersion.TLSv1_3)
    older = [re.sub("^SSL_", "TLS_", each) for each in suites if each not in SUITES_OF_1_3]
    if unknown := [each for each in older if each not in SUITES]:
        raise settings.error(
            name, f"{', '.join(unknown)} is not known here; {', '.join((*SUITES_OF_1_3, *SUITES))} are"
        )
    if older:
        for suite in older:
            try:
                context.set_ciphers(SUITES[suite])
            except ssl.SSLError:
                raise settings.error(name, f"{suite} is not in {ssl.OPENSSL_VERSION}") from None
        context.set_ciphers(":".join(SUITES[suite] for suite in older))
        found.add(ssl.TLSVersion.TLSv1_2)
    return found


def _load_key(context: ssl.SSLContext, settings: _Settings, keystore: bytes) -> None:
    """Give a context its key and its certificates; both are in `keystore`."""
    password = settings["ssl.key.password"] or ""
    setting = f"{KEYSTORE}key" if settings[f"{KEYSTORE}key"] else f"{KEYSTORE}location"
    try:
        with _as_file(keystore) as path:
            # An empty answer rather than a question on the terminal where the key wants a password.
            context.load_cert_chain(path, password=lambda: password)
    except (ssl.SSLError, ValueError) as error:
        reason = getattr(error, "reason", error) or "no PEM"
        if "KEY_VALUES_MISMATCH" in str(reason):
            raise settings.error(setting, "the private key is not that of the first certificate") from None
        words = "cannot be read: is ssl.key.password set, and right?" if b"ENCRYPTED" in keystore else "cannot be read"
        raise settings.error(setting, f"the private key {words} ({reason})") from None


@contextmanager
def _as_file(data: bytes) -> Iterator[str]:
    """Give bytes a path for as long as they are needed, in memory where it can be: OpenSSL reads keys from files."""
    if hasattr(os, "memfd_create") and os.path.isdir("/proc/self/fd"):
        handle = os.memfd_create("minibroker-key", os.MFD_CLOEXEC)
        try:
            _write(handle, data)
            yield f"/proc/self/fd/{handle}"
        finally:
            os.close(handle)
        return
    handle, path = tempfile.mkstemp(prefix="minibroker-")  # only its owner may read it
    try:
        _write(handle, data)
        os.close(handle)
        yield path
    finally:
        os.unlink(path)


def _write(handle: int, data: bytes) -> None:
    while data:
        data = data[os.write(handle, data) :]


def _load_trust(context: ssl.SSLContext, settings: _Settings, truststore: bytes) -> None:
    """Tell a context whose certificates count: those of the truststore, or whom this machine trusts, as in Java."""
    if not truststore:
        context.load_default_certs(ssl.Purpose.CLIENT_AUTH)
        return
    try:
        context.load_verify_locations(cadata=truststore.decode("ascii"))
    except ssl.SSLError as error:
        raise settings.error(f"{TRUSTSTORE}location", f"a certificate in it is broken ({error.reason})") from None


# Stores. Kafka's words, from DefaultSslEngineFactory, where it has some.


def _keystore(settings: _Settings, listener: str) -> bytes:
    """Return a listener's key and certificates as PEM."""
    kind, path, password = (settings[f"{KEYSTORE}{name}"] for name in ("type", "location", "password"))
    key, chain = settings[f"{KEYSTORE}key"], settings[f"{KEYSTORE}certificate.chain"]
    where = f"{KEYSTORE}location"
    if key:
        if kind != PEM:
            words = f"SSL private key can be specified only for PEM, but key store type is {kind}."
            raise settings.error(f"{KEYSTORE}key", words)
        if not chain:
            words = "SSL private key is specified, but certificate chain is not specified."
            raise settings.error(f"{KEYSTORE}key", words)
        if path:
            raise settings.error(where, "Both SSL key store location and separate private key are specified.")
        _refuse_password(settings, KEYSTORE, password)
        return _pem(settings, f"{KEYSTORE}key", key, "PRIVATE KEY") + _pem(
            settings, f"{KEYSTORE}certificate.chain", chain, "CERTIFICATE"
        )
    if chain:
        words = "SSL certificate chain is specified, but private key is not specified"
        raise settings.error(f"{KEYSTORE}certificate.chain", words)
    if not path:
        if password:
            words = "SSL key store is not specified, but key store password is specified."
            raise settings.error(f"{KEYSTORE}password", words)
        words = f"{listener} has no certificate: ssl.keystore.location names one, and --tls or tls=True makes one"
        raise settings.error("listeners", words)
    data = _read(settings, where, path)
    if kind == PEM:
        _refuse_password(settings, KEYSTORE, password)
        text = _text(settings, where, data)
        return _pem(settings, where, text, "PRIVATE KEY") + _pem(settings, where, text, "CERTIFICATE")
    _check_store(settings, KEYSTORE, kind, path, data)
    if not password:
        raise settings.error(where, "SSL key store is specified, but key store password is not specified.")
    return _pkcs12(settings, where, path, data, password, key_too=True)


def _truststore(settings: _Settings) -> bytes:
    """Return the certificates that clients' certificates may come from, as PEM; empty: those of this machine."""
    kind, path, password = (settings[f"{TRUSTSTORE}{name}"] for name in ("type", "location", "password"))
    certificates = settings[f"{TRUSTSTORE}certificates"]
    where = f"{TRUSTSTORE}location"
    if certificates:
        if kind != PEM:
            words = f"SSL trust store certs can be specified only for PEM, but trust store type is {kind}."
            raise settings.error(f"{TRUSTSTORE}certificates", words)
        if path:
            raise settings.error(where, "Both SSL trust store location and separate trust certificates are specified.")
        _refuse_password(settings, TRUSTSTORE, password)
        return _pem(settings, f"{TRUSTSTORE}certificates", certificates, "CERTIFICATE")
    if not path:
        if password:
            words = "SSL trust store is not specified, but trust store password is specified."
            raise settings.error(f"{TRUSTSTORE}password", words)
        return b""
    data = _read(settings, where, path)
    if kind == PEM:
        _refuse_password(settings, TRUSTSTORE, password)
        return _pem(settings, where, _text(settings, where, data), "CERTIFICATE")
    _check_store(settings, TRUSTSTORE, kind, path, data)
    return _pkcs12(settings, where, path, data, password, key_too=False)


def _refuse_password(settings: _Settings, store: str, password: str | None) -> None:
    if password:
        only = ", only key password may be specified" if store == KEYSTORE else ""
        name = "key" if store == KEYSTORE else "trust"
        raise settings.error(f"{store}password", f"SSL {name} store password cannot be specified for PEM format{only}.")


def _check_store(settings: _Settings, store: str, kind: str, path: str, data: bytes) -> None:
    """Refuse a store that is not PKCS12. Java takes one under the name of JKS, too."""
    if data[:4] in _JKS_BEGINS:
        words = f"{path} is JKS, which only Java reads; this makes PKCS12 of it, to be named instead with"
        raise settings.error(f"{store}location", f"{words} {store}type=PKCS12: {_CONVERTED.format(path)}")
    if data.lstrip()[:10] == b"-----BEGIN":
        raise settings.error(f"{store}type", f"{path} is PEM: set {store}type=PEM")
    if kind not in (PKCS12, JKS):
        raise settings.error(f"{store}type", f"{kind} is not known here; {PEM} and {PKCS12} are")


def _read(settings: _Settings, setting: str, path: str) -> bytes:
    try:
        return read_file(path)
    except (OSError, ValueError) as error:
        words = f"{ascii(path)[1:-1]} cannot be read: {getattr(error, 'strerror', error)}"
        raise settings.error(setting, words) from None


def _text(settings: _Settings, setting: str, data: bytes) -> str:
    if data[:4] in _JKS_BEGINS or data[:1] == b"\x30":
        raise settings.error(setting, "is no PEM, but a keystore in another format: set the type to PKCS12")
    return data.decode("latin-1")


def _pem(settings: _Settings, setting: str, text: str, label: str) -> bytes:
    """Return the blocks of a kind in some PEM, each line of it as OpenSSL wants it; a setting may be one long line."""
    found = [(kind, "".join(body.split())) for kind, body in _BLOCK.findall(text) if kind.endswith(label)]
    if not found:
        hint = "; openssl pkcs8 -topk8 makes one that Java reads, too" if label == "PRIVATE KEY" else ""
        raise settings.error(setting, f"there is no {label} in it as PEM{hint}")
    lines = []
    for kind, body in found if label == "CERTIFICATE" else found[:1]:
        lines += [f"-----BEGIN {kind}-----", *re.findall(".{1,64}", body), f"-----END {kind}-----"]
    pem = ("\n".join(lines) + "\n").encode("ascii")
    if label == "CERTIFICATE":
        try:
            for certificate in _certificates_in(pem):
                subject_of(certificate)
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_verify_locations(cadata=pem.decode("ascii"))
        except (ValueError, ssl.SSLError):
            raise settings.error(setting, "a certificate in it is broken") from None
    return pem


def _certificates_in(pem: bytes) -> list[bytes]:
    """Return the certificates in PEM, as DER."""
    from base64 import b64decode

    return [b64decode(body) for kind, body in _BLOCK.findall(pem.decode("ascii")) if kind == "CERTIFICATE"]


def _pkcs12(settings: _Settings, setting: str, path: str, data: bytes, password: str | None, *, key_too: bool) -> bytes:
    """Return what is in a PKCS12 file as PEM."""
    try:
        from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
        from cryptography.hazmat.primitives.serialization.pkcs12 import load_pkcs12
    except ModuleNotFoundError:
        words = "PKCS12 is read by the package cryptography, which is not there: pip install 'minibroker[tls]'"
        raise settings.error(setting, words) from None
    try:
        store = load_pkcs12(data, None if password is None else password.encode())
    except ValueError:
        raise settings.error(setting, f"{path} is no PKCS12, or its password is another") from None
    certificates = [each.certificate for each in (store.cert, *store.additional_certs) if each is not None]
    pem = b"".join(each.public_bytes(Encoding.PEM) for each in certificates)
    if not certificates or (key_too and (store.key is None or store.cert is None)):
        raise settings.error(setting, f"there is no {'private key with its ' if key_too else ''}certificate in {path}")
    if not key_too:
        return pem
    assert store.key is not None
    return store.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()) + pem

"""What a listener asks of its clients: the settings of SASL, read and checked at the start.

    listener.name.NAME.MECHANISM.SETTING      of one mechanism of one listener, both in lower case
    listener.name.NAME.SETTING                of one listener
    SETTING                                   of all

What must hold: a setting that is not understood, or that would have no effect, stops the start with a sentence that
says what to write; no sentence names a secret.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from minibroker.config import BrokerConfig, ConfigError
from minibroker.config.listeners import Listener
from minibroker.config.tables import LISTENER_PREFIX, get_broker_setting, without_listener
from minibroker.security.jaas import JaasLine, parse_jaas
from minibroker.security.sasl import Exchange, Mechanism

TYPE_CHECKING = False
if TYPE_CHECKING:
    from minibroker.metadata.image import MetadataImage
    from minibroker.security.delegation_tokens import TokenSecrets
    from minibroker.security.oauth import Check
    from minibroker.security.users import Users

MECHANISMS, JAAS, MAX_REAUTH = "sasl.enabled.mechanisms", "sasl.jaas.config", "connections.max.reauth.ms"
HANDLER, JWKS_URL = "sasl.server.callback.handler.class", "sasl.oauthbearer.jwks.endpoint.url"
AUDIENCE, ISSUER = "sasl.oauthbearer.expected.audience", "sasl.oauthbearer.expected.issuer"
ANY_AUDIENCE, ANY_ISSUER = "sasl.oauthbearer.allow.unverified.audience", "sasl.oauthbearer.allow.unverified.issuer"
SKEW = "sasl.oauthbearer.clock.skew.seconds"
NAME_CLAIM, SCOPE_CLAIM = "sasl.oauthbearer.sub.claim.name", "sasl.oauthbearer.scope.claim.name"
RECEIVE_BYTES = "sasl.server.max.receive.size"
# Without a listener that asks for a login somebody would rely on what is not there.
FOR_LOGINS: Final = (
    *(MECHANISMS, JAAS, HANDLER, JWKS_URL, AUDIENCE, ISSUER, ANY_AUDIENCE, ANY_ISSUER),
    *(MAX_REAUTH, RECEIVE_BYTES, SKEW, NAME_CLAIM, SCOPE_CLAIM),
)

SECURITY: Final = "org.apache.kafka.common.security."
MODULES: Final = {
    "PLAIN": f"{SECURITY}plain.PlainLoginModule",
    "SCRAM-SHA-256": f"{SECURITY}scram.ScramLoginModule",
    "SCRAM-SHA-512": f"{SECURITY}scram.ScramLoginModule",
    "OAUTHBEARER": f"{SECURITY}oauthbearer.OAuthBearerLoginModule",
}
USER_OPTION: Final = "user_"
# Options that are of a client's login, as of a broker that would log in at others.
CLIENT_OPTIONS: Final = frozenset(("username", "password", "tokenauth", "serviceName"))
UNSECURED: Final = f"{SECURITY}oauthbearer.internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler"
SIGNED: Final = (
    f"{SECURITY}oauthbearer.OAuthBearerValidatorCallbackHandler",
    f"{SECURITY}oauthbearer.secured.OAuthBearerValidatorCallbackHandler",
)
VALIDATOR: Final = "unsecuredValidator"
OF_TOKENS: Final = (VALIDATOR, "unsecuredLogin")  # the second of who makes tokens, which is no broker here
VALIDATOR_OPTIONS: Final = ("PrincipalClaimName", "ScopeClaimName", "RequiredScope", "AllowableClockSkewMs")
INSTALL: Final = "signed tokens need a package that is not installed: pip install 'minibroker[tls]'"


class LoginSources:
    """What logins of one broker are checked against, and the doors that they need."""

    def __init__(
        self,
        image: Callable[[], MetadataImage],
        *,
        users: Users | None,
        now_ms: Callable[[], int],
        random_bits: Callable[[int], int],
        read_file: Callable[[str], bytes],
        tokens: TokenSecrets | None,
        is_before_4: bool,
    ):
        """users: of the start, beside those of the settings. read_file: returns a file that a setting names.

        is_before_4: logins are as Kafka has them before 4.0.
        """
        self.image = image
        self.users = users
        self.now_ms = now_ms
        self.random_bits = random_bits
        self.read_file = read_file
        self.secret = random_bits(256).to_bytes(32)  # of what is shown for names that nobody has
        self.tokens = tokens
        self.is_before_4 = is_before_4


class ListenerLogins:
    """The mechanisms of one listener."""

    def __init__(self, config: BrokerConfig, listener: Listener, sources: LoginSources):
        self._config = config
        self._listener = listener
        self._sources = sources
        self.receive_bytes_max: int = self._get(RECEIVE_BYTES)
        self.mechanisms: dict[str, Mechanism] = {}
        self.takes_unsigned = False  # tokens that anybody can write
        names: Sequence[str] = self._get(MECHANISMS) or ()
        for name in names:
            if name == "GSSAPI":
                raise self._error(
                    MECHANISMS,
                    "GSSAPI (Kerberos, which it is by default) is not served; "
                    f"{MECHANISMS}=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512 or OAUTHBEARER is what there is",
                )
            if name not in MODULES:
                raise self._error(MECHANISMS, f"there is no mechanism {name!r}; there are {', '.join(MODULES)}")
            self.mechanisms[name] = Mechanism(self._begin(name), self._get(MAX_REAUTH, name))
        if not self.mechanisms:
            raise self._error(MECHANISMS, f"{listener.name} asks for a login, and nobody says by which mechanism")

    def _begin(self, name: str) -> Callable[[], Exchange]:
        """Return what begins a login by a mechanism."""
        line = self._jaas(name)
        handler = self._get(HANDLER, name)
        if handler is not None and name != "OAUTHBEARER":
            raise self._error(self._name(HANDLER, name), "no class of Java runs here; leave it unset")
        if name == "PLAIN":
            return self._plain(line)
        if name == "OAUTHBEARER":
            from minibroker.security.oauth import OAuthExchange

            return partial(OAuthExchange, self._oauth(line, handler))
        return self._scram(name)

    def _jaas(self, mechanism: str) -> JaasLine | None:
        text = self._get(JAAS, mechanism)
        setting = self._name(JAAS, mechanism)
        if text is None:
            return None
        try:
            line = parse_jaas(text)
        except ValueError as error:
            raise self._error(setting, f"it is no JAAS line: {error}") from None
        if line.module != MODULES[mechanism]:
            raise self._error(setting, f"the login module of {mechanism} is {MODULES[mechanism]}")
        for option, value in line.options.items():
            is_user = mechanism == "PLAIN" and option.startswith(USER_OPTION)
            if is_user and (option == USER_OPTION or not value):
                raise self._error(setting, f"its option {option!r} lets nobody in: user_NAME=PASSWORD, neither empty")
            is_own = is_user or (mechanism == "OAUTHBEARER" and option.startswith(OF_TOKENS))
            if not is_own and option not in CLIENT_OPTIONS:
                raise self._error(setting, f"it has an option {option!r}, which means nothing to {mechanism} here")
            if option.startswith(VALIDATOR) and option.removeprefix(VALIDATOR) not in VALIDATOR_OPTIONS:
                known = ", ".join(f"{VALIDATOR}{each}" for each in VALIDATOR_OPTIONS)
                raise self._error(setting, f"it has an option {option!r}, which means nothing; there are {known}")
        return line

    # The mechanisms

    def _plain(self, line: JaasLine | None) -> Callable[[], Exchange]:
        from minibroker.security.plain import PlainExchange

        passwords = {
            option.removeprefix(USER_OPTION): password
            for option, password in (line.options if line is not None else {}).items()
            if option.startswith(USER_OPTION)
        }
        users = self._sources.users
        if users is not None and users.passwords:
            from minibroker.security.users import StoredPasswords

            others = {name: password for name, password in passwords.items() if name not in users.passwords}
            return partial(PlainExchange, others, StoredPasswords(users.passwords, self._sources.image).fits)
        if not passwords:
            raise self._error(
                self._name(JAAS, "PLAIN"),
                f'nobody could come in; {MODULES["PLAIN"]} required user_alice="..."; gives alice a password',
            )
        return partial(PlainExchange, passwords)

    def _scram(self, name: str) -> Callable[[], Exchange]:
        from minibroker.security.scram import (
            ITERATIONS_MIN,
            MECHANISMS,
            SALT_BITS,
            Bearer,
            Credential,
            ScramExchange,
            ScramSource,
            as_text,
            decoy_of,
        )

        sources = self._sources
        number, digest = MECHANISMS[name]

        def find(user: str) -> Credential | None:
            found = sources.image().scram.get((user, number))
            if found is None:
                return None
            return Credential(bytes(found.salt), bytes(found.stored_key), bytes(found.server_key), found.iterations)

        def find_bearer(token_id: str) -> Bearer | None:
            return None if sources.tokens is None else sources.tokens.find_bearer(digest, token_id, sources.now_ms())

        def decoy(user: str) -> Credential:
            usual = next((each.iterations for key, each in sources.image().scram.items() if key[1] == number), 0)
            return decoy_of(digest, sources.secret, user, max(usual, ITERATIONS_MIN))

        def nonce() -> str:
            return as_text(sources.random_bits(SALT_BITS)).decode()

        return partial(ScramExchange, ScramSource(digest, find, find_bearer, decoy, nonce, sources.is_before_4))

    def _oauth(self, line: JaasLine | None, handler: str | None) -> Check:
        """Return what checks tokens: by the keys of a file, or not at all where that is asked for in so many words."""
        options = {} if line is None else line.options
        url = self._get(JWKS_URL, "OAUTHBEARER")
        if handler not in (None, UNSECURED, *SIGNED):
            words = f"no class of Java runs here; {SIGNED[0]} and {UNSECURED} are known by name"
            raise self._error(self._name(HANDLER, "OAUTHBEARER"), words)
        is_unsecured = handler == UNSECURED or (handler is None and url is None and _asks_for_unsecured(options))
        if is_unsecured and url is not None:
            words = "tokens are not to be checked, as the callback handler says, so no keys are read; leave it unset"
            raise self._error(self._name(JWKS_URL, "OAUTHBEARER"), words)
        if is_unsecured:
            self.takes_unsigned = True
            return self._unsecured(options)
        if url is None:
            raise self._error(
                self._name(JWKS_URL, "OAUTHBEARER"),
                "nobody says how tokens are checked: give the file with the keys of who signs them, as "
                f"file:/etc/kafka/jwks.json; or for tests {HANDLER}={UNSECURED}, which takes tokens without a "
                "signature",
            )
        return self._signed(url)

    def _unsecured(self, options: Mapping[str, str]) -> Check:
        from minibroker.security.oauth import ClaimChecks, check_unsecured

        given = {name: options.get(f"{VALIDATOR}{name}", "").strip() for name in VALIDATOR_OPTIONS}
        skew = given["AllowableClockSkewMs"] or "0"
        if not skew.isascii() or not skew.isdigit() or len(skew) > 9:
            raise self._error(
                self._name(JAAS, "OAUTHBEARER"), "unsecuredValidatorAllowableClockSkewMs is to be a number"
            )
        checks = ClaimChecks(
            self._sources.now_ms,
            int(skew),
            given["PrincipalClaimName"] or "sub",
            given["ScopeClaimName"] or "scope",
            given["RequiredScope"].split(),
        )
        return partial(check_unsecured, checks=checks)

    def _signed(self, url: str) -> Check:
        from minibroker.security.jwks import read_jwks
        from minibroker.security.oauth import ClaimChecks, check_signed

        setting = self._name(JWKS_URL, "OAUTHBEARER")
        path = url.removeprefix("file:")
        if not url.startswith("file:") or not path.startswith("/"):
            words = "nothing is fetched from anywhere: save the keys to a file, and write file:/path/of/jwks.json"
            raise self._error(setting, words)
        checks = ClaimChecks(
            self._sources.now_ms,
            1000 * self._of_oauth(SKEW),
            self._of_oauth(NAME_CLAIM),
            self._of_oauth(SCOPE_CLAIM),
            is_strict=True,
            audiences=self._expected(AUDIENCE, ANY_AUDIENCE, "aud"),
            issuer=self._expected(ISSUER, ANY_ISSUER, "iss"),
        )
        try:
            keys = read_jwks(self._sources.read_file(f"/{path.lstrip('/')}"))
        except ModuleNotFoundError:
            raise self._error(setting, INSTALL) from None
        except OSError as error:
            raise self._error(setting, f"the file cannot be read: {error.strerror}") from None
        except ValueError as error:
            raise self._error(setting, f"the file is no set of keys: {error}") from None
        return partial(check_signed, keys=keys, checks=checks)

    def _expected(self, name: str, waiver: str, claim: str) -> Any:
        """Return what a claim has to be, None if it may be anything, as Kafka 4.4 wants it said."""
        expected = self._of_oauth(name)
        if not expected and not self._of_oauth(waiver):
            words = f"the {claim} of tokens is to be checked: set it, or {waiver}=true to take any"
            raise self._error(self._name(name, "OAUTHBEARER"), words)
        return expected or None

    # Reading

    def _of_oauth(self, name: str) -> Any:
        return self._get(name, "OAUTHBEARER")

    def _get(self, name: str, mechanism: str | None = None) -> Any:
        """Return a setting of this listener, and of a mechanism if it is one that each may have."""
        config = self._config
        for key in (self._name(name, mechanism), self._name(name, None)):
            if config.is_set(key):
                return config[key]
        return config[name]

    def _name(self, name: str, mechanism: str | None) -> str:
        of_mechanism = "" if mechanism is None else f"{mechanism.lower()}."
        return f"{LISTENER_PREFIX}{self._listener.name.lower()}.{of_mechanism}{name}"

    def _error(self, name: str, words: str) -> ConfigError:
        return error_of(self._config, name, words)


def _asks_for_unsecured(options: Mapping[str, str]) -> bool:
    return any(option.startswith(OF_TOKENS) for option in options)


def check_scopes(config: BrokerConfig, listeners: Sequence[Listener]) -> None:
    """Raise ConfigError for settings of logins that no listener of these would look at."""
    asking = {listener.name.lower(): listener for listener in listeners if listener.asks_for_login}
    for name in config.static:
        base = without_listener(name)
        if base is None:
            _check_general(config, name, is_asked=bool(asking))
        elif base in FOR_LOGINS or base.startswith("sasl."):
            _check_prefixed(config, name, base, asking)


def _check_general(config: BrokerConfig, name: str, *, is_asked: bool) -> None:
    if name.endswith(JAAS):
        words = f"it belongs to one mechanism of one listener: {LISTENER_PREFIX}NAME.MECHANISM.{JAAS}, in lower case"
        raise error_of(config, name, words)
    if name in FOR_LOGINS and not is_asked and config.static[name] != get_broker_setting(name).default:
        words = "no listener asks for a login; listeners=SASL_PLAINTEXT://127.0.0.1:9092 has one that does"
        raise error_of(config, name, words)


def _check_prefixed(config: BrokerConfig, name: str, base: str, asking: Mapping[str, Listener]) -> None:
    listener, _, rest = name.removeprefix(LISTENER_PREFIX).partition(".")
    if listener not in asking:
        there = ", ".join(asking) or "none"
        raise error_of(config, name, f"no listener {listener!r} asks for a login, in lower case; there is: {there}")
    mechanism = rest.partition(".")[0] if rest != base else None
    if mechanism is None and base in (JAAS, HANDLER):
        words = f"it belongs to a mechanism: {LISTENER_PREFIX}{listener}.MECHANISM.{base}, in lower case"
        raise error_of(config, name, words)
    if mechanism is not None and base in (MECHANISMS, RECEIVE_BYTES):
        raise error_of(config, name, f"it belongs to a listener: {LISTENER_PREFIX}{listener}.{base}")
    key = f"{LISTENER_PREFIX}{listener}.{MECHANISMS}"
    enabled = config[key if config.is_set(key) else MECHANISMS] or ()
    if mechanism is not None and mechanism.upper() not in enabled:
        raise error_of(config, name, f"{mechanism.upper()} is not among the {MECHANISMS} of this listener")


def error_of(config: BrokerConfig, name: str, words: str) -> ConfigError:
    """Return the error for a setting; its value is not in it, which may be a secret."""
    base = without_listener(name) or name
    shown = ",".join(config[name]) if base == MECHANISMS else "(hidden)" if base.endswith(JAAS) else ""
    return ConfigError(config.place_of(name), name, shown, words)

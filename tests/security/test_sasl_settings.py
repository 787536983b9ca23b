"""Settings of logins that are not understood, or would have no effect, stop the start with what to write."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from minibroker.config import BrokerConfig, ConfigError
from tests.broker.virtual_broker import virtual_broker

ASKING = {"listeners": "SASL_PLAINTEXT://127.0.0.1:0"}
PREFIX = "listener.name.sasl_plaintext"
SECURITY = "org.apache.kafka.common.security"
PLAIN = f"{SECURITY}.plain.PlainLoginModule required"
SCRAM = {**ASKING, "sasl.enabled.mechanisms": "SCRAM-SHA-256"}
OAUTH = {**ASKING, "sasl.enabled.mechanisms": "OAUTHBEARER"}
HANDLER = f"{PREFIX}.oauthbearer.sasl.server.callback.handler.class"
SIGNED = {**OAUTH, HANDLER: f"{SECURITY}.oauthbearer.OAuthBearerValidatorCallbackHandler"}
URL = "sasl.oauthbearer.jwks.endpoint.url"
ANY = {"sasl.oauthbearer.allow.unverified.audience": "true", "sasl.oauthbearer.allow.unverified.issuer": "true"}


def start(settings: dict[str, object]) -> None:
    BrokerConfig.from_sources(settings)
    with virtual_broker(settings):
        pass


def plain(line: str) -> dict[str, object]:
    return {**ASKING, "sasl.enabled.mechanisms": "PLAIN", f"{PREFIX}.plain.sasl.jaas.config": line}


TOKENS = f"{SECURITY}.oauthbearer.OAuthBearerLoginModule"
REFUSED: list[tuple[dict[str, object], str]] = [
    (ASKING, "GSSAPI (Kerberos, which it is by default) is not served"),
    ({**ASKING, "sasl.enabled.mechanisms": "GSSAPI"}, "GSSAPI (Kerberos"),
    ({**ASKING, "sasl.enabled.mechanisms": "PLAN"}, "there is no mechanism 'PLAN'; there are PLAIN, SCRAM-SHA-256"),
    ({**ASKING, "sasl.enabled.mechanisms": ""}, "asks for a login, and nobody says by which mechanism"),
    ({**ASKING, "sasl.enabled.mechanisms": "PLAIN"}, "nobody could come in; org.apache.kafka.common.security.plain"),
    (plain("hush"), "it is no JAAS line: behind the login module stands a flag"),
    (plain(f"{PLAIN} user_alice=hush"), "it is no JAAS line: it has to end with ;"),
    (plain(f'{SECURITY}.scram.ScramLoginModule required user_a="hush";'), f"the login module of PLAIN is {SECURITY}"),
    (plain(f'{PLAIN} username="a" password="hush";'), "nobody could come in"),
    (plain(f'{PLAIN} user_a="hush" usr_b="hush";'), "it has an option 'usr_b', which means nothing to PLAIN here"),
    (plain(f'{PLAIN} user_a="";'), "its option 'user_a' lets nobody in: user_NAME=PASSWORD, neither empty"),
    (plain(f'{PLAIN} user_="hush";'), "its option 'user_' lets nobody in"),
    (plain(f'{PLAIN} user_a="hush" user_a="other";'), "the option number 2 has the name of one before it"),
    (
        {**OAUTH, f"{PREFIX}.oauthbearer.sasl.jaas.config": f"{TOKENS} required unsecuredValidatorRequiredScop=kafka;"},
        "'unsecuredValidatorRequiredScop', which means nothing; there are unsecuredValidatorPrincipalClaimName, ",
    ),
    (
        {**OAUTH, f"{PREFIX}.oauthbearer.sasl.jaas.config": f"{TOKENS} required unsecuredScope=kafka;"},
        "it has an option 'unsecuredScope', which means nothing to OAUTHBEARER here",
    ),
    ({**SCRAM, "sasl.jaas.config": "hush"}, "it belongs to one mechanism of one listener"),
    ({**SCRAM, "plain.sasl.jaas.config": "hush"}, "it belongs to one mechanism of one listener"),
    ({**SCRAM, f"{PREFIX}.sasl.jaas.config": "hush"}, "it belongs to a mechanism"),
    ({**SCRAM, f"{PREFIX}.plain.sasl.jaas.config": "hush"}, "PLAIN is not among the sasl.enabled.mechanisms"),
    ({**SCRAM, "listener.name.other.scram-sha-256.sasl.jaas.config": "hush"}, "no listener 'other' asks for a login"),
    ({**SCRAM, "listener.name.SASL_PLAINTEXT.sasl.enabled.mechanisms": "PLAIN"}, "in lower case"),
    ({**SCRAM, f"{PREFIX}.scram-sha-256.sasl.server.callback.handler.class": "x.Y"}, "no class of Java runs here"),
    ({**SCRAM, f"{PREFIX}.scram-sha-256.sasl.enabled.mechanisms": "PLAIN"}, "it belongs to a listener"),
    ({"sasl.enabled.mechanisms": "PLAIN"}, "no listener asks for a login; listeners=SASL_PLAINTEXT://"),
    ({"connections.max.reauth.ms": "1000"}, "no listener asks for a login"),
    ({"sasl.server.max.receive.size": "1000"}, "no listener asks for a login"),
    ({"sasl.oauthbearer.clock.skew.seconds": "1"}, "no listener asks for a login"),
    ({"sasl.oauthbearer.sub.claim.name": "name"}, "no listener asks for a login"),
    ({"listener.name.plaintext.sasl.enabled.mechanisms": "PLAIN"}, "no listener 'plaintext' asks for a login"),
    ({"listener.name.plaintext.connections.max.reauth.ms": "1"}, "no listener 'plaintext' asks for a login"),
    (OAUTH, "nobody says how tokens are checked"),
    ({**OAUTH, HANDLER: "x.Y"}, "no class of Java runs here"),
    (SIGNED, "nobody says how tokens are checked"),
    ({**SIGNED, **ANY, URL: "https://us/keys"}, "nothing is fetched from anywhere: save the keys to a file"),
    ({**SIGNED, **ANY, URL: "file:jwks.json"}, "nothing is fetched"),
    ({**SIGNED, **ANY, URL: "file:/no/such/file"}, "the file cannot be read: No such file"),
    ({**SIGNED, **ANY, URL: f"file:{Path(__file__)}"}, "the file is no set of keys: it is not JSON"),
    ({**SIGNED, URL: "file:/x"}, "the aud of tokens is to be checked"),
    ({**SIGNED, URL: "file:/x", "sasl.oauthbearer.expected.audience": "us"}, "the iss of tokens is to be checked"),
    (
        {
            **OAUTH,
            URL: "file:/x",
            HANDLER: (f"{SECURITY}.oauthbearer.internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler"),
        },
        "so no keys are read; leave it unset",
    ),
    ({"delegation.token.master.key": "hush"}, "its name is delegation.token.secret.key now"),
    ({"sasl.oauthbearer.jwt.validator.class": "x.Y"}, "not supported; leave it"),
    ({"principal.builder.class": "x.Y"}, "not supported; leave it"),
]


@pytest.mark.parametrize(("settings", "words"), REFUSED, ids=[words[:40] for _, words in REFUSED])
def test_the_start_is_refused(settings: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(words)) as refused:
        start(settings)
    assert "hush" not in str(refused.value)


TAKEN = [
    SCRAM,
    {**SCRAM, f"{PREFIX}.scram-sha-256.sasl.jaas.config": f"{SECURITY}.scram.ScramLoginModule required;"},
    {
        **SCRAM,
        "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-256",
        "security.inter.broker.protocol": "SASL_PLAINTEXT",
    },
    plain(f'{PLAIN} username="broker" password="b" user_alice="a";'),
    {
        "listeners": "INSIDE://127.0.0.1:0,OUTSIDE://127.0.0.1:0",
        "listener.security.protocol.map": "INSIDE:PLAINTEXT,OUTSIDE:SASL_PLAINTEXT",
        "listener.name.outside.sasl.enabled.mechanisms": "SCRAM-SHA-512",
    },
    {
        **OAUTH,
        f"{PREFIX}.oauthbearer.sasl.jaas.config": (
            f'{SECURITY}.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="admin";'
        ),
    },
]


@pytest.mark.parametrize("settings", TAKEN)
def test_what_people_write_is_taken(settings: dict[str, object]) -> None:
    start(settings)

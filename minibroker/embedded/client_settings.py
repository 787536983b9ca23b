"""Settings with which the clients of each library find a broker, by the names that the library has for them.

Python's libraries take them as keyword arguments, confluent-kafka, librdkafka and Java as properties, Spark as options;
kafkajs takes them as the JSON of its argument; franz-go has no settings, and is told the addresses and the files.
"""

from __future__ import annotations

from typing import NamedTuple

from minibroker.config.listeners import PLAINTEXT, protocol_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Literal

    Library = Literal[
        "confluent", "librdkafka", "aiokafka", "kafka-python", "java", "spark", "minibroker", "franz-go", "kafkajs"
    ]


class Access(NamedTuple):
    """Where clients begin, and how they come in."""

    bootstrap_servers: str
    uses_tls: bool = False
    mechanism: str | None = None  # by which they log in; None: nobody asks them to
    user: str = ""
    password: str = ""
    ca: str = ""  # file of the certificates that the broker's comes from
    client: str = ""  # file with key and certificate of the client, where it is to show one
    client_store: str = ""  # the same as PKCS12
    store_password: str = ""

    @property
    def protocol(self) -> str:
        return protocol_of(uses_tls=self.uses_tls, asks_for_login=self.mechanism is not None)

    def __repr__(self) -> str:
        return f"Access({self.bootstrap_servers}, {self.protocol})"  # what else is in it is nobody's business


def client_settings(library: str, access: Access) -> dict[str, Any]:
    """Return the settings of a library; ValueError if it is not known."""
    if library not in LIBRARIES:
        raise ValueError(f"{library!r} is none of {', '.join(LIBRARIES)}")
    return {name: value for name, value in LIBRARIES[library](access).items() if value != ""}


def _of_java(access: Access) -> dict[str, Any]:
    found = {"bootstrap.servers": access.bootstrap_servers}
    if access.protocol != PLAINTEXT:
        found["security.protocol"] = access.protocol
    if access.ca:
        found |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": access.ca}
    if access.client_store:
        found |= {
            "ssl.keystore.type": "PKCS12",
            "ssl.keystore.location": access.client_store,
            "ssl.keystore.password": access.store_password,
        }
    if access.user:
        from minibroker.security.sasl_settings import MODULES

        assert access.mechanism
        name, password = (text.replace("\\", r"\\").replace('"', r"\"") for text in (access.user, access.password))
        line = f'{MODULES[access.mechanism]} required username="{name}" password="{password}";'
        found |= {"sasl.mechanism": access.mechanism, "sasl.jaas.config": line}
    return found


def _of_minibroker(access: Access) -> dict[str, Any]:
    """Java's words; our own client takes PEM only."""
    found = _of_java(access._replace(client_store=""))
    if access.client:
        found |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": access.client}
    return found


def _of_spark(access: Access) -> dict[str, Any]:
    return {f"kafka.{name}": value for name, value in _of_java(access).items()}


def _of_librdkafka(access: Access) -> dict[str, Any]:
    return {
        "bootstrap.servers": access.bootstrap_servers,
        "security.protocol": "" if access.protocol == PLAINTEXT else access.protocol,
        "ssl.ca.location": access.ca,
        "ssl.certificate.location": access.client,
        "ssl.key.location": access.client,
        "sasl.mechanism": access.mechanism or "",
        "sasl.username": access.user,
        "sasl.password": access.password,
    }


def _of_kafka_python(access: Access) -> dict[str, Any]:
    return _of_python(access) | {
        "ssl_cafile": access.ca,
        "ssl_certfile": access.client,
        "ssl_keyfile": access.client,
    }


def _of_aiokafka(access: Access) -> dict[str, Any]:
    found = _of_python(access)
    if access.uses_tls:
        import ssl

        found["ssl_context"] = ssl.create_default_context(cafile=access.ca or None)
        if access.client:
            found["ssl_context"].load_cert_chain(access.client)
    return found


def _of_python(access: Access) -> dict[str, Any]:
    return {
        "bootstrap_servers": access.bootstrap_servers,
        "security_protocol": "" if access.protocol == PLAINTEXT else access.protocol,
        "sasl_mechanism": access.mechanism or "",
        "sasl_plain_username": access.user,
        "sasl_plain_password": access.password,
    }


def _of_franz_go(access: Access) -> dict[str, Any]:
    return {
        "brokers": access.bootstrap_servers.split(","),
        "ca_file": access.ca,
        "cert_file": access.client,
        "key_file": access.client,
        "sasl_mechanism": access.mechanism or "",
        "user": access.user,
        "password": access.password,
    }


def _of_kafkajs(access: Access) -> dict[str, Any]:
    found: dict[str, Any] = {"brokers": access.bootstrap_servers.split(",")}
    if access.uses_tls:
        ssl: dict[str, Any] = {"ca": [_text(access.ca)]} if access.ca else {}
        if access.client:
            ssl["cert"] = ssl["key"] = _text(access.client)
        found["ssl"] = ssl or True
    if access.user:
        assert access.mechanism
        login = {"mechanism": access.mechanism.lower(), "username": access.user, "password": access.password}
        found["sasl"] = login
    return found


def _text(path: str) -> str:
    with open(path, encoding="ascii") as file:
        return file.read()


LIBRARIES: dict[str, Callable[[Access], dict[str, Any]]] = {
    "confluent": _of_librdkafka,
    "librdkafka": _of_librdkafka,
    "aiokafka": _of_aiokafka,
    "kafka-python": _of_kafka_python,
    "java": _of_java,
    "spark": _of_spark,
    "minibroker": _of_minibroker,
    "franz-go": _of_franz_go,
    "kafkajs": _of_kafkajs,
}

"""Records what Kafka answers to the cases of acl_cases.py: `python -m tests.security.record_acls 3.9.2 FILE`.

Needs Java 17 and Maven, and takes two minutes. The administrator comes through a listener in plain text, where
everybody is User:ANONYMOUS, and alice and bob log in by SASL/PLAIN on another one.
"""

from __future__ import annotations

import json
import lzma
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from minibroker.protocol.framing import decode_response
from minibroker.protocol.headers import Request
from tests.differential.kafka import Kafka, _free_ports
from tests.differential.wire import ANSWER, Side
from tests.security.acl_cases import ADMIN, request_of
from tests.security.acl_play import ADMIN as ADMIN_NAME
from tests.security.acl_play import Play, framed

PASSWORD, TOKEN_KEY = "a-secret", "the-key-of-tokens"
FEATURES_OFF = ("share.version=0", "streams.version=0")  # as ours; there is something to switch off since 4.0
AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


class KafkaPlay(Play):
    def pause(self) -> None:
        time.sleep(0.02)


class Sides:
    """Connections of the administrator, who does not log in, and of those who do."""

    def __init__(self, plain: str, login: str):
        self.login = login
        self._of = {ADMIN_NAME: Side(plain)}

    def _side(self, who: str) -> Side:
        if who not in self._of:
            side = self._of[who] = Side(self.login)
            handshake, authenticate = request_of(17), request_of(36)
            _answer(side, handshake(mechanism="PLAIN"), 1)
            made = _answer(side, authenticate(auth_bytes=f"\0{who}\0{PASSWORD}".encode()), 1)
            assert made.error_code == 0, made
        return self._of[who]

    def ask(self, request: Request, version: int, who: str) -> Any:
        found = _answer(self._side(who), request, version)
        if found is None:
            del self._of[who]
        return found


def _answer(side: Side, request: Request, version: int) -> Any:
    side.send(framed(request, version))
    outcome = side.receive(5.0)
    return decode_response(outcome.frame, request.api, version)[1] if outcome.kind == ANSWER else None


def unused_address() -> str:
    return f"127.0.0.1:{_free_ports(1)[0]}"


def settings(address: str, controller: str, login: str) -> dict[str, str]:
    return {
        "listeners": f"PLAINTEXT://{address},CONTROLLER://{controller},SASL_PLAINTEXT://{login}",
        "advertised.listeners": f"PLAINTEXT://{address},SASL_PLAINTEXT://{login}",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
            "org.apache.kafka.common.security.plain.PlainLoginModule required "
            f'user_alice="{PASSWORD}" user_bob="{PASSWORD}";'
        ),
        "authorizer.class.name": AUTHORIZER,
        "super.users": ADMIN,
        "delegation.token.secret.key": TOKEN_KEY,
    }


def record(version: str) -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as directory:
        kafka = Kafka(version, Path(directory) / "kafka", features=FEATURES_OFF if version >= "4" else ())
        controller = kafka.settings["controller.quorum.voters"].partition("@")[2]
        login = unused_address()
        kafka.settings |= settings(kafka.address, controller, login)
        with kafka:
            sides = Sides(kafka.address, login)
            served = sides.ask(request_of(18)(client_software_name="a", client_software_version="1"), 3, ADMIN_NAME)
            versions = {each.api_key: (each.min_version, each.max_version) for each in served.api_keys}
            play = KafkaPlay(sides.ask, version[:3], versions)
            rows = []
            for case, variation, number, answer in play.answers():
                rows.append({"case": case, "rules": variation, "version": number, "answer": answer})
            return rows


def main(version: str, target: Path) -> None:
    rows = record(version)
    text = "".join(json.dumps(row, separators=(",", ":")) + "\n" for row in rows)
    target.write_bytes(lzma.compress(text.encode(), preset=9 | lzma.PRESET_EXTREME))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))

"""A login by SCRAM in a lesson, message by message; and who listens on the wire, and guesses.

    connect anna        a connection, and SaslHandshake
    say first anna as alice     n,,n=alice,r=NONCE              r=NONCE AND MORE,s=SALT,i=4096
    say final anna with secret  c=biws,r=NONCE AND MORE,p=PROOF      v=SIGNATURE
    check anna          whether the broker knows the password as well

What must hold: what is told was sent or has come, byte for byte; clients come through the brokers' ports.
Not here: what a broker makes of it (security/scram.py).
"""

from __future__ import annotations

import hashlib
import hmac
from base64 import b64decode, b64encode
from collections.abc import Callable
from typing import Any

from minibroker.client.connection import CallTimeout, Connection, ConnectionLost
from minibroker.client.security import SCRAM, Scram, Security
from minibroker.errors import Error, KafkaError
from minibroker.lessons.clients import PATIENCE_MS, NotPossible, Unanswered, check
from minibroker.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from minibroker.protocol.messages.sasl_handshake import SaslHandshakeRequest

TYPE_CHECKING = False
if TYPE_CHECKING:
    from random import Random

NONCE_BITS, LETTERS = 6 * 16, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
CHANGES: dict[str, Callable[[str, str], str]] = {  # of the nonce in the last message, made of all of it and one's own
    "own": lambda whole, own: own,
    "other": lambda whole, own: whole[:-1] + ("A" if whole[-1] != "A" else "B"),
}


class Talk:
    """One client that logs in, and all that has been said; who listens knows it, too."""

    def __init__(self, name: str, connection: Connection, broker: int, mechanism: str):
        self.name = name
        self.broker = broker
        self.mechanism = mechanism
        self.first = self.challenge = self.final = self.verdict = ""
        self.user = ""
        self.own_nonce = ""
        self._connection = connection
        self._scram: Scram | None = None

    async def say_first(self, user: str, nonce: str) -> list[str]:
        """Say who one is, and get a challenge."""
        self.user, self.own_nonce = user, nonce
        return await self.send_first(f"n,,n={user.replace('=', '=3D').replace(',', '=2C')},r={nonce}")

    async def send_first(self, text: str) -> list[str]:
        """Send a first message as it is; tell what is in it, and in the answer."""
        self.first = text
        fields = _fields(text)
        self.challenge = await self._ask(text)
        answered = _fields(self.challenge)
        more = len(answered["r"]) - len(fields["r"])
        return [
            f"{self.name} sends {text}",
            "n,, is for: no channel binding, and nobody else to act for",
            f"n={fields['n']}: a name that everybody can read",
            f"r={fields['r']}: a nonce, a number used once, that {self.name} has made up",
            f"broker {self.broker} answers in three parts:",
            f"r={answered['r']}: that nonce, and {more} characters that the broker has made up",
            f"s={answered['s']}: the salt of the password, {len(b64decode(answered['s']))} bytes in base64",
            f"i={answered['i']}: rounds of hashing that each guess costs",
        ]

    async def say_final(self, password: str, change: str | None) -> list[str]:
        """Prove that one knows the password; change: what is done to the nonce."""
        self._check_challenge()
        self._scram = Scram(SCRAM[self.mechanism], self.user, password, self.own_nonce)
        self._scram.first()
        challenge = self.challenge
        if change is not None:
            nonce = _fields(challenge)["r"]
            changed = CHANGES[change](nonce, self.own_nonce)
            salted = challenge.replace(nonce, changed)
            return await self.send_final(_final_with(self._digest, self.first, salted, password))
        return await self.send_final(self._scram.final(challenge.encode()).decode())

    async def send_final(self, text: str) -> list[str]:
        """Send a last message as it is."""
        self._check_challenge()
        self.final = text
        fields = _fields(text)
        whole = _fields(self.challenge)["r"]
        what = "the whole nonce" if fields["r"] == whole else "another nonce than the broker's"
        if whole.startswith(fields["r"]) and fields["r"] != whole:
            what = "the first part of the nonce alone"
        try:
            self.verdict = await self._ask(text)
        except KafkaError as error:
            error.message = f"{self.name} sends r={fields['r']}, {what}; broker {self.broker} answers: {error.message}"
            raise
        return [
            f"{self.name} sends three parts:",
            f"c={fields['c']}: base64 of {b64decode(fields['c']).decode()} that the first message began with",
            f"r={fields['r']}: {what}",
            f"p={fields['p']}: the proof, ClientKey XOR HMAC(StoredKey, all that was said)",
            f"broker {self.broker} answers v={_fields(self.verdict)['v']}: HMAC(ServerKey, all that was said)",
        ]

    def check(self) -> list[str]:
        """Look whether the broker knows the password, as clients do before they say anything else."""
        if self._scram is None or not self.verdict:
            raise NotPossible(f"{self.name} has nothing to check: say final {self.name} with PASSWORD")
        try:
            self._scram.check(self.verdict.encode())
        except KafkaError:
            return [f"{self.name} reckons another v: who answers does not know the password of {self.user}"]
        return [f"{self.name} reckons the same v: who answers knows the password of {self.user}, or what is made of it"]

    def guess(self, password: str) -> list[str]:
        """Try a password as somebody would who has heard all that was said, and asks nobody."""
        if not self.final:
            raise NotPossible(f"{self.name} has not said enough: a proof is needed")
        reckoned = _final_with(self._digest, self.first, self.challenge, password)
        fits = _fields(reckoned)["p"] == _fields(self.final)["p"]
        return [f'"{password}" {"fits: that is the password" if fits else "does not fit"}']

    def overheard(self) -> list[str]:
        """Tell what has gone over the wire, and what has not."""
        heard = {
            "the name": self.first,
            "both nonces": self.challenge,
            "the salt": self.challenge,
            "the rounds": self.challenge,
            "the proof": self.final,
            "v": self.verdict,
        }
        known = [what for what, text in heard.items() if text]
        return [
            f"on the wire: {', '.join(known)}",
            "not on the wire: the password, its hash, and the keys that are made of it",
        ]

    @property
    def _digest(self) -> str:
        return SCRAM[self.mechanism]

    def _check_challenge(self) -> None:
        if not self.challenge:
            raise NotPossible(f"{self.name} has no challenge yet: say first {self.name} as NAME")

    async def _ask(self, text: str) -> str:
        answer = await _call(self._connection, self.broker, SaslAuthenticateRequest(auth_bytes=text.encode()))
        if answer.error_code:
            raise KafkaError(Error(answer.error_code), answer.error_message or "")
        return bytes(answer.auth_bytes).decode()

    async def close(self) -> None:
        await self._connection.close()


class Talks:
    """All of a lesson, by the names of the clients."""

    def __init__(self, chance: Random):
        self._chance = chance
        self._talks: dict[str, Talk] = {}

    async def connect(self, name: str, broker: int, address: tuple[str, int], mechanism: str) -> list[str]:
        """Open a connection and say by which mechanism one will log in."""
        before = self._talks.pop(name, None)
        if before is not None:
            await before.close()
        try:
            connection = await Connection.open(*address, client_id=name, timeout_ms=PATIENCE_MS)
        except (CallTimeout, ConnectionLost) as error:
            raise Unanswered(Error.NETWORK_EXCEPTION, f"broker {broker} does not answer") from error
        try:
            answer = await _call(connection, broker, SaslHandshakeRequest(mechanism=mechanism))
            offered = ", ".join(answer.mechanisms)
            check(answer.error_code, f"broker {broker} offers {offered or 'no login'}")
        except KafkaError:
            await connection.close()
            raise
        self._talks[name] = Talk(name, connection, broker, mechanism)
        return [f"broker {broker} answers: it offers {offered}"]

    def find(self, name: str) -> Talk:
        if name not in self._talks:
            raise NotPossible(f"{name} has no connection: connect {name}")
        return self._talks[name]

    def new_nonce(self) -> str:
        number = self._chance.getrandbits(NONCE_BITS)
        return "".join(LETTERS[number >> place & 63] for place in range(0, NONCE_BITS, 6))

    async def close(self) -> None:
        for talk in self._talks.values():
            await talk.close()


def login_of(user: str, password: str) -> Security | None:
    """Return how somebody logs in, of whom the lesson tells no messages."""
    login = f'LoginModule required username="{user}" password="{password}";'
    return Security.of(
        {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "SCRAM-SHA-256", "sasl.jaas.config": login}
    )


async def _call(connection: Connection, broker: int, request: Any) -> Any:
    try:
        return await connection.call(request, timeout_ms=PATIENCE_MS)
    except (CallTimeout, ConnectionLost) as error:
        raise Unanswered(Error.NETWORK_EXCEPTION, f"broker {broker} has closed the connection") from error


def _fields(text: str) -> dict[str, str]:
    return {part[0]: part[2:] for part in text.split(",") if part[1:2] == "="}


def _final_with(digest: str, first: str, challenge: str, password: str) -> str:
    """Return a last message with the proof of a password, for what has been said."""
    fields = _fields(challenge)
    salted = hashlib.pbkdf2_hmac(digest, password.encode(), b64decode(fields["s"]), int(fields["i"]))
    client_key = hmac.digest(salted, b"Client Key", digest)
    without_proof = f"c=biws,r={fields['r']}"
    signed = f"{first.removeprefix('n,,')},{challenge},{without_proof}".encode()
    mask = hmac.digest(hashlib.new(digest, client_key).digest(), signed, digest)
    proof = bytes(one ^ other for one, other in zip(client_key, mask, strict=True))
    return f"{without_proof},p={b64encode(proof).decode()}"

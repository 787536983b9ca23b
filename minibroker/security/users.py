"""Users that a start is given: passwords for PLAIN, and credentials for SCRAM that are written into the metadata.

    alice:secret                                                 as `serve --user` has it
    SCRAM-SHA-256=[name=alice,password=secret]                   as `kafka-storage format --add-scram` has it
    SCRAM-SHA-512=[name=alice,iterations=8192,salt="c2FsdA==",saltedpassword="..."]

What must hold: no error names a password. What is stored already and fits is not written again.
"""

from __future__ import annotations

import hashlib
import hmac
from base64 import b64decode
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from operator import is_
from typing import NamedTuple

from minibroker.errors import Error, KafkaError
from minibroker.metadata.features import SCRAM
from minibroker.security.scram import DIGESTS, ITERATIONS_MAX, ITERATIONS_MIN, MECHANISMS, credential_of, new_salt
from minibroker.security.scram import salted_password as salt_password
from minibroker.stored.security import UserScramCredentialRecord

TYPE_CHECKING = False
if TYPE_CHECKING:
    from random import Random

    from minibroker.metadata.image import MetadataImage


class ScramUser(NamedTuple):
    """A password for one mechanism, or what has been made of it."""

    name: str
    mechanism: int
    iterations: int = ITERATIONS_MIN
    salt: bytes | None = None
    password: str = ""
    salted_password: bytes | None = None

    def __repr__(self) -> str:
        return f"ScramUser({self.name!r})"


class Users:
    """All of a start."""

    def __init__(self, passwords: Mapping[str, str], scram: Iterable[ScramUser] = ()):
        """passwords: by name, for PLAIN and both mechanisms of SCRAM. scram: for one mechanism each."""
        self.passwords = dict(passwords)
        given: list[object] = [*self.passwords, *self.passwords.values()]
        if not all(isinstance(each, str) and each for each in given):
            raise ValueError("users are names with passwords, neither of them empty: {'alice': 'secret'}")
        both = [
            ScramUser(name, mechanism, password=password)
            for name, password in self.passwords.items()
            for mechanism in DIGESTS
        ]
        self.scram = (*both, *scram)
        counts = Counter((each.name, each.mechanism) for each in self.scram[len(both) :])
        if doubled := sorted({name for (name, _), count in counts.items() if count > 1}):
            raise ValueError(f"{', '.join(doubled)} is given two credentials for one mechanism: one of them is enough")
        if twice := self.passwords.keys() & {each.name for each in self.scram[len(both) :]}:
            raise ValueError(f"{', '.join(sorted(twice))} is given a password and a credential: one of them is enough")

    @property
    def mechanisms(self) -> str:
        """What listeners have to offer for them, as sasl.enabled.mechanisms has it."""
        numbers = {each.mechanism for each in self.scram}
        scram = [name for name, (number, _) in MECHANISMS.items() if number in numbers]
        return ",".join([*(["PLAIN"] if self.passwords else []), *scram])

    def __repr__(self) -> str:
        return f"Users({', '.join(map(repr, self.passwords))})"

    def records(
        self, image: MetadataImage, chance: Random, say: Callable[[str], object]
    ) -> list[UserScramCredentialRecord]:
        """Return what is to be written so that they can come in by SCRAM; say of whom something else is stored."""
        records = list(self._records(image, chance))
        if records and image.metadata_version < SCRAM:
            words = "The current metadata.version does not support SCRAM: raise it to 3.5-IV2 or above"
            raise KafkaError(Error.UNSUPPORTED_VERSION, words)
        if others := {each.name for each in records if (each.name, each.mechanism) in image.scram}:
            names = ", ".join(sorted(others))
            say(f"the data directory had another password of {names}: that of this start is taken")
        return records

    def _records(self, image: MetadataImage, chance: Random) -> Iterator[UserScramCredentialRecord]:
        for user in self.scram:
            stored = image.scram.get((user.name, user.mechanism))
            if stored is None or not _fits(user, stored):
                salt = new_salt(chance) if user.salt is None else user.salt
                credential = credential_of(DIGESTS[user.mechanism], _salted(user, salt), salt, user.iterations)
                yield UserScramCredentialRecord(
                    name=user.name,
                    mechanism=user.mechanism,
                    salt=credential.salt,
                    stored_key=credential.stored_key,
                    server_key=credential.server_key,
                    iterations=credential.iterations,
                )


class StoredPasswords:
    """Passwords of users of a start for PLAIN: what is stored for SCRAM counts, for it can be changed and removed."""

    def __init__(self, names: Iterable[str], image: Callable[[], MetadataImage]):
        self._names = frozenset(names)
        self._image = image
        self._right: dict[str, tuple[list[UserScramCredentialRecord], bytes]] = {}  # the last one, and what it fits

    def fits(self, name: str, password: str) -> bool:
        """Return whether a password is right; who is not there takes as long as who has the fewest rounds."""
        scram = self._image().scram if name in self._names else {}
        found = [scram.get((name, mechanism)) for mechanism in DIGESTS]
        stored = [each for each in found if each is not None]
        given = hashlib.sha256(password.encode("utf-8", "surrogateescape")).digest()
        known, right = self._right.get(name, ([], b""))
        if stored and len(stored) == len(known) and all(map(is_, stored, known)) and hmac.compare_digest(right, given):
            return True
        is_right = False
        for mechanism, each in zip(DIGESTS, found, strict=True):
            iterations = ITERATIONS_MIN if each is None else each.iterations
            user = ScramUser(name, mechanism, iterations, password=password)
            if each is None:
                salt_password(DIGESTS[mechanism], password, b"nobody's", iterations)
            elif _fits(user, each):
                is_right = True
        if is_right:
            self._right[name] = stored, given
        return is_right


def _salted(user: ScramUser, salt: bytes) -> bytes:
    if user.salted_password is not None:
        return user.salted_password
    return salt_password(DIGESTS[user.mechanism], user.password, salt, user.iterations)


def _fits(user: ScramUser, stored: UserScramCredentialRecord) -> bool:
    """Return whether what is stored was made of this. A password may be stored with more rounds than are asked for."""
    salt = bytes(stored.salt)
    if user.salt not in (None, salt):
        return False
    if stored.iterations != user.iterations:
        if user.salted_password is not None or stored.iterations < user.iterations:
            return False
        user = user._replace(iterations=stored.iterations)
    made = credential_of(DIGESTS[user.mechanism], _salted(user, salt), salt, user.iterations)
    return hmac.compare_digest(made.stored_key, bytes(stored.stored_key))


def parse_user(text: str) -> tuple[str, str]:
    """Return name and password of NAME:PASSWORD; ValueError if it is not."""
    name, _, password = text.partition(":")
    if not name or not password:
        raise ValueError("a user is NAME:PASSWORD")
    return name, password


def parse_scram_user(text: str) -> ScramUser:
    """Read MECHANISM=[name=...,password=...]; ValueError if it is not."""
    mechanism, equals, rest = text.strip().partition("=")
    if not equals or mechanism not in MECHANISMS:
        raise ValueError(f"a credential begins with one of {', '.join(f'{each}=' for each in MECHANISMS)}")
    if not rest.startswith("[") or not rest.endswith("]"):
        raise ValueError(f"behind {mechanism}= stands [name=...,password=...]")
    found: dict[str, str] = {}
    for number, part in enumerate(rest[1:-1].split(","), 1):
        key, equals, value = part.partition("=")
        if not equals:
            raise ValueError(f"its part number {number} is no NAME=VALUE (a comma cannot stand in a password here)")
        if key in found:
            raise ValueError(f"it has {key!r} twice")
        found[key] = value[1:-1] if len(value) >= 2 and value[0] == value[-1] == '"' else value
    name, password = found.pop("name", ""), found.pop("password", "")
    salt, salted = (_from_base64(key, found.pop(key, None)) for key in ("salt", "saltedpassword"))
    iterations = found.pop("iterations", str(ITERATIONS_MIN))
    if found:
        raise ValueError(
            f"it has no {', '.join(map(repr, found))}; it has name, password, iterations, salt and saltedpassword"
        )
    if not name:
        raise ValueError("it has no name")
    if salted is not None and len(salted) != hashlib.new(DIGESTS[MECHANISMS[mechanism][0]]).digest_size:
        raise ValueError(f"its saltedpassword has {len(salted)} bytes, which {mechanism} never makes")
    if not password and (salted is None or salt is None):
        raise ValueError("it has neither a password nor a salt with a saltedpassword")
    is_number = iterations.isascii() and iterations.isdigit() and len(iterations) < 9
    if not is_number or not ITERATIONS_MIN <= int(iterations) <= ITERATIONS_MAX:
        raise ValueError(f"its iterations are {ITERATIONS_MIN} to {ITERATIONS_MAX}")
    return ScramUser(name, MECHANISMS[mechanism][0], int(iterations), salt, password, None if password else salted)


def _from_base64(key: str, text: str | None) -> bytes | None:
    try:
        return None if text is None else b64decode(text, validate=True)
    except ValueError:
        raise ValueError(f"its {key} is not base64") from None

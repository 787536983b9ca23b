"""Principal: who a client is, as ACLs, quotas and tokens name it (KafkaPrincipal)."""

from __future__ import annotations

from typing import Final, NamedTuple

USER: Final = "User"


class Principal(NamedTuple):
    type: str
    name: str

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"


ANONYMOUS: Final = Principal(USER, "ANONYMOUS")  # whoever did not have to say


def parse_principal(text: str) -> Principal:
    """Read TYPE:NAME; ValueError if it is not."""
    kind, colon, name = text.partition(":")
    if not (kind and colon):
        raise ValueError(f"{text!r} is no principal: that is a type and a name, as User:alice")
    return Principal(kind, name)

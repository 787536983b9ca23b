"""What a data directory holds of security that this start passes over: said once, for who relies on it is mistaken."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from minibroker.config import BrokerConfig
    from minibroker.metadata.image import MetadataImage

NAMES_MAX, LETTERS_MAX = 5, 50  # that are said


def say_what_is_unused(image: MetadataImage, config: BrokerConfig, say: Callable[[str], object]) -> None:
    """Say that passwords let nobody in, and rules keep nobody out."""
    if image.scram:
        from minibroker.config.listeners import client_listeners

        if not any(listener.asks_for_login for listener in client_listeners(config)):
            names = sorted({name for name, _ in image.scram})
            more = f" and {len(names) - NAMES_MAX} more" if len(names) > NAMES_MAX else ""
            whose = ", ".join(ascii(name[:LETTERS_MAX])[1:-1] for name in names[:NAMES_MAX]) + more
            say(
                f"the data directory has passwords of {whose}, and nobody is asked for one: no listener asks for a "
                "login (listeners=SASL_PLAINTEXT://..., or --user)"
            )
    if image.acls and not config["authorizer.class.name"]:
        rules = "an access rule" if len(image.acls) == 1 else f"{len(image.acls)} access rules"
        say(f"the data directory has {rules}, and nobody is kept out: authorizer.class.name is not set")

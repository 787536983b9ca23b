"""The kinds of events that an audit wants: who came in, who was denied what, and who changed users, rules and quotas.

What must hold: no secret is in any of it.
Names are taken from event_kinds.py, where all kinds are.
"""

from __future__ import annotations

from minibroker.events import Event


class Login(
    Event,
    kind="login",
    line="login b{e.broker} {e.user} {e.mechanism} {e.state}",
    sentence="The login of {e.user} by {e.mechanism} from {e.address} at listener {e.listener} of broker {e.broker} "
    "{e.state}, because {e.why}.",
):
    """A client has logged in, or again, could not, or its session is over."""

    broker: int
    listener: str
    user: str  # as the client says it, in quotation marks
    mechanism: str
    state: str  # "succeeds", "fails" or "has expired"
    why: str
    address: str = ""  # of the client
    error: str = ""  # Kafka's name of it
    is_again: bool = False  # who had come in already has to say it again


class Certificate(
    Event,
    kind="certificate",
):
    """A client has shown a certificate, and has a name by it, or none."""

    broker: int
    listener: str
    address: str
    principal: str  # "": it gets none, and is closed
    why: str = "its certificate says so"

    @property
    def line(self) -> str:
        return f"certificate b{self.broker} {self.address} {self.principal or 'refused'}"

    @property
    def sentence(self) -> str:
        what = f"is {self.principal}" if self.principal else "is refused"
        return (
            f"The client at {self.address} {what} at listener {self.listener} of broker {self.broker}, "
            f"because {self.why}."
        )


class AccessDecision(Event):
    """Whether a client may do something."""

    broker: int
    principal: str
    address: str
    listener: str
    client: str  # its id, if it has one
    request: str  # the API that it asked for
    operation: str
    resource: str
    why: str


class Denied(
    AccessDecision,
    kind="denied",
    line="denied b{e.broker} {e.principal} {e.operation} {e.resource} {e.request}",
    sentence="Broker {e.broker} denied {e.principal} from {e.address} to {e.operation} {e.resource}, which {e.request} "
    "needs, because {e.why}.",
):
    """A client wanted to do what it may not."""


class Allowed(
    AccessDecision,
    kind="allowed",
    line="allowed b{e.broker} {e.principal} {e.operation} {e.resource} {e.request}",
    sentence="Broker {e.broker} allowed {e.principal} from {e.address} to {e.operation} {e.resource}, which "
    "{e.request} needs, because {e.why}.",
    by_name=True,
):
    """A client did what it may."""


class Administration(
    Event,
    kind="administration",
):
    """Somebody wanted to change users, rules, tokens or quotas."""

    broker: int  # that was asked
    principal: str
    address: str
    listener: str
    thing: str  # "user", "rule", "token" or "quota"
    wish: str  # such as "make the rule ALLOW User:alice to READ TOPIC:orders"
    error: str = ""  # Kafka's name of it; "": it was done

    @property
    def line(self) -> str:
        return f"administration b{self.broker} {self.principal} {self.thing}: {self.wish}: {self.error or 'done'}"

    @property
    def sentence(self) -> str:
        outcome = f"answered {self.error}" if self.error else "it was done"
        return f"Broker {self.broker} was asked by {self.principal} from {self.address} to {self.wish}, and {outcome}."

"""Parts of Kafka that nobody uses here, as a broker answers for which they are not set up.

Share groups and streams groups are switched off: the features share.version and streams.version are 0. Their APIs are
announced all the same, as every Kafka 4 announces them: clients tell releases apart by the list of APIs.
Where the error stands in an answer is known from the schema (faults/answers.py).
"""

from __future__ import annotations

from minibroker.broker.dispatch import Context
from minibroker.errors import Error
from minibroker.faults.answers import Fault, refuse_in_pieces
from minibroker.protocol.headers import Request, Response
from minibroker.turns import Work

OFF = Fault(Error.UNSUPPORTED_VERSION, None)
OFF_WITH_WORDS = Fault(Error.UNSUPPORTED_VERSION, "The version of API is not supported.")


def _no_state(doing: str) -> Fault:
    """Return what a broker says to brokers who take it for the coordinator of a share group's state."""
    return Fault(Error.NOT_COORDINATOR, f"Unable to {doing}: This is not the correct coordinator.")


FAULTS = {
    76: OFF,
    77: OFF,
    78: OFF,
    79: OFF,
    83: _no_state("initialize share group state"),
    84: _no_state("read share group state"),
    85: _no_state("write share group state"),
    86: _no_state("delete share group state"),
    87: _no_state("read share group state summary"),
    88: OFF,
    89: OFF,
    90: OFF,
    91: OFF_WITH_WORDS,
    92: OFF_WITH_WORDS,
    93: OFF,
}


def refuse(request: Request, context: Context) -> Work[Response]:
    """Answer with the error of the API, for all that the request names."""
    return refuse_in_pieces(request, request.api, context.api_version, FAULTS[request.api], keeps_empty=True)

"""Row of the view of transactions that HTTP, Python and lessons show; broker/transaction_view.py fills it in."""

from __future__ import annotations

from typing import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Place = tuple[str, int]  # topic and partition


class TransactionView(NamedTuple):
    """A transactional id as its coordinator has it."""

    id: str
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    start_ms: int | None  # since 1970; None: no transaction is open
    partitions: list[Place]  # of the transaction; of one that ends: those whose marker is not written yet
    coordinator: int


def view_as_json(view: TransactionView) -> dict[str, Any]:
    return view._asdict()


def view_from_json(row: dict[str, Any]) -> TransactionView:
    fields: dict[str, Any] = {**row, "partitions": [(topic, number) for topic, number in row["partitions"]]}
    return TransactionView(**fields)

"""Functions over batches of Arrow, for all rows of a frame: `DataFrame.mapInArrow` that does not ask for pandas.

PySpark up to now refuses it where pandas is not installed, though nothing of pandas is used, neither here nor in the
workers. What its method does behind that question is done here; a session of Spark Connect needs pandas anyway.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import Any

TYPE_CHECKING = False
if TYPE_CHECKING:
    import pyarrow as pa

    ArrowFunction = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def map_in_arrow(frame: Any, function: ArrowFunction, schema: str) -> Any:
    """Return the frame of what the function yields, which gets arrays that are null as empty ones.

    schema: its columns, as DDL.
    """
    frame = with_arrays(frame)
    if find_spec("pandas") is None and hasattr(frame, "_jdf"):
        return _mapped(frame, function, schema)
    return frame.mapInArrow(function, schema)


def with_arrays(frame: Any) -> Any:
    """Return rows whose arrays are empty where they were null.

    Spark (4.0 to 4.2 at least) looks after each row how large a batch of Arrow has become, and for that goes through
    all rows behind the last one with an array: 10,000 rows without headers took 50 million steps.
    """
    from pyspark.sql import functions as sql  # pyright: ignore

    arrays = {name: kind for name, kind in frame.dtypes if kind.startswith("array<")}
    if not arrays:
        return frame
    return frame.withColumns({name: sql.coalesce(name, sql.array().cast(kind)) for name, kind in arrays.items()})


def _mapped(frame: Any, function: ArrowFunction, schema: str) -> Any:
    from pyspark.sql import DataFrame  # pyright: ignore
    from pyspark.sql.udf import UserDefinedFunction  # pyright: ignore
    from pyspark.util import PythonEvalType  # pyright: ignore

    kind = PythonEvalType.SQL_MAP_ARROW_ITER_UDF
    column = UserDefinedFunction(function, returnType=schema, evalType=kind)(*(frame[name] for name in frame.columns))
    return DataFrame(frame._jdf.mapInArrow(column._jc, False, None), frame.sparkSession)

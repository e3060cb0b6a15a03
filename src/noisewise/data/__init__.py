"""Observations: one id per mode and a value, from any kind of table."""

from noisewise.data.ids import Codes, Ids
from noisewise.data.observations import (
    Observations,
    encode_cells,
    encode_ids,
    id_columns,
    observe,
    warn_of_types,
    warn_of_unknown,
)

__all__ = [
    "Codes", "Ids", "Observations", "encode_cells", "encode_ids", "id_columns", "observe",
    "warn_of_types", "warn_of_unknown",
]  # fmt: skip

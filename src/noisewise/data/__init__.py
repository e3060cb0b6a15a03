"""Observations: one id per mode and a value, from any kind of table."""

from noisewise.data.ids import Codes, Ids
from noisewise.data.observations import (
    Duplicates,
    Observations,
    assemble,
    encode_cells,
    encode_ids,
    id_columns,
    observe,
    warn_of_types,
    warn_of_unknown,
)
from noisewise.data.tables import Column

__all__ = [
    "Codes",
    "Column",
    "Duplicates",
    "Ids",
    "Observations",
    "assemble",
    "encode_cells",
    "encode_ids",
    "id_columns",
    "observe",
    "warn_of_types",
    "warn_of_unknown",
]

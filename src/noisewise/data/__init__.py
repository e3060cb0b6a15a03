"""Observations: one id per mode and a value, from any kind of table."""

from noisewise.data.duplicates import Duplicates
from noisewise.data.ids import Codes, Ids
from noisewise.data.observations import (
    Observations,
    assemble,
    encode_cells,
    encode_ids,
    id_columns,
    observe,
)
from noisewise.data.tables import Column
from noisewise.data.unknown import warn_of_types, warn_of_unknown

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

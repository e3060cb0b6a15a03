"""Observations: one id per mode and a value, from any kind of table."""

from noisewise.observations.duplicates import Duplicates
from noisewise.observations.ids import Codes, Ids
from noisewise.observations.observations import (
    Observations,
    assemble,
    encode_cells,
    encode_ids,
    id_columns,
    observe,
)
from noisewise.observations.tables import Column
from noisewise.observations.unknown import warn_of_types, warn_of_unknown

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

"""Tables of features as a file has them: how columns are encoded, ids, and a sparse matrix."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse

from noisewise import schema
from noisewise.data.features import MOST_FEATURES, SideTable
from noisewise.data.fields import Field
from noisewise.models.model_file import pack_ids, unpack_ids
from noisewise.schema import Place, Source
from noisewise.storage import Damaged, Tensors, shown

KINDS = ("category", "words", "number", "array")


class TablesOfModes(NamedTuple):
    """A field of a schema that is the features of modes; a file without any has none."""

    name: str
    of: Place
    modes: tuple[str, ...]

    def write(self, value: dict[int, SideTable], header: dict[str, Any], tensors: Tensors) -> None:
        """Put fields into the header, ids and matrices among the tensors."""
        entries = []
        for mode, table in value.items():
            prefix = f"{self.name}{mode}"
            ids, own = pack_ids(table.ids, prefix)
            entries.append({"mode": mode, "ids": ids, "fields": [vars(f) for f in table.fields]})
            tensors |= own | {
                f"{prefix}.starts": table.matrix.indptr.astype(np.int64),
                f"{prefix}.columns": table.matrix.indices.astype(np.int32),
                f"{prefix}.values": table.matrix.data.astype(np.float32),
            }
        if entries:
            header[self.name] = entries

    def read(self, source: Source) -> dict[int, SideTable]:
        """Return the tables, as a file that is not trusted has them."""
        entries = source.header.get(self.name, [])
        if not isinstance(entries, list):
            raise Damaged(f"{self.name} is {shown(entries)}")
        found: dict[int, SideTable] = {}
        for entry in entries:
            mode = schema.integer(most=len(self.modes) - 1)(entry["mode"])
            if mode is None or mode in found or (found and mode < max(found)):
                raise Damaged("its features are of modes that it does not have, or has twice")
            found[mode] = self._table(source, entry, mode)
        return found

    def _table(self, source: Source, entry: dict[str, Any], mode: int) -> SideTable:
        prefix = f"{self.name}{mode}"
        ids = unpack_ids(entry["ids"], source, prefix)
        if ids.name != self.modes[mode]:
            raise Damaged("its features are of ids that it does not have")
        fields = tuple(map(_field, entry["fields"]))
        width = sum(map(len, fields))
        if not fields or not 0 < width <= MOST_FEATURES:
            raise Damaged("its features have no columns, or too many")
        starts = source.array(f"{prefix}.starts", "int64", len(ids) + 1)
        if not schema.STARTS.holds(starts):
            raise source.damaged(schema.STARTS.words, f"{prefix}.starts")
        columns = source.array(f"{prefix}.columns", "int32", int(starts[-1]))
        if not schema.below(width).holds(columns):
            raise source.damaged("is out of bounds", f"{prefix}.columns")
        values = source.array(f"{prefix}.values", "float32", int(starts[-1]))
        matrix = scipy.sparse.csr_array((values, columns, starts), shape=(len(ids), width))
        return SideTable(fields, ids, matrix)


def _field(entry: Any) -> Field:
    """Return a field; what it says must be what ``learn_field`` could have said."""
    name, kind, separator = entry["name"], entry["kind"], entry["separator"]
    words, knots = tuple(entry["words"]), tuple(map(float, entry["knots"]))
    texts = all(isinstance(text, str) for text in (name, *words))
    if not texts or kind not in KINDS or len(set(words)) != len(words):
        raise Damaged(f"a field of its features is {shown(entry)}")
    if separator is not None and not (isinstance(separator, str) and separator):
        raise Damaged(f"words of its features are separated by {shown(separator)}")
    sound = all(map(math.isfinite, knots))
    if kind == "number":
        sound &= len(knots) > 1 and schema.rises(np.array(knots), strictly=True) and len(words) < 2
    elif kind == "array":
        scales = knots[len(words) :]
        sound &= len(knots) == 2 * len(words) and all(scale > 0.0 for scale in scales)
    else:
        sound &= not knots
    if not sound or (kind != "number" and not words):
        raise Damaged(f"a field of its features is {shown(entry)}")
    return Field(name, kind, words, separator, knots)

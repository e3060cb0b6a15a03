"""Vectors of users and of items, for vector databases: their inner products are predictions.

The mean of a cell is the inner product of the ``mean`` vectors of both sides, in units of the
values and before it is clipped to their range; its variance, before calibration, is that of the
``variance`` vectors.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from sklearn.utils.validation import check_is_fitted

from noisewise.data.ids import as_objects
from noisewise.data.reader import require_pyarrow, suffix_of
from noisewise.engine.arrays import Floats
from noisewise.errors import DataError, SettingError
from noisewise.models.base import as_it_is
from noisewise.models.factor_rows import FactorRows
from noisewise.models.model_file import pack_ids
from noisewise.storage import check_writable, writing


class Vectors(NamedTuple):
    """Ids of a mode, and for each a vector for the mean and one for the variance.

    The last row has no id: it stands for every id that was never seen.

    Examples
    --------
    >>> from noisewise import DeviationFactorizer
    >>> ratings = [("ann", "Alien", 5), ("ann", "Brazil", 4), ("bob", "Brazil", 1)]
    >>> model = DeviationFactorizer(rank=1, patience=None, random_state=0).fit(ratings)
    >>> found = vectors(model, mode="item")
    >>> found.ids.tolist(), len(found.mean)  # the last one is that of an unknown id
    (['Alien', 'Brazil'], 3)
    """

    ids: npt.NDArray[Any]
    mean: Floats
    variance: Floats
    observations: npt.NDArray[np.int64]


def vectors(model: Any, *, mode: int | str = 0) -> Vectors:
    """Return the vectors of a mode of a ``DeviationFactorizer`` or its like.

    Parameters
    ----------
    model : DeviationFactorizer
        Fitted, with two modes.
    mode : int or str
        0 for users, 1 for items, or a column's name.

    Examples
    --------
    >>> from noisewise import DeviationFactorizer
    >>> ratings = [("ann", "Alien", 5), ("ann", "Brazil", 4), ("bob", "Brazil", 1)]
    >>> model = DeviationFactorizer(rank=1, patience=None, random_state=0).fit(ratings)
    >>> users, items = vectors(model), vectors(model, mode="item")
    >>> mean = users.mean[:-1] @ items.mean[:-1].T
    >>> bool(abs(mean[1, 0] - model.predict([("bob", "Alien")])[0]) < 1e-5)
    True
    """
    model = check_exportable(model)
    m, factors = model.mode_number(mode), model.factors_
    state, scale, location = factors.state, factors.scale, factors.location
    bias = scale * state.biases(m)[:, None].astype(np.float64)
    one = np.ones_like(bias)
    rows = state.mean_factors(m).astype(np.float64)
    own = [scale * rows, bias + location, one] if m == 0 else [rows, one, bias]
    spread, shrink = (part[m][:, None].astype(np.float64) for part in _both(factors))
    if factors.learned_deviation:
        noise, floor = state.deviation_factors(m).astype(np.float64), factors.params.delta
    else:
        noise, floor = np.zeros((len(rows), 0)), state.variance
    square = scale**2
    if m == 0:
        variance = [square * noise, square * floor * one, square * shrink, square * spread]
    else:
        variance = [noise, one, spread, shrink]
    return Vectors(
        model.ids_[m].labels,
        np.hstack(own).astype(np.float32),
        np.hstack(variance).astype(np.float32),
        factors.counts[m],
    )


def write_vectors(model: Any, path: str | Path, *, mode: int | str = 0) -> int:
    """Write the vectors of a mode to an npz archive or to Parquet, by the ending of the name.

    An npz archive has ``ids`` (whole numbers, or else UTF-8 text in ``ids`` with ``id_ends``),
    ``mean``, ``variance`` and ``observations``; its last vectors are those of an id never seen.
    Parquet has a row for each id, and vectors as lists. Returns the number of ids.

    Examples
    --------
    >>> from noisewise import DeviationFactorizer
    >>> ratings = [("ann", "Alien", 5), ("ann", "Brazil", 4), ("bob", "Brazil", 1)]
    >>> model = DeviationFactorizer(rank=1, patience=None, random_state=0).fit(ratings)
    >>> import tempfile
    >>> write_vectors(model, f"{tempfile.mkdtemp()}/items.npz", mode="item")
    2
    """
    suffix = suffix_of(Path(path))
    if suffix not in (".npz", ".parquet"):
        raise SettingError(f"Vectors are written to .npz or .parquet; got {path}.")
    check_writable(path)
    found = vectors(model, mode=mode)
    if suffix == ".npz":
        return _write_npz(model, path, mode, found)
    arrow = require_pyarrow("Writing Parquet")
    labels = found.ids.tolist()
    plain = {type(label) for label in labels} in ({int}, {str})
    texts = labels if plain else list(map(str, labels))
    name = model.ids_[model.mode_number(mode)].name
    columns = {
        name if name not in Vectors._fields else "id": arrow.array(texts),
        "mean": _lists(arrow, found.mean[:-1]),
        "variance": _lists(arrow, found.variance[:-1]),
        "observations": arrow.array(found.observations),
    }
    with writing(path) as file:
        arrow.parquet.write_table(arrow.table(columns), file)
    return len(labels)


def check_exportable(model: Any) -> Any:
    """Return a model as it is now, or say why it has no vectors."""
    check_is_fitted(model)
    if not isinstance(model, FactorRows):
        raise SettingError(
            f"A {type(model).__name__} has no vectors whose inner products are its predictions; a "
            "DeviationFactorizer has: noisewise fit --model dmf."
        )
    if len(model.ids_) != 2:
        raise DataError(f"Vectors need a model of 2 id columns; this one has {len(model.ids_)}.")
    return as_it_is(model)


def _both(factors: Any) -> tuple[Any, Any]:
    return factors.spread, factors.shrink


def _lists(arrow: Any, rows: Floats) -> Any:
    flat = arrow.array(np.ascontiguousarray(rows).ravel())
    return arrow.FixedSizeListArray.from_arrays(flat, rows.shape[1])


def _write_npz(model: Any, path: str | Path, mode: int | str, found: Vectors) -> int:
    ids = model.ids_[model.mode_number(mode)]
    _, named = pack_ids(ids, "v")
    arrays: dict[str, Any] = {name.removeprefix("v."): array for name, array in named.items()}
    arrays |= {name: getattr(found, name) for name in ("mean", "variance", "observations")}
    with writing(path) as file:
        np.savez(file, **arrays)
    return len(ids)


def read_vectors(path: str | Path) -> Vectors:
    """Read vectors that ``write_vectors`` wrote to an npz archive.

    Examples
    --------
    >>> from noisewise import DeviationFactorizer
    >>> ratings = [("ann", "Alien", 5), ("ann", "Brazil", 4), ("bob", "Brazil", 1)]
    >>> model = DeviationFactorizer(rank=1, patience=None, random_state=0).fit(ratings)
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = write_vectors(model, f"{folder}/users.npz")
    ...     found = read_vectors(f"{folder}/users.npz")
    >>> found.ids.tolist(), found.mean.shape
    (['ann', 'bob'], (3, 3))
    """
    with np.load(path, allow_pickle=False) as archive:
        arrays = {name: archive[name] for name in archive.files}
    ids = arrays["ids"]
    if "id_ends" in arrays:
        text, ends = ids.tobytes(), arrays["id_ends"].tolist()
        starts = [0, *ends[:-1]]
        pieces = [text[a:b] for a, b in zip(starts, ends, strict=True)]
        ids = as_objects([piece.decode("utf-8", "surrogatepass") for piece in pieces])
    return Vectors(ids, arrays["mean"], arrays["variance"], arrays["observations"])

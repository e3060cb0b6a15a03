"""What every model with a row per id can do: recommend, find the similar, fold in."""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from sklearn.utils.validation import check_is_fitted

from noisewise import schema
from noisewise.data import Observations, encode_ids, warn_of_types
from noisewise.data.ids import Seen, as_objects, check_values
from noisewise.data.tables import LIBRARIES, library_of
from noisewise.engine.arrays import Codes, Counts, Floats
from noisewise.engine.workers import Cluster
from noisewise.errors import DataError, DivergedError
from noisewise.models import lists
from noisewise.models.base import Cells, Factorizer, Threads, at_one_moment
from noisewise.models.levels import levels_of
from noisewise.models.lists import Recommendation, Similar, as_recommendations, labels_of
from noisewise.models.new_row import NewRow, in_one, lengths_of, warn_of_other_levels
from noisewise.recommend import (
    Likely,
    Lists,
    RowFactors,
    Sought,
    allowed,
    as_candidates,
    best_columns,
    bounded,
    check_n,
    check_ranking,
    likely_by,
    similar_rows,
)
from noisewise.schema import Entry, Found, Schema, Tensor
from noisewise.settings import learned, one_of, setting, settings, whole


@settings
class Rows(Factorizer, Threads):
    """Base class of models that know a row for every id."""

    keep_seen: bool = setting(
        one_of(True, False),
        "Remember which cells were trained on (4 bytes each), for ``recommend`` to leave them out.",
        default=True,
    )

    factors_: RowFactors = learned("Rows by id, and what follows from them.")
    seen_: Seen | None = learned(
        "Which cells were trained on, for ``recommend`` to leave them out."
    )
    levels_: npt.NDArray[np.float64] = learned(
        "The levels that values have, in order, such as stars; empty where they are not few."
    )
    frame_: str | None = learned("The library of the frame that was fitted to; None for others.")

    @abstractmethod
    def _fold(self, mode: int, codes: Codes, values: Floats, *features: Any) -> Any:
        """Learn the row of a new id of a mode from its values with known rows of the other."""

    def recommend(
        self,
        id: Any,
        n: int = 10,
        *,
        by: Literal["value", "utility"] = "value",
        mode: int | str = 0,
        risk: float = 0.0,
        exclude_seen: bool = True,
        candidates: Iterable[Any] | None = None,
    ) -> list[Recommendation]:
        """Recommend to one id of a mode the best n of the other.

        Parameters
        ----------
        id : hashable
            A user, say. One never seen gets what is best on average.
        n : int
        mode : int or str
            The mode of the id, by number or name: 1 for an item, which gets users.
        by : {"value", "utility"}
            Rank by the value that is expected once it is given, whoever would give it; or by the
            chance that the id takes up the other one, as a linear model of who was seen with what
            has it (EASE), times the chance that the value is then above the mean of all. People
            rate what they choose: where lists should hold what users go for, take "utility".
        risk : float
            Rank by mean minus ``risk`` times std: above 0 plays safe, below 0 explores. That is a
            matter of taste; lists do not hold more of what users go for, nor of what they like.
        exclude_seen : bool
            Leave out what the id was trained with.
        candidates : iterable of ids, optional
            Rank only these, which costs only them; those never seen are left out.
        """
        how: dict[str, Any] = {"by": by, "mode": mode, "risk": risk, "exclude_seen": exclude_seen}
        return self.recommend_many([id], n, candidates=candidates, **how)[0]

    @at_one_moment
    def recommend_many(
        self,
        ids: Sequence[Any],
        n: int = 10,
        *,
        by: Literal["value", "utility"] = "value",
        mode: int | str = 0,
        risk: float = 0.0,
        exclude_seen: bool = True,
        candidates: Iterable[Any] | None = None,
    ) -> list[list[Recommendation]]:
        """Recommend to many ids, each as ``recommend`` would, in blocks."""
        m, sought = self._sought(n, mode, risk, exclude_seen, candidates)
        codes = self._places(m, self._codes(m, ids), ids)
        found = self._best(m, codes, self._by(by, m, codes, sought))
        return as_recommendations(found, labels_of(self, 1 - m))

    @at_one_moment
    def recommend_all(
        self,
        n: int = 10,
        *,
        ids: Sequence[Any] | None = None,
        by: Literal["value", "utility"] = "value",
        mode: int | str = 0,
        risk: float = 0.0,
        exclude_seen: bool = True,
        candidates: Iterable[Any] | None = None,
        frame: Literal["auto", "pandas", "polars", "pyarrow"] | None = "auto",
        out: str | Path | None = None,
        cluster: str | Cluster | None = None,
    ) -> Any:
        """Recommend to every id that was trained on, as ``recommend`` would, as one table.

        Parameters
        ----------
        n, by, mode, risk, exclude_seen, candidates
            As for ``recommend``.
        ids : sequence of ids, optional
            Only these.
        frame : {"auto", "pandas", "polars", "pyarrow"} or None
            The library of the frame to return. "auto" takes that of the frame that the model was
            fitted to; for other tables, as None does, it returns a dict of arrays.
        out : path, optional
            Write the table to this Parquet file, some thousand ids at a time, and return its
            length (extra: parquet).
        cluster : str or Cluster, optional
            Let the workers of a cluster of Ray make the lists; the table is the same.

        Returns
        -------
        frame, dict or int
            A line for each recommendation, best first: whose it is, ``rank`` from 1 on, what is
            recommended, ``mean`` and ``std``.

        Examples
        --------
        >>> from noisewise import DeviationFactorizer
        >>> ratings = [("ann", "Alien", 5), ("ann", "Brazil", 4), ("bob", "Brazil", 1)]
        >>> model = DeviationFactorizer(rank=1, patience=None, random_state=0).fit(ratings)
        >>> lists = model.recommend_all()
        >>> lists["user"].tolist(), lists["item"].tolist(), lists["rank"].tolist()
        (['bob'], ['Alien'], [1])
        """
        m, sought = self._sought(n, mode, risk, exclude_seen, candidates)
        library = getattr(self, "frame_", None) if frame == "auto" else frame
        if ids is None:
            codes = np.flatnonzero(self.factors_.counts[m]).astype(np.int32)
            own = self.ids_[m].labels[codes]
        else:
            codes = self._places(m, self._codes(m, ids), ids)
            own = as_objects(list(ids))
        labels = lists.held((own, labels_of(self, 1 - m)), library, out)
        columns = partial(self._listed, m, codes, by, sought, labels)
        place = None if cluster is None else Cluster.of(cluster, self)
        return lists.for_all(columns, len(own), library, out, place)

    def _listed(
        self, mode: int, codes: Codes, by: str, sought: Sought, labels: Any, part: slice, jobs: Any
    ) -> lists.Columns:
        """Return lists of some rows as columns; ``labels`` are of rows, and of what is listed."""
        model = self if jobs is None else copy.copy(self).set_params(n_jobs=jobs)
        found = model._best(mode, codes[part], model._by(by, mode, codes[part], sought))
        names = [self.ids_[k].name for k in (mode, 1 - mode)]
        return lists.as_columns(found, labels[0][part], labels[1], names)

    @at_one_moment
    def similar(self, id: Any, n: int = 10, *, mode: int | str = 1) -> list[Similar]:
        """Find the n ids of a mode whose mean factors are most like those of ``id``."""
        check_is_fitted(self)
        m = self.mode_number(mode)
        code = self._known_code(id, m)
        check_n(n)
        codes, cosine = similar_rows(self.factors_, m, code, n)
        labels = self.ids_[m].labels[codes].tolist()
        return [Similar(*pair) for pair in zip(labels, cosine.tolist(), strict=True)]

    @at_one_moment
    def fold_in(self, others: Sequence[Any], y: Any, *, mode: int | str = 0) -> NewRow:
        """Learn a new id from its values, to predict and recommend for it; the model stays as is.

        Parameters
        ----------
        others : sequence of ids
            What the new id was seen with: for a new user, items.
        y : sequence of float
            The values.
        mode : int or str
            The mode of the new id: 0 for a user, 1 for an item, or a column's name.
        """
        check_is_fitted(self)
        self._needs_two_modes("fold_in")
        m = self.mode_number(mode)
        values, codes = check_values(y, "y"), self._codes(1 - m, others)
        if len(codes) != len(values) or not len(values):
            raise DataError(
                f"fold_in needs one value for each id; got {len(codes)} and {len(values)}."
            )
        starts = np.array([0, len(codes)])
        known = self._places(1 - m, codes, others)
        return self._new_rows(self._fold_each, m, starts, codes, known, values)[0]

    @at_one_moment
    def fold_in_many(
        self, others: Sequence[Sequence[Any]], y: Sequence[Sequence[float]], *, mode: int | str = 0
    ) -> list[NewRow]:
        """Learn many new ids, each as ``fold_in`` would; on the GPU of ``device``, in chunks.

        Parameters
        ----------
        others : sequence of sequences of ids
            What each new id was seen with.
        y : sequence of sequences of float
            The values of each.
        mode : int or str
            The mode of the new ids.
        """
        check_is_fitted(self)
        self._needs_two_modes("fold_in_many")
        m = self.mode_number(mode)
        lengths = lengths_of(others, y)
        if not lengths:
            return []
        starts = np.cumsum([0, *lengths])
        every, values = in_one(others), check_values(in_one(y), "y")
        codes = self._codes(1 - m, every)
        known = self._places(1 - m, codes, every)
        return self._new_rows(self._fold_many, m, starts, codes, known, values)

    def _new_rows(
        self, fold: Callable[..., list[Any]], mode: int, starts: Counts, codes: Codes, *given: Any
    ) -> list[NewRow]:
        if len(given[-1]):
            warn_of_other_levels(self._levels(), given[-1])
        try:
            sides = fold(mode, starts, *given)
        except np.linalg.LinAlgError as error:
            raise DivergedError(
                "The numbers of this model are too far apart to learn a new row from."
            ) from error
        seen = (np.unique(own[own >= 0]) for own in np.split(codes, starts[1:-1]))
        return [NewRow(self, mode, *parts) for parts in zip(sides, seen, strict=True)]

    def _fold_each(self, mode: int, starts: Counts, codes: Codes, values: Any) -> list[Any]:
        """Learn rows one after another; k has ``codes[starts[k]:starts[k + 1]]``."""
        spans = pairwise(starts.tolist())
        return [self._fold(mode, codes[a:b], values[a:b]) for a, b in spans]

    def _fold_many(self, mode: int, starts: Counts, codes: Codes, values: Any) -> list[Any]:
        """Learn many rows, in whatever way is fastest."""
        return self._fold_each(mode, starts, codes, values)

    def _sought(
        self,
        n: int,
        mode: int | str,
        risk: float,
        exclude_seen: bool,
        candidates: Iterable[Any] | None,
    ) -> tuple[int, Sought]:
        """Return the number of a mode, and which columns are the best for its rows."""
        check_is_fitted(self)
        self._needs_two_modes("recommend")
        m, seen = self.mode_number(mode), None
        if exclude_seen:
            if self.seen_ is None:
                raise DataError(
                    "This model did not keep what was seen; fit with keep_seen=True, or pass "
                    "exclude_seen=False."
                )
            seen = self.seen_ if m == 0 else self.seen_.turned(len(self.ids_[1]))
        return m, self.wanted(m, n, risk, seen, candidates)

    def wanted(
        self,
        mode: int,
        n: int,
        risk: float,
        seen: Any,
        candidates: Iterable[Any] | None,
        likely: Likely | None = None,
    ) -> Sought:
        """Return which columns are the best for rows of a mode; ``seen`` are not."""
        check_ranking(n, risk)
        named = as_candidates(candidates)
        chosen = None if named is None else self._codes(1 - mode, named)
        columns = allowed(self.factors_.counts[1 - mode], chosen)
        return Sought(n, bounded(risk), columns, self._calibrated, seen, likely)

    def _by(self, by: str, mode: int, codes: Codes, sought: Sought) -> Sought:
        """Rank by value, or by expected utility."""
        if by == "utility" and mode != 0:
            raise DataError(f'by={by!r} is for rows of the first mode; use by="value".')
        likely = likely_by(by, sought.risk, self.factors_, self.seen_, codes.tolist())
        return sought._replace(likely=likely)

    def _best(self, mode: int, codes: Codes, sought: Sought) -> Lists:
        """Return lists for rows of a mode; codes as from ``known_codes``."""
        return best_columns(self.factors_, mode, codes, sought, n_jobs=self._threads())

    def _note_levels(self, values: Floats) -> None:
        self.levels_ = levels_of(values)

    def _note_columns(self, X: Any) -> None:
        super()._note_columns(X)
        self.frame_ = library_of(X)

    def _remember(self, observations: Observations) -> None:
        self.seen_ = None
        if self.keep_seen and observations.n_modes == 2:
            self.seen_ = Seen.of(observations.codes, observations.shape)

    def schema(self) -> Schema:
        """Declare what a file keeps: also which cells were trained on."""
        yield from super().schema()
        yield Entry("frame", "frame_", lambda v: v if v in LIBRARIES else None, added=True)
        rule = schema.Rule("is not sorted", lambda a: schema.rises(a, strictly=True))
        yield Tensor("value_levels", "float64", (None,), "levels_", rule, optional=True)
        rows, columns = map(len, self.ids_[:2])
        starts = yield Tensor(
            "seen.starts", "int64", (rows + 1,), "seen_.starts", schema.STARTS, optional=True
        )
        if starts is not None:
            size = (int(starts[-1]),)
            yield Tensor("seen.columns", "int32", size, "seen_.columns", schema.below(columns))

    def restore(self, found: Found) -> None:
        """Make what was learned of what a file has."""
        super().restore(found)
        self.levels_ = np.empty(0) if found["value_levels"] is None else found["value_levels"]
        self.seen_ = None if found["seen.starts"] is None else Seen(**found.part("seen"))

    def cells(self, X: Any) -> Cells:
        """Return what is known of cells, before clipping and calibration."""
        codes = encode_ids(X, self.ids_)
        known = tuple(self.factors_.known_codes(m, code) for m, code in enumerate(codes))
        return Cells(self.factors_.moments(known, self._threads()), self._unseen(known))

    def _unseen(self, known: tuple[Codes, ...]) -> npt.NDArray[np.bool_]:
        """Which cells have an id that was never trained on; codes as from ``known_codes``."""
        pairs = zip(known, self.factors_.counts, strict=True)
        unseen: npt.NDArray[np.bool_] = np.any([code == len(n) for code, n in pairs], axis=0)
        return unseen

    def _needs_two_modes(self, name: str) -> None:
        if len(self.ids_) != 2:
            raise DataError(f"{name} needs a model of 2 id columns; this one has {len(self.ids_)}.")

    def mode_number(self, mode: int | str) -> int:
        """Return the number of a mode that is named, or counted from 0."""
        names = [ids.name for ids in self.ids_]
        if isinstance(mode, str) and mode in names:
            return names.index(mode)
        if whole(0).holds(mode) and int(mode) < len(names):
            return int(mode)
        raise DataError(f"mode must be one of {names} or their numbers from 0; got {mode!r}.")

    def _codes(self, mode: int, asked: Any) -> Codes:
        """Row numbers of ids, -1 where they are unknown, which is normal unless the type is."""
        codes = self.ids_[mode].lookup(asked)
        if len(codes) and (codes < 0).all():
            warn_of_types(self.ids_[mode], asked)
        return codes

    def _places(self, mode: int, codes: Codes, asked: Any) -> Codes:
        """Send ids never trained on to the row after the last."""
        return self.factors_.known_codes(mode, codes)

    def _known_code(self, id: Any, mode: int) -> int:
        code = int(self.ids_[mode].lookup([id])[0])
        if code < 0:
            raise DataError(f"The {self.ids_[mode].name} {id!r} was not seen in training.")
        return code

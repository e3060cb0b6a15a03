"""What every model with a row per id can do: recommend, find the similar, fold in."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import chain, pairwise, zip_longest
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
from sklearn.utils.validation import check_is_fitted

from noisewise import schema
from noisewise.data import Observations, encode_ids, warn_of_types
from noisewise.data.ids import Seen, check_values
from noisewise.engine.arrays import Codes, Counts, Floats
from noisewise.engine.sgd import factors
from noisewise.engine.sgd.fold_in import fold_in
from noisewise.engine.sgd.layout import Params
from noisewise.errors import DataError, DivergedError
from noisewise.models.base import Cells, Factorizer, Threads, at_one_moment
from noisewise.models.new_row import NewRow, Recommendation
from noisewise.recommend import Likely, RowFactors, Side, likely_by, similar_rows, top_columns
from noisewise.schema import Entry, Found, Schema, Tensor
from noisewise.settings import learned, one_of, setting, settings


class Similar(NamedTuple):
    """An id, and the cosine of its factors with those that were asked about."""

    id: Any
    similarity: float


class Row(NamedTuple):
    """What was learned of one id, in standardised units."""

    bias: float
    mean: Floats
    deviation: Floats
    observations: int


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

    @abstractmethod
    def _fold(self, mode: int, codes: Codes, values: Floats) -> Side:
        """Learn the row of a new id of a mode from its values with known rows of the other."""

    def recommend(
        self,
        id: Any,
        n: int = 10,
        *,
        by: Literal["value", "utility"] = "value",
        risk: float = 0.0,
        exclude_seen: bool = True,
        candidates: Iterable[Any] | None = None,
    ) -> list[Recommendation]:
        """Recommend to one id of the first mode the best n of the second.

        Parameters
        ----------
        id : hashable
            A user, say. One never seen gets what is best on average.
        n : int
            How many.
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
            Rank only these.
        """
        (best,) = self.recommend_many(
            [id], n, by=by, risk=risk, exclude_seen=exclude_seen, candidates=candidates
        )
        return best

    @at_one_moment
    def recommend_many(
        self,
        ids: Sequence[Any],
        n: int = 10,
        *,
        by: Literal["value", "utility"] = "value",
        risk: float = 0.0,
        exclude_seen: bool = True,
        candidates: Iterable[Any] | None = None,
    ) -> list[list[Recommendation]]:
        """Recommend to many ids, each as ``recommend`` would, in chunks."""
        check_is_fitted(self)
        self._needs_two_modes("recommend")
        rows = self._codes(0, ids)
        excluded = [np.empty(0, dtype=np.int32)] * len(rows)
        if exclude_seen:
            if self.seen_ is None:
                raise DataError(
                    "This model did not keep what was seen; fit with keep_seen=True, or pass "
                    "exclude_seen=False."
                )
            excluded = [self.seen_.of_row(row) for row in rows.tolist()]
        side = self.factors_.side(0, self.factors_.known_codes(0, rows))
        likely = likely_by(by, risk, self.factors_, self.seen_, rows.tolist())
        return self._ranked(side, 0, n, risk, excluded, candidates, likely)

    @at_one_moment
    def similar(self, id: Any, n: int = 10, *, mode: int | str = 1) -> list[Similar]:
        """Find the n ids of a mode whose mean factors are most like those of ``id``."""
        check_is_fitted(self)
        m = self.mode_number(mode)
        code = self._known_code(id, m)
        _check_n(n)
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
        values = check_values(y, "y")
        codes = self._codes(1 - m, others)
        if len(codes) != len(values) or not len(values):
            raise DataError(
                f"fold_in needs one value for each id; got {len(codes)} and {len(values)}."
            )
        starts = np.array([0, len(codes)])
        return self._new_rows(self._fold_each, m, starts, codes, values)[0]

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
        lengths = [(len(ids), len(own)) for ids, own in zip_longest(others, y, fillvalue=())]
        wrong = next((pair for pair in lengths if pair[0] != pair[1] or not pair[0]), None)
        if wrong is not None:
            raise DataError(
                "fold_in_many needs ids, and a value for each of them, for every new id; got "
                f"{wrong[0]} and {wrong[1]}."
            )
        if not lengths:
            return []
        starts = np.cumsum([0, *(many for many, _ in lengths)])
        codes, values = self._codes(1 - m, _in_one(others)), check_values(_in_one(y), "y")
        return self._new_rows(self._fold_many, m, starts, codes, values)

    def _new_rows(
        self, fold: Callable[..., list[Any]], mode: int, starts: Counts, codes: Codes, values: Any
    ) -> list[NewRow]:
        known = self.factors_.known_codes(1 - mode, codes)
        try:
            sides = fold(mode, starts, known, values)
        except np.linalg.LinAlgError as error:
            raise DivergedError(
                "The numbers of this model are too far apart to learn a new row from."
            ) from error
        seen = (np.unique(own[own >= 0]) for own in np.split(codes, starts[1:-1]))
        return [NewRow(self, mode, *parts) for parts in zip(sides, seen, strict=True)]

    def _fold_each(self, mode: int, starts: Counts, codes: Codes, values: Any) -> list[Side]:
        """Learn rows one after another; k has ``codes[starts[k]:starts[k + 1]]``."""
        spans = pairwise(starts.tolist())
        return [self._fold(mode, codes[a:b], values[a:b]) for a, b in spans]

    def _fold_many(self, mode: int, starts: Counts, codes: Codes, values: Any) -> list[Side]:
        """Learn many rows, in whatever way is fastest."""
        return self._fold_each(mode, starts, codes, values)

    def _ranked(
        self,
        side: Side,
        mode: int,
        n: int,
        risk: float,
        excluded: list[Codes],
        candidates: Iterable[Any] | None,
        likely: Likely | None = None,
    ) -> list[list[Recommendation]]:
        _check_n(n)
        if not np.isfinite(risk):
            raise DataError(f"risk must be a finite number; got {risk!r}.")
        ids = self.ids_[1 - mode]
        chosen = None
        if candidates is not None:
            chosen = self._codes(1 - mode, list(candidates))
            chosen = chosen[chosen >= 0]
        best = top_columns(
            self.factors_, side, n, mode=mode, risk=risk, std_scale=self.std_scale_,
            likely=likely, excluded=excluded, candidates=chosen,
        )  # fmt: skip
        lists = []
        for k, codes in enumerate(best):
            found = self.factors_.cells(mode, side.part(slice(k, k + 1)), codes)
            mean, noise, epistemic = self._calibrated(found)
            columns = ids.labels[codes], mean, np.sqrt(noise + epistemic)
            rows = zip(*(column.tolist() for column in columns), strict=True)
            lists.append([Recommendation(*row) for row in rows])
        return lists

    def _remember(self, observations: Observations) -> None:
        self.seen_ = None
        if self.keep_seen and observations.n_modes == 2:
            self.seen_ = Seen.of(observations.codes, observations.shape)

    def schema(self) -> Schema:
        """Declare what a file keeps: also which cells were trained on."""
        yield from super().schema()
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
        if mode in names:
            return names.index(str(mode))
        if isinstance(mode, int) and 0 <= mode < len(names):
            return mode
        raise DataError(f"mode must be one of {names} or their numbers from 0; got {mode!r}.")

    def _codes(self, mode: int, asked: Any) -> Codes:
        """Row numbers of ids, -1 where they are unknown, which is normal unless the type is."""
        codes = self.ids_[mode].lookup(asked)
        if len(codes) and (codes < 0).all():
            warn_of_types(self.ids_[mode], asked)
        return codes

    def _known_code(self, id: Any, mode: int) -> int:
        code = int(self.ids_[mode].lookup([id])[0])
        if code < 0:
            raise DataError(f"The {self.ids_[mode].name} {id!r} was not seen in training.")
        return code


@settings
class FactorRows(Rows):
    """Base class of models whose rows are a ``Factors``."""

    factors_: factors.Factors = learned("What was learned; ``row(id)`` reads it by id.")

    @at_one_moment
    def row(self, id: Any, *, mode: int | str = 0) -> Row:
        """Read what was learned of an id: bias, mean factors, deviation factors."""
        check_is_fitted(self)
        m = self.mode_number(mode)
        code, state = self._known_code(id, m), self.factors_.state
        return Row(
            float(state.biases(m)[code]),
            state.mean_factors(m)[code].copy(),
            state.deviation_factors(m)[code].copy(),
            int(self.factors_.counts[m][code]),
        )

    @abstractmethod
    def _params(self, seed: int) -> Params:
        """Return how the engine lays out what was learned."""

    def schema(self) -> Schema:
        """Declare what a file keeps: also the rows, one tensor for each part of them."""
        yield from super().schema()
        yield from factors_schema(self)

    def restore(self, found: Found) -> None:
        """Make what was learned of what a file has."""
        super().restore(found)
        self.factors_ = restored_factors(self, found)

    def _fold(self, mode: int, codes: Codes, values: Floats) -> factors.Side:
        return fold_in(self.factors_, mode, codes, values)


def factors_schema(model: Any) -> Schema:
    """Declare what a file keeps of ``factors_``."""
    yield Entry("factors.epoch", "factors_.state.epoch", schema.integer())
    yield Entry("factors.variance", "factors_.state.variance", schema.real(above=0.0))
    yield Entry("factors.location", "factors_.location", schema.real())
    yield Entry("factors.scale", "factors_.scale", schema.real(above=0.0))
    params = model._params((yield Entry("factors.seed", "factors_.params.seed", schema.seed)))
    shape = tuple(map(len, model.ids_))
    size, any_, least_0 = params.rank + 1, schema.ANYTHING, schema.NOT_NEGATIVE
    for m, n in enumerate(shape):
        for name, part in params.layout.parts.items():
            rule = least_0 if name == "deviation" else any_
            width = part.stop - part.start
            yield Tensor(f"mode{m}.{name}", "float32", (n, width), partial(_columns, m, part), rule)
        yield Tensor(f"mode{m}.counts", "int64", (n,), f"factors_.counts.{m}", schema.COUNTS)
        spread, rule = ((n + 1,), least_0) if len(shape) == 2 else ((2, size, size), any_)
        yield Tensor(f"mode{m}.spread", "float32", spread, f"factors_.spread.{m}", rule)
        yield Tensor(f"mode{m}.shrink", "float32", (n + 1,), f"factors_.shrink.{m}", least_0)


def restored_factors(model: Any, found: Found) -> factors.Factors:
    """Make the factors of what ``factors_schema`` declares."""
    numbers = found.part("factors")
    modes = [found.part(f"mode{m}") for m in range(len(model.ids_))]
    return factors.Factors.of_parts(model._params(numbers.pop("seed")), modes, **numbers)


def _columns(mode: int, part: slice, model: Any) -> Floats:
    rows: Floats = model.factors_.state.rows[mode][:-1, part]
    return rows


def _in_one(lists: Sequence[Any]) -> Any:
    """Put sequences one after another."""
    if all(isinstance(own, np.ndarray) for own in lists):
        return np.concatenate(lists)
    return list(chain.from_iterable(lists))


def _check_n(n: int) -> None:
    if n < 1:
        raise DataError(f"n must be 1 or more; got {n!r}.")

"""What models trained by gradient descent share: rows that are factors, and what files keep."""

from __future__ import annotations

from abc import abstractmethod
from functools import partial
from typing import Any, NamedTuple

from sklearn.utils.validation import check_is_fitted

from noisewise import schema
from noisewise.engine.arrays import Codes, Floats
from noisewise.engine.sgd import factors
from noisewise.engine.sgd.fold_in import fold_in
from noisewise.engine.sgd.layout import Params
from noisewise.models.base import at_one_moment
from noisewise.models.rows import Rows
from noisewise.schema import Entry, Found, Schema, Tensor
from noisewise.settings import learned, settings


class Row(NamedTuple):
    """What was learned of one id, in standardised units."""

    bias: float
    mean: Floats
    deviation: Floats
    observations: int


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
    yield Entry("factors.worth", "factors_.worth", schema.real(above=0.0), added=True)
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

"""ResidualFactorizer: what is known of each series alone, then a factorization of what is left.

    y = m + s z,   z low-rank with noise

m and s are what a series says of a reading from its others: mean and std given all but this one. A
smoother does nearly everything where readings are frequent; what it cannot know, series have in
common.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, Self, cast

import numpy as np

from noisewise.calibration import Calibration
from noisewise.data import Observations, encode_ids
from noisewise.data.timestamps import Units
from noisewise.engine.arrays import Moments
from noisewise.errors import unsaid
from noisewise.models.base import Cells, Factorizer, Seeded, Threads, clone_with, in_one_step, shown
from noisewise.models.bayesian import BayesianFactorizer
from noisewise.models.iterative import Iterative
from noisewise.models.learner import fixed_seed, hold_out, joined
from noisewise.models.model_file import Part
from noisewise.models.sensors import InTime, Readings, index_of, units_schema, widened
from noisewise.models.series import OUSmoother
from noisewise.schema import Entry, Found, Schema, real
from noisewise.settings import Rule, learned, number, one_of, setting, settings
from noisewise.storage import Damaged

POWERS = (0.25, 0.5, 1.0, 2.0, 4.0)  # of the epistemic share, tried on what is held out


@settings
class TypeMean(Readings, InTime):
    """Predict the mean of a type of sensor everywhere; its std is all noise.

    Examples
    --------
    >>> readings = [("hall", "C", 8, 19.0), ("hall", "%", 8, 40.0), ("attic", "C", 8, 21.0)]
    >>> TypeMean(sensor=1).fit(readings).predict([("cellar", "C", 9)]).tolist()
    [20.0]
    """

    units_: Units = learned("Mean and variance of every type.")

    def _learn(
        self, seen: Observations, validation: Observations | None
    ) -> tuple[Observations, Calibration | None]:
        index = index_of(self, seen.ids)
        self.units_ = Units.of(seen.values, index.sensors_of(seen.codes), index.n_sensors)
        return seen, None

    def leave_one_out(self, X: Any, return_std: bool = False) -> Any:
        """Predict cells as ever: one among all of its type makes no difference."""
        return self.predict(X, return_std)

    def cells(self, X: Any) -> Cells:
        """Return what is known of cells, before clipping and calibration."""
        codes = encode_ids(X, self.ids_)
        types = index_of(self, self.ids_).sensors_of(codes)
        mean, noise = (part[types].astype(self.units_.precision) for part in self.units_)
        unseen = np.any([code < 0 for code in codes], axis=0)
        return Cells(Moments(mean, noise, np.zeros_like(noise)), unseen)

    def schema(self) -> Schema:
        """Declare what a file keeps: the units of types."""
        yield from units_schema("", "units_", index_of(self, self.ids_).n_sensors + 1)

    def restore(self, found: Found) -> None:
        """Make what was learned of what a file has."""
        self.units_ = Units(**found)


def quick_factorizer() -> BayesianFactorizer:
    """Return the factorization that is used where none is given: drawn a few times only."""
    return BayesianFactorizer(
        rank=32, deviation="constant", implicit=False, sweeps=24, burn_in=8, samples=16,
        value_range=None, keep_seen=False,
    )  # fmt: skip


def fast() -> ResidualFactorizer:
    """Return the fast model of sensors: a process in time, and factorizations of what it leaves."""
    return ResidualFactorizer(quick_factorizer())


class Layer(NamedTuple):
    """A base, and the factorization of its errors over their std."""

    base: Any  # a TypeMean or an OUSmoother
    factorizer: Factorizer

    @classmethod
    def learn(
        cls, base: Any, factorizer: Any, seen: Observations, held_out: Observations | None
    ) -> Layer:
        """Train both; a factorization that can stop early does so by what is held out."""
        left = _standardised(base.fit(seen), seen)
        if held_out is None or not _stops_early(factorizer):
            factorizer.fit(left)
        else:
            factorizer.set_params(refit=False).fit(left, validation=_standardised(base, held_out))
        factorizer.calibration_ = None  # what is held out calibrates all parts together
        return cls(base, factorizer)

    def settled(self) -> Any:
        """Return an unfitted copy of the factorization, to train for as long as was best."""
        if not _stops_early(self.factorizer):
            return clone_with(self.factorizer)
        epochs = self.factorizer.n_epochs_
        return clone_with(self.factorizer, patience=None, epochs=epochs)

    def cells(self, X: Any) -> Cells:
        """Return moments of cells, and which have an id that the base cannot do without.

        Of the variance that is left, as much is epistemic as of the base's variance.
        """
        (mean, noise, epistemic), unseen = self.base.cells(X)
        z, left, lack = self.factorizer.finished(self.factorizer.cells(X))
        variance = noise + epistemic
        mean = mean + np.sqrt(variance) * z
        moments = Moments(mean, left * noise, left * epistemic + lack * variance)
        return Cells(moments, unseen)


@settings
class ResidualFactorizer(Readings, InTime, Seeded, Threads):
    """Factorize what a simple model of each series leaves unexplained.

    The base predicts every training cell from the others, with a std; a factorization is trained on
    the errors over these stds. With ``base="ou"`` they say little of outages, so that a second one
    is trained on the values themselves, and counts by how much the smoother leaves open (its
    ``epistemic_share``). A share of the cells is held out to stop by, to mix by and to calibrate
    on; then all parts are trained again on everything.

    Examples
    --------
    >>> from noisewise.models.deviation import PTF, DeviationFactorizer
    >>> rows = [(i, j, t, (i + 1) * np.sin(t / 3) + j) for i in range(4) for j in range(2)
    ...         for t in range(40)]
    >>> model = ResidualFactorizer(DeviationFactorizer(**PTF), random_state=0)
    >>> model = model.fit(rows[::3] + rows[1::3])
    >>> bool(model.score([row[:3] for row in rows], [row[3] for row in rows]) > 0.9)
    True
    """

    factorizer: Factorizer | None = setting(
        Rule("a model of noisewise or None", lambda v: v is None or isinstance(v, Factorizer)),
        "Any factorization of this package that takes as many modes; its ``random_state`` and "
        "``n_jobs`` are those given here. By default a short ``BayesianFactorizer``, which takes "
        "seconds.",
        default=None,
        kw_only=False,
    )
    base: Literal["ou", "type"] = setting(
        one_of("ou", "type"),
        'What is known of a cell without the other series: "ou" smooths each (``OUSmoother``), '
        '"type" has only mean and std of the type of sensor.',
        default="ou",
    )
    validation_fraction: float = setting(
        number(above=0.0, most=0.5), "Share to hold out.", default=0.1
    )

    near_: Layer | None = learned(
        'Of "ou": the smoother (``near_.base``) and the factorization (``near_.factorizer``) of '
        "what it leaves."
    )
    far_: Layer = learned("Mean and std of types, and the factorization of the values.")
    power_: float = learned(
        "The weight of ``far_`` is the smoother's epistemic share to this power."
    )

    @in_one_step
    def fit(self, X: Any, y: Any = None, *, validation: Observations | None = None) -> Self:
        """Learn from a table of ids, one of which is a time, and a value for each row.

        Held-out values to use instead of a random share of X can be given as ``validation``:
        outages, if those are to be filled. They are trained on in the end, as a random share is.
        """
        self._fit(X, y, validation)
        return self

    def _learn(
        self, seen: Observations, validation: Observations | None
    ) -> tuple[Observations, Calibration | None]:
        seed = fixed_seed(self.random_state)
        kept, held_out = hold_out(seen, validation, self.validation_fraction, seed)
        given = quick_factorizer() if self.factorizer is None else self.factorizer
        factorizers = [
            clone_with(given, random_state=seed, n_jobs=self.n_jobs, **shown(self.verbose))
            for _ in self._bases()
        ]
        layers = self._learned(factorizers, kept, held_out)
        power, calibration = 1.0, None
        if held_out is not None:
            seen = joined(kept, held_out)
            power = _best_power(layers, held_out)
            mean, noise, epistemic = _mixed(layers, power, held_out)[0]
            calibration = Calibration.measure(held_out.values - mean, np.sqrt(noise + epistemic))
            layers = self._learned([layer.settled() for layer in layers], seen, None)
        self.far_, self.near_ = layers[0], layers[1] if self.base == "ou" else None
        self.power_ = power
        return seen, calibration

    def _bases(self) -> list[OUSmoother | TypeMean]:
        far = TypeMean(time=self.time, sensor=self.sensor, value_range=None)
        if self.base == "type":
            return [far]
        smoother = OUSmoother(
            time=self.time, sensor=self.sensor, value_range=None, n_jobs=self.n_jobs
        )
        return [far, smoother]

    def _learned(
        self, factorizers: list[Any], seen: Observations, held_out: Observations | None
    ) -> list[Layer]:
        pairs = zip(self._bases(), factorizers, strict=True)
        # A short run will do: held-out cells judge what it came to. And a base may leave nothing.
        with unsaid("Predictions have not settled"), unsaid("All "):
            return [Layer.learn(base, factorizer, seen, held_out) for base, factorizer in pairs]

    def with_readings(self, new: Observations) -> Self:
        """Return a twin whose smoother knows more readings; nothing is trained."""
        again = widened(self, new.values)
        if self.near_ is not None:
            again.near_ = self.near_._replace(base=self.near_.base.with_readings(new))
        return cast(Self, again)

    def cells(self, X: Any) -> Cells:
        """Return what is known of cells, before clipping and calibration."""
        return _mixed([self.far_, *([self.near_] if self.near_ else [])], self.power_, X)

    def schema(self) -> Schema:
        """Declare what a file keeps: the layers, and how they are mixed."""
        yield Entry("power", "power_", real(above=0.0))
        yield Entry("seconds", "seconds_", real())
        for name in ("far", "near") if self.base == "ou" else ("far",):
            for part in Layer._fields:
                yield Part(f"{name}.{part}", f"{name}_.{part}")

    def restore(self, found: Found) -> None:
        """Make what was learned of what a file has."""
        layers = []
        for name, base in zip(("far", "near"), self._bases(), strict=False):
            layers.append(Layer(**found.part(name)))
            alike = all(part.ids_ == self.ids_ for part in layers[-1])
            if type(layers[-1].base) is not type(base) or not alike:
                raise Damaged("its parts do not belong together")
        self.far_, self.near_ = layers[0], layers[1] if self.base == "ou" else None


def _standardised(base: OUSmoother | TypeMean, seen: Observations) -> Observations:
    """Return errors of the base over their std; training cells are predicted from the others."""
    mean, std = base.leave_one_out(seen, return_std=True)
    return Observations(seen.codes, (seen.values - mean) / std, seen.ids)


def _mixed(layers: list[Layer], power: float, X: Any) -> Cells:
    """Return moments of cells from one layer, or from two by how much the smoother knows.

    Errors of both are taken to go together, so that stds add up; all but near noise is epistemic.
    """
    if len(layers) == 1:
        return layers[0].cells(X)
    far, (near, unseen) = layers[0].cells(X)[0], layers[1].cells(X)
    weight = layers[1].base.epistemic_share(X) ** np.float32(power)
    mean = near.mean + weight * (far.mean - near.mean)
    stds = [np.sqrt(part.noise + part.epistemic) for part in (near, far)]
    variance = (stds[0] + weight * (stds[1] - stds[0])) ** 2
    noise = np.minimum(near.noise, variance)
    return Cells(Moments(mean, noise, variance - noise), unseen)


def _best_power(layers: list[Layer], held_out: Observations) -> float:
    """Return the power of the epistemic share by which layers mix best on held-out cells."""
    if len(layers) == 1:
        return 1.0
    far, near = (layer.cells(held_out)[0].mean for layer in layers)
    share = layers[1].base.epistemic_share(held_out)
    std = layers[0].base.predict(held_out, return_std=True)[1]

    def error(power: float) -> float:
        mean = near + share ** np.float32(power) * (far - near)
        return float(np.mean(((held_out.values - mean) / std).astype(np.float64) ** 2))

    return min(POWERS, key=error)


def _stops_early(factorizer: Any) -> bool:
    return isinstance(factorizer, Iterative) and factorizer.patience is not None

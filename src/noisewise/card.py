"""A model card: what a fitted model is, what it was trained on, how honest its stds are.

It also says what the model must not be used for.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from importlib.metadata import version
from typing import Any

import numpy as np
from scipy.special import ndtr
from sklearn.utils.validation import check_is_fitted

from noisewise import metrics
from noisewise.calibration import Calibration, normal_half_width
from noisewise.errors import DataError, printable
from noisewise.imputer import DeviationImputer
from noisewise.models.rows import Rows
from noisewise.report import figures
from noisewise.report.figures import Drawing
from noisewise.report.page import Picture, Section, Table, page

COVERAGES = (0.5, 0.8, 0.9, 0.95, 0.99)
NOT_FOR = (
    "Decisions about people, such as on credit, work, insurance, housing or schooling: ratings and "
    "readings say nothing that would justify them.",
    "Claims about causes: a prediction says what is likely to be observed, not what would change "
    "it.",
    "Data unlike what it was trained on: intervals cover as often as they say only on data like "
    "the held-out data, and what has changed since is not known to the model.",
    "Anything that must not fail: one in ten values lies outside a 90 % interval, by design.",
)
OF_RATINGS = (
    "Judging users: a noisy user is one whose ratings the model cannot predict, for whatever "
    "reason; that is no fault.",
    "Measuring what people like: people rate what they choose, so what is rated is no sample of "
    "all there is.",
)
OF_SENSORS = (
    "Alarms and safety systems without the readings themselves: a filled gap is a guess, and its "
    "std says how good a one.",
)
PRIVATE = (
    "The file holds the ids of all that was trained on{more}. Treat it as you treat that data, and "
    "delete it when that data must be deleted."
)


def card(model: Any, X: Any = None, y: Any = None, *, title: str = "Model card") -> list[Section]:
    """Return the sections of a model card; ``markdown`` or ``html`` makes a document of them.

    Parameters
    ----------
    model : Factorizer or DeviationImputer
        Fitted.
    X, y : table of ids, and values, optional
        Values that the model was not trained on; errors, coverage and calibration are measured on
        them. Without, the card tells what was held out in ``fit``.
    title : str
        What the model is called.

    Examples
    --------
    >>> from noisewise import DeviationFactorizer
    >>> ratings = [("ann", "Alien", 5), ("ann", "Brazil", 4), ("bob", "Brazil", 1)]
    >>> model = DeviationFactorizer(rank=1, patience=None, random_state=0).fit(ratings)
    >>> [section.title for section in card(model)]
    ['What it is', 'Data', 'Settings', 'Figures', 'What it must not be used for', 'Privacy']
    """
    check_is_fitted(model)
    inner = model.model_ if isinstance(model, DeviationImputer) else model
    blocks: list[Any] = _training(inner)
    if X is not None:
        if isinstance(model, DeviationImputer):
            raise DataError("An imputer is measured by `evaluate`; give its card no data.")
        blocks += _measured(model, X, y)
    blocks += _held_out(getattr(inner, "calibration_", None))
    if not blocks:
        blocks = ["Nothing was held out, and no data were given to measure it on."]
    is_of_sensors = isinstance(model, DeviationImputer) or not isinstance(model, Rows)
    more = OF_SENSORS if is_of_sensors else OF_RATINGS
    return [
        Section("What it is", [_what(model, title)]),
        Section("Data", [_data(model)]),
        Section("Settings", [_settings(model)]),
        Section("Figures", blocks),
        Section("What it must not be used for", [*NOT_FOR, *more]),
        Section("Privacy", [PRIVATE.format(more=_kept(model))]),
    ]


def html(sections: Sequence[Section], title: str = "Model card") -> str:
    """Return a self-contained page.

    Examples
    --------
    >>> from noisewise import DeviationFactorizer
    >>> ratings = [("ann", "Alien", 5), ("ann", "Brazil", 4), ("bob", "Brazil", 1)]
    >>> model = DeviationFactorizer(rank=1, patience=None, random_state=0).fit(ratings)
    >>> html(card(model), "Films").startswith("<!DOCTYPE html>")
    True
    """
    return page(title, sections, foot=f"Made by noisewise {version('noisewise')}.")


def markdown(sections: Sequence[Section], title: str = "Model card") -> str:
    """Return a document in Markdown; pictures are in it as SVG.

    Examples
    --------
    >>> from noisewise import DeviationFactorizer
    >>> ratings = [("ann", "Alien", 5), ("ann", "Brazil", 4), ("bob", "Brazil", 1)]
    >>> model = DeviationFactorizer(rank=1, patience=None, random_state=0).fit(ratings)
    >>> markdown(card(model), "Films").splitlines()[0]
    '# Films'
    """
    lines = [f"# {_plain(title)}", ""]
    for section in sections:
        lines += [f"## {_plain(section.title)}", ""]
        for block in section.blocks:
            lines += [*_block(block), ""]
    return "\n".join([*lines, f"Made by noisewise {version('noisewise')}.", ""])


def _block(block: str | Table | Picture) -> list[str]:
    if isinstance(block, str):
        return [_plain(block)]
    if isinstance(block, Picture):
        svg = block.svg.replace("<svg", '<svg xmlns="http://www.w3.org/2000/svg"', 1)
        lines = [line for line in svg.splitlines() if line.strip()]  # an empty one would end it
        return [f"<p>{_plain(block.alt)}</p>", "", *lines]
    rows = [[_plain(cell) for cell in row] for row in (block.columns, *block.rows)]
    lined = [f"| {' | '.join(row)} |" for row in rows]
    rule = f"|{'---|' * len(block.columns)}"
    caption = ["", _plain(block.caption)] if block.caption else []
    return [lined[0], rule, *lined[1:], *caption]


def _plain(text: str) -> str:
    """Return text that means nothing else in Markdown or HTML."""
    safe = escape(printable(text), quote=False)
    for mark in "\\`*_[]|#":
        safe = safe.replace(mark, f"\\{mark}")
    return safe


def _what(model: Any, title: str) -> Table:
    words = str(type(model).__doc__).strip().splitlines()[0]
    rows = [["name", title], ["class", type(model).__name__], ["in a sentence", words]]
    if isinstance(model, DeviationImputer):
        rows += [["method", f"{model.method} (chosen: {model.chosen_})"]]
    return Table(["", ""], rows, words=True)


def _data(model: Any) -> Table:
    seen = model._standardised.seen if isinstance(model, DeviationImputer) else None
    ids = model.ids_ if seen is None else seen.ids
    rows = [[f"ids of {one.name}", f"{len(one):,}"] for one in ids]
    counts = getattr(getattr(model, "factors_", None), "counts", None)
    if seen is not None:
        rows.append(["readings", f"{len(seen):,}"])
    elif counts is not None:
        total = int(counts[0].sum())
        cells = float(np.prod([float(len(count)) for count in counts]))
        rows.append(["observations", f"{total:,} ({total / cells:.2%} of all cells)"])
        for one, count in zip(ids, counts, strict=True):
            few, half, many = np.percentile(count[count > 0], [0, 50, 100])
            rows.append([f"observations of one {one.name}", f"{few:.0f} to {many:.0f}, {half:.0f} "
                         "in the middle"])  # fmt: skip
    span = getattr(model, "value_range_", None)
    if span is not None:
        rows.append(["values", f"{span[0]:g} to {span[1]:g}"])
    return Table(["what", "how many"], rows)


def _settings(model: Any) -> Table:
    given = model.get_params(deep=False)
    return Table(["setting", "value"], [[name, str(value)] for name, value in given.items()])


def _kept(model: Any) -> str:
    if isinstance(model, DeviationImputer):
        return ", and all readings"
    if getattr(model, "values_", None) is not None:
        return ", and every value with who gave it to what"
    return ", and who was seen with what" if getattr(model, "seen_", None) is not None else ""


def _training(model: Any) -> list[Table]:
    rows = []
    if hasattr(model, "seconds_"):
        rows.append(["seconds of fit", f"{model.seconds_:.1f}"])
    if hasattr(model, "n_epochs_"):
        rows.append(["epochs or sweeps", f"{model.n_epochs_:,}"])
    curve = getattr(model, "learning_curve_", {})
    for name in ("validation_rmse", "train_rmse"):
        known = [value for value in curve.get(name, []) if value is not None]
        if known:
            rows.append([f"{name.replace('_', ' ')}, the best", f"{min(known):.4f}"])
    return [Table(["fit", ""], rows)] if rows else []


def _measured(model: Any, X: Any, y: Any) -> list[Any]:
    """Return figures on data that were given."""
    data = model.observed(X, y)
    truth = np.asarray(data.values, dtype=np.float64)
    mean, std = (np.asarray(part, float) for part in model.predict(data, return_std=True))
    rows = [
        ["values", f"{len(truth):,}"], ["RMSE", f"{metrics.rmse(truth, mean):.4f}"],
        ["MAE", f"{metrics.mae(truth, mean):.4f}"],
        ["NLL", f"{metrics.nll(truth, mean, std):.4f}"],
        ["CRPS", f"{metrics.crps(truth, mean, std):.4f}"],
    ]  # fmt: skip
    for wanted in COVERAGES:
        low, high = model.predict_interval(data, coverage=wanted)
        share = metrics.coverage(truth, low, high)
        rows.append([f"share inside {wanted:.0%} intervals", f"{share:.1%}"])
    drawing = figures.calibration({type(model).__name__: (truth, mean, std)})
    caption = "How often values fell below quantiles of what was predicted for them."
    return [Table(["on the given data", ""], rows), _picture(drawing, caption)]


def _held_out(calibration: Calibration | None) -> list[Any]:
    """Return what the data say that were held out in ``fit``."""
    if calibration is None:
        return []
    shares = [_share(calibration, coverage) for coverage in COVERAGES]
    rows = [
        [f"{wanted:.0%}", f"{share:.1%}"] for wanted, share in zip(COVERAGES, shares, strict=True)
    ]
    caption = (
        f"Of {calibration.n:,} values held out in fit, the share within as many stds as would hold "
        "this much of a normal distribution. Intervals do not rely on that: they reach as far as "
        "held-out errors do."
    )
    table = Table(["of a normal distribution", "of held-out values"], rows, caption)
    return [table, _picture(_coverage_drawing(calibration), "Calibration on held-out values.")]


def _share(calibration: Calibration, coverage: Any) -> float:
    reach = normal_half_width(float(coverage))
    found = np.searchsorted(calibration.scores, reach, side="right") / len(calibration.scores)
    return float(found)


def _coverage_drawing(calibration: Calibration) -> Drawing:
    reach = np.linspace(0.02, 3.0, 150)
    wanted = 2.0 * ndtr(reach) - 1.0
    scores = calibration.scores
    found = np.searchsorted(scores, reach, side="right") / len(scores)

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        axes.plot([0, 1], [0, 1], color=figures.INK, linewidth=1.0, alpha=0.5, label="normal")
        axes.plot(wanted, found, color=figures.BLUE, label="held-out values")
        axes.set(
            xlim=(0, 1), ylim=(0, 1), aspect="equal", anchor="NW", title="Calibration",
            xlabel="share of a normal distribution", ylabel="share of values within",
        )  # fmt: skip
        axes.legend(loc="upper left")

    away = float(np.abs(found - wanted).max())
    return Drawing(draw, f"Calibration on held-out values; at most {away:.1%} off.", 4.4)


def _picture(drawing: Drawing, caption: str) -> Picture:
    return Picture(drawing.svg(), drawing.alt, caption)

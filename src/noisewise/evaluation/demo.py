"""The demo: ratings whose noise is known, three models side by side, one page to look at.

Biased MF and DMF are the same model but for the deviation: one std for all cells, or one for each.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from noisewise import metrics
from noisewise.calibration import normal_half_width
from noisewise.data.synthetic import SyntheticRatings, make_ratings
from noisewise.models.bayesian import BayesianFactorizer
from noisewise.models.deviation import DeviationFactorizer
from noisewise.noise import noisy_ids
from noisewise.report import figures
from noisewise.report.page import Picture, Section, Table, page
from noisewise.splits import random_split
from noisewise.storage import write_bytes

BIASED_MF, DMF, BAYES, TRUTH = "Biased MF", "DMF", "Bayesian", "the truth"
# The ranks of the data are small, and so is the noise of careful users.
ONE_BY_ONE: dict[str, Any] = {"rank": 8, "deviation_learning_rate": 0.03, "delta": 0.15}
SETTINGS: dict[str, dict[str, Any]] = {
    BIASED_MF: ONE_BY_ONE | {"deviation_rank": 0},
    DMF: ONE_BY_ONE | {"deviation_rank": 4},
    BAYES: {"rank": 8, "sweeps": 150, "burn_in": 50, "samples": 100},
}
TEST, COVERAGE = 0.2, 0.9
NOISIEST, FEWEST = 15, 20  # users to list, and ratings that such a user must have
CROWD = 0.2  # share of users to call noisy in truth

FILES = "noisewise-demo.html", "noisewise-demo.png", "result.json"
TITLE = "Who is noisy?"
COLUMNS = ["model", "RMSE", "NLL", "90 % coverage", "mean width", "noise corr."]

# What the page says: of the models and their table, and of the pictures section by section.
MODELS = (
    "Biased MF predicts a rating, and is equally sure of all of them. DMF also learns how far each "
    "rating may be off. All else is the same. The Bayesian model learns both, and averages over "
    "everything the ratings leave open. The last row is what knowing the truth would give."
)
SCORES = (
    "On ratings that no model has seen. Lower RMSE and NLL are better; so are narrow intervals "
    "that still cover 90 %. The last column is the correlation of the learned std with the true "
    "one."
)
PARTS = {
    "It finds the noise": (
        "The std of a cell says how much a rating would vary if the user rated the item again and "
        "again. Nobody told DMF: it saw every cell once, or never.",
        {
            "recovery": "Cells kept for the test; the stronger the colour, the more of them. On "
            "the line the learned std is the true one.",
            "noisiest": "{found} of these {n} users are in truth among the noisiest fifth.",
        },
    ),
    "Its intervals are calibrated": (
        "A model that says 90 % should be right in 90 % of the cases: on average, and also where "
        "there is little noise, and where there is much.",
        {
            "calibration": "How often the rating lies below a predicted quantile. A calibrated "
            "model stays on the diagonal.",
            "coverage": "With one std for all, intervals are too wide for the careful and too "
            "narrow for the careless, even if the average is right.",
        },
    ),
    "A closer look": (
        "",
        {
            "fan": "Intervals of DMF that should hold 90 % of the ratings, from the narrowest to "
            "the widest.",
            "curves": "Dots mark the lowest points. DMF learns the mean first, then the noise too: "
            "that is where its NLL drops.",
        },
    ),
}

Floats = NDArray[np.floating]


@dataclass(frozen=True)
class Row:
    """How one model did on test cells."""

    model: str
    rmse: float
    nll: float
    coverage: float  # share of ratings in their 90 % interval
    width: float  # its mean width, in stars
    noise_correlation: float | None  # learned with true noise std; None if all cells have the same
    std_correlation: float | None  # the same of the whole std, which is also epistemic
    epochs: int | None = None  # of the model that was kept
    seconds: float | None = None  # to fit it


class Predicted(NamedTuple):
    """What was predicted for test cells, with a 90 % interval."""

    mean: Floats
    std: Floats
    noise_std: Floats  # the part of the std that is noise
    low: Floats
    high: Floats


@dataclass(frozen=True)
class DemoResult:
    """What the demo found, and where it wrote it."""

    rows: list[Row]  # the models; and the truth, what could be had at best
    report: dict[str, Any]  # seed, sizes, settings and rows
    page: Path
    picture: Path  # the figures of the page in one
    record: Path  # the report as JSON

    @property
    def text(self) -> str:
        """The table, and where to look."""
        return f"{table(self.rows)}\n\nLook at {self.page}, or at the picture {self.picture}."


def run_demo(
    seed: int = 0,
    directory: str | Path = "demo",
    *,
    n_users: int = 2500,
    n_items: int = 1000,
    progress: Callable[[str], object] | None = None,
) -> DemoResult:
    """Make ratings, fit all models, and write a page, a picture and a record of it.

    The seed is that of ratings, split and models; ``progress`` gets a line when a step begins.
    """
    figures.require_matplotlib()  # before the work, not after it
    say = progress or (lambda line: None)
    ratings = make_ratings(n_users, n_items, seed=seed)
    parts = random_split(len(ratings.observations), TEST, np.random.default_rng(seed))
    train, test = (ratings.take(part) for part in parts)
    models: dict[str, Any] = {}
    predicted: dict[str, Predicted] = {}
    rows: list[Row] = []
    for name, settings in SETTINGS.items():
        say(f"Fitting {name} on {len(train.observations):,} ratings")
        kind = BayesianFactorizer if name == BAYES else DeviationFactorizer
        model = models[name] = kind(random_state=seed, **settings).fit(train.observations)
        mean, std = model.predict(test.observations, return_std=True)
        _, noise_std, _ = model.predict_parts(test.observations)
        interval = model.predict_interval(test.observations, COVERAGE)
        trained = {"epochs": model.n_epochs_, "seconds": model.seconds_}
        predicted[name] = Predicted(mean, std, noise_std, *interval)
        rows.append(_judged(name, test, predicted[name], **trained))
    mean, std = test.true_mean, test.true_std
    half = normal_half_width(COVERAGE) * std
    rows.append(_judged(TRUTH, test, Predicted(mean, std, std, mean - half, mean + half)))
    say("Drawing")
    report = {
        "seed": seed,
        "ratings": {"train": len(train.observations), "test": len(test.observations)},
        "settings": SETTINGS,
        "rows": [asdict(row) for row in rows],
    }
    folder = Path(directory)
    folder.mkdir(parents=True, exist_ok=True)
    result = DemoResult(rows, report, *(folder / name for name in FILES))
    drawings, found = _drawings(models, predicted, ratings, test)
    write_bytes(result.page, _page(result, ratings, drawings, found).encode())
    together = figures.side_by_side(TITLE, list(drawings.values()))
    write_bytes(result.picture, figures.render(together, "png"))
    write_bytes(result.record, (json.dumps(report, indent=2, allow_nan=False) + "\n").encode())
    return result


def table(rows: Sequence[Row]) -> str:
    """Return rows as a table of text."""
    cells = [COLUMNS, *map(_cells, rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = [
        "  ".join([name.ljust(widths[0]), *map(str.rjust, numbers, widths[1:])])
        for name, *numbers in cells
    ]
    return "\n".join([lines[0], "-" * len(lines[0]), *lines[1:]])


def _cells(row: Row) -> list[str]:
    correlation = row.noise_correlation
    return [
        row.model,
        f"{row.rmse:.3f}",
        f"{row.nll:.3f}",
        f"{100 * row.coverage:.1f} %",
        f"{row.width:.2f}",
        "\N{EN DASH}" if correlation is None else f"{correlation:.3f}",
    ]


def _judged(name: str, test: SyntheticRatings, found: Predicted, **trained: Any) -> Row:
    """Judge what was predicted by ratings that were not trained on."""
    truth = test.observations.values
    return Row(
        name,
        metrics.rmse(truth, found.mean),
        metrics.nll(truth, found.mean, found.std),
        metrics.coverage(truth, found.low, found.high),
        metrics.width(found.low, found.high),
        _correlation(found.noise_std, test.true_std),
        _correlation(found.std, test.true_std),
        **trained,
    )


def _correlation(learned: Floats, true: Floats) -> float | None:
    constant = np.ptp(learned) <= 1e-6 * np.max(learned)  # up to rounding
    return None if constant else float(np.corrcoef(learned, true)[0, 1])


def _drawings(
    models: dict[str, Any],
    predicted: dict[str, Predicted],
    ratings: SyntheticRatings,
    test: SyntheticRatings,
) -> tuple[dict[str, figures.Drawing], int]:
    """Return all figures, and how many of the users listed as noisiest are so in truth."""
    users, truth, dmf = ratings.observations.codes[0], test.observations.values, predicted[DMF]
    true_noise = np.sqrt(np.bincount(users, ratings.true_std**2) / np.bincount(users))
    noisiest = noisy_ids(models[DMF], n=NOISIEST, fewest=FEWEST)
    listed = true_noise[models[DMF].ids_[0].lookup(noisiest["id"])]
    forecasts = {name: (truth, o.mean, o.std) for name, o in predicted.items()}
    intervals = {name: (one.low, one.high) for name, one in predicted.items()}
    curves = {name: models[name].learning_curve_ for name in (BIASED_MF, DMF)}
    return {
        "recovery": figures.noise_recovery(test.true_std, dmf.noise_std),
        "noisiest": figures.noisy_ids(noisiest, true_std=listed),
        "calibration": figures.calibration(forecasts),
        "coverage": figures.coverage_by_noise(truth, test.true_std, intervals, COVERAGE),
        "fan": figures.interval_fan(truth, dmf.mean, dmf.low, dmf.high),
        "curves": figures.learning_curves(curves),
    }, int((listed >= np.quantile(true_noise, 1 - CROWD)).sum())


def _page(
    result: DemoResult, ratings: SyntheticRatings, drawings: dict[str, figures.Drawing], found: int
) -> str:
    n_users, n_items = ratings.observations.shape
    lead = (
        f"{len(ratings.observations):,} made-up ratings of {n_items:,} items by {n_users:,} users. "
        "Some users rate with care, some without, and as the ratings are made up we know who does. "
        "Can a model tell?"
    )
    seed = result.report["seed"]
    foot = f"Made by noisewise with seed {seed}. The ratings are synthetic; no one gave them."
    scores = Table(COLUMNS, [_cells(row) for row in result.rows], SCORES)
    sections = [Section("Three models", [MODELS, scores])]
    for title, (words, captions) in PARTS.items():
        pictures = [
            Picture(drawings[name].svg(), drawings[name].alt, text.format(found=found, n=NOISIEST))
            for name, text in captions.items()
        ]
        sections.append(Section(title, [words, *pictures] if words else pictures))
    return page(TITLE, sections, lead=lead, foot=foot)

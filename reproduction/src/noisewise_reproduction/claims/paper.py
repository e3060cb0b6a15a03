"""The paper's numbers, from the one file that has them."""

from __future__ import annotations

import tomllib
from functools import cache
from importlib.resources import files
from typing import Any


@cache
def paper() -> dict[str, Any]:
    """Return the numbers as the file has them.

    Examples
    --------
    >>> paper()["ratings"]["ml1m"]["biased-mf"]
    0.845
    """
    return tomllib.loads(
        files("noisewise_reproduction.claims").joinpath("paper.toml").read_text("utf-8")
    )


def rmse(dataset: str, model: str) -> tuple[float, float] | None:
    """Return the paper's RMSE and how far its 95 % interval reaches at most; None if it has none.

    Examples
    --------
    >>> rmse("ml1m", "rcf")
    (0.867, 0.005)
    """
    table = paper()["ratings"]
    number, reach = table.get(dataset, {}).get(model), table["reach"]
    return None if number is None else (number, reach.get(model, reach["default"]))


def ratio(measure: str, model: str, base: str = "biased-mf") -> float | None:
    """Return how long the paper's model took over how long Biased MF took.

    Parameters
    ----------
    measure : {"seconds", "seconds_per_epoch", "epochs"}
        What is compared.
    model, base : str
        Names of models.

    Examples
    --------
    >>> round(ratio("epochs", "dmf-paper"), 2)
    0.2
    """
    both = [amount(measure, name) for name in (model, base)]
    return None if both[0] is None or both[1] is None else both[0] / both[1]


def amount(measure: str, model: str) -> float | None:
    """Return what the paper measured, or what follows from it: epochs are a quotient."""
    table = paper()["time"]
    if measure != "epochs":
        number: float | None = table[measure].get(model)
        return number
    whole, one = (table[name].get(model) for name in ("seconds", "seconds_per_epoch"))
    return None if whole is None or one is None else whole / one

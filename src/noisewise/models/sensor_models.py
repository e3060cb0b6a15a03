"""Models of sensors by name: what the imputer and the command line offer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from noisewise.errors import SettingError
from noisewise.models.auto import CANDIDATES, AutoFactorizer
from noisewise.models.base import Factorizer
from noisewise.models.deviation import DTF, PTF, DeviationFactorizer
from noisewise.models.nested import adjusted
from noisewise.models.residual import ResidualFactorizer
from noisewise.models.spatial import SpatialNeighbours
from noisewise.models.table_imputers import TableImputer
from noisewise.models.tucker import TuckerFactorizer

SENSOR_MODELS = {
    "auto": "the best of linear, ou, fast and bayes on cells and outages held out of the data",
    "bayes": "a factorization and a process in time per series, drawn from their posterior",
    "fast": "a process in time per series, and factorizations of what it leaves; seconds",
    "ou": "every series alone, as an Ornstein-Uhlenbeck process seen through noise",
    "linear": "every series alone, by straight lines between readings",
    "dtf": "a factorization whose noise is low-rank too (DTF)",
    "ptf": "a factorization with the same noise everywhere (PTF)",
    "tucker": "a Tucker decomposition",
    "knn": "the mean of the nearest locations at the same time; needs coordinates",
    "idw": "the same, weighted by inverse distances; needs coordinates",
    "knn-imputer": "scikit-learn's KNNImputer on the table of times and series",
    "iterative-imputer": "scikit-learn's IterativeImputer on the table of times and series",
}
NEED_COORDINATES = ("knn", "idw")

_PROTOTYPES: dict[str, Factorizer] = CANDIDATES | {
    "auto": AutoFactorizer(),
    "dtf": ResidualFactorizer(DeviationFactorizer(**DTF, keep_seen=False), base="type"),
    "ptf": ResidualFactorizer(DeviationFactorizer(**PTF, keep_seen=False), base="type"),
    "tucker": TuckerFactorizer(),
    "knn": SpatialNeighbours(None, power=0),
    "idw": SpatialNeighbours(None, power="auto"),
    "knn-imputer": TableImputer("knn"),
    "iterative-imputer": TableImputer("iterative"),
}


def build(
    name: str,
    *,
    time: int | str = -1,
    group: int | str | None = "auto",
    coordinates: Any = None,
    random_state: Any = None,
    n_jobs: int | None = -1,
    verbose: bool | None = None,
    settings: Mapping[str, Any] | None = None,
) -> Factorizer:
    """Make a model of sensors, ready to be fitted.

    Parameters
    ----------
    name : str
        One of ``SENSOR_MODELS``.
    time : int or str
        The mode that holds the times, by number (-1 is the last) or name.
    group : int, str, None or "auto"
        The mode that is the type of sensor, by number or name; None takes all series to be of one
        type. "auto" takes the mode called "sensor", else the one with the fewest ids that is not
        time.
    coordinates : dict or table, optional
        Where locations are; only "knn" and "idw" use it, and they need it.
    random_state : int, RandomState or None
        The same int gives the same bits.
    n_jobs : int or None
        Threads; -1 uses all cores.
    verbose : bool or None
        Show a progress bar where there is one: True always, False never; None on a terminal and in
        a notebook.
    settings : dict, optional
        Other parameters of the model, or of the factorization inside it. For "auto" the candidates
        may be given by name.

    Returns
    -------
    Factorizer
        One of its own at every call.

    Examples
    --------
    >>> build("ou", time="day", n_jobs=1)
    OUSmoother(n_jobs=1, time='day')
    >>> build("ptf", settings={"rank": 8}).factorizer.rank
    8
    """
    if name not in _PROTOTYPES:
        raise SettingError(f"name must be one of {', '.join(SENSOR_MODELS)}; got {name!r}.")
    if name in NEED_COORDINATES and coordinates is None:
        raise SettingError(
            f"{name!r} needs to know where locations are: pass coordinates={{id: (x, y)}}, or take "
            f"another model; got None."
        )
    shared = {
        "time": time, "group": group, "random_state": random_state, "n_jobs": n_jobs,
        "verbose": verbose,
    }  # fmt: skip
    model: Factorizer = adjusted(_PROTOTYPES[name], coordinates=coordinates, **shared)
    known, chosen = model.get_params(), {}
    for key, value in (settings or {}).items():
        place = key if key in known else f"factorizer__{key}"
        if place not in known:
            inside = (other.removeprefix("factorizer__") for other in known)
            raise SettingError(f"{name!r} has no setting {key!r}; it has {sorted({*inside})}.")
        chosen[place] = value
    if name == "auto" and chosen.get("candidates") is not None:
        chosen["candidates"] = tuple(
            (one, build(one, coordinates=coordinates, **shared)) if isinstance(one, str) else one
            for one in chosen["candidates"]
        )
    model.set_params(**chosen)
    return model

"""Models, datasets and commands by name: those of noisewise, and those of installed packages.

A package adds its own through entry points: a `Models` (group ``noisewise.models``), a `Datasets`
(``noisewise.datasets``), functions for the command line (``noisewise.commands``). Declarations hold
names and text; what stands behind a name is imported when it is asked for. Files of models are read
by the classes that are declared here, and by no others.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal, NamedTuple

from noisewise.errors import NoisewiseError, PluginError, SettingError, warn

Kind = Literal["ratings", "sensors"]

OWN = "noisewise"  # the package whose names nobody can take
MODELS, DATASETS, COMMANDS = "noisewise.models", "noisewise.datasets", "noisewise.commands"


@dataclass(frozen=True)
class Model:
    """A model that can be asked for by its name.

    Examples
    --------
    >>> Model("mine", "ratings", "my_package.model:MyFactorizer", {"rank": 8}).settings
    {'rank': 8}
    """

    name: str  # what the command line calls it
    kind: Kind  # what it learns from
    make: str  # "module:callable" that makes it, unfitted, from its settings
    settings: Mapping[str, Any] = field(default_factory=dict)  # where it has no default, or others
    about: str = ""  # a line about it
    needs_coordinates: bool = False  # whether it must know where locations are


@dataclass(frozen=True)
class Models:
    """The models of a package.

    Examples
    --------
    >>> place = "my_package.model:MyFactorizer"
    >>> declared = Models((Model("mine", "ratings", place),), classes={"MyFactorizer": place})
    >>> [model.name for model in declared.models]
    ['mine']
    """

    models: tuple[Model, ...]
    classes: Mapping[str, str]  # "module:Class" by the name of the class: whose files can be loaded
    ranges: str = ""  # "package:file" where `tune` looks for settings, as evaluation/ranges.toml


@dataclass(frozen=True)
class Format:
    """Files or folders as the owners of a dataset publish them.

    ``recognise(path)`` tells of a file or a folder whether it is one. ``read(path, time=...,
    duplicates=...)`` gives Observations of ratings, ``read(path, repeats=...)`` a Panel of sensors.

    Examples
    --------
    >>> Format("files of my lab", "sensors", "my_package.lab:recognise", "my_package.lab:read").kind
    'sensors'
    """

    name: str  # what they are, as errors say it: "data.txt of the lab"
    kind: Kind  # what is in them
    recognise: str  # "module:callable"
    read: str  # "module:callable"


@dataclass(frozen=True)
class Tensor:
    """A tensor of sensors that results are reported on, made from a copy of its data.

    Examples
    --------
    >>> Tensor("lab-day", "my_package.lab:day", 8_640, outage=7200.0, shares=(0.2, 0.4)).outage
    7200.0
    """

    name: str  # what results call it
    make: str  # "module:callable" that makes its Panel from the path of a copy
    observed: int  # how many of its cells are
    outage: float  # seconds that an outage lasts, where results are of outages
    shares: tuple[float, ...]  # of all cells that train, where results are of single cells


@dataclass(frozen=True)
class Datasets:
    """The datasets of a package.

    Examples
    --------
    >>> len(Datasets(formats=(Format("mine", "ratings", "my:recognise", "my:read"),)).formats)
    1
    """

    formats: tuple[Format, ...] = ()
    tensors: tuple[Tensor, ...] = ()
    sources: str = ""  # "package:file" with what `data fetch` can get, as data/sources.toml


class Registered(NamedTuple):
    """What a package declares."""

    package: str
    declared: Any


_OWN_MODELS = Models(
    models=(
        Model("bayes", "ratings", "noisewise.models.bayesian:BayesianFactorizer"),
        Model("dmf", "ratings", "noisewise.models.deviation:DeviationFactorizer"),
        Model(
            "biased-mf", "ratings", "noisewise.models.deviation:DeviationFactorizer",
            # the best trial on validation data, rounded
            {"deviation_rank": 0, "learning_rate": 0.035, "l2": 0.041, "bias_l2": 0.063},
        ),
        Model(
            "biases", "ratings", "noisewise.models.deviation:DeviationFactorizer",
            {"rank": 0, "deviation_rank": 0, "learning_rate": 0.035, "bias_l2": 0.063},
            "a mean, and a bias per user and per item",
        ),
        Model("popularity", "ratings", "noisewise.models.simple:Popularity",
              about="recommends what most users have rated"),
        Model("item-knn", "ratings", "noisewise.models.simple:ItemKNN",
              about="nearest neighbours of items, by their ratings and by who has rated them"),
        *(
            Model(name, "sensors", f"noisewise.models.{make}", given, about=about)
            for name, make, given, about in (
                ("auto", "auto:AutoFactorizer", {},
                 "the best of all on holes like those of the table, or a mix of the best few"),
                ("bayes", "temporal:TemporalFactorizer", {},
                 "paths that series share, a path of each, drawn from their posterior"),
                ("fast", "residual:fast", {},
                 "a process in time per series, and factorizations of what it leaves; seconds"),
                ("ou", "series:OUSmoother", {},
                 "every series alone, as an Ornstein-Uhlenbeck process seen through noise"),
                ("seasonal", "series:OUSmoother", {"seasons": "auto"},
                 "the same, around what repeats every day, week or year, or with a found period"),
                ("linear", "series:LinearInterpolator", {},
                 "every series alone, by straight lines between readings"),
                ("pchip", "series:LinearInterpolator", {"curve": "pchip"},
                 "every series alone, by cubics that never overshoot"),
                ("nearest", "grid:TableModel", {"method": "nearest"},
                 "the mean of the moments that are most alike"),
                ("nearest-lagged", "grid:TableModel", {"method": "nearest", "lags": (1, 3)},
                 "the same, alike also a little before and after"),
                ("regression", "grid:TableModel", {"method": "regression"},
                 "every series by a regression on those most like it"),
                ("lagged", "grid:TableModel", {"method": "regression", "lags": (1, 3)},
                 "the same, on what these read a little before and after, too"),
                ("forest", "grid:TableModel", {"method": "forest", "lags": (1, 3)},
                 "the same, and randomised trees for what it leaves over; seconds"),
                ("soft", "grid:TableModel", {"method": "soft"},
                 "low rank, by singular values less a constant (SoftImpute)"),
                ("svd", "grid:TableModel", {"method": "svd"},
                 "low rank, by the largest singular values alone"),
                ("dtf", "deviation:dtf", {}, "a factorization whose noise is low-rank too (DTF)"),
                ("ptf", "deviation:ptf", {},
                 "a factorization with the same noise everywhere (PTF)"),
            )
        ),
    ),
    classes={
        name: f"noisewise.models.{module}:{name}"
        for name, module in (
            ("AutoFactorizer", "auto"), ("AverageFactorizer", "average"),
            ("BayesianFactorizer", "bayesian"), ("DeviationFactorizer", "deviation"),
            ("LinearInterpolator", "series"), ("OUSmoother", "series"),
            ("ResidualFactorizer", "residual"), ("TableModel", "grid"),
            ("TemporalFactorizer", "temporal"), ("TypeMean", "residual"),
            ("Popularity", "simple"), ("ItemKNN", "simple"),
        )
    },
    ranges="noisewise.evaluation:ranges.toml",
)  # fmt: skip
_OWN_DATASETS = Datasets(sources="noisewise.data:sources.toml")
_OWN: dict[str, Models | Datasets] = {MODELS: _OWN_MODELS, DATASETS: _OWN_DATASETS}


def models(kind: Kind) -> dict[str, Model]:
    """Return all models of ratings or of sensors by their names, those of noisewise first."""
    return {name: one.declared for name, one in _models(kind).items()}


def build(
    kind: Kind,
    name: str,
    settings: Mapping[str, Any] | None = None,
    *,
    coordinates: Any = None,
    **shared: Any,
) -> Any:
    """Make one of ``models(kind)`` by its name, ready to be fitted.

    ``settings`` are of the model, or of the factorization inside it; candidates of one that chooses
    among models may be named. ``coordinates`` tell where locations are, for those that need to
    know. What is ``shared`` (time, sensor, random_state, ...) is for those that have it.

    Examples
    --------
    >>> build("ratings", "biased-mf", {"rank": 16}).deviation_rank
    0
    >>> build("sensors", "ptf", {"rank": 8}).factorizer.rank
    8
    """
    package, declared = _found("model", name, _models(kind), MODELS)
    if declared.needs_coordinates and coordinates is None:
        raise SettingError(
            f"{name!r} needs to know where locations are: pass coordinates={{id: (x, y)}}, or take "
            f"another model; got None."
        )
    model = imported(declared.make, package)(**declared.settings)
    known = model.get_params()
    given = {"coordinates": coordinates, **shared}
    chosen = {key: value for key, value in given.items() if key in known}
    for key, value in (settings or {}).items():
        place = key if key in known else f"factorizer__{key}"
        if place not in known:
            inside = sorted({other.removeprefix("factorizer__") for other in known})
            raise SettingError(f"{name!r} has no setting {key!r}; it has {', '.join(inside)}.")
        chosen[place] = value
    if chosen.get("candidates") is not None:
        chosen["candidates"] = tuple(
            (one, build(kind, one, coordinates=coordinates, **shared))
            if isinstance(one, str) and one in _models(kind)
            else one  # a model, or a name that only the model which chooses knows
            for one in chosen["candidates"]
        )
    return model.set_params(**chosen)


def ranges(kind: Kind, name: str) -> dict[str, Any]:
    """Return the ranges that settings of a model are looked for in, as TOML has them."""
    own = _models(kind).get(name, Registered("", None)).package
    tables = [_table(one.ranges) for package, one in _declared(MODELS) if package == own]
    return dict(tables[0].get(kind, {}).get(name, {})) if tables else {}


def classes() -> dict[str, Registered]:
    """Return what is declared of the classes whose files can be loaded, by their names."""
    return _by_name(MODELS, lambda declared: declared.classes)


def class_named(name: Any) -> Any:
    """Return the class of models that a file names; None if no package declares it."""
    if not isinstance(name, str):
        return None
    if name in _OWN_MODELS.classes:  # no need to look for packages
        return imported(_OWN_MODELS.classes[name], OWN)
    found = classes().get(name)
    return None if found is None else imported(found.declared, found.package)


def formats(kind: Kind) -> list[str]:
    """Return the names of the formats of ratings or of sensors that packages read."""
    return [one.name for _, all_ in _declared(DATASETS) for one in all_.formats if one.kind == kind]


def recognised(kind: Kind, path: Path) -> Callable[..., Any] | None:
    """Return what reads a file or a folder; None if no package that is sound knows it."""
    if broken(DATASETS):
        warn(broken(DATASETS))
    for package, declared in _declared(DATASETS):
        for one in declared.formats:
            if one.kind == kind and imported(one.recognise, package)(path):
                reader: Callable[..., Any] = imported(one.read, package)
                return reader
    return None


def tensors() -> dict[str, Registered]:
    """Return all named tensors, and who declares them."""
    return _by_name(DATASETS, lambda d: {one.name: one for one in d.tensors})


def tensor(name: str) -> Registered:
    """Return a named tensor, and who declares it."""
    return _found("dataset", name, tensors(), DATASETS)


def sources() -> dict[str, dict[str, Any]]:
    """Return what can be fetched, by name, as TOML has it."""
    known = _by_name(DATASETS, lambda declared: _table(declared.sources))
    return {name: one.declared for name, one in known.items()}


def commands() -> list[str]:
    """Return the names of the commands of packages."""
    return [entry.name for entry in _entries(COMMANDS)]


def command(name: str) -> Callable[..., None]:
    """Return the function of a command of a package."""
    (entry, *_) = (entry for entry in _entries(COMMANDS) if entry.name == name)
    function: Callable[..., None] = imported(entry.value, _package(entry))
    return function


def imported(place: str, package: str) -> Any:
    """Import what "module:name" stands for, which a package declares."""
    module, _, name = place.partition(":")
    try:
        return getattr(import_module(module), name)
    except NoisewiseError:
        raise  # it says what is needed
    except Exception as error:  # a foreign module may raise anything
        if package == OWN:
            raise
        raise PluginError(package, place, error) from error


def broken(group: str) -> str:
    """Return a sentence for every package whose declaration cannot be used."""
    return " ".join(map(str, _installed(group)[1]))


@cache
def _installed(group: str) -> tuple[list[Registered], list[PluginError]]:
    """Read what packages declare; those that are broken are told apart."""
    sound: list[Registered] = []
    faults: list[PluginError] = []
    for entry in _entries(group):
        package, kind = _package(entry), type(_OWN[group])
        try:
            declared = imported(entry.value, package)
            if not isinstance(declared, kind):
                fault = TypeError(f"it is a {type(declared).__name__}, not a {kind.__name__}")
                raise PluginError(package, entry.value, fault)
        except PluginError as error:
            faults.append(error)
        else:
            sound.append(Registered(package, declared))
    return sound, faults


@cache
def _entries(group: str) -> list[EntryPoint]:
    return sorted(entry_points(group=group), key=lambda entry: (_package(entry), entry.name))


def _package(entry: EntryPoint) -> str:
    return entry.dist.name if entry.dist is not None else entry.name


def _declared(group: str) -> list[Registered]:
    """Return what noisewise declares, and what packages do."""
    return [Registered(OWN, _OWN[group]), *_installed(group)[0]]


def _models(kind: Kind) -> dict[str, Registered]:
    return _by_name(MODELS, lambda d: {one.name: one for one in d.models if one.kind == kind})


def _by_name(group: str, entries: Callable[[Any], Mapping[str, Any]]) -> dict[str, Registered]:
    """Return what is declared by name; who was first has it."""
    found: dict[str, Registered] = {}
    for package, declared in _declared(group):
        for name, one in entries(declared).items():
            found.setdefault(name, Registered(package, one))
    return found


def _found(what: str, name: str, known: Mapping[str, Registered], group: str) -> Registered:
    """Return what stands under a name, or say which names there are."""
    if name in known:
        return known[name]
    names = f"one of {', '.join(known)}" if known else "that of an installed package"
    raise SettingError(f"{what} must be {names}; got {name!r}. {broken(group)}".rstrip())


def _table(place: str) -> dict[str, Any]:
    """Read a TOML table that a package has under "package:file"."""
    if not place:
        return {}
    package, _, file = place.partition(":")
    return tomllib.loads(files(package).joinpath(file).read_text("utf-8"))

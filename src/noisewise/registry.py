"""Models, datasets and commands by name: those of noisewise, and those of installed packages.

A package adds its own through entry points, which its ``pyproject.toml`` declares:

==========================  ======================================================================
group                       what an entry names
==========================  ======================================================================
``noisewise.models``        a `Models`, one per package: its models by name, and its classes
``noisewise.datasets``      a `Datasets`, one per package: its file formats, and its named tensors
``noisewise.commands``      a function that the command line offers under the name of the entry
==========================  ======================================================================

A declaration holds names and text, so that it is quickly read; what stands behind a name is
imported when it is asked for. Files of models are read by the classes that are declared here, and
by no others.
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


@dataclass(frozen=True)
class Model:
    """A model that can be asked for by its name.

    Attributes
    ----------
    name : str
        What the command line calls it.
    kind : {"ratings", "sensors"}
        What it learns from.
    make : str
        Where the callable is that makes it, unfitted, from its settings: "module:callable".
    settings : mapping
        Settings that differ from those that the callable has by default.
    about : str
        A line about it.
    needs_coordinates : bool
        Whether it must know where locations are.
    """

    name: str
    kind: Kind
    make: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    about: str = ""
    needs_coordinates: bool = False


@dataclass(frozen=True)
class Models:
    """The models of a package.

    Attributes
    ----------
    models : tuple of Model
        Those with a name.
    classes : mapping of str
        "module:Class" by the name of the class, for all whose files can be loaded.
    ranges : str
        Where ``noisewise tune`` looks for settings: "package:file", a table as
        ``evaluation/ranges.toml`` is.
    """

    models: tuple[Model, ...]
    classes: Mapping[str, str]
    ranges: str = ""


@dataclass(frozen=True)
class Format:
    """Files or folders as the owners of a dataset publish them.

    Attributes
    ----------
    name : str
        What they are, as errors say it: "data.txt of the lab".
    kind : {"ratings", "sensors"}
        What is in them.
    recognise : str
        "module:callable" that tells of the path of a text file or a folder whether it is one.
    read : str
        "module:callable" that reads one: ``read(path, time=..., duplicates=...)`` gives
        Observations of ratings, ``read(path, repeats=...)`` the Panel of sensors.
    """

    name: str
    kind: Kind
    recognise: str
    read: str


@dataclass(frozen=True)
class Tensor:
    """A tensor of sensors that results are reported on, made from a copy of its data.

    Attributes
    ----------
    name : str
        What results call it.
    make : str
        "module:callable" that makes its Panel from the path of a copy.
    observed : int
        How many of its cells are observed.
    outage : float
        How many seconds an outage lasts where results are of outages.
    shares : tuple of float
        Shares of all cells that train, where results are of single cells.
    """

    name: str
    make: str
    observed: int
    outage: float
    shares: tuple[float, ...]


@dataclass(frozen=True)
class Datasets:
    """The datasets of a package.

    Attributes
    ----------
    formats : tuple of Format
        What it reads as it comes.
    tensors : tuple of Tensor
        What it makes by name.
    """

    formats: tuple[Format, ...] = ()
    tensors: tuple[Tensor, ...] = ()


_NOISEWISE = Models(
    models=(
        Model("bayes", "ratings", "noisewise.models.bayesian:BayesianFactorizer"),
        Model("dmf", "ratings", "noisewise.models.deviation:DeviationFactorizer"),
        # The best trial on validation data, rounded.
        Model(
            "biased-mf", "ratings", "noisewise.models.deviation:DeviationFactorizer",
            {"deviation_rank": 0, "learning_rate": 0.035, "l2": 0.041, "bias_l2": 0.063},
        ),
        Model(
            "auto", "sensors", "noisewise.models.auto:AutoFactorizer",
            about="the best of linear, ou, fast and bayes on cells and outages held out of the "
            "data",
        ),
        Model(
            "bayes", "sensors", "noisewise.models.temporal:TemporalFactorizer",
            about="a factorization and a process in time per series, drawn from their posterior",
        ),
        Model(
            "fast", "sensors", "noisewise.models.residual:fast",
            about="a process in time per series, and factorizations of what it leaves; seconds",
        ),
        Model(
            "ou", "sensors", "noisewise.models.smoother:OUSmoother",
            about="every series alone, as an Ornstein-Uhlenbeck process seen through noise",
        ),
        Model(
            "linear", "sensors", "noisewise.models.interpolation:LinearInterpolator",
            about="every series alone, by straight lines between readings",
        ),
        Model(
            "dtf", "sensors", "noisewise.models.deviation:dtf",
            about="a factorization whose noise is low-rank too (DTF)",
        ),
        Model(
            "ptf", "sensors", "noisewise.models.deviation:ptf",
            about="a factorization with the same noise everywhere (PTF)",
        ),
    ),
    classes={
        "AutoFactorizer": "noisewise.models.auto:AutoFactorizer",
        "BayesianFactorizer": "noisewise.models.bayesian:BayesianFactorizer",
        "DeviationFactorizer": "noisewise.models.deviation:DeviationFactorizer",
        "LinearInterpolator": "noisewise.models.interpolation:LinearInterpolator",
        "OUSmoother": "noisewise.models.smoother:OUSmoother",
        "ResidualFactorizer": "noisewise.models.residual:ResidualFactorizer",
        "TemporalFactorizer": "noisewise.models.temporal:TemporalFactorizer",
        "TypeMean": "noisewise.models.type_mean:TypeMean",
    },
    ranges="noisewise.evaluation:ranges.toml",
)  # fmt: skip


class Registered(NamedTuple):
    """What a package declares under a name."""

    package: str
    declared: Any


def models(kind: Kind) -> dict[str, Model]:
    """Return all models of ratings or of sensors by their names, those of noisewise first.

    Examples
    --------
    >>> models("ratings")["biased-mf"].settings["deviation_rank"]
    0
    """
    return {name: one.declared for (of, name), one in _models().items() if of == kind}


def build(
    kind: Kind,
    name: str,
    settings: Mapping[str, Any] | None = None,
    *,
    coordinates: Any = None,
    **shared: Any,
) -> Any:
    """Make a model by its name, ready to be fitted.

    Parameters
    ----------
    kind : {"ratings", "sensors"}
        What it learns from.
    name : str
        One of ``models(kind)``.
    settings : mapping, optional
        Settings of the model, or of the factorization inside it. The candidates of one that
        chooses among models may be given by name.
    coordinates : dict or table, optional
        Where locations are, for those that need to know.
    **shared
        Settings that it gets if it has them: time, group, random_state, n_jobs, verbose.

    Examples
    --------
    >>> build("ratings", "biased-mf", {"rank": 16}).deviation_rank
    0
    >>> build("sensors", "ou", time="day", n_jobs=1)
    OUSmoother(n_jobs=1, time='day')
    >>> build("sensors", "ptf", {"rank": 8}).factorizer.rank
    8
    """
    found = _models().get((kind, name))
    if found is None:
        known = ", ".join(models(kind))
        raise SettingError(f"model must be one of {known}; got {name!r}.{_broken(MODELS)}")
    if found.declared.needs_coordinates and coordinates is None:
        raise SettingError(
            f"{name!r} needs to know where locations are: pass coordinates={{id: (x, y)}}, or take "
            f"another model; got None."
        )
    model = imported(found.declared.make, found.package)(**found.declared.settings)
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
            if isinstance(one, str)
            else one
            for one in chosen["candidates"]
        )
    return model.set_params(**chosen)


def ranges(kind: Kind, name: str) -> dict[str, Any]:
    """Return the ranges that settings of a model are looked for in, as TOML has them.

    Examples
    --------
    >>> ranges("sensors", "fast")["sweeps"]
    {'choices': [40, 80]}
    """
    found = _models().get((kind, name))
    places = {one.package: one.declared.ranges for one in _of_models()}
    if found is None or not places[found.package]:
        return {}
    package, _, file = places[found.package].partition(":")
    table = tomllib.loads(files(package).joinpath(file).read_text("utf-8"))
    entry: dict[str, Any] = table.get(kind, {}).get(name, {})
    return entry


def class_names() -> list[str]:
    """Return the names of the classes whose files can be loaded."""
    return list(_classes())


def class_named(name: Any) -> Any:
    """Return the class of models that a file names; None if no package declares it.

    Examples
    --------
    >>> class_named("OUSmoother").__module__
    'noisewise.models.smoother'
    >>> class_named("os.system") is None
    True
    """
    if not isinstance(name, str):
        return None
    if name in _NOISEWISE.classes:  # no need to look for packages
        return imported(_NOISEWISE.classes[name], OWN)
    found = _classes().get(name)
    return None if found is None else imported(found.declared, found.package)


def formats(kind: Kind) -> list[str]:
    """Return the names of the formats of ratings or of sensors that packages read."""
    return [one.declared.name for one in _formats() if one.declared.kind == kind]


def recognised(kind: Kind, path: Path) -> Callable[..., Any] | None:
    """Return what reads a text file or a folder; None if no package knows it.

    A package that is broken is warned of and passed over.
    """
    if _broken(DATASETS):
        warn(_broken(DATASETS).strip())
    for package, one in _formats():
        if one.kind == kind and imported(one.recognise, package)(path):
            reader: Callable[..., Any] = imported(one.read, package)
            return reader
    return None


def tensors() -> dict[str, Tensor]:
    """Return all named tensors."""
    return {name: one.declared for name, one in _tensors().items()}


def tensor(name: str) -> Tensor:
    """Return what is declared of a named tensor."""
    declared: Tensor = _tensor(name).declared
    return declared


def make_tensor(name: str, path: Path) -> Any:
    """Make a named tensor from a copy of its data."""
    package, declared = _tensor(name)
    return imported(declared.make, package)(path)


def _tensor(name: str) -> Registered:
    if name not in _tensors():
        known = f"one of {', '.join(_tensors())}" if _tensors() else "that of an installed package"
        raise SettingError(f"dataset must be {known}; got {name!r}.{_broken(DATASETS)}")
    return _tensors()[name]


def commands() -> dict[str, EntryPoint]:
    """Return the commands of packages by name; ``command`` loads one."""
    return {entry.name: entry for entry in entry_points(group=COMMANDS)}


def command(name: str) -> Callable[..., None]:
    """Return the function of a command of a package."""
    entry = commands()[name]
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


MODELS, DATASETS, COMMANDS = "noisewise.models", "noisewise.datasets", "noisewise.commands"
_DECLARATIONS = {MODELS: Models, DATASETS: Datasets}


class _Declarations(NamedTuple):
    sound: list[Registered]
    broken: list[PluginError]


@cache
def _declarations(group: str) -> _Declarations:
    """Read what packages declare; those that are broken are told apart."""
    found = _Declarations([], [])
    for entry in sorted(entry_points(group=group), key=lambda entry: (_package(entry), entry.name)):
        try:
            declared = imported(entry.value, _package(entry))
            if not isinstance(declared, _DECLARATIONS[group]):
                fault = TypeError(f"it is no {_DECLARATIONS[group].__name__}")
                raise PluginError(_package(entry), entry.value, fault)
        except PluginError as error:
            found.broken.append(error)
        else:
            found.sound.append(Registered(_package(entry), declared))
    return found


def _package(entry: EntryPoint) -> str:
    return entry.dist.name if entry.dist is not None else entry.name


def _broken(group: str) -> str:
    """Return a sentence for every package that cannot be used, to stand behind another."""
    return "".join(f" {error}" for error in _declarations(group).broken)


def _of_models() -> list[Registered]:
    return [Registered(OWN, _NOISEWISE), *_declarations(MODELS).sound]


@cache
def _models() -> dict[tuple[str, str], Registered]:
    found: dict[tuple[str, str], Registered] = {}
    for package, declared in _of_models():
        for model in declared.models:
            found.setdefault((model.kind, model.name), Registered(package, model))
    return found


@cache
def _classes() -> dict[str, Registered]:
    found: dict[str, Registered] = {}
    for package, declared in _of_models():
        for name, place in declared.classes.items():
            found.setdefault(name, Registered(package, place))
    return found


@cache
def _formats() -> list[Registered]:
    sound = _declarations(DATASETS).sound
    return [Registered(package, one) for package, all_ in sound for one in all_.formats]


@cache
def _tensors() -> dict[str, Registered]:
    found: dict[str, Registered] = {}
    for package, declared in _declarations(DATASETS).sound:
        for one in declared.tensors:
            found.setdefault(one.name, Registered(package, one))
    return found

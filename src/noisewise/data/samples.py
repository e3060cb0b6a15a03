"""Small files of made-up data: ratings of films and readings of sensors, to try things with.

Everything is drawn from a fixed seed, so that everybody has the same files. Nothing in them was
rated or read by anybody.
"""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import numpy as np

from noisewise.storage import write_bytes

Table = dict[str, list[Any]]

GENRES = ("comedy", "drama", "horror", "science fiction")
FILMS = {
    "comedy": "Airplane! 1980,Amelie 2001,Clue 1985,Groundhog Day 1993,Some Like It Hot 1959,"
    "The General 1926,Toy Story 1995,Tootsie 1982",
    "drama": "Casablanca 1942,Citizen Kane 1941,Ikiru 1952,M 1931,Ran 1985,Rashomon 1950,"
    "Tokyo Story 1953,Vertigo 1958",
    "horror": "Carrie 1976,Halloween 1978,Nosferatu 1922,Psycho 1960,Ringu 1998,Suspiria 1977,"
    "The Birds 1963,The Thing 1982",
    "science fiction": "Alien 1979,Blade Runner 1982,Brazil 1985,Gattaca 1997,Metropolis 1927,"
    "Primer 2004,Solaris 1972,Stalker 1979",
}
NAMES = (
    "ann ben carla dan eva finn gina hugo ines jon kim leo mia nils olga paul quinn rosa sam tara "
    "uma vera will xena yara zoe"
)
GROUPS = 3  # ann, ann2, ann3: as many people of every name
CARELESS = ("zoe", "dan")  # who rate nearly at random
TASTE, APPEAL, CARE, CARELESSNESS = 0.7, 0.5, 0.5, 1.5  # stds in stars
START = np.datetime64("2026-03-02T00:00")
DAYS = 14


def sample_ratings(seed: int = 0) -> dict[str, Table]:
    """Make up ratings of films, and tables of the people and the films.

    Parameters
    ----------
    seed : int
        The same seed gives the same tables.

    Returns
    -------
    dict
        Tables as dicts of columns: ``"ratings"`` (user, item, rating from 1 to 5, timestamp),
        ``"today"`` (ratings that came a day later, some by a new person and of a new film),
        ``"films"`` (item, genre, year) and ``"people"`` (user, age).

    Examples
    --------
    >>> tables = sample_ratings()
    >>> [column[0] for column in tables["ratings"].values()]
    ['ann', 'Some Like It Hot', 4, 1768343704]
    >>> len(tables["ratings"]["user"]), len(tables["films"]["item"])
    (1556, 33)
    """
    rng = np.random.default_rng(seed)
    known = [(*film.rsplit(" ", 1), genre) for genre in GENRES for film in FILMS[genre].split(",")]
    titles, years, genres = (list(column) for column in zip(*known, strict=True))
    people = [f"{name}{k or ''}" for k in (0, *range(2, GROUPS + 1)) for name in NAMES.split()]
    ages = rng.integers(16, 80, len(people))
    taste = rng.normal(0.0, TASTE, (len(people), len(GENRES)))
    taste[:, GENRES.index("horror")] += (45 - ages) / 40  # the young like horror better
    appeal = rng.normal(0.0, APPEAL, len(titles))
    noise = np.where([who in CARELESS for who in people], CARELESSNESS, CARE)
    old: Table = {"user": [], "item": [], "rating": [], "timestamp": []}
    for i, who in enumerate(people):
        for j in np.flatnonzero(rng.random(len(titles)) < 0.62):
            mean = 3.3 + taste[i, GENRES.index(genres[j])] + appeal[j]
            stars = int(np.clip(np.rint(rng.normal(mean, noise[i])), 1, 5))
            row = (who, titles[j], stars, 1_767_225_600 + int(rng.integers(60 * 86_400)))
            for column, value in zip(old.values(), row, strict=True):
                column.append(value)
    today = [("ann", "Dune", 5), ("eva", "Dune", 4), ("newcomer", "Alien", 5),
             ("newcomer", "Stalker", 4), ("newcomer", "Tootsie", 2)]  # fmt: skip
    new = dict(zip(("user", "item", "rating"), map(list, zip(*today, strict=True)), strict=True))
    new["timestamp"] = [1_772_409_600 + 60 * k for k in range(len(today))]
    films = {"item": [*titles, "Dune"], "genre": [*genres, "science fiction"],
             "year": [*map(int, years), 2021]}  # fmt: skip
    ages_of = {"user": [*people, "newcomer"], "age": [*ages.tolist(), 34]}
    return {"ratings": old, "today": new, "films": films, "people": ages_of}


def sample_readings(seed: int = 0) -> Table:
    """Make up two weeks of hourly readings of five thermometers and a hygrometer, with holes.

    Single readings are missing everywhere; ``attic`` had no power for two days, and ``office`` has
    one reading that cannot be. What is missing or wrong is a matter of the seed.

    Parameters
    ----------
    seed : int
        The same seed gives the same table.

    Returns
    -------
    dict
        Columns: ``time``, and one for each series; what is missing is NaN.

    Examples
    --------
    >>> table = sample_readings()
    >>> list(table)
    ['time', 'hall', 'attic', 'cellar', 'garden', 'office', 'humidity']
    >>> len(table["time"]), sum(np.isnan(table["attic"]).tolist())
    (336, 65)
    """
    rng = np.random.default_rng(seed)
    hours = np.arange(24 * DAYS)
    day = np.sin(2 * np.pi * (hours - 9) / 24)
    weather = _wandering(rng, len(hours), 30.0)
    parts = {  # level, swing of a day, share in the weather, what is its own, noise
        "hall": (20.0, 1.0, 0.5, 0.3, 0.1), "attic": (18.0, 4.0, 2.0, 0.6, 0.2),
        "cellar": (12.0, 0.2, 0.3, 0.2, 0.1), "garden": (9.0, 5.0, 3.0, 0.5, 0.3),
        "office": (21.0, 1.5, 0.4, 0.5, 0.1), "humidity": (55.0, -8.0, -4.0, 2.0, 1.0),
    }  # fmt: skip
    table: Table = {"time": np.datetime_as_string(START + hours * np.timedelta64(1, "h")).tolist()}
    for name, (level, swing, share, own, noise) in parts.items():
        series = level + swing * day + share * weather + own * _wandering(rng, len(hours), 8.0)
        readings = np.round(series + rng.normal(0.0, noise, len(hours)), 2)
        readings[rng.random(len(hours)) < 0.05] = np.nan
        table[name] = readings.tolist()
    table["attic"][168:216] = [float("nan")] * 48
    table["office"][280] = 48.3
    return table


def write_samples(folder: str | Path = ".") -> list[Path]:
    """Write the made-up tables as CSV files, and say where.

    Parameters
    ----------
    folder : str or Path
        Where they go: ``ratings.csv``, ``today.csv``, ``films.csv``, ``people.csv`` and
        ``readings.csv``. Files of these names are written over.

    Returns
    -------
    list of Path
        The files.

    Examples
    --------
    >>> import tempfile
    >>> [path.name for path in write_samples(tempfile.mkdtemp())]
    ['ratings.csv', 'today.csv', 'films.csv', 'people.csv', 'readings.csv']
    """
    tables = sample_ratings() | {"readings": sample_readings()}
    paths = [Path(folder) / f"{name}.csv" for name in tables]
    for path, table in zip(paths, tables.values(), strict=True):
        write_bytes(path, _as_csv(table).encode())
    return paths


def _as_csv(table: Table) -> str:
    """Return a table as CSV, in which a NaN is an empty field."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(table)
    for row in zip(*table.values(), strict=True):
        writer.writerow(["" if entry != entry else entry for entry in row])
    return text.getvalue()


def _wandering(rng: np.random.Generator, n: int, remembers: float) -> Any:
    """Return a path of variance 1 that forgets in so many steps."""
    fade = np.exp(-1 / remembers)
    steps = rng.normal(size=n)
    path = np.zeros(n)
    for k in range(n):
        path[k] = fade * path[k - 1] + np.sqrt(1 - fade**2) * steps[k] if k else steps[0]
    return path

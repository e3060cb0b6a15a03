"""What to run: the settings of ``settings.toml``, whole or in their quick form."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from noisewise.errors import DataError, SettingError
from noisewise_reproduction.runs import sources
from noisewise_reproduction.runs.sources import Source


@dataclass(frozen=True)
class Chosen:
    """A model with its settings.

    Attributes
    ----------
    label : str
        What results call it.
    title : str
        What tables call it.
    model : str
        What ``build`` calls it.
    settings : dict
        Settings that differ from the model's own.
    chosen : str
        How they were chosen.
    """

    label: str
    title: str
    model: str
    settings: dict[str, Any]
    chosen: str


@dataclass(frozen=True)
class Plan:
    """All that a run is asked for.

    Attributes
    ----------
    data : dict of Source
        The datasets that there are, by name.
    quick : bool
        One split, small ranks, few epochs, short series: it shows that everything works.
    splits : int
        Splits 0 to ``splits - 1``.
    """

    data: dict[str, Source]
    quick: bool = False
    splits: int = 5

    @classmethod
    def of(cls, folder: str | Path, *, quick: bool = False, splits: int | None = None) -> Plan:
        """Look into a folder of data; without a number of splits take that of the settings."""
        whole = settings()["run"]
        chosen = {**whole, **whole["quick"]} if quick else whole
        if splits is not None and splits < 1:
            raise SettingError(f"splits must be 1 or more; got {splits}.")
        data = sources.find(folder, chosen["times"] or None)
        return cls(data, quick, chosen["splits"] if splits is None else splits)

    @property
    def seeds(self) -> range:
        """The splits."""
        return range(self.splits)

    def artefact(self, name: str) -> dict[str, Any]:
        """Return the settings of an artefact."""
        return self._formed(settings()["artefacts"][name])

    def model(self, label: str, group: str = "ratings") -> Chosen:
        """Return a model of the group "ratings" or "sensors" by its label."""
        entry = settings()[group][label]
        own, quick = entry.get("settings", {}), entry.get("quick", {})
        return Chosen(
            label,
            entry["title"],
            entry.get("model", label),
            {**own, **quick} if self.quick else own,
            entry["chosen"],
        )

    def there(self, names: list[str]) -> list[Source]:
        """Return those of some datasets that there are; an error if there is none."""
        found = [self.data[name] for name in names if name in self.data]
        if not found:
            wanted = " or ".join(file for name in names for file in sources.FILES[name][1])
            raise DataError(f"The folder of data needs {wanted}; it has none of them.")
        return found

    def _formed(self, entry: dict[str, Any]) -> dict[str, Any]:
        quick = entry.get("quick", {}) if self.quick else {}
        return {key: value for key, value in {**entry, **quick}.items() if key != "quick"}


@cache
def settings() -> dict[str, Any]:
    """Return the settings as the file has them."""
    text = files("noisewise_reproduction.runs").joinpath("settings.toml").read_text("utf-8")
    return tomllib.loads(text)

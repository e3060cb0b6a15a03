"""Results in one file: written after every split, and taken up where they stopped.

A file holds one result, or a list of them, one per protocol.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from noisewise.documents import is_number, is_score, read_json
from noisewise.errors import DataError
from noisewise.evaluation.ratings import Result, as_json
from noisewise.storage import write_bytes


class Record:
    """Results of one model on the same data, in a file if there is one.

    Parameters
    ----------
    about : dict
        What all results have in common, such as their model and data.
    path : path or None
        The file; results that it already holds are read, and kept. None keeps them in memory.

    Attributes
    ----------
    results : list of dict
        What was measured so far, one result per protocol.
    """

    def __init__(self, about: dict[str, Any], path: str | Path | None = None) -> None:
        self.path = None if path is None else Path(path)
        self.results: list[Result] = []
        if self.path is not None and self.path.exists():
            self.results = read_results(self.path)
        for key, value in about.items():
            for result in self.results:
                if result[key] != value:
                    raise DataError(
                        f"{path} holds results of another {key}, {result[key]} and not {value}: "
                        "write to another file, or remove the old one."
                    )

    def under(self, protocol: str | dict[str, Any]) -> Result | None:
        """Return the result under a protocol, None if there is none yet."""
        return next((one for one in self.results if one["protocol"] == protocol), None)

    def keep(self, result: Result) -> None:
        """Put a result in the place of the one under the same protocol, and write the file."""
        protocols = [one["protocol"] for one in self.results]
        if result["protocol"] in protocols:
            self.results[protocols.index(result["protocol"])] = result
        else:
            self.results.append(result)
        if self.path is not None:
            write_bytes(self.path, as_json(self.content).encode())

    @property
    def content(self) -> Any:
        """What the file holds: the result if there is one, else a list."""
        return self.results[0] if len(self.results) == 1 else self.results


def read_results(path: str | Path) -> list[Result]:
    """Read a file of results; a broken or foreign one is a ``DataError``."""
    content = read_json(path, "results")
    results = content if isinstance(content, list) else [content]
    if not results:
        raise DataError(f"{path} holds no results: remove it, or run `noisewise evaluate` again.")
    for result in results:
        if not isinstance(result, dict) or not result.keys() >= _WHOLE:
            raise DataError(
                f"{path} holds something other than results of `noisewise evaluate`: these have "
                f"{', '.join(sorted(_WHOLE))}."
            )
        rows = result["splits"]
        if not isinstance(rows, list) or not all(map(_is_split, rows)):
            raise DataError(f"{path} is damaged: its splits must each have a seed, and numbers.")
        if not (isinstance(result["model"], str) and _is_protocol(result["protocol"])):
            raise DataError(f"{path} is damaged: it does not name its model and its protocol.")
        if not isinstance(result["settings"], dict) or not isinstance(result["data"], dict):
            raise DataError(f"{path} is damaged: its settings and its data must have names.")
        if not isinstance(result.get("mean", {}), dict):
            raise DataError(f"{path} is damaged: the means of its scores must have names.")
    return results


def _is_split(row: Any) -> bool:
    if not isinstance(row, dict):
        return False
    seed = row.get("seed")
    return isinstance(seed, int) and is_number(seed) and all(map(is_score, row.values()))


def _is_protocol(protocol: Any) -> bool:
    if isinstance(protocol, dict):
        return isinstance(protocol.get("kind"), str) and is_number(protocol.get("share"))
    return isinstance(protocol, str)


_WHOLE = {"model", "settings", "protocol", "data", "splits"}

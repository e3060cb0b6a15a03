"""Public datasets: which there are, on what terms, and how to get them (pooch, an extra).

``sources.toml`` lists them, and installed packages may add some. Nothing is fetched before its
licence was agreed to, and files that no checksum is published for only if that was, too.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import IO, Any, Literal

from noisewise import registry
from noisewise.errors import DataError, MissingExtraError, SettingError, is_shown

SECONDS = 30  # to wait for a server that says nothing
_PIECE = 2**16

Agree = Callable[[Literal["licence", "unchecked"], str], bool]


@dataclass(frozen=True)
class File:
    """A file to download."""

    url: str
    megabytes: float  # about how large it is
    md5: str | None = None  # the checksum that its owners publish, if they do
    unpack: str | None = None  # which file to take out of it, if it is an archive
    to: str | None = None  # where to put it, within the folder; under its own name by default

    @property
    def place(self) -> str:
        """Where it is put, within the folder."""
        return self.to or self.url.rpartition("/")[2]


@dataclass(frozen=True)
class Source:
    """A public dataset."""

    name: str
    what: str
    licence: str  # on what terms it may be used, in a sentence
    terms: str  # where these stand
    read: str  # what to give to ``noisewise.read``, within the folder
    files: tuple[File, ...]  # nothing where they have to be downloaded by hand
    by_hand: str | None = None  # why that is so, and what to put into ``read``
    sites: tuple[str, ...] = ()  # the usual ones, where there is a file for every site

    @classmethod
    def of(cls, name: str, *, files: list[Any], sites: Sequence[str] = (), **entry: Any) -> Source:
        """Make a dataset of what TOML says of it."""
        return cls(name, files=tuple(File(**file) for file in files), sites=tuple(sites), **entry)

    @property
    def megabytes(self) -> float:
        """About how much there is to download."""
        return sum(file.megabytes for file in self.files) * max(len(self.sites), 1)

    @property
    def is_checked(self) -> bool:
        """Whether all of it has a published checksum."""
        return bool(self.files) and all(file.md5 is not None for file in self.files)

    def at(self, sites: Sequence[str]) -> Source:
        """Return the same dataset for other sites."""
        if not self.sites:
            raise SettingError(f"{self.name} is not divided into sites; got {', '.join(sites)}.")
        strange = [site for site in sites if not (site.isascii() and site.isalnum())]
        if strange:
            raise SettingError(f"Codes of sites are letters and digits; got {strange[0]!r}.")
        return replace(self, sites=tuple(sites))

    def downloads(self) -> list[File]:
        """Return all files, one for each site where there are sites."""
        return [
            replace(file, url=file.url.replace("{site}", site), to=file.place.format(site=site))
            for site in self.sites or ("",)
            for file in self.files
        ]


def sources() -> dict[str, Source]:
    """Return the datasets there are, by name."""
    return {name: Source.of(name, **entry) for name, entry in registry.sources().items()}


def find(name: str) -> Source:
    """Return a dataset by its name."""
    known = sources()
    if name not in known:
        raise SettingError(f"A dataset must be one of {', '.join(known)}; got {name!r}.")
    return known[name]


def fetch(source: Source, to: str | Path = "data", *, agree: Agree) -> dict[Path, str]:
    """Download a dataset into a folder, check it and unpack it; return the SHA-256 of each file.

    A file that is there already is only checked. ``agree`` is asked, with a sentence, whether the
    "licence" is agreed to, and where files have no published checksum, whether "unchecked" will do.
    """
    folder = Path(to)
    if source.by_hand is not None:
        raise DataError(
            f"{source.name} cannot be fetched. {source.by_hand} into {folder / source.read}: "
            f"{source.terms}"
        )
    try:
        import pooch
    except ImportError:
        raise MissingExtraError("Fetching datasets", "data") from None
    pooch.get_logger().setLevel("WARNING")
    if not agree("licence", f"{source.what}.\n{source.licence}: {source.terms}"):
        raise DataError(f"{source.name} was not fetched, as its licence was not agreed to.")
    files = source.downloads()
    unchecked = sum(file.md5 is None for file in files)
    sentence = (
        f"No checksum is published for {unchecked} of {len(files)} files of {source.name}, so "
        "nobody can say whether what comes is the right thing."
    )
    if unchecked and not agree("unchecked", sentence):
        raise DataError(f"{source.name} was not fetched, as it cannot be checked.")
    found = {}
    for file in files:
        path = _download(pooch, source.name, file, folder)
        if file.unpack is not None:
            path = _unpack(path, file.unpack, folder)
        with path.open("rb") as content:
            found[path] = hashlib.file_digest(content, "sha256").hexdigest()
    return found


def _download(pooch: Any, dataset: str, file: File, folder: Path) -> Path:
    import requests  # which pooch brings

    place = folder / file.place
    known = None if file.md5 is None else f"md5:{file.md5}"
    bar = is_shown() is not False
    way = pooch.HTTPDownloader(progressbar=bar, chunk_size=_PIECE, timeout=SECONDS)
    try:
        pooch.retrieve(file.url, known, fname=place.name, path=place.parent, downloader=way)
    except requests.RequestException as error:
        if error.response is not None:
            error.response.close()
        raise DataError(
            f"{file.url} could not be reached ({error}). {_hint(file, folder)}"
        ) from None
    except ValueError as error:
        raise DataError(
            f"{file.url} is not what {dataset} was: its checksum is not the published one, so "
            f"it was thrown away ({error}). {_hint(file, folder)}"
        ) from None
    return place


def _hint(file: File, folder: Path) -> str:
    """Say what to do by hand."""
    if file.unpack is None:
        return f"Download it with a browser, and put it at {folder / file.place}."
    return (
        f"Download it with a browser, and unpack it so that there is {folder / file.unpack}; or "
        f"put it at {folder / file.place} and fetch again."
    )


def _unpack(archive: Path, member: str, folder: Path) -> Path:
    """Take a file out of an archive, and the page about it beside."""
    try:
        with zipfile.ZipFile(archive) as packed:
            about = [name for name in packed.namelist() if PurePosixPath(name).stem == "README"]
            for name in (member, *about):
                target = folder / PurePosixPath(member).parent / PurePosixPath(name).name
                with packed.open(name) as content:
                    _write(content, target)
    except (KeyError, zipfile.BadZipFile) as error:
        raise DataError(
            f"{archive} does not hold {member}: {error}. Remove it, and fetch again."
        ) from None
    return folder / member


def _write(content: IO[bytes], target: Path) -> None:
    """Copy a stream into a file beside the target, and rename it."""
    target.parent.mkdir(parents=True, exist_ok=True)
    beside = target.with_name(f".{target.name}.part")
    try:
        with beside.open("wb") as file:
            shutil.copyfileobj(content, file, _PIECE)
        os.replace(beside, target)
    finally:
        beside.unlink(missing_ok=True)

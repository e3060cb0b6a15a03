"""Options that are checked before any work is done: choices, and files and folders to write."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path
from typing import Any

import typer

from noisewise import storage
from noisewise.cli.tables import check_ending
from noisewise.errors import SettingError
from noisewise.report.canvas import check_kind

FEW = 4  # choices that help shows in place of a word for them


def choice(known: Collection[str], *names: str, help: str, **more: Any) -> Any:
    """Return an option that takes one of a few words, and completes them.

    Parameters
    ----------
    known : collection of str
        The words.
    *names : str
        As ``typer.Option`` has them: ``--model``.
    help : str
        What the option is for.
    **more
        As for ``typer.Option``.
    """

    def checked(option: typer.CallbackParam, value: Any) -> Any:
        for word in value if isinstance(value, list) else [value]:
            if word is not None and word not in known:
                raise SettingError(
                    f"{option.opts[0]} must be one of {', '.join(known)}; got {word!r}."
                )
        return value

    def completed(incomplete: str) -> list[str]:
        return [word for word in known if word.startswith(incomplete)]

    if len(known) <= FEW:
        more.setdefault("metavar", f"[{'|'.join(known)}]")
    return typer.Option(*names, help=help, callback=checked, autocompletion=completed, **more)


def to_write(*names: str, help: str, **more: Any) -> Any:
    """Return an option that names a file to write; that it can be written is checked first."""
    return typer.Option(*names, help=help, callback=writable, **more)


def table_to_write(*names: str, help: str, **more: Any) -> Any:
    """Return an option that names a table to write, in the format that its ending says."""

    def checked(path: Path | None) -> Path | None:
        if path is not None:
            check_ending(path)
        return writable(path)

    return typer.Option(*names, help=help, callback=checked, **more)


def picture_to_write(*names: str, help: str, **more: Any) -> Any:
    """Return an option that names a picture to write."""

    def checked(path: Path | None) -> Path | None:
        if path is not None:
            check_kind(path.suffix[1:])
        return writable(path)

    return typer.Option(*names, help=help, callback=checked, **more)


def folder_to_write(*names: str, help: str, **more: Any) -> Any:
    """Return an option that names a folder, to be made where there is none."""

    def checked(path: Path | None) -> Path | None:
        if path is not None:
            found = path.absolute()
            while not found.exists():
                found = found.parent
            _check_folder(found, path)
        return path

    return typer.Option(*names, help=help, callback=checked, **more)


def writable(path: Path | None) -> Path | None:
    """Return a path, or raise if no file can be written there; - stands for the terminal."""
    if path is not None and str(path) != "-":
        storage.check_writable(path)
    return path


def _check_folder(folder: Path, path: Path) -> None:
    if not folder.is_dir():
        raise SettingError(f"{path} cannot be written: {folder} is not a folder.")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise SettingError(f"{path} cannot be written: you may not write to {folder}.")

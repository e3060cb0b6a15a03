"""Options that name files of features of users and of items."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from noisewise.cli.options import option, refuse
from noisewise.data.feature_files import read_features
from noisewise.data.files import typed
from noisewise.data.ids import Ids
from noisewise.errors import SettingError
from noisewise.models.featured import Featured


@dataclass(frozen=True, kw_only=True)
class FeatureOptions:
    """Files of what else is known of users and items."""

    user_features: Path | None = option(
        "What is known of users: CSV, TSV, Parquet or npz with a column of ids, and others with "
        "numbers, categories or words."
    )
    item_features: Path | None = option("The same of items.")

    def tables(
        self, ids: Sequence[Ids], data: Path | None = None
    ) -> dict[int, dict[str, Any]] | None:
        """Read tables by mode; None if no file is named.

        Rows of an npz file without ids go by the ids of ``data``, if that is an npz of ratings.
        """
        given = [
            (mode, path)
            for mode, path in enumerate((self.user_features, self.item_features))
            if path is not None
        ]
        if given and len(ids) != 2:
            raise SettingError(
                f"--user-features and --item-features need 2 id columns; got {len(ids)}."
            )
        rows = data if data is not None and data.suffix == ".npz" else None
        found = {}
        for mode, path in given:
            table = read_features(path, ids[mode].name, ids=rows)
            column = table[ids[mode].name]
            if isinstance(column, list):
                table[ids[mode].name] = [typed(entry, ids[mode]) for entry in column]
            found[mode] = table
        return found or None

    def refuse(self) -> None:
        """Raise for options that sensors do not have."""
        given = {name.replace("_", "-"): path for name, path in vars(self).items()}
        refuse("is for ratings", **given)


def knowing(model: Any, features: FeatureOptions) -> Any:
    """Return a model that knows ids by their features too, if files of them are named."""
    tables = features.tables(model.ids_)
    if tables is None:
        return model
    if not isinstance(model, Featured):
        raise SettingError(f"A {type(model).__name__} takes no --user-features or --item-features.")
    return model.with_features(tables)

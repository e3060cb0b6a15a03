"""why: which of a user's own ratings pull a prediction."""

from __future__ import annotations

from pathlib import Path

import typer

from noisewise.cli import options
from noisewise.cli.options import option, tell
from noisewise.cli.ratings import MODEL_FILE
from noisewise.data.files import typed
from noisewise.errors import SettingError, printable
from noisewise.models import load
from noisewise.models.kept_rows import KeptRows


def why(
    model: Path = MODEL_FILE,
    user: str = typer.Argument(..., help="Whose prediction."),
    item: str = typer.Argument(..., help="Of what."),
    n: int = option("How many of the user's ratings to list.", "-n", default=10),
    report: Path | None = options.JSON,
) -> None:
    """Say which of a user's own ratings pull a prediction, by how much, and how sure that is.

    A pull has two parts: what the rating adds as it differs from what the average user would give,
    and what it adds that the item was rated at all. "sure" is the share of draws that agree with
    its sign.

    Example: `noisewise why movies.nw 17 42 -n 5`
    """
    fitted = load(model)
    if not isinstance(fitted, KeptRows):
        raise SettingError(f"{model} holds a {type(fitted).__name__}; `why` needs the model bayes.")
    names = [ids.name for ids in fitted.ids_]
    cell = [typed(id, ids) for id, ids in zip((user, item), fitted.ids_, strict=False)]
    found = fitted.explain(cell[0], cell[1], n)
    table = {
        "": [f"average {names[0]}", *(str(pull.id) for pull in found.pulls), "rest"],
        "rating": ["", *(f"{pull.value:g}" for pull in found.pulls), ""],
        "pull": [
            f"{found.average:.2f}",
            *(f"{p.pull:+.3f}" for p in found.pulls),
            f"{found.rest:+.3f}",
        ],
        "std": ["", *(f"{pull.std:.3f}" for pull in found.pulls), ""],
        "sure": ["", *(f"{pull.sure:.0%}" for pull in found.pulls), ""],
        "by value": ["", *(f"{pull.by_value:+.3f}" for pull in found.pulls), ""],
        "by choice": ["", *(f"{pull.by_choice:+.3f}" for pull in found.pulls), ""],
    }
    head = f"{names[0]} {cell[0]}, {names[1]} {cell[1]}: {found.mean:.2f} ± {found.std:.2f}"
    told = found._asdict() | {"pulls": [pull._asdict() for pull in found.pulls]}
    tell(f"{printable(head)}\n{options.aligned(table)}", told, report)

"""One file per model, all with one contract; ``load`` reads any of them back."""

from __future__ import annotations

from pathlib import Path

from noisewise import storage
from noisewise.models.base import Factorizer
from noisewise.models.model_file import model_class
from noisewise.models.shelf import head_of


def load(path: str | Path) -> Factorizer:
    """Read a model of any kind that ``save`` wrote, if an installed package has it.

    The path may be that of a folder with shards (see ``Cluster``). A broken or foreign file is a
    ``ModelFileError``.

    Examples
    --------
    >>> import tempfile
    >>> from noisewise import DeviationFactorizer
    >>> model = DeviationFactorizer(rank=1, patience=None).fit([("ann", "M", 5), ("bob", "M", 4)])
    >>> path = f"{tempfile.mkdtemp()}/films.nw"
    >>> model.save(path)
    >>> load(path)
    DeviationFactorizer(patience=None, rank=1)
    """
    with storage.reading(path):
        kind = model_class(storage.read_header(head_of(path), "model").get("model"))
    model: Factorizer = kind.load(path)
    return model

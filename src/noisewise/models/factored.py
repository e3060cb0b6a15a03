"""Models that are trained in epochs and keep a ``Factors``: how they are filed."""

from __future__ import annotations

from abc import abstractmethod
from pathlib import Path
from typing import Any

from noisewise import storage
from noisewise.engine.factors import Factors
from noisewise.engine.state import Params
from noisewise.errors import ModelFileError
from noisewise.models.low_rank import LowRank
from noisewise.models.settings import check
from noisewise.models.trained import Trained
from noisewise.recommend import Seen


class Factored(Trained, LowRank):
    """Base class of trained models that keep a ``Factors``, and how such a model is filed."""

    @abstractmethod
    def _params(self, seed: int) -> Params:
        """Return how the engine lays out what was learned."""

    def _pack(self) -> tuple[dict[str, Any], storage.Tensors]:
        header, tensors = self.factors_.pack()
        record = {"learning_curve": self.learning_curve_, "seconds": self.seconds_}
        if self.seen_ is not None:
            tensors |= {"seen.starts": self.seen_.starts, "seen.columns": self.seen_.columns}
        return {"factors": header, "record": record}, tensors

    def _unpack(self, path: str | Path, header: dict[str, Any], tensors: storage.Tensors) -> None:
        check(self, self._rules)
        shape = tuple(map(len, self.ids_))
        if len(shape) != 2:
            raise ModelFileError(f"{path} is damaged: it must have 2 modes, but has {len(shape)}.")
        params = self._params(int(header["factors"]["seed"]))
        self.factors_ = Factors.unpack(path, params, header["factors"], tensors, shape)
        self.seen_ = Seen.unpack(path, tensors, shape) if "seen.starts" in tensors else None
        self.n_features_in_ = len(shape)
        self.n_epochs_ = self.factors_.state.epoch
        self.learning_curve_ = dict(header["record"]["learning_curve"])
        self.seconds_ = float(header["record"]["seconds"])

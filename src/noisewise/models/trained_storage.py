"""How trained models are filed: the record of training, and a ``Factors`` where they keep one."""

from __future__ import annotations

from abc import abstractmethod
from pathlib import Path
from typing import Any, ClassVar

from noisewise import storage
from noisewise.data import Observations
from noisewise.engine.sgd.factors import Factors
from noisewise.engine.sgd.layout import Params
from noisewise.errors import ModelFileError
from noisewise.models.rows import LowRank
from noisewise.models.trained import Trained
from noisewise.recommend import Seen
from noisewise.settings import settings


@settings
class Filed(Trained):
    """Base class of trained models whose file has the record of their training."""

    _any_modes: ClassVar[bool] = False  # two id columns only, else two or more

    def _checked(self, observations: Observations) -> Observations:
        return observations if self._any_modes else super()._checked(observations)

    def _remember(self, observations: Observations) -> None:
        self.seen_: Seen | None = None
        if getattr(self, "keep_seen", False) and observations.n_modes == 2:
            self.seen_ = Seen.of(observations.codes, observations.shape)

    def _pack(self) -> tuple[dict[str, Any], storage.Tensors]:
        tensors: storage.Tensors = {}
        if self.seen_ is not None:
            tensors |= {"seen.starts": self.seen_.starts, "seen.columns": self.seen_.columns}
        record = {
            "learning_curve": self.learning_curve_,
            "epochs": self.n_epochs_,
            "seconds": self.seconds_,
        }
        return {"record": record}, tensors

    def _unpack(self, path: str | Path, header: dict[str, Any], tensors: storage.Tensors) -> None:
        shape = tuple(map(len, self.ids_))
        if len(shape) < 2 or (len(shape) > 2 and not self._any_modes):
            raise ModelFileError(f"{path} is damaged: it must have 2 modes, but has {len(shape)}.")
        self.seen_ = Seen.unpack(path, tensors, shape) if "seen.starts" in tensors else None
        self.n_features_in_ = len(shape)
        record = header["record"]
        self.learning_curve_ = dict(record["learning_curve"])
        self.n_epochs_, self.seconds_ = int(record["epochs"]), float(record["seconds"])


@settings
class Factored(Filed, LowRank):
    """Base class of trained models that keep a ``Factors``."""

    @abstractmethod
    def _params(self, seed: int) -> Params:
        """Return how the engine lays out what was learned."""

    def _pack(self) -> tuple[dict[str, Any], storage.Tensors]:
        header, tensors = super()._pack()
        learned, rows = self.factors_.pack()
        return {**header, "factors": learned}, tensors | rows

    def _unpack(self, path: str | Path, header: dict[str, Any], tensors: storage.Tensors) -> None:
        super()._unpack(path, header, tensors)
        params = self._params(storage.take_seed(path, header["factors"]))
        shape = tuple(map(len, self.ids_))
        self.factors_ = Factors.unpack(
            storage.Source(path, header["factors"], tensors), params, shape
        )

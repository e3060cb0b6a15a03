"""What models in torch share: torch itself, sums over observed cells, the state they carry.

torch is an optional library, imported by the first model that needs it. Nothing here builds a table
of all cells: rows are summed, and products of rows taken, only where something was observed. Both
work on one row after the other, so that the number of threads changes no bit; all that adds up over
rows is left to one thread.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Any, Self

import numpy as np
import numpy.typing as npt

import noisewise.engine.arrays as engine
from noisewise.engine.arrays import Codes
from noisewise.errors import MissingExtraError, SettingError
from noisewise.schema import Source
from noisewise.settings import one_of
from noisewise.storage import Damaged, Tensors

DEVICE = one_of("auto", "cpu", "cuda")  # the rule of the setting

# What optimizers remember: a tensor like the weight ("like") or of all weights in a row ("flat"),
# numbers, counts.
MEMORY = {
    "Rprop": {"step": "number", "prev": "like", "step_size": "like"},
    "SGD": {"momentum_buffer": "like or none"},
    "LBFGS": {
        "func_evals": "count", "n_iter": "count", "d": "flat", "t": "number",
        "old_dirs": "list of flat", "old_stps": "list of flat", "ro": "list of number",
        "H_diag": "number", "prev_flat_grad": "flat", "prev_loss": "number",
        "al": "list of number or none",
    },
}  # fmt: skip
SAME_LENGTH = ("old_dirs", "old_stps", "ro")

Tensor = Any  # torch.Tensor, where torch is installed
Optimizer = Any  # torch.optim.Optimizer


def torch_for(purpose: str) -> Any:
    """Import torch, or raise with the line that installs it."""
    try:
        import torch
    except ImportError as error:
        raise MissingExtraError(purpose, "neural", "noisewise-reproduction") from error
    return torch


def device_for(torch: Any, chosen: str) -> Any:
    """Return the device of a setting: the GPU that "auto" found, or the one that was named."""
    present = bool(torch.cuda.is_available())
    if chosen == "cuda" and not present:
        raise SettingError("device must be 'auto' or 'cpu' where torch sees no GPU; got 'cuda'.")
    return torch.device("cuda" if present and chosen != "cpu" else "cpu")


@contextmanager
def torch_threads(torch: Any, n: int) -> Iterator[None]:
    """Give torch's CPU operations n threads for a while."""
    before = torch.get_num_threads()
    torch.set_num_threads(n)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class Cells:
    """Some cells of a matrix, row after row.

    Parameters
    ----------
    torch
        The library.
    starts, columns : int32 tensors
        Row i has the columns ``columns[starts[i]:starts[i + 1]]``; a column may come twice.
    n_columns : int
        Columns of the matrix.
    n_jobs : int
        Threads to use on the CPU.
    """

    def __init__(
        self, torch: Any, starts: Tensor, columns: Tensor, n_columns: int, n_jobs: int
    ) -> None:
        self.torch, self.starts, self.columns = torch, starts, columns
        self.n_columns, self.n_jobs = n_columns, n_jobs

    @classmethod
    def of(
        cls,
        torch: Any,
        rows: Codes,
        columns: Codes,
        shape: tuple[int, int],
        device: Any,
        n_jobs: int,
    ) -> tuple[Cells, npt.NDArray[np.int64]]:
        """Lay out cells given in any order; also return that order: cell k was ``order[k]``."""
        order = np.lexsort((columns, rows))
        starts = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=shape[0]))])
        place, column = (torch.from_numpy(a.astype(np.int32)) for a in (starts, columns[order]))
        return cls(torch, place.to(device), column.to(device), shape[1], n_jobs), order

    def sums(self, table: Tensor, weights: Tensor | None = None) -> Tensor:
        """Sum, for every row, the table's rows of its columns, each times its weight."""
        with torch_threads(self.torch, self.n_jobs):
            return self.torch.nn.functional.embedding_bag(
                self.columns, table, self.starts, mode="sum", per_sample_weights=weights,
                include_last_offset=True,
            )  # fmt: skip

    def dots(self, left: Tensor, right: Tensor) -> Tensor:
        """Multiply, for every cell, the row's row of ``left`` by the column's row of ``right``."""
        with torch_threads(self.torch, self.n_jobs):
            product = self.torch.sparse.sampled_addmm(self._pattern, left, right.T, beta=0.0)
        return product.values()

    @cached_property
    def _pattern(self) -> Tensor:
        zeros = self.torch.zeros(len(self.columns), device=self.columns.device)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Sparse")  # that it is in beta, and does not check
            return self.torch.sparse_csr_tensor(
                self.starts, self.columns, zeros, size=(len(self.starts) - 1, self.n_columns),
                check_invariants=False,
            )  # fmt: skip


class TorchState:
    """Weights by name and the optimizer that changes them: what the loop carries and keeps.

    Parameters
    ----------
    torch
        The library.
    weights : dict of tensors
        What is learned; float32.
    optimizer : callable
        Makes an optimizer of such a dict.
    epoch : int
        Number of finished epochs.
    """

    def __init__(
        self,
        torch: Any,
        weights: dict[str, Tensor],
        optimizer: Callable[[dict[str, Tensor]], Optimizer],
        epoch: int = 0,
    ) -> None:
        self.torch, self.weights, self.epoch = torch, weights, epoch
        self._make, self.optimizer = optimizer, optimizer(weights)

    def copy(self) -> TorchState:
        """Return a state with weights of its own; its optimizer has seen nothing yet."""
        weights = {name: weight.clone() for name, weight in self.weights.items()}
        return TorchState(self.torch, weights, self._make, self.epoch)

    def is_finite(self) -> bool:
        """Whether every weight is finite (a sum is enough to see it)."""
        return all(bool(weight.sum().isfinite()) for weight in self.weights.values())

    def arrays(self) -> Tensors:
        """Weights as numpy arrays of their own."""
        return {name: weight.cpu().numpy().copy() for name, weight in self.weights.items()}

    def pack(self) -> tuple[dict[str, Any], Tensors]:
        """Header and tensors of a checkpoint, what the optimizer remembers among them."""
        tensors = self.arrays()
        memory = self._packed(self.optimizer.state_dict()["state"], "optimizer", tensors)
        return {"epoch": self.epoch, "optimizer": memory}, tensors

    def restored(self, source: engine.Source) -> Self:
        """Return a state like this one with what ``pack`` gave; the file is not trusted."""
        copy: Any = self.copy()
        for name, weight in copy.weights.items():
            array = source.array(name, "float32", *weight.shape)
            weight.copy_(self.torch.from_numpy(array))
        copy.epoch = source.whole("epoch")
        state = copy.optimizer.state_dict()
        state["state"] = self._remembered(source)
        copy.optimizer.load_state_dict(state)
        return copy  # type: ignore[no-any-return]

    def _packed(self, value: Any, name: str, tensors: Tensors) -> Any:
        """Turn what an optimizer remembers into JSON; tensors are named in it and kept beside."""
        if isinstance(value, dict):
            return {str(k): self._packed(v, f"{name}.{k}", tensors) for k, v in value.items()}
        if isinstance(value, list):
            return [self._packed(v, f"{name}.{k}", tensors) for k, v in enumerate(value)]
        if not self.torch.is_tensor(value):
            return value
        if value.ndim == 0:
            return {"scalar": value.item()}
        tensors[name] = value.cpu().numpy()
        return {"tensor": name}

    def _remembered(self, source: engine.Source) -> dict[int, Any]:
        """Undo ``_packed``: for every weight, what this kind of optimizer remembers of it."""
        kinds = MEMORY[type(self.optimizer).__name__]
        weights = list(self.weights.values())
        remembered = {}
        for key, entry in source.header["optimizer"].items():
            weight = weights[int(key)]
            known = (kinds.keys(), kinds.keys() - {"al"}, {"func_evals", "n_iter"})
            if entry.keys() not in known or (len(entry) == 2 and entry["n_iter"] != 0):
                raise Damaged("its optimizer remembers other things")
            remembered[int(key)] = {
                name: self._unpacked(source, value, kinds[name], weight)
                for name, value in entry.items()
            }
            lengths = {len(entry[name]) for name in entry if name in SAME_LENGTH}
            room = self.optimizer.param_groups[0].get("history_size", 0)
            sound = len(lengths) < 2 and max(lengths, default=0) <= room
            if not sound or len(entry.get("al", [None] * room)) != room:
                raise Damaged("its optimizer has lost its memory")
        return remembered

    def _unpacked(self, source: engine.Source, value: Any, kind: str, weight: Tensor) -> Any:
        if kind.startswith("list of "):
            each = kind.removeprefix("list of ")
            return [self._unpacked(source, v, each, weight) for v in value]
        if value is None and kind.endswith("or none"):
            return None
        if kind == "count":
            return Source({"count": value}, {}).whole("count")
        if kind.startswith("number"):
            if isinstance(value, dict):
                return self.torch.tensor(Source(value, {}).real("scalar"))
            return Source({"number": value}, {}).real("number")
        every = sum(weight.numel() for weight in self.weights.values())
        shape = (every,) if kind == "flat" else tuple(weight.shape)
        return self.torch.from_numpy(source.array(value["tensor"], "float32", *shape))

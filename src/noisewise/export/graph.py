"""A fitted model as an ONNX graph: ids in, mean and std out, as ``predict`` gives them.

The graph has everything: the numbers of ids, their vectors, clipping and calibration. Ids never
seen get what ``predict`` gives them.
"""

from __future__ import annotations

import math
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from noisewise.calibration import MOST_FACTOR, Calibration
from noisewise.errors import MissingExtraError, SettingError
from noisewise.export.vectors import check_exportable, vectors
from noisewise.storage import check_writable, write_bytes

OPSET, ML_OPSET = 17, 3
IR_VERSION = 9
MOST_BYTES = 2_000_000_000  # of a file of protocol buffers


def to_onnx(model: Any, path: str | Path, *, mode: int | str | None = None) -> None:
    """Write a ``DeviationFactorizer`` to an ONNX file (extra: onnx).

    Parameters
    ----------
    model : DeviationFactorizer
        Fitted, with two modes; ids are all text or all whole numbers.
    path : path
        The file; it is written wholly or not at all.
    mode : int or str, optional
        Without it, the graph takes a column of ids for each mode, named as they are, and gives
        ``mean`` and ``std``. With it, the graph is one side alone: ids of this mode in, and out
        the vectors ``mean`` and ``variance`` of ``noisewise.export.vectors``, whose inner products
        with those of the other side are the mean and the variance before calibration.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from noisewise import DeviationFactorizer
    >>> ratings = [("ann", "Alien", 5), ("ann", "Brazil", 4), ("bob", "Brazil", 1)]
    >>> model = DeviationFactorizer(rank=1, patience=None, random_state=0).fit(ratings)
    >>> path = Path(tempfile.mkdtemp()) / "ratings.onnx"
    >>> to_onnx(model, path)
    >>> path.exists()
    True
    """
    model = check_exportable(model)
    check_writable(path)
    graph = Graph()
    if mode is None:
        names = [ids.name for ids in model.ids_]
        if names[0] == names[1] or {"mean", "std"} & set(names):
            names = ["user", "item"]
        _cells(graph, model, names)
    else:
        m = model.mode_number(mode)
        _side(graph, model, m, model.ids_[m].name if mode != "mean" else "id")
    write_bytes(path, graph.bytes(type(model).__name__))


class Graph:
    """An ONNX graph that grows node by node; a name stands for what a node gives."""

    onnx: Any
    nodes: list[Any]
    tables: list[Any]
    inputs: list[Any]
    outputs: list[Any]

    def __init__(self) -> None:
        try:
            import onnx
        except ImportError:
            raise MissingExtraError("Writing ONNX", "onnx") from None
        self.onnx, self.nodes, self.tables = onnx, list[Any](), list[Any]()
        self.inputs, self.outputs = list[Any](), list[Any]()

    def take(self, name: str, kind: str) -> str:
        """Declare an input: a column."""
        number = getattr(self.onnx.TensorProto, kind)
        self.inputs.append(self.onnx.helper.make_tensor_value_info(name, number, ["n"]))
        return name

    def give(self, name: str, of: str, width: int | None = None) -> None:
        """Declare an output, of single precision: a column, or rows of some width."""
        self.add("Cast", of, to=self.onnx.TensorProto.FLOAT, out=name)
        shape = ["n"] if width is None else ["n", width]
        single = self.onnx.TensorProto.FLOAT
        self.outputs.append(self.onnx.helper.make_tensor_value_info(name, single, shape))

    def number(self, value: Any, dtype: Any = np.float64) -> str:
        """Add a constant."""
        name = f"c{len(self.tables)}"
        array = np.ascontiguousarray(np.asarray(value, dtype=dtype))
        self.tables.append(self.onnx.numpy_helper.from_array(array, name))
        return name

    def add(self, kind: str, *inputs: str, out: str | None = None, **more: Any) -> str:
        """Add a node and return the name of what it gives."""
        name = out or f"n{len(self.nodes)}"
        self.nodes.append(self.onnx.helper.make_node(kind, list(inputs), [name], **more))
        return name

    def rows(self, table: Any, codes: str) -> str:
        """Look up rows of a table of single precision; return them in double."""
        found = self.add("Gather", self.number(table, np.float32), codes, axis=0)
        return self.add("Cast", found, to=self.onnx.TensorProto.DOUBLE)

    def inner(self, a: str, b: str) -> str:
        """Return inner products of rows."""
        axes = self.number([1], np.int64)
        return self.add("ReduceSum", self.add("Mul", a, b), axes, keepdims=0)

    def between(self, x: str, at: Any, values: Any) -> str:
        """Return what ``numpy.interp`` does."""
        if at[0] == at[-1]:
            below = self.add("Less", x, self.number(at[0]))
            return self.add("Where", below, self.number(values[0]), self.number(values[-1]))
        inside = self.add("Clip", x, self.number(at[0]), self.number(at[-1]))
        axes, last = self.number([1], np.int64), self.number([-1], np.int64)
        if len(at) == 2:
            place = self.add("Cast", self.add("Mul", inside, self.number(0.0)), to=7)
        else:
            column = self.add("Unsqueeze", inside, last)
            passed = self.add("GreaterOrEqual", column, self.number(at[1:-1]))
            place = self.add("ReduceSum", self.add("Cast", passed, to=7), axes, keepdims=0)
        slope = np.diff(values) / np.diff(at)
        start, base, slopes = (
            self.add("Gather", self.number(table), place) for table in (at[:-1], values[:-1], slope)
        )
        away = self.add("Sub", inside, start)
        return self.add("Add", base, self.add("Mul", slopes, away))

    def bytes(self, name: str) -> Any:
        """Return the file."""
        helper = self.onnx.helper
        size = sum(len(table.raw_data) for table in self.tables)
        if size > MOST_BYTES:
            raise SettingError(
                f"An ONNX file holds 2 GB, and this model takes {size / 1e9:.1f}: export vectors."
            )
        graph = helper.make_graph(self.nodes, name, self.inputs, self.outputs, self.tables)
        opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid("ai.onnx.ml", ML_OPSET)]
        model = helper.make_model(
            graph, producer_name="noisewise", producer_version=version("noisewise"),
            opset_imports=opsets, ir_version=IR_VERSION,
        )  # fmt: skip
        self.onnx.checker.check_model(model)
        return model.SerializeToString()


def _codes(graph: Graph, model: Any, mode: int, name: str) -> str:
    """Declare a column of ids; return their rows, the last for those never seen."""
    labels, counts = model.ids_[mode].labels, model.factors_.counts[mode]
    known = np.flatnonzero(counts)
    values: dict[str, Any] = {
        "values_int64s": known.tolist(),
        "default_int64": len(labels),
        "domain": "ai.onnx.ml",
    }
    if labels.dtype == np.int64:
        return graph.add(
            "LabelEncoder", graph.take(name, "INT64"), keys_int64s=labels[known].tolist(), **values
        )
    texts = labels[known].tolist()
    if not all(type(text) is str for text in texts):
        raise SettingError(
            f"ONNX has ids that are whole numbers or text; those of {name} are of other types."
        )
    keys = [text.encode("utf-8", "surrogatepass") for text in texts]
    return graph.add("LabelEncoder", graph.take(name, "STRING"), keys_strings=keys, **values)


def _side(graph: Graph, model: Any, mode: int, name: str) -> None:
    found, codes = vectors(model, mode=mode), _codes(graph, model, mode, name)
    for out in ("mean", "variance"):
        table = getattr(found, out)
        graph.give(out, graph.rows(table, codes), table.shape[1])


def _cells(graph: Graph, model: Any, names: list[str]) -> None:
    codes = [_codes(graph, model, mode, name) for mode, name in enumerate(names)]
    found = [vectors(model, mode=mode) for mode in (0, 1)]
    mean, variance = (
        graph.inner(*(graph.rows(getattr(v, part), c) for v, c in zip(found, codes, strict=True)))
        for part in ("mean", "variance")
    )
    if model.unknown != "default":
        is_new = [
            graph.add("Equal", code, graph.number(len(v.ids), np.int64))
            for code, v in zip(codes, found, strict=True)
        ]
        mean = graph.add("Where", graph.add("Or", *is_new), graph.number(model.unknown), mean)
    if model.value_range_ is not None:
        low, high = (float(np.float32(end)) for end in model.value_range_)
        mean = graph.add("Clip", mean, graph.number(low), graph.number(high))
    std = graph.add("Sqrt", graph.add("Max", variance, graph.number(0.0)))
    graph.give("mean", mean)
    graph.give("std", _calibrated(graph, model.calibration_, mean, std))


def _calibrated(graph: Graph, calibration: Calibration | None, mean: str, std: str) -> str:
    """Return a std as held-out data have it: see ``Calibration.factor``."""
    if calibration is None:
        return std
    scaled = graph.add("Mul", std, graph.number(calibration.scale))
    shape = calibration.shape
    if shape is None:
        return scaled
    logs = graph.add("Log", graph.add("Max", scaled, graph.number(np.finfo(np.float64).tiny)))
    log = graph.add(
        "Add",
        graph.between(mean, shape.mean_at, shape.mean_log),
        graph.between(logs, shape.std_at, shape.std_log),
    )
    ends = (graph.number(end) for end in (-math.log(MOST_FACTOR), math.log(MOST_FACTOR)))
    half = graph.add("Mul", graph.add("Clip", log, *ends), graph.number(0.5))
    return graph.add("Mul", scaled, graph.add("Exp", half))

"""What this package adds to noisewise: names and text, quickly read; models are imported later."""

from __future__ import annotations

from noisewise.registry import Datasets, Format, Model, Models, Tensor

_RIVALS = "noisewise_reproduction.rivals"
_DATASETS = "noisewise_reproduction.datasets"

MODELS = Models(
    models=(
        # The best trial on validation data (runs/search.py), rounded.
        Model(
            "dmf-paper", "ratings", "noisewise.models.deviation:DeviationFactorizer",
            {
                "beta": 0.0, "deviation_rank": 32, "learning_rate": 0.03,
                "deviation_learning_rate": 0.004, "l2": 0.066, "bias_l2": 0.044,
                "deviation_l1": 0.0012, "delta": 0.24, "warmup": 6,
            },
        ),
        Model("rcf", "ratings", f"{_RIVALS}.rcf:HuberFactorizer"),
        Model("rbmf", "ratings", f"{_RIVALS}.rbmf:RobustBayesianFactorizer"),
        Model("drmf", "ratings", f"{_RIVALS}.drmf:TrimmedFactorizer"),
        Model("rbm", "ratings", f"{_RIVALS}.rbm:RBM"),
        Model("llorma", "ratings", f"{_RIVALS}.llorma:LLORMA"),
        Model("autorec", "ratings", f"{_RIVALS}.autorec:AutoRec"),
        Model(
            "tucker", "sensors", f"{_RIVALS}.tucker:TuckerFactorizer",
            about="a Tucker decomposition",
        ),
        Model(
            "knn", "sensors", f"{_RIVALS}.spatial:SpatialNeighbours",
            {"coordinates": None, "power": 0},
            about="the mean of the nearest locations at the same time; needs coordinates",
            needs_coordinates=True,
        ),
        Model(
            "idw", "sensors", f"{_RIVALS}.spatial:SpatialNeighbours",
            {"coordinates": None, "power": "auto"},
            about="the same, weighted by inverse distances; needs coordinates",
            needs_coordinates=True,
        ),
        Model(
            "knn-imputer", "sensors", f"{_RIVALS}.table_imputers:TableImputer", {"method": "knn"},
            about="scikit-learn's KNNImputer on the table of times and series",
        ),
        Model(
            "iterative-imputer", "sensors", f"{_RIVALS}.table_imputers:TableImputer",
            {"method": "iterative"},
            about="scikit-learn's IterativeImputer on the table of times and series",
        ),
    ),
    classes={
        "AutoRec": f"{_RIVALS}.autorec:AutoRec",
        "HuberFactorizer": f"{_RIVALS}.rcf:HuberFactorizer",
        "LLORMA": f"{_RIVALS}.llorma:LLORMA",
        "RBM": f"{_RIVALS}.rbm:RBM",
        "RobustBayesianFactorizer": f"{_RIVALS}.rbmf:RobustBayesianFactorizer",
        "SpatialNeighbours": f"{_RIVALS}.spatial:SpatialNeighbours",
        "TableImputer": f"{_RIVALS}.table_imputers:TableImputer",
        "TrimmedFactorizer": f"{_RIVALS}.drmf:TrimmedFactorizer",
        "TuckerFactorizer": f"{_RIVALS}.tucker:TuckerFactorizer",
    },
    ranges=f"{_RIVALS}:ranges.toml",
)  # fmt: skip

DATASETS = Datasets(
    formats=(
        Format(
            "an npz file of sensors", "sensors",
            f"{_DATASETS}.archives:recognise", f"{_DATASETS}.archives:read",
        ),
        Format(
            "an npz file of sensors", "ratings",  # as observations, which need no times
            f"{_DATASETS}.archives:recognise", f"{_DATASETS}.archives:read_observations",
        ),
        Format(
            "data.txt of the Intel lab", "sensors",
            f"{_DATASETS}.intel:recognise", f"{_DATASETS}.intel:read",
        ),
        Format(
            "CSV files of the London Air Quality Network", "sensors",
            f"{_DATASETS}.laqn:recognise", f"{_DATASETS}.laqn:read",
        ),
        Format(
            "files of the Netflix Prize", "ratings",
            f"{_DATASETS}.netflix:recognise", f"{_DATASETS}.netflix:read",
        ),
    ),
    tensors=(
        Tensor(
            "london-paper-size", f"{_DATASETS}.tensors:london", observed=476_614,
            outage=30 * 86_400.0, shares=(0.05, 0.10, 0.15, 0.20),
        ),
        Tensor(
            "intel-2epoch", f"{_DATASETS}.tensors:intel_lab", observed=1_236_999,
            outage=2 * 3_600.0, shares=(0.2, 0.4, 0.6, 0.8),
        ),
    ),
    sources=f"{_DATASETS}:sources.toml",
)  # fmt: skip
SHARES = {tensor.name: tensor.shares for tensor in DATASETS.tensors}
OUTAGES = {tensor.name: tensor.outage for tensor in DATASETS.tensors}

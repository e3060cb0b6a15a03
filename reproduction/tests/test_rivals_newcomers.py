"""Rows that come later are better known to rivals with every value, as to the library's models."""

import pytest
from noisewise_reproduction.rivals.autorec import AutoRec
from noisewise_reproduction.rivals.drmf import TrimmedFactorizer
from noisewise_reproduction.rivals.rbmf import RobustBayesianFactorizer
from noisewise_reproduction.rivals.rcf import HuberFactorizer
from test_newcomers import (
    QUICK,
    assert_better_known_with_every_value,
    fitted_without_latecomers,
    judged,
)

MODELS = {
    "rcf": HuberFactorizer(4, **QUICK),
    "drmf": TrimmedFactorizer(4, round_epochs=2, epochs=15, **QUICK),
    "rbmf": RobustBayesianFactorizer(4, epochs=15, **QUICK),
    "autorec": AutoRec(8, l2=10.0, presence=0.0, balance=0.0, epochs=30, device="cpu", **QUICK),
}


@pytest.mark.parametrize("mode", [0, 1], ids=["users", "items"])
@pytest.mark.parametrize("name", MODELS)
def test_a_newcomer_is_better_known_with_every_value(name, world, mode):
    if name == "autorec":
        pytest.importorskip("torch")
    model = fitted_without_latecomers(MODELS[name], world, mode)
    rmse, std, covered = judged(model, world, mode)
    assert_better_known_with_every_value(rmse, std, covered)
    if name != "rbmf":  # whose strangers are told too cautiously
        assert covered.max() < 0.96

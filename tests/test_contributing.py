"""Pages for those who add to noisewise are true: the model of one passes what every model does.

All code of these pages is run by ``test_docs.py``.
"""

import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar, Literal

import numpy as np
import pytest
from battery import Battery, Case, ratings, scikit_learn_checks

from noisewise import registry
from noisewise.settings import learned, one_of, setting, settings

ROOT = Path(__file__).parents[1]
PAGES = ROOT / "docs" / "contributing"


def code(page: str) -> str:
    """Return the first block of Python of a page."""
    return re.search(r"```python\n(.*?)```", (PAGES / page).read_text(), re.S)[1]


NAMES: dict[str, Any] = {"__name__": "medians_of_the_page"}
exec(compile(code("adding-a-model.md"), "adding-a-model.md", "exec"), NAMES)
MedianFactorizer = NAMES["MedianFactorizer"]


@pytest.fixture(autouse=True, scope="module")
def declared():
    """Let files and pickles find the model, as an installed package would."""
    module = ModuleType("medians_of_the_page")
    vars(module).update(NAMES)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, module.__name__, module)
        known = registry.class_named
        patch.setattr(
            registry,
            "class_named",
            lambda name: MedianFactorizer if name == "MedianFactorizer" else known(name),
        )
        yield


class TestTheModelOfThePage(Battery):
    cases: ClassVar = {"medians": Case(MedianFactorizer(), ratings, rmse=(0.9, 1.4))}


@scikit_learn_checks(two_modes=[MedianFactorizer(duplicates="mean")])
def test_scikit_learn_has_no_complaints(estimator, check):
    check(estimator)


def test_settings_may_have_types_that_are_no_text():
    @settings
    class Model:
        """A model."""

        way: Literal["up", "down"] | None = setting(
            one_of("up", "down", None), "Which.", default=None
        )
        many: tuple[float, ...] = setting(one_of((1.0,)), "Some.", default=(1.0,))
        found_: np.ndarray = learned("What was found.")

    assert 'way : {"up", "down"} or None, default None' in Model.__doc__
    assert "many : tuple of float, default (1.0,)" in Model.__doc__
    assert "found_ : ndarray" in Model.__doc__

"""The public names: exactly those of ``__all__``, each with words to it."""

import ast
import inspect
import subprocess
import sys

import pytest

import noisewise


def test_public_names_are_exactly_those_of_all():
    assert sorted(noisewise.__all__) == sorted(noisewise._HOME)
    assert set(dir(noisewise)) == {*noisewise.__all__, "__version__"}
    with pytest.raises(AttributeError, match="module 'noisewise' has no attribute 'Nothing'"):
        _ = noisewise.Nothing


def test_type_checkers_see_the_names_where_they_are_imported_from():
    tree = ast.parse(inspect.getsource(noisewise))
    (block,) = (node for node in tree.body if isinstance(node, ast.If) and not is_not(node.test))
    seen = {
        name.name: node.module.removeprefix("noisewise.")
        for node in block.body
        for name in node.names
    }
    assert seen == noisewise._HOME


def is_not(test):
    return isinstance(test, ast.UnaryOp)


def test_importing_noisewise_imports_no_library():
    code = """
import sys
import noisewise
dear = {"torch", "pandas", "polars", "matplotlib", "typer", "optuna", "pyarrow", "xarray"}
dear |= {"numba", "scipy", "sklearn", "narwhals", "tqdm", "noisewise_reproduction"}
print(*sorted(dear & {name.split(".")[0] for name in sys.modules}))
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    assert run.stdout.split() == []


def test_fitting_a_model_imports_no_optional_library():
    code = """
import sys
import noisewise
ratings = [("ann", "Alien", 5), ("bob", "Alien", 3), ("bob", "Brazil", 4)]
noisewise.DeviationFactorizer(rank=1, epochs=2, n_jobs=1, random_state=0).fit(ratings)
dear = {"torch", "matplotlib", "typer", "optuna", "xarray", "noisewise_reproduction"}
print(*sorted(dear & {name.split(".")[0] for name in sys.modules}))
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    assert run.stdout.split() == []


@pytest.mark.parametrize("name", noisewise.__all__)
def test_a_public_name_is_documented(name):
    thing = getattr(noisewise, name)
    assert inspect.getdoc(thing).splitlines()[0].endswith(".")
    if inspect.isclass(thing) and not issubclass(thing, BaseException):
        for method, function in inspect.getmembers(thing, inspect.isroutine):
            if not method.startswith("_") and function.__module__.startswith("noisewise"):
                assert function.__doc__, f"{name}.{method} has no words"


@pytest.mark.parametrize("name", [name for name in noisewise.__all__ if "Error" not in name])
def test_every_parameter_of_a_public_function_has_a_type(name):
    for parameter in inspect.signature(getattr(noisewise, name)).parameters.values():
        assert parameter.annotation is not inspect.Parameter.empty, parameter


def test_every_model_documents_every_setting():
    from noisewise import registry

    for model in map(registry.class_named, registry.classes()):
        documented = inspect.getdoc(model)
        for name in inspect.signature(model).parameters:
            assert name in documented.split("Attributes")[0], f"{model.__name__}: {name}"


def test_every_error_is_a_noisewise_error_and_a_builtin_one():
    from noisewise import errors

    assert not issubclass(errors.FitInterrupted, Exception)  # for loops not to swallow it
    for name, kind in vars(errors).items():
        if inspect.isclass(kind) and issubclass(kind, Warning):
            assert issubclass(kind, UserWarning)
            continue
        own = inspect.isclass(kind) and kind.__module__ == errors.__name__
        if own and kind not in (errors.NoisewiseError, errors.FitInterrupted):
            assert issubclass(kind, errors.NoisewiseError)
            assert len(kind.__bases__) == 2, f"{name} inherits from no builtin error"
            assert name in noisewise.__all__


def test_version_is_that_of_the_package():
    from importlib.metadata import version

    assert noisewise.__version__ == version("noisewise")


def test_importing_noisewise_needs_no_optional_library():
    code = """
import sys

class Lacking:
    def find_spec(self, name, path=None, target=None):
        if name in ("pandas", "polars", "pyarrow", "xarray", "matplotlib", "typer"):
            raise ImportError(name)

sys.meta_path.insert(0, Lacking())
import noisewise
ratings = [("ann", "Alien", 5), ("bob", "Alien", 3), ("bob", "Brazil", 4)]
noisewise.DeviationFactorizer(rank=1, epochs=2, n_jobs=1, random_state=0).fit(ratings)
"""
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True, timeout=120)

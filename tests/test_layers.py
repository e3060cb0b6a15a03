"""The tree of docs/architecture.md: it names every file, and files import only from above."""

import ast
from itertools import takewhile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "noisewise"
FILES = sorted(
    path.relative_to(SOURCE) for path in SOURCE.rglob("*.py") if path.name != "__init__.py"
)
PACKAGES = sorted(path.parent.relative_to(SOURCE) for path in SOURCE.rglob("*/__init__.py"))


def lines_of_the_tree() -> list[str]:
    lines = (ROOT / "docs" / "architecture.md").read_text().splitlines()
    inside = lines[lines.index("src/noisewise/") + 1 :]
    return list(takewhile(lambda line: line.startswith("  "), inside))


def tree() -> list[Path]:
    """Files in the order of the tree, folders opened."""
    files, folders = [], [Path()]
    for line in lines_of_the_tree():
        depth = (len(line) - len(line.lstrip())) // 2
        name = line.split()[0]
        del folders[depth:]
        if name.endswith("/"):
            folders.append(folders[-1] / name)
        else:
            files.append(folders[-1] / name)
    return files


def module(path: Path) -> str:
    return ".".join(("noisewise", *path.with_suffix("").parts))


def places() -> dict[str, int]:
    """Place of every module in the tree; a package stands where its last module does."""
    place = {module(path): number for number, path in enumerate(tree())}
    for package in PACKAGES:
        inside = [
            number for path, number in place.items() if path.startswith(module(package) + ".")
        ]
        place[module(package)] = max(inside, default=-1)
    return place


def imports(path: Path) -> list[str]:
    """Modules of noisewise that a file imports, at its top or inside functions."""
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} has a relative import"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            is_module = [SOURCE.parent.joinpath(*name.split(".")) for name in names]
            found += [
                name if at.with_suffix(".py").exists() or at.is_dir() else str(node.module)
                for name, at in zip(names, is_module, strict=True)
            ]
    return [name for name in found if name.split(".")[0] == "noisewise"]


def test_the_tree_names_every_file_once():
    named = tree()
    assert sorted(set(named)) == FILES
    assert len(named) == len(set(named))


def test_every_file_has_words_of_its_own():
    said = [words for _, _, words in (line.strip().partition(" ") for line in lines_of_the_tree())]
    words = [one.strip().lower() for one in said if one.strip()]
    assert len(words) > 200
    assert len(words) == len(set(words))


@pytest.mark.parametrize("path", FILES, ids=str)
def test_a_file_imports_only_from_above(path):
    place = places()
    own = place[module(path)]
    for name in imports(SOURCE / path):
        assert name != "noisewise", f"{path} imports the public names of noisewise"
        assert place[name] < own, f"{path} imports {name}, which stands below it"


@pytest.mark.parametrize("package", PACKAGES, ids=str)
def test_a_package_imports_only_from_itself_and_from_above(package):
    place = places()
    own = place[module(package)]
    for name in imports(SOURCE / package / "__init__.py"):
        assert place[name] <= own, f"{package} imports {name}, which stands below it"


def test_the_engine_imports_nothing_of_the_package_but_errors_and_itself():
    for path in (SOURCE / "engine").rglob("*.py"):
        for name in imports(path):
            inside = name.startswith("noisewise.engine.") or name == "noisewise.engine"
            assert inside or name == "noisewise.errors", f"{path} imports {name}"

"""What can be counted from the tree: files, lines, functions, classes, names; and what is too much.

``python bench/house.py`` prints every measure, its limit and all that is over it, and with
``--json FILE`` writes them, and the files that ``bench/files_executed.py`` counts, to a file;
``tests/test_house.py`` holds files, functions and classes to the same limits.
"""

import argparse
import ast
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[1]
LIBRARY = ROOT / "src"
PARTS = {"library": LIBRARY, "reproduction": ROOT / "reproduction" / "src"}

MOST = {
    "files": 115,
    "lines": 20_000,
    "lines of a file": 400,
    "lines of a function": 60,
    "arguments of a function": 12,
    "depth of a class": 4,
    "files of one name": 3,
}
OF_THE_WHOLE = ("files", "lines")  # limits of the library alone
COMPILERS = {"njit", "jit", "vectorize", "guvectorize", "intrinsic", "overload", "register_model"}


@dataclass
class Measure:
    """The largest of something, and every place that is over the limit."""

    most: int = 0
    over: list[tuple[int, str]] = field(default_factory=list)

    def see(self, size: int, where: str, limit: int) -> None:
        self.most = max(self.most, size)
        if size > limit:
            self.over.append((size, where))


def measure(source: Path) -> dict[str, Measure]:
    """Measure all Python files below a folder."""
    paths = sorted(source.rglob("*.py"))
    trees = {path: ast.parse(path.read_text()) for path in paths}
    found = {name: Measure() for name in MOST}

    def see(name: str, size: int, where: str) -> None:
        found[name].see(size, where, MOST[name])

    sizes = {path: len(path.read_text().splitlines()) for path in paths}
    see("files", len(paths), _shown(source))
    see("lines", sum(sizes.values()), _shown(source))
    for path, size in sizes.items():
        see("lines of a file", size, _shown(path))
    for path, tree in trees.items():
        for function in _functions(tree, _compilers(tree)):
            where = f"{_shown(path)}:{function.lineno} {function.name}"
            see("lines of a function", _length(function), where)
            see("arguments of a function", _n_arguments(function), where)
    for name, depth in _depths(source).items():
        see("depth of a class", depth, name)
    names = Counter(path.name for path in paths if path.name != "__init__.py")
    for name, count in names.items():
        see("files of one name", count, name)
    return found


def _shown(path: Path) -> str:
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else str(path)


def _compilers(tree: ast.Module) -> set[str]:
    """Names of decorators that compile: numba's, and those that a file makes of them."""
    names = set(COMPILERS)
    for node in tree.body:
        inside = node.body if isinstance(node, ast.FunctionDef) else [node]
        used = {_name(part) for line in inside for part in ast.walk(line) if _is_call(part)}
        if used & COMPILERS and isinstance(node, ast.FunctionDef):
            names.add(node.name)
        elif used & COMPILERS and isinstance(node, ast.Assign):
            names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return names


def _functions(
    node: ast.AST, compilers: set[str]
) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Functions and methods, but compiled ones and what is inside them."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            if any(_name(decorator) in compilers for decorator in child.decorator_list):
                continue
            yield child
        yield from _functions(child, compilers)


def _is_call(node: ast.AST) -> bool:
    return isinstance(node, ast.Call)


def _name(node: ast.AST) -> str:
    """Return the last part of a dotted name, of a decorator with or without a call."""
    if isinstance(node, ast.Call):
        return _name(node.func)
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def _length(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    return (function.end_lineno or function.lineno) - function.lineno + 1


def _n_arguments(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Count what a caller may say; ``self`` and ``cls`` he does not say."""
    given = function.args
    named = [a.arg for a in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
    return len([name for name in named if name not in ("self", "cls")]) + sum(
        more is not None for more in (given.vararg, given.kwarg)
    )


def _depths(source: Path) -> dict[str, int]:
    """Return how many of our own classes stand in line, for every class of a folder."""
    bases, own = {}, set()
    for folder in {*PARTS.values(), source}:
        for path in sorted(folder.rglob("*.py")):
            found = _bases(path.relative_to(folder), ast.parse(path.read_text()))
            bases |= found
            own |= found.keys() if folder == source else set()
    # A name that a package passes on is the class of that name below it.
    below = {(name.split(".")[0], name.rsplit(".", 1)[1]): name for name in bases}

    def depth(name: str) -> int:
        if name not in bases:
            name = below.get((name.split(".")[0], name.rsplit(".", 1)[-1]), "")
        return 1 + max(map(depth, bases[name]), default=0) if name in bases else 0

    return {name: depth(name) for name in own}


def _bases(path: Path, tree: ast.Module) -> dict[str, list[str]]:
    """Return the classes of a file and what each inherits from, with their modules."""
    parts = path.with_suffix("").parts
    module = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
    known, bases = {}, {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            known |= {a.asname or a.name: f"{node.module}.{a.name}" for a in node.names}
        elif isinstance(node, ast.ClassDef):
            known[node.name] = f"{module}.{node.name}"
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            plain = [base.value if isinstance(base, ast.Subscript) else base for base in node.bases]
            said = [ast.unparse(base).split(".", 1) for base in plain]
            bases[f"{module}.{node.name}"] = [
                ".".join([known.get(first, first), *rest]) for first, *rest in said
            ]
    return bases


def write(file: Path) -> None:
    """Write all measures, with the machine and the day."""
    from files_executed import LIMITS, counts

    from noisewise.evaluation.records import as_json, where_and_when
    from noisewise.storage import write_bytes

    parts = {part: measure(source) for part, source in PARTS.items() if source.is_dir()}
    measured = {part: {name: m.most for name, m in found.items()} for part, found in parts.items()}
    executed = {"files_executed": counts(LIBRARY), "files_executed_at_most": LIMITS}
    report = {"measures": measured, "at_most": MOST, **executed, **where_and_when()}
    write_bytes(file, (as_json(report) + "\n").encode())


def main() -> int:
    """Print all measures; the exit status says whether one is over its limit."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, help="write all measures to this file")
    file = parser.parse_args().json
    if file is not None:
        write(file)
    too_much = False
    for part, source in PARTS.items():
        if not source.is_dir():
            continue
        print(f"{part}: {_shown(source)}")
        for name, found in measure(source).items():
            limited = part == "library" or name not in OF_THE_WHOLE
            print(f"  {name:<24}{found.most:>8,}" + (f"  of {MOST[name]:,}" if limited else ""))
            if limited and found.over:
                too_much = True
                for size, where in sorted(found.over, reverse=True):
                    print(f"    {size:>8,}  {where}")
    return int(too_much)


if __name__ == "__main__":
    sys.exit(main())

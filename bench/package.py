"""Build wheel and sdist, look into the wheel, and try it in an empty environment of every Python.

``make package`` runs it. Every ``python3.11`` to ``python3.14`` on the path is taken, or those of
``--pythons``; which were not found is said, and written to the record. ``--wheel FILE`` tries a
wheel that is there already, on a machine with other Pythons, say: the record then goes on.
"""

import argparse
import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).parents[1]
VERSIONS = ("3.11", "3.12", "3.13", "3.14")
MOST_BYTES = 1_000_000
FOREIGN = re.compile(r"(^|[/_])(tests?|conftest|papers?|rivals?|reproduction|bench|fuzz)([/_.]|$)")


def faults(wheel: Path, source: Path = ROOT / "src" / "noisewise") -> list[str]:
    """Return what is wrong with a wheel: its size, what should not be in it, what is missing."""
    found = []
    if wheel.stat().st_size >= MOST_BYTES:
        found.append(f"The wheel has {wheel.stat().st_size:,} bytes; {MOST_BYTES:,} is too many.")
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    own = {name for name in names if name.startswith("noisewise/")}
    expected = {
        f"noisewise/{path.relative_to(source).as_posix()}"
        for path in source.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    for name in sorted(names):
        if FOREIGN.search(name):
            found.append(f"{name} does not belong into the wheel.")
        elif name not in own and not re.match(r"noisewise-[^/]+\.dist-info/", name):
            found.append(f"{name} lies outside of the package.")
    found += [f"{name} is not in the wheel." for name in sorted(expected - own)]
    found += [f"{name} is in the wheel alone." for name in sorted(own - expected)]
    if not any(name.endswith(".dist-info/licenses/LICENSE") for name in names):
        found.append("The licence is not in the wheel.")
    return found


def build(out: Path) -> tuple[Path, Path]:
    """Build the sdist, from it the wheel, and let twine check both; return wheel and sdist."""
    shutil.rmtree(out, ignore_errors=True)
    run = [sys.executable, "-m"]
    subprocess.run([*run, "build", "--outdir", str(out), str(ROOT)], check=True)
    files = sorted(out.iterdir())
    subprocess.run([*run, "twine", "check", "--strict", *map(str, files)], check=True)
    (wheel,), (sdist,) = ([p for p in files if p.name.endswith(e)] for e in (".whl", ".tar.gz"))
    return wheel, sdist


def found_pythons(named: list[str]) -> tuple[dict[str, str], dict[str, str]]:
    """Return Pythons that run, by version; and why there is none of the other versions."""
    found, lacking = {}, {}
    for python in named or [f"python{v}" for v in VERSIONS]:
        said = subprocess.run(
            [python, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"],
            capture_output=True, text=True, check=False,
        ) if shutil.which(python) else None  # fmt: skip
        if said is not None and said.returncode == 0:
            found[said.stdout.strip()] = python
        else:
            lacking[python] = "is not on the path" if said is None else "does not run"
    return found, lacking


def tried(python: str, wheel: Path) -> dict[str, str | float]:
    """Install a wheel into an empty environment, run the smoke test, and say what it ran with."""
    smoke = Path(__file__).with_name("smoke.py")
    clean = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        inside = folder / ("Scripts" if os.name == "nt" else "bin") / "python"

        def run(*words: object) -> str:
            done = subprocess.run(
                list(map(str, words)), cwd=folder, env=clean, text=True, check=False,
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            )  # fmt: skip
            if done.returncode:
                raise SystemExit(f"{' '.join(map(str, words))}\n{done.stdout}")
            return done.stdout

        run(python, "-m", "venv", folder)
        for part, what in {"core": wheel, "cli": f"noisewise[cli] @ {wheel.as_uri()}"}.items():
            run(inside, "-m", "pip", "install", "--quiet", "--only-binary", "numba,llvmlite", what)
            said = run(inside, smoke, part)
    return json.loads(said.splitlines()[-1]) | {"seconds": round(time.perf_counter() - began, 1)}


def described(path: Path) -> dict[str, str | int]:
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return {"file": path.name, "bytes": path.stat().st_size, "sha256": digest}


def main() -> None:
    given = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    given.add_argument("--pythons", default="", help="commands, with blanks between them")
    given.add_argument("--wheel", type=Path, help="try this wheel, and build none")
    given.add_argument("--out", type=Path, default=ROOT / "dist", help="folder of what is built")
    given.add_argument("--json", type=Path, help="where to write the record")
    options = given.parse_args()
    pythons, lacking = found_pythons(options.pythons.split())
    record = {"command": "make package", "most_bytes": MOST_BYTES}
    if options.wheel is None:
        wheel, sdist = build(options.out)
        record |= {"twine_check_strict": "passed", "sdist": described(sdist)}
    else:
        wheel = options.wheel.resolve()
    wrong = faults(wheel)
    if wrong:
        raise SystemExit("\n".join(wrong))
    record |= {"wheel": described(wheel), "pythons": {}}
    if options.wheel is not None and options.json and options.json.exists():
        before = json.loads(options.json.read_text())
        if before["wheel"] == record["wheel"]:
            record = before
    for known, python in pythons.items():
        record["pythons"][known] = tried(python, wheel)
        print(f"Python {known}: {record['pythons'][known]}", flush=True)
    record["pythons"] = dict(sorted(record["pythons"].items()))
    record["not_tried"] = [v for v in VERSIONS if v not in record["pythons"]]
    for python, why in lacking.items():
        print(f"{python} {why}.")
    size, known = wheel.stat().st_size, ", ".join(record["pythons"])
    print(f"{wheel.name}: {size:,} bytes; tried with {known}.")
    if not pythons:
        raise SystemExit("No Python was found to try the wheel with: name some by PYTHONS=.")
    if options.json:
        record |= {"machine": platform.platform(), "date": datetime.now(UTC).date().isoformat()}
        options.json.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()

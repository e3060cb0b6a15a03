"""How complete the types of public names are, as pyright counts them: ``make types``.

``python bench/types_complete.py --python .venv/bin/python --json FILE`` asks for the noisewise of
that environment. What packages that noisewise stands on leave open does not count.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).parents[1]


def verified(python: Path) -> dict:
    """Return what ``pyright --verifytypes`` says of noisewise in an environment."""
    own = {"PATH": f"{python.parent}{os.pathsep}{os.environ['PATH']}", "VIRTUAL_ENV": ""}
    words = [sys.executable, "-m", "pyright", "--verifytypes", "noisewise", "--ignoreexternal"]
    with tempfile.TemporaryDirectory() as empty:  # where there is nothing else to be found
        done = subprocess.run(
            [*words, "--outputjson"], cwd=empty, env=os.environ | own, stdout=subprocess.PIPE,
            text=True, check=False,
        )  # fmt: skip
    found = json.loads(done.stdout)
    if not found["typeCompleteness"].get("pyTypedPath"):
        raise SystemExit(f"pyright found no noisewise with types beside {python}.")
    return found


def main() -> None:
    given = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    given.add_argument("--python", type=Path, default=ROOT / ".venv" / "bin" / "python")
    given.add_argument("--json", type=Path, help="where to write the record")
    given.add_argument("--names", action="store_true", help="print every name that is incomplete")
    options = given.parse_args()
    found = verified(options.python.absolute())["typeCompleteness"]
    unknown = [one for one in found["symbols"] if one["isExported"] and not one["isTypeKnown"]]
    reasons = Counter(
        fault["message"].splitlines()[0].split('"')[0].strip()
        for one in unknown
        for fault in one["diagnostics"]
        if fault["severity"] == "error"
    )
    for one in unknown if options.names else ():
        for fault in one["diagnostics"]:
            place = f"{fault['file']}:{fault.get('range', {}).get('start', {}).get('line', 0) + 1}"
            print(f"{one['name']}  {place}  {' '.join(fault['message'].split())}")
    record = {
        "command": "make types",
        "completeness": found["completenessScore"],
        "public_names": found["exportedSymbolCounts"],
        "reasons": dict(reasons.most_common()),
        "pyright": version("pyright"),
        "date": datetime.now(UTC).date().isoformat(),
    }
    print(json.dumps(record, indent=1))
    if options.json:
        options.json.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()

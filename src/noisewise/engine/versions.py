"""Versions of what decides on bits, which all workers of a cluster must have alike."""

from __future__ import annotations

import hashlib
import platform
from functools import cache
from importlib.metadata import version
from pathlib import Path

import llvmlite.binding  # type: ignore[import-untyped]

from noisewise.errors import SettingError

VERSIONS = ("noisewise", "numba", "numpy", "scipy")


@cache
def versions() -> dict[str, str]:
    """Versions of what decides on bits: libraries, Python, and the code of this package."""
    found = {name: version(name) for name in VERSIONS}
    found["Python"] = ".".join(platform.python_version_tuple()[:2])
    digest = hashlib.sha256()
    package = Path(__file__).parents[1]
    for path in sorted(package.rglob("*.py")):
        digest.update(str(path.relative_to(package)).encode() + path.read_bytes())
    found["code of noisewise"] = digest.hexdigest()[:12]
    return found


def check_versions(wanted: dict[str, str]) -> str:
    """Raise where this worker differs from who started it; return the name of its CPU."""
    own = versions()
    other = [f"{name} {own[name]} instead of {wanted[name]}" for name in own
             if own[name] != wanted[name]]  # fmt: skip
    if other:
        raise SettingError(
            f"The worker on {platform.node()} has {' and '.join(other)}: the bits would differ; "
            "install the same versions on all machines."
        )
    return str(llvmlite.binding.get_host_cpu_name())

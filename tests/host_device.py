"""A GPU that is none: numpy for its arrays, and its kernels compiled for the CPU by g++."""

from __future__ import annotations

import ctypes
import hashlib
import shutil
import subprocess
import tempfile
from contextlib import nullcontext
from pathlib import Path

import numpy as np

COMPILER = shutil.which("g++")
CUDA_TO_CPP = """
#include <cmath>
#include <cstdint>
#include <cstring>
#define HOST
#define __device__
#define __forceinline__ inline
struct float2 { float x, y; };
struct float4 { float x, y, z, w; };
struct uint2 { unsigned int x, y; };
static float2 make_float2(float x, float y) { return {x, y}; }
static float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
static float host_from_half(unsigned short bits) {
  _Float16 x;
  memcpy(&x, &bits, 2);
  return (float)x;
}
static unsigned short host_to_half(float x) {
  _Float16 h = (_Float16)x;
  unsigned short bits;
  memcpy(&bits, &h, 2);
  return bits;
}
"""
_built = {}
_folder = tempfile.TemporaryDirectory(prefix="noisewise-host-")


def built(source: str, options: tuple[str, ...]) -> ctypes.CDLL:
    """Compile kernels for the CPU; the same ones once."""
    text = CUDA_TO_CPP + source
    key = hashlib.sha256(repr((text, options)).encode()).hexdigest()
    if key not in _built:
        at = Path(_folder.name) / key
        at.with_suffix(".cpp").write_text(text)
        out = at.with_suffix(".so")
        command = [COMPILER, "-O1", "-w", "-std=c++17", "-shared", "-fPIC", *options]
        subprocess.run([*command, "-o", out, at.with_suffix(".cpp")], check=True)
        _built[key] = ctypes.CDLL(str(out))
    return _built[key]


class Host:
    """What ``devices.Device`` asks for, on the CPU."""

    name, xp, out_of_memory = "host:0", np, MemoryError

    def __init__(self, warps: int = 8, memory: int = 10**9) -> None:
        self.warps, self.memory = warps, memory
        self.sent = 0  # arrays that went to the device

    def active(self):
        return nullcontext()

    def uploading(self):
        return nullcontext()

    def arrived(self):
        pass

    def release(self):
        pass

    def compiled(self, source, options):
        library = built(source, options)

        def kernel(name, workers, shared=0, threads=256):
            return lambda *given: getattr(library, name)(*map(_as_c, given))

        return kernel

    def workers(self, resident):
        return self.warps

    def free_bytes(self):
        return self.memory

    def on_device(self, array):
        self.sent += 1
        return np.array(array)

    def on_host(self, array, out=None):
        if out is None:
            return array.copy()
        out[...] = array
        return out

    def pinned(self, array):
        return array.copy()

    def pointers(self, arrays):
        return np.array([array.ctypes.data for array in arrays], dtype=np.uint64)


def _as_c(given):
    if isinstance(given, np.ndarray):
        assert given.flags.c_contiguous or given.ndim == 2  # rows have room between them
        return ctypes.c_void_p(given.ctypes.data)
    kinds = {np.float32: ctypes.c_float, np.float64: ctypes.c_double, np.int32: ctypes.c_int}
    kinds |= {np.int64: ctypes.c_longlong, np.uint64: ctypes.c_ulonglong}
    return kinds[type(given)](given.item())

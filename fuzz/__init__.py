"""Hostile and broken files by the hundred thousand: what noisewise makes of them."""

import os

for _threads in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ.setdefault(_threads, "1")  # workers are forked, and each has one core

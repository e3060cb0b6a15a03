"""Fixtures of all tests, the reproduction's too, which live in ``tests/shared.py``."""

import pytest

pytest.register_assert_rewrite("shared", "battery")

from shared import ctrl_c, data_folder, small_world, world  # noqa: E402

__all__ = ["ctrl_c", "data_folder", "small_world", "world"]

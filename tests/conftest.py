"""Fixtures of all tests, which live in ``shared.py`` for the tests of the reproduction too."""

import pytest

pytest.register_assert_rewrite("shared", "battery")

from shared import ctrl_c, data_folder, small_world, world  # noqa: E402

__all__ = ["ctrl_c", "data_folder", "small_world", "world"]

"""Fixtures of all tests, the reproduction's too, from ``tests/shared.py`` and its neighbours."""

import pytest

pytest.register_assert_rewrite("shared", "battery")

from serving import local, server  # noqa: E402
from shared import ctrl_c, data_folder, press_in_epoch, small_world, world  # noqa: E402

__all__ = ["ctrl_c", "data_folder", "local", "press_in_epoch", "server", "small_world", "world"]

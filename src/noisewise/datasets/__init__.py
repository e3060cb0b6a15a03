"""Observations from files, each in its original format."""

from noisewise.datasets import sensors
from noisewise.datasets.files import read

__all__ = ["read", "sensors"]

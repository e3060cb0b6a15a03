"""The order of the examples in the gallery: those about ratings, then those about sensors."""

from __future__ import annotations

ORDER = (
    "first_interval", "noisy_users", "lists_and_reasons", "cold_start", "daily_update",
    "calibration", "outages", "blackout", "forecast", "odd_readings",
)  # fmt: skip


class ByAudience:
    """A key to sort scripts by, as sphinx-gallery asks for it; new ones come last."""

    def __init__(self, folder: str) -> None:
        """Take the folder of the scripts, which does not matter."""

    def __call__(self, script: str) -> tuple[int, str]:
        """Return the place of a script."""
        name = script.removeprefix("plot_").removesuffix(".py")
        return (ORDER.index(name) if name in ORDER else len(ORDER), name)

"""Peers of ``bench/forecast.py``: AutoETS of statsforecast, UnobservedComponents of statsmodels.

Run by it in an environment that has both; holes are filled by lines first, as neither takes any.
"""

from __future__ import annotations

import sys
import warnings
from typing import Any

import numpy as np


def lines(column: Any) -> Any:
    """Fill holes by lines."""
    known = np.flatnonzero(~np.isnan(column))
    return np.interp(np.arange(len(column)), known, column[known])


def ets(past: Any, steps: int, period: int) -> Any:
    """Forecast by AutoETS."""
    from statsforecast.models import AutoETS

    season = period if 1 < period <= 24 and len(past) > 2 * period else 1
    return AutoETS(season_length=season).forecast(past, h=steps)["mean"]


def components(past: Any, steps: int, period: int) -> Any:
    """Forecast by a local level with an AR(1), and a trigonometric season where there is one."""
    from statsmodels.tsa.statespace.structural import UnobservedComponents

    season = [{"period": period, "harmonics": 2}] if 1 < period < len(past) // 2 else None
    model = UnobservedComponents(past, "llevel", autoregressive=1, freq_seasonal=season)
    return model.fit(disp=False, maxiter=30).forecast(steps)


def main() -> None:
    """Forecast every series from every origin."""
    given, answer, steps, rows = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    with np.load(given) as found:
        values, origins, period = found["values"], found["origins"], int(found["period"])
    told = {}
    for name, ask in (("AutoETS", ets), ("UnobservedComponents", components)):
        told[name] = np.full((len(origins), steps, values.shape[1]), np.nan)
        for k, origin in enumerate(origins):
            for series in range(values.shape[1]):
                past = lines(values[max(0, origin + 1 - rows) : origin + 1, series])
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    told[name][k, :, series] = ask(past, steps, period)
    np.savez(answer, **told)


if __name__ == "__main__":
    main()

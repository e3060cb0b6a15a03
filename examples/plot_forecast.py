"""
A forecast with intervals
=========================

An imputer that has learned a table also says what comes next: ``forecast`` gives the next rows with
a standard deviation and an interval for each. Simple forecasts are mixed as it would have been best
at earlier times in the table, and the errors there make the intervals.
"""

# %%
# Three meters, every hour for six weeks; the last two days are kept back. Holes do not matter.

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from noisewise import DeviationImputer

rng = np.random.default_rng(0)
n = 24 * 42
hours = pd.date_range("2024-01-01", periods=n, freq="h")
clock = np.arange(n)
day = np.sin(2 * np.pi * (clock - 7) / 24)
weekend = np.isin(hours.day_of_week, [5, 6])
slow = np.convolve(rng.normal(0, 1, n + 23), np.ones(24) / np.sqrt(24), "valid")
whole = pd.DataFrame(
    {
        name: base + swing * day * np.where(weekend, 0.5, 1.0) + slow + rng.normal(0, 0.6, n)
        for name, base, swing in [("north", 30, 6), ("south", 42, 9), ("yard", 12, 3)]
    },
    index=hours,
)
table = whole.mask(rng.random(whole.shape) < 0.08)
known, coming = table[:-48], whole[-48:]

# %%
# The next 48 hours
# -----------------
# Nothing is said about days or weeks: what repeats is found in the table.

imputer = DeviationImputer("fast", random_state=0).fit(known)
told = imputer.forecast(48, coverage=0.9)

covered = float(((coming >= told.low) & (coming <= told.high)).to_numpy().mean())
rmse = float(np.sqrt(((told.mean - coming) ** 2).to_numpy().mean()))
rmse_last = float(np.sqrt(((known.ffill().iloc[-1] - coming) ** 2).to_numpy().mean()))
print(f"RMSE {rmse:.2f}, of the last reading {rmse_last:.2f}; {covered:.0%} of the intervals hold")

# %%
# When six hours have passed, give their readings: the forecast goes on from there, and nothing is
# trained again.

later = imputer.forecast(42, table[-48:-42])

figure, all_axes = plt.subplots(3, figsize=(9, 6), sharex=True, layout="constrained")
for axes, name in zip(all_axes, whole.columns):
    axes.plot(known[name][-96:], ".", color="black", markersize=4, label="readings")
    axes.fill_between(told.low.index, told.low[name], told.high[name], alpha=0.3, label="90 % band")
    axes.plot(told.mean[name], color="C0", label="forecast")
    axes.plot(later.mean[name], "--", color="C1", label="six hours later")
    axes.plot(coming[name], ".", color="C3", markersize=4, label="what came")
    axes.set_ylabel(name)
all_axes[0].legend(loc="upper left", ncols=5, fontsize=8)
figure.autofmt_xdate()
plt.show()

"""
A blackout of everything
========================

When the server was down, no sensor was read at all, and there is no neighbour to ask. What is left
is what each series did before and after, and what repeats: hours of the day. Paths of the sampled
model go on through such a gap, and its cycles (``seasons``) bring the day back.
"""

# %%
# Five sensors, every half hour for ten days, and two days without anything.

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from noisewise import DeviationImputer

rng = np.random.default_rng(1)
times = pd.date_range("2024-03-01", periods=480, freq="30min")
hour = np.arange(480) / 2
cycle = np.exp(2 * np.cos(2 * np.pi * (hour - 15) / 24)) / 4  # a peak in the afternoon
slow = np.cumsum(rng.normal(0, 0.08, 480))
whole = pd.DataFrame(
    {
        f"station {k}": 12 + k + (1 + 0.3 * k) * cycle + slow + rng.normal(0, 0.25, 480)
        for k in range(5)
    },
    index=times,
)
dark = (times >= "2024-03-06") & (times < "2024-03-08")
table = whole.copy()
table.loc[dark] = np.nan

# %%
# With and without the day
# ------------------------
# ``settings`` are those of the model behind a method: here ``TemporalFactorizer``.

ways = {
    "without cycles": {"rank": 4},
    'seasons=["day"]': {"rank": 4, "seasons": ["day"]},
}
found = {}
for name, settings in ways.items():
    imputer = DeviationImputer("bayes", settings=settings, random_state=0).fit(table)
    found[name] = imputer.transform(table), *imputer.interval(table, coverage=0.9)

rmse, covered = {}, {}
for name, (filled, low, high) in found.items():
    rmse[name] = float(np.sqrt(((filled - whole)[dark] ** 2).to_numpy().mean()))
    covered[name] = float(((whole >= low) & (whole <= high))[dark].to_numpy().mean())
    print(f"{name}: RMSE {rmse[name]:.2f}; {covered[name]:.0%} of 90 % intervals hold")

# %%
# Both bands widen towards the middle of the gap. Without the day the path goes straight, and its
# band is rather too narrow for that; with the day, both are where they should be.

figure, both = plt.subplots(2, figsize=(9, 5.5), sharex=True, sharey=True, layout="constrained")
for axes, (name, (filled, low, high)) in zip(both, found.items()):
    of = "station 3"
    axes.fill_between(times, low[of], high[of], where=dark, alpha=0.3, label="90 % band")
    axes.plot(filled[of].where(dark), color="C0", label="filled in")
    axes.plot(whole[of].where(dark), ".", color="C3", markersize=3, label="what was lost")
    axes.plot(table[of], ".", color="black", markersize=3, label="readings")
    axes.set_title(f"{name}: RMSE {rmse[name]:.2f}", loc="left")
    axes.set_ylabel(of)
both[0].legend(loc="upper left", ncols=4, fontsize=8)
figure.autofmt_xdate()
plt.show()

"""
Filling outages, with bands
===========================

A logger lost power for a day and a half, and some readings never arrived. ``DeviationImputer``
fills the holes of a table, gives a standard deviation for each of them, and leaves every reading as
it was.
"""

# %%
# A table with holes
# ------------------
# Four rooms of a building, every hour for two weeks. What was lost is known here, as we lose it
# ourselves.

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from noisewise import DeviationImputer, gap_report

rng = np.random.default_rng(0)
hours = pd.date_range("2024-05-01", periods=336, freq="h")
day = np.sin(2 * np.pi * (np.arange(336) - 8) / 24)
weather = np.convolve(rng.normal(0, 0.5, 336 + 47), np.ones(48) / np.sqrt(48), "valid")
whole = pd.DataFrame(
    {
        room: base + swing * day + share * weather + rng.normal(0, 0.2, 336)
        for room, base, swing, share in [
            ("hall", 20, 1.0, 0.8), ("attic", 24, 4.0, 2.0),
            ("cellar", 15, 0.3, 0.4), ("office", 21, 1.5, 1.0),
        ]
    },
    index=hours,
)  # fmt: skip
table = whole.mask(rng.random(whole.shape) < 0.05)
table.loc["2024-05-06 06:00":"2024-05-07 18:00", "attic"] = np.nan

# %%
# What is missing?

report = gap_report(table)
print(f"{report.share:.1%} of all readings are missing")
pd.DataFrame(report.gaps).head(3)

# %%
# Filled
# ------
# ``method="auto"``, the default, would let all methods compete on readings that it hides. Here one
# is named, the sampled model, which learns what rooms have in common and what each does on its own.

imputer = DeviationImputer("bayes", settings={"rank": 4}, random_state=0).fit(table)
filled, std = imputer.transform(table, return_std=True)
low, high = imputer.interval(table, coverage=0.9)

inside = ((whole >= low) & (whole <= high)).to_numpy()
covered = inside[table.isna()].mean()
in_gap = (hours >= "2024-05-06 06:00") & (hours <= "2024-05-07 18:00")
rmse_gap = np.sqrt(np.mean((filled - whole).loc[in_gap, "attic"] ** 2))
rmse_line = np.sqrt(np.mean((table["attic"].interpolate() - whole["attic"])[in_gap] ** 2))
print(f"{covered:.1%} of all lost readings lie in their band")
print(f"attic, in the outage: RMSE {rmse_gap:.2f} degrees; a straight line has {rmse_line:.2f}")

# %%
# In the outage the other rooms tell what the attic probably did. The band holds nine of ten lost
# readings.

shown = slice("2024-05-04", "2024-05-09")
figure, axes = plt.subplots(figsize=(9, 4), layout="constrained")
axes.fill_between(hours, low["attic"], high["attic"], where=in_gap, alpha=0.3, label="90 % band")
axes.plot(filled["attic"].where(in_gap), color="C0", label="filled in")
axes.plot(whole["attic"].where(in_gap), ".", color="C3", markersize=4, label="what was lost")
axes.plot(table["attic"], ".", color="black", markersize=4, label="readings")
axes.set(xlim=(pd.Timestamp(shown.start), pd.Timestamp(shown.stop)), ylabel="attic, degrees")
axes.legend(loc="upper left", ncols=4)
plt.show()

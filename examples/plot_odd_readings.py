"""
Readings that are odd
=====================

Sensors fail in a few well-known ways: single spikes, a value that repeats for hours, a drift,
another unit after a repair, silence. ``find_anomalies`` looks for them all in seconds, without a
fit, and says what it found in a sentence.
"""

# %%
# Eight thermometers and four faults
# ----------------------------------
# Every 20 minutes for two weeks. We put the faults in, so that we know what should be found.

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from noisewise import find_anomalies

rng = np.random.default_rng(0)
times = pd.date_range("2024-06-01", periods=1008, freq="20min")
hour = np.arange(1008) / 3
outside = 18 + 5 * np.sin(2 * np.pi * (hour - 9) / 24) + np.cumsum(rng.normal(0, 0.05, 1008))
table = pd.DataFrame(
    {f"probe {k}": outside + rng.normal(0, 1) + rng.normal(0, 0.3, 1008) for k in range(8)},
    index=times,
).round(2)

table.iloc[300, 1] = 85.0  # a spike
table.iloc[500:620, 3] = table.iloc[500, 3]  # stuck for 40 hours
table.iloc[700:, 5] = (table.iloc[700:, 5] * 1.8 + 32).round(2)  # Fahrenheit after a repair
table.iloc[850:, 6] = np.nan  # dead

# %%
# What is found
# -------------
# The table has a row for each finding. ``sensor=None`` says that all columns have one unit.

odd = pd.DataFrame(find_anomalies(table, sensor=None))
for words in odd["words"]:
    print(words)
kinds = dict(zip(odd["series"], odd["kind"]))

# %%
# The same in a figure: what was found is shaded, or ringed if it is a single reading.

figure, all_axes = plt.subplots(4, figsize=(9, 7), sharex=True, layout="constrained")
for axes, (_, row) in zip(all_axes, odd.sort_values("series").iterrows()):
    name = row["series"]
    others = table.drop(columns=name).median(axis=1)
    axes.plot(others, color="C7", linewidth=0.8, label="median of all others")
    axes.plot(table[name], ".", color="black", markersize=2, label="readings")
    if row["kind"] == "spike":
        axes.plot(row["start"], row["value"], "o", color="C3", fillstyle="none", markersize=10)
    else:
        axes.axvspan(row["start"], row["end"], color="C3", alpha=0.15)
    axes.set_title(f"{name}: {row['kind']}", loc="left")
all_axes[0].legend(loc="upper right")
figure.autofmt_xdate()
plt.show()

"""
New ratings every day
=====================

Ratings keep coming, from new users too. Fitting anew every night is one way. ``partial_fit`` is the
other: it takes the ratings of the day into the model in a moment, and the model says when it is
time to fit anew after all.
"""

# %%
# A model of the first days
# -------------------------
# About a sixth of these ratings arrives over seven days. Every tenth user, and some items, come in
# only then.

import copy
import time

import matplotlib.pyplot as plt
import numpy as np

from noisewise import BayesianFactorizer, metrics
from noisewise.data.synthetic import make_ratings

rng = np.random.default_rng(3)
made = make_ratings(n_users=200, n_items=120, density=0.3, seed=3).observations
user, item = made.codes
cells = np.array(made.decode(), dtype=object)[:, :2]

late = (user % 10 == 0) | (item % 25 == 0) | (rng.random(len(made)) < 0.03)
day = np.where(late, rng.integers(1, 8, len(made)), 0)

start = day == 0
model = BayesianFactorizer(rank=8, random_state=0)
began = time.perf_counter()
model.fit(cells[start], made.values[start])
seconds_to_fit = time.perf_counter() - began
first = copy.deepcopy(model)  # to compare with

# %%
# Day by day
# ----------
# The ratings of a day are predicted first, by the model that was left as it was and by the one that
# is kept up to date; then they are taken in.

days, frozen, updated, seconds = range(1, 8), [], [], []
for today in days:
    new = day == today
    truth = made.values[new]
    frozen.append(metrics.rmse(truth, first.predict(cells[new])))
    updated.append(metrics.rmse(truth, model.predict(cells[new])))
    began = time.perf_counter()
    model.partial_fit(cells[new], truth)
    seconds.append(time.perf_counter() - began)
print(f"a fit took {seconds_to_fit:.2f} s, an update {np.median(seconds):.2f} s")

# %%
# What the model knows of the week is in ``since_fit_`` and ``drift_``: how many ratings came since
# the fit, and how far those of the last day were from what was expected of them, in stds.

print(f"{model.since_fit_:,} ratings since the fit; {model.drift_}")

figure, axes = plt.subplots(figsize=(7, 3.8), layout="constrained")
axes.plot(days, frozen, "o--", color="C7", label="left as it was on day 0")
axes.plot(days, updated, "s-", color="C0", label="partial_fit every evening")
axes.set(xlabel="day", ylabel="RMSE on the ratings of the day", ylim=(0, None))
axes.legend(loc="lower left")
plt.show()

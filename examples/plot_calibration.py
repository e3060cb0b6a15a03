"""
What calibration means
======================

A model is calibrated if its 90 % intervals hold 90 % of the values. That alone is easily had: one
width for everybody, chosen so that it is right on average. Such intervals are too wide for careful
users, and too narrow for careless ones. This example shows the difference on ratings whose true
noise is known.
"""

# %%
# Two models
# ----------
# They are the same but for one setting. With ``deviation_rank=0`` the model learns means alone and
# has one noise for all (Biased MF); else it learns the noise of every cell, too (DMF).

import matplotlib.pyplot as plt
import numpy as np

from noisewise import DeviationFactorizer, metrics
from noisewise.data.synthetic import make_ratings
from noisewise.splits import random_split

made = make_ratings(n_users=700, n_items=300, density=0.2, seed=1)
train, test = random_split(len(made.observations), 0.2, np.random.default_rng(1))
train, test = made.take(train), made.take(test)
truth = test.observations.values

same = {"rank": 8, "deviation_learning_rate": 0.03, "delta": 0.15, "random_state": 0}
models = {
    "one noise for all": DeviationFactorizer(deviation_rank=0, **same),
    "a noise for every cell": DeviationFactorizer(deviation_rank=4, **same),
}
for model in models.values():
    model.fit(train.observations)

# %%
# On average, both are calibrated
# -------------------------------
# Both models hold a part of the training ratings back, and learn from the errors there how wide
# intervals must be (split-conformal calibration). So both hold nine ratings of ten, or nearly so.
# The negative log-likelihood (NLL) also asks for intervals that are narrow where they can be.

overall = {}
for name, model in models.items():
    mean, std = model.predict(test.observations, return_std=True)
    low, high = model.predict_interval(test.observations, coverage=0.9)
    overall[name] = metrics.coverage(truth, low, high), metrics.nll(truth, mean, std)
    print("{}: covers {:.1%}, NLL {:.3f}".format(name, *overall[name]))

# %%
# For careful and careless users, only one of them is
# ---------------------------------------------------
# On the left, test ratings are sorted by their true noise into ten groups. On the right is the
# calibration curve: how often a rating lies below a predicted quantile.

groups = np.array_split(np.argsort(test.true_std), 10)
levels = np.linspace(0.02, 0.98, 49)
worst = {}

figure, (left, right) = plt.subplots(1, 2, figsize=(9, 4), layout="constrained")
for (name, model), marker in zip(models.items(), "os"):
    low, high = model.predict_interval(test.observations, coverage=0.9)
    by_group = [metrics.coverage(truth[part], low[part], high[part]) for part in groups]
    worst[name] = max(abs(share - 0.9) for share in by_group)
    left.plot([test.true_std[part].mean() for part in groups], by_group, marker=marker, label=name)
    mean, std = model.predict(test.observations, return_std=True)
    right.plot(levels, metrics.calibration_curve(truth, mean, std, levels), label=name)
left.axhline(0.9, color="grey", linestyle=":")
left.set(xlabel="true noise, in stars", ylabel="share of ratings in their 90 % interval")
right.plot([0, 1], [0, 1], color="grey", linestyle=":")
right.set(xlabel="predicted quantile", ylabel="share of ratings below it")
left.legend()
plt.show()

"""
New items, known by their features
==================================

A film that comes out today has no ratings. If its genre is known, it need not be a blank: the model
learns from old films what genres mean, in the mean and in the noise, and says how sure it is.
"""

# %%
# Ratings of films with a genre
# -----------------------------
# Every user has a taste for every genre, and every film is a bit better or worse than its genre. Of
# 80 films, the last 20 are new: their ratings are kept back to look at later.

import warnings

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from noisewise import BayesianFactorizer
from noisewise.errors import UnknownIdsWarning

rng = np.random.default_rng(0)
genres = ["comedy", "documentary", "horror"]
films = pd.DataFrame({"item": [f"film {k}" for k in range(80)], "genre": rng.choice(genres, 80)})
kind = pd.Categorical(films["genre"], categories=genres).codes

liked = np.array([0.2, 0.6, -0.7]) + rng.normal(0, 0.7, (150, 3))  # by user and genre
better = rng.normal(0, 0.3, 80)  # than other films of the genre
user, film = np.nonzero(rng.random((150, 80)) < 0.4)
stars = 3.2 + liked[user, kind[film]] + better[film] + rng.normal(0, 0.6, len(user))
ratings = pd.DataFrame({"user": user, "item": films["item"].to_numpy()[film], "rating": stars})

new = ratings["item"].isin(films["item"][60:])
old, later = ratings[~new], ratings[new]

# %%
# With features and without
# -------------------------
# ``features`` are tables by mode, with a column of ids. All other columns are used: numbers,
# categories or lists of words.

plain = BayesianFactorizer(rank=8, random_state=0).fit(old)
knowing = BayesianFactorizer(rank=8, random_state=0).fit(old, features={"item": films[:60]})

# %%
# New films are predicted by features that come with the question. Without any, a new film is
# predicted as an average one, with the std that this deserves; noisewise warns of it, which is
# silenced here, as it is what we want to see.

with warnings.catch_warnings():
    warnings.simplefilter("ignore", UnknownIdsWarning)
    mean_plain, std_plain = plain.predict(later, return_std=True)
mean, std = knowing.predict(later, return_std=True, features={"item": films[60:]})
low, high = knowing.predict_interval(later, features={"item": films[60:]})

rmse_plain = np.sqrt(np.mean((later["rating"] - mean_plain) ** 2))
rmse = np.sqrt(np.mean((later["rating"] - mean) ** 2))
covered = np.mean((later["rating"] >= low) & (later["rating"] <= high))
print(
    f"RMSE on new films: {rmse_plain:.3f} without features, {rmse:.3f} with; {covered:.1%} covered"
)

# %%
# What the genres mean
# --------------------
# ``explain_features`` says what each genre does to the mean, with an interval.

effects = sorted(knowing.explain_features(), key=lambda effect: effect.mean)
names = [effect.level for effect in effects]

figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
for row, effect in enumerate(effects):
    left.plot([effect.mean_low, effect.mean_high], [row, row], color="C0", linewidth=4, alpha=0.5)
    left.plot(effect.mean, row, "o", color="C0")
left.axvline(0, color="grey", linestyle=":")
left.set_yticks(range(len(names)), names)
left.margins(y=0.2)
left.set_xlabel("effect on the rating, in stars, with a 90 % interval")
right.bar(
    ["without\nfeatures", "with\nfeatures"], [rmse_plain, rmse], color=["C7", "C0"], width=0.5
)
right.set(ylabel="RMSE on films without ratings", ylim=(0, None))
plt.show()

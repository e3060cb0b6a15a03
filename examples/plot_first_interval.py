"""
A first interval
================

Most recommenders predict a rating and say no more. noisewise also says how far off the prediction
may be. This example fits a model to a table of ratings, and asks it for intervals that should hold
nine ratings of ten.
"""

# %%
# The data
# --------
# A table with a user, an item and a rating in each row is all that is needed. These ratings are
# made up, so that nothing has to be downloaded; ``noisewise.read("ratings.csv")`` reads yours.

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import noisewise
from noisewise.data.synthetic import make_ratings

made = make_ratings(n_users=200, n_items=100, density=0.3, seed=0)
users, items = (
    ids.labels[codes] for ids, codes in zip(made.observations.ids, made.observations.codes)
)
stars = np.clip(np.rint(made.observations.values), 1, 5)
ratings = pd.DataFrame({"user": users, "item": items, "rating": stars})
ratings.head()

# %%
# A fit
# -----
# A fifth of the ratings is kept back, to see later whether the intervals hold. The model finds the
# columns by their names. It is Bayesian, and nothing in it needs to be tuned; ``rank=8`` instead of
# the default of 64 is enough for a table as small as this one, and faster.

test = ratings.sample(frac=0.2, random_state=0)
train = ratings.drop(test.index)
model = noisewise.BayesianFactorizer(rank=8, random_state=0).fit(train)

# %%
# A prediction, its standard deviation and its interval, for two cells of the table:

asked = [("user017", "item03"), ("user018", "item03")]
mean, std = model.predict(asked, return_std=True)
low, high = model.predict_interval(asked, coverage=0.9)
for (user, item), *numbers in zip(asked, mean, std, low, high):
    print("{} and {}: {:.2f} ± {:.2f}, from {:.2f} to {:.2f}".format(user, item, *numbers))

# %%
# Do the intervals hold?
# ----------------------
# On ratings that the model has never seen, about nine of ten should lie in their interval. The
# figure shows 60 of them, from the narrowest interval to the widest: the model is not equally sure
# of everything.

low, high = model.predict_interval(test, coverage=0.9)
inside = (test["rating"] >= low) & (test["rating"] <= high)
covered = inside.mean()

order = np.argsort(high - low)[:: len(test) // 60][:60]
truth, held = test["rating"].to_numpy()[order], inside.to_numpy()[order]
place = np.arange(len(order))

figure, axes = plt.subplots(figsize=(8, 4), layout="constrained")
axes.vlines(
    place, low[order], high[order], color="C0", alpha=0.5, linewidth=4, label="90 % interval"
)
axes.plot(place[held], truth[held], "o", color="C2", markersize=4, label="rating, inside")
axes.plot(place[~held], truth[~held], "x", color="C3", label="rating, outside")
axes.set(xlabel="some test ratings, by the width of their interval", ylabel="stars")
axes.set_title(f"{covered:.1%} of all {len(test):,} test ratings lie in their interval")
figure.legend(loc="outside lower center", ncols=3)
plt.show()

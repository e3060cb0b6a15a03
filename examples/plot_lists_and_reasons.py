"""
Lists, risk, and why this one
=============================

A list of the best ten items can mean different things: what will be rated highest, what is safe, or
what the user is likely to choose and then to like. And a user may ask why. This example has them
all.
"""

# %%
# Items of several kinds, some of them popular; users choose what is popular and of the kinds that
# they like.

import matplotlib.pyplot as plt
import numpy as np

from noisewise import BayesianFactorizer

rng = np.random.default_rng(0)
n_users, n_items = 200, 120
taste, kind = rng.normal(size=(n_users, 3)), rng.normal(size=(n_items, 3))
popular = rng.normal(0, 1, n_items)
match = taste @ kind.T / np.sqrt(3)
chosen = rng.random((n_users, n_items)) < 1 / (1 + np.exp(3 - popular - match))
careless = rng.choice([0.4, 1.5], n_items, p=[0.7, 0.3])  # some items divide opinions
stars = np.clip(np.rint(3.2 + 0.8 * match + rng.normal(0, careless, match.shape)), 1, 5)

names = [f"item {k:03}" for k in range(n_items)]
ratings = [(f"user {u:03}", names[i], stars[u, i]) for u, i in zip(*np.nonzero(chosen))]
model = BayesianFactorizer(rank=8, random_state=0).fit(ratings)

# %%
# Three lists for one user
# ------------------------
# ``by="value"`` ranks by the rating that is expected, ``risk=1`` by that less one std, and
# ``by="utility"`` by the chance that the user takes an item up, times the chance that they like it.

user = "user 007"
lists = {
    "by value": model.recommend(user, n=10),
    "by value, risk=1": model.recommend(user, n=10, risk=1.0),
    "by utility": model.recommend(user, n=10, by="utility"),
}
many = dict(zip(names, chosen.sum(axis=0)))
for name, found in lists.items():
    stds, counts = ([one.std for one in found], [many[one.id] for one in found])
    print(f"{name}: mean std {np.mean(stds):.2f}, rated by {np.mean(counts):.0f} users on average")

# %%
# Why is it on the list?
# ----------------------
# ``explain`` takes a prediction apart: what the average user would give, and how much each of the
# user's own ratings pulls it up or down. Bars say how sure the model is of each pull.

best = lists["by value"][0].id
why = model.explain(user, best, n=8)
print(f"{best}: {why.mean:.2f} stars; the average user would give {why.average:.2f}")

figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4.2), layout="constrained")
for (name, found), marker, size in zip(lists.items(), "osD", [12, 8, 4]):
    stds, means = [one.std for one in found], [one.mean for one in found]
    left.plot(stds, means, marker, markersize=size, fillstyle="none", label=name)
left.set(xlabel="std of the prediction", ylabel="expected rating", title=f"ten items for {user}")
left.legend()
pulls = why.pulls[::-1]
right.barh(
    [f"{pull.id} ({pull.value:.0f} stars)" for pull in pulls], [pull.pull for pull in pulls],
    xerr=[pull.std for pull in pulls], color=["C2" if pull.pull > 0 else "C3" for pull in pulls],
)  # fmt: skip
right.axvline(0, color="grey", linewidth=0.8)
right.set(xlabel="pull, in stars", title=f"why {best}?")
plt.show()

"""
Who is noisy?
=============

Some users rate with care, some click what is nearest. A model that learns the noise of every rating
can say who is who, and which single ratings are odd. Here the ratings are made up, so that we can
check what it says.
"""

# %%
# In truth a fifth of these users is careless. Nobody tells the model.

import matplotlib.pyplot as plt
import numpy as np

import noisewise
from noisewise.data.synthetic import make_ratings

made = make_ratings(n_users=300, n_items=150, density=0.2, seed=2)
ratings = made.observations
model = noisewise.BayesianFactorizer(rank=8, random_state=0).fit(ratings)

# %%
# ``noisy_ids`` ranks users (or items, with ``mode="item"``) by the noise that the model expects of
# them. It is a dict of columns, from which any library makes a frame.

table = noisewise.noisy_ids(model, mode="user", n=None, fewest=10)
for who, noise, many in zip(table["id"][:5], table["noise_std"], table["observations"]):
    print(f"{who}: noise of {noise:.2f} stars, from {many} ratings")

# %%
# The true noise of a user is the root mean square over what they have rated.

users = ratings.codes[0]
true_noise = np.sqrt(np.bincount(users, made.true_std**2) / np.bincount(users))
true_of_listed = true_noise[model.ids_[0].lookup(table["id"])]
rank_correlation = np.corrcoef(
    *(np.argsort(np.argsort(a)) for a in (true_of_listed, table["noise_std"]))
)[0, 1]

noisiest = true_of_listed >= np.quantile(true_of_listed, 0.8)
found = noisiest[: noisiest.sum()].mean()

figure, (left, right) = plt.subplots(1, 2, figsize=(9, 4), layout="constrained")
left.scatter(true_of_listed, table["noise_std"], s=4 + table["observations"] / 4, alpha=0.5)
left.axline((0.5, 0.5), slope=1, color="grey", linestyle=":")
left.set(xlabel="true noise of a user, in stars", ylabel="learned noise, in stars")
left.set_title("dots are larger for users with more ratings", fontsize=9)
right.hist(
    [table["noise_std"][~noisiest], table["noise_std"][noisiest]],
    bins=25, stacked=True, label=["all others", "the truly noisiest fifth"],
)  # fmt: skip
right.set(xlabel="learned noise, in stars", ylabel="users")
right.set_title(f"{found:.0%} of the noisiest fifth is ranked there", fontsize=9)
right.legend()
plt.show()

# %%
# Single ratings are ranked in the same way: by how far they are from what is expected, in stds.

odd = noisewise.noisy_observations(model, ratings, n=3)
print({name: column.tolist() for name, column in odd.items()})

"""
A first notebook
================

From a table with holes to a map, its standard deviations, completed rows and a report, cell by
cell. The page offers this program as a Jupyter notebook: run it there with data of your own.
"""

import matplotlib.pyplot as plt
import numpy as np

import bochner as bo

N_ROWS = 500
STEPS = 100

# %%
# The data: upper and lower halves of digits are two views. A tenth of the entries is hidden, and
# the last hundred rows are kept back. NaN is missing.

digits = bo.datasets.load_digits_halves()
rows = np.random.default_rng(0).permutation(len(digits.data))
source = np.random.default_rng(1)
X = digits.data[rows[:N_ROWS]].copy()
X[source.random(X.shape) < 0.1] = np.nan
new, labels = digits.data[rows[-100:]], digits.target[rows[:N_ROWS]]

# %%
# Fit. One start and few steps make this page quick; without ``init`` and ``max_iter`` several
# starts are compared, and training goes on until the bound has converged.

model = bo.NGMVLVM(
    n_components=3, views=digits.views, init="pca", max_iter=STEPS, random_state=0
).fit(X)
print(f"{model.elbo_:.0f} nats, {model.n_iter_} steps")

# %%
# The map: two of the three dimensions. ``embedding_std_`` says how sure every place is.

fig, ax = plt.subplots(figsize=(6, 5), layout="constrained")
bo.plots.latent_map(model, labels, ax=ax)
plt.show()

# %%
# Does every dimension carry something?

model.collapse_

# %%
# How much of each view varies along each dimension: the numbers are in ``relevance_``.

fig, ax = plt.subplots(figsize=(6, 2.5), layout="constrained")
bo.plots.relevance(model, ax=ax)
plt.show()

# %%
# Are the standard deviations calibrated, on rows that were not in training?

report = bo.calibration(model, new, n_draws=50, random_state=0)
report

# %%
# New rows, of which the lower half is not known: where they belong, and what is missing.

shown = new.copy()
shown[:, digits.views["lower"]] = np.nan
Z, Z_std = model.transform(shown, return_std=True)
completed, std = model.impute(shown, return_std=True)

fig, ax = plt.subplots(figsize=(9, 3), layout="constrained")
bo.plots.completions(new, completed, ~np.isnan(shown), digits.image_shape, n=12, ax=ax)
plt.show()

# %%
# Which dimensions drive which columns.

fig, ax = plt.subplots(figsize=(6, 5), layout="constrained")
bo.plots.loadings(model, ax=ax)
plt.show()

# %%
# One interactive page of all that; in a notebook it shows below the cell, and
# ``bo.report(..., path="report.html")`` writes it to a file.
#
# .. code-block:: python
#
#    bo.report(model, X, labels=labels)

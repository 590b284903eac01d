"""
Completing a table with numbers and categories
==============================================

A table as people have it: fractions, whole numbers, a category, a scale with an order, an answer of
yes or no, and holes in all of them. The DataFrame goes in as it is and comes back completed, with
the same columns, index and types, once or several times.
"""

import time

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.datasets import load_wine
from sklearn.experimental import enable_iterative_imputer  # noqa: F401 - makes the next import possible
from sklearn.impute import IterativeImputer, KNNImputer

import bochner as bo

N_ROWS = 178
STEPS = 100

# %%
# 178 wines of three cultivars. One measurement is cut into grades and one into yes and no, and
# 20 % of the entries are hidden.

bunch = load_wine(as_frame=True)
rows = np.linspace(0, 177, N_ROWS).astype(int)
wines = bunch.data.iloc[rows].reset_index(drop=True)
wines["cultivar"] = pd.Categorical.from_codes(bunch.target[rows], ["first", "second", "third"])
wines["hue"] = pd.qcut(wines["hue"], 3, labels=["low", "medium", "high"])
wines["magnesium"] = wines["magnesium"].astype("Int64")
wines["proline"] = (wines["proline"] > 700).astype("boolean")
hidden = np.random.default_rng(0).random(wines.shape) < 0.2
shown = wines.mask(hidden)
print(shown.dtypes)

# %%
# ``likelihood="auto"`` makes a view of each kind of column. Restoring entries needs no race of
# starts.

begin = time.process_time()
model = bo.NGMVLVM(
    4, likelihood="auto", n_mixtures=1, init="pca", max_iter=STEPS, random_state=0
).fit(shown)
completed = model.impute(shown)
print(f"processor seconds: {time.process_time() - begin:.1f}")
print(model.likelihood_)
print(completed.head())

# %%
# Labels restored, beside the most frequent one; and the error of numbers, in standard deviations of
# their columns, beside ten nearest neighbours and iterated regressions on standardised numbers.
# miceforest beside it, on ten tables: ``python benchmarks/mixed.py``.

for name in ("cultivar", "hue", "proline"):
    hidden = shown[name].isna()
    right = (completed[name][hidden] == wines[name][hidden]).mean()
    by_mode = (shown[name].mode()[0] == wines[name][hidden]).mean()
    print(f"{name}: {100 * right:.0f} % restored (the most frequent: {100 * by_mode:.0f} %)")

numbers = [name for name in wines if wines[name].dtype.kind == "f"]
holes = shown[numbers].isna().to_numpy()
centre, scale = shown[numbers].mean(), shown[numbers].std()
standard = (shown[numbers] - centre) / scale
begin = time.process_time()
by_neighbours = KNNImputer(n_neighbors=10).fit_transform(standard)
regressions = IterativeImputer(random_state=0)
by_regressions = regressions.fit_transform(standard)
print(f"processor seconds of both peers: {time.process_time() - begin:.1f}")
true = ((wines[numbers] - centre) / scale).to_numpy()
restored = ((completed[numbers] - centre) / scale).to_numpy()
print(f"error of numbers: {bo.metrics.rmse(true, restored, holes):.2f}")
print(f"error of ten neighbours: {bo.metrics.rmse(true, by_neighbours, holes):.2f}")
print(f"error of iterated regressions: {bo.metrics.rmse(true, by_regressions, holes):.2f}")

# %%
# Draws carry the uncertainty on: every one is a completed table. Ninety percent of the hidden
# values should lie between the 5 and 95 % quantiles of the draws.

draws = np.stack(
    [(drawn[numbers] - centre) / scale for drawn in model.impute(shown, n_draws=100)]
)
low, high = np.quantile(draws, [0.05, 0.95], axis=0, method="weibull")
inside = ((low <= true) & (true <= high))[holes].mean()
print(f"hidden numbers inside their 90 % intervals: {100 * inside:.0f} %")

# %%
# What the latent dimensions carry, and hidden numbers with their intervals.

fig, axs = plt.subplots(1, 2, figsize=(11, 4.6), layout="constrained")
bo.plots.loadings(model, n=3, ax=axs[0])
middle, width = restored[holes], np.stack([restored - low, high - restored])[:, holes].clip(0)
axs[1].errorbar(
    true[holes], middle, yerr=width, fmt="o", markersize=3, elinewidth=0.5, alpha=0.6
)
axs[1].axline((0, 0), slope=1, color="black", linewidth=0.8)
axs[1].set(title="Hidden numbers", xlabel="true", ylabel="completed, with 90 % interval")
plt.show()

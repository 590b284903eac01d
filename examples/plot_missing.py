"""
Rows that lack a view
=====================

Thirty measurements of 569 tumours come in three groups: the mean, the error and the worst value of
ten properties of the cells. They are three views here, and a third of the rows lacks one of them,
in training too. The model fits what there is and predicts the rest, with standard deviations.
Beside it are nearest neighbours, which are not linear either, and iterated regressions, which are.
"""

import time

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.experimental import enable_iterative_imputer  # noqa: F401 - makes the next import possible
from sklearn.impute import IterativeImputer, KNNImputer
from sklearn.preprocessing import StandardScaler

import bochner as bo

N_ROWS = 569
STEPS = 100

# %%
# Every third row lacks its "worst" values. Columns have different units, so they are standardised
# first.

names = load_breast_cancer().feature_names
X, y = load_breast_cancer(return_X_y=True)
X, y = StandardScaler().fit_transform(X[:N_ROWS]), y[:N_ROWS]
views = {"mean": slice(0, 10), "error": slice(10, 20), "worst": slice(20, 30)}
lacking = np.arange(len(X)) % 3 == 0
X_shown = X.copy()
X_shown[lacking, views["worst"]] = np.nan

# %%
# No row is dropped and nothing is filled in beforehand.

hidden = np.isnan(X_shown)
begin = time.process_time()
model = bo.NGMVLVM(
    n_components=5, views=views, init="pca", max_iter=STEPS, random_state=0
).fit(X_shown)
full, std = model.impute(X_shown, return_std=True)


def report(name, values, begin):
    """Print and return the error of the hidden values, in standard deviations; print the time."""
    seconds = time.process_time() - begin
    error = bo.metrics.rmse(X, values, hidden)
    print(f"{name}: error {error:.2f}, {seconds:.1f} processor seconds")
    return error


error = report("NG-MVLVM", full, begin)
inside = bo.metrics.coverage(X[hidden], full[hidden], std[hidden], level=0.9)
print(f"hidden values inside their 90 % intervals: {100 * inside:.0f} %")

# %%
# The same values by others. Neighbours and regressions state no interval.

peers = {
    "ten neighbours": KNNImputer(n_neighbors=10),
    "iterated regressions": IterativeImputer(max_iter=100, random_state=0),
}
for name, imputer in peers.items():
    begin = time.process_time()
    report(name, imputer.fit_transform(X_shown), begin)
by_means = report("column means", np.where(hidden, 0.0, X), time.process_time())

# %%
# Two of the hidden properties, predicted and true; red rows are malignant, which the model was not
# told.

fig, axs = plt.subplots(1, 3, figsize=(12, 4), layout="constrained")
for ax, column in zip(axs, (20, 24), strict=False):
    true, mean, wide = X[lacking, column], full[lacking, column], 1.645 * std[lacking, column]
    ax.errorbar(true, mean, yerr=wide, fmt="none", ecolor="#c8c8c8", linewidth=0.8, zorder=1)
    ax.scatter(true, mean, s=10, c=np.where(y[lacking] == 0, "#b2182b", "#2166ac"), zorder=2)
    limits = [true.min(), true.max()]
    ax.plot(limits, limits, color="black", linewidth=0.8)
    ax.set(title=names[column], xlabel="true", ylabel="predicted, with 90 % interval")
bo.plots.relevance(model, ax=axs[2])
plt.show()

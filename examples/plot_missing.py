"""
Rows that lack a view
=====================

Thirty measurements of 569 tumours come in three groups: the mean, the error and the worst value of
ten properties of the cells. They are three views here, and a third of the rows lacks one of them,
in training too. The model fits what there is and predicts the rest, with standard deviations.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_breast_cancer
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

model = bo.NGMVLVM(
    n_components=5, views=views, init="pca", max_iter=STEPS, random_state=0
).fit(X_shown)
full, std = model.impute(X_shown, return_std=True)
hidden = np.isnan(X_shown)
error, by_means = bo.metrics.rmse(X, full, hidden), bo.metrics.rmse(X, 0 * X, hidden)
inside = bo.metrics.coverage(X[hidden], full[hidden], std[hidden], level=0.9)
print(
    f"error of the hidden values: {error:.2f} standard deviations (column means: {by_means:.2f})"
)
print(f"hidden values inside their 90 % intervals: {100 * inside:.0f} %")

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

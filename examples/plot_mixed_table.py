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
from sklearn.ensemble import ExtraTreesRegressor
from sklearn.experimental import enable_iterative_imputer  # noqa: F401 - makes the next import possible
from sklearn.impute import IterativeImputer, KNNImputer
from sklearn.linear_model import BayesianRidge, Ridge

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
seconds = time.process_time() - begin
print(f"processor seconds: {seconds:.1f}")
print(model.likelihood_)
print(completed.head())

# %%
# Others need numbers: standardised ones, and a column of zeros and ones for every label.

labelled = ["cultivar", "hue", "proline"]
numbers = [name for name in wines if wines[name].dtype.kind == "f"]
centre, scale = shown[numbers].mean(), shown[numbers].std()


def as_numbers(frame):
    """Return numbers and indicators, with holes where the table has them."""
    parts = [(frame[numbers] - centre) / scale, frame[["magnesium"]].astype(float) / 15.0]
    for name in labelled:
        indicators = pd.get_dummies(frame[name], prefix=name).astype(float)
        indicators.loc[frame[name].isna()] = np.nan
        parts.append(indicators)
    return pd.concat(parts, axis=1)


def restored_labels(filled, name):
    """Return the likeliest label of every row."""
    columns = [column for column in filled if column.startswith(f"{name}_")]
    return filled[columns].idxmax(axis=1).str.removeprefix(f"{name}_")


# %%
# Each peer has as many seconds as the model took to choose its settings, on a tenth of the entries
# that it is shown, hidden once more. miceforest beside it, on ten tables:
# ``python benchmarks/mixed.py``.

true, holed = as_numbers(wines), as_numbers(shown)
again = as_numbers(shown.mask(np.random.default_rng(1).random(wines.shape) < 0.1))
withheld = again.isna().to_numpy() & ~holed.isna().to_numpy()
peers = {
    "neighbours": [
        KNNImputer(n_neighbors=k, weights=w)
        for w in ("distance", "uniform")
        for k in (10, 5, 7, 15, 20, 30)
    ],
    "iterated regressions": [
        IterativeImputer(estimator, n_nearest_features=width, random_state=0)
        for estimator in (BayesianRidge(), Ridge(10.0), Ridge(30.0), Ridge(100.0))
        for width in (None, 10)
    ],
    "iterated trees": [
        IterativeImputer(
            ExtraTreesRegressor(n, min_samples_leaf=leaf, max_features=0.5, random_state=0),
            max_iter=3,
            random_state=0,
        )
        for n in (10, 30)
        for leaf in (3, 1, 5)
    ],
}
tables = {"NG-MVLVM": as_numbers(completed)}
for name, candidates in peers.items():
    begin, errors = time.process_time(), []
    for imputer in candidates:
        if errors and time.process_time() - begin >= seconds:
            break
        guess = imputer.fit_transform(again)
        errors.append(bo.metrics.rmse(true.to_numpy(), guess, withheld))
    best = candidates[int(np.argmin(errors))]
    tables[name] = pd.DataFrame(best.fit_transform(holed), columns=holed.columns)
    spent = time.process_time() - begin
    print(f"{name}: the best of {len(errors)} settings, {spent:.1f} processor seconds")

# %%
# The error of hidden numbers, in standard deviations of their columns, and the share of labels
# restored, beside the most frequent one. With this little table four ways are close to each other;
# what only the model gives are draws whose intervals hold what they promise.

holes = shown[numbers].isna().to_numpy()
shares = {name: shown[name].isna() for name in labelled}
for name, filled in tables.items():
    error = bo.metrics.rmse(true[numbers].to_numpy(), filled[numbers].to_numpy(), holes)
    right = [
        (restored_labels(filled, label)[where] == wines[label].astype(str)[where]).mean()
        for label, where in shares.items()
    ]
    print(f"{name}: error {error:.2f}, labels {100 * np.mean(right):.0f} %")
modes = [(shown[k].mode()[0] == wines[k][where]).mean() for k, where in shares.items()]
print(f"the most frequent label: {100 * np.mean(modes):.0f} %")

# %%
# Draws carry the uncertainty on: every one is a completed table. Ninety percent of the hidden
# values should lie between the 5 and 95 % quantiles of the draws.

draws = np.stack(
    [(drawn[numbers] - centre) / scale for drawn in model.impute(shown, n_draws=100)]
)
wanted = true[numbers].to_numpy()
low, high = np.quantile(draws, [0.05, 0.95], axis=0, method="weibull")
inside = ((low <= wanted) & (wanted <= high))[holes].mean()
print(f"hidden numbers inside their 90 % intervals: {100 * inside:.0f} %")

# %%
# What the latent dimensions carry, and hidden numbers with their intervals.

fig, axs = plt.subplots(1, 2, figsize=(11, 4.6), layout="constrained")
bo.plots.loadings(model, n=3, ax=axs[0])
restored = tables["NG-MVLVM"][numbers].to_numpy()
middle, width = restored[holes], np.stack([restored - low, high - restored])[:, holes].clip(0)
axs[1].errorbar(
    wanted[holes], middle, yerr=width, fmt="o", markersize=3, elinewidth=0.5, alpha=0.6
)
axs[1].axline((0, 0), slope=1, color="black", linewidth=0.8)
axs[1].set(title="Hidden numbers", xlabel="true", ylabel="completed, with 90 % interval")
plt.show()

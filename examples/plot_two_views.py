"""
Two views of digits, and half of each completed
===============================================

The upper and the lower half of an image are two views of one digit. A model of both places digits
of which it is shown the upper half alone, and completes them.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import RidgeCV
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import KNeighborsRegressor

import bochner as bo

N_TRAIN = 1200
STEPS = 60

# %%
# Fit on rows that have both halves. One start and few steps: training until the bound has converged
# takes several times as long and lowers the error by 1 %.

digits = bo.datasets.load_digits_halves()
upper, lower = digits.views["upper"], digits.views["lower"]
rows = np.random.default_rng(0).permutation(len(digits.data))
train, test = digits.data[rows[:N_TRAIN]], digits.data[rows[-300:]]
model = bo.NGMVLVM(
    n_components=8, views=digits.views, init="pca", max_iter=STEPS, random_state=0
).fit(train)

# %%
# Hide the lower half of rows that were not in training. NaN is missing.

shown = test.copy()
shown[:, lower] = np.nan
completed, std = model.impute(shown, return_std=True)

# %%
# The error beside those of regressions from upper to lower halves, whose settings are chosen by
# cross-validation. They predict this view from that one and do nothing else: kernel ridge
# regression is better at it.

kernel = {"alpha": [0.03, 0.1, 0.3, 1.0], "gamma": [5e-4, 1e-3, 2e-3, 4e-3]}
neighbours = {"n_neighbors": [3, 5, 8, 12, 20]}
score = {"cv": 3, "scoring": "neg_mean_squared_error"}
peers = {
    "ridge": RidgeCV(np.logspace(-2, 4, 13)),
    "kernel ridge": GridSearchCV(KernelRidge(kernel="rbf"), kernel, **score),
    "nearest neighbours": GridSearchCV(
        KNeighborsRegressor(weights="distance"), neighbours, **score
    ),
}
mean = train[:, lower].mean(axis=0)
error = bo.metrics.rmse(test[:, lower], completed[:, lower])
print(f"root mean squared error in grey levels (0 to 16): {error:.2f}")
for name, peer in peers.items():
    peer.fit(train[:, upper], train[:, lower] - mean)
    print(
        f"{name}: {bo.metrics.rmse(test[:, lower], peer.predict(test[:, upper]) + mean):.2f}"
    )

fig, ax = plt.subplots(figsize=(11, 3.2), layout="constrained")
bo.plots.completions(test, completed, ~np.isnan(shown), digits.image_shape, n=14, ax=ax)
plt.show()

"""
Two views of digits, and half of each completed
===============================================

The upper and the lower half of an image are two views of one digit. A model of both places digits
of which it is shown the upper half alone, and completes them.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.linear_model import Ridge

import bochner as bo

N_TRAIN = 1200
STEPS = 60

# %%
# Fit on rows that have both halves. One start and few steps: completion is at its best early.

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
# The error beside that of ridge regression from upper to lower halves.

ridge = Ridge().fit(train[:, upper], train[:, lower]).predict(test[:, upper])
error = bo.metrics.rmse(test[:, lower], completed[:, lower])
ridge_error = bo.metrics.rmse(test[:, lower], ridge)
print(
    f"root mean squared error in grey levels (0 to 16): {error:.2f}, ridge {ridge_error:.2f}"
)

fig, ax = plt.subplots(figsize=(11, 3.2), layout="constrained")
bo.plots.completions(test, completed, ~np.isnan(shown), digits.image_shape, n=14, ax=ax)
plt.show()

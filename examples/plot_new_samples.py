"""
Placing new samples
===================

A map of yesterday's rows is of little use if today's cannot be put on it. Factor analyses of
several views have to be fitted anew, which moves everything; here a row that was never seen is
placed under the model as it is, with half of it missing if it must be. Beside it are PCA, whose
projection needs whole rows, and regression from the half that is there.
"""

import time

import matplotlib.pyplot as plt
import numpy as np
from sklearn.decomposition import PCA
from sklearn.linear_model import RidgeCV
from sklearn.neighbors import KNeighborsClassifier

import bochner as bo

N_TRAIN = 600
N_NEW = 300
STEPS = 150

# %%
# Digits in two halves. The model knows 600 of them.

digits = bo.datasets.load_digits_halves()
train, new = digits.data[:N_TRAIN], digits.data[N_TRAIN : N_TRAIN + N_NEW]
labels, answers = digits.target[:N_TRAIN], digits.target[N_TRAIN : N_TRAIN + N_NEW]
begin = time.process_time()
model = bo.NGMVLVM(6, views=digits.views, init="pca", max_iter=STEPS, random_state=0).fit(
    train
)

seconds = time.process_time() - begin

# %%
# New rows, whole and with their upper half only, and how sure the model is of each place.

half = new.copy()
half[:, digits.views["lower"]] = np.nan
whole, std = model.transform(new, return_std=True)
placed, wider = model.transform(half, return_std=True)
print(
    f"mean standard deviation of a place: whole rows {std.mean():.2f}, halves {wider.mean():.2f}"
)


def accuracy(Z, places):
    """Of ten nearest neighbours among the training rows."""
    return KNeighborsClassifier(10).fit(Z, labels).score(places, answers)


begin = time.process_time()
pca = PCA(6).fit(train)
upper, lower = digits.views["upper"], digits.views["lower"]
ridge = RidgeCV(np.logspace(-2, 4, 13)).fit(train[:, upper], train[:, lower])
filled = half.copy()
filled[:, lower] = ridge.predict(new[:, upper])
print(f"processor seconds: {seconds:.1f}, of the peers {time.process_time() - begin:.1f}")
shares = {
    "NG-MVLVM, whole rows": accuracy(model.embedding_, whole),
    "NG-MVLVM, upper halves": accuracy(model.embedding_, placed),
    "PCA, whole rows": accuracy(pca.transform(train), pca.transform(new)),
    "PCA, upper halves filled by ridge": accuracy(pca.transform(train), pca.transform(filled)),
}
for name, share in shares.items():
    print(f"{name}: {share:.3f}")

# %%
# And the halves that nobody showed: restored from the place, beside the regression.

completed = model.impute(half)
for name, values in (("NG-MVLVM", completed), ("ridge regression", filled)):
    error = np.sqrt(np.mean((values - new)[:, lower] ** 2))
    print(f"{name}: root mean square error of the lower halves {error:.2f}")
print(f"held-out log density of a new row: {model.score(new[:50]):.1f} nats")

fig, ax = plt.subplots(figsize=(6, 3))
ax.barh(list(shares), list(shares.values()), color="#1764a5")
ax.set_xlim(0.0, 1.0)
ax.set_xlabel("accuracy of ten nearest neighbours")
ax.invert_yaxis()
fig.tight_layout()
plt.show()

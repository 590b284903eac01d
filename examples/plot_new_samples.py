"""
Placing new samples
===================

A map of yesterday's rows is of little use if today's cannot be put on it. Factor analyses of
several views have to be fitted anew, which moves everything; here a row that was never seen is
placed under the model as it is, with half of it missing if it must be. Beside it are PCA, whose
projection needs whole rows, and regressions from the half that is there, which have the model's
seconds to choose their kind and settings.
"""

import time

import matplotlib.pyplot as plt
import numpy as np
from sklearn.decomposition import PCA
from sklearn.ensemble import ExtraTreesRegressor
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import Ridge
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor

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


# %%
# Each regression in turn, while the model's seconds last: on two thirds of the training rows,
# compared on the third. The best is trained on all of them.

upper, lower = digits.views["upper"], digits.views["lower"]
kinds = [
    *(Ridge(alpha) for alpha in (1.0, 10.0, 100.0, 1000.0)),
    *(KNeighborsRegressor(k, weights="distance") for k in (5, 10, 20)),
    *(
        KernelRidge(alpha=alpha, kernel="rbf", gamma=gamma)
        for gamma in np.geomspace(1e-4, 1e-2, 11)
        for alpha in np.geomspace(1e-3, 1.0, 7)
    ),
    *(
        ExtraTreesRegressor(n, min_samples_leaf=leaf, max_features=0.5, random_state=0)
        for n in (30, 100, 300)
        for leaf in (1, 3)
    ),
]
fits, checks = np.arange(N_TRAIN) % 3 > 0, np.arange(N_TRAIN) % 3 == 0
begin, errors = time.process_time(), []
for kind in kinds:
    if errors and time.process_time() - begin >= seconds:
        break
    guess = kind.fit(train[fits][:, upper], train[fits][:, lower]).predict(
        train[checks][:, upper]
    )
    errors.append(np.mean((guess - train[checks][:, lower]) ** 2))
best = kinds[int(np.argmin(errors))].fit(train[:, upper], train[:, lower])
filled = half.copy()
filled[:, lower] = best.predict(new[:, upper])
print(f"the best of {len(errors)} regressions: {best}")
print(f"processor seconds: {seconds:.1f}, of the peers {time.process_time() - begin:.1f}")

# %%
# Are the neighbours of a placed row of its kind? Labels are used for this figure alone.

pca = PCA(6).fit(train)
shares = {
    "NG-MVLVM, whole rows": accuracy(model.embedding_, whole),
    "NG-MVLVM, upper halves": accuracy(model.embedding_, placed),
    "PCA, whole rows": accuracy(pca.transform(train), pca.transform(new)),
    "PCA, upper halves filled by regression": accuracy(
        pca.transform(train), pca.transform(filled)
    ),
}
for name, share in shares.items():
    print(f"{name}: {share:.3f}")

# %%
# And the halves that nobody showed: restored from the place, beside the regression.

completed = model.impute(half)
for name, values in (("NG-MVLVM", completed), ("the best regression", filled)):
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

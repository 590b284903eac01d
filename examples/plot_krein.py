"""
An indefinite kernel for a linear learner
=========================================

The TL1 kernel max(tau - ||x - y||_1, 0) is not positive definite: its matrices have negative
eigenvalues. Signed random features represent both parts, and a linear classifier on them works with
the kernel on any number of rows.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, StandardScaler
from sklearn.svm import LinearSVC

import bochner as bo

COLUMNS = (20, 40, 80, 160)
ITERATIONS = 60

X, y = load_breast_cancer(return_X_y=True)
scaled = MinMaxScaler().fit_transform(X)

# %%
# Held-out error of the kernel and accuracy of the classifier, by the number of columns.

errors, scores = [], []
for n in COLUMNS:
    features = bo.KreinFeatures(
        bo.kernels.TL1(tau=3.0), n_components=n, max_iter=ITERATIONS, random_state=0
    )
    errors.append(features.fit(scaled).held_out_error_)
    pipe = make_pipeline(
        MinMaxScaler(clip=True), features, StandardScaler(), LinearSVC(C=0.01, dual=False)
    )
    scores.append(cross_val_score(pipe, X, y, cv=3).mean())
    print(f"{n:4d} columns: relative error {errors[-1]:.3f}, accuracy {scores[-1]:.3f}")
print(
    f"smallest over largest eigenvalue: {features.eigenvalue_ratio_:.3f}, "
    f"columns of the negative part: {int((features.signs_ < 0).sum())} of {COLUMNS[-1]}"
)

# %%
# Kernel values of pairs of rows, true and by the features of the last map.

pairs = np.random.default_rng(0).integers(0, len(scaled), size=(2, 2000))
phi, kernel = features.transform(scaled), features.kernel_
approximate = ((phi[pairs[0]] * features.signs_.numpy()) * phi[pairs[1]]).sum(axis=1)
true = np.maximum(
    kernel.tau_for(X.shape[1]) - np.abs(scaled[pairs[0]] - scaled[pairs[1]]).sum(axis=1), 0
)

fig, axs = plt.subplots(1, 3, figsize=(12, 3.8), layout="constrained")
axs[0].scatter(true, approximate, s=4, alpha=0.4)
axs[0].axline((true.mean(), true.mean()), slope=1, color="black", linewidth=0.8)
axs[0].set(
    xlabel="true kernel value", ylabel=f"by {COLUMNS[-1]} columns", title="Pairs of rows"
)
axs[1].plot(COLUMNS, errors, "o-")
axs[1].set(
    xlabel="columns",
    ylabel="relative error, held-out rows",
    title="The kernel",
    xscale="log",
    ylim=(0, None),
)
axs[2].plot(COLUMNS, scores, "o-")
axs[2].set(
    xlabel="columns",
    ylabel="accuracy, three folds",
    title="The classifier",
    xscale="log",
    ylim=(0.9, 1),
)
for ax in axs[1:]:
    ax.set_xticks(COLUMNS, COLUMNS)
    ax.minorticks_off()
plt.show()

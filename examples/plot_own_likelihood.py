"""
A likelihood of one's own: waiting times
========================================

Waiting times are positive and their noise grows with their mean. Forty kinds of waiting times are
drawn whose log means bend along one latent dimension; a Gaussian model is misled by the long waits,
one with the right likelihood is not. The likelihood is the 40 lines of :doc:`/extend`.
"""

import matplotlib.pyplot as plt
import numpy as np

import bochner as bo
from exponential_likelihood import Exponential

N_ROWS = 200
STEPS = 150

rng = np.random.default_rng(0)
t = np.linspace(-1.5, 1.5, N_ROWS)
log_mean = np.column_stack([t, t**2 - 1, np.sin(2 * t)]) @ rng.normal(
    size=(3, 40)
) + rng.normal(size=40)
waits = rng.exponential(np.exp(log_mean))

# %%
# The same kernel and the same start, two likelihoods. The score is a log density in the same units
# for both.

fits = {}
for likelihood in ("gaussian", Exponential()):
    model = bo.RandomFeatureLVM(
        1, kernel="rbf", likelihood=likelihood, init="pca", max_iter=STEPS, random_state=0
    )
    model.fit(waits[::2])
    r2 = bo.metrics.mean_aligned_r2(t[::2, None], model.embedding_)
    name = model.likelihood_["x"]
    fits[name] = (model, r2)
    print(
        f"{name}: R² of the latents {r2:.2f}, log density of rows not in training "
        f"{model.score(waits[1::2]):.1f}"
    )

# %%
# Latents by both, and one column along the curve: waits, the predicted mean and the interval that
# should hold 90 %.

fig, axs = plt.subplots(1, 3, figsize=(11, 4), layout="constrained")
for ax, (name, (model, r2)) in zip(axs, fits.items(), strict=False):
    ax.scatter(t[::2], model.embedding_[:, 0], s=12)
    ax.set(title=f"{name}: R² {r2:.2f}", xlabel="true position", ylabel="latent")

model, _ = fits["exponential"]
order = np.argsort(model.embedding_[:, 0])
mean, low, high = (
    part[order, 0] for part in model.inverse_transform(model.embedding_, interval=0.9)
)
axs[2].fill_between(
    model.embedding_[order, 0], low, high, color="#d1e5f0", label="90 % interval"
)
axs[2].plot(model.embedding_[order, 0], mean, label="mean")
axs[2].scatter(model.embedding_[:, 0], waits[::2, 0], s=8, color="black", label="waits")
axs[2].set(title="One kind of wait", xlabel="latent", yscale="log")
axs[2].legend(frameon=False)
plt.show()

"""
Counts, and the latent plane they come from
===========================================

A pixel of scikit-learn's digits is a count: how many of the 16 dots in a 4 x 4 square of the
scanned bitmap were inked. That is a binomial with n = 16, not a Gaussian: its noise vanishes at
both ends. `bochner.SRFLVM` finds latents under that likelihood and lets the data decide how many
spectral components the kernel has.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

import bochner as bo

N_ROWS = 300
STEPS = 100

X, y = load_digits(n_class=5, return_X_y=True)
X, y = X[:N_ROWS], y[:N_ROWS]

# %%
# Predictions are counts, intervals too, and the score is the log probability of counts.

binomial = bo.likelihoods.Binomial(16)
model = bo.SRFLVM(
    2, likelihood=binomial, init="pca", max_iter=STEPS, n_frequencies=32, random_state=0
).fit(X)
low, high = model.inverse_transform(model.embedding_[:5], interval=0.9)[1:]
print(f"components in use: {model.n_active_mixtures_['x']} of {model.n_mixtures_}")
print(f"10-NN accuracy on the latents: {bo.metrics.knn_accuracy(model.embedding_, y, 10):.2f}")
print(
    f"intervals of the first row's middle columns: {low[0, 26:29]} to {high[0, 26:29]}, counted "
    f"{X[0, 26:29]}"
)

# %%
# The latents, and the counts that the model expects at places of a grid over them.

Z, side = model.embedding_, 9
low_z, high_z = np.quantile(Z, (0.02, 0.98), axis=0)
across, down = (np.linspace(low_z[d], high_z[d], side) for d in range(2))
grid = np.stack(np.meshgrid(across, down[::-1]), axis=-1).reshape(-1, 2)
images = model.inverse_transform(grid).reshape(side, side, 8, 8)

fig, axs = plt.subplots(1, 2, figsize=(11, 5), layout="constrained")
bo.plots.latent_map(model, y, ax=axs[0], n_ellipses=60)
picture = (
    np.pad(images, ((0, 0), (0, 0), (1, 1), (1, 1)))
    .transpose(0, 2, 1, 3)
    .reshape(side * 10, side * 10)
)
axs[1].imshow(
    picture,
    cmap="gray_r",
    vmin=0,
    vmax=16,
    extent=(*low_z[:1], *high_z[:1], *low_z[1:], *high_z[1:]),
)
axs[1].set(
    title="Expected counts over the latent plane", xlabel="latent dimension 0", aspect="auto"
)
plt.show()

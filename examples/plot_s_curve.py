"""
A known curve, found again
==========================

Two views are drawn from Gaussian processes over an S-shaped curve in the plane. The model sees the
noisy columns alone and finds the curve, up to an affine map.
"""

import matplotlib.pyplot as plt
import numpy as np

import bochner as bo

N_SAMPLES = 300
STEPS = 200

# %%
# 300 rows, two views of 100 columns each, noise of standard deviation 0.5 on signals of standard
# deviation 1.

curve = bo.datasets.make_s_curve(
    N_SAMPLES, 100, kernels=("rbf", "rbf"), noise=0.5, random_state=0
)
model = bo.NGMVLVM(
    n_components=2, views=curve.views, init="pca", max_iter=STEPS, random_state=0
).fit(curve.data)

# %%
# R² after the best affine map of the latents onto the truth, per dimension; the same for principal
# components.

r2 = bo.metrics.aligned_r2(curve.latent, model.embedding_)
centred = curve.data - curve.data.mean(axis=0)
pca = np.linalg.svd(centred, full_matrices=False)[0][:, :2]
pca_r2 = bo.metrics.aligned_r2(curve.latent, pca)
print(f"R² per dimension: {r2.round(3)}, of principal components {pca_r2.round(3)}")


def aligned(Z):
    """Map latents onto the truth, as R² does."""
    A = np.column_stack([Z, np.ones(len(Z))])
    return A @ np.linalg.lstsq(A, curve.latent, rcond=None)[0]


fig, axs = plt.subplots(
    1, 3, figsize=(11, 3.8), layout="constrained", sharex=True, sharey=True
)
titles = (
    "truth",
    f"principal components, R² {pca_r2.mean():.2f}",
    f"NGMVLVM, R² {r2.mean():.3f}",
)
for ax, Z, title in zip(
    axs, (curve.latent, aligned(pca), aligned(model.embedding_)), titles, strict=True
):
    points = ax.scatter(*Z.T, c=curve.target, s=12, cmap="viridis")
    ax.set_title(title, loc="left")
    ax.set_aspect("equal")
fig.colorbar(points, ax=axs, label="position along the curve", shrink=0.9)
plt.show()

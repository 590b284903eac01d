"""
Is the learned kernel the true one?
===================================

Where data are drawn from a Gaussian process the true kernel matrix is known. Here its lengthscale
shrinks away from the origin (the Gibbs kernel): no stationary kernel can be right. Next-gen
spectral mixtures can follow it.
"""

import matplotlib.pyplot as plt

import bochner as bo

N_SAMPLES = 300
STEPS = 300

curve = bo.datasets.make_s_curve(
    N_SAMPLES, 100, kernels=("rbf", "gibbs"), noise=0.3, random_state=1
)
models = {
    "next-gen": bo.NGMVLVM(2, views=curve.views, init="fold", max_iter=STEPS, random_state=0),
    "stationary": bo.AdvisedRFLVM(
        2, views=curve.views, init="fold", max_iter=STEPS, random_state=0
    ),
}
for model in models.values():
    model.fit(curve.data)

# %%
# Rows are sorted along the curve. Centred columns of data carry no constant, so the error is given
# without it too.

fig, rows = plt.subplots(2, 3, figsize=(12, 8), layout="constrained")
errors = {}
for axs, (name, model) in zip(rows, models.items(), strict=True):
    true = curve.kernel_matrices["view_1"]
    bo.plots.kernel_recovery(model, true, view="view_1", order=curve.target, axs=list(axs))
    axs[0].set_ylabel(f"{name}: training row, sorted")
    errors[name] = bo.metrics.relative_error(
        model.kernel_matrix(model.embedding_, view="view_1"), true
    )
    r2 = bo.metrics.mean_aligned_r2(curve.latent, model.embedding_)
    print(
        f"{name}: bound {model.elbo_:,.0f}, R² of the latents {r2:.3f}, error of the kernel "
        f"{errors[name]:.2f}"
    )
plt.show()

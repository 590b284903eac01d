"""Blood cells with scanpy: counts, latents, neighbours, Leiden clusters, UMAP.

``python examples/scanpy_walk.py --out docs/images`` draws the picture of the documentation. It
needs scanpy, igraph and the data set of `bochner.datasets.load_pbmc3k`.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import anndata
import matplotlib.pyplot as plt
import numpy as np
import scanpy as sc
from sklearn.metrics import adjusted_rand_score

import bochner as bo

N_CELLS, N_GENES = 700, 300


def cells() -> anndata.AnnData:
    """Return some of the cells with their counts in a layer."""
    data = bo.datasets.load_pbmc3k()
    chosen = np.sort(np.random.default_rng(0).permutation(len(data.target))[:N_CELLS])
    adata = anndata.AnnData(data.data[chosen].astype(np.float32))
    adata.obs["type"] = np.asarray(data.target_names)[data.target[chosen]]
    adata.layers["counts"] = adata.X.copy()
    adata.obs["total"] = np.asarray(adata.X.sum(axis=1)).ravel()
    return adata


def main() -> None:
    """Walk, print how clusters and types agree, and draw."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path())
    out = parser.parse_args().out
    adata = cells()
    # rare genes look variable, and are noise
    sc.pp.filter_genes(adata, min_cells=N_CELLS // 20)
    sc.pp.normalize_total(adata)
    sc.pp.log1p(adata)
    sc.pp.highly_variable_genes(adata, n_top_genes=N_GENES)
    bo.fit_anndata(
        adata,
        layer="counts",
        mask_var="highly_variable",
        likelihood="negative_binomial",
        size_factors="total",
        n_components=5,
        n_mixtures=1,
        init="pca",
        max_iter=150,
        random_state=0,
    )
    sc.pp.neighbors(adata, use_rep="X_bochner")
    sc.tl.leiden(adata, flavor="igraph", n_iterations=2, random_state=0)
    sc.tl.umap(adata, random_state=0)
    agreement = adjusted_rand_score(adata.obs["type"], adata.obs["leiden"])
    print(f"adjusted Rand index of clusters and types: {agreement:.2f}")
    fig, axs = plt.subplots(1, 2, figsize=(12, 4.6), layout="constrained")
    for ax, colour in zip(axs, ("leiden", "type"), strict=True):
        sc.pl.umap(adata, color=colour, ax=ax, show=False, frameon=False)
    fig.savefig(out / "scanpy.png", dpi=90)


if __name__ == "__main__":
    main()

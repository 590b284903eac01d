"""What several threads must not stop: LU factors of batches of more than about 150 rows may never
end on them.
"""

from __future__ import annotations

import pytest

# few rows and features: what matters is the size of the matrices of every row's latents
_FEW = "n_mixtures=1, n_frequencies=8, init='pca', max_iter=1, random_state=0"
_MODEL = f"bo.AdvisedRFLVM(160, {_FEW}).fit(X[:4]).transform(X[:4])"
_FEATURES = (
    "bo.KreinFeatures(n_components=16, max_iter=2, random_state=0).fit_transform(X[:40])"
)


@pytest.mark.parametrize("run", [_MODEL, _FEATURES], ids=["latents", "features"])
def test_hundreds_of_dimensions_on_two_threads(run, forks):
    # threads that the environment sets do no harm: those that a user sets do
    code = (
        "import numpy as np, bochner as bo, torch\n"
        "torch.set_num_threads(2)\n"
        "X = np.random.default_rng(0).normal(size=(170, 165))\n"
        f"assert np.isfinite({run}).all()"
    )
    result = forks.run(code)
    assert result.returncode == 0, result.stderr

"""The page about containers does what it says."""

import re
import warnings
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip(
    "anndata", reason="anndata is not installed: pip install 'bochner[anndata]'"
)
pytest.importorskip("mudata", reason="mudata is not installed: pip install 'bochner[anndata]'")
PAGE = Path(__file__).parents[2] / "docs" / "containers.md"


def test_the_blocks_run_one_after_another():
    page = PAGE.read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL)
    assert len(blocks) == 3
    names = {}
    with warnings.catch_warnings():
        # of short fits, and of the containers about themselves
        warnings.simplefilter("ignore")
        for block in blocks:
            exec(compile(block, str(PAGE), "exec"), names)
    rna, full, cells, both = (names[name] for name in ("rna", "full", "cells", "both"))
    np.testing.assert_array_equal(full[rna.columns], rna)
    assert not full.isna().any().any()
    assert names["decoded"].shape == names["H"].shape
    assert np.iscomplexobj(names["decoded"])
    assert cells.uns["bochner"]["likelihoods"] == ["negative_binomial"]
    np.testing.assert_array_equal(names["latents"], both.obsm["X_bochner"])
    assert both.obsm["X_bochner_std"].shape == (40, 1)

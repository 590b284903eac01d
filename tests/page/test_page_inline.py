"""A notebook shows a page in its place."""

import html
import re
import warnings

import numpy as np

import bochner as bo


def test_the_frame_holds_the_whole_page(tmp_path):
    X = np.random.default_rng(0).normal(size=(12, 3))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = bo.NGMVLVM(1, n_frequencies=4, init="pca", max_iter=2, random_state=0).fit(X)
    page = bo.report(model, X, path=tmp_path / "page.html")
    (content,) = re.findall(r'srcdoc="([^"]*)"', page._repr_html_())
    assert html.unescape(content) == (tmp_path / "page.html").read_text()
    assert page == tmp_path / "page.html"

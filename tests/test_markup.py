"""Reports as notebooks show them: every number of the text is in the table, nothing is markup."""

import html
import html.parser
import re

import numpy as np
import pytest

import bochner as bo
from bochner import markup

EVIL = "<b>x</b>"


class Texts(html.parser.HTMLParser):
    """Collects texts, and checks that elements are closed in order."""

    def __init__(self):
        super().__init__()
        self.open, self.texts = [], []

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)


def texts(source):
    parser = Texts()
    parser.feed(source)
    assert not parser.open
    return parser.texts


def test_texts_are_escaped():
    result = texts(markup.table(EVIL, ["", EVIL], [[EVIL, 1.5]], [EVIL]))
    assert result == [EVIL, EVIL, EVIL, "1.5", EVIL]


@pytest.fixture(scope="module")
def fitted():
    source = np.random.default_rng(0)
    X = np.sin(source.normal(size=(40, 2)) @ source.normal(size=(2, 5)))
    settings = {"n_frequencies": 8, "n_init": 1, "init": "pca", "max_iter": 10, "tol": 1.0}
    return X, bo.NGMVLVM(2, random_state=0, **settings).fit(X[:30])


def test_reports_have_the_numbers_of_their_text(fitted):
    X, model = fitted
    selection = bo.select_n_components(
        model, X, [1, 2], n_repeats=2, random_state=0, hide="entries"
    )
    reports = [model.collapse_, bo.calibration(model, X[30:], random_state=0), selection]
    for report in reports:
        shown = " ".join(texts(report._repr_html_()))
        for number in re.findall(r"\d+\.\d+", str(report)):
            assert number in shown

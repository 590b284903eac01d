"""Law: whatever options, views, holes and dimensions are combined, a model fits, places, completes
and stays finite.
"""

import warnings

import numpy as np
import pytest

import bochner as bo

# what is finite with few draws is finite with many
pytestmark = pytest.mark.usefixtures("few_draws")
N = 36
LIKELIHOODS = {
    "real": "gaussian",
    "other": "gaussian",
    "counts": "negative_binomial",
    "bits": "bernoulli",
    "kinds": "categorical",
}
SETS = (
    ("real",),
    ("real", "other"),
    ("counts",),
    ("real", "counts"),
    ("real", "counts", "bits", "kinds"),
)
CLASSES = (bo.NGMVLVM, bo.AdvisedRFLVM, bo.SRFLVM)


def _name(cls, noise, names, size, holes):
    return f"{cls.__name__}-{noise}-{'+'.join(names)}-{size[0]}{'-holes' if holes else ''}"


# noise per column is for Gaussian views, and not for Dirichlet process kernels
CHOICES = [
    (cls, noise, names)
    for cls in CLASSES
    for noise in ("view", "column")
    for names in SETS
    if noise == "view" or (cls is not bo.SRFLVM and "real" in names)
]
FEW, MANY = (2, 20), (14, None)  # dimensions, landmarks
# few and many dimensions, with holes and without: each choice meets one of the four, so that every
# two of all options meet somewhere
SQUARE = ((FEW, False), (MANY, True), (FEW, True), (MANY, False))
CASES = [
    pytest.param(*choice, *SQUARE[number % 4], id=_name(*choice, *SQUARE[number % 4]))
    for number, choice in enumerate(CHOICES)
]


def _views():
    rng = np.random.default_rng(0)
    psi = np.sin(rng.normal(size=(N, 3)) @ rng.normal(size=(3, 18)))
    return {
        "real": psi[:, :6] + 0.1 * rng.normal(size=(N, 6)),
        "other": psi[:, :5],
        "counts": rng.poisson(np.exp(1 + psi[:, 6:10])).astype(float),
        "bits": (psi[:, 10:14] > 0).astype(float),
        "kinds": np.digitize(psi[:, 14:18], [-0.3, 0.3]).astype(float),
    }


def _joined(names):
    parts = [_views()[name] for name in names]
    stops = np.cumsum([part.shape[1] for part in parts])
    return np.hstack(parts), {
        n: slice(s - p.shape[1], s) for n, p, s in zip(names, parts, stops, strict=True)
    }


@pytest.mark.parametrize(("cls", "noise", "names", "size", "holes"), CASES)
def test_it_fits_places_and_completes(cls, noise, names, size, holes):
    (dim, landmarks), (X, views) = size, _joined(names)
    Y = np.where(np.random.default_rng(1).random(X.shape) < 0.2, np.nan, X) if holes else X
    new = Y[:5].copy()
    new[0, 1:] = np.nan  # a single entry
    if len(names) > 1:
        new[1, views[names[0]]] = np.nan
    model = cls(
        dim,
        views=views,
        likelihood={name: LIKELIHOODS[name] for name in names},
        noise=noise,
        landmarks=landmarks,
        init="pca",
        max_iter=2,
        n_frequencies=8,
        random_state=0,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # two steps do not converge
        model.fit(Y)
        result = [
            model.embedding_,
            model.transform(new),
            *model.impute(new, return_std=True),
            model.score_samples(new),
        ]
        result += [
            model.inverse_transform(model.embedding_[:3]),
            model.sample(3, random_state=0),
        ]
    for array in result:
        assert np.isfinite(np.asarray(array, dtype=float)).all()


def test_every_two_options_meet():
    met = [case.values for case in CASES]
    for names in SETS:
        of_set = [(size, holes) for _, _, those, size, holes in met if those == names]
        assert {size for size, _ in of_set} == {FEW, MANY}, names
        assert {holes for _, holes in of_set} == {True, False}, names
    for cls in CLASSES:
        assert {(size, holes) for other, _, _, size, holes in met if other is cls} == set(
            SQUARE
        )

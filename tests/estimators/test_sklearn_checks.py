"""scikit-learn's whole check suite on every latent variable model, and on two views of the most
different ones.
"""

import warnings

import pytest
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.estimator_checks import parametrize_with_checks

from bochner import NGMVLVM, RFLVM, SRFLVM, AdvisedRFLVM, RandomFeatureLVM
from bochner.errors import CollapseWarning, DataWarning

SMALL = {"max_iter": 5, "n_mixtures": 1, "n_frequencies": 4, "n_init": 1, "n_components": 1}
CLASSES = [NGMVLVM, AdvisedRFLVM, RandomFeatureLVM, SRFLVM]
TWO = {"first": slice(0, 1), "rest": slice(1, None)}
ESTIMATORS = [cls(**SMALL) for cls in CLASSES]
ESTIMATORS += [cls(**SMALL, views=TWO) for cls in (NGMVLVM, SRFLVM)]
# long enough for a sweep over its blocks
ESTIMATORS.append(SRFLVM(**{**SMALL, "n_mixtures": 3, "max_iter": 11}))
ESTIMATORS.append(RFLVM(**SMALL, n_chains=2, n_warmup=1, n_draws=2, thin=1))

# With two views only. The check takes an error whose text has "n_features=1"; ours names the view
# without a column.
EXPECTED_FAILURES = {"check_fit2d_1feature": "two views need two columns"}


# What the checks look at does not depend on how well the bound is known; hundreds of fits are
# faster so.
pytestmark = pytest.mark.usefixtures("few_draws")


@parametrize_with_checks(
    ESTIMATORS,
    expected_failed_checks=lambda estimator: EXPECTED_FAILURES if estimator.views else {},
)
def test_scikit_learn_check(estimator, check):
    with warnings.catch_warnings():
        # Five steps are no training, and the checks' data are small, constant or of low rank on
        # purpose.
        for category in (ConvergenceWarning, CollapseWarning, DataWarning):
            warnings.simplefilter("ignore", category)
        check(estimator)

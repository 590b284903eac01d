"""Choose the parameter of an indefinite kernel by cross-validation: ``python
examples/krein_pipeline.py``.

The TL1 kernel max(tau - ||x - y||_1, 0) wants columns in [0, 1], so a scaler that clips stands
before it; explicit features stand before a linear SVM, so everything but the sketch of the rows is
linear in their number.
"""

from __future__ import annotations

import argparse

from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, StandardScaler
from sklearn.svm import LinearSVC

import bochner as bo


def main() -> GridSearchCV:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--columns",
        type=int,
        default=120,
        help="output columns of the feature map (default 120)",
    )
    parser.add_argument(
        "--iterations", type=int, default=100, help="iterations of its fit (default 100)"
    )
    options = parser.parse_args()

    X, y = load_breast_cancer(return_X_y=True)
    X_train, X_test, y_train, y_test = train_test_split(X, y, random_state=0)
    features = bo.KreinFeatures(
        bo.kernels.TL1(), options.columns, max_iter=options.iterations, random_state=0
    )
    pipeline = make_pipeline(
        MinMaxScaler(clip=True),
        features,
        # not divided by their deviations, columns weigh what the kernel gives them
        StandardScaler(with_std=False),
        LinearSVC(dual=False),
    )
    d = X.shape[1]
    grid = {
        "kreinfeatures__kernel__tau": [0.1 * d, 0.7 * d],
        "linearsvc__C": [1e-2, 1e-1, 1.0, 10.0],
    }
    search = GridSearchCV(pipeline, grid, cv=3).fit(X_train, y_train)

    fitted = search.best_estimator_.named_steps["kreinfeatures"]
    print(f"chosen: tau = {fitted.kernel_.tau:.2f}, C = {search.best_params_['linearsvc__C']}")
    print(f"accuracy on rows held out: {search.score(X_test, y_test):.3f}")
    print(
        f"relative error of the kernel over pairs that no fit saw: {fitted.held_out_error_:.4f}"
    )
    print(f"smallest over largest eigenvalue: {fitted.eigenvalue_ratio_:.4f}")
    print(
        f"columns of the negative part: {int((fitted.signs_ < 0).sum())} of {options.columns}"
    )
    return search


if __name__ == "__main__":
    main()

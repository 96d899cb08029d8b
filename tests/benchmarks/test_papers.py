"""The scores and formulas by which the random forest kernel's paper is judged, against other ways to compute them."""

import numpy as np
import pytest
import torch
from scipy.stats import multivariate_normal, norm

from benchmarks.paper_equations import inverses
from benchmarks.paper_methods import Prediction
from benchmarks.paper_sets import against_standard


def test_joint_and_pointwise_densities():
    random = np.random.default_rng(0)
    root, mean, y = random.standard_normal((3, 3)), random.standard_normal(3), random.standard_normal(3)
    covariance = root @ root.T + np.eye(3)
    scores = Prediction(torch.from_numpy(mean), torch.from_numpy(covariance)).scores(torch.from_numpy(y))
    assert scores["log density, joint"] == pytest.approx(multivariate_normal(mean, covariance).logpdf(y) / 3)
    alone = norm.logpdf(y, mean, np.sqrt(np.diag(covariance))).mean()
    assert scores["log density, pointwise"] == pytest.approx(alone)
    assert scores["log density, joint"] != pytest.approx(alone)


@pytest.mark.parametrize("sigma", [0.1, 1.0, 3.0])
def test_equation_10_lacks_a_factor(sigma):
    labels = np.random.default_rng(0).integers(3, size=(5, 40))
    found = inverses((labels[:, :, None] == labels[:, None, :]).astype(float), sigma)
    assert found["with 1 / sigma"] < 1e-10
    assert found["least eigenvalue, with 1 / sigma"] > 0
    assert (found["largest error as printed"] < 1e-10) == (sigma == 1)
    assert (found["least eigenvalue of eq. 9 as printed"] < 0) == (sigma > 1)


def test_a_method_is_better_by_two_standard_errors_only():
    standard = {
        (name, other): np.array([1.0, 1.1, 0.9, 1.0]) for name in "ab" for other in ("linear", "RBF", "RBF-ARD")
    }
    scores = standard | {("a", "own"): np.array([2.0, 2.1, 1.9, 2.0]), ("b", "own"): np.array([3.0, -1.0, 2.0, 0.5])}
    assert against_standard(scores, "own", sign=1) == (1, 0, 2)
    assert against_standard(scores, "own", sign=-1) == (0, 1, 2)
